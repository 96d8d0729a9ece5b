//! Whether a trace's times are those of one recording: they run forwards, and nothing lies far off.
//!
//! Recorders merge the buffers of several CPUs, so a small step back is nothing. Anything else (files put together in
//! the wrong order, two boots in one file, a damaged stamp) gives a replay whose clock is wrong: what depends on time
//! (the periodic work, samples) is then wrong as well, and no figure shows it.

/// What one CPU's events may lie behind another's: 1 ms.
const MERGED_NS: u64 = 1_000_000;
/// The longest silence that is taken for one: an hour. A machine at work has thousands of events a second.
const SILENCE_NS: u64 = 3_600_000_000_000;

/// Counts what is wrong with the times of events as they come.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last_ns: Option<u64>,
    /// Events that lie further before the one before them than merging explains.
    pub(super) backward_steps: u64,
    /// Events that come more than an hour after the one before them.
    pub(super) long_gaps: u64,
    /// Where the first of either is, and what it is.
    pub(super) first: Option<String>,
}

impl Clock {
    /// One event's time; `place` says where it stands.
    #[inline]
    pub(super) fn see(&mut self, ts_ns: u64, place: impl FnOnce() -> String) {
        let Some(last) = self.last_ns.replace(ts_ns) else { return };
        if ts_ns.saturating_add(MERGED_NS) < last {
            self.backward_steps += 1;
            self.note(|| format!("{}: {} s earlier than the event before it", place(), seconds(last - ts_ns)));
        } else if ts_ns.saturating_sub(last) > SILENCE_NS {
            self.long_gaps += 1;
            self.note(|| format!("{}: {} s later than the event before it", place(), seconds(ts_ns - last)));
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(what());
        }
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(times: &[u64]) -> (u64, u64, Option<String>) {
        let mut clock = Clock::default();
        times.iter().enumerate().for_each(|(n, &ts)| clock.see(ts, || format!("line {}", n + 1)));
        (clock.backward_steps, clock.long_gaps, clock.first)
    }

    #[test]
    fn small_steps_back_and_short_silences_are_nothing() {
        let (second, hour) = (1_000_000_000, SILENCE_NS);
        assert_eq!(seen(&[second, second, second - MERGED_NS, second + hour - MERGED_NS]), (0, 0, None));
    }

    #[test]
    fn a_far_off_stamp_is_a_gap_and_a_step_back_whichever_way_it_lies() {
        let (second, day) = (1_000_000_000, 24 * SILENCE_NS);
        let first = |text: &str| Some(text.to_owned());
        let later = "line 2: 86400.000 s later than the event before it";
        assert_eq!(seen(&[second, second + day, second + 1]), (1, 1, first(later)));
        let earlier = "line 2: 86400.000 s earlier than the event before it";
        assert_eq!(seen(&[day, 0, day + 1]), (1, 1, first(earlier)));
        assert_eq!(seen(&[3 * second, 2 * second, second]).0, 2, "a trace from its end to its beginning");
        assert_eq!(seen(&[0, u64::MAX, 0]), (1, 1, seen(&[0, u64::MAX]).2));
    }
}
