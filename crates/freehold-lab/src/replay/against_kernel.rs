//! Does a model of the recording kernel do what that kernel did? The kernel counts for itself, in the same trace:
//! `mm_page_alloc_zone_locked` is one row for each chunk taken from a zone under its lock, `mm_page_pcpu_drain` one for
//! each chunk that a CPU gave back. A faithful model of that kernel, given the same allocations and frees, must refill
//! and drain about as many frames.
//!
//! The zone that most chunks were taken from is the one compared: its size, watermarks and tuning come from the
//! zoneinfo recorded beside the trace. Frames of other zones take part in the replay (the trace does not say which
//! zone a later request could have used), so their share is reported.

use freehold::{Order, Pfn};
use serde::Serialize;

use super::source::{SourceError, Trace};
use super::{EngineOutcome, Replay};
use crate::engines::{MachineConfig, ZoneTuning};
use crate::trace::{Event, EventKind};

/// How far a faithful model may be off: 15 %.
pub const TOLERANCE: f64 = 0.15;

/// Where a zone lies and how it was tuned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Its first frame.
    pub start: Pfn,
    /// Frames from the first to the last, holes included.
    pub spanned: u64,
    /// Its tuning.
    pub tuning: ZoneTuning,
}

impl Zone {
    pub(super) fn contains(&self, pfn: Pfn) -> bool {
        pfn >= self.start && pfn.get() - self.start.get() < self.spanned
    }
}

/// What the kernel counted in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCounts {
    /// The zone; "elsewhere" for frames of no zone.
    pub zone: String,
    /// Chunks taken under the zone lock whose order CPUs keep lists for: refills.
    pub refilled_chunks: u64,
    /// Frames of these.
    pub refilled_frames: u64,
    /// Chunks taken under the zone lock of other orders: straight to the caller.
    pub direct_chunks: u64,
    /// Frames of these.
    pub direct_frames: u64,
    /// Chunks that CPUs gave back.
    pub drained_chunks: u64,
    /// Frames of these.
    pub drained_frames: u64,
}

/// Counts a trace's own refills and drains, by zone; a last entry takes what lies in none of `zones`.
///
/// # Errors
///
/// Whatever is wrong with the trace.
pub fn count_kernel(trace: &dyn Trace, zones: &[Zone]) -> Result<Vec<KernelCounts>, SourceError> {
    let mut counts: Vec<KernelCounts> = zones
        .iter()
        .map(|zone| zone.tuning.name.clone())
        .chain(["elsewhere".to_owned()])
        .map(|zone| KernelCounts { zone, ..KernelCounts::default() })
        .collect();
    let mut reader = trace.open()?;
    let mut events = Vec::new();
    while reader.next_batch(&mut events)? {
        for event in &events {
            count_event(event, zones, &mut counts);
        }
    }
    Ok(counts)
}

fn count_event(event: &Event, zones: &[Zone], counts: &mut [KernelCounts]) {
    let (pfn, order) = match event.kind {
        EventKind::ZoneLocked { pfn, order, .. } | EventKind::PcpuDrain { pfn, order, .. } => (pfn, order),
        _ => return,
    };
    let zone = zones.iter().position(|zone| zone.contains(pfn)).unwrap_or(zones.len());
    let counts = &mut counts[zone];
    let (chunks, frames) = match event.kind {
        EventKind::PcpuDrain { .. } => (&mut counts.drained_chunks, &mut counts.drained_frames),
        EventKind::ZoneLocked { percpu_refill: true, .. } => (&mut counts.refilled_chunks, &mut counts.refilled_frames),
        _ => (&mut counts.direct_chunks, &mut counts.direct_frames),
    };
    *chunks += 1;
    *frames += order.frames();
}

/// The zone that most frames were taken from, as a position in `zones`; `None` if none were.
#[must_use]
pub fn main_zone(counts: &[KernelCounts], zones: &[Zone]) -> Option<usize> {
    (0..zones.len())
        .max_by_key(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames)
        .filter(|&zone| counts[zone].refilled_frames + counts[zone].direct_frames > 0)
}

/// The machine that a model of the recording kernel is to be built for: the zone as it was.
#[must_use]
pub fn machine(zone: &Zone, cpus: u16) -> MachineConfig {
    // A zone with holes spans more than it manages; the model's zone has none. Its start keeps its alignment to the
    // largest chunk, which is all that placement depends on.
    MachineConfig {
        start_pfn: zone.start.align_down(Order::LINUX_MAX),
        zone: Some(zone.tuning.clone()),
        ..MachineConfig::new(zone.tuning.managed, cpus)
    }
}

