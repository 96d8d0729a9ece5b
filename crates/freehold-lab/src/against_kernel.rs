//! `freehold replay --against-kernel` and `--power`: the machine that zoneinfo describes, a replay
//! of what the recording kernel was asked for, and its own counts beside the model's.

use super::machine::{Recorded, no_zoneinfo};
use super::passes::{self, Done};
use super::replay_args::{ReplayArgs, StartingLists};
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::engines::EngineSpec;
use freehold_labkit::replay::against_kernel::{self, AgainstKernel, KernelCounts};
use freehold_labkit::replay::{
    Beginning, Origin, Replay, Survey, TICK_PHASE_NS, middle_ns, starting_lists,
};

/// Engines built at a time: each has some ten bytes for each frame of the machine.
const AT_ONCE: usize = 4;

/// Refuses what would make the comparison one of two machines.
pub(super) fn check(args: &ReplayArgs) -> Result<(), CliError> {
    if args.compares() && args.cma.is_some() {
        return Err(CliError::new("with --cma it is another machine than the one whose kernel counted")
            .hint("compare without --cma; 'freehold replay --cma' says what CMA serves, without a comparison"));
    }
    Ok(())
}

pub(super) fn run(
    args: &ReplayArgs,
    specs: &[EngineSpec],
    trace: &TraceFile,
) -> Result<Done, CliError> {
    let compared = Compared::new(args, trace)?;
    let mut done: Option<(Replay, AgainstKernel)> = None;
    for &lists in args.starting_lists() {
        for specs in specs.chunks(AT_ONCE) {
            let replay = compared.replay(args, specs, trace, lists)?;
            let comparison = against_kernel::compare(
                &replay,
                compared.counts.clone(),
                compared.zone,
                lists.name(),
                &compared.survey,
            );
            match &mut done {
                // The prediction is the replay that everything else is about.
                Some((_, all)) => all.engines.extend(comparison.engines),
                None => done = Some((replay, comparison)),
            }
        }
    }
    let (replay, comparison) = done.ok_or_else(|| CliError::new("no engine to compare"))?;
    Ok(Done { replay, comparison: Some(comparison) })
}

/// What is the same for every engine and every assumption about the lists.
struct Compared {
    recorded: Recorded,
    survey: Survey,
    counts: Vec<KernelCounts>,
    zone: usize,
}

impl Compared {
    fn new(args: &ReplayArgs, trace: &TraceFile) -> Result<Self, CliError> {
        let recorded =
            Recorded::beside(trace, args.zoneinfo.as_deref())?.ok_or_else(|| no_zoneinfo(trace))?;
        let survey = passes::survey(args, true, trace)?;
        let counts = against_kernel::count_kernel(trace, &recorded.zones, middle_ns(&survey))?;
        let zone = against_kernel::main_zone(&counts, &recorded.zones).ok_or_else(|| {
            let (trace, zones) = (trace.shown(), &recorded.shown);
            CliError::new(format!("{trace}: the kernel took nothing from any zone of {zones}")).hint(
                "record the events kmem:mm_page_alloc_zone_locked and mm_page_pcpu_drain too, and the zoneinfo with them",
            )
        })?;
        Ok(Self { recorded, survey, counts, zone })
    }

    fn replay(
        &self,
        args: &ReplayArgs,
        specs: &[EngineSpec],
        trace: &TraceFile,
        lists: StartingLists,
    ) -> Result<Replay, CliError> {
        let mut zone = self.recorded.zones[self.zone].clone();
        let mut tick_phase_ns = TICK_PHASE_NS;
        match lists {
            StartingLists::Zoneinfo => starting_lists::assume_single_frames(&mut zone),
            StartingLists::Unused => starting_lists::assume_unused(trace, &mut zone)?,
            StartingLists::Trace => {
                starting_lists::reconstruct(trace, &mut zone)?;
                tick_phase_ns = starting_lists::tick_phase(trace)?.unwrap_or(TICK_PHASE_NS);
            }
        }
        let machine = against_kernel::machine(&zone, passes::cpus(args, &self.survey)?);
        let layout = Some(self.recorded.layout(self.zone));
        let ticks = self.recorded.ticks.clone();
        let beginning = Beginning {
            origin: Origin::Recorded,
            layout,
            cma: machine.cma(),
            tick_phase_ns,
            ticks,
        };
        passes::drive(args, specs, trace, &self.survey, true, (machine, beginning))
    }
}
