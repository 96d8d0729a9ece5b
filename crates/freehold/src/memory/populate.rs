//! Memory becomes the zone's.
//!
//! Whole blocks are bits in the zone's bitmap, and nothing else is written: their metadata is set
//! up when the first of their section is used. Blocks with holes and CMA blocks are set up at once.

use crate::block::map::FrameMap;
use crate::block::map::MemoryRange;
use crate::block::tag::{ABSENT, CMA, HOLES, SPLIT, TAKEN, Tag};
use crate::block::words::CLASS_WHOLE;
use crate::block::{FRAMES, SECTION_BLOCKS, SECTION_SHIFT, WORDS, bits, sections_of};
use crate::memory::hotplug::Hotplug;
use crate::platform::PlatformExt;
use crate::primitive::{Count, Ordering, Relaxed};
use crate::zone::Zone;
use crate::zone::allowance::ORDINARY;
use crate::{FrameRange, Freehold, HotplugError, Migratetype, Pfn, Platform};

impl<'m, P: Platform> Hotplug<'_, 'm, P> {
    /// Makes a piece of memory free and the zone's. It must not be present yet. `at_start`: nobody
    /// else knows this allocator yet.
    ///
    /// # Errors
    ///
    /// [`HotplugError::NoRoom`] where a section or a range slot is missing, [`HotplugError::Busy`]
    /// where somebody is stopped while setting up a section of which only a part comes; nothing has
    /// changed then.
    pub(crate) fn populate(
        &self,
        zone: &'m Zone<'m>,
        range: FrameRange,
        cma: &[FrameRange],
        at_start: bool,
    ) -> Result<(), HotplugError> {
        let (first, last) = (range.start.get() >> 9, (range.end.get() - 1) >> 9);
        // At the start the configuration was counted through: there is room for all of it.
        let has_room = at_start || self.fh.map.has_room_for(first, last);
        self.note_piece(zone, range, has_room, || self.ends_are_set_up(range))?;
        let mut number = first;
        while number <= last {
            let base = number << 9;
            let whole = range.start.get() <= base && base + FRAMES as u64 <= range.end.get();
            let is_cma = cma.iter().any(|r| r.contains(Pfn::new(base)));
            if whole && !is_cma {
                // As many as there are in a row.
                let next_cma =
                    cma.iter().map(|r| r.start.get() >> 9).filter(|&at| at > number).min();
                let end = (range.end.get() >> 9).min(next_cma.unwrap_or(u64::MAX));
                zone.populate_wholes(self.fh, number, end);
                number = end;
                continue;
            }
            let start = range.start.get().max(base);
            let end = range.end.get().min(base + FRAMES as u64);
            zone.populate_block(
                self.fh,
                number,
                ((start - base) as usize, (end - start) as usize),
                is_cma,
            );
            number += 1;
        }
        Ok(())
    }

    /// Notes a piece of memory that is to be the zone's, and sets up what has to be at once.
    ///
    /// # Errors
    ///
    /// As for [`populate`](Self::populate).
    fn note_piece(
        &self,
        zone: &'m Zone<'m>,
        range: FrameRange,
        has_room: bool,
        set_up: impl FnOnce() -> bool,
    ) -> Result<(), HotplugError> {
        if !has_room || !self.fh.map.note_range(zone, range) {
            return Err(HotplugError::NoRoom);
        }
        if !set_up() {
            self.fh.map.change_ranges(|| self.fh.map.forget_range(range));
            return Err(HotplugError::Busy { pfn: range.start });
        }
        Ok(())
    }

    /// Makes whole blocks the zone's, each of them in use. They must not be present yet.
    ///
    /// # Errors
    ///
    /// As for [`populate`](Self::populate).
    pub(crate) fn populate_in_use(
        &self,
        zone: &'m Zone<'m>,
        range: FrameRange,
    ) -> Result<(), HotplugError> {
        let blocks = || range.start.get() >> 9..range.end.get() >> 9;
        let (first, last) = (blocks().start, blocks().end - 1);
        let is_set_up = |number: u64| self.fh.map.set_up(number << 9, || self.fh.platform.waited());
        let has_room = self.fh.map.has_room_for(first, last);
        self.note_piece(zone, range, has_room, || blocks().all(is_set_up))?;
        for block in blocks().filter_map(|number| self.fh.map.locate_block(number)) {
            // Frees of memory that went while they were under way.
            block.report_strays(self.fh);
            let tag = Tag::new(TAKEN, Migratetype::Movable as usize, zone.id);
            block.head.tag.set(tag);
        }
        zone.managed.set(zone.managed.get() + range.len());
        Ok(())
    }

    /// Sets up the blocks of which a piece of memory has only a part; `false` where somebody else
    /// is stopped at their sections.
    fn ends_are_set_up(&self, range: FrameRange) -> bool {
        let ends = [range.start, range.end].map(Pfn::get);
        let mut parts = ends.into_iter().filter(|end| end % FRAMES as u64 != 0);
        parts.all(|pfn| self.fh.map.set_up(pfn, || self.fh.platform.waited()))
    }
}

