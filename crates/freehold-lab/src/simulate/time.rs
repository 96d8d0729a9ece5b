//! Simulated time: whole picoseconds, so that sums do not depend on the order in which they are
//! taken.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A moment, or a length of time: picoseconds since the start. Wide enough for 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds, to the nearest picosecond; nothing for a negative number or for none.
    pub fn from_ns(ns: f64) -> Self {
        Self((ns * 1000.0).round().max(0.0) as u64)
    }

    #[cfg(test)]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    pub fn ns(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Whole nanoseconds, rounded.
    pub const fn whole_ns(self) -> u64 {
        (self.0 + 500) / 1000
    }

    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Time {
    type Output = Self;
    /// Nothing where `other` is later.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Time {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ns", self.ns())
    }
}
