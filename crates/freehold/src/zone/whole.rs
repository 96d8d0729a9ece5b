//! Whole blocks come out of the zone's bitmap, which knows of them before their metadata is there.
//!
//! | step | holds |
//! |---|---|
//! | in use as a whole: the zone has granted its frames | the zone keeps its mark |
//! | the count of whole blocks, less one, by a compare-exchange | as many bits are set as were claimed |
//! | the lowest bit is cleared, or the highest, by a compare-exchange | nobody else has that block |
//! | the metadata of its section is set up | it is one with memory, since its bit was set |
//!
//! Where somebody else is setting that section up at this moment, and the caller may not wait or
//! has waited long, the bit is set again and the next section is looked at.
//!
//! **The bitmap** has the zone's wholly free blocks, one bit each, so that 1 GiB is found as eight
//! full words.
//!
//! ```text
//! words     bit b = block (base + b) is wholly free and anybody's to take      1 bit a block
//! summary   which words are not 0, in two levels                               see [`board`](crate::zone::board)
//! ```
//!
//! Nothing is locked. A thread that clears a bit has the block; a run of blocks is taken word by
//! word, and put back where somebody else has one of them. The next set bit is found in three steps
//! for up to 512 GiB; above that, one step more for each further 512 GiB.

use crate::alloc::pick::Want;
use crate::block::words::CLASS_WHOLE;
use crate::block::{
    ABSENT, BLOCK_ORDER, Block, FRESH, MOVABLE, SECTION_BLOCKS, SECTION_BLOCKS_LOG, Tag, WHOLE,
    WORDS, bits,
};
use crate::cpu::By;
use crate::freehold::REGION;
use crate::platform::PlatformExt;
use crate::primitive::{AtomicU64, Ordering, Relaxed};
use crate::zone::Zone;
use crate::zone::board::Summary;
use crate::{AllocFlags, Freehold, Platform};

/// Whole blocks looked at for one that has memory behind it.
const LOOKS_FOR_MEMORY: u32 = 16;

impl<'m> Zone<'m> {
    /// Where what cannot be moved comes from where it has to share blocks: the last region of 1 GiB
    /// that is wholly there, and what is above it; then twice as much of the zone, and so on. None
    /// of that for movable requests, and in zones that keep no regions apart.
    pub(crate) fn upper_ends(&self, want: Want) -> impl Iterator<Item = Want> {
        let end = if want.migratetype == MOVABLE { 0 } else { self.first_end };
        let starts = (0..).map(move |n| end.saturating_sub(REGION << n) & !(REGION - 1));
        starts.take_while(|&start| start != 0).map(move |start| {
            let section = self.board.section_of((self.first_block + start) as u32);
            Want { from: section << SECTION_BLOCKS_LOG, ..want }
        })
    }

