//! The truth about a machine: a state for each frame, kept beside the allocator.

use freehold::{AllocFlags, FrameRange, FreeError, Order, Pfn};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It is not there.
    Absent,
    Free,
    Used,
}

/// A pageblock.
#[derive(Clone, Copy, Default)]
struct Block {
    cma: bool,
    isolated: bool,
    zone: Option<usize>,
    /// Some of it was handed out since it is memory.
    used: bool,
}

/// What a request may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) order: Order,
    pub(super) align: Order,
    pub(super) within: FrameRange,
    pub(super) cma: bool,
    pub(super) flags: AllocFlags,
}

pub(crate) struct Table {
    base: u64,
    frames: Vec<State>,
    blocks: Vec<Block>,
}

impl Table {
    /// Of the frames `base..end`, none of which is there yet.
    pub(super) fn new(base: u64, end: u64) -> Self {
        let frames = (end - base) as usize;
        Self {
            base,
            frames: vec![State::Absent; frames],
            blocks: vec![Block::default(); frames / 512],
        }
    }

    pub(super) fn add_zone(
        &mut self,
        number: usize,
        span: FrameRange,
        pieces: &[FrameRange],
        cma: &[FrameRange],
    ) {
        pieces.iter().for_each(|&piece| self.set(piece, State::Free));
        self.blocks_of(span).for_each(|block| self.blocks[block].zone = Some(number));
        // Of CMA is what has a frame there.
        let of_cma: Vec<usize> = cma.iter().flat_map(|&range| self.blocks_of(range)).collect();
        for block in of_cma {
            let frames = &self.frames[block * 512..(block + 1) * 512];
            self.blocks[block].cma = frames.iter().any(|&state| state != State::Absent);
        }
    }

    fn index(&self, pfn: u64) -> usize {
        (pfn - self.base) as usize
    }

    /// The blocks that a range touches.
    fn blocks_of(&self, range: FrameRange) -> std::ops::Range<usize> {
        self.index(range.start.get()) / 512..self.index(range.end.get()).div_ceil(512)
    }

    pub(super) fn set(&mut self, range: FrameRange, state: State) {
        let (start, end) = (self.index(range.start.get()), self.index(range.end.get()));
        self.frames[start..end].fill(state);
        for block in self.blocks_of(range) {
            self.blocks[block].used = match state {
                // Whole blocks come and go, and no frame is absent otherwise.
                State::Absent => false,
                State::Used => true,
                State::Free => self.blocks[block].used,
            };
        }
    }

    /// Whether all frames of a range are in that state.
    pub(super) fn all(&self, range: FrameRange, state: State) -> bool {
        let end = self.base + self.frames.len() as u64;
        range.start.get() >= self.base
            && range.end.get() <= end
            && self.frames[self.index(range.start.get())..self.index(range.end.get())]
                .iter()
                .all(|&frame| frame == state)
    }

    /// Whether a range is free, and nothing keeps it from being taken.
    pub(super) fn is_ready(&self, range: FrameRange) -> bool {
        self.all(range, State::Free) && !self.has_isolated(range)
    }

    pub(super) fn is_free(&self, pfn: u64) -> bool {
        self.all(FrameRange { start: Pfn::new(pfn), end: Pfn::new(pfn + 1) }, State::Free)
    }

    /// How many frames of the block that starts there are there, and how many of them are free.
    pub(super) fn count(&self, start: u64) -> (u64, u64) {
        let frames = &self.frames[self.index(start)..self.index(start) + 512];
        frames.iter().fold((0, 0), |(there, free), &state| {
            (there + u64::from(state != State::Absent), free + u64::from(state == State::Free))
        })
    }

    /// The zone of a frame's block.
    pub(super) fn zone_of(&self, pfn: u64) -> Option<usize> {
        self.blocks.get(pfn.checked_sub(self.base)? as usize / 512)?.zone
    }

