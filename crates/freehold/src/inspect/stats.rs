//! Counters, kept where they are counted: no lock and no cache line is shared for them.
//!
//! Each is written by one party at a time (the CPU under its own lock, or whoever has the zone lock), as a plain load,
//! add and store. Reading them takes no lock: single values are exact at the moment of reading, sums are exact while
//! nothing runs.

use crate::primitive::{AtomicU64, Count, Plain};
use crate::{Migratetype, Order};

/// Orders that allocations are counted by.
pub const ORDERS: usize = Order::MAX.index() + 1;

/// How a CPU came by the next block to lease words of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RefillPhase {
    /// A partly free block of the CPU's own group.
    Recover = 0,
    /// A wholly free block was split.
    Claim = 1,
    /// A partly free block that no group, or another one, held.
    Fragment = 2,
    /// A block of another migratetype was claimed.
    Fallback = 3,
}

pub(crate) struct CpuCounters {
    /// Allocations by migratetype asked for, then by order; four, so that two bits of a type are an index.
    pub(crate) allocs: [[AtomicU64; ORDERS]; 4],
    pub(crate) local_frees: AtomicU64,
    pub(crate) remote_frees: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Allocations that needed more than what the CPU had in hand.
    pub(crate) slow: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) by_phase: [AtomicU64; 4],
    pub(crate) refilled_frames: AtomicU64,
    pub(crate) drains: AtomicU64,
    pub(crate) drained_frames: AtomicU64,
    pub(crate) recalls: AtomicU64,
}

impl CpuCounters {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            allocs: core::array::from_fn(|_| core::array::from_fn(|_| zero())),
            local_frees: zero(),
            remote_frees: zero(),
            failed: zero(),
            slow: zero(),
            refills: zero(),
            by_phase: core::array::from_fn(|_| zero()),
            refilled_frames: zero(),
            drains: zero(),
            drained_frames: zero(),
            recalls: zero(),
        }
    }

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
            drains: self.drains.get(),
            drained_frames: self.drained_frames.get(),
            recalls: self.recalls.get(),
        }
    }
}

/// What one CPU has done since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    /// Allocations by requested migratetype (unmovable, movable, reclaimable), then by order; each frame of a bulk
    /// allocation counts as one of order 0.
    pub allocs: [[u64; ORDERS]; 3],
    /// Frees (calls, or frames of bulk calls) into blocks of this CPU's group, and into its hand.
    pub local_frees: u64,
    /// Frees into other blocks. Frees made while this CPU's state was in use by somebody else
    /// are counted in [`Totals::unattributed_frees`](crate::Totals) only.
    pub remote_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that needed more than what the CPU had in hand.
    pub slow: u64,
    /// Times it went to its group for the next block.
    pub refills: u64,
    /// Refills by phase that gave something; see [`RefillPhase`].
    pub refills_by_phase: [u64; 4],
    /// Free frames of the blocks that it got.
    pub refilled_frames: u64,
    /// Times its ticks gave whole blocks to a zone.
    pub drains: u64,
    /// Free frames given back.
    pub drained_frames: u64,
    /// Times it asked all other CPUs for what they had in hand, since it could not be served otherwise.
    pub recalls: u64,
}

impl CpuStats {
    /// All allocations.
    #[must_use]
    pub fn total_allocs(&self) -> u64 {
        self.allocs.iter().flatten().sum()
    }
}

/// Buckets of the histogram of work per hold: bucket b counts holds of `2^(b-1)` to `2^b - 1` steps, bucket 0 those
/// of none.
pub const WORK_BUCKETS: usize = 20;

pub(crate) struct ZoneCounters {
    pub(crate) acquisitions: AtomicU64,
    pub(crate) work: AtomicU64,
    pub(crate) work_max: AtomicU64,
    pub(crate) work_histogram: [AtomicU64; WORK_BUCKETS],
    pub(crate) fallbacks: AtomicU64,
    pub(crate) mixed: AtomicU64,
    pub(crate) splits: AtomicU64,
}

impl ZoneCounters {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            acquisitions: zero(),
            work: zero(),
            work_max: zero(),
            work_histogram: core::array::from_fn(|_| zero()),
            fallbacks: zero(),
            mixed: zero(),
            splits: zero(),
        }
    }

    /// One hold of the lock has ended.
    pub(crate) fn hold(&self, steps: u64) {
        self.acquisitions.add(1);
        self.work.add(steps);
        if steps > self.work_max.get() {
            self.work_max.set(steps);
        }
        let bucket = (64 - steps.leading_zeros() as usize).min(WORK_BUCKETS - 1);
        self.work_histogram[bucket].add(1);
    }
}

/// The state and the history of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// Frames there are.
    pub managed: u64,
    /// Frames free, wherever they are: in the zone, in groups, in CPUs' hands.
    pub free: u64,
    /// Of these, in the zone's own blocks.
    pub free_in_zone: u64,
    /// Of these, in groups' blocks.
    pub free_in_groups: u64,
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
    /// Blocks of the zone itself, isolations included.
    pub blocks_in_zone: u64,
    /// Blocks of groups.
    pub blocks_in_groups: u64,
    /// Whole blocks that CPUs keep.
    pub blocks_in_cpus: u64,
    /// Blocks of which no frame is in use, wherever they are held.
    pub free_blocks: u64,
    /// Blocks by largest free order: index 0 = nothing free, k = order k - 1.
    pub blocks_by_largest_order: [u64; 11],
    /// The fewest naturally aligned chunks that the free frames form, by order up to 18, wherever they are held.
    pub free_chunks: [u64; ORDERS],
    /// Times the zone lock was taken.
    pub lock_acquisitions: u64,
    /// Times the locks of its groups were taken.
    pub group_lock_acquisitions: u64,
    /// Steps of work done under it: list links and unlinks, bitmap words, blocks moved, lists looked at.
    pub lock_work: u64,
    /// The most steps in one hold.
    pub lock_work_max: u64,
    /// Holds by steps; see [`WORK_BUCKETS`].
    pub lock_work_histogram: [u64; WORK_BUCKETS],
    /// Allocations that fell back to another migratetype.
    pub fallbacks: u64,
    /// Of these, allocations placed inside a block that kept its other type.
    pub mixed: u64,
    /// Chunks taken out of larger free runs under the lock.
    pub splits: u64,
}

impl ZoneStats {
    /// The share of free memory that cannot serve a request of `order`, in thousandths: the unusable-free-space index
    /// (Gorman and Whitcroft, 2006). 0 when all of it can, or when nothing is free.
    #[must_use]
    pub fn unusable_permille(&self, order: Order) -> u64 {
        if self.free == 0 {
            return 0;
        }
        let usable: u64 = self.free_chunks.iter().enumerate().skip(order.index()).map(|(o, n)| n << o).sum();
        self.free.saturating_sub(usable) * 1000 / self.free
    }

    /// The largest order of which a chunk is free, wherever it is held.
    #[must_use]
    pub fn largest_free_order(&self) -> Option<Order> {
        let order = self.free_chunks.iter().rposition(|&n| n > 0)?;
        Order::new(order as u8)
    }

    /// An upper bound of the steps that 99 % of holds stayed within.
    #[must_use]
    pub fn lock_work_p99(&self) -> u64 {
        let target = self.lock_acquisitions - self.lock_acquisitions / 100;
        let mut seen = 0;
        for (bucket, n) in self.lock_work_histogram.iter().enumerate() {
            seen += n;
            if seen >= target {
                return ((1u64 << bucket) - 1).min(self.lock_work_max);
            }
        }
        self.lock_work_max
    }
}
