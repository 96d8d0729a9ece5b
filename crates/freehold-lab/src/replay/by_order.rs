//! The counts of a replay by order and migratetype. The names of the fields are those of `--json`
//! and stay.

use freehold::{Migratetype, Order};
use serde::Serialize;

use crate::engine::{ListFlow, Memory};
use crate::one_line::one_line;

/// A list for each order from 0 to 10, in it a number for each migratetype that requests have:
/// unmovable, movable, reclaimable.
pub(super) type Table = [[u64; 3]; 11];

/// Adds one to the entry of a request.
#[inline]
pub(super) fn count(table: &mut Table, order: Order, migratetype: Migratetype) {
    if let Some(entry) =
        table.get_mut(order.index()).and_then(|types| types.get_mut(migratetype.index()))
    {
        *entry += 1;
    }
}

/// What one engine did, by order and migratetype, until the end of the trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ByOrder {
    /// Chunks allocated, by what was asked for. They add up to the engine's `allocs`.
    #[serde(serialize_with = "one_line")]
    pub allocs: Table,
    /// Frames that refills brought to the CPUs' lists, by list; null where an engine has no lists.
    #[serde(serialize_with = "one_line")]
    pub refilled_frames: Option<Table>,
    /// Frames that drains gave back, by list; null where an engine has no lists.
    #[serde(serialize_with = "one_line")]
    pub drained_frames: Option<Table>,
    /// Fallbacks by the type asked for, in each by the type of the memory taken; null where an
    /// engine does not say.
    #[serde(serialize_with = "one_line")]
    pub fallbacks: Option<[[u64; 3]; 3]>,
    /// What is free at the end, in the largest aligned chunks that free neighbours make, whoever
    /// holds them: how many of each order.
    #[serde(serialize_with = "one_line")]
    pub free_chunks_end: [u64; 11],
}

impl ByOrder {
    pub(super) fn new(allocs: Table, flow: Option<&ListFlow>, end: &Memory) -> Self {
        let by_type = |flow: &ListFlow| {
            let mut sums = [[0; 3]; 3];
            let entries = flow.fallbacks.iter().flat_map(|order| order.iter().flatten());
            // Orders one after the other, each as long as what is summed up.
            entries.zip((0..9).cycle()).for_each(|(n, i)| sums[i / 3][i % 3] += n);
            sums
        };
        Self {
            allocs,
            refilled_frames: flow.map(|flow| flow.refilled),
            drained_frames: flow.map(|flow| flow.drained),
            fallbacks: flow.map(by_type),
            free_chunks_end: end.free_runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallbacks_of_all_orders_are_summed_by_the_two_types() {
        let mut flow = ListFlow::default();
        flow.fallbacks[0][0][1] = 5;
        flow.fallbacks[7][0][1] = 2;
        flow.fallbacks[10][2][1] = 3;
        let found = ByOrder::new(Table::default(), Some(&flow), &Memory::default());
        assert_eq!(found.fallbacks, Some([[0, 7, 0], [0, 0, 0], [0, 3, 0]]));
    }

    #[test]
    fn a_request_is_counted_where_it_belongs() {
        let mut table = Table::default();
        count(&mut table, Order::PAGEBLOCK, Migratetype::Movable);
        count(&mut table, Order::PAGEBLOCK, Migratetype::Movable);
        assert_eq!(table[9], [0, 2, 0]);
        assert_eq!(table.iter().flatten().sum::<u64>(), 2);
    }
}
