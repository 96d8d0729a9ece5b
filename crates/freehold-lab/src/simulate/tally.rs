//! What is counted while a simulation is measured.

use super::time::Time;

/// What the calls of a measured stretch came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub frames: u64,
    pub failed: u64,
    pub ticks: u64,
    /// Waiting for the zone lock, all CPUs together.
    pub zone_wait: Time,
    /// Waiting for CPUs' locks, all CPUs together.
    pub pcp_wait: Time,
    /// Waiting for lines that were on their way to somebody else, all CPUs together.
    pub line_wait: Time,
    /// In calls, waits included, all CPUs together.
    pub in_calls: Time,
    /// In work between calls, all CPUs together.
    pub between: Time,
    /// Allocations that found their CPU's lock held and went to the zone.
    pub pcp_busy: u64,
    pub zone_held: Time,
    pub zone_holds: u64,
    pub longest_hold: Time,
}
