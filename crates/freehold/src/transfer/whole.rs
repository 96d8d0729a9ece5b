//! Whole blocks come out of the zone's bitmap, which knows of them before their metadata is there.
//!
//! | step | holds |
//! |---|---|
//! | the count of whole blocks, less one, by a compare-exchange | as many bits are set as were claimed; the zone keeps its mark |
//! | the lowest bit is cleared, by a compare-exchange | nobody else has that block |
//! | the metadata of its section is set up | it is one with memory, since its bit was set |
//!
//! Where somebody else is setting that section up at this moment, and the caller may not wait or has
//! waited long, the bit is set again and the next section is looked at.

use crate::block::layout::Index;
use crate::block::words::CLASS_WHOLE;
use crate::block::{BLOCK_ORDER, FRAMES, WORDS};
use crate::cpu::by::By;
use crate::primitive::Plain;
use crate::types::section::SECTION_BLOCKS;
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Pfn, Platform};

/// Whole blocks looked at for one that has memory behind it.
const LOOKS_FOR_MEMORY: u32 = 16;
/// Blocks of 1 GiB.
const REGION: u64 = 512;
/// Regions of 1 GiB that a request looks at which cannot be moved away later.
const REGIONS: usize = 32;

impl<'m, P: Platform> Freehold<'m, P> {
    /// One turn of a wait.
    pub(crate) fn waited(&self) -> bool {
        self.platform.relax();
        true
    }

    /// Takes a whole block out of the zone's bitmap, for whoever may have it: one that is in use as
    /// a whole must leave the zone its mark, of one that is split the frames still count.
    ///
    /// The lowest, so that high memory stays in one piece. Requests that cannot be moved away later
    /// look at those 1 GiB regions first that have such blocks already, so that the others can be
    /// had as one.
    pub(crate) fn take_whole(
        &self,
        by: By<'_>,
        zone: &Zone<'m>,
        migratetype: usize,
        flags: AllocFlags,
        in_use: bool,
    ) -> Option<Index> {
        // A glance first.
        let allowed = || !in_use || self.allows(by, zone, FRAMES as u64, flags, false, true);
        if zone.wholes() == 0 || !zone.claim_wholes(1, allowed) {
            return None;
        }
        let may_wait = !flags.contains(AllocFlags::NO_LOCK);
        let found = self.find_whole(by, zone, migratetype, may_wait);
        if found.is_none() {
            self.give_up_wholes(zone, 1);
        }
        zone.update_mode();
        self.wrote(by, zone, 1);
        found
    }

    /// Gives a claim of whole blocks up; whoever watches for some is told.
    pub(crate) fn give_up_wholes(&self, zone: &Zone<'m>, n: u64) {
        zone.unclaim_wholes(n);
        self.watch.came(CLASS_WHOLE);
    }

    /// Whether blocks of that 1 GiB went to requests that cannot be moved away later.
    fn is_tainted(&self, zone: &Zone<'m>, region: u64) -> bool {
        let first = zone.first_block + region * REGION;
        let mut sections = (first..first + REGION).step_by(SECTION_BLOCKS as usize);
        sections.any(|number| {
            let section = self.map.locate_block(number);
            section.is_some_and(|index| self.map.head(index).tainted.get() != 0)
        })
    }

    fn find_whole(
        &self,
        by: By<'_>,
        zone: &Zone<'m>,
        migratetype: usize,
        may_wait: bool,
    ) -> Option<Index> {
        let confined = migratetype != crate::Migratetype::Movable as usize;
        if confined && zone.by_region.get() {
            // From the one that had some last, so that few are looked at however many there are.
            let all = crate::zone::bitmap_blocks(zone.span).div_ceil(REGION);
            let last = u64::from(zone.last_region.get());
            for region in (last..all).chain(0..last.min(all)).take(REGIONS) {
                let bit = zone.bitmap.next(region * REGION).0;
                let here = bit.filter(|bit| bit / REGION == region);
                if let Some(bit) = here.filter(|_| self.is_tainted(zone, region)) {
                    if let Some(index) = self.take_whole_at(by, zone, bit, may_wait) {
                        zone.last_region.set(region as u32);
                        return Some(index);
                    }
                }
            }
        }
        // Those whose memory the host has taken away are left for later, as far as is looked.
        let mut from = 0;
        for _ in 0..LOOKS_FOR_MEMORY {
            let Some(bit) = zone.bitmap.next(from).0 else { break };
            if self.is_in_memory(zone.first_block + bit) {
                if let Some(index) = self.take_whole_at(by, zone, bit, may_wait) {
                    return Some(index);
                }
            }
            from = self.bit_after(zone, bit);
        }
        let mut from = 0;
        while let Some(bit) = zone.bitmap.next(from).0 {
            if let Some(index) = self.take_whole_at(by, zone, bit, may_wait) {
                return Some(index);
            }
            from = self.bit_after(zone, bit);
        }
        None
    }

