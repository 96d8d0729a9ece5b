//! Isolation: blocks from which nothing is allocated while they are emptied, and allocation of a given range.
//!
//! An isolated block is the zone's, on no list, and its frames do not count as free. It is taken from whoever holds it;
//! frames freed into it by anybody travel the usual way home, to the zone, and stay in it. Its migratetype stays what
//! it was, so that undoing an isolation loses nothing.

use crate::block::{CLASS_DETACHED, CLASS_WHOLE, FLAG_HOLES, FLAG_ISOLATED, FRAMES, WORDS};
use crate::holder::Holder;
use crate::primitive::Plain;
use crate::remote;
use crate::zone::{HIGH_ATOMIC, ZoneGuard};
use crate::{AllocError, FrameRange, Freehold, Migratetype, Pfn, Platform};

/// Times that a range's users are asked to move before it is given up (Linux retries migration five times).
const MIGRATE_ROUNDS: u32 = 5;

impl<'m, P: Platform> Freehold<'m, P> {
    /// Brings a block to the zone from whichever CPU holds it. The caller is inside no CPU's state.
    pub(crate) fn pull(&self, index: u32) {
        let block = &self.map.blocks[index as usize];
        while let Some(cpu) = block.holder().as_cpu() {
            let pulled = self.with_cpu(cpu, |guard| {
                // It may have gone elsewhere, or be on its way to this CPU.
                if block.holder() != Holder::cpu(cpu) || block.class() == CLASS_DETACHED {
                    return false;
                }
                let z = block.zone() as usize;
                self.pcp(cpu.index(), z).remove(self.map.blocks, index);
                if remote::has_remote(block) {
                    self.absorb_in_hand(guard, index);
                }
                block.count.set(block.popcount() as u16);
                block.home.set(Holder::NOBODY.raw());
                let class = block.exact_class();
                self.lock_zone(&self.zones[z]).place(index, class);
                true
            });
            if !pulled {
                self.platform.relax();
            }
        }
    }

    /// Runs `f` on a block of the zone that is in nobody's hands, under the zone lock; pulls it from CPUs first.
    /// `None` where there is no memory.
    fn with_zone_block<T>(&self, index: u32, mut f: impl FnMut(&ZoneGuard<'_, 'm>) -> T) -> Option<T> {
        let block = &self.map.blocks[index as usize];
        loop {
            if block.holder() == Holder::NOBODY {
                return None;
            }
            self.pull(index);
            let lock = self.lock_zone(&self.zones[block.zone() as usize]);
            if block.holder() != Holder::ZONE || in_transit(&lock, block) {
                drop(lock);
                self.platform.relax();
                continue;
            }
            return Some(f(&lock));
        }
    }

    /// Isolates one block; `false` where it is isolated already, or is no memory.
    pub(crate) fn isolate_block(&self, index: u32) -> bool {
        let block = &self.map.blocks[index as usize];
        let isolated = self.with_zone_block(index, |lock| {
            if block.has_flag(FLAG_ISOLATED) {
                return false;
            }
            lock.unplace(index);
            block.set_flag(FLAG_ISOLATED, true);
            lock.place(index, block.exact_class());
            lock.step(8);
            true
        });
        isolated == Some(true)
    }

    /// Makes an isolated block ordinary again.
    pub(crate) fn restore_block(&self, index: u32) {
        let block = &self.map.blocks[index as usize];
        self.with_zone_block(index, |lock| {
            lock.unplace(index);
            block.set_flag(FLAG_ISOLATED, false);
            lock.place(index, block.exact_class());
            lock.step(8);
        });
    }

