//! Virtual memory on top of the frames: vmalloc, reclaim of lazyfree folios, and giving memory back to the system.
//!
//! ```text
//!  vmalloc     vmalloc_tests  the tests of lib/test_vmalloc.c, as data    suite      their loops
//!              areas          what a loop asks                            over_vm    freehold-vm's vmalloc behind it
//!              pages          page allocators below that                  percpu     objects above that
//!              mapped         plain mmap and munmap behind it
//!  lazyfree    variants       what is different in each, as data          folios     128 MiB on a HostMmu
//!              kernel         MADV_FREE, MADV_PAGEOUT of the system       second     the thread on the other core
//!  give_back   an arena's trim beside one madvise
//!  arena       an arena's frames as memory                            heap       malloc families beside it
//!
//!  raw         mappings of the system that unmap themselves, unsafe as heap is    rss         what this process has
//! ```
//!
//! These differ from the other benchmarks in what they have as engines: besides page allocators, ways of mapping (in
//! software, in this process) and the system's own calls. They run through the same runner, and print rows of the same
//! shape.
//!
//! Only on Linux: the memory is a Linux process's.

pub mod variants;
pub mod vmalloc_tests;

#[cfg(target_os = "linux")]
mod areas;
#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
pub mod folios;
#[cfg(target_os = "linux")]
mod give_back;
#[cfg(target_os = "linux")]
mod heap;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod lazyfree;
#[cfg(target_os = "linux")]
mod mapped;
#[cfg(target_os = "linux")]
mod over_vm;
#[cfg(target_os = "linux")]
mod pages;
#[cfg(target_os = "linux")]
mod percpu;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod rss;
#[cfg(target_os = "linux")]
mod second;
#[cfg(target_os = "linux")]
mod suite;
#[cfg(target_os = "linux")]
mod vmalloc;

pub(super) mod about;

use super::budget::Turns;
use super::clock::Cpus;
use super::engines::{BenchEngine, HostThreads, Peer};
#[cfg(target_os = "linux")]
use super::gathered::Gathered as Figures;
use super::kind::Kind;
use super::plan::{BenchError, Plan};
use super::result::{Report, Unsuited};

/// Reclaim and giving back by this project's own code, on the memory of this process; vmalloc on page work alone.
pub const FREEHOLD: &str = "freehold";
/// vmalloc on an arena's frames, mapped for real.
pub const ON_MEMORY: &str = "freehold-host";
/// Plain `mmap` and `munmap`.
pub const MMAP: &str = "mmap";
/// The C library's malloc.
pub const MALLOC: &str = "malloc";
/// What the system itself does.
pub const LINUX: &str = "linux";

/// What a benchmark here gets.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is measured there"))]
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) turns: Turns,
    pub(super) cpus: &'a Cpus,
    pub(super) host: HostThreads,
    /// Whether the user has had enough.
    pub(super) stopped: &'a dyn Fn() -> bool,
    /// Told of every step.
    pub(super) progress: &'a mut dyn FnMut(&str),
}

/// Whether a benchmark is one of these.
pub(super) fn is_here(kind: Kind) -> bool {
    matches!(kind, Kind::Vmalloc | Kind::Lazyfree | Kind::GiveBack | Kind::Arena)
}

/// Why a benchmark here has nothing to measure of a page allocator; `None` where it has.
fn unsuited(kind: Kind, engine: &BenchEngine) -> Option<&'static str> {
    match (kind, engine) {
        (_, BenchEngine::Freehold) | (Kind::Vmalloc, BenchEngine::Classic(_) | BenchEngine::Mmap) => None,
        (Kind::Arena, BenchEngine::Peer(Peer::Mimalloc | Peer::Jemalloc)) => None,
        (Kind::Vmalloc, _) => Some("it has no runs of frames of any length"),
        (Kind::Arena, _) => Some("only arenas and malloc families (malloc, mimalloc, jemalloc) are measured there"),
        _ => Some("only an arena's memory and the system's own calls are measured there"),
    }
}

/// How often [`run`] will tell of progress.
#[cfg(target_os = "linux")]
pub(super) fn steps(kind: Kind, plan: &Plan) -> usize {
    match kind {
        Kind::Vmalloc => vmalloc::steps(plan),
        Kind::Lazyfree => lazyfree::steps(plan),
        Kind::GiveBack => give_back::steps(plan),
        Kind::Arena => arena::steps(plan),
        _ => 0,
    }
}

/// How often [`run`] will tell of progress.
#[cfg(not(target_os = "linux"))]
pub(super) fn steps(_: Kind, _: &Plan) -> usize {
    0
}

/// Measures, and adds what was found to the report. What the system does not offer is named in `report.unavailable`.
#[cfg(target_os = "linux")]
pub(super) fn run(kind: Kind, mut run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    report.unsuited.extend(run.plan.engines.iter().filter_map(|engine| {
        let reason = unsuited(kind, engine)?;
        Some(Unsuited { benchmark: kind.name(), engine: engine.name().to_owned(), reason })
    }));
    let mut figures = Figures::new(kind, Vec::new());
    let measured = match kind {
        Kind::Vmalloc => vmalloc::run(&mut run, &mut figures),
        Kind::Lazyfree => lazyfree::run(&mut run, &mut figures),
        Kind::GiveBack => give_back::run(&mut run, &mut figures),
        Kind::Arena => arena::run(&mut run, &mut figures),
        _ => Ok(()),
    };
    measured.map_err(|(engine, reason)| BenchError::engine(kind, &engine, reason))?;
    figures.report(report);
    Ok(())
}

/// Says that there is nothing to measure here.
#[cfg(not(target_os = "linux"))]
pub(super) fn run(kind: Kind, _: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    report.unavailable.push(format!("{kind} left out: it measures the memory of a Linux process"));
    Ok(())
}
