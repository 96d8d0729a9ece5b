//! What must be true of memory, no matter who manages it: one state a frame.

use std::cell::Cell;

use freehold::{FrameRange, FreeError, HotplugError, Order, Pfn};

use super::machines::Machine;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    Absent,
    /// Free and never handed out since it became memory.
    NeverAllocated,
    Free,
    Used,
}

impl Frame {
    pub fn is_free(self) -> bool {
        matches!(self, Self::NeverAllocated | Self::Free)
    }
}

pub struct Model {
    /// The zones' spans, in the configuration's order.
    pub spans: Vec<FrameRange>,
    base: u64,
    frames: Vec<Frame>,
    /// Blocks that may have been opened without anything of them being handed out: a wrong free of
    /// a never allocated frame there is a double free or one of a frame that was never allocated,
    /// as the allocator likes. In all others it is the latter.
    opened: Vec<bool>,
    /// Of each block, the frames that are there and the free ones as they were last counted; None
    /// where a frame has changed since. All are asked for after each call, which changes few.
    counted: Vec<Cell<Option<(u64, u64)>>>,
    cma: Vec<FrameRange>,
    /// What is in use, as it was handed out or as what is left of that: start and length.
    pub live: Vec<(u64, u64)>,
    pub present: u64,
    pub used: u64,
}

