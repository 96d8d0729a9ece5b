//! The first of two passes over a trace: what is in it, so that the second knows how large a machine to build, how
//! many CPUs it has, when to take samples, and which allocations the trace does not show.

use std::collections::HashMap;

use freehold::{CpuId, Migratetype, Order, Pfn};

use super::facts::TraceFacts;
use super::mapper::{Injection, Mapper, MapperOptions, Observer};
use super::source::{Description, LongGaps, SourceError, Trace};

/// Which untraced allocations a survey looks for. Each costs memory in proportion to the frames touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SurveyOptions {
    /// Frames freed that no earlier event touched: they were allocated before the recording began.
    pub warm: bool,
    /// Frames freed without an allocation but after a `zone_locked` row: their allocation emits no event (the bulk
    /// call behind kernel stacks does not).
    pub untraced: bool,
}

/// What a trace holds.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// What it says of itself.
    pub description: Description,
    /// What was counted.
    pub facts: TraceFacts,
    /// Malformed rows or lines left out.
    pub skipped: u64,
    /// Where the first of them was, and what was wrong with it.
    pub first_skipped: Option<String>,
    /// Gaps of more than an hour.
    pub long_gaps: LongGaps,
    /// Lines of other events passed over.
    pub ignored: u64,
    /// Allocations to put in before the first row, in rising order of frames (so that neighbours in the recording
    /// machine become neighbours in the engine), each on the CPU that will free it. What kind they were is not known:
    /// movable is by far the most frequent.
    pub warm: Vec<Injection>,
    /// Allocations to put in at the row that took their frames from the zone, in the order of rows.
    pub untraced: Vec<Injection>,
    /// The most frames live at once if all of `warm` are live from the start.
    pub peak_live_frames_warm: u64,
}

impl Survey {
    /// Frames of the allocations that emit no event.
    #[must_use]
    pub fn untraced_frames(&self) -> u64 {
        self.untraced.iter().map(|injection| injection.order.frames()).sum()
    }

    /// Why no event of it reaches an engine, if none does: all are left out, or are neither allocation nor free.
    #[must_use]
    pub fn nothing_to_replay(&self) -> Option<String> {
        let facts = &self.facts;
        if facts.peak_live_frames != 0 || !self.warm.is_empty() || !self.untraced.is_empty() {
            return None;
        }
        let reasons = [
            (facts.misaligned, "at frames that no chunk of their order starts at"),
            (facts.unsupported, "above order 10"),
            (facts.failed_allocs, "allocations that had failed"),
            (facts.unknown_frees, "frees of frames that it does not allocate"),
        ];
        let seen = reasons.into_iter().filter(|(count, _)| *count > 0);
        let why: Vec<String> = seen.map(|(count, what)| format!("{count} {what}")).collect();
        Some(if why.is_empty() { "no allocation and no free".to_owned() } else { why.join(", ") })
    }

    /// The most frames that a replay with these options will have live at once (an upper bound where untraced
    /// allocations are put in).
    #[must_use]
    pub fn peak_frames(&self, options: SurveyOptions) -> u64 {
        let peak = if options.warm { self.peak_live_frames_warm } else { self.facts.peak_live_frames };
        peak + if options.untraced { self.untraced_frames() } else { 0 }
    }
}

