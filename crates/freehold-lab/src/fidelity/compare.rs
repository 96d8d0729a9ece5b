//! Does a model of the recording kernel do what that kernel did? The kernel counts for itself, in
//! the same trace: `mm_page_alloc_zone_locked` is one row for each chunk taken from a zone under
//! its lock, `mm_page_pcpu_drain` one for each chunk that a CPU gave back. A faithful model of that
//! kernel, given the same allocations and frees, must refill and drain about as many frames.
//!
//! The zone that most chunks were taken from is the one compared: its size, watermarks and tuning
//! come from the zoneinfo recorded beside the trace. What the kernel served from other zones is
//! left out ([`OfZone`](crate::replay::of_zone::OfZone)); how much it took from each is reported.

use crate::engine::{Counters, ListFlow};
use crate::replay::{EngineOutcome, Replay, Survey};
use serde::Serialize;

use super::counts::{KernelCounts, middle_ns};

/// How far a faithful model may be off in all: 15 %.
pub(super) const TOLERANCE: f64 = 0.15;
/// How far in one order that carries more than [`CARRIES`] of the frames: 25 %.
pub(super) const ORDER_TOLERANCE: f64 = 0.25;
/// The share of the kernel's frames from which on an order is held to [`ORDER_TOLERANCE`]: 5 %.
pub(super) const CARRIES: f64 = 0.05;

/// One number, the kernel's and an engine's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    pub(super) kernel: u64,
    pub(super) engine: u64,
    /// How much more the engine counted, in per cent of the kernel's; null where the kernel counted
    /// nothing and the engine something.
    pub(super) difference_percent: Option<f64>,
    /// Whether that is within what a faithful model may be off: 15 % in all, 25 % in one order. Not
    /// there for what is held to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) within: Option<bool>,
    /// The least and the most that the engine counts from drawn starts; not there without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) starts: Option<[u64; 2]>,
}

impl Comparison {
    fn new(kernel: u64, engine: u64) -> Self {
        Self::with(kernel, engine, Some(TOLERANCE))
    }

    /// `tolerance`: how far off is within; `None` where nothing is asked for.
    fn with(kernel: u64, engine: u64, tolerance: Option<f64>) -> Self {
        let difference = match (kernel, engine) {
            (0, 0) => Some(0.0),
            (0, _) => None,
            _ => Some((engine as f64 - kernel as f64) / kernel as f64),
        };
        let near = |tolerance| difference.is_some_and(|difference| difference.abs() <= tolerance);
        Self {
            kernel,
            engine,
            difference_percent: difference.map(|difference| difference * 100.0),
            within: tolerance.map(near),
            starts: None,
        }
    }

    /// Takes in what the engine counted from one more start.
    fn widen(&mut self, engine: u64) {
        let [least, most] = self.starts.unwrap_or([engine; 2]);
        self.starts = Some([least.min(engine), most.max(engine)]);
    }

