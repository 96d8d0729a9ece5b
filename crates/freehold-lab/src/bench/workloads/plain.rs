//! `bulk`, `random-free`: loops of [`loops`], and nothing besides.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::kind::Kind;
use crate::bench::loops;
use crate::bench::metric::{About, ns};

pub const BULK: About = About {
    what: "One thread allocates 262,144 single frames (1 GiB) and frees them all.",
    metrics: &[
        ns("ns_per_alloc"),
        ns("ns_per_free"),
        ns("ns_per_free_reversed"),
        ns("ns_per_frame_bulk_alloc"),
        ns("ns_per_frame_bulk_free"),
    ],
    ..About::ONE_THREAD
};

pub const RANDOM_FREE: About = About {
    what: "One thread frees 262,144 single frames (1 GiB) in random order; their allocation is not \
           timed.",
    metrics: &[ns("ns_per_free")],
    ..About::ONE_THREAD
};

/// Each part begins with nothing in the CPUs' stocks.
pub(super) fn measure<M: Machine>(
    machine: &M,
    kind: Kind,
    run: &Run<'_>,
) -> Result<Figures, Refused> {
    let scale = run.scale;
    // Each run another order, the same for every engine.
    let seed = 0x9e37_79b9_7f4a_7c15 ^ (run.number + 1);
    let drained = || run.drained(machine);
    let each = match kind {
        Kind::Bulk => loops::bulk(drained(), scale.frames)?.to_vec(),
        _ => vec![loops::random_free(drained(), scale.frames, seed)?],
    };
    let metrics = kind.metrics().iter().map(|metric| metric.name);
    Ok(Figures { values: metrics.zip(each).collect() })
}
