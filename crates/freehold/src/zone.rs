//! A zone: one lock over the blocks that no CPU holds.
//!
//! ```text
//! shelf     partly free blocks by migratetype and largest free order; wholly free CMA and HIGHATOMIC blocks too
//! wholes    wholly free blocks of the three ordinary migratetypes, one bit each: their type means nothing until used
//! home      for each (CPU, migratetype) the partly free blocks on the shelf that this CPU gave back
//! (nowhere) full blocks, and isolated ones
//! ```
//!
//! Every operation on one block takes a constant number of steps; callers bound how many blocks they move in one hold.

use core::cell::Cell;

use crate::block::{Block, CLASS_DETACHED, CLASS_FULL, CLASS_WHOLE, FLAG_ISOLATED, NONE, WORDS};
use crate::holder::Holder;
use crate::inbox::Inbox;
use crate::map::FrameMap;
use crate::percpu::CMA;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Count, Ordering, Plain};
use crate::remote::{self, Inboxes};
use crate::shelf::{Shelf, TYPES};
use crate::stats::ZoneCounters;
use crate::wholes::{Search, Wholes};
use crate::{AllocFlags, FrameRange, NodeId};

/// The number of [`Migratetype::HighAtomic`](crate::Migratetype::HighAtomic).
pub(crate) const HIGH_ATOMIC: u8 = 3;

/// See the module's documentation.
#[repr(C, align(128))]
pub(crate) struct Zone<'m> {
    lock: AtomicBool,
    pub(crate) id: u8,
    pub(crate) node: NodeId,
    pub(crate) span: FrameRange,
    /// The number of the block that bit 0 of `wholes` stands for: the span's start rounded down to 1 GiB.
    pub(crate) first_block: u64,
    pub(crate) shelf: Shelf,
    pub(crate) wholes: Wholes<'m>,
    /// How many bits are set in `wholes`.
    pub(crate) whole_blocks: AtomicU64,
    /// Heads of the home lists, one for each (CPU, migratetype).
    pub(crate) home: &'m [AtomicU32],
    /// Frames there are; changes at hotplug.
    pub(crate) managed: AtomicU64,
    /// Free frames of blocks the zone holds, isolated ones not counted.
    pub(crate) free: AtomicU64,
    pub(crate) free_cma: AtomicU64,
    pub(crate) free_high_atomic: AtomicU64,
    /// HIGHATOMIC blocks there are.
    pub(crate) high_atomic_blocks: AtomicU64,
    pub(crate) min: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) high: AtomicU64,
    /// They follow the kernel's formulae when the amount of memory changes.
    pub(crate) kernel_marks: AtomicBool,
    /// The pressure level last told to the host: 0 none, 1 below low, 2 below min.
    pub(crate) level: AtomicU32,
    /// The level has changed and nobody has told the host yet.
    pub(crate) level_changed: AtomicBool,
    pub(crate) counters: ZoneCounters,
    pub(crate) inbox: Inbox,
}

