//! What every design under test looks like to the lab.
//!
//! All calls name the CPU they are made on, so that a replay is deterministic and a simulated
//! machine may have more CPUs than the real one. All take `&self`: engines use real locks.

mod cma;
mod count;

use freehold::{AllocError, CpuId, FreeError, Order, Pfn};
pub use freehold_classic::{ListFlow, Request};
use serde::Serialize;

pub use cma::{CmaBook, CmaCounts};
pub use count::Count;
pub(crate) use count::count;

/// A design under test.
pub trait Engine: Send + Sync {
    /// Ends the set-up: called once, after allocations that stand for memory in use before the
    /// first event. What was counted so far is forgotten.
    fn start(&self) {}

    /// Right behind [`start`](Self::start): what lay on CPUs' lists, and is allocated so far. An
    /// engine with lists puts each chunk on its CPU's list, another frees it to the zone; neither
    /// counts it.
    fn fill_lists(&self, listed: &[Listed]) -> Result<(), FreeError> {
        listed.iter().try_for_each(|of| self.free(of.cpu, of.pfn, of.order))
    }

    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError>;

    /// Frees one chunk with the order it was allocated with or last split to.
    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError>;

    /// Frees a batch of chunks as reclaim and exit do (the kernel's batch of folios, at most 31 of
    /// them): one after the other, where an engine has no call for it.
    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        chunks.iter().try_for_each(|&(pfn, order)| self.free(cpu, pfn, order))
    }

    /// Turns one allocated chunk into `2^(from - to)` chunks that can be freed on their own:
    /// nothing, where an allocated frame carries no order and any part of a chunk can be freed.
    fn split(&self, _pfn: Pfn, _from: Order, _to: Order) -> Result<(), FreeError> {
        Ok(())
    }

    /// The periodic work of one CPU (the kernel's vmstat worker, about once a second), where there
    /// is any.
    fn tick(&self, _cpu: CpuId) {}

    /// Memory is being reclaimed from now on, or no longer (`ZONE_RECLAIM_ACTIVE`): for designs
    /// whose CPUs keep less then.
    fn set_reclaim(&self, _active: bool) {}

    /// The calls to come are recorded ones, those of the kernel's own reclaim among them.
    fn set_recorded(&self) {}

    /// Gives everything that CPUs hold back to the zones.
    fn drain_all(&self);

    /// What has been counted so far.
    fn counters(&self) -> Counters;

    /// The state of free memory now.
    fn memory(&self) -> Memory;

    /// Frames of CMA that are free, wherever they are held. 0 where an engine cannot say.
    ///
    /// Walks all of memory.
    fn free_cma(&self) -> u64 {
        0
    }

    /// Holds of zone locks since [`Engine::start`], by the steps of work done in them: the fewest
    /// and the most steps that an entry stands for, and how many holds. Empty where an engine does
    /// not count them; otherwise they add up to [`Counters::zone_lock_acquisitions`].
    fn zone_lock_holds(&self) -> Vec<[u64; 3]> {
        Vec::new()
    }

    /// Frames between the zone and the CPUs' lists since [`Engine::start`], by list. `None` where
    /// an engine has no lists.
    fn list_flow(&self) -> Option<ListFlow> {
        None
    }

    /// Checks every invariant of the engine's data structures; an error says which frame breaks
    /// which one.
    fn validate(&self) -> Result<(), String>;
}

/// A chunk that lay on the list of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub cpu: CpuId,
    pub pfn: Pfn,
    pub order: Order,
}

