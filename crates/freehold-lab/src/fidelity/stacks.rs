//! What lay on each CPU's lists when a recording began, by the frames that its requests were given:
//! no row of a refill or a drain is read, so that these stay something to predict.
//!
//! A list is a stack. What was freed by rising number comes back by falling number, what a refill
//! brings comes by rising number. So the frames that no row has named before tell how deep a list
//! was, by where they fell most and rose least:
//!
//! ```text
//!  first met   9 8 7 6 | 40 39 38 | 512 513 514 515 ...
//!              of the list         of a refill
//! ```
//!
//! Huge pages have neighbours seldom. The zone gives out those that it has free before it splits a
//! larger chunk, of which both halves come one behind the other. So those met until then, less what
//! pagetypeinfo counts as free, lay on the CPUs' lists: on each as many as it has room for, in
//! proportion. What is left of zoneinfo's count nobody asked for: it lies on a list that the CPU's
//! requests do not use.
//!
//! Of a CPU that holds no more than one large refill brings nothing is told: all of it is movable
//! single frames, of which most lists consist.

use std::collections::{BTreeMap, HashMap};

use crate::engines::RecordedZone;
use crate::replay::fill::{Lists, assumed_lists};
use crate::replay::frame_set::FrameSet;
use crate::replay::{SourceError, Trace, each_event};
use freehold::{CpuId, Order, Pfn};
use freehold_classic::SCALE_MAX;
use freehold_trace::EventKind;
use freehold_trace::zoneinfo::Pageset;

use super::starting_lists::{List, SELDOM_USED, fill, list_of};

/// What lay on the lists of every one of `cpus` CPUs of `zone`, which had `free_huge` movable huge
/// pages free, larger chunks left out.
pub(super) fn by_requests(
    trace: &dyn Trace,
    zone: &RecordedZone,
    free_huge: u64,
    cpus: u16,
) -> Result<Lists, SourceError> {
    let is_deep = |set: &&Pageset| set.count > set.batch.saturating_mul(1 << SCALE_MAX);
    let mut lists = assumed_lists(zone, cpus);
    if !zone.pagesets.iter().any(|set| is_deep(&set)) {
        return Ok(lists);
    }
    let mut met = Met::default();
    each_event(trace, |event| match event.kind {
        EventKind::Alloc { pfn: Some(pfn), order, migratetype, .. } if zone.contains(pfn) => {
            met.allocated(event.cpu, (pfn, order), migratetype);
        }
        EventKind::Free { pfn, order } if zone.contains(pfn) => met.freed(event.cpu, (pfn, order)),
        _ => {}
    })?;
    let huge = |stacks: &Stacks| stacks.get(&HUGE).map_or(0, |stack| stack.met);
    let own = met.stacks.values().map(huge).sum::<u64>().saturating_sub(free_huge);
    let stacks = |set: &Pageset| met.stacks.get(&set.cpu).unwrap_or(const { &Stacks::new() });
    let deep: Vec<&Pageset> = zone.pagesets.iter().filter(is_deep).collect();
    let known: Vec<_> = deep.iter().map(|set| small(stacks(set), set.count)).collect();
    let room = |at: usize| huge(stacks(deep[at])).min(known[at].1 >> HUGE.0);
    let rooms: u64 = (0..deep.len()).map(room).sum();
    for (at, set) in deep.iter().enumerate() {
        let chunks = own.min(rooms) * room(at) / rooms.max(1);
        let left = known[at].1 - (chunks << HUGE.0);
        let is_unused = |list: &List| !stacks(set).contains_key(list);
        let unused = SELDOM_USED.into_iter().find(is_unused).unwrap_or((0, 1));
        let found = known[at].0.iter().copied().chain([(HUGE, chunks), (unused, left >> unused.0)]);
        lists.retain(|(cpu, _)| *cpu != set.cpu);
        let found: Vec<_> = found.filter(|(_, chunks)| *chunks > 0).collect();
        lists.extend(found.into_iter().map(|(list, chunks)| (set.cpu, fill(list, chunks))));
    }
    Ok(lists)
}

/// What the requests of a trace have met so far.
#[derive(Default)]
struct Met {
    seen: FrameSet,
    /// By which CPU a chunk was freed last, and how large it was then.
    freed: HashMap<Pfn, (CpuId, Order)>,
    stacks: BTreeMap<CpuId, Stacks>,
    /// The zone has split a chunk for a huge page.
    has_split: bool,
}

/// The list of movable huge pages.
const HUGE: List = (Order::PAGEBLOCK.get(), 1);

/// The lists that a CPU's requests use.
type Stacks = BTreeMap<List, Stack>;

/// What is known of one list.
#[derive(Default)]
struct Stack {
    /// Chunks that no row had named before, and the last of them.
    met: u64,
    last: Option<u64>,
    rose: bool,
    /// By how much more they fell than rose; the most there was, and after how many.
    fallen: i64,
    most_fallen: i64,
    fallen_at: u64,
    /// There was a refill: later chunks say nothing of the beginning.
    is_refilled: bool,
}

impl Met {
    fn freed(&mut self, cpu: CpuId, (pfn, order): (Pfn, Order)) {
        self.seen.insert(pfn, order);
        self.freed.insert(pfn, (cpu, order));
    }

