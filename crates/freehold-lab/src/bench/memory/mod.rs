//! What is measured of memory itself: an arena's frames as a program has them.
//!
//! ```text
//!  arena    an arena's frames as memory       heap    malloc families beside it
//!  rss      what this process has
//! ```
//!
//! It differs from the other benchmarks in what takes turns: besides an arena, malloc families and
//! the system's own mapping.

pub(crate) mod arena;
mod heap;
mod rss;

use super::engines::{BenchEngine, FREEHOLD, Peer};
use super::kind::Kind;
use super::runner::{Plan, Side};

/// Whether a benchmark is one of these.
pub(super) fn is_here(kind: Kind) -> bool {
    kind == Kind::Arena
}

/// What takes turns; `left_out` is told of each engine of the plan that has nothing to measure
/// here.
pub(super) fn sides(plan: &Plan, left_out: &mut Vec<String>) -> Vec<Side<'static>> {
    let is_memory = |engine: &BenchEngine| {
        let heap = matches!(engine, BenchEngine::Peer(Peer::Mimalloc | Peer::Jemalloc));
        heap || engine.name() == FREEHOLD
    };
    left_out.extend(plan.engines.iter().filter(|engine| !is_memory(engine)).map(|engine| {
        format!(
            "{}, {}: only arenas and malloc families (malloc, mimalloc, jemalloc) are measured there",
            Kind::Arena,
            engine.name()
        )
    }));
    arena::sides(plan)
}
