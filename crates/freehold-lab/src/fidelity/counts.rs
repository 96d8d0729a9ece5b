//! What the kernel counted in its own trace, by zone.

use std::collections::HashMap;

use crate::engines::RecordedZone;
use crate::one_line::one_line;
use crate::replay::of_zone::place_of;
use crate::replay::{SAMPLES, SourceError, Survey, Trace, each_event, sample_every_ns};
use freehold::{Migratetype, Order, Pfn};
use freehold_trace::kernel::Kernel;
use freehold_trace::{Event, EventKind};
use serde::Serialize;

/// What the kernel counted in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct KernelCounts {
    /// The zone, and its node where there are several; "elsewhere" for frames of no zone.
    pub(super) zone: String,
    /// Chunks taken under the zone lock whose order CPUs keep lists for, fallbacks among them:
    /// refills.
    pub(super) refilled_chunks: u64,
    pub(super) refilled_frames: u64,
    /// Chunks taken under the zone lock of other orders: straight to the caller.
    pub(super) direct_chunks: u64,
    pub(super) direct_frames: u64,
    /// Chunks that CPUs gave back.
    pub(super) drained_chunks: u64,
    pub(super) drained_frames: u64,
    /// Frames that a CPU freed and that were taken from the zone again without a drain between: an
    /// interrupt that finds a CPU's lists locked frees to the zone. Those that stayed there, or
    /// merged, are not seen. Where a trace has no drains, all that is taken again counts.
    pub(super) freed_past_lists: u64,
    /// Of the frames refilled, those in the second half of the trace's time.
    pub(super) late_refilled_frames: u64,
    /// Of those drained.
    pub(super) late_drained_frames: u64,
    /// Refilled frames by order and type of the list.
    #[serde(serialize_with = "one_line")]
    pub(super) refilled_by_list: [[u64; 3]; 11],
    /// Drained frames by order and type of the pageblock.
    #[serde(serialize_with = "one_line")]
    pub(super) drained_by_list: [[u64; 3]; 11],
}

/// A chunk that was taken from a zone under its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    pub(super) migratetype: u8,
    /// CPUs keep lists for such chunks.
    pub(super) refill: bool,
}

/// What a row of that kernel says was taken.
///
/// A fallback that claims a whole pageblock or steals a chunk tells `extfrag` alone; one that
/// claims what is left of a block takes the chunk from the lists then, which tells `zone_locked` as
/// always. Source: `try_to_claim_block`, `__rmqueue_steal` of Linux 7.1. Before 6.10 every fallback
/// moves memory to the lists and takes the chunk from there: each has a `zone_locked` row.
///
/// That row calls a refill what has order 0, before 5.19 (lists of other orders came with 5.14),
/// and later what is of a type with lists, which CMA is not, though it is on Movable's.
pub(super) fn taken(event: &Event, kernel: Kernel) -> Option<Taken> {
    match event.kind {
        EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
            let all_orders = (Kernel::new(5, 14)..Kernel::new(5, 19)).contains(&kernel);
            let is_cma = usize::from(migratetype) == Migratetype::Cma.index();
            let refill = percpu_refill || (is_listed(order) && (all_orders || is_cma));
            Some(Taken { pfn, order, migratetype, refill })
        }
        EventKind::Extfrag {
            pfn, order, migratetype, fallback_order, change_ownership, ..
        } if kernel >= Kernel::new(6, 10)
            && (fallback_order >= Order::PAGEBLOCK || !change_ownership) =>
        {
            Some(Taken { pfn, order, migratetype, refill: is_listed(order) })
        }
        _ => None,
    }
}

/// Whether CPUs keep lists of that order.
fn is_listed(order: Order) -> bool {
    order.get() <= 3 || order == Order::PAGEBLOCK
}

/// Counts the refills and drains in a trace of that kernel, by zone; a last entry takes what lies
/// in none of `zones`. `middle_ns`: where the second half begins ([`middle_ns`]).
pub(super) fn count_kernel(
    trace: &dyn Trace,
    kernel: Kernel,
    zones: &[RecordedZone],
    middle_ns: u64,
) -> Result<Vec<KernelCounts>, SourceError> {
    let several = zones.iter().any(|zone| zone.node != zones[0].node);
    let named = |zone: &RecordedZone| match several {
        true => format!("{} of node {}", zone.name, zone.node),
        false => zone.name.clone(),
    };
    let mut counts: Vec<KernelCounts> = zones
        .iter()
        .map(named)
        .chain(["elsewhere".to_owned()])
        .map(|zone| KernelCounts { zone, ..KernelCounts::default() })
        .collect();
    let mut freed: HashMap<Pfn, Order> = HashMap::new();
    // Before 5.14 CPUs keep lists of order 0 alone.
    let has_list = |order| order == Order::ZERO || kernel >= Kernel::new(5, 14) && is_listed(order);
    each_event(trace, |event| {
        count_event((event, kernel), zones, event.ts_ns >= middle_ns, &mut counts);
        let past_lists = match event.kind {
            EventKind::Free { pfn, order } if has_list(order) => {
                freed.insert(pfn, order);
                None
            }
            EventKind::Alloc { pfn: Some(pfn), .. } | EventKind::PcpuDrain { pfn, .. } => {
                freed.remove(&pfn);
                None
            }
            _ => taken(event, kernel).filter(|of| freed.remove(&of.pfn) == Some(of.order)),
        };
        let Some(Taken { pfn, order, .. }) = past_lists else { return };
        counts[place_of(zones, pfn)].freed_past_lists += order.frames();
    })?;
    Ok(counts)
}

fn count_event(
    (event, kernel): (&Event, Kernel),
    zones: &[RecordedZone],
    late: bool,
    counts: &mut [KernelCounts],
) {
    let place = |pfn| place_of(zones, pfn);
    let frames_late = |order: Order| if late { order.frames() } else { 0 };
    if let EventKind::PcpuDrain { pfn, order, migratetype } = event.kind {
        let counts = &mut counts[place(pfn)];
        counts.drained_chunks += 1;
        counts.drained_frames += order.frames();
        counts.late_drained_frames += frames_late(order);
        add(&mut counts.drained_by_list, order, migratetype);
    }
    let Some(Taken { pfn, order, migratetype, refill }) = taken(event, kernel) else { return };
    let counts = &mut counts[place(pfn)];
    if !refill {
        counts.direct_chunks += 1;
        counts.direct_frames += order.frames();
        return;
    }
    counts.refilled_chunks += 1;
    counts.refilled_frames += order.frames();
    counts.late_refilled_frames += frames_late(order);
    add(&mut counts.refilled_by_list, order, migratetype);
}

/// Adds a chunk's frames to those of its list, if there is such a list: types without one are on
/// Movable's.
fn add(lists: &mut [[u64; 3]; 11], order: Order, migratetype: u8) {
    let list = if migratetype < 3 { migratetype.into() } else { Migratetype::Movable.index() };
    if let Some(frames) = lists.get_mut(order.index()).map(|lists| &mut lists[list]) {
        *frames += order.frames();
    }
}

/// The zone that most frames were taken from, as a position in `zones`; `None` if none were.
pub(super) fn main_zone(counts: &[KernelCounts], zones: &[RecordedZone]) -> Option<usize> {
    (0..zones.len())
        .max_by_key(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames)
        .filter(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames > 0)
}

/// The moment of the sample in the middle of a trace that [`SAMPLES`] are taken of.
pub(super) fn middle_ns(survey: &Survey) -> u64 {
    survey.facts.first_ts_ns + u64::from(SAMPLES / 2) * sample_every_ns(survey, SAMPLES)
}
