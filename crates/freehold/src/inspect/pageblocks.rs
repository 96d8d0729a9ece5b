//! Looking at pageblocks one by one: who leases words of each, its type, how much of it is free.
//!
//! [`Freehold::zone_blocks`] sums these up; a picture of memory needs them apart.

use crate::block::Block;
use crate::block::tag::{HOLES, ISOLATED};
use crate::block::words::count_of;
use crate::block::{FRAMES, WORDS};
use crate::zone::Zone;
use crate::{CpuId, Freehold, Migratetype, Pfn, Platform};

/// The state of one pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageblockState {
    /// Its first frame (of the block, which may be a hole).
    pub start: Pfn,
    /// The first CPU that leases words of it; `None` where there is none.
    pub holder: Option<CpuId>,
    /// Its migratetype; [`Migratetype::Isolate`] while it is isolated.
    pub migratetype: Migratetype,
    /// Frames that exist, at most 512.
    pub frames: u16,
    /// Of these, frames free, wherever they are.
    pub free: u16,
    /// Which these are: bit 0 of the first word is the block's first frame.
    pub free_frames: [u64; WORDS],
}

impl<P: Platform> Freehold<'_, P> {
    /// A zone's pageblocks that have memory, by rising address; none where there is no such zone.
    ///
    /// Takes no lock; time proportional to the zone. Exact while nothing runs: the free frames add
    /// up to [`ZoneStats::free`](crate::ZoneStats::free).
    pub fn pageblocks(&self, zone: usize) -> impl Iterator<Item = PageblockState> + '_ {
        let zone = self.zones.get(zone);
        let states = zone.map(|zone| {
            zone.block_numbers(self).filter_map(|number| zone.state_of_block(self, number))
        });
        states.into_iter().flatten()
    }

    /// The pageblock that a frame lies in; `None` where there is no memory.
    ///
    /// Takes no lock. Exact while nothing runs.
    #[must_use]
    pub fn pageblock(&self, pfn: Pfn) -> Option<PageblockState> {
        let zone = self.zones.iter().find(|zone| zone.span.contains(pfn))?;
        zone.state_of_block(self, pfn.get() >> 9)
    }
}

impl<'m> Zone<'m> {
    fn state_of_block(
        &self,
        fh: &Freehold<'m, impl Platform>,
        number: u64,
    ) -> Option<PageblockState> {
        let (block, tag, free_frames) = self.look_at(fh, number)?;
        let frames = match block {
            Some(block) if tag.has(HOLES) => count_of(&fh.map.present(block)),
            _ => FRAMES as u32,
        };
        let migratetype = Migratetype::from_index(tag.migratetype()).filter(|_| !tag.has(ISOLATED));
        Some(PageblockState {
            start: Pfn::new(number << 9),
            holder: block.and_then(Block::lessee),
            migratetype: migratetype.unwrap_or(Migratetype::Isolate),
            frames: frames as u16,
            free: count_of(&free_frames) as u16,
            free_frames,
        })
    }
}
