//! Virtual memory on top of the frames: vmalloc, reclaim of lazyfree folios, and giving memory back
//! to the system.
//!
//! ```text
//!  vmalloc     vmalloc_tests  the tests of lib/test_vmalloc.c, as data    suite      their loops
//!              areas          what a loop asks: freehold-vm's vmalloc     pages      page allocators below that
//!  lazyfree    variants       what is different in each, as data          folios     128 MiB on a HostMmu
//!              kernel         MADV_FREE, MADV_PAGEOUT of the system       second     the thread on the other core
//!  give_back   an arena's trim beside one madvise
//!  arena       an arena's frames as memory                            heap       malloc families beside it
//!
//!  raw         an arena's frames by their numbers, unsafe as heap is             rss         what this process has
//! ```
//!
//! These differ from the other benchmarks in what takes turns: besides page allocators, ways of
//! mapping (in software, in this process) and the system's own calls.

pub(super) mod about;
mod areas;
mod arena;
pub mod folios;
mod give_back;
mod heap;
mod kernel;
mod lazyfree;
mod pages;
mod raw;
mod rss;
mod second;
mod suite;
pub mod variants;
mod vmalloc;
pub mod vmalloc_tests;

use super::clock::Cpus;
pub use super::engines::FREEHOLD;
use super::engines::{BenchEngine, HostThreads, Peer};
use super::gathered::Gathered;
use super::kind::Kind;
use super::plan::Plan;
use super::result::{Report, Unsuited};
use super::side::Side;

/// vmalloc on an arena's frames, mapped for real.
pub const ON_MEMORY: &str = "freehold-host";
pub const MALLOC: &str = "malloc";
pub const LINUX: &str = "linux";

/// Whether a benchmark is one of these.
pub(super) fn is_here(kind: Kind) -> bool {
    matches!(kind, Kind::Vmalloc | Kind::Lazyfree | Kind::GiveBack | Kind::Arena)
}

/// Why a benchmark here has nothing to measure of a page allocator; `None` where it has.
fn unsuited(kind: Kind, engine: &BenchEngine) -> Option<&'static str> {
    match (kind, engine) {
        _ if engine.name() == FREEHOLD => None,
        (Kind::Vmalloc, BenchEngine::Design(_)) => None,
        (
            Kind::Arena,
            BenchEngine::Peer(
                Peer::Mimalloc | Peer::Jemalloc | Peer::MimallocKeeps | Peer::JemallocKeeps,
            ),
        ) => None,
        (Kind::Vmalloc, _) => Some("it has no runs of frames of any length"),
        (Kind::Arena, _) => {
            Some("only arenas and malloc families (malloc, mimalloc, jemalloc) are measured there")
        }
        _ => Some("only an arena's memory and the system's own calls are measured there"),
    }
}

/// What takes turns in a benchmark here. What the system does not offer is named in `found`.
pub(super) fn sides<'a>(
    kind: Kind,
    plan: &'a Plan,
    cpus: &'a Cpus,
    host: HostThreads,
    found: &mut Gathered,
    report: &mut Report,
) -> Result<Vec<Side<'a>>, String> {
    report.unsuited.extend(plan.engines.iter().filter_map(|engine| {
        let reason = unsuited(kind, engine)?;
        Some(Unsuited { benchmark: kind.name(), engine: engine.name().to_owned(), reason })
    }));
    match kind {
        Kind::Vmalloc => vmalloc::sides(plan, cpus, host, found),
        Kind::Lazyfree => Ok(lazyfree::sides(plan, cpus, host, found)),
        Kind::GiveBack => Ok(give_back::sides(plan, found)),
        _ => Ok(arena::sides(plan)),
    }
}
