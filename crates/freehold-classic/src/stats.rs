//! Everything that is counted, and where.
//!
//! Counters live beside what they count, under the lock that is held anyway: counting costs a plain
//! addition and adds no shared cache line that the kernel's design would not have.

use freehold::Order;

/// How many steps were done in each hold of a zone lock: exact up to 63, then in buckets of 1/16 of
/// a power of two.
#[derive(Clone, Debug)]
pub struct WorkHistogram {
    buckets: [u64; Self::BUCKETS],
    holds: u64,
    total: u64,
    max: u64,
}

impl WorkHistogram {
    // 64 exact ones, then 16 for each power of two from 2^6 to 2^31.
    const BUCKETS: usize = 64 + 16 * 26;

    pub(crate) const fn new() -> Self {
        Self { buckets: [0; Self::BUCKETS], holds: 0, total: 0, max: 0 }
    }

    fn bucket(work: u64) -> usize {
        if work < 64 {
            return work as usize;
        }
        let work = work.min(u64::from(u32::MAX));
        let log = work.ilog2();
        64 + 16 * (log - 6) as usize + (work >> (log - 4) & 15) as usize
    }

    /// The largest value that falls into `bucket`.
    fn upper(bucket: usize) -> u64 {
        if bucket < 64 {
            return bucket as u64;
        }
        let (log, part) = (6 + (bucket - 64) as u32 / 16, (bucket - 64) as u64 % 16);
        (((16 + part + 1) << (log - 4)) - 1).max(64)
    }

    #[inline]
    pub(crate) fn record(&mut self, work: u64) {
        self.buckets[Self::bucket(work)] += 1;
        self.holds += 1;
        self.total += work;
        self.max = self.max.max(work);
    }

    /// The buckets with holds in them, by rising steps: the least and the most steps that fall into
    /// it, and the holds.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, holds)| **holds > 0);
        filled.map(|(bucket, &holds)| {
            let least = bucket.checked_sub(1).map_or(0, |below| Self::upper(below) + 1);
            (least, Self::upper(bucket).min(self.max), holds)
        })
    }

    /// How many holds there were.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// Steps in all of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most steps in one hold.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The number of steps that a share `quantile` (0 to 1) of holds did not exceed; within 1/16 of
    /// the exact value.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let wanted = ((self.holds as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &holds) in self.buckets.iter().enumerate() {
            seen += holds;
            if seen >= wanted {
                return Self::upper(bucket).min(self.max);
            }
        }
        self.max
    }
}

impl Default for WorkHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Counted under a zone lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCounters {
    /// Chunks allocated straight from the zone.
    pub allocs: u64,
    /// Chunks freed straight to the zone.
    pub frees: u64,
    /// Chunks that requests and refills took off the zone's lists, recovered ones not included.
    pub taken_chunks: u64,
    /// Pairs of buddies merged.
    pub merges: u64,
    /// Chunks split in two.
    pub splits: u64,
    /// Frames that left the zone for movable requests, where the zone has CMA; recovered ones
    /// included.
    pub movable_frames: u64,
    /// Of those, frames of CMA pageblocks.
    pub cma_frames: u64,
    /// Lists looked at while searching.
    pub lists_looked_at: u64,
    /// Requests served from another migratetype: the kernel's `mm_page_alloc_extfrag` events.
    pub fallbacks: u64,
    /// Fallbacks that made a whole pageblock change its type.
    pub claims: u64,
    /// Fallbacks that took single chunks out of foreign blocks.
    pub steals: u64,
    /// Pageblocks turned into HIGHATOMIC reserves.
    pub high_atomic_reserves: u64,
    /// Reserves given back.
    pub high_atomic_unreserves: u64,
    /// Times a fallback into part of a pageblock boosted the watermarks.
    pub boosts: u64,
}

macro_rules! counters {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        $vis struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Counted under a PCP lock.
    pub struct PcpCounters {
        /// Chunks allocated through the PCP.
        allocs,
        /// Of those, served without going to the zone.
        hits,
        /// Chunks freed to the PCP.
        frees,
        /// Of those, freed by another CPU.
        remote_frees,
        /// Times the PCP went to the zone for more.
        refills,
        /// Refills in which phase 0 (recover) gave something.
        refills_recover,
        /// Refills in which phase 1 (claim) gave something.
        refills_claim,
        /// Refills in which phase 2 (fragment) gave something.
        refills_fragment,
        /// Refills in which phase 3 (fallback; all there is before pcp-buddy) gave something.
        refills_fallback,
        /// Frames that refills brought.
        refilled_frames,
        /// Times the PCP gave frames back: bulk frees, each one hold of the zone lock.
        drains,
        /// Chunks given back: the kernel's `mm_page_pcpu_drain` events.
        drained_chunks,
        /// Their frames.
        drained_frames,
        /// Of those, whole pageblocks.
        drained_blocks,
        /// Lists looked at while choosing what to give back.
        lists_looked_at,
        /// Chunks moved to a second list before they were given back (before `single-pass`).
        second_list_moves,
        /// Buddies prefetched during bulk free.
        prefetches,
        /// Of those, frames that are no buddy of the chunk freed (before `right-buddy-prefetch`).
        wrong_prefetches,
        /// Pairs of buddies merged.
        merges,
        /// List entries looked at by the merge pass.
        merge_steps,
        /// Chunks split in two.
        splits,
        /// Times high-order pages had to leave at once.
        free_high,
        /// Chunks absorbed from the list of remote frees.
        absorbed,
        /// Whole pageblocks taken from another CPU (`peer-blocks`).
        peer_blocks,
        /// CPUs asked for one.
        peers_asked,
        /// Times the PCP lock was taken, by whomever.
        lock_holds,
        /// Steps done in those holds: a list link or unlink, a list looked at, an entry looked at
        /// by a merge pass. What is done under the zone lock meanwhile is counted there.
        lock_steps,
    }
}

