//! Isolation: blocks from which nothing is allocated while they are emptied.
//!
//! An isolated block is split, with a flag in its tag: nobody takes frames of it, and it does not
//! become whole. Frames freed into it go to its words as ever, and stay there. Its migratetype
//! stays what it was, so that undoing an isolation loses nothing.
//!
//! ```text
//! 1 recall: no CPU keeps the block as a whole (only where it is whole; for all blocks of a range together)
//! 2 split, flag ISOLATED, by one exchange of the tag      from now on no word of it is leased
//! 3 every CPU's door is passed: the leases that there were end, and who has looked at the tag before is out
//! ```
//!
//! [`Freehold::isolate`] lasts from one call to another, for those who walk memory frame by frame,
//! as a kernel's compaction, memory offlining and contiguous allocation do:
//!
//! ```text
//! compaction          block_state ... take_free of blocks at the upper end     moves into what it took, frees the rest
//! a given range       isolate, its users move away, take_free, restore         all of it, or restore alone
//! memory goes         isolate, its users move away, take_free; and when it comes back, a free of all of it and restore
//! ```
//!
//! [`alloc_contig_range`](Freehold::alloc_contig_range) does the second in one call, for a thread
//! that can move the users of frames from within it.

use crate::alloc::watch::ANY;
use crate::block::{
    ABSENT, Block, FRAMES, IN_HAND, ISOLATED, LOOKS, SPLIT, TAKEN, WHOLE, WORDS, bits, pieces,
};
use crate::cpu::lease::SLOTS;
use crate::cpu::recall::Recall;
use crate::primitive::Relaxed;
use crate::zone::Zone;
use crate::{AllocError, FrameRange, Freehold, Pfn, Platform};

/// Times that a range's users are asked to move before it is given up (as in Linux).
const MIGRATE_ROUNDS: u32 = 5;

/// Blocks that are isolated.
pub(crate) struct Isolated<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    range: FrameRange,
}

impl<'a, 'm, P: Platform> Isolated<'a, 'm, P> {
    /// Isolates every block that a range touches, or none. They are ordinary again when what it
    /// returns is dropped, be it by a panic.
    pub(crate) fn new(fh: &'a Freehold<'m, P>, range: FrameRange) -> Result<Self, AllocError> {
        let mut isolated = Self { fh, range: FrameRange { start: range.start, end: range.start } };
        // One block is as well asked for by itself.
        if blocks_of(range).nth(1).is_some() {
            Self::end_keeping(fh, range);
        }
        for number in blocks_of(range) {
            if !Self::block(fh, number) {
                return Err(AllocError::Busy {
                    pfn: Pfn::new((number << 9).max(range.start.get())),
                });
            }
            isolated.range.end = Pfn::new((number + 1) << 9);
        }
        Self::end_leases(fh);
        Ok(isolated)
    }

    /// Isolates one block, but for the leases that there are; `false` where it is isolated already,
    /// is no memory, or somebody is stopped on the way with it.
    pub(super) fn block(fh: &Freehold<'m, P>, number: u64) -> bool {
        let Some(zone) = fh.zones.iter().find(|zone| zone.span.contains(Pfn::new(number << 9)))
        else {
            return false;
        };
        let bit = number - zone.first_block;
        for _ in 0..LOOKS {
            if zone.bitmap.contains(bit) {
                // A block that is claimed and not taken is on the way.
                let moving = zone.moving(fh.outside(), bit as usize);
                let whole = zone.claim_whole_at(fh.outside(), bit);
                zone.update_mode();
                drop(moving);
                if let Some(block) = whole {
                    let migratetype = block.tag.get().migratetype();
                    let tag = block.fill(fh, migratetype);
                    block.tag.set(tag.with_flag(ISOLATED, true));
                    // From the claim until its words were full its frames did not count.
                    fh.watch.came(ANY);
                    return true;
                }
            }
            let Some(block) = fh.map.locate_block(number) else {
                fh.platform.relax();
                continue;
            };
            let tag = block.tag.get();
            match tag.state() {
                ABSENT if zone.bitmap.contains(bit) => {}
                ABSENT => return false,
                _ if tag.has(ISOLATED) => return false,
                WHOLE if tag.has(IN_HAND) => {
                    Recall::of_all(fh).of(|cpu| cpu.kept.iter().any(|kept| kept.names(block)));
                }
                // Somebody is a few steps away from having it, or from setting its bit.
                WHOLE => {}
                // A block in use becomes a split one, since it may be freed at this moment.
                state => {
                    let strays = (state == TAKEN).then(|| block.words());
                    let to = tag.with_state(SPLIT).with_flag(ISOLATED, true);
                    if block.tag.exchange(tag, to) {
                        if let Some(strays) = strays {
                            block.report_these_strays(fh, strays);
                        }
                        return true;
                    }
                }
            }
            fh.platform.relax();
        }
        false
    }

