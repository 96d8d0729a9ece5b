//! The local APIC: interrupts to other CPUs, and a timer.
//!
//! Its registers are at 0xfee0_0000, the same address for every CPU, each seeing its own; there the
//! direct map is uncached (`tables.rs`). The old interrupt controllers are silenced.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::interrupts::{SPURIOUS, TIMER};
use crate::layout::direct;
use crate::{clock, cpu, ports};

/// Where its registers are, unless somebody has moved them.
pub(crate) const PHYSICAL: u64 = 0xfee0_0000;

const ID: u64 = 0x20;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER_VECTOR: u64 = 0x320;
const TIMER_INITIAL: u64 = 0x380;
const TIMER_CURRENT: u64 = 0x390;
const TIMER_DIVIDE: u64 = 0x3e0;

const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;
const BUSY: u32 = 1 << 12;

/// Timer interrupts a second.
pub(crate) const HERTZ: u64 = 100;

/// Counts of the timer between two interrupts.
static PERIOD: AtomicU32 = AtomicU32::new(0);

fn read(register: u64) -> u32 {
    // SAFETY: a register of this CPU's local APIC, which the direct map shows; reading it has no
    // effect on memory.
    unsafe { (direct(PHYSICAL + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as in `read`. What is written here sends interrupts, for which handlers are in place,
    // or starts CPUs, which `smp.rs` has prepared.
    unsafe { (direct(PHYSICAL + register) as *mut u32).write_volatile(value) };
}

/// Silences the old interrupt controllers and measures the timer. The first CPU, once.
pub(crate) fn init_machine() {
    assert_eq!(cpu::read_msr(0x1b) & 0xf_ffff_f000, PHYSICAL, "the local APIC is somewhere else");
    // Both controllers, moved away from the exceptions' vectors, all lines masked.
    for (port, values) in [(0x20, [0x11, 0x20, 4, 1, 0xff]), (0xa0, [0x11, 0x28, 2, 1, 0xff])] {
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: the controllers' registers; they touch no memory.
            unsafe { ports::write8(port + u16::from(i > 0), value) };
        }
    }
    init_cpu();
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_VECTOR, MASKED);
    write(TIMER_INITIAL, u32::MAX);
    clock::wait(clock::from_microseconds(10_000));
    let counted = u32::MAX - read(TIMER_CURRENT);
    write(TIMER_INITIAL, 0);
    let period = u64::from(counted) * 100 / HERTZ;
    // Relaxed: read by CPUs that start later.
    PERIOD.store(period.max(1) as u32, Ordering::Relaxed);
}

/// Switches this CPU's on; returns its number.
pub(crate) fn init_cpu() -> u32 {
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
    read(ID) >> 24
}

/// Starts this CPU's timer, with so many interrupts a second.
pub(crate) fn set_timer(hertz: u64) {
    write(TIMER_DIVIDE, 0b1011);
    write(TIMER_VECTOR, PERIODIC | u32::from(TIMER));
    // Relaxed: see `init_machine`.
    let period = u64::from(PERIOD.load(Ordering::Relaxed)) * HERTZ / hertz;
    write(TIMER_INITIAL, period.clamp(1, u64::from(u32::MAX)) as u32);
}

/// Lets the next interrupt in.
pub(crate) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

fn command(apic_id: u32, low: u32) {
    write(COMMAND_HIGH, apic_id << 24);
    write(COMMAND_LOW, low);
    while read(COMMAND_LOW) & BUSY != 0 {
        core::hint::spin_loop();
    }
}

/// Sends an interrupt to another CPU. The two halves of the command must not be torn apart by a
/// handler that sends one itself, so interrupts are off meanwhile.
pub(crate) fn send(apic_id: u32, vector: u8) {
    without_interrupts(|| command(apic_id, u32::from(vector)));
}

/// Runs `f` with interrupts off, then puts them back as they were.
fn without_interrupts(f: impl FnOnce()) {
    let flags: u64;
    // SAFETY: the stack is balanced again after each line; interrupts come back below.
    unsafe { core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    f();
    if flags & 1 << 9 != 0 {
        cpu::interrupts_on();
    }
}

/// Starts a CPU that is waiting to be started, at a page below 1 MiB: INIT, 10 ms, twice "start at
/// that page" (the second is ignored by a CPU that has understood the first).
pub(crate) fn start_cpu(apic_id: u32, page: u64) {
    command(apic_id, 0x4500);
    clock::wait(clock::from_microseconds(10_000));
    for _ in 0..2 {
        command(apic_id, 0x4600 | (page >> 12) as u32);
        clock::wait(clock::from_microseconds(200));
    }
}
