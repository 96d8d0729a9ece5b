//! What is measured of memory itself: an arena's frames as a program has them, and reclaim of
//! lazyfree folios.
//!
//! ```text
//!  lazyfree    two ways of unmapping              folios     128 MiB on a HostMmu
//!  arena       an arena's frames as memory        heap       malloc families beside it
//!  rss         what this process has
//! ```
//!
//! These differ from the other benchmarks in what takes turns: besides page allocators, malloc
//! families and the system's own calls.

pub(crate) mod arena;
pub mod folios;
mod heap;
pub(crate) mod lazyfree;
mod rss;

use super::clock::Cpus;
use super::engines::{BenchEngine, FREEHOLD, HostThreads, Peer};
use super::kind::Kind;
use super::result::{Report, Unsuited};
use super::runner::{Plan, Side};

/// Whether a benchmark is one of these.
pub(super) fn is_here(kind: Kind) -> bool {
    matches!(kind, Kind::Lazyfree | Kind::Arena)
}

/// Why a benchmark here has nothing to measure of a page allocator; `None` where it has.
fn unsuited(kind: Kind, engine: &BenchEngine) -> Option<&'static str> {
    match (kind, engine) {
        _ if engine.name() == FREEHOLD => None,
        (Kind::Arena, BenchEngine::Peer(Peer::Mimalloc | Peer::Jemalloc)) => None,
        (Kind::Arena, _) => {
            Some("only arenas and malloc families (malloc, mimalloc, jemalloc) are measured there")
        }
        _ => Some("only freehold's own reclaim is measured there"),
    }
}

/// What takes turns in a benchmark here.
pub(super) fn sides<'a>(
    kind: Kind,
    plan: &Plan,
    cpus: &'a Cpus,
    host: HostThreads,
    report: &mut Report,
) -> Vec<Side<'a>> {
    report.unsuited.extend(plan.engines.iter().filter_map(|engine| {
        let reason = unsuited(kind, engine)?;
        Some(Unsuited { benchmark: kind.name(), engine: engine.name().to_owned(), reason })
    }));
    match kind {
        Kind::Lazyfree => lazyfree::sides(plan, cpus, host),
        _ => arena::sides(plan),
    }
}
