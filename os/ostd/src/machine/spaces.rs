//! Address spaces: a level 4 table each, and which CPUs have it loaded.
//!
//! The upper half of each is OSTD's: the same level 3 tables, so that whatever is mapped there
//! later is seen in all of them. A shootdown goes to the CPUs that have the space loaded and to
//! nobody else.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Pfn};
use freehold_vm::{SpaceId, Vpn, VpnRange};

use super::mmu::{alloc_table, free_table};
use super::tables::{ENTRIES, words};
use super::{cpu, tables, tlb};

/// Where the address spaces have their folios.
pub(crate) const USER: Vpn = Vpn::new(0x1000_0000_0000 >> 12);
/// Spaces that there is room for.
pub(crate) const MAX_SPACES: usize = 2;

struct Space {
    root: AtomicU64,
    users: AtomicU64,
}

static SPACES: [Space; MAX_SPACES] =
    [const { Space { root: AtomicU64::new(0), users: AtomicU64::new(0) } }; MAX_SPACES];

/// The level 4 table of a space that was [made](make).
pub(crate) fn root(space: SpaceId) -> Pfn {
    // Acquire: the table is filled.
    let root = SPACES[space.index()].root.load(Ordering::Acquire);
    assert_ne!(root, 0, "{space} does not exist");
    Pfn::new(root)
}

/// A bit for each CPU that may have translations of the space.
pub(crate) fn users(space: SpaceId) -> u64 {
    // SeqCst: pairs with `enter`; see `Hardware::flush`.
    SPACES[space.index()].users.load(Ordering::SeqCst)
}

/// Makes an address space with nothing in its lower half.
pub(crate) fn make(space: SpaceId) {
    let table = alloc_table().unwrap_or_else(|| panic!("no memory for {space}"));
    tables::clear(table);
    let loaded = words(tables::table_of(tlb::loaded()));
    for (ours, theirs) in words(table).iter().zip(loaded).skip(ENTRIES / 2) {
        // Relaxed: published by the swap below. OSTD has filled these entries at boot, and never
        // changes them.
        ours.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    // Release: the table is filled.
    let before = SPACES[space.index()].root.swap(table.get(), Ordering::AcqRel);
    assert_eq!(before, 0, "{space} was made twice");
}

/// Takes an address space away that no CPU has loaded and nothing is mapped in; gives its tables
/// back.
pub(crate) fn destroy(space: SpaceId) {
    assert_eq!(users(space), 0, "{space} is in use");
    let root = root(space);
    let all = VpnRange { start: Vpn::new(0), end: Vpn::new(1 << 35) };
    assert!(all.contains(USER), "where the spaces have their folios");
    // Leaving the space has made every CPU forget its tables.
    tables::release(root, all, free_table);
    free_table(root);
    SPACES[space.index()].root.store(0, Ordering::Release);
}

/// Runs `f` with the address space loaded on this CPU.
pub(crate) fn within<R>(space: SpaceId, f: impl FnOnce() -> R) -> R {
    let (me, this) = (1 << cpu::index(), cpu::this());
    // Relaxed: this CPU's own.
    this.space.store(u64::from(space.get()) + 1, Ordering::Relaxed);
    // SeqCst: before the tables are loaded; see `Hardware::flush`.
    SPACES[space.index()].users.fetch_or(me, Ordering::SeqCst);
    let before = tlb::loaded();
    // SAFETY: the upper half is OSTD's; see `make`.
    unsafe { tlb::load(root(space).get() * FRAME_SIZE) };
    let result = f();
    // SAFETY: what was loaded before.
    unsafe { tlb::load(before) };
    // Release: nothing of the space is used any more, and everything is forgotten.
    SPACES[space.index()].users.fetch_and(!me, Ordering::SeqCst);
    this.space.store(0, Ordering::Relaxed);
    result
}