    /// Where to look next after a whole block that could not be had: somebody was faster, or is
    /// setting its section up, all of which is left out then.
    pub(crate) fn bit_after(&self, zone: &Zone<'m>, bit: u64) -> u64 {
        let number = zone.first_block + bit;
        match self.map.locate_block(number) {
            Some(_) => bit + 1,
            None => (number | (SECTION_BLOCKS - 1)) + 1 - zone.first_block,
        }
    }

    /// Whether some of a block has memory behind it, as far as the host knows.
    fn is_in_memory(&self, number: u64) -> bool {
        (0..WORDS).any(|w| self.in_memory(number << BLOCK_ORDER, w) != 0)
    }

    /// Which frames of a word have memory behind them, as far as the host knows; `base` is the block's
    /// first frame.
    pub(crate) fn in_memory(&self, base: u64, w: usize) -> u64 {
        self.platform.in_memory(Pfn::new(base + 64 * w as u64))
    }

    /// Claims a whole block and takes the one of that bit. `None` where there is none to claim, or
    /// somebody else was faster; nothing has changed then.
    pub(crate) fn claim_whole_at(&self, by: By<'_>, zone: &Zone<'m>, bit: u64) -> Option<Index> {
        if !zone.claim_wholes(1, || true) {
            return None;
        }
        let index = self.take_whole_at(by, zone, bit, true);
        if index.is_none() {
            self.give_up_wholes(zone, 1);
        }
        index
    }

    /// Takes the whole block of that bit, if it is set. For who has claimed a whole block.
    pub(crate) fn take_whole_at(
        &self,
        by: By<'_>,
        zone: &Zone<'m>,
        bit: u64,
        may_wait: bool,
    ) -> Option<Index> {
        let (w, mask) = ((bit / 64) as usize, 1 << (bit % 64));
        let writes = zone.bitmap.take(w, mask)?;
        self.wrote(by, zone, writes);
        let index = self.set_up(zone, bit, may_wait);
        if index.is_none() {
            let writes = zone.bitmap.insert(w, mask);
            self.wrote(by, zone, writes);
        }
        index
    }

    /// The metadata of a block whose bit was cleared. `None` where somebody else is setting its
    /// section up.
    pub(crate) fn set_up(&self, zone: &Zone<'m>, bit: u64, may_wait: bool) -> Option<Index> {
        let number = zone.first_block + bit;
        if self.map.locate_block(number).is_none() {
            self.map.set_up(number << 9, || may_wait && self.waited());
        }
        let index = self.map.locate_block(number)?;
        zone.make_present(self.map.head(index));
        Some(index)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;

    use core::sync::atomic::{AtomicU32, Ordering};
    use std::boxed::Box;

    use crate::testing::{machine, machine_on};
    use crate::{AllocFlags, CpuId, Migratetype, Order, Platform, Request};

    /// Counts turns of waits.
    struct Waits(AtomicU32);

    impl Platform for Waits {
        fn relax(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request with NO_LOCK may have interrupted whoever sets a section up: it comes back, and
    /// takes nothing.
    #[test]
    fn who_may_not_wait_does_not_wait_for_a_section() {
        let host: &Waits = Box::leak(Box::new(Waits(AtomicU32::new(0))));
        let fh = machine_on(host, 1, 1 << 15);
        let cpu = fh.on(CpuId::new(0));
        fh.map.blocks.leave_marked(0, true);
        for order in [0, 3, 7, 9, 11] {
            let request = Request::new(Order::new(order).unwrap(), Migratetype::Movable)
                .flags(AllocFlags::NO_LOCK);
            cpu.alloc(request).unwrap_err();
        }
        assert_eq!(host.0.load(Ordering::Relaxed), 0);
        fh.map.blocks.leave_marked(0, false);
        fh.validate().unwrap();
        let pfn = cpu
            .alloc(Request::new(Order::ZERO, Migratetype::Movable).flags(AllocFlags::NO_LOCK))
            .unwrap();
        cpu.free(pfn, Order::ZERO).unwrap();
        fh.validate().unwrap();
    }

    /// Others take what is in other sections, whoever is stopped in one.
    #[test]
    fn a_section_that_is_being_set_up_holds_up_nobody() {
        let fh = machine(1, 1 << 16);
        let cpu = fh.on(CpuId::new(0));
        fh.map.blocks.leave_marked(0, true);
        for order in [0, 3, 7, 9, 11] {
            let request = Request::new(Order::new(order).unwrap(), Migratetype::Movable);
            let pfn = cpu.alloc(request).unwrap();
            assert!(pfn.get() >= 1 << 15, "{pfn}");
            cpu.free(pfn, request.order).unwrap();
        }
        fh.map.blocks.leave_marked(0, false);
        fh.validate().unwrap();
    }
}
