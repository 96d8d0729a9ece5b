//! How often each of an engine's ways was taken: what says where its calls go, beside what they
//! cost.

use serde::{Deserialize, Serialize};

use super::count;

/// Freehold's ways, since [`Engine::start`](super::Engine::start).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Paths {
    /// Allocations served from what the CPU had in hand: no look at anybody else's.
    pub alloc_in_hand: u64,
    /// Allocations for which the CPU needed more than that.
    pub alloc_slow: u64,
    /// Times it looked for the next block.
    pub refills: u64,
    /// Of these, answered by a partly free block.
    pub refill_partly_free: u64,
    /// By a wholly free block that was split.
    pub refill_whole_block: u64,
    /// By a block of another migratetype.
    pub refill_other_type: u64,
    /// Times all CPUs were asked for what they had in hand.
    pub recalls: u64,
    /// Frees into words that the CPU leases.
    pub free_in_hand: u64,
    /// Other frees.
    pub free_elsewhere: u64,
    /// Frees that found the CPU's own state in use, as in an interrupt.
    pub free_state_in_use: u64,
    /// Writes to memory that all CPUs share.
    pub shared_writes: u64,
    /// Times every CPU was made to pass a memory barrier because somebody reached into a CPU's
    /// state; 0 where CPUs are not owned, because then nobody needs it.
    pub heavy_barriers: u64,
}

count! { Paths:
    alloc_in_hand alloc_slow refills refill_partly_free refill_whole_block refill_other_type recalls
    free_in_hand free_elsewhere free_state_in_use shared_writes heavy_barriers
}
