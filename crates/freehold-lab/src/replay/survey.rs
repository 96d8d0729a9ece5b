//! The first of two passes over a trace: what is in it, so that the second knows how large a
//! machine to build, how many CPUs it has, when to take samples, and which allocations the trace
//! does not show.

use std::sync::Arc;

use serde::Serialize;

use super::facts::TraceFacts;
use super::mapper::{Batched, FindBatched, Injection, Mapper, MapperOptions, Warm};
use super::source::{Description, Oddities, SourceError, Trace};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Survey {
    #[serde(flatten)]
    pub description: Description,
    #[serde(flatten)]
    pub facts: TraceFacts,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: u64,
    /// The share of remote frees in the frees whose allocation is in the trace, 0 to 1.
    pub remote_free_share: f64,
    #[serde(flatten)]
    pub oddities: Oddities,
    /// Allocations to put in before the first row, in rising order of frames (so that neighbours in
    /// the recording machine become neighbours in the engine).
    #[serde(skip)]
    pub warm: Vec<Injection>,
    /// Which frees go in batches.
    #[serde(skip)]
    pub batched: Arc<Batched>,
    /// The most frames live at once if all of `warm` are live from the start.
    #[serde(skip)]
    pub peak_live_frames_warm: u64,
}

impl Survey {
    /// Why no event of it reaches an engine, if none does: all are left out, or are neither
    /// allocation nor free.
    pub fn nothing_to_replay(&self) -> Option<String> {
        let facts = &self.facts;
        if facts.peak_live_frames != 0 || !self.warm.is_empty() {
            return None;
        }
        let reasons = [
            (facts.misaligned, "at frames that no chunk of their order starts at"),
            (facts.failed_allocs, "allocations that had failed"),
            (facts.unknown_frees, "frees of frames that it does not allocate"),
        ];
        let seen = reasons.into_iter().filter(|(count, _)| *count > 0);
        let why: Vec<String> = seen.map(|(count, what)| format!("{count} {what}")).collect();
        Some(if why.is_empty() { "no allocation and no free".to_owned() } else { why.join(", ") })
    }

    /// The most frames that a replay will have live at once; `warm`: of one that begins with those
    /// of `warm` allocated.
    pub fn peak_frames(&self, warm: bool) -> u64 {
        if warm { self.peak_live_frames_warm } else { self.facts.peak_live_frames }
    }
}

/// Reads a whole trace; looks for what must have been allocated before it where `warm` says so.
///
/// `progress` is called now and then with the events so far and the reader's own progress (done,
/// total).
pub fn survey(
    trace: &dyn Trace,
    warm: bool,
    progress: &mut dyn FnMut(u64, (u64, u64)),
) -> Result<Survey, SourceError> {
    let mut reader = trace.open()?;
    let mut mapper = Mapper::new(MapperOptions::default());
    mapper.warm = Some(Warm::default());
    mapper.find_batched = Some(FindBatched::default());
    let (mut events, mut ops, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let mut peak_beyond_warm = 0i64;

    while reader.next_batch(&mut events)? {
        for event in &events {
            mapper.event(event, &mut ops, &mut samples);
            // Every warm frame not yet freed is live besides what the trace shows.
            let freed = mapper.warm.as_ref().map_or(0, |warm| warm.freed);
            let beyond = mapper.facts.live_frames as i64 - freed as i64;
            peak_beyond_warm = peak_beyond_warm.max(beyond);
            ops.clear();
        }
        progress(mapper.facts.events, reader.progress());
    }

    let mut before = mapper.warm.take().unwrap_or_default();
    let facts = TraceFacts { repeated_frees: before.repeated, ..mapper.facts.clone() };
    if !warm {
        before.found.clear();
    }
    before.found.sort_unstable_by_key(|injection| injection.pfn);
    Ok(Survey {
        description: reader.description(),
        facts,
        span_ns: mapper.facts.span_ns(),
        remote_free_share: mapper.facts.remote_free_share(),
        oddities: reader.oddities(),
        batched: Arc::new(mapper.find_batched.take().unwrap_or_default().found),
        peak_live_frames_warm: before.freed + peak_beyond_warm as u64,
        warm: before.found,
    })
}