    fn allocated(&mut self, cpu: CpuId, (pfn, order): (Pfn, Order), migratetype: u8) {
        let is_new = !self.seen.contains(pfn);
        self.seen.insert(pfn, order);
        let freed = self.freed.remove(&pfn);
        let Some(list) = list_of(order, migratetype) else { return };
        let stack = self.stacks.entry(cpu).or_default().entry(list).or_default();
        if !is_new {
            // By way of the zone, where another CPU had it, or it was of another size.
            stack.is_refilled |= freed.is_some_and(|by| by != (cpu, order));
        } else if list != HUGE {
            stack.meet(pfn.get(), order.frames());
        } else if !self.has_split {
            let half = stack.last.filter(|last| last ^ order.frames() == pfn.get());
            self.has_split = half.is_some_and(|last| last < pfn.get());
            stack.last = Some(pfn.get());
            // The first half was of the split, too.
            stack.met = if self.has_split { stack.met - 1 } else { stack.met + 1 };
        }
    }
}

impl Stack {
    fn meet(&mut self, pfn: u64, frames: u64) {
        let rises = self.last.is_some_and(|last| last + frames == pfn);
        let falls = self.last == Some(pfn + frames);
        self.last = Some(pfn);
        if self.is_refilled {
            return;
        }
        self.met += 1;
        self.rose |= rises;
        // What is no neighbour of the last says little.
        self.fallen += i64::from(falls) * 20 - i64::from(rises) * 20 - i64::from(!falls && !rises);
        if self.fallen > self.most_fallen {
            (self.most_fallen, self.fallen_at) = (self.fallen, self.met);
        }
    }

    /// Chunks that lay there. Where none rose there was no refill: it brings several.
    fn depth(&self) -> u64 {
        if self.rose { self.fallen_at } else { self.met }
    }
}

/// The chunks of each list but huge pages' of a CPU that held so many frames, and how many are left.
fn small(stacks: &Stacks, count: u64) -> (Vec<(List, u64)>, u64) {
    let mut left = count;
    let of = |(&list, stack): (&List, &Stack)| {
        let chunks = stack.depth().min(left >> list.0);
        left -= chunks << list.0;
        (list, chunks)
    };
    let lists = stacks.iter().filter(|(list, _)| **list != HUGE).map(of).collect();
    (lists, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::rows::{event, order, taken};
    use crate::replay::Recorded;
    use freehold_trace::Event;

    fn alloc(pfn: u64, size: u8) -> Event {
        let (pfn, order) = (Some(Pfn::new(pfn)), order(size));
        event(0, EventKind::Alloc { pfn, order, migratetype: 1, gfp_flags: 0 })
    }

    fn free(cpu: u16, pfn: u64, size: u8) -> Event {
        event(cpu, EventKind::Free { pfn: Pfn::new(pfn), order: order(size) })
    }

    /// Order, type and chunks of the lists of CPU 0, which held so many frames.
    fn lists(count: u64, free_huge: u64, events: Vec<Event>) -> Vec<(u8, usize, u64)> {
        let mut zone = RecordedZone::default();
        (zone.start_pfn, zone.spanned) = (Some(Pfn::new(0)), 1 << 20);
        zone.pagesets.push(Pageset { count, batch: 63, ..Pageset::default() });
        let lists =
            by_requests(&Recorded { name: "t".into(), events }, &zone, free_huge, 1).unwrap();
        lists.iter().map(|(_, of)| (of.order.get(), of.migratetype.index(), of.chunks)).collect()
    }

    #[test]
    fn what_falls_was_freed_and_what_rises_is_a_refill() {
        let mut events: Vec<Event> = (0..300).rev().map(|n| alloc(n, 0)).collect();
        // What was freed since says nothing, nor does the kernel's own account.
        events.extend([free(0, 7, 0), alloc(7, 0), taken(0, 600, 0, 1)]);
        events.extend((1024..1300).map(|n| alloc(n, 0)));
        events.extend((900..1000).rev().map(|n| alloc(n, 0)));
        assert_eq!(lists(10_000, 0, events.clone()), [(0, 1, 300), (3, 0, 1212)]);
        assert_eq!(lists(2_016, 0, events.clone()), [(0, 1, 2_016)], "less than a refill");
        // Another CPU had it: it came by way of the zone.
        events.insert(100, free(1, 5000, 0));
        events.insert(101, alloc(5000, 0));
        assert_eq!(lists(10_000, 0, events), [(0, 1, 100), (3, 0, 1237)]);
    }

    #[test]
    fn huge_pages_beyond_those_of_the_zone_were_listed() {
        // Neighbours that are no buddies say nothing.
        let blocks = [2, 8, 4, 6, 21, 22, 24, 12, 30, 31, 50, 52];
        let events: Vec<Event> = blocks.iter().map(|n| alloc(n * 512, 9)).collect();
        let lists = |count, free_huge| lists(count, free_huge, events.clone());
        assert_eq!(lists(10_000, 5), [(9, 1, 3), (3, 0, 1058)]);
        assert_eq!(lists(10_000, 8), [(3, 0, 1250)]);
        assert_eq!(lists(2_100, 0), [(9, 1, 4), (3, 0, 6)], "no more than there is");
    }
}
