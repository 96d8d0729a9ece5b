//! What a trace holds, counted while it is read: facts of the recording, the same whichever engine
//! replays it.

use serde::Serialize;

/// Counts of one reading of a trace. The names of the fields are those of `--json` and stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceFacts {
    /// Rows or lines that were events.
    pub events: u64,
    /// Allocations that succeeded.
    pub allocs: u64,
    /// Allocations that failed when the trace was recorded; never replayed.
    pub failed_allocs: u64,
    pub frees: u64,
    /// Of these, frees on another CPU than the one that allocated.
    pub remote_frees: u64,
    /// Of these, frees of frames whose allocation is in the trace.
    #[serde(skip)]
    pub known_frees: u64,
    /// Of these, frees of frames that were not allocated as far as the trace shows.
    pub unknown_frees: u64,
    pub unknown_free_frames: u64,
    /// Of these frees, those of frames that the trace shows to be free already: traced twice, or
    /// their allocation is missing.
    pub repeated_frees: u64,
    /// Frees inside a larger live allocation, which was therefore split.
    pub split_frees: u64,
    /// Frees of one chunk in which several smaller allocations live.
    pub wide_frees: u64,
    /// Allocations of frames that were still live: their free is not in the trace.
    pub lost_frees: u64,
    /// Requests above order 10, which engines have no chunks of: made as so many of order 10 as
    /// they have pages for, which need not be neighbours.
    pub in_parts: u64,
    /// Events of a frame that no chunk of their order can start at; left out.
    pub misaligned: u64,
    /// Frees that went through a batch of folios.
    pub free_batched: u64,
    /// Chunks the recording kernel's CPUs gave back to a zone.
    pub pcpu_drains: u64,
    /// Times the recording kernel took memory of another migratetype.
    pub extfrags: u64,
    /// Chunks the recording kernel took from a zone under its lock.
    pub zone_locked: u64,
    /// Allocations put in for frames whose own allocation was not traced.
    #[serde(skip)]
    pub injected: u64,
    #[serde(rename = "live_frames_end")]
    pub live_frames: u64,
    pub peak_live_frames: u64,
    #[serde(skip)]
    pub live_chunks: u64,
    /// The largest order allocated or freed.
    pub max_order: u8,
    #[serde(skip)]
    pub first_ts_ns: u64,
    /// The latest time of an event.
    #[serde(skip)]
    pub last_ts_ns: u64,
    /// CPUs that ran an event.
    #[serde(rename = "cpus")]
    pub cpus_seen: u32,
    /// The largest CPU number that ran an event.
    #[serde(skip)]
    pub max_cpu: u16,
}

impl TraceFacts {
    /// The share of frees, of those whose allocation is known, that ran on another CPU than the
    /// allocation.
    pub fn remote_free_share(&self) -> f64 {
        if self.known_frees == 0 { 0.0 } else { self.remote_frees as f64 / self.known_frees as f64 }
    }

    /// From the first event to the last.
    pub fn span_ns(&self) -> u64 {
        self.last_ts_ns.saturating_sub(self.first_ts_ns)
    }
}