impl<'m> Zone<'m> {
    pub(crate) fn new(id: u8, node: NodeId, span: FrameRange, wholes: Wholes<'m>, home: &'m [AtomicU32]) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            lock: AtomicBool::new(false),
            id,
            node,
            span,
            first_block: first_block(span),
            shelf: Shelf::new(),
            wholes,
            whole_blocks: zero(),
            home,
            managed: zero(),
            free: zero(),
            free_cma: zero(),
            free_high_atomic: zero(),
            high_atomic_blocks: zero(),
            min: zero(),
            low: zero(),
            high: zero(),
            kernel_marks: AtomicBool::new(false),
            level: AtomicU32::new(0),
            level_changed: AtomicBool::new(false),
            counters: ZoneCounters::new(),
            inbox: Inbox::new(true),
        }
    }

    /// Takes the lock, waiting for it.
    pub(crate) fn lock<'z>(&'z self, map: &'z FrameMap<'m>, relax: impl Fn()) -> ZoneGuard<'z, 'm> {
        loop {
            if let Some(guard) = self.try_lock(map) {
                return guard;
            }
            while self.lock.get() {
                relax();
            }
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock<'z>(&'z self, map: &'z FrameMap<'m>) -> Option<ZoneGuard<'z, 'm>> {
        // Acquire: pairs with the release in `ZoneGuard::drop`.
        let taken = self.lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| ZoneGuard { zone: self, map, steps: Cell::new(0), counted: true })
    }

    /// Frames of this zone that a request may count on: free ones, less those of HIGHATOMIC blocks unless it may use
    /// reserves, and of CMA blocks unless those will do.
    pub(crate) fn usable(&self, flags: AllocFlags, cma: bool) -> u64 {
        let mut usable = self.free.get();
        if !flags.intersects(AllocFlags::HIGH_ATOMIC | AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            usable = usable.saturating_sub(self.free_high_atomic.get());
        }
        if !cma {
            usable = usable.saturating_sub(self.free_cma.get());
        }
        usable
    }

    /// The min watermark as far as the request's flags lower it (Linux 7.3): MIN_RESERVE takes half off, NON_BLOCK a
    /// further quarter, OOM half of what is left, NO_WATERMARKS all.
    pub(crate) fn min_mark(&self, flags: AllocFlags) -> Option<u64> {
        if flags.contains(AllocFlags::NO_WATERMARKS) {
            return None;
        }
        let mut min = self.min.get();
        if flags.contains(AllocFlags::MIN_RESERVE) {
            min -= min / 2;
        }
        if flags.contains(AllocFlags::NON_BLOCK) {
            min -= min / 4;
        }
        if flags.contains(AllocFlags::OOM) {
            min -= min / 2;
        }
        Some(min)
    }

    /// Whether the zone may hand out `frames` and keep more than `mark` (`None`: whatever it has).
    pub(crate) fn allows(&self, frames: u64, mark: Option<u64>, flags: AllocFlags, cma: bool) -> bool {
        let usable = self.usable(flags, cma);
        match mark {
            None => usable >= frames,
            Some(mark) => usable >= frames && usable - frames >= mark,
        }
    }
}

/// The first bit of a zone's map: 1 GiB-aligned, so that runs of any order are aligned in the map too.
pub(crate) fn first_block(span: FrameRange) -> u64 {
    (span.start.get() >> 18) << 9
}

/// How many bits a zone's map has.
pub(crate) fn map_blocks(span: FrameRange) -> u64 {
    (span.end.get() >> 9) - first_block(span)
}

/// A zone whose lock is held; releases it when dropped.
pub(crate) struct ZoneGuard<'z, 'm> {
    zone: &'z Zone<'m>,
    map: &'z FrameMap<'m>,
    steps: Cell<u32>,
    /// The hold is work of the allocator, not a look from outside.
    pub(crate) counted: bool,
}

impl<'m> core::ops::Deref for ZoneGuard<'_, 'm> {
    type Target = Zone<'m>;
    fn deref(&self) -> &Zone<'m> {
        self.zone
    }
}

impl Drop for ZoneGuard<'_, '_> {
    fn drop(&mut self) {
        let zone = self.zone;
        if self.counted {
            zone.counters.hold(u64::from(self.steps.get()));
        }
        let free = zone.free.get();
        let level = if free < zone.min.get() {
            2
        } else if free < zone.low.get() {
            1
        } else if free > zone.high.get() || zone.high.get() == 0 {
            0
        } else {
            // Between low and high: whatever was last told stays true, except that below-min is over.
            zone.level.get().min(1)
        };
        if level != zone.level.get() {
            zone.level.set(level);
            zone.level_changed.set(true);
        }
        // Release: pairs with `try_lock`.
        zone.lock.store(false, Ordering::Release);
    }
}

impl ZoneGuard<'_, '_> {
    #[inline]
    pub(crate) fn step(&self, n: u32) {
        self.steps.set(self.steps.get() + n);
    }

    fn bit(&self, block: &Block) -> u64 {
        u64::from(block.number.get()) - self.first_block
    }

    fn note(&self, block: &Block, frames: u64) {
        self.free.add(frames);
        match block.migratetype() {
            CMA => self.free_cma.add(frames),
            HIGH_ATOMIC => self.free_high_atomic.add(frames),
            _ => {}
        }
    }

