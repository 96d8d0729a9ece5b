//! How often each of an engine's ways was taken: what says where its calls go, beside what they
//! cost.

use serde::{Deserialize, Serialize};

use super::count;

/// Freehold's ways, since [`Engine::start`](super::Engine::start).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Paths {
    /// Allocations served from what the CPU had in hand: no lock, no look at anybody else's.
    pub alloc_in_hand: u64,
    /// Allocations for which the CPU needed more than that.
    pub alloc_slow: u64,
    /// Times it went to its group for the next block.
    pub refills: u64,
    /// Of these, answered by a partly free block of the group's own.
    pub refill_own_group: u64,
    /// By a wholly free block that was split.
    pub refill_whole_block: u64,
    /// By a partly free block of another group, or of none.
    pub refill_other_group: u64,
    /// By a block of another migratetype.
    pub refill_other_type: u64,
    /// Times all CPUs were asked for what they had in hand.
    pub recalls: u64,
    /// Frees into the CPU's hand or its own group's blocks.
    pub free_own_group: u64,
    /// Frees into other blocks.
    pub free_other_group: u64,
    /// Frees that found the CPU's own state in use, as in an interrupt.
    pub free_state_in_use: u64,
    /// Times a CPU's periodic work gave whole blocks to the zone.
    pub drains: u64,
    /// Times a group's lock was taken.
    pub group_locks: u64,
    /// Times the zone lock was taken.
    pub zone_locks: u64,
    /// Times every CPU was made to pass a memory barrier because somebody reached into a CPU's
    /// state; 0 where CPUs are not owned, because then nobody needs it.
    pub heavy_barriers: u64,
}

count! { Paths:
    alloc_in_hand alloc_slow refills refill_own_group refill_whole_block refill_other_group refill_other_type recalls
    free_own_group free_other_group free_state_in_use drains group_locks zone_locks heavy_barriers
}

impl Paths {
    /// All of them as text, count, and the count that this one is a part of where there is one, in
    /// the order in which a call may take them.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64, Option<u64>); 15] {
        let allocs = Some(self.alloc_in_hand + self.alloc_slow);
        let refills = Some(self.refills);
        let frees = Some(self.free_own_group + self.free_other_group + self.free_state_in_use);
        [
            ("allocations from the CPU's hand", self.alloc_in_hand, allocs),
            ("allocations that needed more", self.alloc_slow, allocs),
            ("looks for the next block", self.refills, None),
            ("  the group's own, partly free", self.refill_own_group, refills),
            ("  a wholly free block, split", self.refill_whole_block, refills),
            ("  another group's, or nobody's", self.refill_other_group, refills),
            ("  of another migratetype", self.refill_other_type, refills),
            ("all CPUs asked for what they hold", self.recalls, None),
            ("frees to the hand or own group", self.free_own_group, frees),
            ("frees to other blocks", self.free_other_group, frees),
            ("frees while the state was in use", self.free_state_in_use, frees),
            ("ticks that gave blocks back", self.drains, None),
            ("group locks", self.group_locks, None),
            ("zone locks", self.zone_locks, None),
            ("heavy barriers", self.heavy_barriers, None),
        ]
    }
}
