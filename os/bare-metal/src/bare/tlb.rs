//! The translations that this CPU has cached: how to forget them.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use freehold_kernel::paging::address;
use freehold_vm::{Flush, SpaceId, Vpn};

use crate::cpu;
use crate::layout::KERNEL_SPACE;

/// Pages above which all translations are forgotten, not one after the other (as in Linux).
const ONE_BY_ONE: u64 = 33;

/// Translations forgotten one by one, over all CPUs.
pub(crate) static SINGLE: AtomicU64 = AtomicU64::new(0);
/// Times that all were forgotten.
pub(crate) static ALL: AtomicU64 = AtomicU64::new(0);

/// Whether this CPU may have translations of that address space.
fn concerns(space: SpaceId) -> bool {
    // Relaxed: this CPU's own.
    space == KERNEL_SPACE || cpu::this().space.load(Ordering::Relaxed) == u64::from(space.get()) + 1
}

/// Forgets translations of pages, on this CPU.
pub(crate) fn forget(ranges: &[Flush]) {
    let mine = || ranges.iter().filter(|flush| concerns(flush.space));
    let pages: u64 = mine().map(|flush| flush.range.len()).sum();
    if pages > ONE_BY_ONE {
        return forget_all();
    }
    for flush in mine() {
        for vpn in flush.range.start.get()..flush.range.end.get() {
            // SAFETY: forgetting a translation is always allowed: the tables are looked at again.
            unsafe {
                asm!("invlpg [{}]", in(reg) address(Vpn::new(vpn)), options(nostack, preserves_flags))
            };
        }
    }
    // Relaxed: statistics.
    SINGLE.fetch_add(pages, Ordering::Relaxed);
}

/// Forgets everything: there are no global translations, so loading CR3 again does it.
pub(crate) fn forget_all() {
    // SAFETY: the same page tables as before.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) };
    // Relaxed: statistics.
    ALL.fetch_add(1, Ordering::Relaxed);
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