    /// Has CPUs give back the blocks of a range that they keep as wholes: one heavy barrier for all
    /// of them. `block` takes one for each that it comes to; left to do for it is what
    /// another CPU takes meanwhile.
    fn end_keeping(fh: &Freehold<'m, P>, range: FrameRange) {
        let is_kept = |block: Block<'m>| block.tag.get().has(IN_HAND);
        if blocks_of(range).filter_map(|number| fh.map.locate_block(number)).any(is_kept) {
            Recall::of_all(fh).of(|cpu| {
                cpu.kept
                    .iter()
                    .filter_map(|kept| kept.seen(&fh.map.blocks))
                    .any(|(block, _)| blocks_of(range).contains(&block.number.into()))
            });
        }
    }

    /// Passes every CPU's door and ends its leases of isolated blocks. The caller is inside no CPU's
    /// state.
    ///
    /// A hint, and whatever else takes frames past the leases, looks at the tag and then takes the
    /// frame. Who looked before the block was isolated is out of its CPU's state afterwards. That
    /// no look at a door could tell: who is just coming in may not show there yet.
    pub(super) fn end_leases(fh: &Freehold<'m, P>) {
        Recall::of_all(fh).each(|inside| {
            let leases = &inside.cpu.leases;
            let slots = (0..SLOTS).filter(|slot| leases.held.get() >> slot & 1 != 0);
            let mut places = slots.filter_map(|slot| leases.slot(slot).seen_place(&fh.map.blocks));
            if places.any(|(block, _)| block.tag.get().has(ISOLATED)) {
                inside.give_back_all();
            }
        });
    }

    /// Makes an isolated block ordinary again.
    pub(crate) fn restore(fh: &Freehold<'m, P>, number: u64) {
        let Some(block) = fh.map.locate_block(number) else { return };
        // Its frames can be had before its row says so.
        let _moving = fh.outside().moving_block(block);
        loop {
            let tag = block.tag.get();
            if tag.state() == ABSENT || !tag.has(ISOLATED) {
                return;
            }
            if block.tag.exchange(tag, tag.with_flag(ISOLATED, false)) {
                break;
            }
        }
        // From here on somebody else may have isolated it, whose flag stays.
        fh.outside().publish(block);
        fh.outside().raise(block);
    }

    /// Takes every frame of a range of isolated blocks; all or none.
    pub(crate) fn take(&self, range: FrameRange) -> Result<(), AllocError> {
        let fh = self.fh;
        let words = || {
            pieces(range).flat_map(|(base, offset, len)| {
                let block = fh.map.locate(base);
                bits::spans(offset, len).map(move |(w, mask)| (base, block, w, mask))
            })
        };
        let put_back = |block: Option<Block<'m>>, w, mask| {
            block.into_iter().for_each(|block| fh.outside().put_back(block, w, mask));
        };
        for (done, (base, block, w, mask)) in words().enumerate() {
            let taken = block.map_or(0, |block| block.take_isolated(fh, w, mask));
            if taken != mask {
                // Freed twice meanwhile, or not at all.
                put_back(block, w, taken);
                words().take(done).for_each(|(_, block, w, mask)| put_back(block, w, mask));
                let bit = (mask & !taken).trailing_zeros();
                return Err(AllocError::Busy {
                    pfn: Pfn::new(base + w as u64 * 64 + u64::from(bit)),
                });
            }
        }
        Ok(())
    }

    /// Has every frame of an isolated range freed.
    pub(crate) fn empty(
        &self,
        range: FrameRange,
        migrate: &mut impl FnMut(FrameRange) -> bool,
    ) -> Result<(), AllocError> {
        for _ in 0..MIGRATE_ROUNDS {
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
        match self.first_used(range) {
            None => Ok(()),
            Some(used) => Err(AllocError::Busy { pfn: used.start }),
        }
    }

    /// The first maximal run of frames in use within a range of isolated blocks.
    fn first_used(&self, range: FrameRange) -> Option<FrameRange> {
        let is_free = |pfn: u64| {
            let block = self.fh.map.locate(pfn)?;
            let offset = (pfn % FRAMES as u64) as usize;
            Some(block.line.word(offset / 64) >> (offset % 64) & 1 == 1)
        };
        let start =
            (range.start.get()..range.end.get()).find(|&pfn| is_free(pfn) == Some(false))?;
        let end = (start..range.end.get())
            .find(|&pfn| is_free(pfn) != Some(false))
            .unwrap_or(range.end.get());
        Some(FrameRange { start: Pfn::new(start), end: Pfn::new(end) })
    }
}

