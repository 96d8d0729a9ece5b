//! CPUs and memory that come and go while everything runs.

use core::fmt;

use crate::block::{ABSENT, Block, FRAMES, FrameMap, HIGH_ATOMIC, MemoryRange, Tag};
use crate::cpu::Inside;
use crate::cpu::recall::Recall;
use crate::memory::isolate::{Isolated, blocks_of, zone_spanning};
use crate::primitive::{Count, Ordering, Relaxed};
use crate::zone::Zone;
use crate::zone::moving::Movers;
use crate::{AllocError, FrameRange, Freehold, On, Pfn, Platform};

/// Why memory was not added or removed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HotplugError {
    /// A range of no frames.
    ZeroLength,
    /// No zone's span covers the range.
    OutOfZone {
        /// The first frame outside.
        pfn: Pfn,
    },
    /// Some of the frames to add are there already.
    Present {
        /// The first of them.
        pfn: Pfn,
    },
    /// Some of the frames to remove are not there.
    Absent {
        /// The first of them.
        pfn: Pfn,
    },
    /// Memory is removed by whole pageblocks, and so is memory added that is in use: the range must
    /// start and end at one, or, where memory goes, at the end of a piece of memory.
    Misaligned {
        /// The end of the range that does not.
        pfn: Pfn,
    },
    /// A frame is in use, or somebody else is isolating its block or on the way with frames: when
    /// memory goes, or comes beside other memory of the same pageblock. Or somebody is just writing
    /// the metadata of a pageblock of which only a part comes.
    Busy {
        /// The first such frame.
        pfn: Pfn,
    },
    /// The configuration left no room for another section or another piece of memory.
    NoRoom,
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLength => f.write_str("a range of no frames"),
            Self::OutOfZone { pfn } => write!(f, "no zone's span covers {pfn}"),
            Self::Present { pfn } => write!(f, "{pfn} is there already"),
            Self::Absent { pfn } => write!(f, "{pfn} is not there"),
            Self::Misaligned { pfn } => {
                write!(f, "memory goes, or comes in use, by whole pageblocks; {pfn} is inside one")
            }
            Self::Busy { pfn } => {
                write!(f, "{pfn} is in use, or somebody else is at its pageblock; try again")
            }
            Self::NoRoom => f.write_str(
                "no room: set ZoneConfig::spare_sections and Config::extra_ranges higher",
            ),
        }
    }
}

impl core::error::Error for HotplugError {}

/// What only one thread does at a time: it has the lock, until it is dropped, be it by a panic.
pub(crate) struct Hotplug<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
}

impl<P: Platform> Drop for Hotplug<'_, '_, P> {
    fn drop(&mut self) {
        // Release: pairs with `lock`.
        self.fh.hotplug.store(false, Ordering::Release);
    }
}

impl<'a, 'm, P: Platform> On<'a, 'm, P> {
    /// The CPU comes online; nothing where it is already.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`] where there is no such CPU.
    pub fn online(&self) -> Result<(), AllocError> {
        let (hotplug, inside) = self.alone()?;
        inside.cpu.online.set(true);
        drop(inside);
        hotplug.compute_limits();
        Ok(())
    }

    /// The CPU goes offline: its leases end, and what it keeps is anybody's. Frees go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`] where there is no such CPU or it is offline,
    /// [`AllocError::CpuOwned`].
    pub fn offline(&self) -> Result<(), AllocError> {
        let (hotplug, inside) = self.alone()?;
        inside.is_online()?;
        if inside.cpu.owned.get() {
            return Err(AllocError::CpuOwned { cpu: self.id });
        }
        // A thread that enters after this leases nothing: every way in looks.
        inside.cpu.online.set(false);
        inside.give_back_all();
        drop(inside);
        hotplug.compute_limits();
        drop(hotplug);
        self.fh.outside().tell_pressure();
        Ok(())
    }

    /// With the lock, and inside the CPU's state.
    fn alone(&self) -> Result<(Hotplug<'a, 'm, P>, Inside<'a, 'm, P>), AllocError> {
        let (fh, cpu) = (self.fh, self.id);
        let state = fh.cpus.get(cpu.index()).ok_or(AllocError::CpuOffline { cpu })?;
        let hotplug = Hotplug::lock(fh);
        Ok((hotplug, Inside::enter(fh, state, false)))
    }

