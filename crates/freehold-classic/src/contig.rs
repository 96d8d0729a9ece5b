//! Getting hold of one particular range of frames, whoever has them.
//!
//! ```text
//!   isolate    the pageblocks of the range: free chunks move to isolated lists, nobody may take
//!              them
//!   drain      every CPU's lists, so that free frames of the range arrive there too
//!   migrate    what is in use: the caller moves it elsewhere and frees it
//!   test       every frame of the range free and isolated?
//!              no ──> Busy, everything undone; try again
//!   take       the range; what free chunks reach beyond it goes back
//!   un-isolate the pageblocks
//! ```
//!
//! The test can fail although all went well: a free that read the pageblock's type before it was
//! isolated may put its frame on a PCP after the drain has been there. The kernel reports that as
//! -EBUSY and lets callers retry, and so does this.

use core::sync::atomic::Ordering::Relaxed;

use freehold::{AllocError, CpuId, FrameRange, Migratetype, Pfn};

use crate::Classic;
use crate::page::{Kind, MAX_ORDER, PAGEBLOCK_ORDER};
use crate::switches::Switch;
use crate::zone::{Locked, Zone};

/// What is found in use in a range that is being emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse {
    /// Where the chunk starts; it may reach beyond the range.
    pub pfn: Pfn,
    /// Its order.
    pub order: freehold::Order,
}

impl Classic {
    /// Allocates exactly the frames of `range`, each as a single frame with one reference.
    ///
    /// `migrate` is called, with no lock held, for every chunk in use in the range; it moves the
    /// contents elsewhere, frees the chunk and returns `true`, or returns `false` if that cannot be
    /// done.
    ///
    /// # Errors
    ///
    /// [`AllocError::Busy`] where a frame is unmovable, could not be migrated, or was on its way
    /// between lists; every pageblock is as before then, though what was migrated stays migrated.
    pub fn alloc_contig_range(
        &self,
        cpu: CpuId,
        range: FrameRange,
        migrate: &mut dyn FnMut(InUse) -> bool,
    ) -> Result<(), AllocError> {
        self.check_cpu(cpu).map_err(|cpu| AllocError::CpuOffline { cpu })?;
        let (start, end) = self.find_range(range)?;
        self.zone.isolate_range(start, end)?;
        let result = self.empty_and_take(start, end, migrate);
        self.zone.unisolate_range(start, end);
        result
    }

    fn empty_and_take(
        &self,
        start: u32,
        end: u32,
        migrate: &mut dyn FnMut(InUse) -> bool,
    ) -> Result<(), AllocError> {
        let zone = &self.zone;
        self.drain_range(start, end);
        let mut at = start;
        while at < end {
            let Some((head, state)) = zone.frames.chunk(at) else { return Err(zone.busy(at)) };
            let order = crate::page::to_order(state.order());
            if state.kind() == Kind::Allocated {
                // What was on a PCP at the time of isolation may have gone to an unmovable request
                // before the drain.
                let movable = state.migratetype() == Migratetype::Movable;
                if !movable || !migrate(InUse { pfn: zone.frames.pfn(head), order }) {
                    return Err(zone.busy(at));
                }
            }
            at = head + (1 << state.order());
        }
        zone.lock().take_isolated(start, end)
    }

    /// Isolates the pageblocks that `range` covers: their free frames can no longer be allocated,
    /// and what is freed in them goes straight to the isolated lists.
    ///
    /// # Errors
    ///
    /// [`AllocError::Busy`] where a block is isolated already or an unmovable chunk lies in the
    /// range; [`AllocError::BadRange`] where the range is not inside the zone. Nothing has changed
    /// then.
    pub fn isolate(&self, range: FrameRange) -> Result<(), AllocError> {
        let (start, end) = self.find_range(range)?;
        self.zone.isolate_range(start, end)?;
        self.drain_range(start, end);
        Ok(())
    }

