//! `freehold bench fragmentation`: what designs do to contiguity, over machines of many shapes.

use clap::Args;

use crate::fragmentation::output::{Document, table};
use crate::fragmentation::{Grid, Workload, run as run_grid};
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::given::{Shown, engines, jobs, or};
use freehold_labkit::cli::size::{Memory, parse_cpus, parse_frames, parse_memory};
use freehold_labkit::cli::{Outcome, output, progress, stop};
use freehold_labkit::defaults::ALLOCATIONS;
use freehold_labkit::engines::EngineSpec;

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
Only counts: the same arguments give the same figures on any machine. One thread plays all CPUs of a cell; Freehold's \
CPUs are owned, as a kernel's own themselves.

Workloads:
  kernel-build-like   short processes and what they leave behind, by turns
  aging               three million allocations of orders 0 to 9, three types, at 50, 60, 70 % in use
  idle                all CPUs at 50 %, then 2.5 %, then 16 ticks: what idle CPUs keep
  fill                orders 0, 3, 4 and 9 until the first failure
  two-cpu-mix         two CPUs, single frames and large chunks at 10 to 80 %; 1 GiB by default

Examples:
  freehold bench fragmentation --workload aging --cpus 16 --memory 1G --used 70
                                                one cell, three seeds, vanilla and freehold
  freehold bench fragmentation --workload kernel-build-like --cpus 96 --memory 4G --seeds 1 --json
  freehold bench fragmentation --engines freehold --engines pcp-buddy-fixed --engines vanilla
                                                three designs; the whole grid
  freehold bench fragmentation --json > grid.json; freehold report grid.json
                                                the whole grid, an hour or so of one core, as a page with pictures

--json prints {\"verdict\", \"cells\": [{\"workload\", \"cpus\", \"memory_mib\", \"used_percent\", \"order\", \"allocations\", \"seed\", \"engine\", \
\"unusable\": {\"3\", \"4\", \"9\"}, \"unusable_lists\": by chunks as they lie on lists, \"zone_locks_per_1000\", \"group_locks_per_1000\", \"order9_share\", \"order9_failures\", \"mixed_blocks\", \
\"idle_share\", \"free_blocks\", \"failures\", \"false_failures\", \"heavy_barriers\"}]}, null where a workload has none; \
\"used_percent\" of fill is where the first allocation failed.

Exit codes: 0 fine; 2 wrong usage, or an engine that lost a frame; 130 stopped by Ctrl-C, with what is done printed.";

/// The grid unless told otherwise.
const CPUS: [u16; 5] = [2, 16, 96, 256, 1024];
const MEMORY: [u64; 5] = [2 << 8, 8 << 8, 16 << 8, 64 << 8, 1 << 18];
const SEEDS: [u64; 3] = [1, 2, 3];
const ENGINES: [&str; 2] = ["vanilla", "freehold"];
/// Memory of the mix of two CPUs: 1 GiB.
const MIX_MEMORY: u64 = 1 << 18;

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub(super) struct FragmentationArgs {
    /// What the CPUs do. May be given several times. Default: all.
    #[arg(short, long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<Workload>,

    /// How many CPUs, 1 to 1,024. Default: 2,16,96,256,1024.
    #[arg(long, value_name = "N[,N]...", value_delimiter = ',', value_parser = parse_cpus)]
    cpus: Vec<u16>,

    /// Memory for each CPU; machines have 128 GiB at most. Default: 2M,8M,16M,64M,1G.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_frames)]
    memory_per_cpu: Vec<u64>,

    /// Memory of the whole machine, instead.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_memory,
          conflicts_with = "memory_per_cpu")]
    memory: Vec<Memory>,

    /// Percentages of memory in use, for workloads that are given one. Default: the workload's own.
    #[arg(long, value_name = "P[,P]...", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=95))]
    used: Vec<u8>,

    /// What random numbers are drawn from. Default: 1,2,3.
    #[arg(long, value_name = "S[,S]...", value_delimiter = ',')]
    seeds: Vec<u64>,

    /// An engine: freehold, or a kernel's design with changes to switch on (+) or
    /// off (-). May be given several times. Default: vanilla and freehold.
    #[arg(short, long = "engines", visible_alias = "engine", value_name = "NAME[,OPTION]...")]
    engines: Vec<EngineSpec>,

    /// Chunks that aging allocates once memory is filled; a tenth of it the mix of two CPUs.
    #[arg(long, value_name = "N", default_value_t = ALLOCATIONS, value_parser = clap::value_parser!(u64).range(100..))]
    allocations: u64,

    /// Cells at the same time. Default: as many as there are CPUs here. A large machine takes half
    /// a GiB.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    #[command(flatten)]
    shown: Shown,
}

fn grids(args: &FragmentationArgs) -> Result<Vec<Grid>, CliError> {
    let grid = Grid {
        workloads: or(&args.workloads, &Workload::ALL),
        cpus: or(&args.cpus, &CPUS),
        frames_a_cpu: or(&args.memory_per_cpu, &MEMORY),
        frames: args.memory.iter().map(|memory| memory.frames).collect(),
        used_percent: or(&args.used, &[]),
        seeds: or(&args.seeds, &SEEDS),
        engines: engines(&args.engines, &ENGINES)?,
        allocations: args.allocations,
    };
    // The mix of two CPUs is not one of many machines.
    let is_mix = |workload: &Workload| *workload == Workload::TwoCpuMix;
    let (mix, others) = grid.workloads.iter().partition(|workload| is_mix(workload));
    let told = !args.memory.is_empty() || !args.memory_per_cpu.is_empty();
    let mix_frames = if told { grid.frames.clone() } else { vec![MIX_MEMORY] };
    Ok(vec![
        Grid { workloads: others, ..grid.clone() },
        Grid { workloads: mix, frames: mix_frames, ..grid },
    ])
}

pub(super) fn run(args: &FragmentationArgs) -> Result<Outcome, CliError> {
    let scenarios: Vec<_> = grids(args)?.iter().flat_map(Grid::scenarios).collect();
    let stop = stop::on_signals(true);
    let bar = progress::steps(
        "counting",
        scenarios.len() as u64,
        progress::TURNS,
        args.shown.no_progress,
    );
    let outcome = run_grid(&scenarios, jobs(args.jobs), &stop, |done, scenario| {
        bar.set_position(done as u64);
        let (workload, cpus, engine) = (scenario.workload, scenario.cpus, &scenario.engine);
        bar.set_message(format!(
            "{workload} on {cpus} CPUs, {} MiB: {engine}",
            scenario.memory_mib()
        ));
    });
    bar.finish_and_clear();
    let outcome = outcome.map_err(CliError::new)?;
    let cells = &outcome.cells;
    if outcome.interrupted {
        output::complain(&format!(
            "interrupted: {} of {} cells are done",
            cells.len(),
            scenarios.len()
        ));
    }
    let text = |style| if cells.is_empty() { String::new() } else { table(cells, style) };
    output::result(args.shown.json, &Document::new(cells), text)?;
    Ok(if outcome.interrupted { Outcome::Interrupted } else { Outcome::Fine })
}
