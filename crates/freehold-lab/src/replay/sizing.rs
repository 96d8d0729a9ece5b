//! How large a machine a trace needs, so that no engine is pressed for memory unless the user asks
//! for it.
//!
//! ```text
//!  managed = peak live * 1.25          a quarter more, so that fragmentation alone cannot exhaust memory
//!          + 2048 frames a CPU         a pageblock of each type that a CPU may hold, and one to spare
//!          + managed / 8               what all CPUs' lists may hold together: high_max is managed / 8 / CPUs
//!          + managed / 32              watermarks: min and twice the gap, the gap being a thousandth of managed or more
//! ```

use freehold::Order;

use super::survey::Survey;
use crate::engines::MachineConfig;

/// The least memory a replay gets by default: 64 MiB.
const LEAST_FRAMES: u64 = 64 << 20 >> 12;
/// More CPUs than any engine is asked to simulate.
pub const CPUS_MAX: u16 = 4096;

/// Frames of memory for a trace with that peak and that many CPUs; a whole number of 4 MiB.
pub fn default_frames(peak_live_frames: u64, cpus: u16) -> u64 {
    let live = peak_live_frames + peak_live_frames / 4 + 2048 * u64::from(cpus);
    // Dividing by 27/32 adds the shares of `managed` itself.
    let managed = live.saturating_mul(32) / 27;
    MachineConfig::new(managed.max(LEAST_FRAMES), cpus).memory_frames
}

/// That share of a zone's memory as CMA: whole chunks of the largest order, at least one.
pub fn cma_frames(managed: u64, share: f64) -> u64 {
    let largest = Order::LINUX_MAX.frames();
    ((managed as f64 * share / largest as f64).round() as u64).max(1) * largest
}

/// CPUs of the machine: as many as the trace says it had or shows.
pub fn default_cpus(survey: &Survey) -> u16 {
    let shown = survey.facts.max_cpu.saturating_add(1);
    survey.description.cpus.map_or(shown, |cpus| cpus.max(shown))
}

/// The machine for a trace, of that memory or of as much as it needs.
pub fn machine(
    survey: &Survey,
    warm: bool,
    memory_frames: Option<u64>,
    cpus: u16,
) -> MachineConfig {
    let frames = memory_frames.unwrap_or_else(|| default_frames(survey.peak_frames(warm), cpus));
    MachineConfig::new(frames, cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_room_covers_lists_and_watermarks() {
        for (peak, cpus) in [(0, 1), (1000, 2), (500_000, 2), (8 << 20, 64), (100, 4096)] {
            let managed = default_frames(peak, cpus);
            assert_eq!(managed % 1024, 0);
            assert!(managed >= LEAST_FRAMES);
            let gap = (managed / 1000).max(1024);
            let held_back = managed / 8 + (managed / 64).min(8192) + 2 * gap.min(managed / 256);
            assert!(
                managed - held_back >= peak + peak / 8,
                "{peak} frames on {cpus} CPUs: {managed}"
            );
        }
    }
}
