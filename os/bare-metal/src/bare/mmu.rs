//! freehold-vm's `Mmu` on the processor's own page tables.
//!
//! | the trait asks | here |
//! |---|---|
//! | map, unmap | entries of level 1, or of level 2 for 2 MiB |
//! | entries read and cleared in one step | `xchg`: the processor sets the accessed and dirty bits with a locked operation of its own, so none is lost |
//! | a clean cached translation is not written through without looking | x86-64: the walk that sets the dirty bit fails where the entry is gone |
//! | flush | `invlpg` here and, by interrupt, on every CPU that may have a translation: all for the kernel's half, those that have the address space loaded for the rest |
//!
//! # 2 MiB entries
//!
//! A table takes the place of such an entry where only a part of it is unmapped. `unmap` cannot
//! fail, so the table must be there already: each 2 MiB entry has one kept for it (as Linux keeps
//! one for each huge page). Where a table stands in the way of a 2 MiB entry, left by earlier small
//! ones, it is taken out, every CPU forgets the way through it, and it becomes the one that is
//! kept.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use freehold::{FRAME_SIZE, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn, Request};
use freehold_kernel::paging::{ENTRIES, Span, from_hardware, spans, tables as parts, to_hardware};
use freehold_vm::{Access, Entry, Flush, FlushKind, MapError, Mmu, Slots, SpaceId, Vpn, VpnRange};
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

use crate::layout::{KERNEL_SPACE, words};
use crate::{calls, cpu, memory, spaces, tables, tlb};

/// The processor. There is nothing in it: what it works on is the machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware;

/// What has been done.
pub(crate) struct Counters {
    /// Frames in use as page tables, those reserved at the start not counted.
    pub(crate) tables: AtomicU64,
    /// Entries of 2 MiB made.
    pub(crate) huge: AtomicU64,
    /// Of these, how many had to be split.
    pub(crate) splits: AtomicU64,
    /// Calls of [`Mmu::flush`].
    pub(crate) flushes: AtomicU64,
    /// Entries that came out dirty of [`Mmu::get_and_clear`].
    pub(crate) dirty: AtomicU64,
}

/// See [`Counters`].
pub(crate) static COUNTERS: Counters = Counters {
    tables: AtomicU64::new(0),
    huge: AtomicU64::new(0),
    splits: AtomicU64::new(0),
    flushes: AtomicU64::new(0),
    dirty: AtomicU64::new(0),
};

/// A defect, built in on purpose: other CPUs are not told to forget.
pub(crate) static NO_SHOOTDOWN: AtomicBool = AtomicBool::new(false);

/// Tables kept for the 2 MiB entries there are, chained through their first words; 0 ends the
/// chain.
static KEPT: SpinMutex<u64, Polling> = SpinMutex::new(0);

/// Waits of a CPU with interrupts off, which other CPUs' calls do not reach otherwise.
struct Polling;

impl RelaxStrategy for Polling {
    fn relax() {
        calls::poll();
        core::hint::spin_loop();
    }
}

