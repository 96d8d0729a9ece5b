//! `doors`: a pair of single frames by each of an engine's ways in.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::metric::{About, ns};

pub const ABOUT: About = About {
    what: "One thread allocates a frame and frees it, over and over: on a CPU that it owns, on one that it owns on a \
           platform without a heavy barrier, and by calls that name the CPU and anybody may make.",
    source: "hosts that own no CPUs, and kernels without membarrier(2) or the like; engines with several ways in",
    metrics: &[
        ns("ns_per_pair_owned", "a pair, by the handle of whoever owns the CPU"),
        ns("ns_per_pair_owned_no_barrier", "the same where the platform has no heavy barrier"),
        ns("ns_per_pair_on", "by calls that name the CPU, which nobody owns"),
    ],
    ..About::ONE_THREAD
};

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let doors = machine.doors(run.scale.steady_pairs)?;
    Ok(Figures::default().with_all_sampled(ABOUT.metrics, doors))
}
