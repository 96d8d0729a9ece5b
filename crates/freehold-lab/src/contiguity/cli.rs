//! `freehold contiguity`: its arguments.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;

use clap::Args;
use freehold::FRAME_SIZE;

use super::output::{Document, Random, beside, guesses, table};
use super::picture;
use super::{
    Bound, Cell, Comparison, DRAWN, DRAWN_IF_NAMED, Draw, Grid, GridEngine, MEMORY_MOST,
    QUICK_ALLOCATIONS, Scenario, Workload,
};
use crate::cli::error::CliError;
use crate::cli::given::{Shown, engines, jobs, or};
use crate::cli::size::{parse_bytes, parse_memory, whole};
use crate::cli::target::Target;
use crate::cli::{Outcome, output};
use crate::trials::defaults::{ALLOCATIONS, SIMULATED_CPUS_MAX};
use crate::trials::pool::{self, Done};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
Only counts: the same arguments give the same figures on any machine. One thread plays all CPUs of \
a cell; Freehold's \
CPUs are owned, as in a kernel.

Workloads:
  kernel-build-like   short processes, and the memory that they leave behind
  aging               three million allocations of orders 0 to 9, three types, at 50, 60, 70 % in \
use
  idle                all CPUs at 50 %, then 2.5 %, then 16 ticks: what idle CPUs keep
  two-cpu-mix         two CPUs, single frames and large chunks at 10 to 80 %; 1 GiB by default
Page cache fills memory, and reclaim keeps some free; to be named, 8 CPUs and 2 GiB by default:
  cache, slab, net, day, thp, big
                      page cache; much slab; bursts of network buffers; days and nights; huge \
pages; large machines. Their \
contiguity is the mean of the second half of the load

Examples:
  freehold contiguity --workload aging --cpus 16 --memory 1G --used 70
                                                one cell, three seeds, vanilla and freehold
  freehold contiguity --workload kernel-build-like --cpus 96 --memory 4G --seeds 1 --json
  freehold contiguity --engines freehold --engines pcp-buddy-fixed --engines vanilla
                                                three designs; the whole grid
  freehold contiguity --json > grid.json        the whole grid, about an hour on one core
  freehold contiguity -w cache --cpus 1,2,4 --memory 512M --used 92 --allocations 250000 -e \
vanilla -e freehold -e best-fit
                                                small machines that page cache fills, and what is \
to be had
  freehold contiguity -w cache,net,day --memory 1G --used 92,97 --move
                                                what emptying blocks comes to, and how many frames \
it moves
  freehold contiguity --random 12 --quick --gate
                                                12 cells drawn at random; fails where freehold is \
below vanilla

--random draws kernel-build-like and aging (30 to 85 % in use) on 1 to 1,024 CPUs with 2 MiB to 1 \
GiB each, and \
two-cpu-mix (10 to 80 %) of 64 MiB to 4 GiB. With -w it also draws cache, slab, net, day and thp, \
on 24 MiB to 64 \
GiB, 20 to 98 % in use. The seed is printed: the same seed, with --quick \
where it was given, draws the same cells, and \
a larger --random begins with the cells of a smaller one.

