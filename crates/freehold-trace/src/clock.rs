//! Whether a trace's times are those of one recording: they run forwards, and nothing lies far off.
//!
//! Recorders merge the buffers of several CPUs, so a small step back is nothing. A larger one is an
//! error in every format, for no recording has it: the lines were never sorted (bpftrace), two
//! recordings lie in one file, a stamp is damaged. A replay of it would count frees before their
//! allocations, and its clock would be wrong: what depends on time (the periodic work, samples) is
//! then wrong as well, and no figure shows it.

/// What one CPU's events may lie behind another's: 1 ms.
const MERGED_NS: u64 = 1_000_000;
/// The longest silence that is taken for one: an hour. A machine at work has thousands of events a
/// second.
const SILENCE_NS: u64 = 3_600_000_000_000;

/// An event that lies far before the latest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} s earlier than the latest event before it", seconds(*.0))]
pub(super) struct StepBack(u64);

/// Judges the times of events as they come.
#[derive(Debug, Default)]
pub(super) struct Clock {
    latest_ns: Option<u64>,
    /// Events that come more than an hour after the one before them.
    pub(super) long_gaps: u64,
    /// Where the first of them is, and what it is.
    pub(super) first: Option<String>,
}

impl Clock {
    /// Whether no event has been seen.
    pub(super) fn is_new(&self) -> bool {
        self.latest_ns.is_none()
    }

    /// One event's time; `place` says where it stands. An event that is refused leaves nothing
    /// behind.
    #[inline]
    pub(super) fn see(
        &mut self,
        ts_ns: u64,
        place: impl FnOnce() -> String,
    ) -> Result<(), StepBack> {
        let latest = self.latest_ns.unwrap_or(ts_ns);
        if ts_ns.saturating_add(MERGED_NS) < latest {
            return Err(StepBack(latest - ts_ns));
        }
        if ts_ns.saturating_sub(latest) > SILENCE_NS {
            self.long_gaps += 1;
            self.first.get_or_insert_with(|| {
                format!("{}: {} s later than the event before it", place(), seconds(ts_ns - latest))
            });
        }
        self.latest_ns = Some(latest.max(ts_ns));
        Ok(())
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events that are refused, and what is said of gaps.
    fn seen(times: &[u64]) -> (Vec<StepBack>, u64, Option<String>) {
        let mut clock = Clock::default();
        let see = |(n, &ts): (usize, &u64)| clock.see(ts, || format!("line {}", n + 1)).err();
        let back = times.iter().enumerate().filter_map(see).collect();
        (back, clock.long_gaps, clock.first)
    }

    #[test]
    fn small_steps_back_and_short_silences_are_nothing() {
        let (second, hour) = (1_000_000_000, SILENCE_NS);
        assert_eq!(seen(&[second, second, second - MERGED_NS, second + hour]), (vec![], 0, None));
    }

    #[test]
    fn many_small_steps_back_are_a_large_one() {
        let back = MERGED_NS * 2 / 3;
        assert_eq!(seen(&[3 * back, 2 * back, back]).0, [StepBack(2 * back)]);
    }

    #[test]
    fn a_far_off_stamp_is_a_gap_or_a_step_back() {
        let (second, day) = (1_000_000_000, 24 * SILENCE_NS);
        let later = "line 2: 86400.000 s later than the event before it";
        assert_eq!(seen(&[second, second + day]), (vec![], 1, Some(later.to_owned())));
        assert_eq!(
            seen(&[day, 0, day + 1]),
            (vec![StepBack(day)], 0, None),
            "what is refused moves no clock"
        );
        assert_eq!(
            StepBack(day).to_string(),
            "86400.000 s earlier than the latest event before it"
        );
        assert_eq!(seen(&[0, u64::MAX, 0]).0, [StepBack(u64::MAX)]);
    }
}
