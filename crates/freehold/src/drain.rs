//! Giving blocks back to the zone: what is above the high mark, the emptiest first.
//!
//! Wholly free blocks go first, but one stays in hand against ping-pong; then, where the zone is short or the CPU has been
//! quiet for a while (a tick), those with the largest free runs. A partly used block keeps its *home*: the CPU whose frees and allocations it has seen gets it back first. Full blocks stay,
//! so that what is freed into them comes home without a lock.

use crate::block::{CLASS_WHOLE, FRAMES, NONE};
use crate::handle::CpuGuard;
use crate::holder::Holder;
use crate::percpu::Pcp;
use crate::primitive::{Count, Plain};
use crate::shelf::TYPES;
use crate::{CpuId, Freehold, Platform};

/// Blocks given back in one hold of the zone lock: at most 7 steps each.
const BATCH: usize = 8;
/// Holds in one drain; what is left then goes at the next free.
const HOLDS: usize = 4;
/// Blocks collected by one tick, from the CPU's inbox and from the zone's.
const TICK_BLOCKS: u32 = 256;
const TICK_HOLDS: u32 = 32;

/// What to do where somebody else has the zone lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Wait for it.
    Yes,
    /// Leave the rest for another time: a free may have interrupted whoever has the lock.
    No,
}

