//! Translations that other CPUs have cached.
//!
//! The machinery is used directly here, not through folios: entries are changed, nothing is
//! flushed, and only then.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FrameRange, Migratetype, Order, Pfn, Request};
use freehold_vm::{Access, Flush, FlushKind, Mmu, SpaceId, Vpn, VpnRange};
use ostd::prelude::ktest;

use super::team::{Failure, Member, Team, at_least, holds, same, say, succeeds, test};
use crate::machine::folios::page;
use crate::machine::mmu::Hardware;
use crate::machine::probe::{probe_read, probe_write};
use crate::machine::tables::{address, words};
use crate::machine::{calls, cpu, spaces};

/// Every CPU has this address space loaded.
const SPACE: SpaceId = SpaceId::new(1);
/// The page that changes.
const PAGE: Vpn = page(0);
const RANGE: VpnRange = VpnRange { start: PAGE, end: Vpn::new(PAGE.get() + 1) };
const GONE: Flush = Flush { space: SPACE, range: RANGE, kind: FlushKind::Unmapped };

fn read() -> Option<u64> {
    // SAFETY: what this test maps there are its own frames.
    unsafe { probe_read(address(PAGE)) }.ok()
}

/// A frame whose first word is `value`.
fn frame(value: u64) -> Result<Pfn, Failure> {
    let pfn = cpu::frames().alloc(Request::new(Order::ZERO, Migratetype::Unmovable));
    let pfn = succeeds("no frame", pfn)?;
    // Relaxed: the entry publishes it.
    words(pfn)[0].store(value, Ordering::Relaxed);
    Ok(pfn)
}

fn show(pfn: Pfn) -> Result<(), Failure> {
    let run = FrameRange { start: pfn, end: Pfn::new(pfn.get() + 1) };
    let mapped = Hardware.map(SPACE, PAGE, run, Access::ReadWrite, Order::ZERO);
    succeeds("a page cannot be mapped", mapped)
}

#[ktest]
fn stale_translations_are_shot_down() {
    test(stale);
}

#[ktest]
fn no_cpu_sees_a_frame_after_its_flush() {
    test(racing);
}

#[ktest]
fn shootdowns_go_where_the_address_space_is() {
    test(targets);
}

/// One changes an entry; the others have the old translation, until the flush, and not an access
/// longer.
fn stale() -> Result<(), Failure> {
    const ROUNDS: u64 = 30;
    let before = calls::snapshot();
    let stale_reads = AtomicU64::new(0);
    in_space(|member| {
        for round in 1..=ROUNDS {
            let mut mine = None;
            if member.cpu == 0 {
                let pfn = frame(round)?;
                show(pfn)?;
                mine = Some(pfn);
            }
            member.meet()?;
            same("what the page shows", read().unwrap_or(0), round)?;
            member.meet()?;
            if member.cpu == 0 {
                Hardware.unmap(SPACE, RANGE);
            }
            member.meet()?;
            if member.cpu != 0 {
                // The processor may have forgotten it by itself; if it has not, it is the old frame
                // that shows.
                if let Some(value) = read() {
                    same("a stale translation", value, round)?;
                    // Relaxed: statistics.
                    stale_reads.fetch_add(1, Ordering::Relaxed);
                }
            }
            member.meet()?;
            if member.cpu == 0 {
                Hardware.flush(&[GONE]);
            }
            member.meet()?;
            holds("a page that was unmapped and flushed faults", read().is_none())?;
            member.meet()?;
            if let Some(pfn) = mine {
                succeeds("the frame cannot be freed", cpu::frames().free(pfn, Order::ZERO))?;
            }
        }
        Ok(())
    })?;
    let after = calls::snapshot();
    let others = (cpu::count() - 1) as u64;
    say(format_args!(
        "    {} of {} reads between unmap and flush saw the old frame; {} shootdowns, {} interrupts",
        stale_reads.into_inner(),
        ROUNDS * others,
        after.shootdowns - before.shootdowns,
        after.shootdown_interrupts - before.shootdown_interrupts,
    ));
    if others > 0 {
        same("shootdowns", after.shootdowns - before.shootdowns, ROUNDS)?;
        same("interrupts", after.shootdown_calls - before.shootdown_calls, ROUNDS * others)?;
    }
    Ok(())
}

