//! `freehold replay fidelity`: the machine that zoneinfo describes, a replay of what the recording
//! kernel was asked for, and its own counts beside the model's.

use super::machine::{Recorded, no_zoneinfo};
use super::passes::{self, How, Rows};
use super::replay::{Chosen, Done};
use super::replay_args::FidelityArgs;
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::given;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::engines::EngineSpec;
use freehold_labkit::replay::against_kernel::{self, AgainstKernel, KernelCounts};
use freehold_labkit::replay::{
    Beginning, OfZone, Origin, ReclaimChange, Replay, Survey, TICK_PHASE_NS, middle_ns,
    reclaim_changes, starting_lists,
};

/// Where the contents of the CPUs' lists at the start of a recording come from.
#[derive(Clone, Copy)]
enum StartingLists {
    /// zoneinfo's count, all of it as movable single frames: a prediction.
    Zoneinfo,
    /// Frames whose first row shows that they lay on a list, and zoneinfo's count for the rest; the
    /// moment of the periodic work from the recorded drains.
    Trace,
}

impl StartingLists {
    fn name(self) -> &'static str {
        match self {
            Self::Zoneinfo => "zoneinfo",
            Self::Trace => "trace",
        }
    }
}

/// Engines built at a time: each has some ten bytes for each frame of the machine.
const AT_ONCE: usize = 4;

pub(super) fn run(
    args: &FidelityArgs,
    chosen: &Chosen,
    trace: &TraceFile,
) -> Result<Done, CliError> {
    let compared = Compared::new(args, trace)?;
    chosen.say();
    let mut done: Option<(Replay, AgainstKernel)> = None;
    for lists in [StartingLists::Zoneinfo, StartingLists::Trace] {
        for specs in chosen.specs.chunks(AT_ONCE) {
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
    Ok(Done { replay, comparison: Some(comparison), answer: None })
}

/// What is the same for every engine and every assumption about the lists.
struct Compared {
    recorded: Recorded,
    survey: Survey,
    counts: Vec<KernelCounts>,
    zone: usize,
    /// When kswapd was at work, by its rows.
    reclaim: Vec<ReclaimChange>,
}

impl Compared {
    fn new(args: &FidelityArgs, trace: &TraceFile) -> Result<Self, CliError> {
        let recorded = Recorded::beside(&args.common, trace)?.ok_or_else(|| no_zoneinfo(trace))?;
        let all = against_kernel::count_kernel(trace, &recorded.zones, u64::MAX)?;
        let Some(zone) = against_kernel::main_zone(&all, &recorded.zones) else {
            // Where nothing at all can be read from it, that is worth more to know.
            passes::survey(&args.common, true, trace)?;
            let (trace, zones) = (trace.shown(), &recorded.shown);
            return Err(CliError::new(format!("{trace}: the kernel took nothing from any zone of {zones}")).hint(
                "record the events kmem:mm_page_alloc_zone_locked and mm_page_pcpu_drain too, and the zoneinfo with them",
            ));
        };
        let rows = OfZone::new(trace, &recorded.zones[zone]);
        let survey =
            passes::survey(&args.common, true, Rows { shown: trace.shown(), trace: &rows })?;
        let counts = against_kernel::count_kernel(trace, &recorded.zones, middle_ns(&survey))?;
        let account = recorded.account(zone);
        if !account.is_of_engines() {
            let (order, largest) = (account.pageblock_order, account.max_order);
            return Err(CliError::new(format!(
                "{}: recorded with pageblocks of order {order} and orders to {largest}: no engine has \
                 a kernel's lists for that",
                trace.shown()
            ))
            .hint("'freehold replay' without a comparison runs such a trace page by page"));
        }
        let batch = recorded.zones[zone].info.pagesets.iter().map(|set| set.batch).max();
        let reclaim = reclaim_changes(trace, batch.unwrap_or_default())?;
        Ok(Self { recorded, survey, counts, zone, reclaim })
    }

    fn replay(
        &self,
        args: &FidelityArgs,
        specs: &[EngineSpec],
        trace: &TraceFile,
        lists: StartingLists,
    ) -> Result<Replay, CliError> {
        let mut zone = self.recorded.zones[self.zone].clone();
        let mut tick_phase_ns = TICK_PHASE_NS;
        match lists {
            StartingLists::Zoneinfo => starting_lists::assume_single_frames(&mut zone),
            StartingLists::Trace => {
                starting_lists::reconstruct(trace, &mut zone)?;
                tick_phase_ns = starting_lists::tick_phase(trace)?.unwrap_or(TICK_PHASE_NS);
            }
        }
        let machine = against_kernel::machine(&zone, passes::cpus(&args.common, &self.survey)?);
        let layout = self.recorded.layout(self.zone);
        self.recorded.compare(self.zone, trace, &layout, &machine)?;
        let layout = Some(layout);
        let ticks = self.recorded.ticks.clone();
        let beginning = Beginning {
            origin: Origin::Recorded,
            layout,
            account: Some(self.recorded.account(self.zone).clone()),
            cma: machine.cma(),
            tick_phase_ns,
            ticks,
            reclaim: self.reclaim.clone(),
        };
        let how = How::Serial { jobs: given::jobs(args.jobs), memory_maps: 0 };
        let machine = (machine, beginning);
        let rows = OfZone::new(trace, &self.recorded.zones[self.zone]);
        let rows = Rows { shown: trace.shown(), trace: &rows };
        passes::drive(&args.common, specs, rows, &self.survey, true, machine, how)
    }
}
