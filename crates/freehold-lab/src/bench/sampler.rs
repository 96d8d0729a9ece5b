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

use super::clock::thread_time;
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

/// A figure of many samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampled {
    /// Nanoseconds a call: of the samples that count, or of all where too few do. NaN where there
    /// were none.
    pub per: f64,
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
    /// None where this processor has no probe.
    pub taken: u64,
    /// Those in which the core was not ours.
    pub shared: u64,
}

impl Samples {
    /// The share that did not count; `None` where none were taken, or nobody could tell.
    pub fn shared_share(self) -> Option<f64> {
        (self.taken > 0).then(|| self.shared as f64 / self.taken as f64)
    }

    pub fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.shared += other.shared;
    }
}

/// One sample, and the slower of the rates of adds before and after it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: Duration,
    calls: u64,
    rate: Option<f64>,
}

/// What comes of samples where the best rate is so high.
fn figure(samples: &[Sample], best: f64) -> Sampled {
    let per = |samples: &mut dyn Iterator<Item = &Sample>| {
        let (time, calls) = samples.fold((0, 0), |(time, calls), sample| {
            (time + sample.time.as_nanos(), calls + sample.calls)
        });
        time as f64 / calls as f64
    };
    // Where there is no probe, all of them count.
    let is_ours = |sample: &&Sample| sample.rate.is_none_or(|rate| rate >= best * OURS);
    let ours = samples.iter().filter(is_ours).count();
    let few = (ours as f64) < samples.len() as f64 * ENOUGH;
    let counted = |sample: &&Sample| few || is_ours(sample);
    let told = samples.iter().all(|sample| sample.rate.is_some());
    let (taken, shared) = (samples.len() as u64, (samples.len() - ours) as u64);
    Sampled {
        per: per(&mut samples.iter().filter(counted)),
        samples: if told { Samples { taken, shared } } else { Samples::default() },
    }
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

/// Takes samples by this thread's CPU clock and this core's probe.
pub struct Sampler {
    /// The last probe's rate.
    before: Option<f64>,
    samples: Vec<Sample>,
}

impl Sampler {
    pub fn here() -> Self {
        Self { before: Probe::shared().rate(), samples: Vec::new() }
    }

    /// `n` calls, in samples of about 200 us each: `work` is told from which call on, and how
    /// many.
    ///
    /// Work comes as a trait object: one more call in 200 us, and nothing compiled for each loop of
    /// each engine.
    pub fn calls<E>(
        &mut self,
        n: u64,
        work: &mut dyn FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut done, mut calls) = (0, FIRST);
        while done < n {
            let now = calls.min(n - done);
            let start = thread_time();
            work(done, now)?;
            let time = thread_time().saturating_sub(start);
            let after = Probe::shared().rate();
            let rate = self.before.zip(after).map(|(before, after)| before.min(after));
            self.samples.push(Sample { time, calls: now, rate });
            self.before = after;
            done += now;
            calls = next(calls, time);
        }
        Ok(())
    }

    /// What has come of them.
    pub fn end(self) -> Sampled {
        figure(&self.samples, Probe::shared().best())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of 100 calls: microseconds, and the rate beside a best of 4.
    fn sampled(samples: &[(u64, f64)]) -> Sampled {
        let sample = |&(micros, rate)| {
            let rate = (rate > 0.0).then_some(rate);
            Sample { time: Duration::from_micros(micros), calls: 100, rate }
        };
        figure(&samples.iter().map(sample).collect::<Vec<_>>(), 4.0)
    }

    #[test]
    fn samples_of_a_shared_core_are_left_out_of_the_figure() {
        let found = sampled(&[(10, 4.0), (18, 3.59), (19, 2.0), (12, 3.6)]);
        assert_eq!(found.samples, Samples { taken: 4, shared: 2 });
        assert_eq!(found.per, 110.0, "10 and 12 us for 200 calls");
        assert_eq!(found.samples.shared_share(), Some(0.5));
    }

    #[test]
    fn where_fewer_than_a_third_are_left_all_count() {
        let found = sampled(&[(10, 4.0), (20, 2.0), (20, 2.0), (30, 2.0)]);
        assert_eq!(found.samples, Samples { taken: 4, shared: 3 });
        assert_eq!(found.per, 200.0, "80 us for 400 calls");
        assert_eq!(
            sampled(&[(10, 4.0), (20, 2.0), (20, 2.0)]).per,
            100.0,
            "one of three is enough"
        );
        let none = sampled(&[(20, 2.0)]);
        assert_eq!((none.per, none.samples.shared_share()), (200.0, Some(1.0)));
    }

    #[test]
    fn without_a_probe_every_sample_counts_and_nobody_can_tell() {
        let found = sampled(&[(10, 0.0), (30, 0.0)]);
        assert_eq!((found.per, found.samples), (200.0, Samples::default()));
        assert_eq!(found.samples.shared_share(), None);
    }

    #[test]
    fn samples_grow_and_shrink_to_what_they_are_to_take() {
        let after = |micros| next(64, Duration::from_micros(micros));
        assert_eq!([after(50), after(150), after(300), after(500)], [128, 64, 64, 32]);
        assert_eq!(next(1, SAMPLE * 10), 1);
    }

    #[test]
    fn all_calls_are_made_once_and_an_error_ends_them() {
        let (mut sampler, mut made) = (Sampler::here(), 0);
        let mut work = |from: u64, calls: u64| {
            assert_eq!(from, made);
            made += calls;
            Ok::<_, ()>(())
        };
        sampler.calls(1000, &mut work).unwrap();
        assert_eq!(made, 1000);
        assert_eq!(Sampler::here().calls(1000, &mut |_, _| Err("refused")), Err("refused"));
    }
}
