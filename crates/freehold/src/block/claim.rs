//! Frames taken straight from a block's words, past the leases: runs of a word and more, requests
//! within address limits, single frames near the watermarks, and CPUs that may lease nothing
//! because there is too little memory. And whole blocks.

use crate::block::Block;
use crate::block::tag::{FRESH, IN_HAND, TAKEN, WHOLE};
use crate::block::words::{CLASS_BUSY, CLASS_NONE, find_run};
use crate::block::{FRAMES, WORDS, bits};
use crate::cpu::by::By;
use crate::zone::Zone;
use crate::zone::board::row_of;
use crate::{Freehold, Platform};

impl<'m, P: Platform> By<'_, 'm, P> {
    /// The class of a block with a bit in a row, if it belongs there; else the bit is cleared.
    #[inline(never)]
    pub(crate) fn class_in_row(self, block: Block<'m>, zone: &Zone<'m>, row: usize) -> Option<u8> {
        let (tag, class) = (block.tag.get(), block.class());
        if class == CLASS_BUSY {
            return None;
        }
        let right = tag.is_open()
            && tag.zone() == usize::from(zone.id)
            && class != CLASS_NONE
            && row_of(tag.migratetype(), class) == row;
        if !right {
            self.unlist(block, zone, row);
        }
        right.then_some(class)
    }
}

impl<'m> Block<'m> {
    /// Whether frames just taken out of a word may be handed out; otherwise they are put back. They
    /// may where the block is a split one, nobody is making it whole, and nobody leases the word.
    /// Who looked before taking them may have been away for long: the hand of a lease that ends
    /// shows its frames for some steps after they are in the word again, and a free of them would
    /// be refused. What is in the words of a block that somebody makes whole was freed twice. And
    /// the zone has to keep its mark. `count` of them.
    #[inline(always)]
    pub(crate) fn still_open(
        self,
        by: By<'_, 'm, impl Platform>,
        w: usize,
        frames: u64,
        count: u64,
    ) -> bool {
        // Before the tag, as in `lease`.
        let busy = self.is_busy();
        let tag = self.tag.get();
        let open = !busy && tag.is_open() && !self.is_leased(w) && by.pay(tag, count);
        if !open {
            self.put_back_after_all(by, w, frames, count);
        }
        open
    }

    /// Hardly ever: out of the way of those who may have their frames.
    #[cold]
    #[inline(never)]
    fn put_back_after_all(self, by: By<'_, 'm, impl Platform>, w: usize, frames: u64, count: u64) {
        // Before they are put back, which counts them again.
        by.count_free(self.tag.get(), count.wrapping_neg());
        by.put_back(self, w, frames);
    }

    /// The words of a block that nobody leases, by a glance.
    pub(crate) fn open_words(self) -> [u64; WORDS] {
        let line = self.line;
        core::array::from_fn(|w| match line.word(w) {
            0 => 0,
            _ if self.is_leased(w) => 0,
            word => word,
        })
    }

    /// Whether the words that nobody leases have a run of that order (0 to 9), by a glance.
    #[inline(always)]
    pub(crate) fn has_open_run(self, order: u32) -> bool {
        if order > 6 {
            return find_run(&self.open_words(), order).is_some();
        }
        let line = self.line;
        if order == 6 {
            // One comparison a word.
            return (0..WORDS).any(|w| line.word(w) == !0 && !self.is_leased(w));
        }
        let lanes = bits::LANES[order as usize];
        (0..WORDS).any(|w| lanes.has_full(line.word(w)) && !self.is_leased(w))
    }

    /// Takes a run of that order (0 to 9) out of a split block's words; its first frame.
    pub(crate) fn claim(self, by: By<'_, 'm, impl Platform>, order: u32) -> Option<u64> {
        match order {
            ..6 => {}
            6 => return self.claim_words::<1>(by),
            7 => return self.claim_words::<2>(by),
            8 => return self.claim_words::<4>(by),
            _ => return self.claim_words::<WORDS>(by),
        }
        // Somebody else may be faster, but each time that is one chance less.
        for _ in 0..WORDS {
            let offset = find_run(&self.open_words(), order)?;
            if self.claim_at(by, offset, 1 << order) {
                return Some(self.base() + offset as u64);
            }
        }
        None
    }

