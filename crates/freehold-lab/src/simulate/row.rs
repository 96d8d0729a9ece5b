//! A row of the output: what came of one simulation, and what bounds it.

use serde::Serialize;

use crate::tables::thousands;

/// What came of it: a row of the output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub engine: String,
    pub workload: String,
    pub cpus: u16,
    pub memory_bytes: u64,
    pub seed: u64,
    /// Nanoseconds of other work per allocation.
    pub think_ns: f64,
    /// Frames that were to be allocated in the measured stretch, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_frames: Option<u64>,
    /// Simulated milliseconds between two ticks of a CPU; 0: it never ticks.
    pub tick_ms: f64,
    /// Simulated nanoseconds of the measured stretch.
    pub simulated_ns: u64,
    pub frames: u64,
    pub frames_per_second: f64,
    /// Share of all CPUs' time that went into waiting for zone locks.
    pub zone_lock_wait_share: f64,
    /// Share of all CPUs' time that went into waiting for CPUs' locks.
    pub pcp_lock_wait_share: f64,
    /// Share of all CPUs' time that went into waiting for lines on their way to another CPU.
    pub line_wait_share: f64,
    /// Share of all CPUs' time that went into other work than calls: the think time, and what the
    /// workload does itself.
    pub think_share: f64,
    /// What bounds the throughput: where most of all CPUs' time goes, or the lock that is held
    /// practically all the time.
    pub bound: Bound,
    pub zone_lock_busy_share: f64,
    pub zone_lock_acquisitions: u64,
    pub longest_hold_ns: u64,
    /// Allocations that found their CPU's lock held by a free from elsewhere and went to the zone.
    pub pcp_busy: u64,
    /// Holds of CPUs' locks in the measured stretch, where the design has such locks.
    pub pcp_lock_acquisitions: u64,
    /// Allocations that took memory of another migratetype, from the start on.
    pub fallbacks: u64,
    pub failed: u64,
    /// Pairs of buddies merged under the zone lock, from the start on.
    pub merges_zone: u64,
    /// Pairs of buddies merged under CPUs' locks, from the start on.
    pub merges_pcp: u64,
    /// Ticks of all CPUs in the measured stretch.
    pub ticks: u64,
    /// Heavy barriers in it: times that every CPU was made to pass a full memory barrier.
    pub heavy_barriers: u64,
    /// Pageblocks without a frame in use at the end.
    pub free_blocks: u64,
    /// Pageblocks in which frames of more than one migratetype are in use at the end, as far as the
    /// engine can tell.
    pub mixed_blocks: u64,
    /// The unusable-free-space index for order 9 at the end.
    pub unusable_index: f64,
}

/// What bounds a row's throughput. Where it is [`Bound::Think`] the frames per second say how much
/// else the CPUs had to do, and hardly anything of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    #[default]
    Think,
    Calls,
    ZoneLock,
    CpuLocks,
    /// Cache lines that go from CPU to CPU.
    Lines,
    /// Waiting for what another CPU has to do first.
    OtherCpus,
}

impl Bound {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Think => "think",
            Self::Calls => "calls",
            Self::ZoneLock => "zone lock",
            Self::CpuLocks => "CPU locks",
            Self::Lines => "lines",
            Self::OtherCpus => "others",
        }
    }
}

/// A lock that is held for this share of the time is full.
const FULL: f64 = 0.95;

impl Row {
    /// What bounds it, where so much of all CPUs' time was spent in calls.
    pub(super) fn bound(&self, in_calls: f64) -> Bound {
        if self.zone_lock_busy_share >= FULL {
            return Bound::ZoneLock;
        }
        let waits = [
            (Bound::ZoneLock, self.zone_lock_wait_share),
            (Bound::CpuLocks, self.pcp_lock_wait_share),
            (Bound::Lines, self.line_wait_share),
        ];
        let calls = in_calls - waits.iter().map(|(_, share)| share).sum::<f64>();
        let others = 1.0 - self.think_share - in_calls;
        // Of equal ones the first: a machine in which nothing happens is bound by its think time.
        let own = [(Bound::Think, self.think_share), (Bound::Calls, calls)].into_iter();
        let all = own.chain(waits).chain([(Bound::OtherCpus, others)]);
        all.reduce(|most, next| if next.1 > most.1 { next } else { most })
            .map_or(Bound::Think, |(bound, _)| bound)
    }
}

/// Frames per second as tables have them.
pub(super) fn rate(per_second: f64) -> String {
    if per_second >= 1e9 {
        format!("{:.2} G", per_second / 1e9)
    } else if per_second >= 1e6 {
        format!("{:.1} M", per_second / 1e6)
    } else {
        thousands(per_second.round() as u64)
    }
}
