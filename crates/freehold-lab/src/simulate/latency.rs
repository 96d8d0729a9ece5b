//! How long allocations took over the simulated time: at most 48 windows of equal length.
//!
//! How long a run will take is known at its end. So the windows are a microsecond each at first,
//! and whenever there would be too many, each two neighbours become one, of twice the length:
//!
//! ```text
//!   | 1 us | 1 us | ... 48 of them |   an allocation begins here -> |
//!   |    2 us     | ... 24         |      2 us     |
//! ```

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::time::Time;

/// As many as can be told apart on a phone.
const WINDOWS_MAX: usize = 48;

/// Windows of one measured stretch.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Where the first one begins.
    begun: Time,
    width_ns: u64,
    windows: Vec<Histogram<u64>>,
}

/// The windows as a row has them: lists of equal length, an entry a window.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AllocationLatency {
    /// The length of a window, in simulated nanoseconds; the first begins with the measured
    /// stretch.
    pub window_ns: u64,
    /// Allocations that began in it, failed ones among them.
    pub allocations: Vec<u64>,
    /// Half of them took at most this; 0 where there is none, as below.
    pub p50_ns: Vec<u64>,
    /// 99 % of them took at most this.
    pub p99_ns: Vec<u64>,
    /// All of them did.
    pub max_ns: Vec<u64>,
}

/// Of nanoseconds, with so many digits: 1 ns to 100 s, what the widest simulation can need.
pub(super) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, digits).expect("the bounds are in order")
}

impl Default for Windows {
    fn default() -> Self {
        Self::new(Time::ZERO)
    }
}

impl Windows {
    pub fn new(begun: Time) -> Self {
        Self { begun, width_ns: 1000, windows: Vec::new() }
    }

    /// An allocation that began at `began` took `ns`.
    pub fn record(&mut self, began: Time, ns: u64) {
        let since = (began - self.begun).whole_ns();
        while since / self.width_ns >= WINDOWS_MAX as u64 {
            self.halve();
        }
        let window = (since / self.width_ns) as usize;
        while self.windows.len() <= window {
            self.windows.push(histogram(2));
        }
        self.windows[window].saturating_record(ns);
    }

    /// Each two neighbours become one.
    fn halve(&mut self) {
        self.width_ns *= 2;
        let mut windows = std::mem::take(&mut self.windows).into_iter();
        while let Some(mut first) = windows.next() {
            if let Some(second) = windows.next() {
                first.add(second).expect("all have the same bounds");
            }
            self.windows.push(first);
        }
    }

    pub fn latency(&self) -> AllocationLatency {
        let each = |of: fn(&Histogram<u64>) -> u64| self.windows.iter().map(of).collect();
        AllocationLatency {
            window_ns: self.width_ns,
            allocations: each(Histogram::len),
            p50_ns: each(|window| window.value_at_quantile(0.5)),
            p99_ns: each(|window| window.value_at_quantile(0.99)),
            max_ns: each(Histogram::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocation_is_in_the_window_in_which_it_began() {
        let at = |us: u32| Time::from_ns(f64::from(us) * 1000.0);
        let mut windows = Windows::new(at(5));
        for us in 0..100 {
            // One a microsecond; the one at 60 takes long.
            windows.record(at(5 + us), if us == 60 { 900 } else { 50 });
        }
        let found = windows.latency();
        assert_eq!(found.window_ns, 4000);
        assert_eq!(found.allocations, [4; 25]);
        assert_eq!(found.p50_ns, [50; 25]);
        let mut longest = [50; 25];
        longest[15] = found.max_ns[15];
        assert_eq!(found.max_ns, longest);
        assert!((900..=909).contains(&longest[15]), "{longest:?}");
    }

    #[test]
    fn a_window_without_allocations_says_so() {
        let mut windows = Windows::new(Time::ZERO);
        windows.record(Time::from_ns(2500.0), 7);
        let found = windows.latency();
        assert_eq!((found.window_ns, found.allocations), (1000, vec![0, 0, 1]));
        assert_eq!(
            (found.p50_ns, found.p99_ns, found.max_ns),
            (vec![0, 0, 7], vec![0, 0, 7], vec![0, 0, 7])
        );
    }
}
