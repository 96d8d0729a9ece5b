//! What an arena tells about itself: a snapshot of counters.

use freehold::Order;

/// Orders that a chunk can have.
const ORDERS: usize = Order::MAX.get() as usize + 1;

/// A snapshot: each number is exact, but they may be of slightly different moments while others
/// work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Frames there are.
    pub frames: u64,
    /// Frames in use. Exact while nothing runs; a pass counts those it has in hand.
    pub frames_used: u64,
    /// Frames that are free, wherever they are held.
    pub frames_free: u64,
    /// Blocks there are.
    pub blocks: u64,
    /// Blocks of which frames were handed out since they last came from the OS: at most these are
    /// backed by memory. [`Arena::frames_in_memory`](crate::Arena::frames_in_memory) asks the
    /// kernel for the exact number of frames.
    pub blocks_resident: u64,
    /// Blocks given back to the OS so far, each time counted.
    pub blocks_released: u64,
    /// Frames given back out of blocks in use so far, each time counted.
    pub frames_released: u64,
    /// Bytes given back to the OS so far.
    pub bytes_released: u64,
    /// System calls that took.
    pub release_calls: u64,
    /// Runs of blocks that the kernel refused to take back (locked memory).
    pub release_refused: u64,
    /// Blocks that a [`pass`](crate::Arena::pass) had the kernel put into one huge page again.
    pub blocks_collapsed: u64,
    /// Passes made, by [`trim`](crate::Arena::trim) or [`pass`](crate::Arena::pass).
    pub passes: u64,
    /// Exclusive slots there are.
    pub slots: u64,
    /// Of these, taken by living threads.
    pub slots_taken: u64,
    /// Threads that share slots.
    pub threads_sharing: u64,
    /// Bytes of metadata: the allocator's, and the notes on what is resident and zero.
    pub metadata_bytes: u64,
    /// Handles whose frames had been freed behind their back by a raw call: a defect of the
    /// program.
    pub refused_drops: u64,
    /// Double frees that only showed after the second call had returned: a defect of the program.
    pub late_double_frees: u64,
    /// Threads use the biased lock: the kernel has `membarrier(2)` and
    /// [`Lock::Ordinary`](crate::Lock) was not asked for.
    pub biased: bool,
    /// Allocations so far by order; each frame of a bulk allocation counts as one of order
    /// 0, and a number of frames that is no power of two as the next larger one.
    pub allocations_by_order: [u64; ORDERS],
}
