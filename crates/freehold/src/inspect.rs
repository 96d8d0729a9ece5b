//! Looking at pageblocks one by one: who has each, what it is meant for, how much of it is free.
//!
//! [`Freehold::zone_stats`] sums these up; a picture of memory needs them apart.

use crate::block::{FLAG_HOLES, FLAG_ISOLATED, FRAMES, WORDS};
use crate::holder::Holder;
use crate::map::{SECTION_BLOCKS, SECTION_SHIFT};
use crate::percpu::COMBINE;
use crate::primitive::Plain;
use crate::{CpuId, Freehold, Migratetype, Pfn, Platform};

/// The state of one pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageblockState {
    /// Its first frame (of the block, which may be a hole).
    pub start: Pfn,
    /// The CPU that has it; `None`: the zone.
    pub holder: Option<CpuId>,
    /// Its migratetype; [`Migratetype::Isolate`] while it is isolated.
    pub migratetype: Migratetype,
    /// Frames that exist, at most 512.
    pub frames: u16,
    /// Of these, frames free: in the holder's hand, or freed by others and not collected yet.
    pub free: u16,
}

impl<P: Platform> Freehold<'_, P> {
    /// The pageblocks of a zone that have memory, by rising address; none where there is no such zone.
    ///
    /// Takes no lock; time proportional to the zone, 17 words a block and one for each CPU. Exact while nothing runs:
    /// the free frames add up to [`ZoneStats::free`](crate::ZoneStats::free).
    pub fn pageblocks(&self, zone: usize) -> impl Iterator<Item = PageblockState> + '_ {
        let sections = self.zones.get(zone).map(|z| {
            let (first, last) = (z.span.start.get() >> SECTION_SHIFT, (z.span.end.get() - 1) >> SECTION_SHIFT);
            first..=last
        });
        let numbers = sections.into_iter().flatten().flat_map(|s| s * SECTION_BLOCKS..(s + 1) * SECTION_BLOCKS);
        numbers.filter_map(move |number| {
            let block = &self.map.blocks[self.map.locate_block(number)? as usize];
            let holder = block.holder();
            if usize::from(block.zone()) != zone || holder == Holder::NOBODY {
                return None;
            }
            let free: u32 = (0..WORDS)
                .map(|w| {
                    let free = self.free_or_held(block, w) | block.remote_word(w);
                    (free | self.combined(block.base() / 64 + w as u64)).count_ones()
                })
                .sum();
            let frames: u32 = if block.has_flag(FLAG_HOLES) {
                self.map.present_of_ranges(block).iter().map(|word| word.count_ones()).sum()
            } else {
                FRAMES as u32
            };
            let isolated = block.has_flag(FLAG_ISOLATED);
            let migratetype = Migratetype::from_index(usize::from(block.migratetype())).filter(|_| !isolated);
            Some(PageblockState {
                start: Pfn::new(block.base()),
                holder: holder.as_cpu(),
                migratetype: migratetype.unwrap_or(Migratetype::Isolate),
                frames: frames as u16,
                free: free as u16,
            })
        })
    }

    /// Frames of word number `key` (PFN divided by 64) that CPUs have freed and not written to the block yet.
    fn combined(&self, key: u64) -> u64 {
        let busy = self.cpus.iter().filter(|cpu| cpu.combining.get() != 0);
        let entries = busy.map(|cpu| &cpu.combine[key as usize % COMBINE]);
        entries.filter(|entry| entry.key.get() == key).fold(0, |free, entry| free | entry.mask.get())
    }
}
