//! Page tables of four levels, in frames.
//!
//! ```text
//!   virtual address   47 ...... 39 | 38 ...... 30 | 29 ...... 21 | 20 ...... 12 | 11 ... 0
//!                     level 4: 512   level 3: 1     level 2: 2     level 1: 4     byte
//!                     GiB an entry   GiB            MiB            KiB
//! ```
//!
//! Tables are made as they are needed and stay until [`release`]. An entry is one atomic word: the
//! processor sets the accessed and dirty bits of those at level 1 behind everybody's back.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, Frames, Migratetype, Order, Pfn, Request};
use freehold_vm::{Entry, Vpn};

use super::zone;
use crate::frames::direct_map;

/// Entries in a table.
pub(crate) const ENTRIES: usize = 512;
const _: () = assert!(ENTRIES as u64 == freehold_vm::TABLE_ENTRIES);
/// Present, writable: what all entries that point to tables are. Who may do what is said by the
/// last one.
const TABLE: u64 = 0b11;
/// The bit that says that nothing may be executed from there.
const NO_EXECUTE: u64 = 1 << 63;
const PFN: u64 = ((1 << 40) - 1) << 12;

/// A frame as 512 words, which anybody may use at any time.
///
/// Words, not bytes, and atomic, so that what two users do to a frame by mistake is a wrong value
/// and not undefined.
pub(crate) fn words(pfn: Pfn) -> &'static [AtomicU64; ENTRIES] {
    let at = direct_map((pfn.get() * FRAME_SIZE) as usize).cast::<[AtomicU64; ENTRIES]>();
    // SAFETY: the direct map shows all RAM at fixed addresses for as long as the kernel runs, a
    // frame is aligned to more than a word, and any bits are a valid word. Frames of the zone are
    // only ever used through here or, by whoever allocated them, through another mapping; shared
    // words allow both.
    unsafe { &*at }
}

/// The number of the entry for a page in its table of that level.
pub(crate) const fn index(vpn: Vpn, level: u32) -> usize {
    (vpn.get() >> (9 * (level - 1))) as usize & (ENTRIES - 1)
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

/// The table that an entry, or CR3, points to.
pub(crate) fn table_of(entry: u64) -> Pfn {
    Pfn::new((entry & PFN) >> 12)
}

/// A table with nothing in it; none where the zone has no frame for it.
pub(crate) fn make() -> Option<Pfn> {
    let request = Request::new(Order::ZERO, Migratetype::Unmovable);
    let table = zone::freehold().alloc(request).ok()?;
    // Relaxed: published by the entry that will point here.
    words(table).iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    Some(table)
}

/// The entries of the level 1 table for a page, from the page's own on. Where a table is missing,
/// it is made, or there are none, as `missing` says.
pub(crate) fn walk(
    root: Pfn,
    vpn: Vpn,
    missing: fn() -> Option<Pfn>,
) -> Option<&'static [AtomicU64]> {
    let mut table = root;
    for above in (2..=4).rev() {
        let slot = &words(table)[index(vpn, above)];
        // Acquire: the table's contents come before the entry that points to it.
        let mut entry = slot.load(Ordering::Acquire);
        if entry == 0 {
            entry = missing()?.get() << 12 | TABLE;
            // Release: the processor, which finds the table, finds it cleared.
            slot.store(entry, Ordering::Release);
        }
        table = table_of(entry);
    }
    Some(&words(table)[index(vpn, 1)..])
}

/// Gives a table of that level back and all below it, which are empty, of the level 4 table its
/// lower half. The CPU may not have walked there since it forgot its translations.
///
/// # Panics
///
/// Where something is still mapped.
pub(crate) fn release(table: Pfn, level: u32) {
    let ours = if level == 4 { ENTRIES / 2 } else { ENTRIES };
    for entry in &words(table)[..ours] {
        // Acquire: as in `walk`.
        let entry = entry.load(Ordering::Acquire);
        if level > 1 && entry != 0 {
            release(table_of(entry), level - 1);
        } else {
            assert_eq!(entry, 0, "released while something is mapped");
        }
    }
    let freed = zone::freehold().free(table, Order::ZERO);
    freed.unwrap_or_else(|error| panic!("a page table cannot be freed: {error}"));
}