    /// [`claim`](Self::claim) of `LEN` whole words: 1, 2, 4 or 8 of them.
    #[inline(always)]
    pub(crate) fn claim_words<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
    ) -> Option<u64> {
        let line = self.line;
        // A loop: unrolled, which an iterator's search is not.
        for first in (0..WORDS).step_by(LEN) {
            let mut words = first..first + LEN;
            if words.all(|w| line.word(w) == !0 && !self.is_leased(w))
                && self.claim_words_at::<LEN>(by, first)
            {
                return Some(self.base() + first as u64 * 64);
            }
        }
        None
    }

    /// Takes `LEN` whole words from word `first` on; all or none. For callers that have reason to
    /// think that all of them are there.
    #[inline(always)]
    pub(crate) fn claim_words_at<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
        first: usize,
    ) -> bool {
        let end = self.take_words::<LEN>(first);
        self.keep_words::<LEN>(by, first, end)
    }

    /// Takes `LEN` whole words from word `first` on, up to the first that is not there: which one.
    #[inline(always)]
    pub(crate) fn take_words<const LEN: usize>(self, first: usize) -> usize {
        (first..first + LEN).find(|&w| !self.line.take_whole(w)).unwrap_or(first + LEN)
    }

    /// Whether `LEN` words from word `first` on, of which those up to `end` were taken, may be
    /// handed out; otherwise they are put back.
    #[inline(always)]
    pub(crate) fn keep_words<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
        first: usize,
        end: usize,
    ) -> bool {
        let leased = || (first..first + LEN).any(|w| self.is_leased(w));
        // One look for all of them, as in `still_open`; the class before the tag.
        let busy = self.is_busy();
        let tag = self.tag.get();
        let open = end == first + LEN && !busy && tag.is_open() && !leased();
        if open && by.pay(tag, 64 * LEN as u64) {
            return true;
        }
        self.put_words_back(by, first..end);
        false
    }

    /// Words that nobody may have, taken but not counted as gone yet, go back.
    #[cold]
    #[inline(never)]
    fn put_words_back(self, by: By<'_, 'm, impl Platform>, words: core::ops::Range<usize>) {
        let tag = self.tag.get();
        // Before they are put back, which counts them again.
        by.count_free(tag, (64 * words.len() as u64).wrapping_neg());
        words.for_each(|w| by.put_back(self, w, !0));
    }

    /// [`claim`](Self::claim) of a run that starts at a multiple of `align` and whose frames lie in
    /// `low..high` of the block.
    pub(crate) fn claim_within(
        self,
        by: By<'_, 'm, impl Platform>,
        order: u32,
        align: usize,
        low: usize,
        high: usize,
    ) -> Option<u64> {
        let len = 1 << order;
        if (low, high, align) == (0, FRAMES, len) {
            return self.claim(by, order);
        }
        let words = self.open_words();
        let is_free = |start: usize| bits::spans(start, len).all(|(w, m)| words[w] & m == m);
        let mut starts = (low.next_multiple_of(align)..high).step_by(align);
        let claimed =
            starts.find(|&at| at + len <= high && is_free(at) && self.claim_at(by, at, len));
        claimed.map(|at| self.base() + at as u64)
    }

    /// Takes exactly these frames; all or none.
    pub(crate) fn claim_at(self, by: By<'_, 'm, impl Platform>, offset: usize, len: usize) -> bool {
        let line = self.line;
        for (done, (w, m)) in bits::spans(offset, len).enumerate() {
            let count = u64::from(m.count_ones());
            if !(line.take_bits(w, m) && self.still_open(by, w, m, count)) {
                for (w, m) in bits::spans(offset, len).take(done) {
                    by.put_back(self, w, m);
                }
                return false;
            }
        }
        true
    }

    /// Whether another CPU leases a word of a block.
    pub(crate) fn is_shared(self, by: By<'_, 'm, impl Platform>) -> bool {
        let me = by.cpu().map_or(0, |cpu| cpu.number + 1);
        (0..WORDS).any(|w| self.is_leased(w) && self.lease(w) != me)
    }

    /// A whole block that this thread has is handed out; its first frame.
    #[inline(always)]
    pub(crate) fn take_block(self, fh: &Freehold<'m, impl Platform>, migratetype: usize) -> u64 {
        debug_assert_eq!(self.tag.get().state(), WHOLE);
        self.report_strays(fh);
        let tag = self.tag.get();
        let tag = tag.with_state(TAKEN).with_type(migratetype);
        self.tag.set(tag.with_flag(FRESH | IN_HAND, false));
        self.base()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;

    /// Four frames at 8 would start within the limits and end beyond them.
    #[test]
    fn a_run_ends_within_the_limits() {
        let fh = machine(1, 1024);
        let cpu = fh.here();
        let pfn = cpu.alloc(movable(0)).unwrap();
        cpu.flush().unwrap();
        let (block, _) = place(&fh, pfn);
        let claimed = || block.claim_within(fh.outside(), 2, 4, 4, 10);
        assert_eq!((claimed(), claimed()), (Some(4), None));
    }
}