impl<'m> FrameMap<'m> {
    /// Whether there is room for the sections of these blocks, set up now or when they are used.
    fn has_room_for(&self, first: u64, last: u64) -> bool {
        let has_room =
            |s: u64| self.has_memory(s) || self.locate_block(s * SECTION_BLOCKS).is_some();
        let sections = (first / SECTION_BLOCKS)..=(last / SECTION_BLOCKS);
        let missing = sections.filter(|&s| !has_room(s)).count() as u64;
        self.planned_sections() + missing <= u64::from(self.blocks.room())
    }

    /// Sections that have memory, set up or not.
    fn planned_sections(&self) -> u64 {
        let pieces = self.ranges.iter().filter(|range| !range.is_spent());
        let planned = sections_of(pieces.map(|range| FrameRange {
            start: Pfn::new(range.start.get()),
            end: Pfn::new(range.end.get()),
        }));
        // A section keeps its metadata when its memory goes.
        let orphans =
            self.blocks.sections().filter(|first| !self.has_memory(first.base() >> SECTION_SHIFT));
        planned + orphans.count() as u64
    }

    /// Whether a section has memory.
    fn has_memory(&self, section: u64) -> bool {
        let next = self.next_present(section << SECTION_SHIFT);
        next.is_some_and(|pfn| pfn >> SECTION_SHIFT == section)
    }

    /// Notes where memory is. A piece that continues another one needs no entry of its own.
    fn note_range(&self, zone: &Zone<'m>, range: FrameRange) -> bool {
        let used = |r: &&MemoryRange| !r.is_spent() && zone.span.contains(Pfn::new(r.start.get()));
        let below = self.ranges.iter().filter(used).find(|r| r.end.get() == range.start.get());
        let above = self.ranges.iter().filter(used).find(|r| r.start.get() == range.end.get());
        let spent = self.ranges.iter().find(|r| r.is_spent());
        let Some(entry) = below.or(above).or(spent) else { return false };
        let start = below.map_or(range.start.get(), |r| r.start.get());
        let end = above.map_or(range.end.get(), |r| r.end.get());
        self.change_ranges(|| {
            entry.set(start, end);
            if let (Some(_), Some(above)) = (below, above) {
                above.spend();
            }
        });
        true
    }
}

impl<'m> Zone<'m> {
    /// Whole blocks: bits of the bitmap.
    fn populate_wholes(&'m self, fh: &Freehold<'m, impl Platform>, first: u64, end: u64) {
        let (from, to) = (first - self.first_block, end - self.first_block);
        self.managed.set(self.managed.get() + (to - from) * FRAMES as u64);
        // Where their metadata is set up, who takes a block has it say that there is memory again.
        self.add_free(ORDINARY, (to - from) * FRAMES as u64);
        self.bitmap.insert_range(from, to);
        // SeqCst: see `Zone::insert_whole`.
        self.whole_blocks.0.fetch_add(to - from, Ordering::SeqCst);
        fh.watch.came(CLASS_WHOLE);
    }

    /// One block of which only some frames exist, or a CMA block.
    fn populate_block(
        &'m self,
        fh: &Freehold<'m, impl Platform>,
        number: u64,
        span: (usize, usize),
        is_cma: bool,
    ) {
        fh.map.set_up(number << 9, || fh.platform.waited());
        let Some(block) = fh.map.locate_block(number) else { return };
        let migratetype = if is_cma { CMA } else { Migratetype::Movable as usize };
        let head = block.head;
        let mut tag = head.tag.get();
        if tag.state() == ABSENT {
            tag = Tag::new(SPLIT, migratetype, self.id);
            self.cma_blocks.add(u64::from(is_cma));
            // Frees of memory that went while they were under way.
            block.report_strays(fh);
        }
        // Two pieces of memory meet here: it is isolated, or nobody knows this allocator yet.
        debug_assert!(tag.state() == SPLIT);
        // The words before the tag, which says that they tell: a wrong free in between would count,
        // and its frame could be handed out twice.
        for (w, m) in bits::spans(span.0, span.1) {
            let (_, strays) = block.line.put_back(w, m);
            block.report_late(fh, w, strays);
            block.count_free(fh.outside(), tag, u64::from((m & !strays).count_ones()));
        }
        self.managed.set(self.managed.get() + span.1 as u64);
        let holes = fh.map.present_of_ranges(block.base()) != [!0; WORDS];
        head.tag.set(tag.with_flag(HOLES, holes));
        block.publish(fh.outside());
        block.raise(fh.outside());
    }
}
