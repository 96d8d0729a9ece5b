//! Looking at pageblocks one by one: who leases words of each, its type, how much of it is free.
//!
//! [`Freehold::zone_blocks`] sums these up; a picture of memory needs them apart.

use crate::block::tag::{ABSENT, HOLES, ISOLATED, Tag, WHOLE};
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
        let found = fh.map.locate_block(number).map(|block| (block, block.head.tag.get()));
        let (tag, free_frames, frames) = match found.filter(|(_, tag)| tag.state() != ABSENT) {
            Some((block, tag)) => {
                let frames =
                    if tag.has(HOLES) { count_of(&fh.map.present(block)) } else { FRAMES as u32 };
                (tag, block.free_words(fh, tag), frames)
            }
            None if self.bitmap.contains(number - self.first_block) => {
                let tag = Tag::new(WHOLE, Migratetype::Movable as usize, self.id);
                (tag, [!0; WORDS], FRAMES as u32)
            }
            None => return None,
        };
        if tag.zone() != usize::from(self.id) {
            return None;
        }
        let migratetype = Migratetype::from_index(tag.migratetype()).filter(|_| !tag.has(ISOLATED));
        Some(PageblockState {
            start: Pfn::new(number << 9),
            holder: found.and_then(|(block, _)| block.lessee()),
            migratetype: migratetype.unwrap_or(Migratetype::Isolate),
            frames: frames as u16,
            free: count_of(&free_frames) as u16,
            free_frames,
        })
    }
}