    /// Whether the CPU is online.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.fh.cpus.get(self.id.index()).is_some_and(|state| state.online.get())
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Adds memory to the zone whose span covers it; all of it is free at once. Watermarks that
    /// follow the kernel's formulae are computed again.
    ///
    /// # Errors
    ///
    /// See [`HotplugError`].
    pub fn add_memory(&self, range: FrameRange) -> Result<(), HotplugError> {
        let zone = zone_of(self.zones, range)?;
        let hotplug = Hotplug::lock(self);
        self.map.all_absent(range)?;
        let isolated = hotplug.isolate_ends(range)?;
        hotplug.populate(zone, range, &[], false)?;
        drop(isolated);
        hotplug.memory_changed();
        drop(hotplug);
        self.outside().tell_pressure();
        Ok(())
    }

    /// Adds memory to the zone whose span covers it, all of it in use: its frames become free as
    /// somebody frees them, in chunks of any order. For a host that gets memory ready piece by
    /// piece, and for memory that is in use when its host comes to be. Whole pageblocks; their
    /// metadata is set up at once. Watermarks that follow the kernel's formulae are computed again.
    ///
    /// # Errors
    ///
    /// See [`HotplugError`].
    pub fn add_memory_in_use(&self, range: FrameRange) -> Result<(), HotplugError> {
        let zone = zone_of(self.zones, range)?;
        let ends = [range.start, range.end];
        if let Some(&pfn) = ends.iter().find(|pfn| pfn.get() % FRAMES as u64 != 0) {
            return Err(HotplugError::Misaligned { pfn });
        }
        let hotplug = Hotplug::lock(self);
        self.map.all_absent(range)?;
        hotplug.populate_in_use(zone, range)?;
        hotplug.memory_changed();
        Ok(())
    }

    /// Removes memory, all of it free.
    ///
    /// # Errors
    ///
    /// See [`HotplugError`].
    pub fn remove_memory(&self, range: FrameRange) -> Result<(), HotplugError> {
        let zone = zone_of(self.zones, range)?;
        Hotplug::lock(self).remove(zone, range)?;
        self.outside().tell_pressure();
        Ok(())
    }
}

impl<'a, 'm, P: Platform> Hotplug<'a, 'm, P> {
    /// Nobody else changes which CPUs and what memory there are while what it returns lives.
    pub(crate) fn lock(fh: &'a Freehold<'m, P>) -> Self {
        let lock = &fh.hotplug;
        // Acquire: pairs with the release at its end.
        while lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while lock.get() {
                fh.platform.relax();
            }
        }
        Hotplug { fh }
    }

    /// Isolates the blocks that a range of new memory shares with memory that is there: until its
    /// frames are in their words nobody takes any of them.
    fn isolate_ends(
        &self,
        range: FrameRange,
    ) -> Result<[Option<Isolated<'a, 'm, P>>; 2], HotplugError> {
        let ends = [range.start, Pfn::new(range.end.get() - 1)].map(Pfn::pageblock);
        let shared = |block: Pfn| {
            let head = self.fh.map.locate(block.get()).map(|block| block.head);
            head.is_some_and(|head| head.tag.get().state() != ABSENT)
        };
        let isolate = |block: Pfn| {
            let block = FrameRange { start: block, end: Pfn::new(block.get() + FRAMES as u64) };
            Isolated::new(self.fh, block).map(Some).map_err(busy)
        };
        let first = if shared(ends[0]) { isolate(ends[0])? } else { None };
        let last = if ends[1] != ends[0] && shared(ends[1]) { isolate(ends[1])? } else { None };
        Ok([first, last])
    }

    fn remove(&self, zone: &Zone<'m>, range: FrameRange) -> Result<(), HotplugError> {
        let (fh, map) = (self.fh, &self.fh.map);
        // The whole range must be there, and its blocks must hold nothing else.
        if let Some(pfn) = map.first_absent(range) {
            return Err(HotplugError::Absent { pfn });
        }
        let (start, end) = (range.start.get(), range.end.get());
        if (range.start.pageblock().get()..start).any(|pfn| map.is_present(pfn)) {
            return Err(HotplugError::Misaligned { pfn: range.start });
        }
        if (end..end.next_multiple_of(FRAMES as u64)).any(|pfn| map.is_present(pfn)) {
            return Err(HotplugError::Misaligned { pfn: range.end });
        }
        // Cutting the middle out of a piece of memory makes two of it.
        let splits = map.ranges.iter().any(|r| r.start.get() < start && end < r.end.get());
        if splits && !map.ranges.iter().any(MemoryRange::is_spent) {
            return Err(HotplugError::NoRoom);
        }
        let isolated = Isolated::new(fh, range).map_err(busy)?;
        // Outside every door somebody may be taking words of it, to see if all of it is free.
        if !Movers(fh).wait() {
            return Err(HotplugError::Busy { pfn: range.start });
        }
        isolated.empty(range, &mut |_| false).map_err(busy)?;
        map.change_ranges(|| map.forget_range(range));
        for block in blocks_of(range).filter_map(|number| map.locate_block(number)) {
            self.remove_block(zone, block);
        }
        // What is absent is not restored.
        drop(isolated);
        // CPUs may have more in hand than they may of less memory.
        Recall::of_all(fh).of(|_| true);
        self.memory_changed();
        Ok(())
    }

    /// An isolated block, all of it free, is no memory from now on.
    fn remove_block(&self, zone: &Zone<'m>, block: Block<'m>) {
        let line = block.line;
        let tag = block.tag.get();
        debug_assert_eq!(tag.zone(), usize::from(zone.id));
        match tag.migratetype() {
            // Relaxed: a count, which requests change meanwhile.
            HIGH_ATOMIC => _ = zone.high_atomic_blocks.fetch_sub(1, Ordering::Relaxed),
            crate::block::CMA => zone.cma_blocks.sub(1),
            _ => {}
        }
        // It stays of its zone: who has freed the last of it outside every door may yet say so.
        block.tag.set(Tag::new(ABSENT, 0, zone.id));
        let frames: u32 = (0..crate::block::WORDS).map(|w| line.take_word(w).count_ones()).sum();
        self.fh.outside().count_free(tag, u64::from(frames).wrapping_neg());
        zone.managed.set(zone.managed.get() - u64::from(frames));
    }
}

