//! Samples of a loop, and which of them count: those in which the core was ours.
//!
//! ```text
//!  probe  sample  probe  sample  probe  sample  probe        probe    independent adds, ns for each
//!    |-------------|-------------|-------------|             sample   as many calls as take about 200 us
//!   .13     ok    .13   shared  .25   shared  .13
//! ```
//!
//! A virtual CPU of a shared machine is one of two hardware threads of a core. While another
//! guest runs on the second one, everything takes up to twice as long, and no clock of this guest
//! shows it: time that is shared is neither stolen nor waited for. What shows it is the rate of
//! independent adds, which a core of its own retires several of in each cycle. A sample between two
//! probes that both come near the best rate ever seen counts; the others are thrown away, and how
//! many these were is said beside the figure.
//!
//! A core that throttles after the first probes looks like a shared one. Its figures are marked,
//! since then fewer than a third of their samples are left.

use std::time::Duration;

use super::probe::Probe;

/// How near a probe must come to the best rate for the core to be ours. Clocks vary by a few per
/// cent; a busy second hardware thread takes a quarter to a half.
const OURS: f64 = 0.9;

/// The least share of samples that a figure is trusted with.
pub const ENOUGH: f64 = 1.0 / 3.0;

/// How long a sample is to take. Long beside reading the clock (300 ns) and a probe (a few us),
/// short beside a neighbour's turn (milliseconds).
const SAMPLE: Duration = Duration::from_micros(200);
/// Calls of the first sample.
const FIRST: u64 = 64;

/// What samples are measured by: this machine, or a test.
pub trait Watch {
    /// A clock.
    fn now(&self) -> Duration;
    /// Adds a nanosecond at this moment; nothing where there is no probe for this processor.
    fn rate(&self) -> Option<f64>;
    /// The best rate so far.
    fn best(&self) -> f64;
}

/// Time for so many calls.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sum {
    time: Duration,
    calls: u64,
    samples: u64,
}

impl Sum {
    fn add(&mut self, time: Duration, calls: u64) {
        self.time += time;
        self.calls += calls;
        self.samples += 1;
    }

    fn per(self) -> f64 {
        self.time.as_nanos() as f64 / self.calls as f64
    }
}

/// A figure of many samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampled {
    /// Nanoseconds a call: of the samples that count, or of all where too few do.
    pub per: f64,
    /// Samples taken, and those of them that did not count.
    pub samples: Samples,
}

impl Sampled {
    /// Of calls that do so many things each: nanoseconds a thing.
    #[must_use]
    pub fn each(self, things: f64) -> Self {
        Self { per: self.per / things, ..self }
    }
}

/// How many samples there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Samples {
    pub taken: u64,
    /// Those in which the core was not ours.
    pub shared: u64,
}

impl Samples {
    /// The share that did not count; `None` where none were taken, or nobody could tell.
    pub fn shared_share(self) -> Option<f64> {
        (self.taken > 0).then(|| self.shared as f64 / self.taken as f64)
    }

    /// Whether fewer than a third were left.
    pub fn too_few(self) -> bool {
        self.shared_share().is_some_and(|shared| 1.0 - shared < ENOUGH)
    }

    pub fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.shared += other.shared;
    }
}

/// Whether the core was ours in a sample with these rates before and after it.
fn is_ours(best: f64, before: f64, after: f64) -> bool {
    before >= best * OURS && after >= best * OURS
}

/// What comes of the samples that count and of all of them.
fn figure(ours: Sum, all: Sum) -> Sampled {
    let samples = Samples { taken: all.samples, shared: all.samples - ours.samples };
    let per = if ours.calls == 0 || samples.too_few() { all.per() } else { ours.per() };
    Sampled { per, samples }
}

/// Calls of the next sample, after one of so many that took so long.
fn next(calls: u64, time: Duration) -> u64 {
    if time < SAMPLE / 2 {
        calls.saturating_mul(2)
    } else if time > SAMPLE * 2 {
        (calls / 2).max(1)
    } else {
        calls
    }
}

/// Takes samples.
pub struct Sampler<'w, W: Watch> {
    watch: &'w W,
    /// The last probe's rate.
    before: Option<f64>,
    ours: Sum,
    all: Sum,
}

impl Sampler<'static, Probe> {
    /// By this thread's CPU clock and this core's probe.
    pub fn here() -> Self {
        Self::new(Probe::shared())
    }
}

impl<'w, W: Watch> Sampler<'w, W> {
    pub fn new(watch: &'w W) -> Self {
        Self { watch, before: watch.rate(), ours: Sum::default(), all: Sum::default() }
    }

    /// Looks at the core again, where something untimed has been done since the last sample.
    pub fn look(&mut self) {
        self.before = self.watch.rate();
    }

    /// One sample: what `work` takes, which are so many calls.
    ///
    /// Work comes as a trait object: one more call in 200 us, and nothing compiled for each loop of
    /// each engine.
    pub fn sample<E>(
        &mut self,
        calls: u64,
        work: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Duration, E> {
        let start = self.watch.now();
        work()?;
        let time = self.watch.now().saturating_sub(start);
        self.took(time, calls);
        Ok(time)
    }

    /// `n` calls, in samples of about 200 us each: `work` is told from which call on, and how
    /// many.
    pub fn calls<E>(
        &mut self,
        n: u64,
        work: &mut dyn FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut done, mut calls) = (0, FIRST);
        while done < n {
            let now = calls.min(n - done);
            let time = self.sample(now, &mut || work(done, now))?;
            done += now;
            calls = next(calls, time);
        }
        Ok(())
    }

