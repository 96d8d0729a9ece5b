//! What CPUs and zones have counted, read without a lock: single values are exact at the moment of
//! reading, sums are exact while nothing runs.

use crate::cpu::counters::CpuCounters;
use crate::primitive::Relaxed;
use crate::{Migratetype, ORDERS, Order};

impl CpuCounters {
    /// As they are now.
    pub(crate) fn read(&self) -> CpuStats {
        CpuStats {
            allocs: core::array::from_fn(|t| core::array::from_fn(|o| self.allocs[t][o].get())),
            local_frees: self.local_frees.get(),
            remote_frees: self.remote_frees.get(),
            failed: self.failed.get(),
            slow: self.slow.get(),
            refills: self.refills.get(),
            refills_by_phase: core::array::from_fn(|p| self.by_phase[p].get()),
            refilled_frames: self.refilled_frames.get(),
            recalls: self.recalls.get(),
            shared_writes: self.shared_writes.get(),
        }
    }
}

/// What one CPU has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    /// Allocations by requested migratetype (unmovable, movable, reclaimable), then by order; each
    /// frame of a bulk allocation counts as one of order 0.
    pub allocs: [[u64; ORDERS]; 3],
    /// Frees (calls, or frames of bulk calls) into words that this CPU leases.
    pub local_frees: u64,
    /// Other frees. Frees made while this CPU's state was in use by somebody else
    /// are counted in [`Totals::unattributed_frees`](crate::Totals) only.
    pub remote_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that needed more than what the CPU had in hand.
    pub slow: u64,
    /// Times it looked for the next block.
    pub refills: u64,
    /// Refills by phase that gave something; see [`RefillPhase`](crate::RefillPhase).
    pub refills_by_phase: [u64; 3],
    /// Frames of the words that it leased.
    pub refilled_frames: u64,
    /// Times it asked all other CPUs for what they had in hand, since it could not be served
    /// otherwise.
    pub recalls: u64,
    /// Writes to memory that all CPUs of a zone write: rows of the board and their summaries, words
    /// of the bitmap of whole blocks, blocks' classes, counts of free frames.
    pub shared_writes: u64,
}

impl CpuStats {
    /// All allocations.
    #[must_use]
    pub fn total_allocs(&self) -> u64 {
        self.allocs.iter().flatten().sum()
    }
}

/// The state and the history of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// Frames there are.
    pub managed: u64,
    /// Frames free, wherever they are: in the zone and in CPUs' hands.
    pub free: u64,
    /// Of these, in nobody's hand.
    pub free_in_zone: u64,
    /// Of these, in CPUs' hands: in words that they lease, and in whole blocks that they keep.
    pub free_in_cpus: u64,
    /// Free frames in CMA blocks.
    pub free_cma: u64,
    /// Free frames in HIGHATOMIC blocks.
    pub free_high_atomic: u64,
    /// Watermarks now, in frames: min, low, high.
    pub watermarks: [u64; 3],
    /// Blocks by migratetype (isolated ones count as [`Migratetype::Isolate`]).
    pub blocks_by_type: [u64; Migratetype::ALL.len()],
    /// Whole blocks that CPUs keep.
    pub blocks_in_cpus: u64,
    /// Blocks of which no frame is in use, wherever they are held.
    pub free_blocks: u64,
    /// Blocks by largest free order: index 0 = nothing free, k = order k - 1.
    pub blocks_by_largest_order: [u64; 11],
    /// The fewest naturally aligned chunks that the free frames form, by order up to 18, wherever
    /// they are held.
    pub free_chunks: [u64; ORDERS],
    /// Allocations that fell back to another migratetype.
    pub fallbacks: u64,
    /// Of these, allocations placed inside a block that kept its other type.
    pub mixed: u64,
    /// Writes to memory that all CPUs of the zone write, made in no CPU's state; see
    /// [`CpuStats::shared_writes`].
    pub shared_writes: u64,
}

impl ZoneStats {
    /// The share of free memory that cannot serve a request of `order`, in thousandths: the
    /// unusable-free-space index (Gorman and Whitcroft, 2006). 0 when all of it can, or when
    /// nothing is free.
    #[must_use]
    pub fn unusable_permille(&self, order: Order) -> u64 {
        if self.free == 0 {
            return 0;
        }
        let usable: u64 =
            self.free_chunks.iter().enumerate().skip(order.index()).map(|(o, n)| n << o).sum();
        self.free.saturating_sub(usable) * 1000 / self.free
    }

    /// The largest order of which a chunk is free, wherever it is held.
    #[must_use]
    pub fn largest_free_order(&self) -> Option<Order> {
        let order = self.free_chunks.iter().rposition(|&n| n > 0)?;
        Order::new(order as u8)
    }
}