    fn forget(&self, block: &Block, frames: u64) {
        self.free.sub(frames);
        match block.migratetype() {
            CMA => self.free_cma.sub(frames),
            HIGH_ATOMIC => self.free_high_atomic.sub(frames),
            _ => {}
        }
    }

    /// Puts a detached block of this zone where it belongs. Its class and count must be exact; its holder becomes the
    /// zone. At most 6 steps.
    pub(crate) fn place(&self, index: u32, class: u8) {
        let block = &self.map.blocks[index as usize];
        debug_assert_eq!(block.class(), CLASS_DETACHED);
        block.set_class(class);
        block.set_holder(Holder::ZONE);
        self.step(1);
        if block.has_flag(FLAG_ISOLATED) {
            return;
        }
        self.note(block, u64::from(block.count.get()));
        if class == CLASS_FULL {
            return;
        }
        if class == CLASS_WHOLE {
            block.home.set(Holder::NOBODY.raw());
            if block.migratetype() < HIGH_ATOMIC {
                self.step(self.wholes.insert(self.bit(block)));
                self.whole_blocks.add(1);
                return;
            }
        }
        self.shelf.link(self.map.blocks, index, class);
        self.step(1);
        if let Some(cpu) = Holder::from_raw(block.home.get()).as_cpu() {
            self.link_home(index, cpu.index());
        }
    }

    /// The reverse of [`place`](Self::place): the block is detached then. At most 6 steps.
    pub(crate) fn unplace(&self, index: u32) {
        let block = &self.map.blocks[index as usize];
        let class = block.class();
        self.step(1);
        block.set_class(CLASS_DETACHED);
        if block.has_flag(FLAG_ISOLATED) {
            return;
        }
        self.forget(block, u64::from(block.count.get()));
        if class == CLASS_FULL {
            return;
        }
        if class == CLASS_WHOLE && block.migratetype() < HIGH_ATOMIC {
            let bit = self.bit(block);
            self.step(self.wholes.remove((bit / 64) as usize, 1 << (bit % 64)));
            self.whole_blocks.sub(1);
            return;
        }
        // `unlink` reads the class.
        block.set_class(class);
        self.shelf.unlink(self.map.blocks, index);
        block.set_class(CLASS_DETACHED);
        self.step(1);
        if let Some(cpu) = Holder::from_raw(block.home.get()).as_cpu() {
            self.unlink_home(index, cpu.index());
        }
    }

    fn home_head(&self, block: &Block, cpu: usize) -> &AtomicU32 {
        &self.zone.home[cpu * TYPES + block.migratetype() as usize]
    }

    fn link_home(&self, index: u32, cpu: usize) {
        let block = &self.map.blocks[index as usize];
        let head = self.home_head(block, cpu);
        let first = head.get();
        block.home_next.set(first);
        block.home_prev.set(NONE);
        if first != NONE {
            self.map.blocks[first as usize].home_prev.set(index);
        }
        head.set(index);
        self.step(1);
    }

    fn unlink_home(&self, index: u32, cpu: usize) {
        let block = &self.map.blocks[index as usize];
        let (next, prev) = (block.home_next.get(), block.home_prev.get());
        if next != NONE {
            self.map.blocks[next as usize].home_prev.set(prev);
        }
        if prev != NONE {
            self.map.blocks[prev as usize].home_next.set(next);
        } else {
            self.home_head(block, cpu).set(next);
        }
        self.step(1);
    }

    /// The newest block of that migratetype that this CPU gave back, and then the next after `after`.
    pub(crate) fn home_block(&self, cpu: usize, migratetype: usize, after: Option<u32>) -> Option<u32> {
        let index = match after {
            None => self.zone.home[cpu * TYPES + migratetype].get(),
            Some(index) => self.map.blocks[index as usize].home_next.get(),
        };
        self.step(1);
        (index != NONE).then_some(index)
    }

