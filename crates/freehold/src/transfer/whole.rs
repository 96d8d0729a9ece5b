//! Whole blocks come out of the zone's bitmap, which knows of them before their metadata is there.

use crate::block::layout::Index;
use crate::group::lists::{IN_BITMAP, NO_LIST};
use crate::primitive::Plain;
use crate::transfer::held::Held;
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Platform};

impl<P: Platform> Freehold<'_, P> {
    /// One turn of a wait.
    pub(crate) fn waited(&self) -> bool {
        self.platform.relax();
        true
    }

    /// Sets up the section of the whole block that will probably be taken next, so that it is not
    /// done under the lock.
    pub(crate) fn prepare_whole(&self, zone: &Zone<'_>, flags: AllocFlags) {
        if flags.contains(AllocFlags::NO_LOCK) {
            return;
        }
        if let (Some(bit), _) = zone.bitmap.next(0) {
            let number = zone.first_block + bit;
            if self.map.locate_block(number).is_none() {
                self.map.set_up(number << 9, || self.waited());
            }
        }
    }
}

impl<P: Platform> Held<'_, '_, P> {
    /// Takes a whole block out of the zone's bitmap, for a group to have or to be taken; its tag
    /// says that the zone has it.
    ///
    /// The lowest, so that high memory stays in one piece. Requests that cannot be moved away later
    /// look at those 1 GiB regions first that have such blocks already, so that the others can be
    /// had as one.
    pub(crate) fn take_whole(&self, migratetype: usize) -> Option<Index> {
        let confined = migratetype != crate::Migratetype::Movable as usize;
        if confined && self.zone.by_region.get() {
            let regions = self.zone.tainted.iter().enumerate().filter(|(_, n)| n.get() != 0);
            for (region, _) in regions {
                let (bit, steps) = self.zone.bitmap.next(region as u64 * 512);
                self.step(steps);
                if let Some(bit) = bit.filter(|bit| bit / 512 == region as u64) {
                    return self.take_whole_at(bit);
                }
            }
        }
        let (bit, steps) = self.zone.bitmap.next(0);
        self.step(steps);
        self.take_whole_at(bit?)
    }

    /// Takes the whole block of that bit.
    pub(crate) fn take_whole_at(&self, bit: u64) -> Option<Index> {
        let index = self.set_up(bit)?;
        self.unlist(index);
        Some(index)
    }

    /// Makes sure that the metadata of a block in the bitmap is there. `None` only where this may
    /// not wait and had to.
    pub(crate) fn set_up(&self, bit: u64) -> Option<Index> {
        let number = self.zone.first_block + bit;
        let map = &self.fh.map;
        if map.locate_block(number).is_none() {
            map.set_up(number << 9, || self.waits && self.fh.waited());
            self.step(16);
        }
        let index = map.locate_block(number)?;
        self.zone.make_present(map.head(index));
        if map.links(index).list.get() == NO_LIST {
            map.links(index).list.set(IN_BITMAP);
        }
        Some(index)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::testing::machine;
    use crate::{AllocFlags, CpuId, Migratetype, Order, Request};

    /// A request with NO_LOCK may have interrupted whoever sets a section up: it comes back, and
    /// takes nothing.
    #[test]
    fn who_may_not_wait_does_not_wait_for_a_section() {
        let fh = machine(1, 1 << 18);
        let cpu = fh.on(CpuId::new(0));
        fh.map.setting_up.store(true, crate::primitive::Ordering::Relaxed);
        for order in [0, 3, 7, 9, 11] {
            let request = Request::new(Order::new(order).unwrap(), Migratetype::Movable)
                .flags(AllocFlags::NO_LOCK);
            cpu.alloc(request).unwrap_err();
        }
        fh.map.setting_up.store(false, crate::primitive::Ordering::Relaxed);
        fh.validate().unwrap();
        let pfn = cpu
            .alloc(Request::new(Order::ZERO, Migratetype::Movable).flags(AllocFlags::NO_LOCK))
            .unwrap();
        cpu.free(pfn, Order::ZERO).unwrap();
        fh.validate().unwrap();
    }
}
