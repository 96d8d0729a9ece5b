//! What is counted while a simulation is measured.

use hdrhistogram::Histogram;

use super::latency::Windows;
use super::time::Time;

/// What the calls of a measured stretch came to.
#[derive(Clone, Debug)]
pub struct Tally {
    pub frames: u64,
    pub freed: u64,
    pub failed: u64,
    pub calls: u64,
    pub ticks: u64,
    /// Waiting for the zone lock, all CPUs together.
    pub zone_wait: Time,
    /// Waiting for CPUs' locks, all CPUs together.
    pub pcp_wait: Time,
    /// Waiting for groups' locks, all CPUs together.
    pub group_wait: Time,
    pub group_holds: u64,
    /// How long each group's lock was held, by zone and the group's first CPU.
    pub groups_held: Vec<Time>,
    /// Waiting for lines that were on their way to somebody else, all CPUs together.
    pub line_wait: Time,
    /// In calls, waits included, all CPUs together.
    pub in_calls: Time,
    /// In work between calls, all CPUs together.
    pub between: Time,
    /// Allocations that found their CPU's lock held and went to the zone.
    pub pcp_busy: u64,
    /// Chunks allocated from another node than the CPU's.
    pub off_node: u64,
    /// Each zone lock's busy time.
    pub zones_held: Vec<Time>,
    /// Holds of zone locks.
    pub zone_holds: u64,
    pub longest_hold: Time,
    /// Lines that had to be brought over from another CPU.
    pub transfers: u64,
    /// How long calls took, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The same of the CPUs that are watched (bystanders).
    pub watched: Histogram<u64>,
    /// How long allocations took, over time.
    pub allocations: Windows,
}

impl Tally {
    /// Of a stretch that begins at `begun`.
    pub(super) fn new(zones: usize, groups: usize, begun: Time) -> Self {
        // 1 ns to 100 s with 3 digits: what the widest simulation can need.
        let histogram = || Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("the bounds are in order");
        Self {
            frames: 0,
            freed: 0,
            failed: 0,
            calls: 0,
            ticks: 0,
            zone_wait: Time::ZERO,
            pcp_wait: Time::ZERO,
            group_wait: Time::ZERO,
            group_holds: 0,
            groups_held: vec![Time::ZERO; groups],
            line_wait: Time::ZERO,
            in_calls: Time::ZERO,
            between: Time::ZERO,
            pcp_busy: 0,
            off_node: 0,
            zones_held: vec![Time::ZERO; zones],
            zone_holds: 0,
            longest_hold: Time::ZERO,
            transfers: 0,
            latency: histogram(),
            watched: histogram(),
            allocations: Windows::new(begun),
        }
    }
}