    /// Moves an unplaced block to another type; detached before and after.
    pub(crate) fn retype(&self, index: u32, migratetype: u8) {
        let block = &self.map.blocks[index as usize];
        debug_assert_eq!(block.class(), CLASS_DETACHED);
        let before = block.migratetype();
        if before == HIGH_ATOMIC {
            self.high_atomic_blocks.sub(1);
        }
        if migratetype == HIGH_ATOMIC {
            self.high_atomic_blocks.add(1);
        }
        block.set_migratetype(migratetype);
        self.step(1);
    }

    /// Takes a wholly free ordinary block: the lowest, so that high memory stays in one piece. Detached then, and of
    /// type `migratetype`.
    pub(crate) fn take_whole(&self, migratetype: u8) -> Option<u32> {
        let (bit, steps) = self.wholes.next(0);
        self.step(steps);
        self.take_whole_at(bit?, migratetype)
    }

    /// Takes the wholly free ordinary block of that bit.
    pub(crate) fn take_whole_at(&self, bit: u64, migratetype: u8) -> Option<u32> {
        let index = self.map.locate_block(self.first_block + bit)?;
        self.unplace(index);
        self.map.blocks[index as usize].set_migratetype(migratetype);
        Some(index)
    }

    /// Collects what others freed in up to `blocks` blocks; `true` while more is waiting.
    pub(crate) fn collect(&self, inboxes: &impl Inboxes, blocks: u32, mut double: impl FnMut(u64)) -> bool {
        for _ in 0..blocks {
            let Some(index) = self.inbox.pop(self.map.blocks) else { return false };
            self.step(1);
            if remote::accept(self.map.blocks, inboxes, Holder::ZONE, index) {
                self.absorb(index, &mut double);
            }
        }
        !self.inbox.is_empty()
    }

    /// Takes what others freed in a block of the zone. At most 30 steps.
    pub(crate) fn absorb(&self, index: u32, mut double: impl FnMut(u64)) {
        let block = &self.map.blocks[index as usize];
        let absorbed = remote::absorb(block);
        if absorbed.words == 0 {
            return;
        }
        for w in 0..WORDS {
            for bit in crate::bits::each(absorbed.doubles[w]) {
                self.counters.late_double_frees.add(1);
                double(block.base() + w as u64 * 64 + u64::from(bit));
            }
        }
        // One step a word swapped, one a word read again for the class.
        self.step(absorbed.words + 8);
        self.counters.collected_blocks.add(1);
        self.counters.collected_frames.add(u64::from(absorbed.frames));
        self.unplace(index);
        block.count.set(block.count.get() + absorbed.frames as u16);
        self.place(index, block.exact_class());
    }

    /// Allocates a run of that order (0 to 9) inside a block of that migratetype on the shelf, which stays the zone's:
    /// from the block with the smallest sufficient run. Returns the block and the offset of the run.
    pub(crate) fn take_run(&self, migratetype: usize, order: u32) -> Option<(u32, usize)> {
        self.step(1);
        let class = self.shelf.smallest(migratetype, order as u8 + 1)?;
        let index = self.shelf.first(migratetype, class)?;
        let offset = self.take_run_of(index, order)?;
        Some((index, offset))
    }

    /// Allocates a run of that order inside that block of the zone.
    pub(crate) fn take_run_of(&self, index: u32, order: u32) -> Option<usize> {
        let block = &self.map.blocks[index as usize];
        let offset = block.find_run(order)?;
        self.take_frames(index, offset, 1 << order);
        self.counters.splits.add(1);
        Some(offset)
    }

    /// Allocates these frames, all free, of that block of the zone.
    pub(crate) fn take_frames(&self, index: u32, offset: usize, len: usize) {
        let block = &self.map.blocks[index as usize];
        self.unplace(index);
        block.take_run(offset, len);
        block.count.set(block.count.get() - len as u16);
        // One step a word searched, changed or read for the class.
        self.step(16 + (len as u32).div_ceil(64));
        self.place(index, block.exact_class());
    }

    /// Finds `2^order` whole blocks in a row within the bits `from..to`.
    pub(crate) fn find_wholes(&self, order: u32, from: u64, to: u64, budget: u32) -> Search {
        let mut steps = 0;
        let found = self.wholes.find(order, from, to, budget, &mut steps);
        self.step(steps);
        found
    }
}
