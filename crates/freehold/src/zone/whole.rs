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

use crate::alloc::pick::Want;
use crate::block::tag::{ABSENT, FRESH, MOVABLE, Tag, WHOLE};
use crate::block::words::CLASS_WHOLE;
use crate::block::{BLOCK_ORDER, Block, SECTION_BLOCKS, SECTION_BLOCKS_LOG, WORDS};
use crate::cpu::by::By;
use crate::freehold::REGION;
use crate::platform::PlatformExt;
use crate::primitive::Ordering;
use crate::zone::Zone;
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

#[cfg(all(test, not(loom)))]
mod tests {
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
}
