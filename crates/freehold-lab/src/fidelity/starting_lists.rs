//! What lay on each CPU's lists when a recording began, as far as the recording tells.
//!
//! `/proc/zoneinfo` says how many frames a CPU's lists held, not which lists. That matters: 100,000
//! frames left over on the order-3 list by the workload before serve nobody in a workload of single
//! pages, yet count against `high`. The rows of the trace itself show most of it:
//!
//! - A frame whose first row is an allocation, or a drain, on some CPU must have lain on that CPU's
//!   list of that order and type: it was neither freed nor taken from the zone before.
//! - What zoneinfo counted beyond that was never touched. It lies at the cold end of a list that
//!   the CPU never had to refill, for a refilled list was empty.
//! - The first drain by the timer leaves a CPU with as many frames as its `high` mark. Each tick
//!   lowers that by an eighth; where the mark must have been lower than zoneinfo says, that many
//!   ticks went by before the recording, for every CPU.
//! - zoneinfo is read some moments before the recording. Where the rows alone would lift a CPU
//!   above the highest mark it can have, or, before its first refill, above the mark that zoneinfo
//!   says (only refills raise that), and it did not drain, the snapshot was out of date by at least
//!   the excess, which is taken off what was never touched.
//!
//! Only the state at the start is taken from the kernel's rows; what the model refills and drains
//! later is its own. Memory is in proportion to the frames that the trace touches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::engines::{ListFill, RecordedZone};
use crate::replay::fill::Lists;
use crate::replay::frame_set::FrameSet;
use crate::replay::{SourceError, Trace, each_event};
use freehold::{CpuId, Migratetype, Order, Pfn};
use freehold_classic::SCALE_MAX;
use freehold_trace::kernel::Kernel;
use freehold_trace::zoneinfo::Pageset;
use freehold_trace::{Event, EventKind};

use super::counts::taken;

/// A list: order and index of the type.
type List = (u8, u8);

/// Lists that are looked at for one that was never refilled, in this order: the least used first.
const SELDOM_USED: [List; 13] = [
    (3, 0),
    (3, 1),
    (3, 2),
    (2, 0),
    (2, 1),
    (2, 2),
    (1, 0),
    (1, 1),
    (1, 2),
    (9, 0),
    (0, 0),
    (0, 2),
    (0, 1),
];

/// What lay on the lists of every CPU of `zone`, by the rows of `trace` of that kernel; corrects
/// the CPUs' marks.
pub(super) fn reconstruct(
    trace: &dyn Trace,
    kernel: Kernel,
    zone: &mut RecordedZone,
) -> Result<Lists, SourceError> {
    let mut rows = Rows::default();
    each_event(trace, |event| {
        if frame_of(event).is_some_and(|(pfn, _)| zone.contains(pfn)) {
            rows.add(event, kernel);
        }
    })?;
    let sets = &mut zone.pagesets;
    let late = sets.iter().find_map(|set| rows.cpus.get(&set.cpu)?.ticks_since(set)).unwrap_or(0);
    let by = (7.0f64 / 8.0).powi(late as i32);
    let lists = sets.iter_mut().flat_map(|set| {
        // What is not known is what it was before it sinks.
        let [least, most] = [set.high_min, set.high_max].map(|high| high.unwrap_or(set.high));
        (set.high_min, set.high_max) = (Some(least), Some(most));
        set.high = ((set.high as f64 * by) as u64).max(least);
        let lists = rows.cpus.remove(&set.cpu).unwrap_or_default().lists(set, most);
        lists.into_iter().map(|list| (set.cpu, list))
    });
    Ok(lists.collect())
}

fn fill((order, kind): List, chunks: u64) -> ListFill {
    ListFill {
        order: Order::new(order).unwrap_or(Order::ZERO),
        // Order 9 knows movable and not movable.
        migratetype: Migratetype::from_index(usize::from(kind)).unwrap_or(Migratetype::Movable),
        chunks,
    }
}

