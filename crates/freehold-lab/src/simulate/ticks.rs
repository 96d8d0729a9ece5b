//! The periodic work of simulated CPUs.

use super::time::Time;

/// When whose tick is due: every CPU's once a period, evenly spread over it.
pub(super) struct Ticks {
    cpus: u64,
    /// Between the ticks of two CPUs, one after the other; `None`: nobody ticks.
    apart: Option<Time>,
    /// How many there have been.
    n: u64,
    /// How long each CPU's work is put off by ticks since it last went on.
    put_off: Vec<Time>,
}

impl Ticks {
    pub(super) fn new(cpus: u16, period_ms: f64) -> Self {
        let apart = Time::from_ns(period_ms * 1e6 / f64::from(cpus));
        Self {
            cpus: u64::from(cpus),
            apart: (apart > Time::ZERO).then_some(apart),
            n: 0,
            put_off: vec![Time::ZERO; usize::from(cpus)],
        }
    }

    /// The next, if it is due at `now`: whose, and when.
    pub(super) fn next(&mut self, now: Time) -> Option<(u16, Time)> {
        let due = self.apart? * (self.n + 1);
        (due <= now).then(|| {
            let cpu = self.n % self.cpus;
            self.n += 1;
            (cpu as u16, due)
        })
    }

    /// A tick took so long: what its CPU does next begins later.
    pub(super) fn put_off(&mut self, cpu: u16, by: Time) {
        self.put_off[usize::from(cpu)] += by;
    }

    /// How much later what a CPU does next begins; nothing from then on.
    pub(super) fn taken(&mut self, cpu: u16) -> Time {
        std::mem::replace(&mut self.put_off[usize::from(cpu)], Time::ZERO)
    }
}
