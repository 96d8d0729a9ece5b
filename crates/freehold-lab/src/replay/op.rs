//! What is asked of every engine: the trace, with its frames replaced by slots.
//!
//! The rules of reading a trace (what a free means, what is missing) are applied once, by the
//! [`super::mapper`]; what comes out is a list of plain orders that every engine of a replay gets
//! alike. Each engine's [`Driver`](super::Driver) only remembers which of its own frames it put in
//! which slot.
//!
//! ```text
//!  trace rows ──> mapper ──> [Op] ──┬──> driver ──> Engine "5.17"
//!                 (once)            ├──> driver ──> Engine "vanilla"
//!                                   └──> driver ──> ...
//! ```

use freehold::{AllocFlags, Migratetype, Order};

/// The most chunks in one batch of frees: the kernel's `folio_batch` holds 31.
pub const FREE_BATCH_MAX: usize = 31;

/// One order to an engine. Slots are dense and used again as soon as they are empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Allocate, and keep the result in `slot`, which is empty.
    Alloc {
        slot: u32,
        cpu: u16,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    },
    /// Free what is in `slot`.
    Free {
        slot: u32,
        cpu: u16,
        order: Order,
    },
    /// The next `members` operations are [`Op::Member`]s of one batch of frees.
    FreeBatch {
        cpu: u16,
        /// How many follow, at most [`FREE_BATCH_MAX`].
        members: u8,
    },
    Member {
        slot: u32,
        order: Order,
    },
    /// Split what is in `slot` into chunks of `to`; the first keeps the slot, the others follow as
    /// [`Op::Piece`]s.
    Split {
        slot: u32,
        from: Order,
        to: Order,
    },
    /// Keep piece number `index` of the chunk just split in `slot`, which is empty.
    Piece {
        slot: u32,
        /// Which piece: 1 is the second.
        index: u32,
    },
    /// The set-up is over and the trace begins: what came before stands for memory in use before
    /// the first event.
    Start,
    /// The periodic work of one CPU is due.
    Tick {
        cpu: u16,
    },
    /// From now on memory is being reclaimed, or no longer.
    Reclaim {
        active: bool,
    },
    /// Look at the state of memory: sample number `index` of the batch's [`Batch::samples`].
    Sample {
        index: u32,
    },
    /// The trace is over: note the state. What follows only gives back what is still live.
    End,
}

/// A moment at which every engine's memory is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplePoint {
    /// When, on the trace's clock.
    pub ts_ns: u64,
    /// Frames that are allocated in the trace at that moment.
    pub live_frames: u64,
}

/// A stretch of the replay, shared by all engines.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub ops: Vec<Op>,
    /// The moments that [`Op::Sample`] refers to.
    pub samples: Vec<SamplePoint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_stays_small() {
        // Millions of them go through the channels; 16 bytes are a quarter of a cache line.
        assert!(size_of::<Op>() <= 16, "{}", size_of::<Op>());
    }
}
