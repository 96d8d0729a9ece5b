//! `pair`, `bulk`, `random-free`: loops of [`loops`], and nothing besides.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::kind::Kind;
use crate::bench::loops;
use crate::bench::metric::{About, ns};

pub const PAIR: About = About {
    what: "One thread allocates a chunk and frees it, over and over.",
    source: "the repeat test of LLFree's authors (USENIX ATC 2023); page_alloc micro-benchmarks of \
             the kernel",
    metrics: &[
        ns("ns_per_pair_order0", "an allocation and its free, single frames"),
        ns("ns_per_pair_order9", "an allocation and its free, 2 MiB blocks"),
    ],
    ..About::ONE_THREAD
};

pub const BULK: About = About {
    what: "One thread allocates 262,144 single frames (1 GiB) and frees them all.",
    source: "the bulk test of LLFree's authors (USENIX ATC 2023); the bulk calls are the kernel's \
             alloc_pages_bulk and free_pages_bulk",
    metrics: &[
        ns("ns_per_alloc", "a frame, allocated one by one"),
        ns("ns_per_free", "a frame, freed one by one in the order of allocation"),
        ns("ns_per_free_reversed", "a frame, freed one by one in the reverse order"),
        ns("ns_per_frame_bulk_alloc", "a frame, allocated 64 a call"),
        ns("ns_per_frame_bulk_free", "a frame, freed 64 a call in the order of allocation"),
    ],
    ..About::ONE_THREAD
};

pub const RANDOM_FREE: About = About {
    what: "One thread frees 262,144 single frames (1 GiB) in random order; their allocation is not \
           timed.",
    source: "the random test of LLFree's authors (USENIX ATC 2023)",
    metrics: &[ns("ns_per_free", "a frame, freed one by one in random order")],
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
        Kind::Pair => vec![
            loops::pair::<_, 0>(drained(), scale.pairs)?,
            loops::pair::<_, 9>(drained(), scale.block_pairs)?,
        ],
        Kind::Bulk => loops::bulk(drained(), scale.frames)?.to_vec(),
        _ => vec![loops::random_free(drained(), scale.frames, seed)?],
    };
    let metrics = kind.metrics().iter().map(|metric| metric.name);
    Ok(Figures { values: metrics.zip(each).collect(), ..Figures::default() })
}
