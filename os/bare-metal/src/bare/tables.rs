//! Page tables of four levels, in frames.
//!
//! Tables are made as they are needed and stay until [`release`]. An entry is one atomic word: the
//! processor sets the accessed and dirty bits of those at level 1 behind everybody's back. Two CPUs
//! may need the same table at the same moment; the one whose entry comes second gives its frame
//! back.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Pfn};
use freehold_kernel::paging::{ENTRIES, index, pages_of_entry};
use freehold_vm::{Entry, MapError, Vpn, VpnRange};

use crate::layout::words;

/// Present, writable: what all entries that point to tables are. Who may do what is said by the
/// last one.
const TABLE: u64 = 0b11;
/// Uncached: for device registers.
pub(crate) const UNCACHED: u64 = 1 << 3 | 1 << 4;
const PFN: u64 = ((1 << 40) - 1) << 12;

fn table_of(entry: u64) -> Pfn {
    Pfn::new((entry & PFN) >> 12)
}

fn points_to_table(entry: u64) -> bool {
    entry & 1 != 0 && entry & Entry::HUGE.bits() == 0
}

/// Makes every entry of a frame that is to become a table say "nothing".
pub(crate) fn clear(table: Pfn) {
    // Relaxed: published by the entry that will point here.
    words(table).iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
}

/// The entry of that level for a page, where all tables above it are there.
pub(crate) fn walk(root: Pfn, vpn: Vpn, level: u32) -> Option<&'static AtomicU64> {
    let mut table = root;
    for above in (level + 1..=4).rev() {
        // Acquire: the table's contents come before the entry that points to it.
        let entry = words(table)[index(vpn, above)].load(Ordering::Acquire);
        if !points_to_table(entry) {
            return None;
        }
        table = table_of(entry);
    }
    Some(&words(table)[index(vpn, level)])
}

/// As [`walk`]; tables that are missing are made, in frames from `alloc`, which come cleared or
/// not; `free` takes back what was not needed after all.
///
/// # Errors
///
/// [`MapError::NoMemory`]; tables that were made stay.
pub(crate) fn walk_or_make(
    root: Pfn,
    vpn: Vpn,
    level: u32,
    mut alloc: impl FnMut() -> Option<Pfn>,
    mut free: impl FnMut(Pfn),
) -> Result<&'static AtomicU64, MapError> {
    let mut table = root;
    for above in (level + 1..=4).rev() {
        let slot = &words(table)[index(vpn, above)];
        // Acquire: as in `walk`.
        let mut entry = slot.load(Ordering::Acquire);
        if entry == 0 {
            let new = alloc().ok_or(MapError::NoMemory)?;
            clear(new);
            let made = new.get() << 12 | TABLE;
            // Release: who finds the table finds it cleared. Acquire on failure: as in `walk`.
            match slot.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => entry = made,
                Err(theirs) => {
                    free(new);
                    entry = theirs;
                }
            }
        }
        assert!(points_to_table(entry), "a table where {entry:#x} maps something at level {above}");
        table = table_of(entry);
    }
    Ok(&words(table)[index(vpn, level)])
}

/// The neighbouring entries of level 1 that `entry` begins, as many as `len`: within one table.
pub(crate) fn neighbours(entry: &'static AtomicU64, len: u64) -> &'static [AtomicU64] {
    let first = (core::ptr::from_ref(entry) as u64 % FRAME_SIZE / 8) as usize;
    assert!(first + len as usize <= ENTRIES, "{len} entries from {first} on pass the table's end");
    // SAFETY: tables are frames, seen in the direct map as 512 words for good (`layout::words`);
    // the assertion says that the entries are within that one.
    unsafe { core::slice::from_raw_parts(entry, len as usize) }
}

/// Takes the tables below the entries of level 4 that cover a range away, all of them empty, and
/// calls `free` with each. No CPU may use the range, or have walked there since everything forgot
/// its translations.
///
/// # Panics
///
/// Where something is still mapped.
pub(crate) fn release(root: Pfn, range: VpnRange, mut free: impl FnMut(Pfn)) {
    let mut at = range.start;
    while at < range.end {
        let entry = words(root)[index(at, 4)].swap(0, Ordering::AcqRel);
        if points_to_table(entry) {
            release_below(table_of(entry), 3, &mut free);
        }
        at = Vpn::new((at.get() | (pages_of_entry(4) - 1)) + 1);
    }
}

/// Takes the tables of levels 1 and 2 out that cover a range and are empty. `free` gets them in
/// batches, once nobody points to them any more, and must make every CPU forget the way through
/// them first. Nobody may be mapping anything in the range meanwhile.
pub(crate) fn prune(root: Pfn, range: VpnRange, mut free: impl FnMut(&[Pfn])) {
    let mut found = [Pfn::new(0); 64];
    let mut n = 0;
    for level in [2, 3] {
        // Entries of level 2 point to tables of level 1, which go first; then tables of level 2 may
        // be empty.
        let mut at = range.start;
        while at < range.end {
            let next = Vpn::new((at.get() | (pages_of_entry(level) - 1)) + 1);
            match walk(root, at, level) {
                Some(slot) => {
                    // Acquire: as in `walk`.
                    let entry = slot.load(Ordering::Acquire);
                    let table = table_of(entry);
                    let empty =
                        || words(table).iter().all(|entry| entry.load(Ordering::Acquire) == 0);
                    if points_to_table(entry) && empty() {
                        // Release: after all that was done through it.
                        slot.store(0, Ordering::Release);
                        found[n] = table;
                        n += 1;
                        if n == found.len() {
                            free(&found);
                            n = 0;
                        }
                    }
                    at = next;
                }
                // Nothing is there: on to the next table of the level above.
                None => at = Vpn::new((at.get() | (pages_of_entry(level + 1) - 1)) + 1),
            }
        }
    }
    if n > 0 {
        free(&found[..n]);
    }
}

fn release_below(table: Pfn, level: u32, free: &mut impl FnMut(Pfn)) {
    for entry in words(table) {
        // Acquire: as in `walk`.
        let entry = entry.load(Ordering::Acquire);
        if level > 1 && points_to_table(entry) {
            release_below(table_of(entry), level - 1, free);
        } else {
            assert_eq!(entry, 0, "released while something is mapped");
        }
    }
    free(table);
}