    /// Empties the PCPs, so that free frames of an isolated range get onto its lists: everybody's,
    /// or with `targeted-drain` those of the CPUs that own blocks of it, and everybody's only if
    /// that was not enough.
    fn drain_range(&self, start: u32, end: u32) {
        let zone = &self.zone;
        let visited = |cpus: usize| self.counts.range_visits.fetch_add(cpus as u64, Relaxed);
        if self.on.has(Switch::TargetedDrain) {
            let blocks = zone.block_of(start)..=zone.block_of(end - 1);
            let mut owners: Vec<u32> =
                blocks.clone().filter_map(|block| zone.blocks.owner(block)).collect();
            owners.sort_unstable();
            owners.dedup();
            owners.iter().for_each(|&cpu| zone.drain_pcp(cpu as usize, self.layout));
            visited(owners.len());
            // Frames that were freed while nobody owned their block may be anywhere.
            if !blocks.into_iter().any(|block| zone.has_cached(block)) {
                return;
            }
        }
        visited(zone.pcps.len());
        self.drain_cpus();
    }

    /// Ends the isolation of the pageblocks that `range` covers.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRange`] where the range is not inside the zone.
    pub fn unisolate(&self, range: FrameRange) -> Result<(), AllocError> {
        let (start, end) = self.find_range(range)?;
        self.zone.unisolate_range(start, end);
        Ok(())
    }

    /// The first frame of a range, and the one after its last.
    fn find_range(&self, range: FrameRange) -> Result<(u32, u32), AllocError> {
        if range.is_empty() {
            return Err(AllocError::ZeroLength);
        }
        let zone = &self.zone;
        let start = zone.frame(range.start).ok_or(AllocError::BadRange { pfn: range.start })?;
        let last = zone.frame(Pfn::new(range.end.get() - 1));
        let last = last.ok_or(AllocError::BadRange { pfn: zone.frames.pfn(zone.end) })?;
        Ok((start, last + 1))
    }
}

impl Zone {
    /// Whether frames of a pageblock lie on some CPU's lists. Looks at the head of each of its
    /// chunks, without a lock: what is on its way at this moment may be missed, as by a drain.
    fn has_cached(&self, block: u32) -> bool {
        let frames = Locked::block_frames(block);
        let mut at = frames.start.max(self.start);
        while at < frames.end.min(self.end) {
            let Some((head, state)) = self.frames.chunk(at) else {
                at += 1;
                continue;
            };
            if matches!(state.kind(), Kind::Pcp | Kind::PcpBuddy | Kind::Queued) {
                return true;
            }
            at = head + (1 << state.order());
        }
        false
    }

    fn busy(&self, frame: u32) -> AllocError {
        AllocError::Busy { pfn: self.frames.pfn(frame) }
    }

    /// Ends the isolation of all pageblocks of a range.
    fn unisolate_range(&self, start: u32, end: u32) {
        for block in self.block_of(start)..=self.block_of(end - 1) {
            // The lock is dropped between blocks, as when they were isolated.
            self.lock().unisolate(block);
        }
    }