/// Reads a whole trace.
///
/// `progress` is called now and then with the events so far and the reader's own progress (done, total).
///
/// # Errors
///
/// Whatever is wrong with the trace.
pub fn survey(
    trace: &dyn Trace,
    options: SurveyOptions,
    max_order: Order,
    mut progress: impl FnMut(u64, (u64, u64)),
) -> Result<Survey, SourceError> {
    let mut reader = trace.open()?;
    let mut mapper = Mapper::new(MapperOptions { max_order, ..MapperOptions::default() });
    let mut watcher = Watcher { options, ..Watcher::default() };
    let (mut events, mut ops, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let mut peak_beyond_warm = 0i64;

    while reader.next_batch(&mut events)? {
        for event in &events {
            mapper.event(event, &mut ops, &mut samples, &mut watcher);
            // Every warm frame not yet freed is live besides what the trace shows.
            let beyond = mapper.facts().live_frames as i64 - watcher.warm_freed as i64;
            peak_beyond_warm = peak_beyond_warm.max(beyond);
            ops.clear();
        }
        progress(mapper.facts().events, reader.progress());
    }

    watcher.warm.sort_unstable_by_key(|injection| injection.pfn);
    watcher.untraced.sort_unstable_by_key(|injection| (injection.row, injection.pfn));
    Ok(Survey {
        description: reader.description(),
        facts: mapper.facts().clone(),
        skipped: reader.skipped(),
        first_skipped: reader.first_skipped(),
        long_gaps: reader.long_gaps(),
        ignored: reader.ignored(),
        peak_live_frames_warm: watcher.warm_freed + peak_beyond_warm as u64,
        warm: watcher.warm,
        untraced: watcher.untraced,
    })
}

/// Finds frees whose allocation the trace does not show.
#[derive(Default)]
struct Watcher {
    options: SurveyOptions,
    touched: FrameSet,
    /// Frames taken from a zone and not allocated since, as far as the trace shows.
    in_lists: HashMap<Pfn, (u64, CpuId, u8)>,
    warm: Vec<Injection>,
    warm_freed: u64,
    untraced: Vec<Injection>,
}

impl Observer for Watcher {
    fn allocated(&mut self, pfn: Pfn, order: Order) {
        if self.options.untraced {
            self.in_lists.remove(&pfn);
        }
        if self.options.warm {
            self.touched.insert(pfn, order);
        }
    }

    fn freed(&mut self, _row: u64, cpu: CpuId, pfn: Pfn, order: Order, known: bool) {
        let from_zone = if self.options.untraced { self.in_lists.remove(&pfn) } else { None };
        let untouched = self.options.warm && self.touched.insert(pfn, order);
        if known || order > Order::LINUX_MAX {
            return;
        }
        if let Some((row, cpu, migratetype)) = from_zone {
            let migratetype = Migratetype::PCP.get(usize::from(migratetype)).copied().unwrap_or(Migratetype::Movable);
            self.untraced.push(Injection { row, pfn, order, cpu, migratetype });
        } else if untouched {
            self.warm_freed += order.frames();
            self.warm.push(Injection { row: 0, pfn, order, cpu, migratetype: Migratetype::Movable });
        }
    }

    fn zone_locked(&mut self, row: u64, cpu: CpuId, pfn: Pfn, _order: Order, migratetype: u8) {
        if self.options.untraced {
            self.in_lists.insert(pfn, (row, cpu, migratetype));
        }
    }
}

/// A set of frames: a bit each, in groups of 512 that exist once one of them is in the set.
#[derive(Default)]
struct FrameSet {
    groups: HashMap<u64, Box<[u64; 8]>>,
}

impl FrameSet {
    /// Adds the chunk; true if none of its frames was in the set.
    fn insert(&mut self, pfn: Pfn, order: Order) -> bool {
        let mut untouched = true;
        let (mut at, end) = (pfn.get(), pfn.get() + order.frames());
        while at < end {
            let group = self.groups.entry(at / 512).or_default();
            let word = &mut group[(at % 512 / 64) as usize];
            let bits = (end - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            untouched &= *word & mask == 0;
            *word |= mask;
            at += bits;
        }
        untouched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_frames_tells_new_from_old() {
        let mut set = FrameSet::default();
        assert!(set.insert(Pfn::new(1024), Order::PAGEBLOCK));
        assert!(!set.insert(Pfn::new(1535), Order::ZERO));
        assert!(set.insert(Pfn::new(1536), Order::ZERO));
        assert!(!set.insert(Pfn::new(1536), Order::COSTLY));
        assert!(set.insert(Pfn::new(1544), Order::COSTLY));
    }
}
