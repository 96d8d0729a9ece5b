//! Several as one: statistics of Freehold's zones, and the frees of a batch of chunks.

use freehold::{Order, Pfn, ZoneStats};

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

/// Frees chunks where single frames have a call for many: those 64 at a time, larger ones each by itself.
#[inline(always)]
pub(crate) fn free_chunks<T, E>(
    to: &mut T,
    chunks: &[(Pfn, Order)],
    one: impl Fn(&mut T, Pfn, Order) -> Result<(), E>,
    bulk: impl Fn(&mut T, &[Pfn]) -> Result<(), E>,
) -> Result<(), E> {
    let mut frames = [Pfn::new(0); 64];
    for part in chunks.chunks(frames.len()) {
        let mut singles = 0;
        for &(pfn, order) in part {
            if order == Order::ZERO {
                frames[singles] = pfn;
                singles += 1;
            } else {
                one(to, pfn, order)?;
            }
        }
        bulk(to, &frames[..singles])?;
    }
    Ok(())
}
