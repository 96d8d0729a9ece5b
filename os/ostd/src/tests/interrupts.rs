//! Interrupts: what may be done in them.

use core::sync::atomic::Ordering;

use freehold::{CpuId, Migratetype, Order, Pfn, Request};
use ostd::prelude::ktest;

use super::team::{Failure, Team, at_least, same, say, succeeds, test};
use crate::machine::{cpu, timer, zone};

#[ktest]
fn the_allocator_in_interrupt_handlers() {
    test(allocator);
}

#[ktest]
fn the_timer_drives_the_allocators_periodic_work() {
    test(ticks);
}

/// The timer's handler allocates and frees while every CPU is in the allocator all the time.
fn allocator() -> Result<(), Failure> {
    const ENOUGH: u64 = 200;
    let counters = [&timer::ALLOCATED, &timer::REFUSED, &timer::FREED, &timer::WRONG];
    // Relaxed, here and below: statistics.
    counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    let result = Team::run(|member| {
        timer::ALLOCATES.store(true, Ordering::Relaxed);
        let start = cpu::this().timer_ticks.load(Ordering::Relaxed);
        let mut pairs = 0u64;
        let mut work = || -> Result<(), Failure> {
            let mut some = [Pfn::new(0); 40];
            while cpu::this().timer_ticks.load(Ordering::Relaxed) < start + ENOUGH {
                let order = Order::new((pairs % 4) as u8).unwrap_or(Order::ZERO);
                let request = Request::new(order, Migratetype::Unmovable);
                let pfn = succeeds("no chunk", member.frames.alloc(request))?;
                let single = Request::new(Order::ZERO, Migratetype::Unmovable);
                let got = succeeds("no frames", member.frames.alloc_bulk(single, &mut some))?;
                succeeds("a chunk cannot be freed", member.frames.free(pfn, order))?;
                for pfn in &some[..got] {
                    succeeds("a frame cannot be freed", member.frames.free(*pfn, Order::ZERO))?;
                }
                pairs += 1;
            }
            Ok(())
        };
        work()?;
        member.meet()?;
        timer::ALLOCATES.store(false, Ordering::Relaxed);
        // Every CPU has seen that: its handler does not run in the middle of a meeting's end.
        member.meet()?;
        for slot in &cpu::this().interrupt_frames {
            let pfn = slot.swap(0, Ordering::Relaxed);
            if pfn != 0 {
                succeeds("a handler's frame", member.frames.free(Pfn::new(pfn), Order::ZERO))?;
            }
        }
        Ok(())
    });
    timer::ALLOCATES.store(false, Ordering::Relaxed);
    let [allocated, refused, freed, wrong] =
        counters.map(|counter| counter.load(Ordering::Relaxed));
    say(format_args!(
        "    in handlers: {allocated} frames allocated, {refused} requests refused rather \
         than wait, {freed} freed"
    ));
    result?;
    same("frees in handlers that went wrong", wrong, 0)?;
    at_least("allocations in handlers", allocated, ENOUGH / 2)
}

/// The handler leaves a note; the CPU calls `tick` when it gets there.
fn ticks() -> Result<(), Failure> {
    let cpus = cpu::count();
    // Relaxed: statistics.
    let all = || (0..cpus).map(|i| cpu::at(i).allocator_ticks.load(Ordering::Relaxed));
    let before: u64 = all().sum();
    Team::run(|_| {
        let this = cpu::this();
        let mine = this.allocator_ticks.load(Ordering::Relaxed);
        while this.allocator_ticks.load(Ordering::Relaxed) == mine {
            cpu::wait_until(|| this.tick_due.load(Ordering::Relaxed));
            cpu::safe_point();
        }
        Ok(())
    })?;
    let holdings: u64 = (0..cpus)
        .filter_map(|i| zone::freehold().cpu_holdings(CpuId::new(i as u16)))
        .map(|h| h.0)
        .sum();
    say(format_args!("    {} ticks; CPUs hold {holdings} frames", all().sum::<u64>() - before));
    at_least("ticks", all().sum::<u64>() - before, cpus as u64)
}
