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

use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::{Entry, SpaceId, Vpn, VpnRange, lock};

/// Entries in a page table.
#[cfg(not(loom))]
pub const TABLE_ENTRIES: u64 = 512;
/// Entries in a page table: few, since loom keeps a history of each.
#[cfg(loom)]
pub const TABLE_ENTRIES: u64 = 4;

/// An entry that anybody may change at any time: hardware, a software walk, a fault handler.
#[derive(Default)]
#[repr(transparent)]
pub struct AtomicEntry(AtomicU64);

impl AtomicEntry {
    /// An entry with nothing mapped.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The entry now.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Entry {
        // Acquire: who finds a frame here sees what was put into the frame before it was mapped.
        Entry::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Replaces the entry. For an entry that is not mapped and whose table the caller has locked:
    /// nobody else can change that, so nothing is overwritten.
    #[inline]
    pub fn store(&self, entry: Entry) {
        // Release: pairs with `load`.
        self.0.store(entry.bits(), Ordering::Release);
    }

    /// Takes the entry out, in one step: no dirty bit can be set between the reading and the
    /// clearing.
    #[inline]
    pub fn take(&self) -> Entry {
        // AcqRel: Acquire so that what was done through the entry before comes before what the
        // taker does next; Release so that whoever finds nothing here sees what the taker did
        // before.
        Entry::from_bits(self.0.swap(0, Ordering::AcqRel))
    }

    /// Clears bits, in one step, and returns the entry as it was.
    #[inline]
    pub fn clear(&self, bits: Entry) -> Entry {
        // AcqRel: as `take`.
        Entry::from_bits(self.0.fetch_and(!bits.bits(), Ordering::AcqRel))
    }

    /// Replaces the entry where it still is `old`; otherwise returns what it is.
    ///
    /// # Errors
    ///
    /// The entry as it is, where that is not `old`.
    #[inline]
    pub fn replace(&self, old: Entry, new: Entry) -> Result<(), Entry> {
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
    entries: [AtomicEntry; TABLE_ENTRIES as usize],
}

impl Default for PageTable {
    fn default() -> Self {
        Self::new()
    }
}

impl PageTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            entries: core::array::from_fn(|_| AtomicEntry::new()),
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

    pub(crate) fn entry(&self, index: usize) -> &AtomicEntry {
        &self.entries[index]
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

    /// The software entries.
    #[must_use]
    pub fn entries(&self) -> &'t [AtomicEntry] {
        &self.table.entries[self.index..self.index + self.len]
    }
}