/// When within a second the kernel's periodic work gave frames back, by the drains that follow no
/// free of the same task: the middle one. `None` if there are none.
pub(super) fn tick_phase(trace: &dyn Trace) -> Result<Option<u64>, SourceError> {
    const SECOND: u64 = 1_000_000_000;
    let mut last: HashMap<u16, Event> = HashMap::new();
    let mut phases = Vec::new();
    each_event(trace, |event| {
        let alone = by_timer(last.insert(event.cpu.get(), *event), event);
        if alone && matches!(event.kind, EventKind::PcpuDrain { .. }) {
            phases.push(event.ts_ns % SECOND);
        }
    })?;
    // Around a circle: the phase that the others are nearest to.
    let distance = |a: u64, b: u64| a.abs_diff(b).min(SECOND - a.abs_diff(b));
    // Enough of them; each is held against each.
    phases.truncate(2000);
    let far = |&phase: &u64| phases.iter().map(|&other| distance(phase, other)).sum::<u64>();
    Ok(phases.iter().copied().min_by_key(far))
}

fn frame_of(event: &Event) -> Option<(Pfn, Order)> {
    match event.kind {
        EventKind::Alloc { pfn, order, .. } => Some((pfn?, order)),
        EventKind::Free { pfn, order }
        | EventKind::PcpuDrain { pfn, order, .. }
        | EventKind::ZoneLocked { pfn, order, .. }
        | EventKind::Extfrag { pfn, order, .. } => Some((pfn, order)),
        EventKind::FreeBatched { .. } => None,
    }
}

/// The list a chunk lies on: order 9 has one for movable and one for the rest; other orders above 3
/// have none.
fn list_of(order: Order, migratetype: u8) -> Option<List> {
    match order.get() {
        order @ 0..=3 => Some((order, if migratetype < 3 { migratetype } else { 1 })),
        9 => Some((9, u8::from(migratetype == 1))),
        _ => None,
    }
}

#[derive(Default)]
struct Rows {
    /// Frames that some row has named so far.
    seen: FrameSet,
    cpus: BTreeMap<CpuId, CpuRows>,
    /// When the first row was.
    begun: Option<u64>,
}

#[derive(Default)]
struct CpuRows {
    /// Chunks known to have been there at the start.
    known: BTreeMap<List, u64>,
    refilled: BTreeSet<List>,
    /// Frames gained since the start, and the most there ever were.
    gained: i64,
    most: i64,
    most_unrefilled: i64,
    /// Frames refilled so far, each of which may have raised `high`.
    refilled_frames: u64,
    first_drain: FirstDrain,
    last: Option<Event>,
}

/// The first drain by the timer, in the first second: frames drained, those gained when it ended,
/// those refilled before.
#[derive(Default)]
enum FirstDrain {
    #[default]
    None,
    Running {
        drained: u64,
    },
    Over {
        drained: u64,
        gained: i64,
        refilled: u64,
    },
    TooLate,
}

impl Rows {
    fn add(&mut self, event: &Event, kernel: Kernel) {
        let Some((pfn, order)) = frame_of(event) else { return };
        let first = !self.seen.contains(pfn);
        // The longest stretch that is worth remembering: larger chunks never lie on a CPU's lists.
        self.seen.insert(pfn, order.min(Order::LINUX_MAX));
        let begun = *self.begun.get_or_insert(event.ts_ns);
        let cpu = self.cpus.entry(event.cpu).or_default();
        cpu.note_drain(event, order, event.ts_ns - begun < 1_100_000_000);
        let frames = order.frames() as i64;
        match event.kind {
            EventKind::Alloc { migratetype, .. } => {
                let Some(list) = list_of(order, migratetype) else { return };
                if first {
                    *cpu.known.entry(list).or_default() += 1;
                }
                // Between frees of one batch the count is ahead of the kernel's; at an allocation
                // it is not.
                cpu.note_most();
                cpu.gained -= frames;
            }
            EventKind::PcpuDrain { migratetype, .. } => {
                let Some(list) = list_of(order, migratetype) else { return };
                if first {
                    *cpu.known.entry(list).or_default() += 1;
                }
                cpu.gained -= frames;
            }
            EventKind::ZoneLocked { migratetype, .. } | EventKind::Extfrag { migratetype, .. } => {
                // Those that come with a zone_locked row have been seen, and no more.
                let Some(list) = taken(event, kernel).and(list_of(order, migratetype)) else {
                    return;
                };
                // Within an allocation.
                cpu.note_most();
                cpu.refilled.insert(list);
                cpu.refilled_frames += order.frames();
                cpu.gained += frames;
            }
            EventKind::Free { .. } if list_of(order, 1).is_some() => cpu.gained += frames,
            _ => {}
        }
    }
}

