//! For those who walk memory frame by frame, as a kernel's compaction, memory offlining and
//! contiguous allocation do: which frames of a pageblock are free, taking those out, and isolation
//! that lasts from one call to another.
//!
//! ```text
//! compaction          block_state ... take_free of blocks at the upper end     moves into what it took, frees the rest
//! a given range       isolate, its users move away, take_free, restore         all of it, or restore alone
//! memory goes         isolate, its users move away, take_free; and when it comes back, a free of all of it and restore
//! ```
//!
//! [`alloc_contig_range`](Freehold::alloc_contig_range) does the second in one call, for a thread
//! that can move the users of frames from within it.

use crate::block::Block;
use crate::block::tag::{ISOLATED, SPLIT};
use crate::block::{WORDS, bits, pieces};
use crate::memory::isolate::{Isolated, blocks_of};
use crate::{AllocError, FrameRange, Freehold, Pfn, Platform};

impl<P: Platform> Freehold<'_, P> {
    /// Isolates every pageblock that a range touches, or none: nothing is allocated from them until
    /// [`restore`](Self::restore). What is freed into them stays there. No CPU leases words of them
    /// afterwards.
    ///
    /// Takes time proportional to the range, and one heavy barrier where CPUs have some of it in
    /// hand.
    ///
    /// # Errors
    ///
    /// [`AllocError::ZeroLength`], [`AllocError::BadRange`] where it is not of one zone's memory;
    /// [`AllocError::Busy`] with the first frame whose block is isolated already. Nothing has
    /// changed then.
    pub fn isolate(&self, range: FrameRange) -> Result<(), AllocError> {
        self.zone_of_range(range)?;
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
        self.tell_pressure();
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
        let moving = block.moving_block(self.outside());
        let tag = block.head.tag.get();
        // The words of any other are empty.
        if tag.state() == SPLIT {
            for (w, mask) in bits::spans(offset, len) {
                taken[w] = if tag.has(ISOLATED) {
                    block.take_isolated_word(self, w, mask)
                } else {
                    block.take_open_word(self, w, mask)
                };
            }
        }
        drop(moving);
        self.tell_pressure();
        Ok(taken)
    }
}

impl<'m> Block<'m> {
    /// Those frames of a word of an isolated block that are free.
    fn take_isolated_word(self, fh: &Freehold<'m, impl Platform>, w: usize, mask: u64) -> u64 {
        let (line, tag) = (self.line, self.head.tag.get());
        loop {
            let there = line.word(w) & mask;
            // Others only free here: what is there stays there.
            if there == 0 || line.take_bits(w, there) {
                let count = u64::from(there.count_ones());
                self.count_free(fh.outside(), tag, count.wrapping_neg());
                return there;
            }
        }
    }

    /// Those frames of an ordinary block's word that are free, where nobody leases it.
    fn take_open_word(self, fh: &Freehold<'m, impl Platform>, w: usize, mask: u64) -> u64 {
        let there = self.open_words()[w] & mask;
        let count = u64::from(there.count_ones());
        // Somebody else was faster, or leases it: as if it were in use.
        let had = there != 0
            && self.line.take_bits(w, there)
            && self.still_open(fh.outside(), w, there, count);
        if had { there } else { 0 }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::tests::testing::{Machine, machine_with};
    use crate::{CpuId, Migratetype, Order, Request, SingleCpu, Watermarks};

    fn range(start: u64, end: u64) -> FrameRange {
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    }

    fn count(taken: Result<[u64; WORDS], AllocError>) -> u32 {
        taken.unwrap().iter().map(|word| word.count_ones()).sum()
    }

    /// A machine whose first block has every third frame in use, and what is in use of it.
    fn with_holes() -> (Machine, Vec<Pfn>) {
        let fh = machine_with(&SingleCpu, 2, 4096, Watermarks::None);
        let cpu = fh.on(CpuId::new(0));
        let single = Request::new(Order::ZERO, Migratetype::Movable);
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
    fn what_is_free_is_taken_and_what_is_in_use_is_not() {
        let (fh, used) = with_holes();
        let first = used[0].get().next_multiple_of(512);
        let before = fh.zone_stats(0).unwrap().free;
        assert_eq!(
            count(fh.take_free(range(first, first + 100))),
            100 - used.iter().filter(|pfn| pfn.get() < first + 100).count() as u32
        );
        let rest = fh.take_free(range(first, first + 512)).unwrap();
        assert!(used.iter().all(|pfn| {
            let at = (pfn.get() - first) as usize;
            rest[at / 64] >> (at % 64) & 1 == 0
        }));
        assert_eq!(fh.take_free(range(first, first + 512)), Ok([0; WORDS]));
        assert_eq!(fh.zone_stats(0).unwrap().free, before - (512 - used.len() as u64));
        fh.validate().unwrap();
        // All of the block comes back, by a thread that had a frame of it.
        let cpu = fh.on(CpuId::new(1));
        (first..first + 512).for_each(|pfn| cpu.free(Pfn::new(pfn), Order::ZERO).unwrap());
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free_blocks, 8);
    }

    #[test]
    fn whole_blocks_and_what_is_in_hand_stay() {
        let fh = machine_with(&SingleCpu, 1, 4096, Watermarks::None);
        let cpu = fh.on(CpuId::new(0));
        // No metadata yet: nobody has been there.
        assert_eq!(count(fh.take_free(range(2048, 2560))), 0);
        let pfn = cpu.alloc(Request::new(Order::ZERO, Migratetype::Movable)).unwrap();
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

    #[test]
    fn an_isolated_block_is_nobodys_until_it_is_restored() {
        let (fh, used) = with_holes();
        let (a, b) = (fh.on(CpuId::new(0)), fh.on(CpuId::new(1)));
        let first = used[0].get() / 512 * 512;
        let block = range(first, first + 512);
        fh.isolate(block).unwrap();
        assert_eq!(fh.isolate(block), Err(AllocError::Busy { pfn: block.start }));
        let single = Request::new(Order::ZERO, Migratetype::Movable);
        let others: Vec<Pfn> = core::iter::from_fn(|| a.alloc(single).ok()).collect();
        assert_eq!(others.len(), 4096 - 512);
        assert!(others.iter().all(|pfn| pfn.pageblock() != block.start));
        used.iter().for_each(|&pfn| b.free(pfn, Order::ZERO).unwrap());
        assert_eq!(count(fh.take_free(block)), 512);
        (first..first + 512).for_each(|pfn| b.free(Pfn::new(pfn), Order::ZERO).unwrap());
        a.alloc(single).unwrap_err();
        fh.validate().unwrap();
        fh.restore(block);
        assert_eq!(core::iter::from_fn(|| a.alloc(single).ok()).count(), 512);
        fh.validate().unwrap();
    }
}
