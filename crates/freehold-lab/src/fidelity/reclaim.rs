//! When memory was being reclaimed while a recording was made, as far as its rows tell.
//!
//! While kswapd works on a zone (`ZONE_RECLAIM_ACTIVE`), CPUs keep hardly anything: a free that
//! finds more than four batches on the lists gives back all but one. No row says when that is, but
//! kswapd's own rows do: it frees what it has reclaimed, and always while its own flag is set.
//!
//! ```text
//!   task that allocates                            not kswapd
//!   task that drains more than four batches        not kswapd: the flag was not set (a huge page,
//!     in one go, but for its last chunk              which goes whole, is no sign of either)
//!   task of at least 8 drains that does neither    kswapd
//!
//!   its rows      | | ||| |||| |        |||||| ||
//!   active        [--------------]      [-------]     10 ms without a row end a stretch
//! ```
//!
//! The only thing taken from the kernel's rows is when; how much goes is the model's. Memory is in
//! proportion to the tasks in the trace.

use std::collections::{BTreeMap, BTreeSet};

use crate::replay::{ReclaimChange, SourceError, Trace, each_event};
use freehold::Order;
use freehold_trace::{Event, EventKind};

/// Drains that a task must have made to be judged by them.
const DRAINS: u32 = 8;
/// The longest silence of a kswapd that is at work.
const SILENCE_NS: u64 = 10_000_000;
/// Batches that a CPU keeps at most while memory is being reclaimed.
const KEPT: u64 = 4;

#[derive(Default)]
struct Task {
    allocates: bool,
    drains: u32,
    /// One of its drains was of more than the lists may hold then.
    drains_more: bool,
}

/// A drain that goes on: rows of one CPU, one after the other.
struct Drain {
    pid: u32,
    /// Frames, huge pages aside.
    frames: u64,
}

/// Looks for the stretches of time in which a kswapd freed; `batch`: the CPUs' batch in the zone.
pub(super) fn changes(trace: &dyn Trace, batch: u64) -> Result<Vec<ReclaimChange>, SourceError> {
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    let mut drains: BTreeMap<u16, Drain> = BTreeMap::new();
    each_event(trace, |event| note(&mut tasks, &mut drains, batch, event))?;
    let kswapd: BTreeSet<u32> = tasks
        .into_iter()
        .filter(|(_, task)| task.drains >= DRAINS && !task.allocates && !task.drains_more)
        .map(|(pid, _)| pid)
        .collect();
    let mut changes: Vec<ReclaimChange> = Vec::new();
    if kswapd.is_empty() {
        return Ok(changes);
    }
    each_event(trace, |event| {
        if !kswapd.contains(&event.pid) {
            return;
        }
        let end = ReclaimChange { ts_ns: event.ts_ns.saturating_add(1), active: false };
        match changes.last_mut() {
            Some(last) if event.ts_ns.saturating_sub(last.ts_ns) <= SILENCE_NS => *last = end,
            _ => changes.extend([ReclaimChange { ts_ns: event.ts_ns, active: true }, end]),
        }
    })?;
    Ok(changes)
}

fn note(
    tasks: &mut BTreeMap<u32, Task>,
    drains: &mut BTreeMap<u16, Drain>,
    batch: u64,
    event: &Event,
) {
    let cpu = event.cpu.get();
    let EventKind::PcpuDrain { order, .. } = event.kind else {
        drains.remove(&cpu);
        let task = tasks.entry(event.pid).or_default();
        task.allocates |= matches!(event.kind, EventKind::Alloc { .. });
        return;
    };
    let task = tasks.entry(event.pid).or_default();
    let drain = drains.entry(cpu).or_insert(Drain { pid: event.pid, frames: 0 });
    if drain.frames == 0 || drain.pid != event.pid {
        *drain = Drain { pid: event.pid, frames: 0 };
        task.drains += 1;
    }
    // Its last chunk goes whole, however little of it was asked for. With the pcp-buddy RFC that
    // may be half a block.
    task.drains_more |= drain.frames > KEPT * batch;
    drain.frames += if order < Order::PAGEBLOCK { order.frames() } else { 0 };
}

#[cfg(test)]
mod tests {
    use crate::replay::Recorded;
    use freehold::{CpuId, Pfn};

    use super::*;

    const MS: u64 = 1_000_000;

    fn row(ts_ns: u64, pid: u32, kind: EventKind) -> Event {
        Event { ts_ns, cpu: CpuId::new(0), pid, kind }
    }

    /// A free, and a drain of so many frames behind it.
    fn freed(events: &mut Vec<Event>, ts_ns: u64, pid: u32, drained: u64, order: Order) {
        events.push(row(ts_ns, pid, EventKind::Free { pfn: Pfn::new(0), order: Order::ZERO }));
        let drain = EventKind::PcpuDrain { pfn: Pfn::new(0), order, migratetype: 1 };
        events.extend((0..drained).map(|_| row(ts_ns, pid, drain)));
    }

    fn changes(events: Vec<Event>) -> Vec<(u64, bool)> {
        let found = super::changes(&Recorded { name: "t".into(), events }, 63).unwrap();
        found.iter().map(|change| (change.ts_ns, change.active)).collect()
    }

    #[test]
    fn the_task_that_frees_only_and_drains_little_says_when_reclaim_runs() {
        let kswapd = |last: u64, drained: u64, order| {
            let mut events = Vec::new();
            for at in [100, 101, 102, 105, 111, 200, 201, last] {
                freed(&mut events, at * MS, 45, drained, order);
            }
            events
        };
        let two =
            vec![(100 * MS, true), (111 * MS + 1, false), (200 * MS, true), (210 * MS + 1, false)];
        assert_eq!(changes(kswapd(210, 252, Order::ZERO)), two);
        assert_eq!(changes(kswapd(210, 3, Order::PAGEBLOCK)), two, "huge pages go whole");
        assert_eq!(changes(kswapd(210, 254, Order::ZERO)), [], "the lists held more");
        let large = |chunks| kswapd(210, chunks, Order::new(7).unwrap());
        assert_eq!(changes(large(2)), two, "256 frames, of which 129 were asked for");
        assert_eq!(changes(large(4)), []);
        let mut few = kswapd(210, 189, Order::ZERO);
        few.truncate(few.len() - 190);
        assert_eq!(changes(few), [], "too few drains to tell");
        let mut allocates = kswapd(210, 189, Order::ZERO);
        let kind = EventKind::Alloc { pfn: None, order: Order::ZERO, migratetype: 1, gfp_flags: 0 };
        allocates.insert(0, row(0, 45, kind));
        assert_eq!(changes(allocates), []);
    }

    #[test]
    fn two_tasks_drains_are_two_though_nothing_lies_between() {
        let drain = EventKind::PcpuDrain { pfn: Pfn::new(0), order: Order::ZERO, migratetype: 1 };
        let kind = EventKind::Alloc { pfn: None, order: Order::ZERO, migratetype: 1, gfp_flags: 0 };
        let mut events = vec![row(0, 7, kind)];
        for at in 0..8 {
            freed(&mut events, at * MS, 45, 0, Order::ZERO);
            events.extend((0..100).map(|_| row(at * MS, 7, drain)));
            events.extend((0..200).map(|_| row(at * MS, 45, drain)));
        }
        assert_eq!(changes(events), [(0, true), (7 * MS + 1, false)]);
    }
}
