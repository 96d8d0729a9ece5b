//! One CPU's own data, found through the GS register; and single instructions.
//!
//! ```text
//!   IA32_GS_BASE -> PerCpu { itself, index, APIC id, counters, what it is waiting for, its handle into freehold ... }
//! ```
//!
//! There is no user mode, so GS never changes after a CPU has set it.

use core::arch::asm;

/// `hlt` with interrupts off, for ever.
pub(crate) fn halt_for_good() {
    // SAFETY: stops this CPU; nothing is expected of it any more.
    unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
}

/// Which CPU this is.
pub(crate) fn index() -> usize {
    0
}
