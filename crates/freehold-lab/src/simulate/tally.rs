//! What is counted while a simulation is measured.

use hdrhistogram::Histogram;

use super::time::Time;

/// How long calls took, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency(pub Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // Of nanoseconds, with three digits: 1 ns to 100 s, what the widest simulation can need.
        Self(Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order"))
    }
}

/// What the calls of a measured stretch came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub frames: u64,
    pub failed: u64,
    pub calls: u64,
    pub ticks: u64,
    /// Waiting for the zone lock, all CPUs together.
    pub zone_wait: Time,
    /// Waiting for CPUs' locks, all CPUs together.
    pub pcp_wait: Time,
    /// Calls that did.
    pub pcp_waits: u64,
    /// Waiting for lines that were on their way to somebody else, all CPUs together.
    pub line_wait: Time,
    /// In calls, waits included, all CPUs together.
    pub in_calls: Time,
    /// In work between calls, all CPUs together.
    pub between: Time,
    /// Allocations that found their CPU's lock held and went to the zone.
    pub pcp_busy: u64,
    /// The zone lock's busy time.
    pub zone_held: Time,
    /// Its holds.
    pub zone_holds: u64,
    pub longest_hold: Time,
    /// Lines that had to be brought over from another CPU.
    pub transfers: u64,
    pub latency: Latency,
    /// Latency of the CPUs that are watched (bystanders).
    pub watched: Latency,
}
