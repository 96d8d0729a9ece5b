//! Memory becomes the zone's; and what follows from how much there is, and how many CPUs: watermarks,
//! home zones, how many words a CPU may lease. Changed only with the hotplug lock.
//!
//! Whole blocks are bits in the zone's bitmap, and nothing else is written: their metadata is set
//! up when the first of their section is used. Blocks with holes and CMA blocks are set up at once.

use crate::alloc::watch::ANY;
use crate::block::words::CLASS_WHOLE;
use crate::block::{
    ABSENT, CMA, FRAMES, FrameMap, HOLES, MOVABLE, MemoryRange, SECTION_BLOCKS, SECTION_SHIFT,
    SPLIT, TAKEN, Tag, WORDS, bits, sections_of,
};
use crate::cpu::{CpuState, Inside};
use crate::memory::hotplug::Hotplug;
use crate::platform::PlatformExt;
use crate::primitive::{Count, Ordering, Relaxed, full_fence};
use crate::zone::Zone;
use crate::zone::allowance::ORDINARY;
use crate::zone::supply::kernel_watermarks;
use crate::{FrameRange, Freehold, HotplugError, Pfn, Platform};

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
            let tag = Tag::new(TAKEN, MOVABLE, zone.id);
            block.tag.set(tag);
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
        let migratetype = if is_cma { CMA } else { MOVABLE };
        let mut tag = block.tag.get();
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
            fh.outside().count_free(tag, u64::from((m & !strays).count_ones()));
        }
        self.managed.set(self.managed.get() + span.1 as u64);
        let holes = fh.map.present_of_ranges(block.base()) != [!0; WORDS];
        block.tag.set(tag.with_flag(HOLES, holes));
        fh.outside().publish(block);
        fh.outside().raise(block);
    }
}

impl<P: Platform> Hotplug<'_, '_, P> {
    /// The amount of memory has changed.
    pub(crate) fn memory_changed(&self) {
        self.refresh_watermarks();
        self.choose_home_zones();
        self.compute_limits();
    }

    /// Computes watermarks by the kernel's formulae again, after the amount of memory has changed.
    fn refresh_watermarks(&self) {
        let total: u64 = self.fh.zones.iter().map(|z| z.managed.get()).sum();
        for zone in self.fh.zones.iter().filter(|z| z.kernel_marks.get()) {
            zone.set_marks(kernel_watermarks(zone.managed.get(), total));
        }
        // They may be lower than before: the marks before the look at who watches.
        full_fence();
        self.fh.watch.came(ANY);
    }

    /// Each CPU's home is the first zone of its list that has memory. After memory has come or
    /// gone; what a CPU has of its old home goes back.
    fn choose_home_zones(&self) {
        for (number, cpu) in self.fh.cpus.iter().enumerate() {
            let zones = || self.fh.zonelists.of(number, None).map(|z| &self.fh.zones[z]);
            let Some(zone) = zones().find(|zone| zone.managed.get() != 0).or(zones().next()) else {
                continue;
            };
            if cpu.home_zone.get() != u32::from(zone.id) {
                let inside = Inside::enter(self.fh, cpu, false);
                // What it has counted is told as well: it counts another zone from now on.
                inside.give_back_all();
                cpu.home_zone.set(u32::from(zone.id));
                cpu.home_split.set(Tag::ordinary_in(zone.id));
            }
        }
    }

    /// What follows from how much memory and how many CPUs there are: how many words each CPU may
    /// lease, how exactly frames are counted, which blocks are spared. All leases together have at
    /// most 1 % of the frames; CPUs whose part of that is less than a word share what there is. A
    /// leased word keeps its block from becoming whole. So where less than half of memory is free,
    /// leases are in at most 1 % of the blocks, or each CPU has two: with one it would change it
    /// between requests of two types or orders.
    pub(crate) fn compute_limits(&self) {
        let cpus = || self.fh.cpus.iter().filter(|cpu| cpu.online.get());
        let online = cpus().count().max(1) as u64;
        for zone in self.fh.zones {
            let at_home = |cpu: &&CpuState<'_>| cpu.home_zone.get() == u32::from(zone.id);
            let cpus = cpus().filter(at_home).count().max(1) as u64;
            let words = zone.managed.get().div_ceil(64 * 100);
            let (most, few) = (words / cpus, (zone.blocks() / 100 / cpus).max(2));
            for cpu in self.fh.cpus.iter().filter(at_home) {
                // Relaxed: read by its CPU at its next lease.
                cpu.leases.set_limits(most, few);
            }
            zone.words.set_most(words);
            // A CPU has up to seven blocks in use: for single frames and for runs, of three types,
            // and the one that it cuts runs of any length from.
            zone.spread.set(zone.blocks() / online >= 128);
            // All CPUs' allowances together are about 1/64 of the zone at most, where that is not
            // less than a few frames each.
            let fold =
                (zone.managed.get() / (64 * self.fh.cpus.len() as u64)).clamp(8, FRAMES as u64);
            zone.fold.set(fold);
            zone.shares.set(2 * online);
            zone.set_modes();
            zone.update_mode();
        }
    }
}