impl Model {
    pub fn new(machine: &Machine) -> Self {
        let base = machine.spans.iter().map(|s| s.start.get()).min().unwrap();
        let end = machine.spans.iter().map(|s| s.end.get()).max().unwrap();
        let mut model = Self {
            spans: machine.spans.clone(),
            base,
            frames: vec![Frame::Absent; (end - base) as usize],
            opened: vec![false; (end - base).div_ceil(512) as usize],
            counted: vec![Cell::new(None); (end.div_ceil(512) - base / 512) as usize],
            cma: machine.cma.clone(),
            live: Vec::new(),
            present: 0,
            used: 0,
        };
        machine.memory.iter().for_each(|&piece| model.set_present(piece));
        model
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn end(&self) -> u64 {
        self.base + self.frames.len() as u64
    }

    pub fn get(&self, pfn: u64) -> Frame {
        pfn.checked_sub(self.base)
            .and_then(|at| self.frames.get(at as usize))
            .copied()
            .unwrap_or(Frame::Absent)
    }

    /// Frames that are about to change.
    fn slice(&mut self, start: u64, len: u64) -> &mut [Frame] {
        for block in start / 512..(start + len).div_ceil(512) {
            self.counted[(block - self.base / 512) as usize].set(None);
        }
        let at = (start - self.base) as usize;
        &mut self.frames[at..at + len as usize]
    }

    /// How many frames of the block that starts there are there, and how many of them are free.
    pub fn count(&self, start: u64) -> (u64, u64) {
        let counted = &self.counted[(start / 512 - self.base / 512) as usize];
        let count = || {
            (start..start + 512).map(|pfn| self.get(pfn)).fold((0, 0), |(there, free), frame| {
                (there + u64::from(frame != Frame::Absent), free + u64::from(frame.is_free()))
            })
        };
        let now = counted.get().unwrap_or_else(count);
        counted.set(Some(now));
        now
    }

    fn set_present(&mut self, piece: FrameRange) {
        let slice = self.slice(piece.start.get(), piece.len());
        assert!(slice.iter().all(|&f| f == Frame::Absent));
        slice.fill(Frame::NeverAllocated);
        self.present += piece.len();
        // A block with holes, or of CMA, is split from the beginning; all others are whole.
        for block in piece.start.get() / 512..piece.end.get().div_ceil(512) {
            let cma = self.cma.iter().any(|cma| cma.contains(Pfn::new(block * 512)));
            let whole = piece.start.get() <= block * 512 && (block + 1) * 512 <= piece.end.get();
            let at = (block - self.base / 512) as usize;
            self.opened[at] = cma || !whole;
        }
    }

    /// What tries to allocate or remove just this range, or an aligned chunk at its start, opens
    /// its blocks, and may fail.
    pub fn open(&mut self, start: u64, end: u64) {
        let (first, count) = (self.base / 512, self.opened.len() as u64);
        let (from, to) = ((start / 512).max(first), end.div_ceil(512).min(first + count));
        (from..to).for_each(|block| self.opened[(block - first) as usize] = true);
    }

    /// Whether anything of a frame's block was ever handed out.
    fn was_used(&self, pfn: u64) -> bool {
        (pfn / 512 * 512..pfn / 512 * 512 + 512)
            .any(|f| matches!(self.get(f), Frame::Free | Frame::Used))
    }

    fn set_absent(&mut self, piece: FrameRange) {
        let slice = self.slice(piece.start.get(), piece.len());
        assert!(slice.iter().all(|&f| f.is_free()), "{piece} was removed while in use");
        slice.fill(Frame::Absent);
        self.present -= piece.len();
    }

    pub fn free(&self) -> u64 {
        self.present - self.used
    }

    /// Takes over what was handed out.
    pub fn take(&mut self, start: u64, len: u64) {
        for pfn in start..start + len {
            let was = self.get(pfn);
            assert!(was.is_free(), "pfn {pfn:#x} of {start:#x}+{len} was {was:?}");
        }
        self.slice(start, len).fill(Frame::Used);
        self.used += len;
        self.live.push((start, len));
    }

    pub fn give(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start + len;
        let slice = self.slice(start, len);
        assert!(
            slice.iter().all(|&f| f == Frame::Used),
            "{start:#x}+{len} was freed but not in use"
        );
        slice.fill(Frame::Free);
        self.used -= len;
        let mut rest = Vec::new();
        self.live.retain(|&(s, l)| {
            let e = s + l;
            if e <= start || s >= end {
                return true;
            }
            if s < start {
                rest.push((s, start - s));
            }
            if e > end {
                rest.push((end, e - end));
            }
            false
        });
        self.live.extend(rest);
    }

    pub fn live(&self, number: u64) -> Option<(u64, u64)> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.live[(number % count) as usize])
    }

    /// The range is empty: checked first by all.
    fn span_of(&self, start: u64) -> Option<&FrameRange> {
        self.spans.iter().find(|span| span.contains(Pfn::new(start)))
    }

    /// Where the zone of that frame ends, or the last of those that touch it one after the other.
    fn end_of(&self, start: u64) -> Option<Pfn> {
        let mut end = self.span_of(start)?.end;
        while let Some(next) = self.span_of(end.get()) {
            end = next.end;
        }
        Some(end)
    }

    /// Whether a free of exactly these frames is right.
    pub fn may_free(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        len > 0
            && self.end_of(start).is_some_and(|last| end <= last.get())
            && (start..end).all(|pfn| self.get(pfn) == Frame::Used)
    }

    /// Whether `error` may be said of a free of these frames, which is wrong.
    pub fn explains(&self, error: FreeError, start: u64, len: u64) -> bool {
        let inside = |pfn: Pfn| pfn.get().wrapping_sub(start) < len;
        let past = self.end_of(start).filter(|end| start.saturating_add(len) > end.get());
        if let Some(pfn) = past {
            return error == FreeError::PastEnd { pfn };
        }
        match error {
            FreeError::ZeroLength => len == 0,
            FreeError::OutOfZone { pfn } => inside(pfn) && self.span_of(pfn.get()).is_none(),
            FreeError::Hole { pfn } => {
                inside(pfn)
                    && self.span_of(pfn.get()).is_some()
                    && self.get(pfn.get()) == Frame::Absent
            }
            FreeError::DoubleFree { pfn } if self.get(pfn.get()) == Frame::NeverAllocated => {
                let opened = self.opened[(pfn.get() / 512 - self.base / 512) as usize];
                inside(pfn) && (opened || self.was_used(pfn.get()))
            }
            FreeError::DoubleFree { pfn } => inside(pfn) && self.get(pfn.get()) == Frame::Free,
            FreeError::NeverAllocated { pfn } => {
                inside(pfn)
                    && self.get(pfn.get()) == Frame::NeverAllocated
                    && !self.was_used(pfn.get())
            }
            _ => false,
        }
    }

    /// Whether `len` free frames in a row start at a multiple of `2^align` within `from..below` and
    /// one zone; where.
    pub fn free_run(&self, len: u64, align: Order, from: u64, below: u64) -> Option<u64> {
        let step = align.frames();
        let within = |span: &FrameRange| {
            let end = span.end.get().min(below);
            // Before `at` nothing that is not free lies behind `run`.
            let (mut run, mut at) = (span.start.get().max(from), span.start.get().max(from));
            loop {
                let start = run.checked_next_multiple_of(step)?;
                if start.checked_add(len).is_none_or(|last| last > end) {
                    return None;
                }
                at = at.max(start);
                while at < start + len && self.get(at).is_free() {
                    at += 1;
                }
                if at == start + len {
                    return Some(start);
                }
                run = at + 1;
                at += 1;
            }
        };
        self.spans.iter().find_map(within)
    }

    /// What adding that memory must come to, but for want of room.
    pub fn add_memory(&mut self, range: FrameRange, result: Result<(), HotplugError>) {
        let inside = self.span_of(range.start.get()).is_some_and(|span| range.end <= span.end);
        let there =
            (range.start.get()..range.end.get()).find(|&pfn| self.get(pfn) != Frame::Absent);
        match result {
            Ok(()) => {
                assert!(inside && !range.is_empty() && there.is_none());
                self.set_present(range);
            }
            Err(HotplugError::ZeroLength) => assert!(range.is_empty()),
            Err(HotplugError::OutOfZone { .. }) => assert!(!inside),
            Err(HotplugError::Present { pfn }) => assert_ne!(self.get(pfn.get()), Frame::Absent),
            Err(HotplugError::NoRoom) => assert!(inside && there.is_none()),
            Err(error) => panic!("{error}"),
        }
    }

    /// What removing memory came to.
    pub fn remove_memory(&mut self, range: FrameRange, result: Result<(), HotplugError>) {
        let (start, end) = (range.start.get(), range.end.get());
        let inside = self.span_of(start).is_some_and(|span| range.end <= span.end);
        self.open(start, end);
        let mut states = (start..end).map(|pfn| self.get(pfn));
        match result {
            Ok(()) => {
                assert!(inside && !range.is_empty());
                self.set_absent(range);
            }
            Err(HotplugError::ZeroLength) => assert!(range.is_empty()),
            Err(HotplugError::OutOfZone { .. }) => assert!(!inside),
            Err(HotplugError::Absent { pfn }) => assert_eq!(self.get(pfn.get()), Frame::Absent),
            Err(HotplugError::Misaligned { pfn }) => {
                assert!(pfn == range.start || pfn == range.end);
                assert!(!pfn.is_aligned(Order::PAGEBLOCK));
            }
            Err(HotplugError::Busy { pfn }) => {
                assert_eq!(self.get(pfn.get()), Frame::Used, "{pfn} is said to be busy")
            }
            Err(HotplugError::NoRoom) => assert!(states.all(|f| f != Frame::Absent)),
            Err(error) => panic!("{error}"),
        }
    }
}
