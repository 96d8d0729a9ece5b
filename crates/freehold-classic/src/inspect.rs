//! Looking at pageblocks one by one: who owns each, what it is meant for, how much of it is free.
//!
//! [`Classic::memory_map`] sums these up; a picture of memory needs them apart.

use freehold::{CpuId, Migratetype, Pfn};

use crate::Classic;
use crate::page::{Kind, PAGEBLOCK};

/// The state of one pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageblockState {
    /// Its first frame (of the block, which may be a hole).
    pub start: Pfn,
    /// The CPU that owns it; `None`: none, which is all there is before pcp-buddy.
    pub owner: Option<CpuId>,
    /// Its migratetype; [`Migratetype::Isolate`] while it is isolated.
    pub migratetype: Migratetype,
    /// Frames that exist, at most 512.
    pub frames: u16,
    /// Of these, frames free: on the zone's lists, on CPUs' lists, or left for somebody to collect.
    pub free: u16,
}

impl Classic {
    /// The pageblocks that have memory, by rising address.
    ///
    /// Looks at one record a chunk, without a lock. Exact when nobody else is using the allocator.
    #[must_use]
    pub fn pageblocks(&self) -> Vec<PageblockState> {
        let zone = &self.zone;
        let (first, last) = (zone.block_of(zone.start), zone.block_of(zone.end - 1));
        let mut blocks: Vec<PageblockState> = (first..=last)
            .map(|block| PageblockState {
                start: zone.frames.pfn(block * PAGEBLOCK),
                owner: zone.blocks.owner(block).map(|cpu| CpuId::new(cpu as u16)),
                migratetype: zone.blocks.migratetype(block),
                frames: 0,
                free: 0,
            })
            .collect();
        let mut at = zone.start;
        while at < zone.end {
            let state = zone.frames.state(at);
            let size = 1u32 << state.order();
            if !matches!(state.kind(), Kind::Hole | Kind::Tail) {
                // A chunk of the largest order covers more than one block.
                for part in (at..at + size).step_by(PAGEBLOCK as usize) {
                    let Some(block) = blocks.get_mut((zone.block_of(part) - first) as usize) else {
                        break;
                    };
                    let frames = size.min(PAGEBLOCK) as u16;
                    block.frames += frames;
                    block.free += if state.is_free() { frames } else { 0 };
                }
            }
            at += size;
        }
        blocks.retain(|block| block.frames > 0);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Design, Request};
    use freehold::Order;

    fn classic(design: &str) -> Classic {
        Classic::new(Config::single_zone(Design::parse(design).unwrap(), 2, 1 << 14)).unwrap()
    }

    #[test]
    fn blocks_add_up_to_the_map() {
        for design in ["5.17", "vanilla", "pcp-buddy-fixed"] {
            let classic = classic(design);
            for (cpu, order, migratetype) in [
                (0, 0, Migratetype::Movable),
                (1, 3, Migratetype::Unmovable),
                (1, 9, Migratetype::Movable),
            ] {
                let order = Order::new(order).unwrap();
                classic.alloc(CpuId::new(cpu), Request::new(order, migratetype)).unwrap();
            }
            let (blocks, map) = (classic.pageblocks(), classic.memory_map());
            assert_eq!(blocks.len(), 32, "{design}");
            assert_eq!(blocks.iter().map(|b| u64::from(b.frames)).sum::<u64>(), map.managed);
            assert_eq!(blocks.iter().map(|b| u64::from(b.free)).sum::<u64>(), map.free);
            let count = |fits: &dyn Fn(&PageblockState) -> bool| {
                blocks.iter().filter(|block| fits(block)).count() as u64
            };
            assert_eq!(count(&|b| b.free == 512), map.free_blocks);
            for (index, &owned) in map.blocks_by_owner.iter().enumerate() {
                let owner = index.checked_sub(1).map(|cpu| CpuId::new(cpu as u16));
                assert_eq!(count(&|b| b.owner == owner), owned, "{design} {owner:?}");
            }
            for (migratetype, &of_type) in Migratetype::ALL.iter().zip(&map.blocks_by_type) {
                assert_eq!(count(&|b| b.migratetype == *migratetype), of_type);
            }
        }
    }

    #[test]
    fn free_neighbours_are_a_run_on_the_lists_of_whichever_cpus_they_are() {
        let classic = classic("vanilla");
        let (cpu, order) = (CpuId::new(0), |order| Order::new(order).unwrap());
        let empty = classic.memory_map();
        assert_eq!(empty.runs, empty.chunks, "all of it is merged");
        // One frame out, and back onto its CPU's list, with others that the list was filled with.
        let pfn = classic.alloc(cpu, Request::new(order(0), Migratetype::Movable)).unwrap();
        let used = classic.memory_map();
        // A zone of 16,384 frames less one: one chunk of each order from 0 on is what its largest
        // chunk becomes.
        assert_eq!(used.runs, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 15]);
        assert!(used.chunks[0] > 1, "{:?}", used.chunks);
        let _ = classic.free(cpu, pfn, order(0)).unwrap();
        let freed = classic.memory_map();
        assert_eq!((freed.runs, freed.on_pcp > 0), (empty.runs, true));
        assert_ne!(freed.chunks, empty.chunks, "on the lists they are apart");
        let sum =
            |chunks: [u64; 11]| chunks.iter().enumerate().map(|(order, n)| n << order).sum::<u64>();
        assert_eq!((sum(freed.runs), sum(freed.chunks)), (freed.free, freed.free));
    }
}
