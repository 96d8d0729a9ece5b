//! A zone: a span of frames with one lock, free lists under it, and a list set for each CPU beside
//! it.
//!
//! ```text
//!   Zone
//!   ├── frames: one record a frame         (see `page`)
//!   ├── blocks: one entry a pageblock      (see `pageblock`)
//!   ├── lock ── ZoneInner
//!   │           ├── areas[0..=10]: a list for each migratetype, smallest chunks first
//!   │           └── owned[cpu]: blocks with fragments in the zone (pcp-buddy)
//!   └── pcps[cpu]: lock ── lists, tuning   (see `pcp`)
//!
//!   frames  base                start                               end
//!           |···· no memory ····|== memory ==|·· hole ··|== memory ==|··|
//!           ^ multiple of 1024, so that every chunk's buddy has a record  ^
//! ```
//!
//! Lock order: a PCP lock, then the zone lock; never two of either, but that a second PCP lock may
//! be tried (`peer`). The locks are `std`'s mutexes rather than spin locks: with more threads than
//! cores, a user-space thread that is preempted inside a spin lock stops everybody.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

use freehold::{AllocFlags, Migratetype, Order, Pfn};

use crate::config::ZoneConfig;
use crate::list::List;
use crate::page::{Frames, Kind, MAX_ORDER, ORDERS, PAGEBLOCK, PAGEBLOCK_ORDER, State};
use crate::pageblock::{Pageblocks, UNLISTED};
use crate::pcp::Pcp;
use crate::stats::{WorkHistogram, ZoneCounters};
use crate::switches::{Switch, Switches};
use crate::tune::Pressure;
use crate::watermark::{FreeFrames, Mark, Watermarks, enough};

/// The chunks of one order.
#[derive(Clone, Copy)]
pub(crate) struct FreeArea {
    pub(crate) lists: [List; Migratetype::ALL.len()],
    pub(crate) free: u32,
}

/// What the zone lock protects.
pub(crate) struct ZoneInner {
    pub(crate) areas: [FreeArea; ORDERS],
    /// For each CPU the blocks it owns that have fragments in the zone: one list of all types, or
    /// one a type.
    pub(crate) owned: Box<[[List; 6]]>,
    /// Isolated pageblocks: while there are any, bulk free may not trust a type cached earlier.
    pub(crate) isolated_blocks: u32,
    pub(crate) counters: ZoneCounters,
    pub(crate) histogram: WorkHistogram,
    /// Steps done in this hold.
    pub(crate) work: u64,
}

/// On lines of its own: the kernel pads its zones so that what every call reads is not on a line
/// with the lock.
#[repr(align(128))]
struct Apart<T>(T);

/// A span of frames under one lock.
pub(crate) struct Zone {
    pub(crate) start: u32,
    pub(crate) end: u32,
    base: u64,
    pub(crate) frames: Frames,
    pub(crate) blocks: Pageblocks,
    pub(crate) managed: u64,
    pub(crate) has_cma: bool,
    pub(crate) marks: Watermarks,
    lowmem_reserve: u64,
    /// Raised for a while by a fallback (`watermark_boost`).
    pub(crate) boost: AtomicU64,
    /// Whether kswapd ends a boost that it is waited for; else only the caller's own reclaim does.
    pub(crate) kswapd_elsewhere: AtomicBool,
    free: AtomicU64,
    free_cma: AtomicU64,
    free_high_atomic: AtomicU64,
    /// For each type the orders of which its lists have a chunk, one bit each: what a watermark
    /// check reads without the lock.
    nonempty: [AtomicU32; 6],
    /// HIGHATOMIC pageblocks. Changed under the lock; looked at without it to see whether the
    /// reserve is full.
    pub(crate) high_atomic_blocks: AtomicU64,
    pub(crate) below_high: AtomicBool,
    pub(crate) reclaim: AtomicBool,
    lock: Apart<Mutex<ZoneInner>>,
    pub(crate) pcps: Box<[Pcp]>,
    pub(crate) on: Switches,
}