    /// Whether it is held to something, and farther off than that.
    fn is_off(&self) -> bool {
        self.within == Some(false)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct EngineComparison {
    pub(super) engine: String,
    /// What was assumed of the CPUs' lists at the start: "zoneinfo" or "trace".
    pub(super) starting_lists: &'static str,
    /// Whether totals and every order that carries over 5 % of the frames are within their bounds.
    pub(super) within: bool,
    /// Frames refilled under the zone lock.
    pub(super) refilled_frames: Comparison,
    pub(super) drained_frames: Comparison,
    /// Of the frames refilled, those in the second half of the trace's time: what is left of the
    /// state at the start. Held to nothing, as the next.
    pub(super) late_refilled_frames: Comparison,
    /// Of those drained.
    pub(super) late_drained_frames: Comparison,
    /// Allocations that took memory of another type: the kernel's `extfrag` rows. Too few to be
    /// held to anything.
    pub(super) fallbacks: Comparison,
    /// By order, and by order and type; what neither counted is left out. Empty for an engine
    /// without lists.
    pub(super) lists: Vec<ListComparison>,
}

/// One order, or one order and type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ListComparison {
    pub(super) order: u8,
    /// The type; null for all of them together.
    pub(super) migratetype: Option<u8>,
    /// Frames refilled. A whole order is held to its bound where that is over 5 % of what the
    /// kernel refilled, counted by it or by the engine.
    pub(super) refilled: Comparison,
    /// Frames drained, likewise.
    pub(super) drained: Comparison,
}

impl EngineComparison {
    fn new(
        outcome: &EngineOutcome,
        kernel: &KernelCounts,
        lists: &'static str,
        survey: &Survey,
    ) -> Self {
        let counters = &outcome.counters;
        let [refilled, drained]: [fn(&Counters) -> u64; 2] =
            [|counters| counters.refilled_frames, |counters| counters.drained_frames];
        let refilled_frames = Comparison::new(kernel.refilled_frames, refilled(counters));
        let drained_frames = Comparison::new(kernel.drained_frames, drained(counters));
        let by_list = outcome.flow.map(|flow| compare_lists(&flow, kernel)).unwrap_or_default();
        let middle = middle_ns(survey);
        let half = outcome.samples.iter().find(|sample| sample.point.ts_ns >= middle);
        let late = |kernel: u64, of: fn(&Counters) -> u64| {
            let engine = half.map_or(0, |half| of(counters).saturating_sub(of(&half.counters)));
            Comparison::with(kernel, engine, None)
        };
        let orders = by_list.iter().flat_map(|list| [&list.refilled, &list.drained]);
        let within = !orders.chain([&refilled_frames, &drained_frames]).any(Comparison::is_off);
        Self {
            engine: outcome.engine.clone(),
            starting_lists: lists,
            within,
            refilled_frames,
            drained_frames,
            late_refilled_frames: late(kernel.late_refilled_frames, refilled),
            late_drained_frames: late(kernel.late_drained_frames, drained),
            fallbacks: Comparison::with(survey.facts.extfrags, counters.fallbacks, None),
            lists: by_list,
        }
    }

    /// Takes in what the same engine counted from one more start. What neither the kernel nor the
    /// engine's own start has any of is left out.
    pub(super) fn widen(&mut self, drawn: &Self) {
        self.refilled_frames.widen(drawn.refilled_frames.engine);
        self.drained_frames.widen(drawn.drained_frames.engine);
        self.late_refilled_frames.widen(drawn.late_refilled_frames.engine);
        self.late_drained_frames.widen(drawn.late_drained_frames.engine);
        self.fallbacks.widen(drawn.fallbacks.engine);
        for list in &mut self.lists {
            let key = |list: &ListComparison| (list.order, list.migratetype);
            let found = drawn.lists.iter().find(|of| key(of) == key(list));
            list.refilled.widen(found.map_or(0, |found| found.refilled.engine));
            list.drained.widen(found.map_or(0, |found| found.drained.engine));
        }
    }
}

fn compare_lists(flow: &ListFlow, kernel: &KernelCounts) -> Vec<ListComparison> {
    let mut lists = Vec::new();
    for order in 0..kernel.refilled_by_list.len() {
        let types = [None, Some(0), Some(1), Some(2)];
        for migratetype in types {
            let of = |table: &[[u64; 3]; 11]| match migratetype {
                None => table[order].iter().sum(),
                Some(migratetype) => table[order][usize::from(migratetype)],
            };
            let pair = |kernel: &[[u64; 3]; 11], engine: &[[u64; 3]; 11], total: u64| {
                let (kernel, engine) = (of(kernel), of(engine));
                let carries = kernel.max(engine) as f64 > CARRIES * total as f64;
                Comparison::with(
                    kernel,
                    engine,
                    (migratetype.is_none() && carries).then_some(ORDER_TOLERANCE),
                )
            };
            let refilled = pair(&kernel.refilled_by_list, &flow.refilled, kernel.refilled_frames);
            let drained = pair(&kernel.drained_by_list, &flow.drained, kernel.drained_frames);
            let list = ListComparison { order: order as u8, migratetype, refilled, drained };
            if [&list.refilled, &list.drained]
                .iter()
                .any(|comparison| comparison.kernel + comparison.engine > 0)
            {
                lists.push(list);
            }
        }
    }
    lists
}

/// A trace's comparison with the kernel that recorded it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AgainstKernel {
    pub(super) zone: String,
    /// What the kernel counted, by zone.
    pub(super) kernel: Vec<KernelCounts>,
    pub(super) engines: Vec<EngineComparison>,
}