    /// The indexes of the blocks that a range touches.
    pub(crate) fn blocks_of(&self, range: FrameRange) -> impl Iterator<Item = u32> + '_ {
        let (first, end) = (range.start.get() >> 9, range.end.get().div_ceil(FRAMES as u64));
        (first..end).filter_map(|number| self.map.locate_block(number))
    }

    /// Isolates every block that a range touches, or none.
    pub(crate) fn isolate_range(&self, range: FrameRange) -> Result<(), AllocError> {
        for (done, index) in self.blocks_of(range).enumerate() {
            if !self.isolate_block(index) {
                let busy = Pfn::new(self.map.blocks[index as usize].base());
                self.blocks_of(range).take(done).for_each(|index| self.restore_block(index));
                return Err(AllocError::Busy { pfn: busy });
            }
        }
        Ok(())
    }

    pub(crate) fn restore_range(&self, range: FrameRange) {
        self.blocks_of(range).for_each(|index| self.restore_block(index));
    }

    /// Brings home all that was freed into a zone's blocks, also what waits in combining buffers.
    pub(crate) fn settle(&self, z: usize) {
        self.bring_home();
        self.collect_zone(z);
    }

    /// The first maximal run of frames in use within a range of isolated blocks.
    fn first_used(&self, range: FrameRange) -> Option<FrameRange> {
        let is_free = |pfn: u64| {
            let block = &self.map.blocks[self.map.locate(pfn)? as usize];
            let offset = (pfn % FRAMES as u64) as usize;
            Some(block.free_word(offset / 64) >> (offset % 64) & 1 == 1)
        };
        let start = (range.start.get()..range.end.get()).find(|&pfn| is_free(pfn) == Some(false))?;
        let end = (start..range.end.get()).find(|&pfn| is_free(pfn) != Some(false)).unwrap_or(range.end.get());
        Some(FrameRange { start: Pfn::new(start), end: Pfn::new(end) })
    }

    /// The zone that a range lies in, all of it existing memory.
    pub(crate) fn zone_of_range(&self, range: FrameRange) -> Result<usize, AllocError> {
        if range.is_empty() {
            return Err(AllocError::ZeroLength);
        }
        let Some(z) = self.zones.iter().position(|z| z.span.contains(range.start)) else {
            return Err(AllocError::BadRange { pfn: range.start });
        };
        let span = self.zones[z].span;
        if range.end > span.end {
            return Err(AllocError::BadRange { pfn: span.end });
        }
        let mut at = range.start.get();
        while at < range.end.get() {
            let bad = Err(AllocError::BadRange { pfn: Pfn::new(at) });
            let Some(index) = self.map.locate(at) else { return bad };
            let block = &self.map.blocks[index as usize];
            if block.holder() == Holder::NOBODY {
                return bad;
            }
            let end = (block.base() + FRAMES as u64).min(range.end.get());
            if block.has_flag(FLAG_HOLES) {
                if let Some(pfn) = (at..end).find(|&pfn| !self.map.is_present(pfn)) {
                    return Err(AllocError::BadRange { pfn: Pfn::new(pfn) });
                }
            }
            at = end;
        }
        Ok(z)
    }

    /// Allocates exactly these frames, moving their users away (`alloc_contig_range`).
    ///
    /// Every pageblock that the range touches is isolated, whoever holds it. `migrate` is then called, with no lock
    /// held, for each run of frames in use: it moves their contents elsewhere and frees them (on any CPU), and returns
    /// whether trying was of use. Frames of the blocks outside the range are not touched. The allocation is of type
    /// `migratetype` only in name: blocks keep the type they have.
    ///
    /// Takes time proportional to the range, times the rounds of migration (5 at most).
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRange`], [`AllocError::Busy`] with the first frame that is still in use or whose block somebody
    /// else is isolating. Every block is as it was then, but for what `migrate` has moved.
    pub fn alloc_contig_range(
        &self,
        range: FrameRange,
        mut migrate: impl FnMut(FrameRange) -> bool,
    ) -> Result<(), AllocError> {
        let z = self.zone_of_range(range)?;
        self.isolate_range(range)?;
        let result = self.empty_range(z, range, &mut migrate);
        if result.is_ok() {
            for index in self.blocks_of(range) {
                let block = &self.map.blocks[index as usize];
                let start = range.start.get().max(block.base());
                let end = range.end.get().min(block.base() + FRAMES as u64);
                self.with_zone_block(index, |lock| {
                    lock.take_frames(index, (start - block.base()) as usize, (end - start) as usize);
                });
            }
        }
        self.restore_range(range);
        self.tell_pressure();
        if result.is_ok() {
            #[cfg(feature = "debug-poison")]
            self.platform.check_poison(range);
        }
        result
    }

    /// Has every frame of an isolated range freed.
    pub(crate) fn empty_range(
        &self,
        z: usize,
        range: FrameRange,
        migrate: &mut impl FnMut(FrameRange) -> bool,
    ) -> Result<(), AllocError> {
        for _ in 0..MIGRATE_ROUNDS {
            self.settle(z);
            let mut rest = range;
            let mut asked = false;
            while let Some(used) = self.first_used(rest) {
                asked = true;
                if !migrate(used) {
                    return Err(AllocError::Busy { pfn: used.start });
                }
                rest.start = used.end;
            }
            if !asked {
                return Ok(());
            }
        }
        self.settle(z);
        match self.first_used(range) {
            None => Ok(()),
            Some(used) => Err(AllocError::Busy { pfn: used.start }),
        }
    }

    /// Finds and allocates `count` frames in a row that start at a multiple of `2^align` frames and lie within
    /// `limits`: any number, in any zone (those of node 0 first).
    ///
    /// First where nothing has to be moved; then, if `migrate` is more than `|_| false`, where only movable and CMA
    /// blocks are in the way. Looks at each candidate once and tries at most 32 of them, so it may fail where a longer
    /// search would not.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] where no candidate could be had, also where no memory is so aligned;
    /// [`AllocError::ZeroLength`].
    pub fn alloc_contig(
        &self,
        count: u64,
        align: crate::Order,
        limits: FrameRange,
        mut migrate: impl FnMut(FrameRange) -> bool,
    ) -> Result<FrameRange, AllocError> {
        if count == 0 {
            return Err(AllocError::ZeroLength);
        }
        // Frees under way may be all that is missing.
        self.bring_home();
        for moving in [false, true] {
            let mut tries = 0;
            for z in self.zonelist(0, None) {
                let zone = &self.zones[z];
                let step = align.frames();
                let low = zone.span.start.max(limits.start).get();
                let end = zone.span.end.min(limits.end).get();
                let Some(mut start) = low.checked_next_multiple_of(step) else { continue };
                while start.checked_add(count).is_some_and(|last| last <= end) && tries < 32 {
                    let range = FrameRange { start: Pfn::new(start), end: Pfn::new(start + count) };
                    match self.obstacle(range, moving) {
                        Some(behind) => {
                            // Nothing that contains the obstacle can work.
                            start = (behind + 1).next_multiple_of(step);
                            continue;
                        }
                        None => tries += 1,
                    }
                    if self.alloc_contig_range(range, |used| moving && migrate(used)).is_ok() {
                        return Ok(range);
                    }
                    let next = (start + count).next_multiple_of(step);
                    start = next;
                }
            }
        }
        Err(AllocError::NoMemory { order: crate::Order::fitting(count).unwrap_or(crate::Order::MAX) })
    }

    /// The last frame that keeps a range from being allocated, by a glance without locks: one that does not exist or is
    /// isolated; one in use, or where `moving` one in use in a block whose frames cannot be moved.
    fn obstacle(&self, range: FrameRange, moving: bool) -> Option<u64> {
        let mut number = (range.end.get() - 1) >> 9;
        loop {
            let base = number << 9;
            let start = range.start.get().max(base);
            let end = range.end.get().min(base + FRAMES as u64);
            let Some(index) = self.map.locate_block(number) else { return Some(end - 1) };
            let block = &self.map.blocks[index as usize];
            if block.holder() == Holder::NOBODY || block.has_flag(FLAG_ISOLATED) {
                return Some(end - 1);
            }
            let present = self.map.present(block);
            let movable = moving
                && (block.migratetype() == Migratetype::Movable as u8 || block.migratetype() == Migratetype::Cma as u8);
            let mut blocked = None;
            for (w, m) in crate::bits::spans((start - base) as usize, (end - start) as usize) {
                debug_assert!(w < WORDS);
                let free = self.free_or_held(block, w) | block.remote_word(w);
                let bad = m & if movable { !present[w] } else { !free | !present[w] };
                if bad != 0 {
                    blocked = Some(base + w as u64 * 64 + 63 - u64::from(bad.leading_zeros()));
                }
            }
            if blocked.is_some() {
                return blocked;
            }
            if base <= range.start.get() {
                return None;
            }
            number -= 1;
        }
    }
}

/// Whether a block of the zone is being taken as part of a run above order 9: found in the map, not yet marked.
fn in_transit(lock: &ZoneGuard<'_, '_>, block: &crate::block::Block) -> bool {
    let bit = u64::from(block.number.get()) - lock.first_block;
    block.class() == CLASS_DETACHED
        || (block.class() == CLASS_WHOLE
            && block.migratetype() < HIGH_ATOMIC
            && !block.has_flag(FLAG_ISOLATED)
            && !lock.wholes.contains(bit))
}
