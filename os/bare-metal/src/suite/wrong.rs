//! Frees that are wrong: each is refused with the right reason, and changes nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FrameRange, FreeError, Migratetype, Order, Pfn, Request};

use super::{Failure, Machine, Team, holds, succeeds};

pub(super) fn refused<M: Machine>(machine: &M) -> Result<(), Failure> {
    let order = Order::COSTLY;
    let chunk = AtomicU64::new(0);
    Team::run(machine, |member| {
        if member.cpu == 0 {
            let pfn = member.frames.alloc(Request::new(order, Migratetype::Movable));
            // Relaxed: the meeting orders it.
            chunk.store(succeeds(machine, "no chunk", pfn)?.get(), Ordering::Relaxed);
        }
        for i in 0..order.frames() {
            member.meet()?;
            let pfn = Pfn::new(chunk.load(Ordering::Relaxed) + i);
            // The first free is made by the CPU that may lease the frame's word. It is visible
            // where it is made, so whoever comes second is told, wherever it is.
            if member.cpu == 0 {
                succeeds(machine, "a frame cannot be freed", member.frames.free(pfn, Order::ZERO))?;
                // Ends this CPU's leases: the word alone says that the frame is free.
                succeeds(machine, "leases end", member.frames.flush())?;
            }
            member.meet()?;
            let again = member.frames.free(pfn, Order::ZERO);
            holds("a second free is refused", again == Err(FreeError::DoubleFree { pfn }))?;
        }
        Ok(())
    })?;
    let freehold = machine.freehold();
    let chunk = Pfn::new(chunk.into_inner());
    let none = Pfn::new(1 << 39);
    holds(
        "no such frame",
        matches!(freehold.here().free(none, Order::ZERO), Err(FreeError::OutOfZone { .. })),
    )?;
    let range = FrameRange { start: chunk, end: chunk };
    holds("no frames", freehold.here().free_range(range) == Err(FreeError::ZeroLength))?;
    let odd = Pfn::new(chunk.get() + 1);
    holds(
        "misaligned",
        matches!(freehold.here().free(odd, order), Err(FreeError::Misaligned { .. })),
    )
}