fn count(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics.
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A frame for a page table.
pub(crate) fn alloc_table() -> Option<Pfn> {
    let pfn = cpu::frames().alloc(Request::new(Order::ZERO, Migratetype::Unmovable)).ok()?;
    count(&COUNTERS.tables, 1);
    Some(pfn)
}

/// Gives one back.
pub(crate) fn free_table(pfn: Pfn) {
    let freed = cpu::frames().free(pfn, Order::ZERO);
    freed.unwrap_or_else(|error| panic!("a page table cannot be freed: {error}"));
    // Relaxed: statistics.
    COUNTERS.tables.fetch_sub(1, Ordering::Relaxed);
}

fn keep(table: Pfn) {
    let mut first = KEPT.lock();
    // Relaxed: only reached with the lock.
    words(table)[0].store(*first, Ordering::Relaxed);
    *first = table.get();
}

fn unkeep() -> Pfn {
    let mut first = KEPT.lock();
    assert_ne!(*first, 0, "a 2 MiB entry without a table kept for it");
    let table = Pfn::new(*first);
    // Relaxed: as in `keep`.
    *first = words(table)[0].load(Ordering::Relaxed);
    table
}

fn root(space: SpaceId) -> Pfn {
    if space == KERNEL_SPACE { memory::root() } else { spaces::root(space) }
}

fn is_huge(entry: u64) -> bool {
    entry & Entry::HUGE.bits() != 0
}

impl Hardware {
    fn map_small(&self, root: Pfn, span: Span, access: Access) -> Result<(), MapError> {
        let first = tables::walk_or_make(root, span.at, 1, alloc_table, free_table)?;
        for (i, slot) in tables::neighbours(first, span.pages).iter().enumerate() {
            let entry = Entry::new(Pfn::new(span.pfn.get() + i as u64), access);
            // Release: what was put into the frame before comes before the entry.
            slot.store(to_hardware(entry), Ordering::Release);
        }
        Ok(())
    }

    fn map_huge(
        &self,
        space: SpaceId,
        root: Pfn,
        span: Span,
        access: Access,
    ) -> Result<(), MapError> {
        let slot = tables::walk_or_make(root, span.at, 2, alloc_table, free_table)?;
        let entry = to_hardware(Entry::new(span.pfn, access).with(Entry::HUGE));
        // Acquire: whoever made a table there did that before.
        let old = slot.load(Ordering::Acquire);
        if old == 0 {
            let Some(table) = alloc_table() else { return Err(MapError::NoMemory) };
            keep(table);
            // Release: as in `map_small`.
            slot.store(entry, Ordering::Release);
        } else {
            // An empty table: its pages are all this caller's. Nobody may go on walking through it.
            slot.store(0, Ordering::Release);
            let range = VpnRange { start: span.at, end: Vpn::new(span.at.get() + span.pages) };
            self.flush(&[Flush { space, range, kind: FlushKind::Unmapped }]);
            keep(Pfn::new((old & !0xfff & !(1 << 63)) / FRAME_SIZE));
            slot.store(entry, Ordering::Release);
        }
        count(&COUNTERS.huge, 1);
        Ok(())
    }

    /// Takes a 2 MiB entry away, or puts a table in its place where only `part` of it goes.
    fn unmap_huge(&self, slot: &AtomicU64, old: u64, part: VpnRange) {
        let table = unkeep();
        if part.len() == PAGEBLOCK_FRAMES {
            // AcqRel: after what was done through the entry, before what the caller does next.
            slot.swap(0, Ordering::AcqRel);
            return free_table(table);
        }
        let whole = from_hardware(old).without(Entry::HUGE);
        for (i, entry) in words(table).iter().enumerate() {
            // Relaxed: published by the store below.
            entry.store(to_hardware(whole.advance(i as u64)), Ordering::Relaxed);
        }
        // Release: the table is filled. The 2 MiB translations that are cached show the same
        // frames; the caller's flush of any page of them forgets them.
        slot.store((table.get() * FRAME_SIZE) | 0b11, Ordering::Release);
        count(&COUNTERS.splits, 1);
        let first = (part.start.get() % PAGEBLOCK_FRAMES) as usize;
        for entry in &words(table)[first..first + part.len() as usize] {
            entry.swap(0, Ordering::AcqRel);
        }
    }

    /// The entries of level 1 for these pages; none where there is no table.
    fn entries(&self, slots: Slots<'_>) -> &'static [AtomicU64] {
        match tables::walk(root(slots.space()), slots.first(), 1) {
            Some(first) => tables::neighbours(first, slots.len()),
            None => &[],
        }
    }
}

impl Mmu for Hardware {
    fn map(
        &self,
        space: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        leaf: Order,
    ) -> Result<(), MapError> {
        let root = root(space);
        for span in spans(at, frames, leaf) {
            let mapped = if span.huge {
                self.map_huge(space, root, span, access)
            } else {
                self.map_small(root, span, access)
            };
            if let Err(error) = mapped {
                let range = VpnRange { start: at, end: span.at };
                if !range.is_empty() {
                    self.unmap(space, range);
                    self.flush(&[Flush { space, range, kind: FlushKind::Unmapped }]);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn unmap(&self, space: SpaceId, range: VpnRange) {
        let root = root(space);
        for part in parts(range) {
            let Some(slot) = tables::walk(root, part.start, 2) else { continue };
            // Acquire: the table's contents come before the entry that points to it.
            let entry = slot.load(Ordering::Acquire);
            if is_huge(entry) {
                self.unmap_huge(slot, entry, part);
            } else if let Some(first) = tables::walk(root, part.start, 1) {
                for slot in tables::neighbours(first, part.len()) {
                    // AcqRel: after what was done through the entry, before what the caller does
                    // next.
                    slot.swap(0, Ordering::AcqRel);
                }
            }
        }
    }

    fn flush(&self, batch: &[Flush]) {
        count(&COUNTERS.flushes, 1);
        // SeqCst: the entries were changed before it is asked who may have them. A CPU notes that
        // it has an address space before it loads its tables, so either it is seen here or it finds
        // the entries changed.
        fence(Ordering::SeqCst);
        let users =
            batch.iter().map(|flush| spaces::users(flush.space)).fold(0, |all, mask| all | mask);
        tlb::forget(batch);
        // Relaxed: a test sets it while nothing runs.
        if !NO_SHOOTDOWN.load(Ordering::Relaxed) {
            calls::shootdown(users, batch);
        }
    }

    fn relax(&self) {
        calls::poll();
        core::hint::spin_loop();
    }

    fn load(&self, slots: Slots<'_>) -> Entry {
        // Acquire: who finds a frame here sees what was put into it before.
        self.entries(slots)
            .first()
            .map_or(Entry::NONE, |slot| from_hardware(slot.load(Ordering::Acquire)))
    }

    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        let slot =
            tables::walk_or_make(root(slots.space()), slots.first(), 1, alloc_table, free_table)?;
        for (i, slot) in tables::neighbours(slot, slots.len()).iter().enumerate() {
            // Release: as in `map_small`.
            slot.store(to_hardware(first.advance(i as u64)), Ordering::Release);
        }
        Ok(())
    }

    fn restore(&self, slots: Slots<'_>, first: Entry) {
        for (i, slot) in self.entries(slots).iter().enumerate() {
            // Release: as in `map_small`. Nothing is overwritten: the entries are empty, so the
            // processor leaves them alone, and the table's lock keeps everybody else away.
            slot.store(to_hardware(first.advance(i as u64)), Ordering::Release);
        }
    }

    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        let mut merged = Entry::NONE;
        let mut dirty = 0;
        for (i, slot) in self.entries(slots).iter().enumerate() {
            // AcqRel: after what was done through the entry, before what the caller does next.
            let old = from_hardware(slot.swap(0, Ordering::AcqRel));
            dirty += u64::from(old.is_dirty());
            merged = if i == 0 { old } else { merged.with(old.only(Entry::HARDWARE)) };
        }
        count(&COUNTERS.dirty, dirty);
        merged
    }

    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        let mut merged = Entry::NONE;
        for slot in self.entries(slots) {
            // A read first: most entries have nothing to clear. Acquire: as in `load`.
            let now = from_hardware(slot.load(Ordering::Acquire));
            if now.is_mapped() && now.only(bits) != Entry::NONE {
                // AcqRel: as in `get_and_clear`.
                merged = merged
                    .with(from_hardware(slot.fetch_and(!bits.bits(), Ordering::AcqRel)).only(bits));
            }
        }
        merged
    }

    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        let Some(slot) = self.entries(slots).first() else { return Err(Entry::NONE) };
        // AcqRel: as in `get_and_clear`. Acquire where it fails: as in `load`.
        slot.compare_exchange(
            to_hardware(old),
            to_hardware(new),
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .map(|_| ())
        .map_err(from_hardware)
    }
}

const _: () =
    assert!(ENTRIES as u64 == PAGEBLOCK_FRAMES && ENTRIES as u64 == freehold_vm::TABLE_ENTRIES);
