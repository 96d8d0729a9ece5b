//! The rows of a trace that are about one zone of the machine that recorded it.
//!
//! Which zone serves a request is decided by what the zones have, and a model of one zone cannot
//! decide it. The recording says how the kernel did: by the frame. So the replay of a zone gets
//! that zone's requests and frees, and no others.

use crate::engines::RecordedZone;
use crate::replay::{Description, Events, Oddities, SourceError, Trace, each_event};
use crate::tables::thousands;
use freehold::Pfn;
use freehold_trace::{Event, EventKind};
use serde::Serialize;

/// A trace without what is about other zones: those rows that name frames of `zones[at]`. Requests
/// that failed, which have no frame, stay.
#[derive(Clone, Copy)]
pub struct OfZone<'a> {
    pub trace: &'a dyn Trace,
    pub zones: &'a [RecordedZone],
    pub at: usize,
}

impl Trace for OfZone<'_> {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError> {
        Ok(Box::new(Rows { rows: self.trace.open()?, of: *self }))
    }
}

/// How many rows of a trace lie in a zone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RowsOf {
    pub node: u32,
    /// The zone; "elsewhere" for frames of none.
    pub zone: String,
    pub rows: u64,
}

impl RowsOf {
    /// Where they are and how many.
    pub fn told(&self) -> String {
        let Self { node, zone, rows } = self;
        match zone.as_str() {
            "elsewhere" => format!("{} in no zone", thousands(*rows)),
            _ => format!("{} in zone {zone} of node {node}", thousands(*rows)),
        }
    }
}

/// The zone that a frame is counted in, the first that spans it; behind all where none does.
pub fn place_of(zones: &[RecordedZone], pfn: Pfn) -> usize {
    zones.iter().position(|zone| zone.contains(pfn)).unwrap_or(zones.len())
}

/// The allocations and frees of a trace by zone, and last those of none.
pub fn rows_of(trace: &dyn Trace, zones: &[RecordedZone]) -> Result<Vec<RowsOf>, SourceError> {
    let of = |zone: &RecordedZone| (zone.node, zone.name.clone());
    let places = zones.iter().map(of).chain([(0, "elsewhere".to_owned())]);
    let mut rows: Vec<RowsOf> = places.map(|(node, zone)| RowsOf { node, zone, rows: 0 }).collect();
    each_event(trace, |event| {
        if let EventKind::Alloc { pfn: Some(pfn), .. } | EventKind::Free { pfn, .. } = event.kind {
            rows[place_of(zones, pfn)].rows += 1;
        }
    })?;
    Ok(rows)
}

struct Rows<'a> {
    rows: Box<dyn Events + 'a>,
    of: OfZone<'a>,
}

fn is_of(zones: &[RecordedZone], at: usize, event: &Event) -> bool {
    let is_there = |pfn| place_of(zones, pfn) == at;
    match event.kind {
        EventKind::Alloc { pfn, .. } => pfn.is_none_or(is_there),
        EventKind::Free { pfn, .. }
        | EventKind::FreeBatched { pfn }
        | EventKind::PcpuDrain { pfn, .. }
        | EventKind::ZoneLocked { pfn, .. }
        | EventKind::Extfrag { pfn, .. } => is_there(pfn),
    }
}

impl Events for Rows<'_> {
    fn description(&self) -> Description {
        self.rows.description()
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError> {
        // An empty batch would be the end.
        while self.rows.next_batch(events)? {
            events.retain(|event| is_of(self.of.zones, self.of.at, event));
            if !events.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn oddities(&self) -> Oddities {
        self.rows.oddities()
    }

    fn progress(&self) -> (u64, u64) {
        self.rows.progress()
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::Recorded;
    use freehold::{CpuId, Order};

    use super::*;

    #[test]
    fn rows_of_other_zones_are_left_out_and_what_failed_stays() {
        let mut zone = RecordedZone::default();
        (zone.start_pfn, zone.spanned) = (Some(Pfn::new(1024)), 1024);
        let event = |kind| Event { ts_ns: 0, cpu: CpuId::new(0), pid: 1, kind };
        let alloc = |pfn: Option<u64>| {
            let (order, pfn) = (Order::ZERO, pfn.map(Pfn::new));
            event(EventKind::Alloc { pfn, order, migratetype: 1, gfp_flags: 0 })
        };
        let free = |pfn| event(EventKind::Free { pfn: Pfn::new(pfn), order: Order::ZERO });
        let mut events: Vec<Event> = vec![alloc(None), alloc(Some(1024)), free(2047)];
        let wanted = events.clone();
        // A whole batch of the other zone in between is no end.
        events.splice(2..2, (0..10_000).map(|i| free(i % 1024)));
        events.extend([alloc(Some(2048)), free(1023)]);
        let trace = Recorded { name: "t".into(), events };
        let mut zones = vec![zone];
        let of = |zones: &[RecordedZone], at| {
            let mut seen = Vec::new();
            each_event(&OfZone { trace: &trace, zones, at }, |event| seen.push(*event)).unwrap();
            seen
        };
        assert_eq!(of(&zones, 0), wanted);
        // Another that spans all of it: no row is in both.
        zones.push(RecordedZone { spanned: 4096, ..zones[0].clone() });
        let [both, failed] = [of(&zones, 0).len() + of(&zones, 1).len(), 1];
        assert_eq!((of(&zones, 0), both), (wanted.clone(), wanted.len() + 1 + failed));
    }
}