impl Zone {
    pub(crate) fn new(config: &ZoneConfig, on: Switches, cpus: u16, marks: Watermarks) -> Self {
        let chunk = 1u64 << MAX_ORDER;
        let (first, last) = (config.range.start.get(), config.range.end.get());
        let base = first & !(chunk - 1);
        let count = (last.next_multiple_of(chunk) - base) as u32;
        let frames = Frames::new(base, count);
        let structs = on.has(Switch::PageblockData);
        let blocks = Pageblocks::new(count >> PAGEBLOCK_ORDER, structs, Migratetype::Movable);
        let area = FreeArea { lists: [List::EMPTY; 6], free: 0 };
        let zone = Self {
            start: (first - base) as u32,
            end: (last - base) as u32,
            base,
            frames,
            blocks,
            managed: config.range.len(),
            has_cma: !config.cma.is_empty(),
            marks,
            lowmem_reserve: config.lowmem_reserve,
            boost: AtomicU64::new(0),
            kswapd_elsewhere: AtomicBool::new(false),
            free: AtomicU64::new(0),
            free_cma: AtomicU64::new(0),
            free_high_atomic: AtomicU64::new(0),
            nonempty: core::array::from_fn(|_| AtomicU32::new(0)),
            high_atomic_blocks: AtomicU64::new(0),
            below_high: AtomicBool::new(false),
            reclaim: AtomicBool::new(false),
            lock: Apart(Mutex::new(ZoneInner {
                areas: [area; ORDERS],
                owned: vec![[List::EMPTY; 6]; usize::from(cpus)].into(),
                isolated_blocks: 0,
                counters: ZoneCounters::default(),
                histogram: WorkHistogram::new(),
                work: 0,
            })),
            pcps: (0..cpus).map(|_| Pcp::new()).collect(),
            on,
        };
        let block_at = |pfn: Pfn| zone.block_of((pfn.get() - base) as u32);
        for block in config.cma.iter().flat_map(|cma| block_at(cma.start)..block_at(cma.end)) {
            zone.blocks.set_migratetype(block, Migratetype::Cma);
        }
        zone.fill(config);
        zone
    }

    /// Puts all memory on the free lists, as the kernel does at boot: in the largest aligned
    /// chunks, each joined to its buddy where that is free.
    fn fill(&self, config: &ZoneConfig) {
        // No memory, down to the first and up to the last record.
        self.frames.set_holes(0..self.start);
        self.frames.set_holes(self.end..self.frames.len());
        let mut locked = self.lock();
        for (pfn, order) in config.range.chunks(Order::LINUX_MAX) {
            locked.free_split((pfn.get() - self.base) as u32, order.get(), true);
        }
        drop(locked);
        // What was done so far is set-up, not work to be counted.
        self.forget_counts();
    }

    /// Counts begin anew.
    pub(crate) fn forget_counts(&self) {
        let mut inner = self.look();
        inner.counters = ZoneCounters::default();
        inner.histogram = WorkHistogram::new();
    }

    /// The pageblock of `frame`.
    #[inline]
    pub(crate) fn block_of(&self, frame: u32) -> u32 {
        frame >> PAGEBLOCK_ORDER
    }

    /// The migratetype of the pageblock of `frame`, as of now.
    #[inline]
    pub(crate) fn type_of(&self, frame: u32) -> Migratetype {
        self.blocks.migratetype(self.block_of(frame))
    }