--json prints {\"command\": \"contiguity\", \"interrupted\", \"cells\": [{...}]}, each figure by its name, null where a workload has none: \
\"unusable_lists\" is by chunks as they lie on lists, \"guesses\" says what is one in an engine, \
\"migrated\" how many frames it has moved by itself. Loads that fill memory also have \"moments\", \
each \"at\" the share done, 1.5 when the cache is dropped, 2 when all is gone; with --move \
\"movement\": by the engine's \"own\" way, null where it has none, and by compaction with each of its \
ends; what is \"left\" free by the first; \"huge_pages_most\" beside what can move and \
\"huge_pages_ideal\" everywhere. With --random also \"random\", with --random or --gate \
\"comparison\".

Exit codes: 0 fine; 1 with --gate, where an engine is below the first; 2 wrong usage, or an engine \
that lost a frame; 130 stopped by Ctrl-C, with what is done printed.";

/// The grid unless told otherwise.
const CPUS: [u16; 5] = [2, 16, 96, 256, 1024];
const MEMORY: [u64; 5] = [2 << 8, 8 << 8, 16 << 8, 64 << 8, 1 << 18];
const SEEDS: [u64; 3] = [1, 2, 3];
const ENGINES: [&str; 2] = ["vanilla", "freehold"];
/// Memory of the mix of two CPUs: 1 GiB.
const MIX_MEMORY: u64 = 1 << 18;
/// The machine of loads that fill memory: 2 GiB.
const FULL_MEMORY: u64 = 1 << 19;
const FULL_CPUS: u16 = 8;

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub struct ContiguityArgs {
    /// What the CPUs do. May be given several times. Default: all that do not fill memory with page
    /// cache.
    #[arg(short, long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<Workload>,

    /// How many CPUs, 1 to 1,024. Default: 2,16,96,256,1024.
    #[arg(long, value_name = "N[,N]...", value_delimiter = ',',
          value_parser = whole(1..=SIMULATED_CPUS_MAX))]
    cpus: Vec<u16>,

    /// Memory for each CPU; a machine that would have more than 128 GiB has 128 GiB. Default:
    /// 2M,8M,16M,64M,1G.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_frames)]
    memory_per_cpu: Vec<u64>,

    /// Memory of the whole machine instead, 4M to 128G.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_memory,
          conflicts_with = "memory_per_cpu")]
    memory: Vec<u64>,

    /// Percentages of memory in use, 1 to 95, for workloads that take one; up to 99 where page
    /// cache fills memory. Default: the workload's own.
    #[arg(long, value_name = "P[,P]...", value_delimiter = ',', value_parser = whole(1..=99u8))]
    used: Vec<u8>,

    /// What random numbers are drawn from. Default: 1,2,3.
    #[arg(long, value_name = "S[,S]...", value_delimiter = ',', value_parser = whole(0..=u64::MAX))]
    seeds: Vec<u64>,

    /// An engine: freehold, or a kernel's design with changes to switch on (+) or off (-); or a
    /// bound: best-fit, best-fit-runs, superpageblocks, contiguitas. May be given several times.
    /// Default: vanilla and freehold.
    #[arg(short, long = "engines", visible_alias = "engine", value_name = "NAME[,OPTION]...")]
    engines: Vec<GridEngine>,

    /// Chunks that aging allocates once memory is filled, 100 or more; two-cpu-mix allocates a
    /// tenth of them, a load that fills memory as many in all. Default: 3,000,000; with --quick
    /// 300,000.
    #[arg(long, value_name = "N", value_parser = whole(100..=u64::MAX))]
    allocations: Option<u64>,

    /// Draw N cells at random, 1 to 10,000, and print each engine's contiguity at orders 3, 4 and 9
    /// beside the first engine's, worst cells first, in place of a table for each workload.
    #[arg(long, value_name = "N", value_parser = whole(1..=10_000u16),
          conflicts_with_all = ["cpus", "memory_per_cpu", "memory", "used"])]
    random: Option<u16>,

    /// The seed that the cells are drawn from. Default: another one each time.
    #[arg(long, value_name = "S", requires = "random", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,

    /// Empty blocks when a load that fills memory is over, until 90 % of what is free is whole: by
    /// the engine's own means, and by the kernel's two scanners on the same layout.
    #[arg(long = "move")]
    moves: bool,

    /// Draw memory before blocks are emptied, in between and afterwards, of the first cell whose
    /// engine can empty them: an SVG.
    #[arg(long, value_name = "FILE", requires = "moves")]
    picture: Option<PathBuf>,

    /// Allocate less, and with --random draw machines of up to 2 GiB: seconds a cell.
    #[arg(long)]
    quick: bool,

    /// Compare as --random does, and exit with 1 where an engine's contiguity is below the first's
    /// by more than .005 at order 3, 4 or 9.
    #[arg(long)]
    gate: bool,

    /// Cells at the same time. Default: as many as there are CPUs here. A large machine takes half
    /// a GiB.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=u16::MAX))]
    jobs: Option<u16>,

    #[command(flatten)]
    shown: Shown,
}

/// Memory that is a part of a machine, in frames: maybe fewer than one of the largest chunks.
fn parse_frames(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        ..FRAME_SIZE => Err(format!("{text} is too little: 4K is the least, one frame")),
        bytes => Ok(bytes / FRAME_SIZE),
    }
}

