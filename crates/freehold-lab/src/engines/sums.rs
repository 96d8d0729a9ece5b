//! Several as one: statistics of Freehold's zones, and the frees of a batch of chunks.

use freehold::{Order, Pfn, ZoneBlocks, ZoneStats};

use crate::engine::Count;

/// Two zones as one, as far as the laboratory asks.
pub(super) fn added(mut sum: ZoneStats, more: ZoneStats) -> ZoneStats {
    macro_rules! add {
        ($($field:ident)+) => { $(sum.$field.add(&more.$field);)+ };
    }
    add!(managed free free_in_cpus fallbacks mixed);
    sum
}

/// The blocks of two zones as those of one.
pub(super) fn added_blocks(mut sum: ZoneBlocks, more: ZoneBlocks) -> ZoneBlocks {
    sum.blocks_by_type.add(&more.blocks_by_type);
    sum.free_chunks.add(&more.free_chunks);
    sum.free_blocks.add(&more.free_blocks);
    sum
}

/// Frees chunks where single frames have a call for many: those 64 at a time, larger ones each by
/// itself.
#[inline(always)]
pub(super) fn free_chunks<T, E>(
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