/// Whether a drain that comes `before` another row of its CPU is the work of the timer, not of a
/// free.
fn by_timer(before: Option<Event>, event: &Event) -> bool {
    before.is_none_or(|before| {
        before.pid != event.pid
            || matches!(before.kind, EventKind::Alloc { .. } | EventKind::ZoneLocked { .. })
    })
}

impl CpuRows {
    /// Remembers how many frames the CPU had gained at an allocation.
    fn note_most(&mut self) {
        self.most = self.most.max(self.gained);
        if self.refilled.is_empty() {
            self.most_unrefilled = self.most;
        }
    }

    /// Follows the first drain by the timer; `early`: within the first second.
    fn note_drain(&mut self, event: &Event, order: Order, early: bool) {
        let drain = matches!(event.kind, EventKind::PcpuDrain { .. });
        let alone = by_timer(self.last, event);
        self.last = Some(*event);
        self.first_drain = match std::mem::take(&mut self.first_drain) {
            FirstDrain::None if drain && alone && early => {
                FirstDrain::Running { drained: order.frames() }
            }
            FirstDrain::None if drain && alone => FirstDrain::TooLate,
            FirstDrain::Running { drained } if drain => {
                FirstDrain::Running { drained: drained + order.frames() }
            }
            FirstDrain::Running { drained } => {
                FirstDrain::Over { drained, gained: self.gained, refilled: self.refilled_frames }
            }
            other => other,
        };
    }

    /// Ticks that went by between zoneinfo and the recording, by the first drain of the timer;
    /// `None` where it says nothing.
    fn ticks_since(&self, pageset: &Pageset) -> Option<u32> {
        let FirstDrain::Over { drained, gained, refilled } = self.first_drain else { return None };
        // A tick gives back so many frames at most, and then the mark stays above what is left.
        let most = pageset.batch.saturating_mul(1 << SCALE_MAX);
        let left = pageset.count.checked_add_signed(gained).filter(|_| drained < most)?;
        let before = (left as f64 * 8.0 / 7.0 - refilled as f64)
            .max(pageset.high_min.unwrap_or(pageset.high) as f64);
        let ticks = (pageset.high as f64 / before).ln() / (8.0f64 / 7.0).ln();
        Some(ticks.round().clamp(0.0, 60.0) as u32)
    }

