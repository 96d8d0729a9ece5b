//! Looking at pageblocks one by one: who leases words of each, what it is meant for, how much of it is free.
//!
//! [`Freehold::zone_stats`] sums these up; a picture of memory needs them apart.

use crate::block::tag::{ABSENT, HOLES, ISOLATED, Tag, WHOLE};
use crate::block::words::count_of;
use crate::block::{FRAMES, WORDS};
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
    /// The pageblocks of a zone that have memory, by rising address; none where there is no such
    /// zone.
    ///
    /// Takes no lock; time proportional to the zone. Exact while nothing runs: the free frames add
    /// up to
    /// [`ZoneStats::free`](crate::ZoneStats::free).
    pub fn pageblocks(&self, zone: usize) -> impl Iterator<Item = PageblockState> + '_ {
        let numbers = self.zones.get(zone).map(|z| self.block_numbers(z));
        numbers.into_iter().flatten().filter_map(move |number| self.state_of_block(zone, number))
    }

    /// The pageblock that a frame lies in; `None` where there is no memory.
    ///
    /// Takes no lock. Exact while nothing runs.
    #[must_use]
    pub fn pageblock(&self, pfn: Pfn) -> Option<PageblockState> {
        let zone = self.zones.iter().position(|zone| zone.span.contains(pfn))?;
        self.state_of_block(zone, pfn.get() >> 9)
    }

    fn state_of_block(&self, zone: usize, number: u64) -> Option<PageblockState> {
        let z = &self.zones[zone];
        let found =
            self.map.locate_block(number).map(|index| (index, self.map.head(index).tag.get()));
        let (tag, free_frames, frames) = match found.filter(|(_, tag)| tag.state() != ABSENT) {
            Some((index, tag)) => {
                let frames =
                    if tag.has(HOLES) { count_of(&self.map.present(index)) } else { FRAMES as u32 };
                (tag, self.free_words(index, tag), frames)
            }
            None if z.bitmap.contains(number - z.first_block) => {
                let tag = Tag::new(WHOLE, Migratetype::Movable as usize, z.id);
                (tag, [!0; WORDS], FRAMES as u32)
            }
            None => return None,
        };
        if tag.zone() != zone {
            return None;
        }
        let migratetype = Migratetype::from_index(tag.migratetype()).filter(|_| !tag.has(ISOLATED));
        Some(PageblockState {
            start: Pfn::new(number << 9),
            holder: found.and_then(|(index, _)| self.lessee(index)),
            migratetype: migratetype.unwrap_or(Migratetype::Isolate),
            frames: frames as u16,
            free: count_of(&free_frames) as u16,
            free_frames,
        })
    }
}
