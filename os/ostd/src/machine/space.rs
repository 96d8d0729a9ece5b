//! The tests' address space: a level 4 table, and whether it is loaded.
//!
//! Its upper half is OSTD's: the same level 3 tables, so that whatever is mapped there later is
//! seen in both.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Pfn};
use freehold_vm::{SpaceId, Vpn};

use super::tables::{self, ENTRIES, words};
use super::tlb;

/// Which it is.
pub(crate) const SPACE: SpaceId = SpaceId::new(0);
/// Where it has its folios: in the lower half.
pub(crate) const USER: Vpn = Vpn::new(0x1000_0000_0000 >> 12);

/// Its level 4 table; 0 for none.
static ROOT: AtomicU64 = AtomicU64::new(0);
static LOADED: AtomicBool = AtomicBool::new(false);

/// The level 4 table of the space, which was [made](make).
pub(crate) fn root() -> Pfn {
    // Relaxed, as everything in this file: there is one CPU.
    let root = ROOT.load(Ordering::Relaxed);
    assert_ne!(root, 0, "there is no address space");
    Pfn::new(root)
}

/// Whether the CPU may have translations of the space.
pub(crate) fn is_loaded() -> bool {
    LOADED.load(Ordering::Relaxed)
}

/// Makes the space, with nothing in its lower half.
pub(crate) fn make() {
    let table = tables::make().expect("a frame for the address space");
    let loaded = words(tables::table_of(tlb::loaded()));
    for (ours, theirs) in words(table).iter().zip(loaded).skip(ENTRIES / 2) {
        // OSTD has filled these entries at boot, and never changes them.
        ours.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let before = ROOT.swap(table.get(), Ordering::Relaxed);
    assert_eq!(before, 0, "made twice");
}

/// Takes the space away, with nothing mapped in it any more; gives its tables back.
pub(crate) fn destroy() {
    assert!(!is_loaded(), "in use");
    // Leaving the space has made the CPU forget its tables.
    tables::release(root(), 4);
    ROOT.store(0, Ordering::Relaxed);
}

/// Runs `f` with the space loaded.
pub(crate) fn within(f: impl FnOnce()) {
    LOADED.store(true, Ordering::Relaxed);
    let before = tlb::loaded();
    // SAFETY: the upper half is OSTD's; see `make`.
    unsafe { tlb::load(root().get() * FRAME_SIZE) };
    f();
    // SAFETY: what was loaded before.
    unsafe { tlb::load(before) };
    LOADED.store(false, Ordering::Relaxed);
}
