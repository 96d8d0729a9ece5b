//! The translations that the CPU has cached: how to forget them.

use core::arch::asm;

use freehold_vm::{Flush, Vpn};

use super::space;
use super::tables::address;

/// Pages above which all translations are forgotten, not one after the other (as in Linux).
const ONE_BY_ONE: u64 = 33;

/// Forgets translations of pages, where the address space is loaded.
pub(crate) fn forget(ranges: &[Flush]) {
    if !space::is_loaded() {
        return;
    }
    let pages: u64 = ranges.iter().map(|flush| flush.range.len()).sum();
    if pages > ONE_BY_ONE {
        return forget_all();
    }
    for flush in ranges {
        for vpn in flush.range.start.get()..flush.range.end.get() {
            // SAFETY: forgetting a translation is always allowed: the tables are looked at again.
            unsafe {
                asm!("invlpg [{}]", in(reg) address(Vpn::new(vpn)), options(nostack, preserves_flags));
            }
        }
    }
}

/// Forgets everything of the lower half: it has no global translations, so loading CR3 again does
/// it.
fn forget_all() {
    // SAFETY: the same page tables as before.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) };
}

/// What is loaded now: where the tables are, and OSTD's bits.
pub(crate) fn loaded() -> u64 {
    let root: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

/// Changes to other page tables, and so forgets everything.
///
/// # Safety
///
/// They must show the kernel's half as all tables do.
pub(crate) unsafe fn load(root: u64) {
    // SAFETY: the caller's promise: the code that runs, its stack and its data stay where they are.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}
