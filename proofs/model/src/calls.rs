//! The calls, and the rules that can be left out.
//!
//! The functions here, in [`board`](crate::board) and in [`leases`](crate::leases) have the names
//! of those of `crates/freehold/src`, which say why each step is right. Each place where a
//! [`Bug`] is asked for is a rule of the protocol.

use crate::access::{Access, Run};
use crate::machine::{
    Cell, EMPTY, FULL, ISOLATED, SPLIT, STATE, TAKEN, WHOLE, WORDS, World, frames,
};

/// A call that a thread may begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// A frame, from the hand, by leasing a word, of a block of another type, or after a recall.
    Frame,
    /// A frame of the other migratetype.
    Unmovable,
    /// A frame past the leases.
    Straight,
    /// A whole block.
    Block,
    /// Two neighbouring whole blocks.
    Run,
    /// A frame in use is freed: the lowest or the highest.
    Free,
    /// A block of which all is in use is freed at once.
    FreeBlock,
    /// The CPU's lease ends.
    Flush,
    /// A block is isolated, looked at, and ordinary again.
    Isolate,
}

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "each is said where it is asked for in this file, and in docs/model.md"
)]
pub enum Bug {
    NoSecondLook,
    LookBeforeLowering,
    StaleBitWithoutLook,
    SummaryWithoutLook,
    BitBeforeClass,
    TwoMayRetire,
    RetireIgnoresLeases,
    RetireKeepsPart,
    LeaseWithoutTagCheck,
    StraightWithoutTagCheck,
    RetriesTheSameBlock,
    WaitsForBusy,
    TwoMayTakeWhole,
    RunWithoutUndo,
    EndLeaseWithoutRaise,
    RecallDoesNotAwait,
    IsolationWithoutRecall,
    IsolationByTagOnly,
    RestoreWithoutPublishing,
    PutBackUncounted,
    MarkWithoutDeltas,
}

impl Call {
    /// With what it may begin.
    pub(crate) fn choices(self, world: &World) -> Vec<(Self, u8)> {
        let held = world.held;
        let blocks = || (0..3).filter(|b| held >> (4 * b) & 0xf == 0xf);
        let arguments: Vec<u8> = match self {
            Self::Free if held == 0 => vec![],
            Self::Free => {
                let (low, high) = (held.trailing_zeros(), 15 - held.leading_zeros());
                if low == high { vec![low as u8] } else { vec![low as u8, high as u8] }
            }
            Self::FreeBlock => blocks().collect(),
            _ => vec![0],
        };
        arguments.into_iter().map(|argument| (self, argument)).collect()
    }

    /// The frames that it takes from whoever uses them.
    pub(crate) fn gives(self, argument: u8) -> u16 {
        match self {
            Self::Free => 1 << argument,
            Self::FreeBlock => 0xf << (4 * argument),
            _ => 0,
        }
    }
}

