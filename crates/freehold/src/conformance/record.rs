//! A history as words of memory: what a machine without files writes down, to be judged where there
//! is more room.
//!
//! ```text
//! one event = five words   0: kind, who (from bit 16), how (from bit 8)   1: place   2, 3, 4: values
//!
//! a history = Machine, Zone..., Memory..., then Step, Begin, End and Quiet in the order in which they happened
//! ```

use super::{Cell, Op, Step};
use crate::{FrameRange, Pfn};

/// Words of one record.
pub const WORDS: usize = 5;

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// How many CPUs there are, the first block of the first section, and the blocks of a section.
    Machine(u16, u64, u64),
    /// A zone's span, the number of its bitmap's first block, and its groups.
    Zone(FrameRange, u64, u16),
    /// Where memory is.
    Memory(FrameRange),
    /// Somebody makes a step.
    Step(u16, Step),
    /// Somebody begins to allocate (no frames), or to free these.
    Begin(u16, FrameRange),
    /// The call ends: whether it succeeded, and what the caller has from now on.
    End(u16, bool, FrameRange),
    /// No call runs.
    Quiet(u16),
}

/// What is in the lowest byte of a record that is no step; those of steps are smaller.
const MACHINE: u64 = 0x80;
const ZONE: u64 = 0x81;
const MEMORY: u64 = 0x82;
const BEGIN: u64 = 0x83;
const END: u64 = 0x84;
const QUIET: u64 = 0x85;

/// In the order of their numbers.
const OPS: [Op; 7] = [Op::Initial, Op::Load, Op::Store, Op::Swap, Op::Exchange, Op::Or, Op::And];

/// One cell of each kind from a place of two numbers, in the order of the kinds' numbers.
const CELLS: [fn(u32, u32) -> Cell; 19] = [
    |b, _| Cell::Tag(b),
    |b, _| Cell::Class(b),
    |b, w| Cell::Lease(b, w as u8),
    |b, w| Cell::Word(b, w as u8),
    |b, _| Cell::List(b),
    |b, _| Cell::Next(b),
    |c, _| Cell::Busy(c as u16),
    |c, _| Cell::Intruder(c as u16),
    |c, _| Cell::Online(c as u16),
    |c, k| Cell::Kept(c as u16, k as u8),
    |c, s| Cell::Key(c as u16, s as u8),
    |c, s| Cell::Mask(c as u16, s as u8),
    |c, s| Cell::At(c as u16, s as u8),
    |z, g| Cell::Lock(z as u8, g as u16),
    |z, g| Cell::Head(z as u8, g as u16),
    |z, g| Cell::Rest(z as u8, g as u16),
    |z, w| Cell::Bits(z as u8, w),
    |s, _| Cell::Section(s),
    |_, _| Cell::Hotplug,
];

/// The kind's number and the place.
fn place(cell: Cell) -> (u64, u32, u32) {
    match cell {
        Cell::Tag(b) => (0, b, 0),
        Cell::Class(b) => (1, b, 0),
        Cell::Lease(b, w) => (2, b, w.into()),
        Cell::Word(b, w) => (3, b, w.into()),
        Cell::List(b) => (4, b, 0),
        Cell::Next(b) => (5, b, 0),
        Cell::Busy(c) => (6, c.into(), 0),
        Cell::Intruder(c) => (7, c.into(), 0),
        Cell::Online(c) => (8, c.into(), 0),
        Cell::Kept(c, k) => (9, c.into(), k.into()),
        Cell::Key(c, s) => (10, c.into(), s.into()),
        Cell::Mask(c, s) => (11, c.into(), s.into()),
        Cell::At(c, s) => (12, c.into(), s.into()),
        Cell::Lock(z, g) => (13, z.into(), g.into()),
        Cell::Head(z, g) => (14, z.into(), g.into()),
        Cell::Rest(z, g) => (15, z.into(), g.into()),
        Cell::Bits(z, w) => (16, z.into(), w),
        Cell::Section(s) => (17, s, 0),
        Cell::Hotplug => (18, 0, 0),
    }
}

impl Record {
    /// As words.
    #[must_use]
    pub fn encode(&self) -> [u64; WORDS] {
        let by = |who: u16| u64::from(who) << 16;
        match *self {
            Self::Machine(cpus, first, blocks) => [MACHINE | by(cpus), first, blocks, 0, 0],
            Self::Zone(span, first, groups) => {
                [ZONE | by(groups), first, span.start.get(), span.end.get(), 0]
            }
            Self::Memory(range) => [MEMORY, 0, range.start.get(), range.end.get(), 0],
            Self::Step(who, Step { cell, op, with, old, new }) => {
                let (kind, a, b) = place(cell);
                let how = OPS.iter().position(|&one| one == op).unwrap_or_default() as u64;
                [kind | how << 8 | by(who), u64::from(a) | u64::from(b) << 32, with, old, new]
            }
            Self::Begin(who, frames) => {
                [BEGIN | by(who), 0, frames.start.get(), frames.end.get(), 0]
            }
            Self::End(who, ok, got) => {
                [END | u64::from(ok) << 8 | by(who), 0, got.start.get(), got.end.get(), 0]
            }
            Self::Quiet(who) => [QUIET | by(who), 0, 0, 0, 0],
        }
    }

    /// Reads words; `None` where they are no record.
    #[must_use]
    pub fn decode(words: [u64; WORDS]) -> Option<Self> {
        let [head, at, a, b, c] = words;
        let (kind, how, who) = (head & 0xff, head >> 8 & 0xff, (head >> 16) as u16);
        let frames = || (a <= b).then_some(FrameRange { start: Pfn::new(a), end: Pfn::new(b) });
        Some(match kind {
            MACHINE => Self::Machine(who, at, a),
            ZONE => Self::Zone(frames()?, at, who),
            MEMORY => Self::Memory(frames()?),
            BEGIN => Self::Begin(who, frames()?),
            END => Self::End(who, how != 0, frames()?),
            QUIET => Self::Quiet(who),
            _ => {
                let cell = CELLS.get(kind as usize)?(at as u32, (at >> 32) as u32);
                Self::Step(who, Step { cell, op: *OPS.get(how as usize)?, with: a, old: b, new: c })
            }
        })
    }
}