    /// The sample that has just ended.
    fn took(&mut self, time: Duration, calls: u64) {
        let after = self.watch.rate();
        self.all.add(time, calls);
        let best = self.watch.best();
        // Where there is no probe, all of them count.
        let rates = self.before.zip(after);
        if rates.is_none_or(|(before, after)| is_ours(best, before, after)) {
            self.ours.add(time, calls);
        }
        self.before = after;
    }

    /// What has come of them. NaN nanoseconds where there were none.
    pub fn end(self) -> Sampled {
        let mut sampled = figure(self.ours, self.all);
        if self.before.is_none() {
            sampled.samples = Samples::default();
        }
        sampled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Rates in their order, and a clock that only the work moves.
    struct Fake {
        now: Cell<Duration>,
        rates: RefCell<Vec<Option<f64>>>,
        best: f64,
    }

    impl Fake {
        fn new(rates: &[f64]) -> Self {
            let rates = rates.iter().rev().copied().map(Some).collect();
            Self { now: Cell::default(), rates: RefCell::new(rates), best: 4.0 }
        }

        fn pass(&self, micros: u64) {
            self.now.set(self.now.get() + Duration::from_micros(micros));
        }
    }

    impl Watch for Fake {
        fn now(&self) -> Duration {
            self.now.get()
        }

        fn rate(&self) -> Option<f64> {
            self.rates.borrow_mut().pop().flatten()
        }

        fn best(&self) -> f64 {
            self.best
        }
    }

    /// Samples of 100 calls that take so many microseconds, between probes of these rates.
    fn sampled(rates: &[f64], micros: &[u64]) -> Sampled {
        let watch = Fake::new(rates);
        let mut sampler = Sampler::new(&watch);
        for &time in micros {
            let mut calls = || {
                watch.pass(time);
                Ok::<_, ()>(())
            };
            sampler.sample(100, &mut calls).unwrap();
        }
        sampler.end()
    }

    #[test]
    fn a_sample_counts_where_both_probes_come_near_the_best() {
        for (before, after, ours) in [
            (4.0, 4.0, true),
            (3.6, 3.6, true),
            (3.59, 4.0, false),
            (4.0, 3.59, false),
            (2.0, 2.0, false),
        ] {
            assert_eq!(is_ours(4.0, before, after), ours, "{before} {after}");
        }
    }

    #[test]
    fn samples_of_a_shared_core_are_left_out_of_the_figure() {
        // The neighbour comes in the second sample and goes in the third.
        let found = sampled(&[4.0, 4.0, 2.0, 4.0, 4.0], &[10, 18, 19, 12]);
        assert_eq!(found.samples, Samples { taken: 4, shared: 2 });
        assert_eq!(found.per, 110.0, "10 and 12 us for 200 calls");
        assert_eq!(found.samples.shared_share(), Some(0.5));
        assert!(!found.samples.too_few());
    }

    #[test]
    fn where_fewer_than_a_third_are_left_all_count_and_the_figure_is_marked() {
        let found = sampled(&[4.0, 4.0, 2.0, 2.0, 2.0], &[10, 20, 20, 30]);
        assert_eq!(found.samples, Samples { taken: 4, shared: 3 });
        assert!(found.samples.too_few());
        assert_eq!(found.per, 200.0, "80 us for 400 calls");

        let third = sampled(&[4.0, 4.0, 2.0, 2.0], &[10, 20, 20]);
        assert!(!third.samples.too_few(), "one of three is a third");
        assert_eq!(third.per, 100.0);

        let none = sampled(&[2.0, 2.0], &[20]);
        assert!(none.samples.too_few());
        assert_eq!((none.per, none.samples.shared_share()), (200.0, Some(1.0)));
    }

    #[test]
    fn without_a_probe_every_sample_counts_and_nobody_can_tell() {
        let found = sampled(&[], &[10, 30]);
        assert_eq!((found.per, found.samples), (200.0, Samples::default()));
        assert_eq!(found.samples.shared_share(), None);
        assert!(!found.samples.too_few());
    }

    #[test]
    fn calls_are_all_made_once_in_samples_that_take_about_as_long_as_wanted() {
        // 1 us a call: samples grow from the first to 128, which take 128 us.
        let watch = Fake::new(&[4.0; 100]);
        let mut sampler = Sampler::new(&watch);
        let mut made = Vec::new();
        let mut work = |from: u64, calls: u64| {
            made.push((from, calls));
            watch.pass(calls);
            Ok::<_, ()>(())
        };
        sampler.calls(1000, &mut work).unwrap();
        let mut next = 0;
        for &(from, calls) in &made {
            assert_eq!(from, next);
            next += calls;
        }
        assert_eq!(next, 1000);
        assert_eq!(made.iter().map(|&(_, calls)| calls).max(), Some(128));
        assert_eq!(sampler.end().per, 1000.0);
    }

    #[test]
    fn samples_shrink_where_calls_are_slow_and_errors_end_them() {
        let watch = Fake::new(&[4.0; 100]);
        let mut sampler = Sampler::new(&watch);
        let (mut sizes, mut left) = (Vec::new(), 10);
        let ended = sampler.calls(1000, &mut |_, calls| {
            sizes.push(calls);
            watch.pass(calls * 300);
            left -= 1;
            if left == 0 { Err("refused") } else { Ok(()) }
        });
        assert_eq!(ended, Err("refused"));
        assert_eq!(sizes, [64, 32, 16, 8, 4, 2, 1, 1, 1, 1]);
        assert_eq!(sampler.end().samples.taken, 9, "the one that failed is none");
    }
}
