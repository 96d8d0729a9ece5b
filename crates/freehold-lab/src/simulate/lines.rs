//! Which CPU wrote a cache line last: whoever else needs it has to have it brought over, and while
//! it is on its way to one, the next has to wait: a contended line is a queue as a lock is.
//!
//! Two bytes a line in memory that the system zeroes on first use, so that a machine of terabytes
//! costs only what its workload touches.

use std::collections::HashMap;

use super::time::Time;

/// The last writers of a run of lines.
#[derive(Debug)]
pub struct Lines {
    /// CPU + 1; 0 = nobody yet.
    last: Vec<u16>,
    /// Lines that were handed over lately, and when each was there.
    moving: HashMap<u64, Time>,
    /// How many of those to keep before the ones that have arrived are forgotten.
    keep: usize,
}

/// Hand-overs kept before it is looked which are over.
const KEEP: usize = 4096;

impl Lines {
    /// That many lines, written by nobody.
    pub fn new(count: u64) -> Self {
        Self { last: vec![0; count as usize], moving: HashMap::new(), keep: KEEP }
    }

    /// `cpu` writes a line (or reads one that others write): from whom it comes, `None` where `cpu`
    /// has it, or where nobody does.
    pub fn touch(&mut self, line: u64, cpu: u16) -> Option<u16> {
        let last = self.last.get_mut(line as usize)?;
        let before = std::mem::replace(last, cpu + 1);
        before.checked_sub(1).filter(|&other| other != cpu)
    }

    pub fn is_last(&self, line: u64, cpu: u16) -> bool {
        self.last.get(line as usize) == Some(&(cpu + 1))
    }

    /// A line goes from one CPU to another, which asks at `at`; it is on its way for `takes`. When
    /// it can set out: later than `at` where it is still on its way to somebody else. Nobody will
    /// ask for a time before `now`.
    pub fn hand_over(&mut self, line: u64, now: Time, at: Time, takes: Time) -> Time {
        if self.moving.len() >= self.keep {
            self.moving.retain(|_, there| *there > now);
            self.keep = (2 * self.moving.len()).max(KEEP);
        }
        let there = self.moving.entry(line).or_insert(Time::ZERO);
        let start = at.max(*there);
        *there = start + takes;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_while_a_line_is_on_its_way_waits_for_it() {
        let mut lines = Lines::new(8);
        let at = |ns: f64| Time::from_ns(ns);
        let mut ask = |line, ns| lines.hand_over(line, at(0.0), at(ns), at(200.0));
        assert_eq!(ask(1, 10.0), at(10.0));
        assert_eq!(ask(1, 20.0), at(210.0), "the second waits for the first");
        assert_eq!(ask(1, 30.0), at(410.0), "the third for both");
        assert_eq!(ask(2, 30.0), at(30.0), "another line is another queue");
        assert_eq!(ask(1, 700.0), at(700.0), "and who comes later waits for nobody");
        for line in 0..3 * KEEP as u64 {
            lines.hand_over(line, at(1e6), at(1e6), at(0.0));
        }
        assert!(lines.moving.len() <= KEEP + 1, "what is there is forgotten");
    }

    #[test]
    fn a_line_comes_from_whoever_had_it() {
        let mut lines = Lines::new(2);
        assert_eq!(
            [lines.touch(0, 3), lines.touch(0, 3), lines.touch(0, 0), lines.touch(0, 3)],
            [None, None, Some(3), Some(0)]
        );
        assert_eq!(lines.touch(9, 1), None);
    }
}
