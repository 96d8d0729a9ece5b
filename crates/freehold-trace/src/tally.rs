//! What every format's reader keeps count of.

use std::path::Path;

use super::Event;
use super::clock::Clock;
use super::error::TraceError;

/// Events in a batch: 3 MiB of them, which is enough to make the cost of a call vanish and little
/// enough to stay in a cache.
pub(super) const BATCH: usize = 64 * 1024;

/// What was left out so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) skip_bad: bool,
    pub(super) skipped: u64,
    pub(super) first_skipped: Option<String>,
    pub(super) ignored: u64,
    pub(super) lost: u64,
    /// What a summary says was lost; lines among the events may say it again.
    pub(super) overrun: u64,
    pub(super) clock: Clock,
}

impl Tally {
    pub(super) fn skip(&mut self, what: impl FnOnce() -> String) {
        self.skipped += 1;
        if self.first_skipped.is_none() {
            self.first_skipped = Some(what());
        }
    }

    /// Takes an event that stands at `place`, unless it lies far before the latest.
    #[inline]
    pub(super) fn take(
        &mut self,
        event: Event,
        out: &mut Vec<Event>,
        path: &Path,
        place: impl Fn() -> String,
    ) -> Result<(), TraceError> {
        match self.clock.see(event.ts_ns, &place) {
            Ok(()) => out.push(event),
            Err(back) if self.skip_bad => self.skip(|| format!("{}: {back}", place())),
            Err(back) => {
                let what = format!("{}: {back}: time goes back", place());
                let hint = "sort the events by time, and give each recording a file of its own; \
                            --skip-bad leaves such events out and counts them";
                return Err(TraceError::bad(path, what, hint));
            }
        }
        Ok(())
    }
}