/// One number, the kernel's and an engine's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What the kernel counted.
    pub kernel: u64,
    /// What the engine counted.
    pub engine: u64,
    /// How much more the engine counted, in per cent of the kernel's; null where the kernel counted nothing and the
    /// engine something.
    pub difference_percent: Option<f64>,
    /// Whether that is within 15 %.
    pub within: bool,
}

impl Comparison {
    fn new(kernel: u64, engine: u64) -> Self {
        let difference = match (kernel, engine) {
            (0, 0) => Some(0.0),
            (0, _) => None,
            _ => Some((engine as f64 - kernel as f64) / kernel as f64),
        };
        Self {
            kernel,
            engine,
            difference_percent: difference.map(|difference| difference * 100.0),
            within: difference.is_some_and(|difference| difference.abs() <= TOLERANCE),
        }
    }
}

/// How one engine compares with the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineComparison {
    /// The engine.
    pub engine: String,
    /// Frames refilled under the zone lock.
    pub refilled_frames: Comparison,
    /// Frames drained.
    pub drained_frames: Comparison,
}

impl EngineComparison {
    fn new(outcome: &EngineOutcome, kernel: &KernelCounts) -> Self {
        Self {
            engine: outcome.engine.clone(),
            refilled_frames: Comparison::new(kernel.refilled_frames, outcome.refilled_frames),
            drained_frames: Comparison::new(kernel.drained_frames, outcome.drained_frames),
        }
    }
}

/// A trace's comparison with the kernel that recorded it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgainstKernel {
    /// The zone compared.
    pub zone: String,
    /// What the kernel counted, by zone.
    pub kernel: Vec<KernelCounts>,
    /// Each engine beside it.
    pub engines: Vec<EngineComparison>,
}

/// Compares a replay on [`machine`] with the kernel's counts; `zone` is the position of the zone compared.
#[must_use]
pub fn compare(replay: &Replay, counts: Vec<KernelCounts>, zone: usize) -> AgainstKernel {
    let engines = replay.engines.iter().map(|outcome| EngineComparison::new(outcome, &counts[zone])).collect();
    AgainstKernel { zone: counts[zone].zone.clone(), kernel: counts, engines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Recorded;
    use freehold::CpuId;

    fn zone(name: &str, start: u64, spanned: u64) -> Zone {
        let tuning = ZoneTuning { name: name.into(), managed: spanned, ..ZoneTuning::default() };
        Zone { start: Pfn::new(start), spanned, tuning }
    }

    fn event(kind: EventKind) -> Event {
        Event { ts_ns: 0, cpu: CpuId::new(0), pid: 1, kind }
    }

    fn taken(pfn: u64, order: u8, percpu_refill: bool) -> Event {
        let order = Order::new(order).unwrap();
        event(EventKind::ZoneLocked { pfn: Pfn::new(pfn), order, migratetype: 1, percpu_refill })
    }

    #[test]
    fn chunks_are_counted_in_their_zone() {
        let zones = [zone("DMA32", 0, 1024), zone("Normal", 1024, 4096)];
        let drained =
            event(EventKind::PcpuDrain { pfn: Pfn::new(1030), order: Order::new(1).unwrap(), migratetype: 0 });
        let events =
            vec![taken(8, 0, true), taken(1024, 3, true), taken(2048, 4, false), drained, taken(1 << 30, 0, true)];
        let counts = count_kernel(&Recorded { name: "t".into(), events }, &zones).unwrap();
        assert_eq!((counts[0].refilled_chunks, counts[0].refilled_frames), (1, 1));
        assert_eq!((counts[1].refilled_chunks, counts[1].refilled_frames), (1, 8));
        assert_eq!((counts[1].direct_chunks, counts[1].direct_frames), (1, 16));
        assert_eq!((counts[1].drained_chunks, counts[1].drained_frames), (1, 2));
        assert_eq!((counts[2].zone.as_str(), counts[2].refilled_frames), ("elsewhere", 1));
        assert_eq!(main_zone(&counts, &zones), Some(1));
    }

    #[test]
    fn fifteen_per_cent_is_within_and_more_is_not() {
        assert!(Comparison::new(100, 115).within);
        assert!(!Comparison::new(100, 116).within);
        assert!(Comparison::new(100, 85).within);
        assert!(!Comparison::new(0, 1).within);
        assert!(Comparison::new(0, 0).within);
    }
}