impl AgainstKernel {
    /// Takes in one more start of the engines compared: beside what zoneinfo predicts.
    pub(super) fn widen(&mut self, drawn: &Self) {
        for of in &drawn.engines {
            let predicted = self.engines.iter_mut().find(|engine| engine.engine == of.engine);
            predicted.into_iter().for_each(|engine| engine.widen(of));
        }
    }
}

/// Compares a replay on the zone's machine with the kernel's counts; `zone` is the position of the
/// zone compared, `lists` what was assumed of the CPUs' lists.
pub(super) fn compare(
    replay: &Replay,
    counts: Vec<KernelCounts>,
    zone: usize,
    lists: &'static str,
    survey: &Survey,
) -> AgainstKernel {
    let compare = |outcome| EngineComparison::new(outcome, &counts[zone], lists, survey);
    let engines = replay.engines.iter().map(compare).collect();
    AgainstKernel { zone: counts[zone].zone.clone(), kernel: counts, engines }
}

#[cfg(test)]
mod tests {
    use crate::engine::Memory;
    use crate::engines::RecordedZone;
    use crate::replay::{Recorded, Sample, SamplePoint, TraceFacts};
    use freehold::{Order, Pfn};
    use freehold_trace::kernel::Kernel;
    use freehold_trace::{Event, EventKind};

    use super::*;
    use crate::fidelity::counts::{count_kernel, main_zone};
    use crate::fidelity::rows::{drained, event, order, taken};

    fn zone(name: &str, start: u64, spanned: u64) -> RecordedZone {
        let mut zone = RecordedZone::default();
        (zone.name, zone.start_pfn, zone.spanned) = (name.into(), Some(Pfn::new(start)), spanned);
        zone
    }

    fn counted(events: Vec<Event>, zones: &[RecordedZone], middle_ns: u64) -> Vec<KernelCounts> {
        let trace = Recorded { name: "t".into(), events };
        count_kernel(&trace, Kernel::OWN, zones, middle_ns).unwrap()
    }

    #[test]
    fn chunks_are_counted_in_their_zone() {
        let zones = [zone("DMA32", 0, 1024), zone("Normal", 1024, 4096)];
        let (pfn, order) = (Pfn::new(2048), order(4));
        let direct = EventKind::ZoneLocked { pfn, order, migratetype: 1, percpu_refill: false };
        let refills = [taken(0, 8, 0, 1), taken(0, 1024, 3, 1), taken(0, 1 << 30, 0, 1)];
        let others = [event(0, direct), drained(0, 1030, 1, 0)];
        let counts = counted([&refills[..], &others].concat(), &zones, 1);
        assert_eq!((counts[0].refilled_chunks, counts[0].refilled_frames), (1, 1));
        assert_eq!((counts[1].refilled_chunks, counts[1].refilled_frames), (1, 8));
        assert_eq!((counts[1].direct_chunks, counts[1].direct_frames), (1, 16));
        assert_eq!((counts[1].drained_chunks, counts[1].drained_frames), (1, 2));
        // Of two that were freed one was drained before it was taken again.
        let free = |pfn| event(0, EventKind::Free { pfn: Pfn::new(pfn), order: Order::ZERO });
        let again = [taken(0, 1024, 0, 1), taken(0, 1030, 0, 1)];
        let freed = [&[free(1024), free(1030), drained(0, 1030, 0, 1)][..], &again].concat();
        assert_eq!(counted(freed, &zones, 1)[1].freed_past_lists, 1);
        assert_eq!((counts[2].zone.as_str(), counts[2].refilled_frames), ("elsewhere", 1));
        assert_eq!(main_zone(&counts, &zones), Some(1));
    }

