//! Tests that need the inside of the crate, and what they are made with.

#[cfg(not(loom))]
mod before_failing_tests;
#[cfg(not(loom))]
mod bounds_tests;
#[cfg(not(loom))]
mod evacuation;
#[cfg(not(loom))]
mod freed_twice;
#[cfg(loom)]
mod loom_orderings;
#[cfg(loom)]
mod loom_pairs;
#[cfg(loom)]
pub(crate) mod loom_tests;
#[cfg(loom)]
mod loom_wrong_frees;
#[cfg(not(loom))]
mod lost_races;
#[cfg(not(loom))]
mod nested_stops;
#[cfg(not(loom))]
pub(crate) mod steps;
#[cfg(not(loom))]
pub(crate) mod testing;

use crate::primitive::Relaxed;
use crate::{FrameRange, Migratetype, Order, Pfn, Request};

/// So many frames from that one on.
pub(crate) fn frames_at(start: u64, count: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), count).unwrap()
}

/// An order that there is.
pub(crate) fn of_order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A request for a movable chunk.
pub(crate) fn movable(order: u8) -> Request {
    Request::new(of_order(order), Migratetype::Movable)
}

impl<P: crate::Platform> crate::Freehold<'_, P> {
    /// Has each CPU lease two words however little memory there is, as on larger machines.
    fn lease_as_on_large_machines(&self) {
        for cpu in self.cpus {
            let limit = u64::from(cpu.leases.limit.get().max(2));
            cpu.leases.set_limits(limit, limit);
        }
    }
}
