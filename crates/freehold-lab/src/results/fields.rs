//! The figures of each command by their names in its JSON: what each is called where people read
//! it, and whether more of it is better. A report shows them and a comparison judges them.

use crate::tables::better::Better;

/// A figure by its name in the JSON; a dot leads into an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// What people read; short, since it heads a column.
    pub(crate) said: &'static str,
    pub(crate) better: Better,
}

const fn less(name: &'static str, said: &'static str) -> Field {
    Field { name, said, better: Better::Less }
}

const fn more(name: &'static str, said: &'static str) -> Field {
    Field { name, said, better: Better::More }
}

const fn neither(name: &'static str, said: &'static str) -> Field {
    Field { name, said, better: Better::Neither }
}

impl Field {
    /// Its value in a row of the JSON.
    pub(crate) fn of(&self, row: &serde_json::Value) -> Option<f64> {
        self.name.split('.').fold(row, |value, part| &value[part]).as_f64()
    }
}

/// Of a replay.
pub(crate) const REPLAY: [Field; 21] = [
    less("failed", "allocations that failed"),
    less("zone_lock_acquisitions", "zone locks taken"),
    less("zone_lock_work", "steps under the zone lock"),
    less("zone_lock_work_mean", "steps a hold, mean"),
    less("zone_lock_work_p99", "steps a hold, 99 %"),
    less("zone_lock_work_max", "steps a hold, most"),
    less("shared_writes", "shared writes"),
    less("pcp_lock_acquisitions", "PCP locks taken"),
    less("pcp_lock_work", "steps under PCP locks"),
    less("merges_zone", "merges under the zone lock"),
    more("pcp_hit_rate", "PCP hit rate"),
    less("refills", "refills"),
    less("drains", "drains"),
    less("fallbacks", "fallbacks"),
    less("mixed_blocks", "mixed blocks at the end"),
    more("free_blocks_end", "whole free blocks at the end"),
    less("unusable_index_min", "unusable index of order 9, least"),
    less("unusable_index_mean", "unusable index of order 9, mean"),
    less("lost_frames", "lost frames"),
    // Noisy, and measured once: shown, never judged.
    neither("ns_per_event", "ns an event (noisy)"),
    // Another trace of the same name would show here.
    neither("allocs", "allocations"),
];

/// Of a simulation.
pub(crate) const SIMULATE: [Field; 15] = [
    more("frames_per_second", "frames a second"),
    less("zone_lock_wait_share", "share of time: zone lock"),
    less("pcp_lock_wait_share", "PCP locks"),
    less("line_wait_share", "cache lines"),
    less("zone_lock_acquisitions", "zone locks taken"),
    less("longest_hold_ns", "longest hold, ns"),
    less("latency_p50_ns", "a call, ns: half"),
    less("latency_p999_ns", "99.9 %"),
    less("bystander_p999_ns", "bystanders' 99.9 %"),
    less("fallbacks", "fallbacks"),
    less("failed", "allocations that failed"),
    less("heavy_barriers", "heavy barriers"),
    more("free_blocks", "whole free blocks"),
    less("mixed_blocks", "mixed blocks at the end"),
    less("unusable_index", "unusable index of order 9"),
];

/// Of a machine of contiguity.
pub(crate) const CONTIGUITY: [Field; 13] = [
    less("unusable.3", "unusable index, order 3"),
    less("unusable.4", "order 4"),
    less("unusable.9", "order 9"),
    less("zone_locks_per_1000", "zone locks for 1,000 frames"),
    less("shared_writes_per_1000", "shared writes for 1,000"),
    more("order9_share", "free memory had as order 9"),
    less("order9_failures", "order 9 failed"),
    less("mixed_blocks", "mixed blocks at the end"),
    less("idle_share", "kept by idle CPUs"),
    more("free_blocks", "whole free blocks"),
    less("failures", "failures"),
    less("false_failures", "false failures"),
    less("heavy_barriers", "heavy barriers"),
];

/// Of a machine that is filled until an allocation fails: how full it was.
pub(crate) const FILL: [Field; 1] = [more("used_percent", "% in use at the first failure")];