    /// Takes a whole block out of the zone's bitmap, for a thread that may have it: one that is in
    /// use as a whole must leave the zone its mark, of one that is split the frames still count.
    ///
    /// For movable requests the lowest, so that high memory stays in one piece. In zones of 2 GiB
    /// and more frames that cannot be moved come from the other end, so that regions of 1 GiB have
    /// none of them, or many. (In small zones that left .003 less of free memory for order 9.)
    pub(crate) fn take_whole(
        &self,
        by: By<'_, 'm, impl Platform>,
        want: Want,
    ) -> Option<Block<'m>> {
        let in_use = want.order == BLOCK_ORDER;
        // A glance first.
        if self.wholes() == 0 || in_use && !self.grant_blocks(by, 1, want.flags, true) {
            return None;
        }
        let claimed = self.claim_wholes(1);
        let found = if claimed { self.find_whole(by, want) } else { None };
        if found.is_none() {
            if claimed {
                self.give_up_wholes(by.fh, 1);
            }
            if in_use {
                self.give_back_blocks(by.fh, 1);
            }
        }
        self.update_mode();
        by.wrote(self, 1);
        found
    }

    /// Gives a claim of whole blocks up; a thread that watches for some is told.
    pub(crate) fn give_up_wholes(&self, fh: &Freehold<'m, impl Platform>, n: u64) {
        // SeqCst: as in `insert_whole`.
        self.whole_blocks.0.fetch_add(n, Ordering::SeqCst);
        fh.watch.came(CLASS_WHOLE);
    }

    fn find_whole(&self, by: By<'_, 'm, impl Platform>, want: Want) -> Option<Block<'m>> {
        let may_wait = !want.flags.contains(AllocFlags::NO_LOCK);
        let search = |down: bool, most: u32| {
            let mut at = if down { self.first_end } else { 0 };
            for _ in 0..most {
                let bit = if down { self.bitmap.previous(at)? } else { self.bitmap.next(at)? };
                // Those without memory are left for later, as far as is looked.
                let base = (self.first_block + bit) << BLOCK_ORDER;
                let in_memory = |w| by.fh.platform.frames_in_memory(base, w) != 0;
                if most == u32::MAX || (0..WORDS).any(in_memory) {
                    let block = self.take_whole_at(by, bit, may_wait);
                    if block.is_some() {
                        return block;
                    }
                }
                // Where a section is left out, below all of it.
                at = match self.bit_after(by.fh, bit) {
                    after if !down => after,
                    after if after == bit + 1 => bit,
                    after => after.saturating_sub(SECTION_BLOCKS),
                };
            }
            None
        };
        let movable = want.migratetype == MOVABLE;
        [LOOKS_FOR_MEMORY, u32::MAX].into_iter().find_map(|most| {
            let found = if movable { None } else { search(true, most) };
            found.or_else(|| search(false, most))
        })
    }

    /// Where to look next after a whole block that could not be had: somebody was faster, or is
    /// setting its section up, all of which is left out then.
    pub(crate) fn bit_after(&self, fh: &Freehold<'m, impl Platform>, bit: u64) -> u64 {
        let number = self.first_block + bit;
        match fh.map.locate_block(number) {
            Some(_) => bit + 1,
            None => (number | (SECTION_BLOCKS - 1)) + 1 - self.first_block,
        }
    }

    /// Claims a whole block and takes the one of that bit. `None` where there is none to claim, or
    /// somebody else was faster; nothing has changed then.
    pub(crate) fn claim_whole_at(
        &self,
        by: By<'_, 'm, impl Platform>,
        bit: u64,
    ) -> Option<Block<'m>> {
        if !self.claim_wholes(1) {
            return None;
        }
        let block = self.take_whole_at(by, bit, true);
        if block.is_none() {
            self.give_up_wholes(by.fh, 1);
        }
        block
    }

    /// Takes the whole block of that bit, if it is set. For who has claimed a whole block.
    pub(crate) fn take_whole_at(
        &self,
        by: By<'_, 'm, impl Platform>,
        bit: u64,
        may_wait: bool,
    ) -> Option<Block<'m>> {
        let (w, mask) = ((bit / 64) as usize, 1 << (bit % 64));
        let writes = self.bitmap.take(w, mask)?;
        by.wrote(self, writes);
        let block = self.set_up(by.fh, bit, may_wait);
        if block.is_none() {
            let writes = self.bitmap.insert(w, mask);
            by.wrote(self, writes);
        }
        block
    }

    /// The metadata of a block whose bit was cleared. `None` where another sets its section up.
    pub(crate) fn set_up(
        &self,
        fh: &Freehold<'m, impl Platform>,
        bit: u64,
        may_wait: bool,
    ) -> Option<Block<'m>> {
        let number = self.first_block + bit;
        if fh.map.locate_block(number).is_none() {
            fh.map.set_up(number << 9, || may_wait && fh.platform.waited());
        }
        let block = fh.map.locate_block(number)?;
        // A block whose bit was cleared is whole; here it was never used.
        if block.tag.get().state() == ABSENT {
            block.tag.set(Tag::new(WHOLE, MOVABLE, self.id).with_flag(FRESH, true));
        }
        Some(block)
    }
}

/// See the module's documentation.
pub(crate) struct WholeBitmap<'m> {
    words: &'m [AtomicU64],
    summary: Summary<'m>,
}

impl<'m> WholeBitmap<'m> {
    /// How many words the three levels need for that many blocks.
    pub(crate) const fn sizes(blocks: u64) -> [usize; 3] {
        let words = blocks.div_ceil(64);
        let [any, any2] = Summary::sizes(words);
        [words as usize, any, any2]
    }

    pub(crate) fn new(words: &'m [AtomicU64], summary: Summary<'m>) -> Self {
        Self { words, summary }
    }

    /// Sets bits of one word, none of which is set; returns the writes that it took.
    pub(crate) fn insert(&self, w: usize, mask: u64) -> u32 {
        // SeqCst: the summary is read next. Release is part of it: a thread that clears a bit has
        // all that was written of its block.
        let old = self.words[w].fetch_or(mask, Ordering::SeqCst);
        debug_assert_eq!(old & mask, 0);
        1 + self.summary.note(w as u64)
    }

