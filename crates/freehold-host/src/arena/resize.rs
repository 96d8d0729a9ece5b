//! An arena that grows and shrinks, within the address space it has reserved.
//!
//! ```text
//! base                     known_end               end                   end of what is reserved
//!  |-- block --|-- block --| ........................| .................... |
//!                          of these the allocator    shrink <--- | ---> grow
//!                          is told when it wants them
//! ```
//!
//! Both ends of the change are the allocator's hotplug: what is added is free at once, and what is
//! removed must be free. The addresses stay reserved, so frames that are added are where they would
//! have been from the start.
//!
//! The allocator has a bit for each block it knows of, which is written when it is told. So it is
//! told of the first TiB of the last node, and of the next when an allocation fails.

use std::sync::atomic::Ordering;

use freehold::{FRAME_SIZE, FrameRange, HotplugError, PAGEBLOCK_FRAMES, Pfn};

use super::Arena;
use crate::extent::STEP;
use crate::inner::Inner;
use crate::pass::join;
use crate::release::Passing;
use crate::{Error, events};

const BLOCK: u64 = PAGEBLOCK_FRAMES * FRAME_SIZE;

impl Inner {
    /// Tells the allocator of all memory before `end`, in steps.
    pub(crate) fn memory_up_to(&self, end: Pfn) -> Result<(), Error> {
        if end.get() <= self.extent.known_end() {
            return Ok(());
        }
        let _one = self.extent.change();
        self.tell_up_to(end)
    }

    /// [`memory_up_to`](Self::memory_up_to) for whoever changes the extent.
    fn tell_up_to(&self, end: Pfn) -> Result<(), Error> {
        let all = self.memory.range().end.get();
        while self.extent.known_end() < end.get().min(all) {
            let start = self.extent.known_end();
            self.tell(FrameRange { start: Pfn::new(start), end: Pfn::new(all.min(start + STEP)) })?;
        }
        Ok(())
    }

    fn tell(&self, range: FrameRange) -> Result<(), Error> {
        self.core.engine.add_memory(range).map_err(resize_error)?;
        self.extent.set_known_end(range.end.get());
        Ok(())
    }
}

impl Arena {
    /// Frames of the arena that the allocator does not know of: free, and never used.
    pub(super) fn unplugged(&self) -> u64 {
        self.range().end.get().saturating_sub(self.inner.extent.known_end())
    }

    /// After an allocation that failed: whether there is more now, of which the allocator did not
    /// know then.
    #[cold]
    pub(super) fn more_memory(&self) -> bool {
        let known_end = self.inner.extent.known_end();
        // Who changes the size allocates little, and must not wait for itself.
        if known_end >= self.range().end.get() || Passing::is_here() {
            return false;
        }
        self.inner.memory_up_to(Pfn::new(known_end + 1)).is_ok()
    }

    /// Adds at least so many bytes, in whole blocks of 2 MiB, behind the arena's end: addresses
    /// that
    /// [`Builder::reserve`](crate::Builder::reserve) has set aside. Returns the new frames, all of them free.
    ///
    /// Takes no time to speak of, but for what [`Builder::populate`](crate::Builder::populate) asks
    /// for. Others work on meanwhile. On a machine with several memory nodes the frames are the
    /// last node's.
    ///
    /// # Errors
    ///
    /// [`Error::Reserve`] where not so much was reserved, [`Error::Knob`] for no bytes, [`Error::Os`] where it cannot be populated,
    /// [`Error::Forked`]; nothing has changed then.
    pub fn grow(&self, bytes: u64) -> Result<FrameRange, Error> {
        self.core.check_fork()?;
        if bytes == 0 {
            return Err(Error::Knob { knob: "grow", value: 0, allowed: "1 byte or more" });
        }
        let _one = self.inner.extent.change();
        let memory = &self.inner.memory;
        let (old, end) = (memory.range().end, memory.reserved().end);
        let left = (end.get() - old.get()) * FRAME_SIZE;
        let more = bytes.div_ceil(BLOCK).saturating_mul(PAGEBLOCK_FRAMES);
        let added = FrameRange { start: old, end: Pfn::new(old.get().saturating_add(more)) };
        if added.end > end {
            return Err(Error::Reserve { bytes: left });
        }
        if self.inner.extent.populate {
            let populated = memory.populate(added);
            // Also where that failed: a part of it may be backed.
            self.inner.notes.backed(added);
            if let Err(error) = populated {
                self.give_back_added(added);
                return Err(error);
            }
        }
        // First the arena's end and then the frames: who is given one finds that it is the arena's.
        memory.set_end(added.end);
        // Where there is some already that the allocator does not know of, it will come to this in
        // its turn.
        if self.inner.extent.known_end() == old.get() {
            let first = FrameRange { start: old, end: added.end.min(Pfn::new(old.get() + STEP)) };
            if let Err(error) = self.inner.tell(first) {
                memory.set_end(old);
                self.give_back_added(added);
                return Err(error);
            }
        }
        events::grown(added.len());
        Ok(added)
    }

    /// The OS takes back what it backs of frames that could not be added. What it refuses to take
    /// stays noted as backed.
    fn give_back_added(&self, added: FrameRange) {
        // The list of runs may be the arena's own memory, whose allocation must not wait for this.
        let _passing = Passing::new();
        let _ = self.give_back_removed(added);
    }