impl<P: Platform> Drop for Isolated<'_, '_, P> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            blocks_of(self.range).for_each(|number| Self::restore(self.fh, number));
        }
    }
}

/// Makes sure that a range lies in one zone, all of it existing memory.
pub(crate) fn check_range<P>(fh: &Freehold<'_, P>, range: FrameRange) -> Result<(), AllocError> {
    if range.is_empty() {
        return Err(AllocError::ZeroLength);
    }
    let outside = zone_spanning(fh.zones, range).err();
    match outside.or_else(|| fh.map.first_absent(range)) {
        None => Ok(()),
        Some(pfn) => Err(AllocError::BadRange { pfn }),
    }
}

/// The zone whose span covers a range.
///
/// # Errors
///
/// The first frame outside.
pub(crate) fn zone_spanning<'m>(
    zones: &'m [Zone<'m>],
    range: FrameRange,
) -> Result<&'m Zone<'m>, Pfn> {
    let zone = zones.iter().find(|zone| zone.span.contains(range.start)).ok_or(range.start)?;
    if range.end > zone.span.end { Err(zone.span.end) } else { Ok(zone) }
}

/// The numbers of the blocks that a range touches.
pub(crate) fn blocks_of(range: FrameRange) -> core::ops::Range<u64> {
    range.start.get() >> 9..range.end.get().div_ceil(FRAMES as u64)
}

impl<P: Platform> Freehold<'_, P> {
    /// Isolates every pageblock that a range touches, or none: nothing is allocated from them until
    /// [`restore`](Self::restore). What is freed into them stays there. No CPU leases words of them
    /// afterwards.
    ///
    /// Takes time proportional to the range, passes every CPU's door, with one heavy barrier where
    /// some have owners, and takes one more where CPUs keep whole blocks of it.
    ///
    /// # Errors
    ///
    /// [`AllocError::ZeroLength`], [`AllocError::BadRange`] where it is not of one zone's memory;
    /// [`AllocError::Busy`] with the first frame whose block is isolated already. Nothing has
    /// changed then.
    pub fn isolate(&self, range: FrameRange) -> Result<(), AllocError> {
        check_range(self, range)?;
        // Restored by a call instead of by its end.
        core::mem::forget(Isolated::new(self, range)?);
        Ok(())
    }

    /// Ends the isolation of every pageblock that a range touches: their free frames are anybody's.
    /// Only for a thread that has isolated them.
    pub fn restore(&self, range: FrameRange) {
        for span in self.zones.iter().map(|zone| zone.span) {
            let start = range.start.max(span.start);
            let blocks = blocks_of(FrameRange { start, end: range.end.min(span.end).max(start) });
            // What is not set up is not isolated.
            let mut at = blocks.start;
            while let Some(number) = self.map.next_set_up(at, blocks.end) {
                Isolated::restore(self, number);
                at = number + 1;
            }
        }
        self.outside().tell_pressure();
    }

    /// Takes those frames of a range within one pageblock that are free, as if each had been
    /// allocated by itself: a set bit is a frame that is the caller's now, bit 0 of the first word
    /// the block's first frame.
    ///
    /// Left where they are: frames that a CPU has in hand, and a block that is free as a whole,
    /// unless it is isolated, in which case nobody has any of it in hand. Waits for nobody.
    ///
    /// # Errors
    ///
    /// [`AllocError::ZeroLength`]; [`AllocError::BadRange`] with the block's end where the range
    /// goes on behind that.
    pub fn take_free(&self, range: FrameRange) -> Result<[u64; WORDS], AllocError> {
        let mut blocks = pieces(range);
        let Some((base, offset, len)) = blocks.next() else { return Err(AllocError::ZeroLength) };
        if let Some((next, ..)) = blocks.next() {
            return Err(AllocError::BadRange { pfn: Pfn::new(next) });
        }
        let mut taken = [0; WORDS];
        // A thread that has no metadata was never split.
        let Some(block) = self.map.locate(base) else { return Ok(taken) };
        let moving = self.outside().moving_block(block);
        let tag = block.tag.get();
        // The words of any other are empty.
        if tag.state() == SPLIT {
            for (w, mask) in bits::spans(offset, len) {
                taken[w] = if tag.has(ISOLATED) {
                    block.take_isolated(self, w, mask)
                } else {
                    // Somebody else was faster, or leases it: as if it were in use.
                    let there = block.open_words()[w] & mask;
                    let count = u64::from(there.count_ones());
                    let had = there != 0
                        && block.line.take_bits(w, there)
                        && block.still_open(self.outside(), w, there, count);
                    if had { there } else { 0 }
                };
            }
        }
        drop(moving);
        self.outside().tell_pressure();
        Ok(taken)
    }
}