    /// Isolates all pageblocks of a range, or none.
    fn isolate_range(&self, start: u32, end: u32) -> Result<(), AllocError> {
        let (first, last) = (self.block_of(start), self.block_of(end - 1));
        for block in first..=last {
            // The lock is dropped between blocks: a long range must not keep everybody waiting.
            let result = self.lock().isolate(block, start, end);
            if let Err(error) = result {
                let mut locked = self.lock();
                (first..block).for_each(|block| locked.unisolate(block));
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Locked<'_> {
    /// Isolates one pageblock. Only what lies between `start` and `end` has to be movable.
    fn isolate(&mut self, block: u32, start: u32, end: u32) -> Result<(), AllocError> {
        let zone = self.zone;
        let frames = Self::block_frames(block);
        if zone.blocks.migratetype(block) == Migratetype::Isolate {
            return Err(zone.busy(frames.start.max(start)));
        }
        let mut at = frames.start.max(start);
        while at < frames.end.min(end) {
            let Some((head, state)) = zone.frames.chunk(at) else { return Err(zone.busy(at)) };
            let unmovable =
                state.kind() == Kind::Allocated && state.migratetype() != Migratetype::Movable;
            if unmovable {
                return Err(zone.busy(at));
            }
            self.work += 1;
            at = head + (1 << state.order());
        }
        zone.blocks.set_isolated(block, true);
        self.isolated_blocks += 1;
        if !self.part_pair(block) {
            self.move_block(block, Migratetype::Isolate);
        }
        Ok(())
    }

    /// Where a free chunk of two pageblocks reaches beyond `block`, its halves part, each going to
    /// the list of its own block's type. Returns whether there was one.
    ///
    /// Such a chunk is met when isolation begins and, since neighbours that are both isolated join,
    /// when it ends.
    fn part_pair(&mut self, block: u32) -> bool {
        let pair = Self::block_frames(block).start & !((1 << MAX_ORDER) - 1);
        let state = self.zone.frames.state(pair);
        if state.kind() != Kind::Buddy || state.order() <= PAGEBLOCK_ORDER {
            return false;
        }
        let (order, _) = self.take(pair);
        self.free_split(pair, order, true);
        true
    }

    /// Ends the isolation of one pageblock: its free chunks go to the tails of its type's lists.
    fn unisolate(&mut self, block: u32) {
        let zone = self.zone;
        if zone.blocks.migratetype(block) != Migratetype::Isolate {
            return;
        }
        zone.blocks.set_isolated(block, false);
        self.isolated_blocks -= 1;
        if !zone.on.has(Switch::IsolateBit)
            && zone.blocks.type_underneath(block) != Migratetype::Cma
        {
            // Isolation took the place of the type; movable is what the caller assumes it was.
            self.change_type(block, Migratetype::Movable);
        }
        let migratetype = zone.blocks.migratetype(block);
        let first = Self::block_frames(block).start;
        if self.part_pair(block) {
            return;
        }
        self.move_block(block, migratetype);
        let state = zone.frames.state(first);
        if state.kind() == Kind::Buddy && state.order() == PAGEBLOCK_ORDER {
            // Isolation kept it from joining its neighbour.
            self.take(first);
            self.free_one(first, PAGEBLOCK_ORDER, migratetype, true);
        }
    }

    /// Takes the free, isolated frames of a range; the parts of chunks that reach beyond it stay
    /// free.
    fn take_isolated(&mut self, start: u32, end: u32) -> Result<(), AllocError> {
        let zone = self.zone;
        let mut at = start;
        while at < end {
            let Some((head, state)) = zone.frames.chunk(at) else { return Err(zone.busy(at)) };
            if state.kind() != Kind::Buddy || state.migratetype() != Migratetype::Isolate {
                return Err(zone.busy(at));
            }
            self.work += 1;
            at = head + (1 << state.order());
        }
        let mut at = start;
        while at < end {
            let Some((head, _)) = zone.frames.chunk(at) else {
                unreachable!("the range was just found free")
            };
            let (order, migratetype) = self.take(head);
            let chunk_end = head + (1 << order);
            for frame in start.max(head)..end.min(chunk_end) {
                zone.frames.set_allocated(frame, 0, Migratetype::Movable);
            }
            for outside in [head..start.max(head), end.min(chunk_end)..chunk_end] {
                outside.for_each(|frame| self.free_one(frame, 0, migratetype, true));
            }
            at = chunk_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::free::Loose;
    use crate::{Config, Design, Request};
    use freehold::{Order, PAGEBLOCK_FRAMES};

    fn machine(name: &str) -> (Classic, Pfn) {
        let config = Config::single_zone(Design::parse(name).unwrap(), 2, 16 * PAGEBLOCK_FRAMES);
        let start = config.zone.range.start;
        (Classic::new(config).unwrap(), start)
    }

    const CPU: CpuId = CpuId::new(0);

    #[test]
    fn a_free_in_flight_makes_the_range_busy_once() {
        let (classic, _) = machine("7.2");
        let pfn = classic.alloc(CPU, Request::new(Order::ZERO, Migratetype::Movable)).unwrap();
        let range = FrameRange::new(pfn.pageblock(), PAGEBLOCK_FRAMES).unwrap();
        // A thread has dropped the last reference and read the type, but not yet put the frame
        // anywhere.
        let frame = classic.find(pfn).unwrap();
        let put = classic.zone.frames.put(frame, 0).unwrap();
        let loose = classic.prepare(put, Loose { frame, order: 0 }).unwrap();
        let busy = classic.alloc_contig_range(CPU, range, &mut |_| false);
        assert_eq!(busy, Err(AllocError::Busy { pfn }));
        classic.validate().unwrap_err(); // the frame is still in flight
        classic.free_one(CPU, loose);
        classic.validate().unwrap();
        classic.alloc_contig_range(CPU, range, &mut |_| false).unwrap();
        classic.free_contig_range(CPU, range).unwrap();
        classic.drain_all();
        assert_eq!(classic.memory_map().free_blocks, 16);
    }
}
