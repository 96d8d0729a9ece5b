//! What the kernel counted in its own trace, by zone.

use freehold::{Order, Pfn};
use freehold_trace::{Event, EventKind};
use serde::Serialize;

use crate::engine::FallbackTable;
use crate::engines::RecordedZone;
use crate::one_line::one_line;
use crate::replay::source::{SourceError, Trace, each_event};

/// What the kernel counted in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCounts {
    /// The zone; "elsewhere" for frames of no zone.
    pub zone: String,
    /// Chunks taken under the zone lock whose order CPUs keep lists for, fallbacks among them:
    /// refills.
    pub refilled_chunks: u64,
    pub refilled_frames: u64,
    /// Chunks taken under the zone lock of other orders: straight to the caller.
    pub direct_chunks: u64,
    pub direct_frames: u64,
    /// Chunks that CPUs gave back.
    pub drained_chunks: u64,
    pub drained_frames: u64,
    /// Of the frames refilled, those in the second half of the trace's time.
    pub late_refilled_frames: u64,
    /// Of those drained.
    pub late_drained_frames: u64,
    /// Refilled frames by order and type of the list.
    #[serde(serialize_with = "one_line")]
    pub refilled_by_list: [[u64; 3]; 11],
    /// Drained frames by order and type of the pageblock.
    #[serde(serialize_with = "one_line")]
    pub drained_by_list: [[u64; 3]; 11],
    /// Allocations that took memory of another type, by order and type of the request and by the
    /// type taken from.
    #[serde(serialize_with = "one_line")]
    pub fallbacks: FallbackTable,
}

/// A chunk that was taken from a zone under its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub pfn: Pfn,
    pub order: Order,
    /// The type asked for.
    pub migratetype: u8,
    /// CPUs keep lists for such chunks.
    pub refill: bool,
}

/// What a row says was taken.
///
/// A fallback that claims a whole pageblock or steals a chunk tells `extfrag` alone; one that claims
/// what is left of a block takes the chunk from the lists then, which tells `zone_locked` as
/// always. Source: `try_to_claim_block`, `__rmqueue_steal` of Linux 7.1.
pub fn taken(event: &Event) -> Option<Taken> {
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
/// `zones`. `middle_ns`: where the second half begins ([`super::middle_ns`]).
pub fn count_kernel(
    trace: &dyn Trace,
    zones: &[RecordedZone],
    middle_ns: u64,
) -> Result<Vec<KernelCounts>, SourceError> {
    let mut counts: Vec<KernelCounts> = zones
        .iter()
        .map(|zone| zone.info.name.clone())
        .chain(["elsewhere".to_owned()])
        .map(|zone| KernelCounts { zone, ..KernelCounts::default() })
        .collect();
    each_event(trace, |event| count_event(event, zones, event.ts_ns >= middle_ns, &mut counts))?;
    Ok(counts)
}

fn count_event(event: &Event, zones: &[RecordedZone], late: bool, counts: &mut [KernelCounts]) {
    let place = |pfn| zones.iter().position(|zone| zone.contains(pfn)).unwrap_or(zones.len());
    if let EventKind::Extfrag { pfn, order, migratetype, fallback_migratetype, .. } = event.kind {
        let of_order = counts[place(pfn)].fallbacks.get_mut(order.index());
        let of_type = of_order.and_then(|types| types.get_mut(usize::from(migratetype)));
        if let Some(count) =
            of_type.and_then(|from| from.get_mut(usize::from(fallback_migratetype)))
        {
            *count += 1;
        }
    }
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
pub fn main_zone(counts: &[KernelCounts], zones: &[RecordedZone]) -> Option<usize> {
    (0..zones.len())
        .max_by_key(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames)
        .filter(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames > 0)
}

/// The zone that most of the first allocations lie in, as a position in `zones`; `None` if none
/// does.
pub fn busiest_zone(
    trace: &dyn Trace,
    zones: &[RecordedZone],
) -> Result<Option<usize>, SourceError> {
    let mut frames = vec![0u64; zones.len()];
    let mut reader = trace.open()?;
    let mut events = Vec::new();
    while frames.iter().all(|&frames| frames == 0) && reader.next_batch(&mut events)? {
        for event in &events {
            let (EventKind::Alloc { pfn: Some(pfn), order, .. } | EventKind::Free { pfn, order }) =
                event.kind
            else {
                continue;
            };
            if let Some(zone) = zones.iter().position(|zone| zone.contains(pfn)) {
                frames[zone] += order.frames();
            }
        }
    }
    Ok((0..zones.len()).max_by_key(|&zone| frames[zone]).filter(|&zone| frames[zone] > 0))
}