    /// Takes at least so many bytes, in whole blocks of 2 MiB, off the arena's end and gives what
    /// the OS backs of them back to it. All of it must be free. Returns the frames that are gone;
    /// the addresses stay reserved, for [`grow`](Self::grow).
    ///
    /// Takes time in proportion to the blocks that go (about 0.3 us each, and the kernel's time for
    /// what it backs). Others work on meanwhile; allocations that want the last free frames wait.
    /// Waits for a pass that gives memory back.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] where frames there are not free, or are [pinned](crate::Pin): it says how much could go. [`Error::Knob`] where nothing would be left
    /// (of the last memory node, where there are several), [`Error::Os`] where the kernel does not
    /// take the memory back,
    /// [`Error::Forked`]; nothing has changed then.
    pub fn shrink(&self, bytes: u64) -> Result<FrameRange, Error> {
        self.core.check_fork()?;
        let _no_pass = self.inner.release.alone();
        let extent = &self.inner.extent;
        let _one = extent.change();
        let memory = &self.inner.memory;
        let end = memory.range().end;
        let least = extent.last_part + PAGEBLOCK_FRAMES;
        let frames = bytes.div_ceil(BLOCK).saturating_mul(PAGEBLOCK_FRAMES);
        let start = end.get().checked_sub(frames).filter(|&start| start >= least && frames > 0);
        let Some(start) = start else {
            let allowed = "1 byte or more, and so little that a block of 2 MiB is left (of the last node, where there are several)";
            return Err(Error::Knob { knob: "shrink", value: bytes, allowed });
        };
        let gone = FrameRange { start: Pfn::new(start), end };
        let first = memory.first().get() / PAGEBLOCK_FRAMES;
        let (from, to) = (start / PAGEBLOCK_FRAMES - first, end.get() / PAGEBLOCK_FRAMES - first);
        if let Some(pinned) = (from..to).rev().find(|&block| self.inner.pins.is_pinned(block)) {
            return Err(Error::InUse { bytes: (to - pinned - 1) * BLOCK });
        }
        // What is backed is to be given back, and so the allocator has to know of it.
        let backed = Pfn::new((first + self.inner.notes.top()) * PAGEBLOCK_FRAMES);
        self.inner.tell_up_to(backed)?;
        // What the allocator does not know of is free, and backed by nothing.
        let known = FrameRange { start: gone.start, end: end.min(Pfn::new(extent.known_end())) };
        if !known.is_empty() {
            self.remove(known)?;
            extent.set_known_end(start);
        }
        memory.set_end(gone.start);
        events::shrunk(gone.len());
        Ok(gone)
    }

    /// Takes free frames out of the allocator and gives them to the OS.
    fn remove(&self, range: FrameRange) -> Result<(), Error> {
        let engine = &self.core.engine;
        self.core.collect_owed();
        engine.remove_memory(range).map_err(|error| match error {
            HotplugError::Busy { .. } => self.in_use(range),
            error => resize_error(error),
        })?;
        let result = self.give_back_removed(range);
        if result.is_err() {
            // It was there a moment ago, so there is room for it.
            engine.add_memory(range).map_err(resize_error)?;
        }
        result
    }

    /// How much could be removed at the end, where something in that range cannot.
    fn in_use(&self, range: FrameRange) -> Error {
        let engine = &self.core.engine;
        let last = engine.zone_count().saturating_sub(1);
        let used = engine
            .pageblocks(last)
            .filter(|block| block.start >= range.start && block.free < block.frames);
        // Where all of it is free by now, it is somebody's isolation that was in the way.
        let from = used
            .map(|block| block.start.get() + PAGEBLOCK_FRAMES)
            .max()
            .unwrap_or(range.start.get());
        Error::InUse { bytes: (self.range().end.get() - from) * FRAME_SIZE }
    }

    /// Gives what the OS backs of frames that are nobody's any more back to it.
    fn give_back_removed(&self, range: FrameRange) -> Result<(), Error> {
        let (memory, notes) = (&self.inner.memory, &self.inner.notes);
        let first = memory.first().get() / PAGEBLOCK_FRAMES;
        let blocks = range.start.get() / PAGEBLOCK_FRAMES - first
            ..(range.end.get() / PAGEBLOCK_FRAMES - first);
        // No block from there on was ever used.
        let blocks = blocks.start..blocks.end.min(notes.top()).max(blocks.start);
        let mut runs: Vec<FrameRange> = Vec::new();
        for block in blocks.filter(|&block| notes.is_resident(block)) {
            let start = Pfn::new((first + block) * PAGEBLOCK_FRAMES);
            join(&mut runs, FrameRange { start, end: Pfn::new(start.get() + PAGEBLOCK_FRAMES) });
        }
        let mut calls = 0;
        // SAFETY: these frames have been taken out of the allocator, which found all of them free.
        let result = unsafe {
            memory.release(&runs, &mut calls, |run| {
                let run = runs[run];
                let blocks = run.start.get() / PAGEBLOCK_FRAMES - first
                    ..run.end.get() / PAGEBLOCK_FRAMES - first;
                blocks.for_each(|block| notes.released(block));
            })
        };
        // Relaxed: a statistic.
        self.inner.release.calls.fetch_add(calls, Ordering::Relaxed);
        result
    }
}

fn resize_error(error: HotplugError) -> Error {
    match error {
        HotplugError::Busy { pfn } => freehold::AllocError::Busy { pfn }.into(),
        // The allocator was made with room for all that was reserved.
        _ => Error::Reserve { bytes: 0 },
    }
}