/// Chunks that aging allocates.
fn allocations(args: &ContiguityArgs) -> u64 {
    args.allocations.unwrap_or(if args.quick { QUICK_ALLOCATIONS } else { ALLOCATIONS })
}

fn grids(args: &ContiguityArgs) -> Result<Vec<Grid>, CliError> {
    if args.memory.iter().any(|&memory| memory > MEMORY_MOST) {
        let most = format!("more than {} GiB, the largest machine of the grid", MEMORY_MOST >> 18);
        return Err(CliError::new(most));
    }
    let own: Vec<Workload> =
        Workload::ALL.into_iter().filter(|workload| !workload.fills_memory()).collect();
    let grid = Grid {
        workloads: or(&args.workloads, &own),
        cpus: or(&args.cpus, &CPUS),
        frames_a_cpu: or(&args.memory_per_cpu, &MEMORY),
        frames: args.memory.clone(),
        used_percent: or(&args.used, &[]),
        seeds: or(&args.seeds, &SEEDS),
        engines: engines(&args.engines, &ENGINES)?,
        allocations: allocations(args),
        moves: args.moves,
    };
    filling(args, &grid.workloads, &grid.engines)?;
    let most = |workload: &Workload| if workload.fills_memory() { 99 } else { 95 };
    if let Some(used) =
        args.used.iter().find(|&&used| grid.workloads.iter().any(|of| used > most(of)))
    {
        return Err(CliError::new(format!("{used} % in use is more than that workload can have"))
            .hint("95 is the most, 99 where page cache fills memory"));
    }
    // The mix of two CPUs is not one of many machines, and loads that fill memory take long.
    let told = !args.memory.is_empty() || !args.memory_per_cpu.is_empty();
    let of = |is: &dyn Fn(&Workload) -> bool, memory: u64| Grid {
        workloads: grid.workloads.iter().copied().filter(is).collect(),
        frames: if told { grid.frames.clone() } else { vec![memory] },
        ..grid.clone()
    };
    let is_mix = |workload: &Workload| *workload == Workload::TwoCpuMix;
    let others = |workload: &Workload| !is_mix(workload) && !workload.fills_memory();
    Ok(vec![
        Grid { frames: grid.frames.clone(), ..of(&others, 0) },
        of(&is_mix, MIX_MEMORY),
        Grid { cpus: or(&args.cpus, &[FULL_CPUS]), ..of(&|of| of.fills_memory(), FULL_MEMORY) },
    ])
}

/// That there is something to empty, where that is asked for, and that every load can be moved by
/// an engine that does.
fn filling(
    args: &ContiguityArgs,
    workloads: &[Workload],
    engines: &[GridEngine],
) -> Result<(), CliError> {
    let mut fill = workloads.iter().map(|of| of.fills_memory());
    let contiguitas = GridEngine::Bound(Bound::Contiguitas);
    let what = if engines.contains(&contiguitas) && !fill.clone().all(|fills| fills) {
        contiguitas.name()
    } else if args.moves && !fill.any(|fills| fills) {
        "--move"
    } else {
        return Ok(());
    };
    let all = Workload::ALL.iter().filter(|of| of.fills_memory()).map(|of| of.name());
    let all = all.collect::<Vec<_>>().join(", ");
    Err(CliError::new(format!("{what} is for loads that fill memory: {all}")).hint("-w cache"))
}

/// The cells to be drawn, where that is asked for.
fn draw(args: &ContiguityArgs) -> Result<Option<Draw>, CliError> {
    let Some(cells) = args.random else { return Ok(None) };
    let workloads = or(&args.workloads, &DRAWN);
    let can = |workload| DRAWN.contains(workload) || DRAWN_IF_NAMED.contains(workload);
    if let Some(other) = workloads.iter().find(|workload| !can(workload)) {
        let all: Vec<_> = DRAWN.iter().chain(&DRAWN_IF_NAMED).map(|of| of.name()).collect();
        let hint = format!("it draws {}", all.join(", "));
        return Err(CliError::new(format!("--random does not draw {other}")).hint(hint));
    }
    let engines = engines(&args.engines, &ENGINES)?;
    filling(args, &workloads, &engines)?;
    Ok(Some(Draw {
        cells,
        seed: args.seed.unwrap_or_else(any_seed),
        quick: args.quick,
        workloads,
        seeds: or(&args.seeds, &SEEDS),
        engines,
        allocations: allocations(args),
        moves: args.moves,
    }))
}