/// Which blocks to give back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Give {
    /// The emptiest, down to so many free frames; one wholly free block and the active ones stay.
    DownTo(u32),
    /// Wholly free ones, down to so many free frames; one stays.
    SpareWholes(u32),
    /// Wholly free ones only, all of them.
    Wholes,
    /// All with anything free.
    Free,
    /// All.
    All,
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// The CPU holds more free frames than its high mark.
    #[cold]
    #[inline(never)]
    pub(crate) fn drain_over_high(&self, guard: &CpuGuard<'_, 'm, P>, z: usize) {
        let pcp = self.pcp(guard.id.index(), z);
        pcp.ramp.set(1);
        // A quarter below the mark, so that the next few frees do not come here again.
        let target = pcp.high.get() - pcp.high.get() / 4;
        // Partly free blocks are of little use to others while the zone has plenty, and every free into them would need
        // an atomic once they are gone: measured, a random free of everything costs a quarter if they stay.
        let zone = &self.zones[z];
        let pressed = zone.free.get() <= zone.high.get();
        let give = if pressed { Give::DownTo(target) } else { Give::SpareWholes(target) };
        self.give_back(guard, z, give, Wait::No);
        if pcp.count() > pcp.high.get() {
            // What is left stays, be it that there is nothing to spare or that somebody had the zone lock: come back after
            // another block's worth.
            pcp.high.set(pcp.count() + FRAMES as u32);
        }
    }

    /// Gives blocks of one zone back. At most 32 blocks, but for `Free` and `All`, which go to the end.
    pub(crate) fn give_back(&self, guard: &CpuGuard<'_, 'm, P>, z: usize, give: Give, wait: Wait) -> u32 {
        let zone = &self.zones[z];
        let pcp = self.pcp(guard.id.index(), z);
        let blocks = self.map.blocks;
        let mut given = 0;
        let mut holds = 0;
        while holds < HOLDS || matches!(give, Give::Free | Give::All | Give::Wholes) {
            holds += 1;
            let mut batch = [NONE; BATCH];
            let mut len = 0;
            let mut frames = 0;
            while len < BATCH {
                let Some(index) = self.pick(pcp, give) else { break };
                let block = &blocks[index as usize];
                pcp.remove(blocks, index);
                if block.is_queued() {
                    // Still the holder: bring home what others have freed, so that the zone gets all of it.
                    self.absorb_in_hand(guard, index);
                }
                // Counted before the zone lock is taken.
                block.count.set(block.popcount() as u16);
                block.home.set(Holder::cpu(guard.id).raw());
                frames += u64::from(block.count.get());
                batch[len] = index;
                len += 1;
            }
            if len == 0 {
                break;
            }
            let classes = batch.map(|index| if index == NONE { 0 } else { blocks[index as usize].exact_class() });
            let lock = match wait {
                Wait::Yes => Some(self.lock_zone(zone)),
                Wait::No => zone.try_lock(&self.map),
            };
            let Some(lock) = lock else {
                batch.iter().take(len).for_each(|&index| pcp.insert(blocks, index));
                break;
            };
            for (&index, &class) in batch.iter().zip(&classes).take(len) {
                lock.place(index, class);
            }
            drop(lock);
            guard.state.counters.drains.add(1);
            guard.state.counters.drained_frames.add(frames);
            given += len as u32;
            if len < BATCH {
                break;
            }
        }
        given
    }

    /// The next block to give back.
    fn pick(&self, pcp: &Pcp, give: Give) -> Option<u32> {
        let blocks = self.map.blocks;
        match give {
            Give::All => return pcp.any(),
            Give::Wholes => {
                return pcp.find_whole(blocks).or_else(|| {
                    let cma = pcp.shelf.first(crate::percpu::CMA as usize, CLASS_WHOLE)?;
                    blocks[cma as usize].is_whole().then_some(cma)
                });
            }
            Give::Free => {
                for migratetype in 0..TYPES {
                    let active = pcp.active[migratetype].block.get();
                    if active != NONE && blocks[active as usize].has_free() {
                        return Some(active);
                    }
                    while let Some(class) = pcp.shelf.largest(migratetype, 1) {
                        let index = pcp.shelf.first(migratetype, class)?;
                        if blocks[index as usize].has_free() {
                            return Some(index);
                        }
                        pcp.shelf.unlink(blocks, index);
                        pcp.shelf.link(blocks, index, 0);
                    }
                }
                return None;
            }
            Give::DownTo(target) | Give::SpareWholes(target) => {
                if pcp.count() <= target {
                    return None;
                }
            }
        }
        let least = if matches!(give, Give::SpareWholes(_)) { CLASS_WHOLE } else { 1 };
        if least == 1 {
            (0..TYPES).for_each(|migratetype| while pcp.classify(blocks, migratetype, 64) {});
        }
        // One whole block stays: the second one found may go.
        let mut first_whole = None;
        for class in (least..=CLASS_WHOLE).rev() {
            for migratetype in 0..TYPES {
                while let Some(index) = pcp.shelf.first(migratetype, class) {
                    let block = &blocks[index as usize];
                    let exact = block.exact_class();
                    if exact != class {
                        pcp.shelf.unlink(blocks, index);
                        pcp.shelf.link(blocks, index, exact);
                        continue;
                    }
                    if class < CLASS_WHOLE {
                        return Some(index);
                    }
                    // A second whole one: on this list behind the first, or on another type's.
                    let next = block.next.get();
                    if first_whole.is_some() {
                        return Some(index);
                    }
                    if next != NONE && blocks[next as usize].is_whole() {
                        return Some(next);
                    }
                    first_whole = Some(index);
                    break;
                }
            }
        }
        None
    }

    /// The periodic work of one CPU; see [`On::tick`](crate::On::tick).
    pub(crate) fn tick(&self, guard: &CpuGuard<'_, 'm, P>) {
        self.flush_combining(guard);
        self.collect_some(guard, TICK_BLOCKS);
        for (z, zone) in self.zones.iter().enumerate() {
            let pcp = self.pcp(guard.id.index(), z);
            pcp.ramp.set(1);
            let (high, least) = (pcp.high.get(), pcp.high_min.get());
            if high > least {
                pcp.high.set((high - high / 8).max(least));
            }
            if pcp.count() > pcp.high.get() {
                self.give_back(guard, z, Give::DownTo(pcp.high.get()), Wait::Yes);
            }
            for _ in 0..TICK_HOLDS {
                if zone.inbox.is_empty() {
                    break;
                }
                let lock = self.lock_zone(zone);
                lock.collect(self, 1, |pfn| self.late_double_free(pfn));
            }
        }
    }

    /// Collects all that others freed into the zone's own blocks, one block a hold.
    pub(crate) fn collect_zone(&self, z: usize) {
        let zone = &self.zones[z];
        while !zone.inbox.is_empty() {
            let lock = self.lock_zone(zone);
            lock.collect(self, 1, |pfn| self.late_double_free(pfn));
        }
    }

    /// Gives all that CPUs hold free back to the zones, and merges what was freed remotely.
    ///
    /// Each CPU's state is entered in turn; blocks without a free frame stay where they are. Takes time proportional
    /// to the blocks held.
    pub fn drain_all(&self) {
        self.bring_home();
        for cpu in 0..self.cpus.len() {
            self.with_cpu(CpuId::new(cpu as u16), |guard| {
                while self.collect_some(guard, TICK_BLOCKS) {}
                for z in 0..self.zones.len() {
                    self.give_back(guard, z, Give::Free, Wait::Yes);
                }
            });
        }
        for z in 0..self.zones.len() {
            self.collect_zone(z);
        }
        self.tell_pressure();
    }

    /// Runs `f` inside that CPU's state, entered as an intruder.
    pub(crate) fn with_cpu<T>(&self, cpu: CpuId, f: impl FnOnce(&CpuGuard<'_, 'm, P>) -> T) -> T {
        let state = &self.cpus[cpu.index()];
        let guard = CpuGuard::enter(self, state, cpu, false);
        f(&guard)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use crate::{Config, CpuId, FrameRange, Freehold, Migratetype, Order, Pfn, Platform, Request, ZoneConfig};

    /// A machine on which waiting for anything is a failure.
    struct NeverWaits;

    impl Platform for NeverWaits {
        fn relax(&self) {
            panic!("waited for a lock");
        }
    }

    #[test]
    fn a_free_above_the_high_mark_does_not_wait_for_the_zone_lock() {
        let memory = [FrameRange::new(Pfn::new(512), 512 * 512).unwrap()];
        let zones = [ZoneConfig::new(&memory)];
        let fh = Freehold::leaked(&Config::new(2, &zones), NeverWaits).unwrap();
        let block = Request::new(Order::PAGEBLOCK, Migratetype::Movable);
        let here = fh.on(CpuId::new(0));
        let taken: std::vec::Vec<Pfn> = (0..500).map(|_| here.alloc(block).unwrap()).collect();
        // As code does that such a free interrupts.
        let held = fh.zones[0].try_lock(&fh.map).unwrap();
        let (last, rest) = taken.split_last().unwrap();
        for &pfn in rest {
            here.free(pfn, Order::PAGEBLOCK).unwrap();
        }
        let pcp = fh.pcp(0, 0);
        assert!(pcp.count() > 400 * 512, "all of it stays in hand: {}", pcp.count());
        drop(held);
        fh.validate().unwrap();
        let drains = fh.cpu_stats(CpuId::new(0)).unwrap().drains;
        for _ in 0..4 {
            here.free(*last, Order::PAGEBLOCK).unwrap();
            assert_eq!(here.alloc(block).unwrap(), *last, "the one freed last is taken again");
        }
        here.free(*last, Order::PAGEBLOCK).unwrap();
        here.tick().unwrap();
        assert!(fh.cpu_stats(CpuId::new(0)).unwrap().drains > drains, "what stayed goes back later");
        fh.validate().unwrap();
    }
}
