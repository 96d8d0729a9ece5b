//! What changes translations and makes CPUs forget old ones: the seam between the mechanisms and
//! the machine. See [`Mmu`].

use core::fmt;

use freehold::{FrameRange, Order};

use crate::{Access, Entry, Slots, SpaceId, Vpn, VpnRange};

/// Why a mapping could not be made. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The machine has no memory for its own page tables.
    NoMemory,
    /// The host refused, with this error number.
    Host(i32),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("no memory for page tables"),
            Self::Host(errno) => write!(f, "the host refused to map, error {errno}"),
        }
    }
}

impl core::error::Error for MapError {}

/// What happened to the entries of a range that is to be flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushKind {
    /// They are gone. What reclaim unmaps so, nobody wants any more, and a host may give the memory
    /// back right here. What [`Vm::unmap`](crate::Vm::unmap) does may be pinned or mapped
    /// elsewhere: a host where a page's memory *is* its frame, with no second way to it, must not
    /// pin or share what it unmaps.
    Unmapped,
    /// They are there still, but allow less, or are clean and old where they were dirty and young.
    Changed,
}

/// Pages of which no CPU may keep an old translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// The address space.
    pub space: SpaceId,
    /// The pages.
    pub range: VpnRange,
    /// What happened to their entries.
    pub kind: FlushKind,
}

/// The machine.
///
/// Three kinds of implementation fit:
///
/// | | where an entry's truth is | who sets young and dirty | what a flush is |
/// |---|---|---|---|
/// | [`SoftMmu`](crate::SoftMmu), for tests and models | the software entries | a software walk, by compare-and-swap | the modelled TLBs forget |
/// | a host process on real memory | the software entries | the write-fault handler, by compare-and-swap (a clean page is write-protected underneath) | [`FlushKind::Unmapped`]: give the pages' memory back (`process_madvise`, one vector a range); [`FlushKind::Changed`]: write-protect them |
/// | a kernel on x86-64 | the hardware's page tables | the hardware, behind our back | `invlpg` here, an inter-processor interrupt for the others |
///
/// # What everything rests on
///
/// 1. **Entries are read and cleared in one atomic step** ([`Mmu::get_and_clear`]). A write through
///    an entry either set its dirty bit before, and then the clearer sees the bit, or finds no
///    entry, and faults.
/// 2. **A cached translation that is clean cannot be written through without looking at the entry
///    again.** x86-64 does that (the walk that sets the dirty bit fails where the entry is gone); a
///    host does by write-protecting clean pages. So a page whose entry came out clean has no later
///    writer, flushed or not.
/// 3. **Frames are freed only after the flush.** Until then a CPU may still read through a
///    translation that it cached. Flushes are collected and done once for a batch.
///
/// # Calls
///
/// Methods may be called with locks of this crate held, so none may call back into it, nor block on
/// anything that waits for it.
pub trait Mmu: Sync {
    /// Shows a run of neighbouring frames at the pages from `at` on, in one go: as many pages as
    /// there are frames, none of them mapped. `leaf` is the largest size of a single entry that may
    /// be used: [`Order::ZERO`], or [`Order::PAGEBLOCK`] where `at` and the run are aligned to it.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; nothing has changed then.
    fn map(
        &self,
        space: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        leaf: Order,
    ) -> Result<(), MapError>;

    /// Takes away what [`map`](Self::map) made. Pages of the range without a translation are passed
    /// over. CPUs may go on using what they have cached until the [`flush`](Self::flush).
    fn unmap(&self, space: SpaceId, range: VpnRange);

    /// Returns when no CPU has an old translation of any of these pages, nor is in the middle of an
    /// access through one. One call a batch: several ranges, several folios, several address
    /// spaces.
    fn flush(&self, batch: &[Flush]);

    /// One turn of a wait for a lock.
    fn relax(&self) {
        crate::primitive::relax();
    }

    // Entries. The defaults work on the software ones; who keeps entries elsewhere overrides all of
    // them.

    /// The first entry.
    fn load(&self, slots: Slots<'_>) -> Entry {
        slots.load()
    }