/// The arguments that run the same cells.
fn again(args: &ContiguityArgs, draw: &Draw) -> String {
    let of = |name: &str, values: Vec<String>| {
        values.into_iter().map(|value| format!(" --{name} {value}")).collect::<String>()
    };
    let mut text = format!("--random {} --seed {}", draw.cells, draw.seed);
    text.push_str(if draw.quick { " --quick" } else { "" });
    text.push_str(if draw.moves { " --move" } else { "" });
    text += &of("workload", args.workloads.iter().map(ToString::to_string).collect());
    text += &of("seeds", args.seeds.iter().map(ToString::to_string).collect());
    text += &of("engines", args.engines.iter().map(ToString::to_string).collect());
    text + &of("allocations", args.allocations.iter().map(ToString::to_string).collect())
}

/// Another number in each process, short enough to be typed.
fn any_seed() -> u64 {
    // The standard library's own source of keys, which it draws from the system.
    RandomState::new().build_hasher().finish() % 1_000_000
}

/// Runs the cells.
fn cells(args: &ContiguityArgs, scenarios: &[Scenario]) -> Result<Done<Cell>, CliError> {
    let (what, quiet) = (("counting", "cells"), args.shown.no_progress);
    let places: Vec<usize> = (0..scenarios.len()).collect();
    let done = pool::watched(what, scenarios.len(), quiet, |stop, told| {
        pool::each(scenarios, &places, jobs(args.jobs), stop, Scenario::run, |done, scenario| {
            let (workload, cpus, engine) = (scenario.workload, scenario.cpus, &scenario.engine);
            let memory = scenario.memory_mib();
            told(done, format!("{workload} on {cpus} CPUs, {memory} MiB: {engine}"));
        })
    });
    done.map_err(CliError::new)
}

pub fn run(args: &ContiguityArgs) -> Result<Outcome, CliError> {
    let draw = draw(args)?;
    let scenarios = match &draw {
        Some(draw) => draw.scenarios(),
        None => grids(args)?.iter().flat_map(Grid::scenarios).collect(),
    };
    if let Some(draw) = &draw {
        // Before the work: after a stop the same cells can be had again.
        output::complain(&format!("the same cells again: {}", again(args, draw)));
    }
    Target::PICTURE.check(args.picture.as_ref())?;
    let outcome = cells(args, &scenarios)?;
    let cells = &outcome.results;
    let compares = draw.is_some() || args.gate;
    let comparison = if compares { Comparison::of(cells) } else { None };
    let random = draw.map(|Draw { seed, quick, seeds, engines, .. }| {
        // Fewer than were asked for where there are no more.
        let cells = (scenarios.len() / (seeds.len() * engines.len())) as u16;
        Random { cells, seed, quick }
    });
    let (command, interrupted) = ("contiguity", outcome.interrupted);
    let comparison_of = comparison.as_ref();
    let document = Document { command, interrupted, random, comparison: comparison_of, cells };
    output::result(&args.shown.printed, &document, |style| match &comparison {
        _ if cells.is_empty() => String::new(),
        Some(comparison) => beside(comparison, style) + &guesses(cells, style),
        None => table(cells, style) + &guesses(cells, style),
    })?;
    if let Some(path) = &args.picture {
        let nothing = || CliError::new("no engine here can empty blocks").hint("-e freehold can");
        match picture::svg(cells) {
            None if outcome.interrupted => {}
            svg => Target::PICTURE.replace(path, &svg.ok_or_else(nothing)?)?,
        }
    }
    if args.gate && comparison.is_none() && !outcome.interrupted {
        return Err(CliError::new("--gate has nothing to compare").hint("name two engines"));
    }
    let holds = comparison.is_none_or(|comparison| comparison.holds());
    Ok(match (outcome.interrupted, args.gate && !holds) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Worse,
        (false, false) => Outcome::Fine,
    })
}