/// Totals since the engine was made. `work` is counted in elementary steps done while the zone lock
/// is held: a list link or unlink, a split or merge step, a list looked at, a bitmap word, a block
/// moved. The names of the fields are those of `--json` and stay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    pub allocs: u64,
    pub frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations served from what the CPU held, without the zone lock.
    pub pcp_hits: u64,
    pub zone_lock_acquisitions: u64,
    /// Steps of work done under zone locks.
    pub zone_lock_work: u64,
    /// The most steps in one hold.
    pub zone_lock_work_max: u64,
    /// 99 % of holds did at most this many steps (upper bound of the histogram's bucket).
    pub zone_lock_work_p99: u64,
    /// Writes to cache lines that all CPUs share: what costs the more the more CPUs there are, with
    /// a lock or without.
    ///
    /// The kernel's designs write such lines nowhere but under the zone lock: each acquisition is
    /// one write, and so is each step of [`zone_lock_work`](Self::zone_lock_work) (a link or unlink
    /// of a list, a split or merge, a word of a bitmap, a block moved). Freehold counts its own:
    /// rows of the board and their summaries, words of the bitmap, blocks' classes, counts of free
    /// frames.
    pub shared_writes: u64,
    /// Times the lock of a CPU's lists was taken, by whomever; 0 for designs that have none.
    pub pcp_lock_acquisitions: u64,
    /// Steps of work done under those locks. What is done under the zone lock meanwhile is not in
    /// it.
    pub pcp_lock_work: u64,
    /// Pairs of buddies merged under a zone lock.
    pub merges_zone: u64,
    /// Pairs of buddies merged under a CPU's own lock.
    pub merges_pcp: u64,
    /// Chunks split in two under a zone lock.
    pub splits_zone: u64,
    /// Chunks split in two under a CPU's own lock.
    pub splits_pcp: u64,
    /// Times a CPU went to the zone for more.
    pub refills: u64,
    /// Refills by phase that gave something: recover, claim, fragment, fallback.
    pub refills_by_phase: [u64; 4],
    /// Frames handed by zones to CPUs.
    pub refilled_frames: u64,
    /// Times a CPU gave frames back to the zone.
    pub drains: u64,
    /// Frames given back by CPUs to zones.
    pub drained_frames: u64,
    /// Times all CPUs were drained because a request would have failed; 0 for designs that do not.
    pub drains_of_all: u64,
    /// CPUs that were asked for what a request lacked instead (`least-drain`).
    pub cpus_asked: u64,
    /// Frames freed, but not into what the freeing CPU itself holds: in designs whose blocks have
    /// owners to another CPU's list, in Freehold into a word that the CPU does not lease.
    pub remote_frees: u64,
    pub lists_looked_at: u64,
    /// Allocations that took memory of another migratetype (the kernel's extfrag events).
    pub fallbacks: u64,
}

count! { Counters:
    allocs frees failed pcp_hits zone_lock_acquisitions zone_lock_work zone_lock_work_max
    zone_lock_work_p99 shared_writes pcp_lock_acquisitions pcp_lock_work merges_zone merges_pcp
    splits_zone splits_pcp refills refills_by_phase refilled_frames drains drained_frames
    drains_of_all cpus_asked remote_frees lists_looked_at fallbacks
}

impl Counters {
    /// A total for each 1,000 events, an event being an allocation or a free that was carried out.
    pub fn per_1000_events(&self, total: u64) -> f64 {
        total as f64 * 1000.0 / (self.allocs + self.frees).max(1) as f64
    }
}

/// Free memory at one moment.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Frames in all zones.
    pub managed_frames: u64,
    /// Free frames: in zones, and held by CPUs.
    pub free_frames: u64,
    /// Free frames held by CPUs.
    pub pcp_frames: u64,
    /// Free frames by the largest aligned chunks that free neighbours make, whoever holds them
    /// (index = order, up to order 10): the same quantity of every engine.
    pub free_runs: [u64; 11],
    /// Free chunks by order as the engine has them apart on its lists. Of an engine without lists
    /// of chunks the same as `free_runs`.
    pub free_chunks: [u64; 11],
    /// Pageblocks with no frame in use.
    pub free_blocks: u64,
    /// Pageblocks in which allocations of more than one migratetype live, as far as the engine can
    /// tell.
    pub mixed_blocks: u64,
    /// Pageblocks by migratetype.
    pub blocks_by_type: [u64; 6],
    /// The largest order of which a chunk is free: the kernel's designs have chunks of up to order
    /// 10, Freehold of up to 18.
    pub largest_free_order: Option<u8>,
}

impl Memory {
    /// The share of free memory that cannot serve a request of `order`: the unusable-free-space
    /// index (Gorman and Whitcroft, 2006), 0 when all of it can, 1 when none can, or nothing is
    /// free. By frames that are free next to each other, whoever holds them: what a CPU keeps on
    /// its lists is not lost for being there.
    pub fn unusable_index(&self, order: Order) -> f64 {
        self.unusable(&self.free_runs, order)
    }

    /// The unusable-free-space index by chunks as they lie on the engine's lists: what could be had
    /// without merging anything, which is how the kernel's own index counts.
    pub fn unusable_index_of_lists(&self, order: Order) -> f64 {
        self.unusable(&self.free_chunks, order)
    }

    fn unusable(&self, chunks: &[u64; 11], order: Order) -> f64 {
        // As the kernel has it.
        if self.free_frames == 0 {
            return 1.0;
        }
        let usable: u64 = chunks.iter().enumerate().skip(order.index()).map(|(o, n)| n << o).sum();
        (self.free_frames.saturating_sub(usable)) as f64 / self.free_frames as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_free_nothing_is_usable() {
        assert_eq!(Memory::default().unusable_index(Order::ZERO).to_bits(), 1.0f64.to_bits());
    }
}
