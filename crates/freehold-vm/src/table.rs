//! Page tables: 512 entries each, and slots, which are neighbouring entries of one table.
//!
//! ```text
//!   address space   | table 0        | table 1        | table 2        | ...
//!   page table      entries 0 .. 511, a lock
//!   slots                    [====]      a few entries of one table, never past its end
//! ```
//!
//! A folio may lie across a table's end, but slots cannot: they are made in one place, which
//! checks, and everything that works on several entries at once takes slots. (Linux 6.15 had a
//! batch reader that ran on into whatever lay behind the table, when the first page of a folio was
//! mapped near its end.)
//!
//! # One entry for a whole table
//!
//! A folio of 512 frames that lies as its table does may be mapped by one entry, a PMD. It stands
//! in the place of the table's first, marked [`Entry::HUGE`], and the others have nothing mapped:
//!
//! ```text
//!   pages     0        1        2        ...  511
//!   PMD       | HUGE, frame f | -      | ...  | -   |    page i shows frame f + i
//!   split     | f    | f + 1  | f + 2  | ...  | f + 511 |  all as dirty and young as the PMD was
//! ```
//!
//! Whoever changes less than all of the table splits the PMD first, under the table's lock; in
//! between a walk finds nothing mapped, and waits for the lock.

use core::sync::atomic::AtomicBool as Hint;

use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::{Entry, Flush, FlushKind, SpaceId, Vpn, VpnRange, lock};

/// Entries in a page table.
#[cfg(not(loom))]
pub const TABLE_ENTRIES: u64 = 512;
/// Entries in a page table: few, since loom keeps a history of each.
#[cfg(loom)]
pub const TABLE_ENTRIES: u64 = 4;

/// An entry that anybody may change at any time: hardware, a software walk, a fault handler.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct AtomicEntry(AtomicU64);

impl AtomicEntry {
    #[inline]
    fn load(&self) -> Entry {
        // Acquire: who finds a frame here sees what was put into the frame before it was mapped.
        Entry::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Replaces the entry. For an entry that is not mapped and whose table the caller has locked:
    /// nobody else can change that, so nothing is overwritten.
    #[inline]
    fn store(&self, entry: Entry) {
        // Release: pairs with `load`.
        self.0.store(entry.bits(), Ordering::Release);
    }

    /// Takes the entry out, in one step: no dirty bit can be set between the reading and the
    /// clearing.
    #[inline]
    fn take(&self) -> Entry {
        // AcqRel: Acquire so that what was done through the entry before comes before what the
        // taker does next; Release so that whoever finds nothing here sees what the taker did
        // before.
        Entry::from_bits(self.0.swap(0, Ordering::AcqRel))
    }

    /// Clears bits, in one step, and returns the entry as it was.
    #[inline]
    fn clear(&self, bits: Entry) -> Entry {
        // AcqRel: as `take`.
        Entry::from_bits(self.0.fetch_and(!bits.bits(), Ordering::AcqRel))
    }

    /// Replaces the entry where it still is `old`; otherwise returns what it is.
    #[inline]
    pub(crate) fn replace(&self, old: Entry, new: Entry) -> Result<(), Entry> {
        // AcqRel: as `take`. Acquire where it fails: as `load`.
        self.0
            .compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Entry::from_bits)
    }
}

/// A page table in software. Where hardware or a kernel walks tables of its own, the
/// [`Mmu`](crate::Mmu) implementation keeps them and this one's lock alone is used.
pub struct PageTable {
    /// Held by whoever changes which frames the entries show. Hardware and software walks do not
    /// take it.
    locked: AtomicBool,
    /// The first entry is a PMD. Written under the lock; without it a hint that the first entry is
    /// worth a look, and so not loom's, which maps none.
    huge: Hint,
    entries: [AtomicEntry; TABLE_ENTRIES as usize],
}

impl PageTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            huge: Hint::new(false),
            entries: core::array::from_fn(|_| AtomicEntry::default()),
        }
    }

    /// Runs `f` while nobody else changes which frames this table shows.
    #[inline]
    pub(crate) fn with_lock<R>(&self, relax: impl Fn(), f: impl FnOnce() -> R) -> R {
        lock::acquire(&self.locked, relax);
        let result = f();
        lock::release(&self.locked);
        result
    }

    /// The entry that says what the page at `index` shows, what it is now, and how many frames
    /// behind its own that page's is.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> (&AtomicEntry, Entry, u64) {
        let own = &self.entries[index];
        let entry = own.load();
        if entry.is_mapped() { (own, entry, 0) } else { self.entry_of_pmd(index, entry) }
    }

    #[inline]
    fn entry_of_pmd(&self, index: usize, own: Entry) -> (&AtomicEntry, Entry, u64) {
        if self.is_huge() {
            let pmd = self.entries[0].load();
            if pmd.is_mapped() && pmd.has(Entry::HUGE) {
                return (&self.entries[0], pmd, index as u64);
            }
        }
        (&self.entries[index], own, 0)
    }

    #[inline]
    fn is_huge(&self) -> bool {
        // Relaxed: see the field. Who finds it clear though a PMD is there finds nothing mapped.
        self.huge.load(Ordering::Relaxed)
    }

    fn set_huge(&self, huge: bool) {
        // Relaxed: as in `is_huge`.
        self.huge.store(huge, Ordering::Relaxed);
    }

    /// Makes a PMD, if the table has one, 512 entries; whether it had. Under the lock.
    fn split_pmd(&self) -> bool {
        if !self.is_huge() {
            return false;
        }
        let first = self.entries[0].take().without(Entry::HUGE);
        self.set_huge(false);
        for (i, entry) in self.entries.iter().enumerate() {
            entry.store(first.advance(i as u64));
        }
        true
    }
}

