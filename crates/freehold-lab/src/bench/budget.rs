//! How long `--quick` may take: a minute for all benchmarks, an equal share for each.
//!
//! ```text
//!  began      share 1         share 2         share 3
//!    |---------------|---------------|---------------|
//!     set-up, turns   set-up, turns   what a benchmark leaves over is the next one's
//! ```
//!
//! A turn is one run of every engine. Another is begun where it ends within the share if it takes
//! as long as the last one, and the first in any case: a slower machine has fewer runs, not a
//! longer minute.

use std::time::{Duration, Instant};

use super::kind::Kind;

/// What all benchmarks together may take.
pub const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    share: Duration,
}

impl Budget {
    /// A minute, divided among all benchmarks there are.
    pub const QUICK: Self =
        Self { share: Duration::from_nanos(MINUTE.as_nanos() as u64 / Kind::ALL.len() as u64) };

    /// What so many benchmarks take together.
    pub fn of(self, benchmarks: usize) -> Duration {
        self.share * u32::try_from(benchmarks).unwrap_or(u32::MAX)
    }

    /// What to expect, in words.
    pub fn expected(self, benchmarks: usize) -> String {
        let (all, share) =
            (self.of(benchmarks).as_secs_f64().round().max(1.0), self.share.as_secs_f64());
        let plural = if benchmarks == 1 { "" } else { "s" };
        format!("about {all:.0} s: {benchmarks} benchmark{plural}, {share:.1} s each")
    }
}

/// The turns of one benchmark: numbers from 0, until there are as many as wanted or no time is
/// left.
pub struct Turns {
    most: usize,
    done: usize,
    /// When the share ends and when the last turn began, from the beginning of everything.
    until: Option<Duration>,
    began: Duration,
    clock: Box<dyn Fn() -> Duration>,
}

impl Turns {
    /// At most so many turns, of the benchmark at the place `at` of those that share `budget` since
    /// `start`.
    pub fn new(most: usize, budget: Option<Budget>, at: usize, start: Instant) -> Self {
        let until = budget.map(|budget| budget.of(at + 1));
        Self {
            most,
            done: 0,
            until,
            began: Duration::ZERO,
            clock: Box::new(move || start.elapsed()),
        }
    }
}

impl Iterator for Turns {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let now = (self.clock)();
        let late = |until| now + now.saturating_sub(self.began) > until;
        if self.done == self.most || (self.done > 0 && self.until.is_some_and(late)) {
            return None;
        }
        self.began = now;
        self.done += 1;
        Some(self.done - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn all_shares_together_are_a_minute() {
        let sum: Duration = Kind::ALL.iter().map(|_| Budget::QUICK.of(1)).sum();
        assert!(sum <= MINUTE && MINUTE.saturating_sub(sum) < Duration::from_micros(1), "{sum:?}");
        assert_eq!(
            sum,
            Budget::QUICK.of(Kind::ALL.len()),
            "the last share ends where the sum does"
        );
        assert!(Budget::QUICK.expected(Kind::ALL.len()).starts_with("about 60 s: "));
        assert!(Budget::QUICK.expected(1).starts_with("about 2 s: 1 benchmark, "));
    }

    /// Turns of a benchmark whose set-up and turns take so many milliseconds by a clock that only
    /// they move; the time when it has ended.
    fn play(now: &Rc<Cell<u64>>, at: usize, most: usize, set_up: u64, turn: u64) -> usize {
        let clock = Rc::clone(now);
        now.set(now.get() + set_up);
        let until = Some(Budget::QUICK.of(at + 1));
        let began = Duration::ZERO;
        let clock = Box::new(move || Duration::from_millis(clock.get()));
        Turns { most, done: 0, until, began, clock }.inspect(|_| now.set(now.get() + turn)).count()
    }

    #[test]
    fn a_suite_ends_within_its_minute_whatever_a_turn_takes() {
        for turn in [1, 90, 300, 700, 1500] {
            let now = Rc::new(Cell::new(0));
            let turns: Vec<usize> =
                (0..Kind::ALL.len()).map(|at| play(&now, at, 7, 400, turn)).collect();
            assert!(now.get() <= 60_000, "turns of {turn} ms: {} ms", now.get());
            assert!(turns.iter().all(|&turns| turns >= 1), "{turns:?}");
            assert!(turn < 700 || turns.iter().all(|&turns| turns <= 3), "{turns:?}");
        }
    }

    #[test]
    fn what_one_benchmark_leaves_over_is_the_next_ones() {
        let now = Rc::new(Cell::new(0));
        assert_eq!(play(&now, 0, 7, 0, 10), 7);
        assert_eq!(play(&now, 1, 7, 0, 1000), 4, "of 4.2 s");
    }

    #[test]
    fn without_a_budget_there_are_as_many_as_wanted() {
        assert_eq!(Turns::new(5, None, 3, Instant::now()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
