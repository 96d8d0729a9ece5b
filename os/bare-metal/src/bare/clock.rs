//! Time: the time stamp counter, measured against the timer chip that every PC has had since 1981.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{cpu, ports};

/// Counts of the old timer a second.
const PIT_HERTZ: u64 = 1_193_182;

/// Counts of the time stamp counter a millisecond.
static PER_MILLISECOND: AtomicU64 = AtomicU64::new(1);

/// Measures, for 20 ms. The first CPU, once.
pub(crate) fn init() {
    const COUNTS: u64 = PIT_HERTZ / 50;
    // SAFETY: channel 2 of the old timer, which drives the speaker, with the speaker off; no memory
    // is touched.
    unsafe {
        let gate = ports::read8(0x61) & !0b10 | 1;
        ports::write8(0x61, gate & !1);
        // One shot, low byte then high byte.
        ports::write8(0x43, 0b1011_0000);
        ports::write8(0x42, COUNTS as u8);
        ports::write8(0x42, (COUNTS >> 8) as u8);
        ports::write8(0x61, gate);
    }
    let start = cpu::time_stamp();
    // SAFETY: the timer's output.
    while unsafe { ports::read8(0x61) } & 0x20 == 0 {
        core::hint::spin_loop();
    }
    let counted = cpu::time_stamp() - start;
    // Relaxed: read by CPUs that start later.
    PER_MILLISECOND.store((counted / 20).max(1), Ordering::Relaxed);
}

/// Counts of the time stamp counter for a time.
pub(crate) fn from_microseconds(n: u64) -> u64 {
    // Relaxed: see `init`.
    n * PER_MILLISECOND.load(Ordering::Relaxed) / 1000
}

/// Nanoseconds for counts of the time stamp counter.
pub(crate) fn nanoseconds(counts: u64) -> u64 {
    // Relaxed: see `init`.
    (u128::from(counts) * 1_000_000 / u128::from(PER_MILLISECOND.load(Ordering::Relaxed))) as u64
}

/// Waits.
pub(crate) fn wait(counts: u64) {
    let start = cpu::time_stamp();
    while cpu::time_stamp() - start < counts {
        crate::calls::poll();
        core::hint::spin_loop();
    }
}