    /// Fills entries with nothing mapped: the first with `first`, each of the others with the frame
    /// after the last one's. One call for each run of frames within a table. May take time and
    /// memory.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; nothing has changed then.
    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        self.restore(slots, first);
        Ok(())
    }

    /// Fills entries again that [`get_and_clear`](Self::get_and_clear) has cleared, and that have
    /// not been flushed since as [unmapped](FlushKind::Unmapped), as
    /// [`map_entries`](Self::map_entries) does: with what they were, or with that of a copy. Cannot
    /// fail.
    fn restore(&self, slots: Slots<'_>, first: Entry) {
        slots.store(first);
    }

    /// Clears entries, each in one atomic step, and returns the first as it was, with the young and
    /// dirty bits of all of them. The caller has checked that they are alike otherwise
    /// ([`Entry::batches_with`]), and has the table locked, so that only hardware bits can have
    /// changed since.
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        slots.take().0
    }

    /// Clears bits in those of the entries that are mapped, each in one atomic step, and returns
    /// which of the bits were set in any of them.
    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        slots.clear(bits)
    }

    /// Replaces the first entry where it still is `old`.
    ///
    /// # Errors
    ///
    /// The entry as it is, where that is not `old`.
    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        slots.replace(old, new)
    }
}

/// How many ranges, and how many folios, one flush can serve. Linux frees reclaimed folios 31 at a
/// time, as many as fit its folio batch; a flush that interrupts every CPU costs as much as freeing
/// dozens of folios, so this is larger.
pub const BATCH: usize = 128;

/// Ranges that wait for one flush. Neighbouring ranges become one.
pub(crate) struct FlushBatch {
    ranges: [Flush; BATCH],
    len: usize,
}

impl FlushBatch {
    /// Nothing to flush.
    pub(crate) const fn new() -> Self {
        let none = Flush {
            space: SpaceId::new(0),
            range: VpnRange { start: Vpn::new(0), end: Vpn::new(0) },
            kind: FlushKind::Unmapped,
        };
        Self { ranges: [none; BATCH], len: 0 }
    }

    /// What has been collected.
    pub(crate) fn ranges(&self) -> &[Flush] {
        &self.ranges[..self.len]
    }

    /// Adds a range. `false` where there is no room: flush, then add it again.
    #[must_use]
    pub(crate) fn add(&mut self, flush: Flush) -> bool {
        if let Some(last) = self.ranges[..self.len].last_mut() {
            if last.space == flush.space && last.kind == flush.kind {
                if last.range.end == flush.range.start {
                    last.range.end = flush.range.end;
                    return true;
                }
                if last.range.start == flush.range.end {
                    last.range.start = flush.range.start;
                    return true;
                }
            }
        }
        let Some(place) = self.ranges.get_mut(self.len) else { return false };
        *place = flush;
        self.len += 1;
        true
    }

    /// Flushes what has been collected, if anything, with one call; returns whether there was a
    /// call.
    pub(crate) fn flush(&mut self, mmu: &impl Mmu) -> bool {
        if self.len == 0 {
            return false;
        }
        mmu.flush(self.ranges());
        self.len = 0;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn flush(start: u64, end: u64) -> Flush {
        Flush {
            space: SpaceId::new(1),
            range: VpnRange { start: Vpn::new(start), end: Vpn::new(end) },
            kind: FlushKind::Unmapped,
        }
    }

    #[test]
    fn neighbours_become_one_range_and_a_full_batch_says_so() {
        let mut batch = FlushBatch::new();
        assert!(batch.add(flush(10, 20)) && batch.add(flush(20, 25)) && batch.add(flush(8, 10)));
        assert_eq!(batch.ranges(), [flush(8, 25)]);
        assert!(
            batch.add(Flush { kind: FlushKind::Changed, ..flush(25, 26) }),
            "another kind is another range"
        );
        assert_eq!(batch.ranges().len(), 2);
        for i in 2..BATCH as u64 {
            assert!(batch.add(flush(i * 100, i * 100 + 1)));
        }
        assert!(!batch.add(flush(1, 2)));
    }
}