impl<'m> Block<'m> {
    /// Those frames of a word of an isolated block that are free.
    fn take_isolated(self, fh: &Freehold<'m, impl Platform>, w: usize, mask: u64) -> u64 {
        let (line, tag) = (self.line, self.tag.get());
        loop {
            let there = line.word(w) & mask;
            // Others only free here: what is there stays there.
            if there == 0 || line.take_bits(w, there) {
                let count = u64::from(there.count_ones());
                fh.outside().count_free(tag, count.wrapping_neg());
                return there;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::testing::*;

    fn range(start: u64, end: u64) -> FrameRange {
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    }

    fn count(taken: Result<[u64; WORDS], AllocError>) -> u32 {
        taken.unwrap().iter().map(|word| word.count_ones()).sum()
    }

    /// A machine whose first block has every third frame in use, and what is in use of it.
    fn with_holes() -> (Machine, Vec<Pfn>) {
        let fh = unmarked(2, 4096);
        let cpu = fh.here();
        let single = movable(0);
        let mut used: Vec<Pfn> = (0..512).map(|_| cpu.alloc(single).unwrap()).collect();
        used.sort_unstable();
        assert_eq!((used[0].get() % 512, used[511].get() - used[0].get()), (0, 511));
        let away = |pfn: &Pfn| pfn.get() % 3 != 0;
        used.iter().filter(|pfn| away(pfn)).for_each(|&pfn| cpu.free(pfn, Order::ZERO).unwrap());
        used.retain(|pfn| !away(pfn));
        fh.drain_all();
        (fh, used)
    }

    #[test]
    fn whole_blocks_and_what_is_in_hand_stay() {
        let fh = unmarked(1, 4096);
        let cpu = fh.here();
        // No metadata yet: nobody has been there.
        assert_eq!(count(fh.take_free(range(2048, 2560))), 0);
        let pfn = cpu.alloc(movable(0)).unwrap();
        let block = pfn.pageblock().get();
        let taken = count(fh.take_free(range(block, block + 512)));
        // The words that the CPU leases, at least the one of its frame, are left out.
        assert!(taken <= 512 - 64, "{taken}");
        let whole = (0..4096).step_by(512).find(|&start| start != block).unwrap();
        assert_eq!(count(fh.take_free(range(whole, whole + 512))), 0);
        fh.validate().unwrap();
        let next = Pfn::new(block + 512);
        let over = fh.take_free(range(block + 500, block + 600));
        assert_eq!(over, Err(AllocError::BadRange { pfn: next }));
        assert_eq!(fh.take_free(range(block, block)), Err(AllocError::ZeroLength));
        assert_eq!(count(fh.take_free(range(1 << 30, (1 << 30) + 1))), 0);
    }

    /// All that there may be: it ends, and takes as long as there is metadata.
    #[test]
    fn everything_may_be_restored_at_once() {
        let (fh, used) = with_holes();
        let block = range(used[0].get() & !511, (used[0].get() & !511) + 512);
        fh.isolate(block).unwrap();
        fh.restore(range(0, u64::MAX));
        fh.isolate(block).unwrap();
        fh.restore(range(0, 0));
        assert!(fh.isolate(block).is_err(), "nothing was to be restored");
        fh.restore(block);
        fh.validate().unwrap();
    }
}
