//! What the kernel counted in its own trace, by zone.

use crate::engines::RecordedZone;
use crate::one_line::one_line;
use crate::replay::{SAMPLES, SourceError, Survey, Trace, each_event, sample_every_ns};
use freehold::{Order, Pfn};
use freehold_trace::{Event, EventKind};
use serde::Serialize;

/// What the kernel counted in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct KernelCounts {
    /// The zone; "elsewhere" for frames of no zone.
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
    /// The type asked for.
    pub(super) migratetype: u8,
    /// CPUs keep lists for such chunks.
    pub(super) refill: bool,
}

/// What a row says was taken.
///
/// A fallback that claims a whole pageblock or steals a chunk tells `extfrag` alone; one that
/// claims what is left of a block takes the chunk from the lists then, which tells `zone_locked` as
/// always. Source: `try_to_claim_block`, `__rmqueue_steal` of Linux 7.1.
pub(super) fn taken(event: &Event) -> Option<Taken> {
    match event.kind {
        EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
            Some(Taken { pfn, order, migratetype, refill: percpu_refill })
        }
        EventKind::Extfrag {
            pfn, order, migratetype, fallback_order, change_ownership, ..
        } if fallback_order >= Order::PAGEBLOCK || !change_ownership => {
            let refill = order.get() <= 3 || order == Order::PAGEBLOCK;
            Some(Taken { pfn, order, migratetype, refill })
        }
        _ => None,
    }
}

/// Counts a trace's own refills and drains, by zone; a last entry takes what lies in none of
/// `zones`. `middle_ns`: where the second half begins ([`middle_ns`]).
pub(super) fn count_kernel(
    trace: &dyn Trace,
    zones: &[RecordedZone],
    middle_ns: u64,
) -> Result<Vec<KernelCounts>, SourceError> {
    let mut counts: Vec<KernelCounts> = zones
        .iter()
        .map(|zone| zone.name.clone())
        .chain(["elsewhere".to_owned()])
        .map(|zone| KernelCounts { zone, ..KernelCounts::default() })
        .collect();
    each_event(trace, |event| count_event(event, zones, event.ts_ns >= middle_ns, &mut counts))?;
    Ok(counts)
}

fn count_event(event: &Event, zones: &[RecordedZone], late: bool, counts: &mut [KernelCounts]) {
    let place = |pfn| zones.iter().position(|zone| zone.contains(pfn)).unwrap_or(zones.len());
    let frames_late = |order: Order| if late { order.frames() } else { 0 };
    if let EventKind::PcpuDrain { pfn, order, migratetype } = event.kind {
        let counts = &mut counts[place(pfn)];
        counts.drained_chunks += 1;
        counts.drained_frames += order.frames();
        counts.late_drained_frames += frames_late(order);
        add(&mut counts.drained_by_list, order, migratetype);
    }
    let Some(Taken { pfn, order, migratetype, refill }) = taken(event) else { return };
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

/// Adds a chunk's frames to those of its list, if there is such a list.
fn add(lists: &mut [[u64; 3]; 11], order: Order, migratetype: u8) {
    let list = lists.get_mut(order.index()).and_then(|list| list.get_mut(usize::from(migratetype)));
    if let Some(frames) = list {
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
