//! Interrupts: what they must not touch, and what may be done in them.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{Migratetype, Order, Pfn, Request};
use freehold_kernel::suite::{Failure, Machine, Team, at_least, same, succeeds};

use crate::machine::Bare;
use crate::{apic, cpu, memory, timer};

global_asm!(
    r#"
    .text
// Fills the 128 bytes below the stack pointer and all 16 XMM registers, waits until the word at
// %rdi has reached %rsi, and returns how many of them have changed.
    .balign 16
hold_red_zone:
    xorl %ecx, %ecx
1:  leaq 0x5a5a00(%rcx), %rdx
    movq %rdx, -128(%rsp, %rcx, 8)
    incl %ecx
    cmpl $16, %ecx
    jb 1b
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movl $(0xabc00 + \n), %edx
    movq %rdx, %xmm\n
    .endr
2:  pause
    cmpq %rsi, (%rdi)
    jb 2b
    xorl %eax, %eax
    xorl %ecx, %ecx
3:  leaq 0x5a5a00(%rcx), %rdx
    cmpq %rdx, -128(%rsp, %rcx, 8)
    je 4f
    incl %eax
4:  incl %ecx
    cmpl $16, %ecx
    jb 3b
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movq %xmm\n, %rdx
    cmpq $(0xabc00 + \n), %rdx
    je 5f
    incl %eax
5:
    .endr
    ret
"#,
    options(att_syntax)
);

unsafe extern "C" {
    fn hold_red_zone(ticks: *const AtomicU64, until: u64) -> u32;
}

/// What compiled code keeps where an ordinary kernel's handler would overwrite it.
pub(super) fn preserved(machine: &Bare) -> Result<(), Failure> {
    const INTERRUPTS: u64 = 6;
    Team::run(machine, |_| {
        let ticks = &cpu::this().timer_ticks;
        // Relaxed: this CPU's own.
        let until = ticks.load(Ordering::Relaxed) + INTERRUPTS;
        // SAFETY: reads the counter, and writes nothing but the red zone and registers that a call
        // may change.
        let wrong = unsafe { hold_red_zone(ticks, until) };
        same("words of the red zone and XMM registers changed by interrupts", u64::from(wrong), 0)
    })
}

/// The timer's handler allocates and frees while every CPU is in the allocator all the time.
pub(super) fn allocator(machine: &Bare) -> Result<(), Failure> {
    const HERTZ: u64 = 2000;
    const ENOUGH: u64 = 200;
    let counters = [&timer::ALLOCATED, &timer::REFUSED, &timer::FREED, &timer::WRONG];
    // Relaxed, here and below: statistics.
    counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    let result = Team::run(machine, |member| {
        apic::set_timer(HERTZ);
        timer::ALLOCATES.store(true, Ordering::Relaxed);
        let start = cpu::this().timer_ticks.load(Ordering::Relaxed);
        let mut pairs = 0u64;
        let mut work = || -> Result<(), Failure> {
            let mut some = [Pfn::new(0); 40];
            while cpu::this().timer_ticks.load(Ordering::Relaxed) < start + ENOUGH {
                let order = Order::new((pairs % 4) as u8).unwrap_or(Order::ZERO);
                let request = Request::new(order, Migratetype::Unmovable);
                let pfn = succeeds(machine, "no chunk", member.frames.alloc(request))?;
                let single = Request::new(Order::ZERO, Migratetype::Unmovable);
                let got =
                    succeeds(machine, "no frames", member.frames.alloc_bulk(single, &mut some))?;
                succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
                for pfn in &some[..got] {
                    succeeds(
                        machine,
                        "a frame cannot be freed",
                        member.frames.free(*pfn, Order::ZERO),
                    )?;
                }
                pairs += 1;
            }
            Ok(())
        };
        let result = work();
        apic::set_timer(apic::HERTZ);
        result?;
        member.meet()?;
        timer::ALLOCATES.store(false, Ordering::Relaxed);
        // Every CPU has seen that: its handler does not run in the middle of a meeting's end.
        member.meet()?;
        for slot in &cpu::this().interrupt_frames {
            let pfn = slot.swap(0, Ordering::Relaxed);
            if pfn != 0 {
                succeeds(
                    machine,
                    "a handler's frame",
                    member.frames.free(Pfn::new(pfn), Order::ZERO),
                )?;
            }
        }
        Ok(())
    });
    timer::ALLOCATES.store(false, Ordering::Relaxed);
    let [allocated, refused, freed, wrong] =
        counters.map(|counter| counter.load(Ordering::Relaxed));
    machine.print(format_args!(
        "    in handlers: {allocated} frames allocated, {refused} requests refused rather than wait, {freed} freed"
    ));
    result?;
    same("frees in handlers that went wrong", wrong, 0)?;
    at_least("allocations in handlers", allocated, ENOUGH / 2)
}

/// The handler leaves a note; the CPU calls `tick` when it gets there.
pub(super) fn ticks(machine: &Bare) -> Result<(), Failure> {
    let cpus = cpu::count();
    // Relaxed: statistics.
    let all = || (0..cpus).map(|i| cpu::at(i).allocator_ticks.load(Ordering::Relaxed));
    let before: u64 = all().sum();
    Team::run(machine, |_| {
        let this = cpu::this();
        let mine = this.allocator_ticks.load(Ordering::Relaxed);
        while this.allocator_ticks.load(Ordering::Relaxed) == mine {
            cpu::wait_until(|| this.tick_due.load(Ordering::Relaxed));
            cpu::safe_point();
        }
        Ok(())
    })?;
    let holdings: u64 = (0..cpus)
        .filter_map(|i| memory::freehold().cpu_holdings(freehold::CpuId::new(i as u16)))
        .map(|h| h.0)
        .sum();
    machine.print(format_args!(
        "    {} ticks; CPUs hold {holdings} frames",
        all().sum::<u64>() - before
    ));
    at_least("ticks", all().sum::<u64>() - before, cpus as u64)
}