/// The zone whose span covers a range.
fn zone_of<'m>(zones: &'m [Zone<'m>], range: FrameRange) -> Result<&'m Zone<'m>, HotplugError> {
    if range.is_empty() {
        return Err(HotplugError::ZeroLength);
    }
    zone_spanning(zones, range).map_err(|pfn| HotplugError::OutOfZone { pfn })
}

impl<'m> FrameMap<'m> {
    /// Memory that is to come is not there yet.
    pub(crate) fn all_absent(&self, range: FrameRange) -> Result<(), HotplugError> {
        match self.next_present(range.start.get()).filter(|&pfn| pfn < range.end.get()) {
            Some(pfn) => Err(HotplugError::Present { pfn: Pfn::new(pfn) }),
            None => Ok(()),
        }
    }

    /// Takes a range out of what is known to be memory.
    pub(crate) fn forget_range(&self, range: FrameRange) {
        let (start, end) = (range.start.get(), range.end.get());
        for r in self.ranges {
            let (s, e) = (r.start.get(), r.end.get());
            if s >= end || e <= start {
                continue;
            }
            if s < start && end < e {
                if let Some(spent) = self.ranges.iter().find(|r| r.is_spent()) {
                    spent.set(end, e);
                }
                r.end.set(start);
            } else if s < start {
                r.end.set(start);
            } else if end < e {
                r.start.set(end);
            } else {
                r.spend();
            }
        }
    }
}