/// Frames that went between the zone and a CPU's lists, by order and type of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListFlow {
    /// Brought by refills.
    pub refilled: [[u64; 3]; 11],
    /// Given back by drains.
    pub drained: [[u64; 3]; 11],
}

impl ListFlow {
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [(&mut self.refilled, &other.refilled), (&mut self.drained, &other.drained)];
        for (mine, theirs) in pairs {
            mine.iter_mut().flatten().zip(theirs.iter().flatten()).for_each(|(a, b)| *a += b);
        }
    }

    /// Counts a chunk; of what is no type that requests have, nothing.
    #[inline]
    pub(crate) fn count(table: &mut [[u64; 3]; 11], order: u8, migratetype: usize) {
        if let Some(frames) =
            table.get_mut(usize::from(order)).and_then(|types| types.get_mut(migratetype))
        {
            *frames += 1 << order;
        }
    }
}

/// What has been done under a zone's lock and under one CPU's lock in it. Totals: subtract two of
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Holds of the zone lock, by anybody.
    pub zone_holds: u64,
    /// Steps done in them.
    pub zone_steps: u64,
    /// List entries that the CPU's merge passes looked at, under its PCP lock.
    pub pcp_merge_steps: u64,
    /// Chunks merged, split or absorbed from the list of remote frees under the PCP lock.
    pub pcp_changes: u64,
    /// Frames that refills brought.
    pub refilled_frames: u64,
}

/// Totals of an allocator, taken at one moment; exact when nobody else is using it.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Under the zone's lock.
    pub zone: ZoneCounters,
    /// Under the CPUs' locks.
    pub pcp: PcpCounters,
    /// Between the zones and the CPUs' lists, by list.
    pub flow: ListFlow,
    /// Work per hold of a zone lock; its count of holds is the number of acquisitions.
    pub zone_lock: WorkHistogram,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees whose frame was kept because others held references.
    pub kept: u64,
    /// Times a PCP lock was busy, so that the call went to the zone.
    pub pcp_busy: u64,
    /// Waits of a free for the PCP lock of another CPU (pcp-buddy as posted): a CPU behind another
    /// one's work, which may itself be waiting for the zone.
    pub remote_pcp_waits: u64,
    /// Drain-all rounds, each visiting every CPU.
    pub drain_all: u64,
    /// CPUs visited to empty their PCPs because a range was being isolated.
    pub range_visits: u64,
    /// CPUs that gave back what a request lacked (`least-drain`).
    pub cpus_asked: u64,
}

/// Free and used memory at one moment, by a walk over all frames; exact when nobody else is using
/// the allocator.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    /// Frames in all zones, holes not included.
    pub managed: u64,
    /// Frames free anywhere.
    pub free: u64,
    /// Of those, held by CPUs (their lists, and what waits for them).
    pub on_pcp: u64,
    /// Free chunks by order, wherever they are, as they are (not merged in thought).
    pub chunks: [u64; 11],
    /// Those frames by the largest aligned chunks that free neighbours make, on the lists of
    /// whichever CPUs they are: merged in thought. What lies on a CPU's list beside a free buddy
    /// counts here as what the two would be.
    pub runs: [u64; 11],
    /// Free chunks by order on the zones' lists.
    pub zone_chunks: [u64; 11],
    /// Pageblocks of which every frame is free.
    pub free_blocks: u64,
    /// Pageblocks in which chunks of more than one requested type are in use.
    pub mixed_blocks: u64,
    /// Pageblocks by their type ([`Migratetype::index`](freehold::Migratetype::index)).
    pub blocks_by_type: [u64; 6],
    /// Pageblocks by owner: index 0 the zone, CPU `c` at `c + 1`.
    pub blocks_by_owner: Vec<u64>,
}

impl MemoryMap {
    /// Counts the free frames from `start` to before `end`, next to which nothing is free, as the
    /// largest aligned chunks.
    pub(crate) fn add_run(&mut self, mut start: u64, end: u64) {
        while start < end {
            let order =
                start.trailing_zeros().min((end - start).ilog2()).min(self.runs.len() as u32 - 1);
            self.runs[order as usize] += 1;
            start += 1 << order;
        }
    }

    /// The largest order of which a chunk is free.
    #[must_use]
    pub fn largest_free_order(&self) -> Option<Order> {
        self.chunks.iter().rposition(|&chunks| chunks > 0).and_then(|order| Order::new(order as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_when_small_and_close_when_large() {
        let mut histogram = WorkHistogram::new();
        (1..=50).for_each(|work| histogram.record(work));
        assert_eq!(histogram.quantile(0.5), 25);
        assert_eq!(histogram.quantile(1.0), 50);
        (0..10_000).for_each(|_| histogram.record(1000));
        let p99 = histogram.quantile(0.99);
        assert!((1000..1064).contains(&p99), "{p99}");
        assert_eq!(
            (histogram.max(), histogram.holds(), histogram.total()),
            (1000, 10_050, 1275 + 10_000_000)
        );
    }

    #[test]
    fn buckets_hold_every_value_once() {
        let mut histogram = WorkHistogram::new();
        let values = [0, 1, 63, 64, 67, 68, 1000, 1 << 20];
        values.iter().for_each(|&work| histogram.record(work));
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets.iter().map(|(_, _, holds)| holds).sum::<u64>(), values.len() as u64);
        for work in values {
            assert_eq!(
                buckets.iter().filter(|(from, to, _)| (from..=to).contains(&&work)).count(),
                1,
                "{work}"
            );
        }
        assert_eq!(buckets[3], (64, 67, 2), "the first bucket of more than one value");
    }
}