/// Neighbouring entries of one page table, and which pages of which address space they are for.
#[derive(Clone, Copy)]
pub struct Slots<'t> {
    table: &'t PageTable,
    index: usize,
    len: usize,
    space: SpaceId,
    first: Vpn,
}

impl<'t> Slots<'t> {
    /// `len` entries from number `index` on.
    ///
    /// # Panics
    ///
    /// Where they would pass the table's end.
    pub(crate) fn new(
        table: &'t PageTable,
        index: usize,
        len: usize,
        space: SpaceId,
        first: Vpn,
    ) -> Self {
        assert!(
            index + len <= TABLE_ENTRIES as usize,
            "{len} entries from {index} on pass the page table's end"
        );
        Self { table, index, len, space, first }
    }

    /// The address space.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// The page that the first entry is for.
    #[must_use]
    pub fn first(&self) -> Vpn {
        self.first
    }

    /// How many entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages.
    #[must_use]
    pub fn range(&self) -> VpnRange {
        VpnRange { start: self.first, end: self.first.plus(self.len()) }
    }

    /// That the pages are to be flushed, since this happened to their entries.
    pub(crate) fn flush(&self, kind: FlushKind) -> Flush {
        Flush { space: self.space, range: self.range(), kind }
    }

    /// What the first page shows: its entry, or what its table's PMD says of it, which has
    /// [`Entry::HUGE`] then.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Entry {
        let (_, entry, behind) = self.table.entry(self.index);
        entry.advance(behind)
    }

    /// Fills entries with nothing mapped: the first with `first`, each of the others with the frame
    /// after the last one's; or with one PMD, where that is what `first` is. Under the table's
    /// lock.
    ///
    /// # Panics
    ///
    /// If `first` is a PMD and these are not all entries of a table.
    pub fn store(&self, first: Entry) {
        if first.has(Entry::HUGE) {
            assert!(self.is_table(), "a PMD is for all of its table");
            self.table.entries[0].store(first);
            self.table.set_huge(true);
            return;
        }
        for (i, entry) in self.entries().iter().enumerate() {
            entry.store(first.advance(i as u64));
        }
    }

    /// Clears entries, each in one atomic step, and returns the first as it was, with the young and
    /// dirty bits of all of them; and how many there were: one, where a PMD was for all of them. A
    /// PMD for more is split first. Under the table's lock.
    #[inline]
    pub fn take(&self) -> (Entry, u64) {
        if self.table.is_huge() {
            if self.is_table() {
                self.table.set_huge(false);
                return (self.table.entries[0].take(), 1);
            }
            self.table.split_pmd();
        }
        let mut entries = self.entries().iter();
        let mut merged = entries.next().map_or(Entry::NONE, AtomicEntry::take);
        for entry in entries {
            merged = merged.with(entry.take().only(Entry::HARDWARE));
        }
        (merged, self.len())
    }

    /// Clears bits in those of the entries that are mapped, each in one atomic step, and returns
    /// which of the bits were set in any of them. Under the table's lock, unless the bit is
    /// [`Entry::YOUNG`], which a PMD loses for all of its pages.
    pub fn clear(&self, bits: Entry) -> Entry {
        if self.table.is_huge() && bits != Entry::YOUNG && !self.is_table() {
            self.table.split_pmd();
        }
        let pmd = self.table.is_huge();
        let entries = if pmd { &self.table.entries[..1] } else { self.entries() };
        let mut merged = Entry::NONE;
        for entry in entries {
            // A read first: most entries have nothing to clear, and an atomic write costs twenty
            // times as much.
            let now = entry.load();
            if now.is_mapped() && now.only(bits) != Entry::NONE {
                merged = merged.with(entry.clear(bits).only(bits));
            }
        }
        merged
    }

    /// Replaces the first entry where it still is `old`; a PMD is split first, whose pages are not
    /// what [`load`](Self::load) said then, but without [`Entry::HUGE`]. Under the table's lock.
    ///
    /// # Errors
    ///
    /// The entry as it is, where that is not `old`.
    pub fn replace(&self, old: Entry, new: Entry) -> Result<(), Entry> {
        self.table.split_pmd();
        self.entries()[0].replace(old, new)
    }

    /// Whether they are all of their table.
    fn is_table(&self) -> bool {
        self.len == TABLE_ENTRIES as usize
    }

    /// The software entries, as they lie in the table: with a PMD the first of the table is that,
    /// and no other has anything.
    fn entries(&self) -> &'t [AtomicEntry] {
        &self.table.entries[self.index..self.index + self.len]
    }
}