fn busy(error: AllocError) -> HotplugError {
    match error {
        AllocError::Busy { pfn } | AllocError::BadRange { pfn } => HotplugError::Busy { pfn },
        _ => HotplugError::NoRoom,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;
    use core::mem::MaybeUninit;
    use std::vec;

    const MIB: u64 = 256;

    /// So many CPUs on a machine of 32 GiB, of which `first` frames are there from the start and
    /// the others are added: all that follows from how much memory there is.
    fn sizes(cpus: u16, first: u64) -> (Vec<u32>, [u64; 6], bool) {
        let all = frames_at(0, 32_768 * MIB);
        let memory = [frames_at(0, first)];
        let zone = ZoneConfig { span: all, spare_sections: 256, ..ZoneConfig::new(&memory) };
        let zones = [zone];
        let config = Config { extra_ranges: 4, ..Config::new(cpus, &zones) };
        let size = config.metadata_size().unwrap();
        let region = Box::leak(vec![MaybeUninit::uninit(); size].into_boxed_slice());
        let fh = Machine::new(&config, region, &SingleCpu).unwrap();
        if first < all.len() {
            let rest = FrameRange { start: memory[0].end, end: all.end };
            fh.add_memory(rest).unwrap();
        }
        let limits = fh.cpus.iter().map(|cpu| cpu.leases.limit.get()).collect();
        let zone = &fh.zones[0];
        let counts = [&zone.managed, &zone.fold, &zone.min, &zone.low, &zone.high];
        let counts = core::array::from_fn(|n| match counts.get(n) {
            Some(count) => count.get(),
            None => u64::from(zone.mode.get()),
        });
        (limits, counts, zone.spread.get())
    }

    #[test]
    fn memory_added_later_counts_like_memory_from_the_start() {
        for cpus in [2, 128] {
            let at_once = sizes(cpus, 32_768 * MIB);
            for first in [64, 16_384] {
                assert_eq!(sizes(cpus, first * MIB), at_once, "{cpus} CPUs, {first} MiB at first");
            }
        }
    }

    /// A free outside every door has put its frame, and is stopped; the block becomes whole and
    /// goes. Then it says on the board what has come.
    #[test]
    fn a_free_that_comes_after_its_block_has_gone_finds_the_zone_it_was_of() {
        let fh = two_zones(1, 1 << 14);
        let cpu = fh.here();
        let frames: Vec<Pfn> = (0..512).map(|_| cpu.alloc(movable(0)).unwrap()).collect();
        cpu.flush().unwrap();
        let (block, w) = place(&fh, frames[0]);
        let bit = 1 << (frames[0].get() % 64);
        let tag = block.tag.get();
        assert_eq!(tag.zone(), 1);
        fh.outside().count_free(tag, 1);
        let now = block.line.put(w, bit).unwrap();
        frames[1..].iter().for_each(|&pfn| cpu.free(pfn, Order::ZERO).unwrap());
        fh.drain_all();
        let all = FrameRange::new(frames[0].pageblock(), 512).unwrap();
        fh.remove_memory(all).unwrap();
        fh.outside().raise_by(block, now);
        fh.validate().unwrap();
        fh.add_memory(all).unwrap();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(1).unwrap().free, 1 << 14);
    }

    /// Somebody outside every door may be about to take words of the block, and put them back.
    #[test]
    fn memory_does_not_go_beside_frames_on_the_way() {
        let fh = machine(1, 2048);
        let block = frames_at(0, 512);
        let mark = fh.zones[0].moving(fh.outside(), 5);
        assert_eq!(fh.remove_memory(block), Err(HotplugError::Busy { pfn: Pfn::new(0) }));
        drop(mark);
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 2048);
        fh.remove_memory(block).unwrap();
        fh.validate().unwrap();
    }

    /// Two blocks in the second of three sections, and room for one more.
    fn with_room() -> Machine {
        let memory = [frames_at(1 << 15, 1024)];
        let span = frames_at(0, 3 << 15);
        let zones = [ZoneConfig { span, spare_sections: 1, ..ZoneConfig::new(&memory) }];
        machine_of(&SingleCpu, &Config { extra_ranges: 4, ..Config::new(1, &zones) })
    }

    #[test]
    fn memory_that_comes_in_use_becomes_free_by_frees() {
        let fh = with_room();
        let free = || fh.zone_stats(0).unwrap().free;
        let block = |first, blocks: u64| frames_at(first, blocks * 512);
        let piece = frames_at(512, 100);
        assert_eq!(
            fh.add_memory_in_use(piece),
            Err(HotplugError::Misaligned { pfn: Pfn::new(612) })
        );
        fh.add_memory_in_use(block(512, 2)).unwrap();
        assert_eq!(
            fh.add_memory_in_use(block(0, 2)),
            Err(HotplugError::Present { pfn: Pfn::new(512) })
        );
        assert_eq!((free(), fh.zone_stats(0).unwrap().managed), (1024, 2048));
        fh.validate().unwrap();
        // All at once, and frame by frame.
        let cpu = fh.here();
        cpu.free(Pfn::new(512), Order::PAGEBLOCK).unwrap();
        (1024..1536).for_each(|pfn| cpu.free(Pfn::new(pfn), Order::ZERO).unwrap());
        fh.drain_all();
        assert_eq!((free(), fh.zone_blocks(0).unwrap().free_blocks), (2048, 4));
        assert!(cpu.free(Pfn::new(700), Order::ZERO).is_err(), "it is free");
        fh.validate().unwrap();
        // It goes as other memory does; the room that it had stays its section's.
        fh.remove_memory(block(512, 2)).unwrap();
        assert_eq!(fh.add_memory_in_use(block(2 << 15, 1)), Err(HotplugError::NoRoom));
        fh.validate().unwrap();
    }

    /// The metadata of a piece that is no whole block is set up at once; somebody is stopped at it.
    #[test]
    fn memory_that_cannot_be_set_up_is_not_added() {
        let fh = with_room();
        let piece = frames_at(512, 100);
        fh.map.blocks.leave_marked(0, true);
        assert_eq!(fh.add_memory(piece), Err(HotplugError::Busy { pfn: piece.start }));
        fh.map.blocks.leave_marked(0, false);
        fh.validate().unwrap();
        fh.add_memory(piece).unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 1124);
        fh.validate().unwrap();
    }
}
