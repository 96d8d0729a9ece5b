//! What can go wrong: one value for each mistake, with the offending frame.

use core::fmt;

use crate::{CpuId, Migratetype, Order, Pfn};

/// Why nothing was allocated. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocError {
    /// No zone has a free chunk of that order that the request may use.
    NoMemory {
        /// What was asked for.
        order: Order,
    },
    /// No free range of so many frames that begins at a multiple of such a chunk was found.
    NoRange {
        /// What was asked for.
        frames: u64,
        /// What its start is to be a multiple of.
        align: Order,
    },
    /// The engine has no chunks of that order.
    OrderTooLarge {
        /// What was asked for.
        order: Order,
        /// The largest order the engine serves.
        max: Order,
    },
    /// A request named a migratetype that is a state of a pageblock, not a kind of request.
    BadMigratetype {
        /// What was asked for.
        migratetype: Migratetype,
    },
    /// A range of no frames was asked for.
    ZeroLength,
    /// The range is not inside one zone, or covers a hole.
    BadRange {
        /// The first frame that cannot be part of it.
        pfn: Pfn,
    },
    /// Somebody else is using part of the range and would not move in time; trying again may work.
    Busy {
        /// The first frame still in use.
        pfn: Pfn,
    },
    /// The request may not wait, and what it found without waiting would not do: what is
    /// left is in other hands.
    WouldBlock,
    /// There is no such CPU, or it is offline.
    CpuOffline {
        /// The CPU named in the call.
        cpu: CpuId,
    },
    /// Somebody has that CPU for itself.
    CpuOwned {
        /// The CPU named in the call.
        cpu: CpuId,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory { order } => {
                write!(f, "out of memory: no free chunk of {order} that the request may use")
            }
            Self::NoRange { frames, align } => write!(
                f,
                "out of memory: no {frames} frames in a row to be had from a multiple of {} on",
                align.frames()
            ),
            Self::OrderTooLarge { order, max } => {
                write!(f, "{order} is too large: the largest is {max}")
            }
            Self::BadMigratetype { migratetype } => {
                write!(
                    f,
                    "{migratetype} is a state of a pageblock; ask for Unmovable, Movable or Reclaimable"
                )
            }
            Self::ZeroLength => f.write_str("a range of no frames was asked for"),
            Self::BadRange { pfn } => {
                write!(f, "the range leaves its zone or covers a hole at {pfn}")
            }
            Self::Busy { pfn } => write!(f, "{pfn} is still in use; try again"),
            Self::WouldBlock => f.write_str("a lock was held and the request may not wait for it"),
            Self::CpuOffline { cpu } => write!(f, "{cpu} does not exist or is offline"),
            Self::CpuOwned { cpu } => write!(f, "{cpu} is owned; drop its handle first"),
        }
    }
}

impl core::error::Error for AllocError {}

/// Why nothing was freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeError {
    /// The frame is already free.
    DoubleFree {
        /// The frame.
        pfn: Pfn,
    },
    /// The frame exists but has not been handed out: it was never part of an allocation.
    NeverAllocated {
        /// The frame.
        pfn: Pfn,
    },
    /// The frame starts an allocation of another order.
    WrongOrder {
        /// The frame.
        pfn: Pfn,
        /// The order it was allocated with, or last split to.
        allocated: Order,
        /// The order named in the call.
        freed: Order,
    },
    /// The frame lies inside an allocation that starts elsewhere; split it first.
    InsideAllocation {
        /// The frame.
        pfn: Pfn,
        /// Where the allocation starts.
        head: Pfn,
    },
    /// No zone has that frame.
    OutOfZone {
        /// The frame.
        pfn: Pfn,
    },
    /// The frame lies between the zones' memory: there is nothing there.
    Hole {
        /// The frame.
        pfn: Pfn,
    },
    /// The range starts in a zone but ends behind it, where no other zone begins.
    PastEnd {
        /// The first frame behind the zone, or behind the last of several that touch.
        pfn: Pfn,
    },
    /// A chunk of that order cannot start at that frame.
    Misaligned {
        /// The frame.
        pfn: Pfn,
        /// The order named in the call.
        order: Order,
    },
    /// The engine has no chunks of that order.
    OrderTooLarge {
        /// The order named in the call.
        order: Order,
        /// The largest order the engine serves.
        max: Order,
    },
    /// A range of no frames.
    ZeroLength,
    /// There is no such CPU, or it is offline.
    CpuOffline {
        /// The CPU named in the call.
        cpu: CpuId,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleFree { pfn } => write!(f, "double free: {pfn} is already free"),
            Self::NeverAllocated { pfn } => write!(f, "{pfn} was never allocated"),
            Self::WrongOrder { pfn, allocated, freed } => {
                write!(f, "{pfn} was allocated with {allocated} but freed with {freed}")
            }
            Self::InsideAllocation { pfn, head } => {
                write!(
                    f,
                    "{pfn} lies inside the allocation that starts at {head}; split that first"
                )
            }
            Self::OutOfZone { pfn } => write!(f, "no zone has {pfn}"),
            Self::Hole { pfn } => write!(f, "{pfn} lies in a hole: there is no memory there"),
            Self::PastEnd { pfn } => write!(f, "the range ends behind its zone, at {pfn}"),
            Self::Misaligned { pfn, order } => {
                write!(f, "a chunk of {order} cannot start at {pfn}")
            }
            Self::OrderTooLarge { order, max } => {
                write!(f, "{order} is too large: the largest is {max}")
            }
            Self::ZeroLength => f.write_str("a range of no frames"),
            Self::CpuOffline { cpu } => write!(f, "{cpu} does not exist or is offline"),
        }
    }
}

impl core::error::Error for FreeError {}

/// Why a bulk free stopped, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkFreeError {
    /// How many frames, from the start of the slice, had been freed by then.
    pub freed: usize,
    /// What is wrong with the next one.
    pub error: FreeError,
}

impl fmt::Display for BulkFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of the slice: {}", self.freed, self.error)
    }
}

impl core::error::Error for BulkFreeError {}
