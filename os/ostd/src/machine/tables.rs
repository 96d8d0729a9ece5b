//! Page tables of four levels, in frames.
//!
//! ```text
//!   virtual address   47 ...... 39 | 38 ...... 30 | 29 ...... 21 | 20 ...... 12 | 11 ... 0
//!                     level 4: 512   level 3: 1     level 2: 2     level 1: 4     byte
//!                     GiB an entry   GiB            MiB            KiB
//! ```
//!
//! Tables are made as they are needed and stay until [`release`]. An entry is one atomic word: the
//! processor sets the accessed and dirty bits of those at level 1 behind everybody's back. Two CPUs
//! may need the same table at the same moment; the one whose entry comes second gives its frame
//! back.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Pfn};
use freehold_vm::{Entry, MapError, Vpn, VpnRange};

use crate::frames::direct_map;

/// Entries in a table.
pub(crate) const ENTRIES: usize = 512;
/// Present, writable: what all entries that point to tables are. Who may do what is said by the
/// last one.
const TABLE: u64 = 0b11;
/// The bit that says that nothing may be executed from there.
const NO_EXECUTE: u64 = 1 << 63;
const PFN: u64 = ((1 << 40) - 1) << 12;

/// A frame as 512 words, which anybody may use at any time.
///
/// Words, not bytes, and atomic, so that what two CPUs do to a frame by mistake is a wrong value
/// and not undefined.
pub(crate) fn words(pfn: Pfn) -> &'static [AtomicU64; ENTRIES] {
    let at = direct_map((pfn.get() * FRAME_SIZE) as usize).cast::<[AtomicU64; ENTRIES]>();
    // SAFETY: the direct map shows all RAM at fixed addresses for as long as the kernel runs, a
    // frame is aligned to more than a word, and any bits are a valid word. Frames of the zone are
    // only ever used through here or, by whoever allocated them, through another mapping; shared
    // words allow both.
    unsafe { &*at }
}

/// Pages that one entry of a level covers: 1, 512, 2^18, 2^27 for levels 1 to 4.
const fn pages_of_entry(level: u32) -> u64 {
    1 << (9 * (level - 1))
}

/// The number of the entry for a page in its table of that level.
pub(crate) const fn index(vpn: Vpn, level: u32) -> usize {
    (vpn.get() >> (9 * (level - 1))) as usize & (ENTRIES - 1)
}

/// The page behind the last one that the same entry of that level covers.
pub(crate) const fn entry_end(vpn: Vpn, level: u32) -> Vpn {
    Vpn::new((vpn.get() | (pages_of_entry(level) - 1)) + 1)
}

/// The address of a page of the lower half.
pub(crate) const fn address(vpn: Vpn) -> u64 {
    vpn.get() << 12
}

/// An entry as the tables hold it, as the mechanisms know it: without what they know nothing of.
pub(crate) const fn from_hardware(bits: u64) -> Entry {
    Entry::from_bits(bits & !NO_EXECUTE)
}

/// An entry of the mechanisms as the tables hold it: data, not to be executed.
pub(crate) const fn to_hardware(entry: Entry) -> u64 {
    if entry.is_mapped() { entry.bits() | NO_EXECUTE } else { entry.bits() }
}

/// Cuts a range of pages where level 1 tables end.
pub(crate) fn parts(range: VpnRange) -> impl Iterator<Item = VpnRange> {
    let mut at = range.start;
    core::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let part = VpnRange { start: at, end: entry_end(at, 2).min(range.end) };
        at = part.end;
        Some(part)
    })
}

/// The table that an entry, or CR3, points to.
pub(crate) fn table_of(entry: u64) -> Pfn {
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
    // SAFETY: tables are frames, seen in the direct map as 512 words for good ([`words`]);
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
        at = entry_end(at, 4);
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