    /// `high_max`: the highest mark that the CPU can have.
    fn lists(self, pageset: &Pageset, high_max: u64) -> Vec<ListFill> {
        let known: u64 = self.known.iter().map(|(&(order, _), chunks)| chunks << order).sum();
        let over = |gained: i64, mark: u64| {
            pageset.count.saturating_add_signed(gained).saturating_sub(mark)
        };
        let out_of_date = over(self.most, high_max).max(over(self.most_unrefilled, pageset.high));
        let rest = pageset.count.saturating_sub(known).saturating_sub(out_of_date);
        let mut lists = self.known;
        let untouched =
            SELDOM_USED.into_iter().find(|list| !self.refilled.contains(list)).unwrap_or((0, 1));
        *lists.entry(untouched).or_default() += rest >> untouched.0;
        lists
            .into_iter()
            .map(|(list, chunks)| fill(list, chunks))
            .filter(|fill| fill.chunks > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::fidelity::rows::{drained, event, order, taken};
    use crate::replay::Recorded;

    use super::*;

    /// An allocation of a frame.
    fn alloc(cpu: u16, pfn: u64, migratetype: u8) -> Event {
        let (pfn, order) = (Some(Pfn::new(pfn)), Order::ZERO);
        event(cpu, EventKind::Alloc { pfn, order, migratetype, gfp_flags: 0 })
    }

    fn free(cpu: u16, pfn: u64) -> Event {
        event(cpu, EventKind::Free { pfn: Pfn::new(pfn), order: Order::ZERO })
    }

    fn set(count: u64, high: u64, high_min: u64, high_max: u64) -> Pageset {
        let (high_min, high_max) = (Some(high_min), Some(high_max));
        Pageset { count, high, high_min, high_max, ..Pageset::default() }
    }

    fn reconstructed(pagesets: Vec<Pageset>, events: Vec<Event>) -> (RecordedZone, Lists) {
        let mut zone = RecordedZone::default();
        (zone.start_pfn, zone.spanned, zone.pagesets) = (Some(Pfn::new(0)), 1 << 20, pagesets);
        let trace = Recorded { name: "t".into(), events };
        let lists = reconstruct(&trace, Kernel::OWN, &mut zone).unwrap();
        (zone, lists)
    }

    /// The lists of CPUs 0 and 1, which zoneinfo says held 100 frames each of at most 1000.
    fn lists(events: Vec<Event>) -> [Vec<(u8, usize, u64)>; 2] {
        let pageset = |cpu| Pageset { cpu: CpuId::new(cpu), ..set(100, 1000, 0, 1000) };
        let (_, lists) = reconstructed(vec![pageset(0), pageset(1)], events);
        let lists = |cpu: usize| {
            let of = lists.iter().filter(|(of, _)| of.index() == cpu);
            of.map(|(_, fill)| (fill.order.get(), fill.migratetype.index(), fill.chunks)).collect()
        };
        [lists(0), lists(1)]
    }

    #[test]
    fn what_was_never_seen_before_was_there() {
        let [first, second] = lists(vec![
            taken(0, 1, 0, 1),
            alloc(0, 1, 1), // from a refill
            alloc(0, 2, 0), // from the start
            free(0, 2),
            alloc(0, 2, 0),      // from a free
            drained(1, 8, 3, 2), // from the start, drained by the other CPU
            taken(0, 512, 9, 1),
            alloc(0, 700, 1), // part of the chunk taken before
        ]);
        // 99 frames of CPU 0 were never touched: 12 chunks on a list of order 3 that was never
        // refilled.
        assert_eq!(first, [(0, 0, 1), (3, 0, 12)]);
        assert_eq!(second, [(3, 0, 11), (3, 2, 1)]);
    }

    #[test]
    fn what_a_fallback_took_was_not_there() {
        // The refill claims a whole block, of which there is no other row.
        let claimed = EventKind::Extfrag {
            pfn: Pfn::new(1024),
            order: order(0),
            migratetype: 0,
            fallback_order: Order::LINUX_MAX,
            fallback_migratetype: 1,
            change_ownership: true,
        };
        let [first, _] = lists(vec![event(0, claimed), alloc(0, 1024, 0), drained(1, 8, 3, 2)]);
        assert_eq!(first, [(3, 0, 12)]);
    }

    #[test]
    fn a_mark_that_has_sunk_since_shows_in_the_first_drain_of_the_timer() {
        let high = |pids: [u32; 2]| {
            let mut events = vec![Event { pid: pids[0], ..free(0, 5000) }];
            // 1,001 frames, and the mark of 821 once the timer has lowered it by an eighth.
            events.extend((0..180).map(|pfn| Event { pid: pids[1], ..drained(0, pfn, 0, 1) }));
            events.push(alloc(0, 5000, 1));
            let sets = vec![Pageset { batch: 63, ..set(1000, 1600, 100, 1600) }];
            reconstructed(sets, events).0.pagesets[0].high
        };
        // 821 * 8 / 7 = 938, four ticks of an eighth below 1,600; 937 without the kernel's rounding.
        assert_eq!(high([1, 2]), 937);
        assert_eq!(high([1, 1]), 1600, "a drain of whoever freed says nothing");
    }

    #[test]
    fn before_the_first_refill_the_mark_itself_is_the_most_there_can_be() {
        let held = |refilled_first: bool| {
            let mut events: Vec<Event> = (0..720).map(|pfn| free(0, pfn)).collect();
            let refill = [taken(0, 8000, 0, 0), alloc(0, 8000, 0)];
            events.splice(if refilled_first { 0..0 } else { 720..720 }, refill);
            let (_, lists) = reconstructed(vec![set(1000, 1600, 0, 9000)], events);
            lists.iter().map(|(_, list)| list.chunks << list.order.get()).sum::<u64>()
        };
        // 1,720 frames without a drain: at most 1,600 of them can have been there.
        assert_eq!(held(false), 1000 - 120);
        assert_eq!(held(true), 1000);
    }

    #[test]
    fn a_stale_snapshot_gives_way() {
        let mut events: Vec<Event> = (0..950).map(|pfn| free(0, pfn)).collect();
        events.push(alloc(0, 0, 1));
        let [first, second] = lists(events);
        // 100 + 950 is 50 more than the highest mark there can be.
        assert_eq!(first, [(3, 0, 50 >> 3)]);
        // Nothing at all is known of the other CPU.
        assert_eq!(second, [(3, 0, 100 >> 3)]);
    }
}
