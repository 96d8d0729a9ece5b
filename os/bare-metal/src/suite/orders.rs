//! Every order, on every CPU: aligned, disjoint, and back.

use freehold::{AllocError, Migratetype, Order, Pfn, Request};

use super::{Chain, Failure, Machine, Team, chain, holds, succeeds};

pub(super) fn every_order<M: Machine>(machine: &M) -> Result<(), Failure> {
    Team::run(machine, |member| {
        let whose = member.cpu as u64;
        for round in 0..3u64 {
            for migratetype in Migratetype::PCP {
                for order in (0..=Order::PAGEBLOCK.get()).filter_map(Order::new) {
                    let pfn = member.frames.alloc(Request::new(order, migratetype));
                    let pfn = succeeds(machine, "a chunk is not to be had", pfn)?;
                    holds("a chunk is aligned", pfn.is_aligned(order))?;
                    super::stamped(machine, pfn, order, whose << 8 | round);
                    // All CPUs have theirs now, so that no two may be the same.
                    member.meet()?;
                    chain::check(machine, pfn, order, whose << 8 | round)?;
                    succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
                }
            }
        }
        Ok(())
    })
}

pub(super) fn large<M: Machine>(machine: &M) -> Result<(), Failure> {
    let freehold = machine.freehold();
    let most = (0..freehold.zone_count())
        .filter_map(|zone| freehold.zone_stats(zone)?.largest_free_order())
        .max();
    let most = most.unwrap_or(Order::ZERO);
    let mut got = 0;
    for order in (Order::PAGEBLOCK.get()..=Order::MAX.get()).filter_map(Order::new) {
        match freehold.here().alloc(Request::new(order, Migratetype::Movable)) {
            Ok(pfn) => {
                holds("a chunk is aligned", pfn.is_aligned(order))?;
                super::stamped(machine, pfn, order, 7);
                chain::check(machine, pfn, order, 7)?;
                succeeds(machine, "a chunk cannot be freed", freehold.here().free(pfn, order))?;
                got = order.get();
            }
            // The watermarks may keep the largest back.
            Err(AllocError::NoMemory { .. }) => {
                holds("an order that is free was refused", order >= most)?
            }
            Err(error) => {
                succeeds::<(), _>(machine, "an order was refused", Err(error))?;
            }
        }
    }
    machine.print(format_args!("    the largest chunk: order {got}"));
    Ok(())
}

pub(super) fn low<M: Machine>(machine: &M) -> Result<(), Failure> {
    let limit = Pfn::new((16 << 20) / freehold::FRAME_SIZE);
    let freehold = machine.freehold();
    if freehold.zone_of(Pfn::new(limit.get() - 1)).is_none() {
        machine.print(format_args!("    there is no memory below 16 MiB: nothing to test"));
        return Ok(());
    }
    Team::run(machine, |member| {
        let mut mine = Chain::EMPTY;
        for order in [0, 1, 3].into_iter().filter_map(Order::new) {
            for _ in 0..8 {
                let pfn =
                    member.frames.alloc(Request::new(order, Migratetype::Unmovable).below(limit));
                let pfn = succeeds(machine, "low memory is not to be had", pfn)?;
                holds("low memory is low", pfn.get() + order.frames() <= limit.get())?;
                mine.push(machine, pfn, order, member.cpu as u64);
            }
        }
        while let Some((pfn, order, _)) = mine.pop(machine)? {
            succeeds(machine, "a chunk cannot be freed", member.frames.free(pfn, order))?;
        }
        Ok(())
    })
}
