//! Address spaces: VMAs that say what may be done where, page tables that say which frame is where,
//! and the walk that a CPU makes through them.
//!
//! ```text
//!   VMAs     [ read, write          )[ read )        [ none  )
//!   tables   | table 0        | table 1        | table 2        |     512 pages (2 MiB) each
//!            base
//! ```
//!
//! The tables cover one range of pages from `base` on. A batch of entries ends at the end of its
//! table and of its VMA.

use freehold::Pfn;

use crate::interval::{Interval, IntervalNode, Intervals};
use crate::lock::Spin;
use crate::primitive::{AtomicBool, AtomicU32};
use crate::{Access, Entry, PageTable, Slots, SpaceId, TABLE_ENTRIES, Vpn, VpnRange};

/// What holds for a range of pages: in an [`IntervalNode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vma {
    /// What may be done.
    pub access: Access,
    /// Its contents may be dropped even where they were written since (`MAP_DROPPABLE`).
    pub droppable: bool,
}

/// Why an access did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// No page table covers the page.
    OutOfSpace,
    /// No frame is there: never was, or its folio has been reclaimed.
    NotMapped,
    /// A frame is there, but no access is allowed.
    AccessDenied,
    /// A frame is there, but not to be written to. [`Vm::write_fault`](crate::Vm::write_fault) may
    /// change that.
    WriteProtected,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OutOfSpace => "no page table covers the page",
            Self::NotMapped => "no frame is mapped there",
            Self::AccessDenied => "no access is allowed there",
            Self::WriteProtected => "the page is write-protected",
        })
    }
}

impl core::error::Error for Fault {}

/// An address space.
pub struct Space<'m> {
    id: SpaceId,
    base: Vpn,
    tables: &'m [PageTable],
    pub(crate) vmas: Spin<Intervals<'m, Vma>>,
    /// How many calls are between changing entries here and flushing them: until they are through,
    /// even an entry that no CPU can use now may be cached. See [`Space::needs_flush`].
    pub(crate) changing: AtomicU32,
    /// Reclaim has cleared entries here and not flushed yet.
    pub(crate) pending: AtomicBool,
}

impl<'m> Space<'m> {
    /// An empty address space whose tables cover `tables.len() * 512` pages from `base` on, with
    /// room for one VMA in each of `vmas`. Its place in the slice that [`Vm::new`](crate::Vm::new)
    /// gets must be `id`.
    ///
    /// # Panics
    ///
    /// Where `base` is not the first page of a page table (a multiple of 512).
    #[must_use]
    pub fn new(
        id: SpaceId,
        base: Vpn,
        tables: &'m [PageTable],
        vmas: &'m mut [IntervalNode<Vma>],
    ) -> Self {
        assert!(
            base.get() % TABLE_ENTRIES == 0,
            "an address space must start at a page table's start, not at {base}"
        );
        Self {
            id,
            base,
            tables,
            vmas: Spin::new(Intervals::new(vmas)),
            changing: AtomicU32::new(0),
            pending: AtomicBool::new(false),
        }
    }

    /// Which one it is.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The pages that its tables cover.
    #[must_use]
    pub fn range(&self) -> VpnRange {
        VpnRange { start: self.base, end: self.base.plus(self.tables.len() as u64 * TABLE_ENTRIES) }
    }

    /// The table of a page of the space, and the page's number in it.
    pub(crate) fn table(&self, vpn: Vpn) -> (&'m PageTable, usize) {
        let offset = vpn.get() - self.base.get();
        (&self.tables[(offset / TABLE_ENTRIES) as usize], (offset % TABLE_ENTRIES) as usize)
    }

    /// The page after the last one of `vpn`'s table.
    pub(crate) fn table_end(&self, vpn: Vpn) -> Vpn {
        vpn.plus(TABLE_ENTRIES - (vpn.get() - self.base.get()) % TABLE_ENTRIES)
    }

    /// The entries of `len` pages of one table.
    ///
    /// # Panics
    ///
    /// Where they pass the table's end.
    pub(crate) fn slots(&self, vpn: Vpn, len: u64) -> Slots<'m> {
        let (table, index) = self.table(vpn);
        Slots::new(table, index, len as usize, self.id, vpn)
    }

    pub(crate) fn vma(&self, vpn: Vpn, relax: impl Fn()) -> Option<Interval<Vma>> {
        self.vmas.with(relax, |vmas| vmas.get(vpn.get()))
    }

    /// Whether clearing this entry asks for a flush. An entry without the present bit sits in no
    /// TLB, unless whoever took the bit away has not flushed yet.
    pub(crate) fn needs_flush(&self, entry: Entry) -> bool {
        // Acquire: pairs with the Release of the call that took the bit away; it raised the counter
        // before.
        entry.is_present() || self.changing.load(crate::primitive::Ordering::Acquire) > 0
    }

    /// What a CPU does to use a page: finds the frame and notes the use in the software entry,
    /// young for reading and dirty for writing, by compare-and-swap. Takes no lock. A fault is what
    /// the entry says at this moment; reclaim may just be about to put it back:
    /// [`Vm::touch`](crate::Vm::touch) waits for that.
    ///
    /// # Errors
    ///
    /// See [`Fault`].
    pub fn walk(&self, vpn: Vpn, write: bool) -> Result<(Pfn, Entry), Fault> {
        if !self.range().contains(vpn) {
            return Err(Fault::OutOfSpace);
        }
        let (table, index) = self.table(vpn);
        loop {
            let (slot, entry, behind) = table.entry(index);
            if !entry.is_mapped() {
                return Err(Fault::NotMapped);
            }
            if !entry.is_present() {
                return Err(Fault::AccessDenied);
            }
            if write && !entry.is_writable() {
                return Err(Fault::WriteProtected);
            }
            let bits = if write { Entry::HARDWARE } else { Entry::YOUNG };
            if entry.has(bits) || slot.replace(entry, entry.with(bits)).is_ok() {
                let entry = entry.with(bits).advance(behind);
                return Ok((entry.pfn(), entry));
            }
        }
    }

    /// The entry of a page at this moment.
    #[must_use]
    pub fn entry_at(&self, vpn: Vpn) -> Entry {
        if self.range().contains(vpn) { self.slots(vpn, 1).load() } else { Entry::NONE }
    }
}