/// Runs `f` on all CPUs, which have the space loaded. What a failure leaves mapped is lost.
fn in_space(f: impl Fn(&Member<'_>) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    spaces::make(SPACE);
    let result = Team::run(|member| spaces::within(SPACE, || f(member)));
    Hardware.unmap(SPACE, RANGE);
    spaces::destroy(SPACE);
    result
}

/// One changes the page all the time and gives the old frame to somebody else after each flush; the
/// others read all the time. None may ever read what was put into a frame after it was flushed.
fn racing() -> Result<(), Failure> {
    const ROUNDS: u64 = 300;
    const POISON: u64 = u64::MAX;
    let flushed = AtomicU64::new(0);
    let (reads, misses) = (AtomicU64::new(0), AtomicU64::new(0));
    in_space(|member| {
        if member.cpu == 0 {
            let change = || -> Result<(), Failure> {
                for round in 1..=ROUNDS {
                    let pfn = frame(round)?;
                    show(pfn)?;
                    // Time for others to see it; on one CPU there are none.
                    (0..200).for_each(|_| core::hint::spin_loop());
                    Hardware.unmap(SPACE, RANGE);
                    Hardware.flush(&[GONE]);
                    // Release: who sees the number reads after the flush.
                    flushed.store(round, Ordering::Release);
                    // Whoever still had a translation would read this.
                    words(pfn)[0].store(POISON, Ordering::Relaxed);
                    succeeds("the frame cannot be freed", cpu::frames().free(pfn, Order::ZERO))?;
                }
                Ok(())
            };
            let result = change();
            // Also where it failed: the others wait for it.
            flushed.store(u64::MAX, Ordering::Release);
            return result;
        }
        loop {
            // Acquire: see above.
            let least = flushed.load(Ordering::Acquire);
            if least == u64::MAX {
                return Ok(());
            }
            // Relaxed: statistics.
            match read() {
                Some(value) => {
                    holds("a frame is read that is somebody else's by now", value != POISON)?;
                    at_least("a page is read that was unmapped and flushed", value, least + 1)?;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                None => drop(misses.fetch_add(1, Ordering::Relaxed)),
            }
            core::hint::spin_loop();
        }
    })?;
    say(format_args!(
        "    {ROUNDS} frames shown and taken away; {} reads saw one, {} faulted",
        reads.into_inner(),
        misses.into_inner()
    ));
    Ok(())
}

/// Only CPUs that have an address space loaded are interrupted for it.
fn targets() -> Result<(), Failure> {
    const ROUNDS: u64 = 20;
    let cpus = cpu::count();
    spaces::make(SPACE);
    let mut result = Ok(());
    for users in 1..=cpus {
        let before = calls::snapshot();
        // The first `users` CPUs have it loaded; the first of them changes it.
        let ran = Team::run(|member| {
            let work = || {
                member.meet()?;
                if member.cpu == 0 {
                    let pfn = frame(0)?;
                    for _ in 0..ROUNDS {
                        show(pfn)?;
                        // SAFETY: this test's own frame.
                        let written = unsafe { probe_write(address(PAGE), 1) };
                        holds("a page of the space can be written to", written.is_ok())?;
                        Hardware.unmap(SPACE, RANGE);
                        Hardware.flush(&[GONE]);
                    }
                    succeeds("the frame cannot be freed", cpu::frames().free(pfn, Order::ZERO))?;
                }
                member.meet()
            };
            if member.cpu < users { spaces::within(SPACE, work) } else { work() }
        });
        let after = calls::snapshot();
        let expected = ROUNDS * (users as u64 - 1);
        result = result.and(ran).and_then(|()| {
            same("interrupts", after.shootdown_calls - before.shootdown_calls, expected)
        });
    }
    spaces::destroy(SPACE);
    say(format_args!("    {ROUNDS} flushes of a space that 1 to {cpus} CPUs have loaded"));
    result
}