    /// Whether a free of these frames, which is wrong, may be refused for that reason.
    pub(super) fn explains(&self, error: FreeError, part: FrameRange) -> bool {
        let is_inside = |pfn: Pfn| part.start <= pfn && pfn < part.end;
        let is_there = |pfn: Pfn| self.zone_of(pfn.get()).is_some();
        let state = |pfn: Pfn| self.frames[self.index(pfn.get())];
        // Where the last of the zones that touch one another from there on ends.
        let mut end = part.start.get();
        while end < part.end.get() && is_there(Pfn::new(end)) {
            end = (end / 512 + 1) * 512;
        }
        if is_there(part.start) && end < part.end.get() {
            return error == FreeError::PastEnd { pfn: Pfn::new(end) };
        }
        match error {
            FreeError::OutOfZone { pfn } => is_inside(pfn) && !is_there(pfn),
            FreeError::Hole { pfn } => {
                is_inside(pfn) && is_there(pfn) && state(pfn) == State::Absent
            }
            FreeError::DoubleFree { pfn } => {
                is_inside(pfn) && is_there(pfn) && state(pfn) == State::Free
            }
            FreeError::NeverAllocated { pfn } => {
                is_inside(pfn)
                    && is_there(pfn)
                    && state(pfn) == State::Free
                    && !self.blocks[self.index(pfn.get()) / 512].used
            }
            _ => false,
        }
    }

    /// Whether any block that the range touches is isolated.
    pub(super) fn has_isolated(&self, range: FrameRange) -> bool {
        let mut blocks = self.blocks_of(range).filter_map(|block| self.blocks.get(block));
        blocks.any(|block| block.isolated)
    }

    /// Whether any block that the range touches is one of CMA.
    pub(super) fn has_cma(&self, range: FrameRange) -> bool {
        self.blocks_of(range).any(|block| self.blocks[block].cma)
    }

    pub(super) fn isolate(&mut self, range: FrameRange, isolated: bool) {
        self.blocks_of(range).for_each(|block| self.blocks[block].isolated = isolated);
    }

    /// What comes back after it was removed is ordinary memory.
    pub(super) fn is_no_cma(&mut self, range: FrameRange) {
        self.blocks_of(range).for_each(|block| self.blocks[block].cma = false);
    }

    /// The first blocks in a row that are isolated.
    pub(super) fn isolated(&self) -> Option<FrameRange> {
        let first = self.blocks.iter().position(|block| block.isolated)?;
        let count = self.blocks[first..].iter().take_while(|block| block.isolated).count();
        let start = self.base + first as u64 * 512;
        Some(FrameRange { start: Pfn::new(start), end: Pfn::new(start + count as u64 * 512) })
    }

    /// Whether frames side by side from `start` on are free, of one zone, and not isolated.
    fn is_run(&self, start: u64, count: u64, cma: bool) -> bool {
        let first = self.index(start);
        let zone = self.blocks[first / 512].zone;
        (first..first + count as usize).all(|frame| {
            let block = self.blocks[frame / 512];
            self.frames[frame] == State::Free
                && !block.isolated
                && (cma || !block.cma)
                && block.zone == zone
        })
    }

    /// Where a chunk is free that such a request may have; `kept` says of a frame whether its block
    /// is kept for atomic requests, or by its zone's mark.
    pub(super) fn chunk(&self, wanted: Wanted, kept: impl Fn(u64) -> bool) -> Option<u64> {
        let (count, step) =
            (wanted.order.frames(), wanted.order.frames().max(wanted.align.frames()));
        let end = (self.base + self.frames.len() as u64).min(wanted.within.end.get());
        let mut start = self.base.max(wanted.within.start.get()).next_multiple_of(step);
        while start + count <= end {
            if self.is_run(start, count, wanted.cma) && !kept(start) {
                return Some(start);
            }
            start += step;
        }
        None
    }

    /// Where so many frames are free side by side, of CMA or not.
    pub(super) fn run(&self, count: u64, align: Order) -> Option<u64> {
        let end = self.base + self.frames.len() as u64;
        let first = self.base.next_multiple_of(align.frames());
        let mut starts = (first..(end + 1).saturating_sub(count)).step_by(align.frames() as usize);
        starts.find(|&start| self.is_run(start, count, true))
    }
}