    /// The index of `pfn`, if this zone spans it.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> Option<u32> {
        let frame = pfn.get().wrapping_sub(self.base);
        (frame >= u64::from(self.start) && frame < u64::from(self.end)).then_some(frame as u32)
    }

    /// Takes the zone lock, waiting for it.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { zone: self, inner: self.look() }
    }

    /// Takes the zone lock if it is free at this moment.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        let inner = match self.lock.0.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { zone: self, inner })
    }

    /// What the lock protects, without counting that as a hold: for whoever only wants to know.
    pub(crate) fn look(&self) -> MutexGuard<'_, ZoneInner> {
        self.lock.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Frames on the zone's lists, isolated ones not included.
    pub(crate) fn free_frames(&self) -> FreeFrames {
        // Relaxed: like the kernel's vmstat counters, a check against a watermark may be a little
        // out of date.
        FreeFrames {
            free: self.free.load(Relaxed),
            high_atomic: self.free_high_atomic.load(Relaxed),
            cma: self.free_cma.load(Relaxed),
            lowmem_reserve: self.lowmem_reserve,
        }
    }

    /// Adds `change` frames of `migratetype` to the free counters. The zone lock is held, so that a
    /// load and a store are enough.
    pub(crate) fn account(&self, change: i64, migratetype: Migratetype) {
        let add = |counter: &AtomicU64| {
            counter.store(counter.load(Relaxed).wrapping_add_signed(change), Relaxed)
        };
        match migratetype {
            // Isolated frames are free but nobody may have them: they are not counted.
            Migratetype::Isolate => return,
            Migratetype::Cma => add(&self.free_cma),
            Migratetype::HighAtomic => add(&self.free_high_atomic),
            Migratetype::Unmovable | Migratetype::Movable | Migratetype::Reclaimable => {}
        }
        add(&self.free);
    }

    /// How many frames have to come back before a request of `order` can be above the min mark: its
    /// own at least.
    pub(crate) fn lacks(&self, order: Order) -> u32 {
        let mark = self.marks.get(Mark::Min) + self.boost.load(Relaxed);
        let wanted = mark.saturating_add(order.frames()).saturating_add(self.lowmem_reserve);
        let lacks = wanted.saturating_sub(self.free_frames().free).max(order.frames());
        u32::try_from(lacks).unwrap_or(u32::MAX)
    }

    /// Whether enough frames stay free for `mark` (the boost included), and for orders above 0
    /// whether there is a chunk at all. Source: Linux 7.3, `__zone_watermark_ok`.
    pub(crate) fn mark_ok(
        &self,
        mark: Mark,
        order: Order,
        flags: AllocFlags,
        may_cma: bool,
    ) -> bool {
        // Important single-frame requests at the last mark are not to suffer from a boost that only
        // asks for reclaim.
        let unboosted =
            mark == Mark::Min && order == Order::ZERO && flags.contains(AllocFlags::MIN_RESERVE);
        let boost = if unboosted { 0 } else { self.boost.load(Relaxed) };
        let mark = self.marks.get(mark) + boost;
        if !enough(mark, order, flags, may_cma, self.free_frames()) {
            return false;
        }
        let has = |migratetype: Migratetype| {
            self.nonempty[migratetype.index()].load(Relaxed) >> order.get() != 0
        };
        order == Order::ZERO
            || Migratetype::PCP.into_iter().any(has)
            || may_cma && has(Migratetype::Cma)
            || flags.intersects(AllocFlags::HIGH_ATOMIC | AllocFlags::OOM)
                && has(Migratetype::HighAtomic)
    }

    /// What the PCP formulae need to know about the zone.
    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        Pressure { below_high: self.below_high.load(Relaxed), reclaim: self.reclaim.load(Relaxed) }
    }
}

/// A held zone lock: everything that may be done under it. Dropping it records how much was done.
pub(crate) struct Locked<'a> {
    pub(crate) zone: &'a Zone,
    inner: MutexGuard<'a, ZoneInner>,
}

impl core::ops::Deref for Locked<'_> {
    type Target = ZoneInner;
    fn deref(&self) -> &ZoneInner {
        &self.inner
    }
}

impl core::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut ZoneInner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let work = core::mem::take(&mut self.inner.work);
        self.inner.histogram.record(work);
    }
}