    /// Clears bits of one word, if all of them are set; the writes that it took, or `None` where
    /// they were not, and nothing has changed.
    pub(crate) fn take(&self, w: usize, mask: u64) -> Option<u32> {
        let word = &self.words[w];
        let mut old = word.get();
        while old & mask == mask {
            // Acquire: pairs with `insert`. Release: a thread that finds the bit gone sees that a
            // CPU is inside its door with the block. Each failure is another CPU's success.
            match word.compare_exchange_weak(old, old & !mask, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) if old & !mask != 0 => return Some(1),
                // SeqCst: see `summary`.
                Ok(_) => {
                    let empty = || word.load(Ordering::SeqCst) == 0;
                    return Some(1 + self.summary.forget(w as u64, empty));
                }
                Err(now) => old = now,
            }
        }
        None
    }

    /// Clears the bits `first..first + len`, all or none; the writes, and whether it has them.
    pub(crate) fn take_run(&self, first: u64, len: u64) -> (u32, bool) {
        let spans = || bits::spans(first as usize, len as usize);
        let mut writes = 0;
        for (taken, (w, mask)) in spans().enumerate() {
            match self.take(w, mask) {
                Some(n) => writes += n,
                None => {
                    for (w, mask) in spans().take(taken) {
                        writes += self.insert(w, mask);
                    }
                    return (writes, false);
                }
            }
        }
        (writes, true)
    }

    /// Sets all bits of `from..to`, none of which is set.
    pub(crate) fn insert_range(&self, from: u64, to: u64) {
        for (w, mask) in bits::spans(from as usize, (to - from) as usize) {
            self.insert(w, mask);
        }
    }

    pub(crate) fn contains(&self, bit: u64) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|w| w.get() >> (bit % 64) & 1 == 1)
    }

    /// The first set bit from `from` on.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let w = from / 64;
        let rest = self.words.get(w as usize)?.get() & (!0 << (from % 64));
        if rest != 0 {
            return Some(w * 64 + u64::from(rest.trailing_zeros()));
        }
        let mut from = w + 1;
        loop {
            let w = self.summary.next(from)?;
            let word = self.words[w as usize].get();
            if word != 0 {
                return Some(w * 64 + u64::from(word.trailing_zeros()));
            }
            // Taken a moment ago: a thread that took it clears the summary's bit.
            from = w + 1;
        }
    }

    /// The last set bit below `to`.
    pub(crate) fn previous(&self, to: u64) -> Option<u64> {
        let mut w = to / 64;
        let below = bits::mask(0, (to % 64) as u32);
        let mut word = self.words.get(w as usize).map_or(0, Relaxed::get) & below;
        while word == 0 {
            w = self.summary.previous(w)?;
            word = self.words[w as usize].get();
        }
        Some(w * 64 + u64::from(word.ilog2()))
    }

    /// All words, eight at a time: as many blocks as a chunk of the largest order has.
    pub(crate) fn eights(&self) -> impl Iterator<Item = [u64; 8]> {
        let word = |words: &[AtomicU64], w: usize| words.get(w).map_or(0, Relaxed::get);
        self.words.chunks(8).map(move |words| core::array::from_fn(|w| word(words, w)))
    }

    /// Whether the summary shows every bit.
    pub(crate) fn is_summed_up(&self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(w, word)| word.get() == 0 || self.summary.shows(w as u64))
    }

    /// An aligned run of `2^order` whole blocks (orders 0 to 9) within the bits `from..to`. `from`
    /// need not be aligned.
    pub(crate) fn find(&self, order: u32, from: u64, to: u64) -> Option<u64> {
        let len = 1u64 << order;
        let to = to.min(self.words.len() as u64 * 64);
        let mut at = from;
        loop {
            let bit = self.next(at).filter(|&bit| bit < to)?;
            // The run that contains this bit, or the next one where that starts too early.
            let start =
                if bit & !(len - 1) >= from { bit & !(len - 1) } else { (bit | (len - 1)) + 1 };
            if order < 6 {
                let w = (bit / 64) as usize;
                let mut word = self.words[w].get() & (!0 << (bit % 64));
                if to - w as u64 * 64 < 64 {
                    word &= bits::mask(0, (to - w as u64 * 64) as u32);
                }
                let starts = bits::runs(word, order);
                if starts != 0 {
                    return Some(w as u64 * 64 + u64::from(starts.trailing_zeros()));
                }
                at = (w as u64 + 1) * 64;
            } else {
                if start + len > to {
                    return None;
                }
                let mut words = self.words[(start / 64) as usize..][..(len / 64) as usize].iter();
                if words.all(|word| word.get() == !0) {
                    return Some(start);
                }
                at = start + len;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::testing::*;

    /// A request with NO_LOCK may have interrupted a thread that sets a section up: it comes back,
    /// and takes nothing.
    #[test]
    fn who_may_not_wait_does_not_wait_for_a_section() {
        let host = Turns::new(false);
        let fh = machine_on(host, 1, 1 << 15);
        let cpu = fh.here();
        fh.map.blocks.leave_marked(0, true);
        for order in [0, 3, 7, 9, 11] {
            let request = movable(order).flags(AllocFlags::NO_LOCK);
            cpu.alloc(request).unwrap_err();
        }
        assert_eq!(host.taken(), 0);
        fh.map.blocks.leave_marked(0, false);
        fh.validate().unwrap();
        let pfn = cpu.alloc(movable(0).flags(AllocFlags::NO_LOCK)).unwrap();
        cpu.free(pfn, Order::ZERO).unwrap();
        fh.validate().unwrap();
    }

    /// Others take what is in other sections, no matter who is stopped in one.
    #[test]
    fn a_section_that_is_being_set_up_holds_up_nobody() {
        let fh = machine(1, 1 << 16);
        let cpu = fh.here();
        fh.map.blocks.leave_marked(0, true);
        for order in [0, 3, 7, 9, 11] {
            let request = movable(order);
            let pfn = cpu.alloc(request).unwrap();
            assert!(pfn.get() >= 1 << 15, "{pfn}");
            cpu.free(pfn, request.order).unwrap();
        }
        fh.map.blocks.leave_marked(0, false);
        fh.validate().unwrap();
    }

    /// Memory is full of movable chunks but for half of a low block and a run in a region above it:
    /// what cannot be moved takes that run, and the half only if there is no other.
    #[test]
    fn what_cannot_be_moved_shares_blocks_at_the_upper_end_first() {
        for (region, outside) in [(2, false), (3, false), (2, true), (3, true)] {
            let fh = unmarked(1, 4 << 18);
            exhaust(&fh, movable(8));
            fh.here().free(Pfn::new(256), of_order(8)).unwrap();
            fh.here().free(Pfn::new((region << 18) + 512), of_order(3)).unwrap();
            fh.drain_all();
            let request = Request::new(of_order(3), Migratetype::Unmovable);
            let regions = [0, 1].map(|_| match outside {
                true => fh.outside().alloc(CpuId::new(0), &request).unwrap().get() >> 18,
                false => fh.here().alloc(request).unwrap().get() >> 18,
            });
            assert_eq!(regions, [region, 0]);
            fh.validate().unwrap();
        }
    }

    fn level(n: usize) -> Vec<AtomicU64> {
        (0..n).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn every_search_agrees_with_looking_at_every_bit() {
        let blocks = 64 * 300u64;
        let sizes = WholeBitmap::sizes(blocks);
        let levels = sizes.map(level);
        let map = WholeBitmap::new(&levels[0], Summary::new(&levels[1], &levels[2]));
        let mut model = std::vec![false; blocks as usize];
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..400 {
            let order = random.u32(..10);
            let start = random.u64(..blocks) & !((1 << order) - 1);
            let set = round % 3 != 2;
            for bit in start..(start + (1 << order)).min(blocks) {
                if model[bit as usize] != set {
                    model[bit as usize] = set;
                    if set {
                        map.insert((bit / 64) as usize, 1 << (bit % 64));
                    } else {
                        map.take((bit / 64) as usize, 1 << (bit % 64)).unwrap();
                    }
                }
            }
            assert!(map.is_summed_up());
            let from = random.u64(..blocks);
            let naive = (from..blocks).find(|&b| model[b as usize]);
            assert_eq!(map.next(from), naive);
            let before = (0..from).rev().find(|&b| model[b as usize]);
            assert_eq!(map.previous(from), before);
            let to = from + random.u64(..blocks - from);
            // Also where the last run ends.
            let to = if round % 4 == 0 { to & !511 } else { to };
            for order in 0..10u32 {
                let len = 1u64 << order;
                let naive = (from.next_multiple_of(len)..to)
                    .step_by(len as usize)
                    .find(|&s| s + len <= to && (s..s + len).all(|b| model[b as usize]));
                assert_eq!(map.find(order, from, to), naive, "order {order} in {from}..{to}");
            }
        }
    }

    /// Somebody has taken a block of the run after it was found: the others stay.
    #[test]
    fn a_run_is_taken_as_a_whole_or_not_at_all() {
        let levels = WholeBitmap::sizes(64 * 4).map(level);
        let map = WholeBitmap::new(&levels[0], Summary::new(&levels[1], &levels[2]));
        map.insert_range(0, 256);
        map.take(2, 1 << 7).unwrap();
        assert!(!map.take_run(64, 128).1);
        assert!((0..256).all(|bit| map.contains(bit) == (bit != 135)));
        assert!(map.take_run(0, 128).1 && map.is_summed_up());
        assert_eq!(map.next(0), Some(128));
    }

    /// Its only block was taken a moment ago, and the summary does not know yet: what is found next
    /// is a set bit, not the one behind the word, which may be in a hole.
    #[test]
    fn a_word_that_the_summary_still_shows_has_no_block_to_be_found() {
        let levels = WholeBitmap::sizes(64 * 4).map(level);
        let map = WholeBitmap::new(&levels[0], Summary::new(&levels[1], &levels[2]));
        map.insert(1, 1 << 5);
        map.insert(3, 1 << 6);
        levels[0][1].set(0);
        assert_eq!(map.next(0), Some(3 * 64 + 6));
    }
}
