//! What a traced allocation asks an engine for.

use freehold::{AllocFlags, Migratetype, Order};
use freehold_trace::gfp;

/// The type and flags of a request, from the type the event names and its GFP flags.
///
/// The event's own type wins: it is what the kernel made of the flags (mobility grouping can be off, for one). Where it
/// names none that a request may have (255 = not recorded), the flags decide.
#[inline]
pub(super) fn decode(order: Order, migratetype: u8, gfp_flags: u32) -> (Migratetype, AllocFlags) {
    let migratetype =
        Migratetype::PCP.get(usize::from(migratetype)).copied().unwrap_or_else(|| gfp::migratetype(gfp_flags));
    let mut flags = gfp::alloc_flags(gfp_flags, order);
    flags.set(AllocFlags::CMA, migratetype == Migratetype::Movable);
    (migratetype, flags)
}