impl Locked<'_> {
    /// Puts a free chunk on the list of its order and `migratetype`.
    pub(crate) fn add(&mut self, frame: u32, order: u8, migratetype: Migratetype, tail: bool) {
        let frames = &self.zone.frames;
        frames.set(frame, State::new(Kind::Buddy, order, migratetype));
        let area = &mut self.inner.areas[order as usize];
        let list = &mut area.lists[migratetype.index()];
        if list.is_empty() {
            let bits = &self.zone.nonempty[migratetype.index()];
            bits.store(bits.load(Relaxed) | 1 << order, Relaxed);
        }
        if tail {
            list.push_back(frames, frame)
        } else {
            list.push_front(frames, frame)
        }
        area.free += 1;
        self.inner.work += 1;
    }

    /// Takes a free chunk off its list. Its record becomes a tail; the caller says what it is from
    /// now on.
    pub(crate) fn remove(&mut self, frame: u32) -> (u8, Migratetype) {
        let frames = &self.zone.frames;
        let state = frames.state(frame);
        debug_assert_eq!(state.kind(), Kind::Buddy);
        let (order, migratetype) = (state.order(), state.migratetype());
        let area = &mut self.inner.areas[order as usize];
        let list = &mut area.lists[migratetype.index()];
        list.remove(frames, frame);
        if list.is_empty() {
            let bits = &self.zone.nonempty[migratetype.index()];
            bits.store(bits.load(Relaxed) & !(1 << order), Relaxed);
        }
        area.free -= 1;
        frames.set(frame, State::TAIL);
        self.inner.work += 1;
        (order, migratetype)
    }

    /// [`remove`](Self::remove), and the frames no longer count as free.
    pub(crate) fn take(&mut self, frame: u32) -> (u8, Migratetype) {
        let (order, migratetype) = self.remove(frame);
        self.zone.account(-(1 << order), migratetype);
        (order, migratetype)
    }

    /// Moves a free chunk to the list of another type.
    pub(crate) fn retype(&mut self, frame: u32, to: Migratetype) {
        let (order, from) = self.remove(frame);
        self.zone.account(-(1 << order), from);
        self.zone.account(1 << order, to);
        self.add(frame, order, to, true);
    }

    /// Disowns a pageblock: it is whole again, so no frame of it is outstanding. `frame` is any
    /// frame of it.
    pub(crate) fn disown(&mut self, frame: u32) {
        let block = self.zone.block_of(frame);
        if self.zone.on.has(Switch::Ownership) {
            self.zone.blocks.set_owner(block, None);
            self.unlist(block);
        }
    }

    /// Takes a block off whatever list of owned blocks it is on.
    pub(crate) fn unlist(&mut self, block: u32) {
        let blocks = &self.zone.blocks;
        let Some(data) = blocks.data(block) else { return };
        let id = data.list.load(Relaxed);
        if id != UNLISTED {
            self.inner.owned[(id / 6) as usize][(id % 6) as usize].remove(blocks, block);
            data.list.store(UNLISTED, Relaxed);
            self.inner.work += 1;
        }
    }

    /// Changes the type of a pageblock that is not whole. If it is on its owner's list of blocks
    /// with fragments, it moves to the list of its new type, where the next refill of that type
    /// looks for it.
    pub(crate) fn change_type(&mut self, block: u32, to: Migratetype) {
        let zone = self.zone;
        zone.blocks.set_migratetype(block, to);
        let listed = zone.blocks.data(block).map_or(UNLISTED, |data| data.list.load(Relaxed));
        if zone.on.has(Switch::OwnedByType) && listed != UNLISTED {
            self.unlist(block);
            self.enlist(listed / 6, block);
        }
    }

    /// Remembers that an owned block has fragments in the zone.
    pub(crate) fn enlist(&mut self, cpu: u32, block: u32) {
        let zone = self.zone;
        let Some(data) = zone.blocks.data(block) else { return };
        if data.list.load(Relaxed) != UNLISTED {
            return;
        }
        let by_type = zone.on.has(Switch::OwnedByType);
        let list = if by_type { zone.blocks.type_underneath(block).index() } else { 0 };
        self.inner.owned[cpu as usize][list].push_front(&zone.blocks, block);
        data.list.store(cpu * 6 + list as u32, Relaxed);
        self.inner.work += 1;
    }

    /// The frames of one pageblock.
    pub(crate) fn block_frames(block: u32) -> core::ops::Range<u32> {
        block * PAGEBLOCK..(block + 1) * PAGEBLOCK
    }
}