    #[test]
    fn fallbacks_that_only_extfrag_tells_of_are_refills_too() {
        let zones = [zone("Normal", 0, 1 << 20)];
        let row = |pfn, size, fallback_order, change_ownership| {
            let kind = EventKind::Extfrag {
                pfn: Pfn::new(pfn),
                order: order(size),
                migratetype: 0,
                fallback_order: order(fallback_order),
                fallback_migratetype: 1,
                change_ownership,
            };
            event(0, kind)
        };
        let events = vec![
            // A whole block claimed, by the refill of a CPU that owns blocks; a frame stolen.
            row(1024, 9, 10, true),
            row(2048, 0, 3, false),
            // What was left of a block is claimed, and the frame comes from the lists then.
            row(4096, 0, 5, true),
            taken(0, 4096, 0, 1),
            // Straight to the caller.
            row(8192, 10, 10, true),
        ];
        let counts = counted(events, &zones, 1);
        assert_eq!((counts[0].refilled_chunks, counts[0].refilled_frames), (3, 512 + 1 + 1));
        assert_eq!((counts[0].refilled_by_list[9][0], counts[0].direct_frames), (512, 1024));
    }

    /// Every fallback has a `zone_locked` row before 6.10; `percpu_refill` is of order 0 alone
    /// before 5.19, and of no CMA since.
    #[test]
    fn rows_mean_what_they_do_in_the_kernel_that_recorded_them() {
        let locked = |size, migratetype, percpu_refill| {
            let (pfn, order) = (Pfn::new(1024), order(size));
            event(0, EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill })
        };
        let claimed = EventKind::Extfrag {
            pfn: Pfn::new(1024),
            order: order(0),
            migratetype: 0,
            fallback_order: order(10),
            fallback_migratetype: 1,
            change_ownership: true,
        };
        let zones = ["A", "B"].map(|name| zone(name, 0, 1 << 20));
        for (kernel, events, refilled) in [
            ((6, 6), vec![locked(0, 0, true), event(0, claimed)], 1),
            ((6, 10), vec![event(0, claimed)], 1),
            ((5, 17), vec![locked(3, 1, false), locked(4, 1, false)], 8),
            ((5, 19), vec![locked(3, 1, false)], 0),
            ((5, 10), vec![locked(3, 1, false)], 0),
            ((6, 18), vec![locked(0, 4, false)], 1),
        ] {
            let trace = Recorded { name: "t".into(), events };
            let of = Kernel::new(kernel.0, kernel.1);
            let counts = count_kernel(&trace, of, &zones, 1).unwrap();
            assert_eq!(counts[0].refilled_frames, refilled, "{kernel:?}");
            let by_list = counts[0].refilled_by_list.iter().flatten().sum::<u64>();
            assert_eq!(by_list, refilled, "{kernel:?}");
        }
    }

    #[test]
    fn zones_of_several_nodes_are_named_with_theirs() {
        let mut zones = [zone("Normal", 0, 1024), zone("Normal", 1024, 4096)];
        zones[1].node = 1;
        let events = vec![taken(0, 8, 0, 1), taken(0, 1024, 3, 1)];
        let counts = counted(events, &zones, 1);
        let names = [0, 1, 2].map(|at| counts[at].zone.as_str());
        assert_eq!(names, ["Normal of node 0", "Normal of node 1", "elsewhere"]);
    }

    fn survey(extfrags: u64) -> Survey {
        Survey { facts: TraceFacts { extfrags, ..TraceFacts::default() }, ..Survey::default() }
    }

    #[test]
    fn the_second_half_is_what_comes_from_the_middle_on() {
        let facts = TraceFacts { first_ts_ns: 1000, last_ts_ns: 1200, ..TraceFacts::default() };
        let survey = Survey { facts, ..Survey::default() };
        let rows = [
            (1000, taken(0, 8, 3, 1)),
            (1099, drained(0, 0, 1, 1)),
            (1100, taken(0, 64, 0, 1)),
            (1200, drained(0, 2, 1, 1)),
        ];
        let events = rows.map(|(ts_ns, event)| Event { ts_ns, ..event }).into();
        let kernel = counted(events, &[zone("Normal", 0, 4096)], middle_ns(&survey)).remove(0);
        assert_eq!((kernel.refilled_frames, kernel.late_refilled_frames), (9, 1));
        assert_eq!((kernel.drained_frames, kernel.late_drained_frames), (4, 2));

        let sample = |ts_ns, refilled_frames, drained_frames| Sample {
            point: SamplePoint { ts_ns, live_frames: 0 },
            memory: Memory::default(),
            counters: Counters { refilled_frames, drained_frames, ..Counters::default() },
        };
        let samples = vec![sample(1099, 1, 1), sample(1100, 20, 3), sample(1101, 27, 4)];
        let counters = Counters { refilled_frames: 27, drained_frames: 5, ..Counters::default() };
        let outcome = EngineOutcome { counters, samples, ..EngineOutcome::default() };
        let compared = EngineComparison::new(&outcome, &kernel, "zoneinfo", &survey);
        let late = [&compared.late_refilled_frames, &compared.late_drained_frames];
        assert_eq!(late.map(|count| (count.kernel, count.engine)), [(1, 7), (2, 2)]);
    }

    #[test]
    fn totals_that_agree_do_not_hide_orders_that_do_not() {
        let mut kernel = KernelCounts { refilled_frames: 1000, ..KernelCounts::default() };
        kernel.refilled_by_list[0][1] = 900;
        kernel.refilled_by_list[1][1] = 100;
        let mut flow = ListFlow::default();
        flow.refilled[0] = [0, 600, 0];
        flow.refilled[1] = [0, 100, 300];
        let counters = Counters { refilled_frames: 1000, ..Counters::default() };
        let outcome = |flow| EngineOutcome {
            counters: counters.clone(),
            flow: Some(flow),
            ..EngineOutcome::default()
        };
        let comparison = EngineComparison::new(&outcome(flow), &kernel, "trace", &survey(0));
        assert!(!comparison.refilled_frames.is_off() && !comparison.within);
        assert_eq!(comparison.lists[2].refilled.difference_percent, Some(300.0));
        let types: Vec<_> =
            comparison.lists.iter().map(|list| (list.order, list.migratetype)).collect();
        assert_eq!(types, [(0, None), (0, Some(1)), (1, None), (1, Some(1)), (1, Some(2))]);
        flow.refilled[0][1] = 880;
        flow.refilled[1] = [0, 120, 0];
        assert!(EngineComparison::new(&outcome(flow), &kernel, "trace", &survey(0)).within);
    }

    #[test]
    fn a_range_takes_in_the_least_and_the_most() {
        let mut drained = Comparison::new(100, 90);
        for engine in [7, 3, 5] {
            drained.widen(engine);
        }
        assert_eq!((drained.starts, drained.engine), (Some([3, 7]), 90));
    }

    #[test]
    fn fifteen_per_cent_is_within_and_more_is_not() {
        for (kernel, engine, off) in
            [(100, 115, false), (100, 116, true), (100, 85, false), (0, 1, true), (0, 0, false)]
        {
            assert_eq!(Comparison::new(kernel, engine).is_off(), off, "{kernel} {engine}");
        }
        // What is held to nothing says nothing of being within, as JSON neither.
        let free = Comparison::with(100, 300, None);
        assert_eq!((free.within, free.is_off()), (None, false));
        assert!(!serde_json::to_string(&free).unwrap().contains("within"));
    }
}