/// Doors and calls.
impl Access<'_> {
    pub(crate) fn try_enter(&mut self) -> Run<bool> {
        self.store(Cell::Busy(self.me), 1)?;
        let alone = self.load(Cell::Intruder(self.me))? == 0;
        if !alone {
            self.leave()?;
        }
        Ok(alone)
    }

    pub(crate) fn enter(&mut self) -> Run<()> {
        while !self.try_enter()? {
            self.wait(Cell::Intruder(self.me))?;
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) -> Run<()> {
        self.store(Cell::Busy(self.me), 0).map(drop)
    }

    /// Ends a CPU's lease from outside: the one call, beside the owner's door, that waits.
    pub(crate) fn recall(&mut self, c: usize) -> Run<()> {
        while !self.cas(Cell::Intruder(c), 0, 1)? {
            self.wait(Cell::Intruder(c))?;
        }
        if !self.has(Bug::RecallDoesNotAwait) {
            self.wait(Cell::Busy(c))?;
        }
        self.end_lease(c)?;
        self.store(Cell::Intruder(c), 0).map(drop)
    }

    pub(crate) fn call(&mut self, call: Call, argument: u8) -> Run<u16> {
        match call {
            Call::Frame => self.frame(0),
            Call::Unmovable => self.frame(1),
            Call::Straight => {
                self.enter()?;
                let block = match self.pick(0, true)? {
                    None => self.split_whole(0)?,
                    found => found,
                };
                let got = block.map_or(Ok(0), |b| self.straight_of(b))?;
                self.leave()?;
                Ok(got)
            }
            Call::Block => {
                let Some(b) = self.take_whole(true)? else { return Ok(0) };
                self.store(Cell::Tag(b), TAKEN)?;
                Ok(frames(b, 0, 0xf))
            }
            Call::Run if !self.take_run()? => Ok(0),
            Call::Run => {
                self.store(Cell::Tag(0), TAKEN)?;
                self.store(Cell::Tag(1), TAKEN)?;
                Ok(0xff)
            }
            Call::Free => self.free(usize::from(argument)),
            Call::FreeBlock => self.free_block(usize::from(argument)),
            Call::Flush => {
                self.enter()?;
                self.end_lease(self.me)?;
                self.leave()?;
                Ok(0)
            }
            Call::Isolate => self.isolate(0),
        }
    }

    pub(crate) fn frame(&mut self, kind: u8) -> Run<u16> {
        self.enter()?;
        let mut got = self.frame_inside(kind)?;
        if got == 0 {
            self.end_lease(self.me)?;
            self.leave()?;
            for c in 0..self.machine.cpus {
                if c == self.me {
                    continue;
                }
                if self.load(Cell::Busy(c))? != 0 || self.load(Cell::Key(c))? != 0 {
                    self.recall(c)?;
                }
            }
            self.enter()?;
            got = self.frame_inside(kind)?;
        }
        self.leave()?;
        Ok(got)
    }

    pub(crate) fn frame_inside(&mut self, kind: u8) -> Run<u16> {
        let key = self.own(Cell::Key(self.me), |key| key)?;
        if let Some(place) = usize::from(key & 0xf).checked_sub(1) {
            if key >> 4 == kind && self.own(Cell::Hand(self.me), |hand| hand)? == 0 {
                self.replenish(place / 2, place % 2)?;
            }
        }
        let got = self.take(kind)?;
        if got != 0 || !self.allows(2)? {
            return Ok(got);
        }
        for _ in 0..WORDS {
            let block = match self.pick(kind, true)? {
                None => self.split_whole(kind)?,
                found => found,
            };
            let Some(b) = block else { break };
            if self.lease(b, kind)? {
                return self.take(kind);
            }
        }
        if let Some(b) = self.claim_fallback(kind)? {
            if self.lease(b, kind)? {
                return self.take(kind);
            }
        }
        // Of a block of the other type, which keeps its type.
        self.pick(1 - kind, true)?.map_or(Ok(0), |b| self.straight_of(b))
    }

    /// A right free: into the hand, or into the word. Never waits.
    pub(crate) fn free(&mut self, frame: usize) -> Run<u16> {
        let (b, w, bit) = (frame / 4, frame / 2 % 2, 1 << (frame % 2));
        let inside = self.try_enter()?;
        if inside {
            let key = self.own(Cell::Key(self.me), |key| key)?;
            let hand = self.own(Cell::Hand(self.me), |hand| hand)?;
            if usize::from(key & 0xf) == b * 2 + w + 1 && hand != 0 {
                self.own(Cell::Hand(self.me), |hand| hand | bit)?;
                self.leave()?;
                return Ok(0);
            }
        }
        self.free_word(inside.then_some(self.me), b, w, bit)?;
        if inside {
            self.leave()?;
        }
        Ok(0)
    }

    pub(crate) fn free_word(
        &mut self,
        cpu: Option<usize>,
        b: usize,
        w: usize,
        bits: u8,
    ) -> Run<()> {
        // A block that was handed out whole becomes a split one.
        let mut tag = self.load(Cell::Tag(b))?;
        while tag & STATE == TAKEN && !self.cas(Cell::Tag(b), tag, tag & !STATE | SPLIT)? {
            tag = self.load(Cell::Tag(b))?;
        }
        let now = self.put(cpu, b, w, bits)?;
        self.raise_by(b, now)
    }

    pub(crate) fn free_block(&mut self, b: usize) -> Run<u16> {
        let tag = self.load(Cell::Tag(b))?;
        if tag & STATE == TAKEN && self.cas(Cell::Tag(b), tag, WHOLE)? {
            self.insert_whole(b)?;
        } else {
            (0..WORDS).try_for_each(|w| self.free_word(None, b, w, FULL))?;
        }
        Ok(0)
    }

    /// Isolates a block, looks at it, and makes it ordinary again.
    pub(crate) fn isolate(&mut self, b: usize) -> Run<u16> {
        if self.load(Cell::Whole(b))? == 1 {
            if !self.claim_wholes(1, false)? {
                return Ok(0);
            }
            if !self.take_bit(b)? {
                self.change(Cell::Count, |n| n + 1)?;
                return Ok(0);
            }
            self.fill(b, SPLIT | ISOLATED)?;
        } else {
            let tag = self.load(Cell::Tag(b))?;
            // Of a whole block that is in no bitmap somebody is on the way with.
            let to = tag & !STATE | SPLIT | ISOLATED;
            if tag & ISOLATED != 0 || tag & STATE == WHOLE || !self.cas(Cell::Tag(b), tag, to)? {
                return Ok(0);
            }
        }
        for c in 0..self.machine.cpus {
            let key = usize::from(self.load(Cell::Key(c))? & 0xf);
            if !self.has(Bug::IsolationWithoutRecall) && key != 0 && (key - 1) / 2 == b {
                self.recall(c)?;
            }
        }
        // Whoever has leased a word and opened no slot yet is inside its door.
        let ends = !self.has(Bug::IsolationWithoutRecall) && !self.has(Bug::IsolationByTagOnly);
        for w in 0..if ends { WORDS } else { 0 } {
            loop {
                let lease = self.load(Cell::Lease(b, w))? & !EMPTY;
                let Some(c) = usize::from(lease).checked_sub(1) else { break };
                self.recall(c)?;
            }
        }
        // Not the protocol's: what lies in the words now must stay there.
        self.access(0, |cells| {
            let words = cells[Cell::Word(b, 0).at()] | cells[Cell::Word(b, 1).at()] << 2;
            cells[Cell::Settled(b).at()] = 0x10 | words;
            Some(0)
        })?;
        self.words(b)?;
        self.own(Cell::Settled(b), |_| 0)?;
        loop {
            let tag = self.load(Cell::Tag(b))?;
            if self.cas(Cell::Tag(b), tag, tag & !ISOLATED)? {
                break;
            }
        }
        if !self.has(Bug::RestoreWithoutPublishing) {
            self.publish(b)?;
            self.raise(b)?;
        }
        Ok(0)
    }
}
