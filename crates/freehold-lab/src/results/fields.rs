//! The figures of each command by their names in its JSON, and whether more of each is better. A
//! report shows those of a replay and a comparison judges all.

use crate::tables::better::Better;

/// A figure by its name in the JSON; a dot leads into an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) better: Better,
}

const fn less(name: &'static str) -> Field {
    Field { name, better: Better::Less }
}

const fn more(name: &'static str) -> Field {
    Field { name, better: Better::More }
}

const fn neither(name: &'static str) -> Field {
    Field { name, better: Better::Neither }
}

impl Field {
    pub(crate) fn of(&self, row: &serde_json::Value) -> Option<f64> {
        self.name.split('.').fold(row, |value, part| &value[part]).as_f64()
    }
}

/// Of a replay, each with what people read of it; short, since it heads a row.
pub(crate) const REPLAY: [(Field, &str); 21] = [
    (less("failed"), "allocations that failed"),
    (less("zone_lock_acquisitions"), "zone locks taken"),
    (less("zone_lock_work"), "steps under the zone lock"),
    (less("zone_lock_work_mean"), "steps a hold, mean"),
    (less("zone_lock_work_p99"), "steps a hold, 99 %"),
    (less("zone_lock_work_max"), "steps a hold, most"),
    (less("shared_writes"), "shared writes"),
    (less("pcp_lock_acquisitions"), "PCP locks taken"),
    (less("pcp_lock_work"), "steps under PCP locks"),
    (less("merges_zone"), "merges under the zone lock"),
    (more("pcp_hit_rate"), "PCP hit rate"),
    (less("refills"), "refills"),
    (less("drains"), "drains"),
    (less("fallbacks"), "fallbacks"),
    (less("mixed_blocks"), "mixed blocks at the end"),
    (more("free_blocks_end"), "whole free blocks at the end"),
    (less("unusable_index_min"), "unusable index of order 9, least"),
    (less("unusable_index_mean"), "unusable index of order 9, mean"),
    (less("lost_frames"), "lost frames"),
    // Noisy, and measured once: shown, never judged.
    (neither("ns_per_event"), "ns an event (noisy)"),
    // Another trace of the same name would show here.
    (neither("allocs"), "allocations"),
];

pub(crate) const SIMULATE: [Field; 12] = [
    more("frames_per_second"),
    less("zone_lock_wait_share"),
    less("pcp_lock_wait_share"),
    less("line_wait_share"),
    less("zone_lock_acquisitions"),
    less("longest_hold_ns"),
    less("fallbacks"),
    less("failed"),
    less("heavy_barriers"),
    more("free_blocks"),
    less("mixed_blocks"),
    less("unusable_index"),
];

pub(crate) const CONTIGUITY: [Field; 12] = [
    less("unusable.3"),
    less("unusable.4"),
    less("unusable.9"),
    less("zone_locks_per_1000"),
    less("shared_writes_per_1000"),
    more("order9_share"),
    less("order9_failures"),
    less("mixed_blocks"),
    less("idle_share"),
    more("free_blocks"),
    less("failures"),
    less("heavy_barriers"),
];
