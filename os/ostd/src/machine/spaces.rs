//! Address spaces: a level 4 table each, and which of them is loaded.
//!
//! The upper half of each is OSTD's: the same level 3 tables, so that whatever is mapped there
//! later is seen in all of them.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Pfn};
use freehold_vm::{SpaceId, Vpn, VpnRange};

use super::mmu::{alloc_table, free_table};
use super::tables::{ENTRIES, words};
use super::{tables, tlb};

/// Where the address spaces have their folios.
pub(crate) const USER: Vpn = Vpn::new(0x1000_0000_0000 >> 12);
/// Spaces that there is room for.
pub(crate) const MAX_SPACES: usize = 1;

/// The level 4 table of each; 0 for none.
static ROOTS: [AtomicU64; MAX_SPACES] = [const { AtomicU64::new(0) }; MAX_SPACES];
/// The space that is loaded: its index plus 1, 0 for none.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// The level 4 table of a space that was [made](make).
pub(crate) fn root(space: SpaceId) -> Pfn {
    // Relaxed, as everything in this file: there is one CPU.
    let root = ROOTS[space.index()].load(Ordering::Relaxed);
    assert_ne!(root, 0, "{space} does not exist");
    Pfn::new(root)
}

/// Whether the CPU may have translations of the space.
pub(crate) fn is_loaded(space: SpaceId) -> bool {
    LOADED.load(Ordering::Relaxed) == u64::from(space.get()) + 1
}

/// Makes an address space with nothing in its lower half.
pub(crate) fn make(space: SpaceId) {
    let table = alloc_table().unwrap_or_else(|| panic!("no memory for {space}"));
    tables::clear(table);
    let loaded = words(tables::table_of(tlb::loaded()));
    for (ours, theirs) in words(table).iter().zip(loaded).skip(ENTRIES / 2) {
        // OSTD has filled these entries at boot, and never changes them.
        ours.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let before = ROOTS[space.index()].swap(table.get(), Ordering::Relaxed);
    assert_eq!(before, 0, "{space} was made twice");
}

/// Takes an address space away that is not loaded and nothing is mapped in; gives its tables back.
pub(crate) fn destroy(space: SpaceId) {
    assert!(!is_loaded(space), "{space} is in use");
    let root = root(space);
    let all = VpnRange { start: Vpn::new(0), end: Vpn::new(1 << 35) };
    assert!(all.contains(USER), "where the spaces have their folios");
    // Leaving the space has made the CPU forget its tables.
    tables::release(root, all, free_table);
    free_table(root);
    ROOTS[space.index()].store(0, Ordering::Relaxed);
}

/// Runs `f` with the address space loaded.
pub(crate) fn within<R>(space: SpaceId, f: impl FnOnce() -> R) -> R {
    LOADED.store(u64::from(space.get()) + 1, Ordering::Relaxed);
    let before = tlb::loaded();
    // SAFETY: the upper half is OSTD's; see `make`.
    unsafe { tlb::load(root(space).get() * FRAME_SIZE) };
    let result = f();
    // SAFETY: what was loaded before.
    unsafe { tlb::load(before) };
    LOADED.store(0, Ordering::Relaxed);
    result
}
