//! Statistics of Freehold's zones, taken together.

use freehold::{WORK_BUCKETS, ZoneStats};

/// Two zones as one, as far as the laboratory asks.
pub(super) fn added(mut sum: ZoneStats, more: ZoneStats) -> ZoneStats {
    let add = |into: &mut [u64], from: &[u64]| into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
    add(&mut sum.blocks_by_type, &more.blocks_by_type);
    add(&mut sum.free_chunks, &more.free_chunks);
    add(&mut sum.lock_work_histogram, &more.lock_work_histogram);
    sum.managed += more.managed;
    sum.free += more.free;
    sum.free_in_cpus += more.free_in_cpus;
    sum.free_blocks += more.free_blocks;
    sum.lock_acquisitions += more.lock_acquisitions;
    sum.lock_work += more.lock_work;
    sum.lock_work_max = sum.lock_work_max.max(more.lock_work_max);
    sum.fallbacks += more.fallbacks;
    sum.mixed += more.mixed;
    sum.splits += more.splits;
    sum
}

/// An upper bound of the steps that 99 % of holds stayed within; bucket b holds `2^(b-1)` to `2^b - 1` steps.
pub(super) fn p99(buckets: &[u64; WORK_BUCKETS], max: u64) -> u64 {
    let holds: u64 = buckets.iter().sum();
    let target = holds - holds / 100;
    let mut seen = 0;
    let bucket = buckets.iter().position(|n| {
        seen += n;
        seen >= target
    });
    bucket.map_or(0, |bucket| ((1u64 << bucket) - 1).min(max))
}
