//! `freehold replay fidelity`: the machine that zoneinfo describes, a replay of what the recording
//! kernel was asked for, and its own counts beside the model's.
//!
//! | room | what |
//! |---|---|
//! | `counts` | what the kernel counted, by its rows |
//! | `starting_lists` | what lay on each CPU's lists when the recording began |
//! | `reclaim` | when memory was being reclaimed |
//! | `compare` | both sides, and the verdict |
//! | `table` | the table |

mod compare;
mod counts;
mod reclaim;
mod starting_lists;
mod table;

use crate::cli::error::CliError;
use crate::cli::input::TraceFile;
use crate::cli::size::whole;
use crate::cli::{Outcome, given};
use crate::commands::chosen::{Chosen, engines_of};
use crate::commands::machine::{Recorded, no_zoneinfo};
use crate::commands::passes::{self, Ready};
use crate::commands::replay::{Done, each_trace};
use crate::commands::replay_args::Common;
use crate::engines::{EngineSpec, MachineConfig};
use crate::replay::fill::{Beside, assumed_lists};
use crate::replay::of_zone::OfZone;
use crate::replay::{Beginning, Origin, ReclaimChange, Replay, Survey};
use crate::trials::random::Random;
use clap::Args;
use freehold_classic::SCALE_MAX;
use freehold_trace::kernel::Kernel;
use serde::Serialize;

use compare::AgainstKernel;
use counts::{KernelCounts, count_kernel, main_zone, middle_ns};

const HELP: &str = "\
The machine is the recorded one, and each engine is compared twice: zoneinfo does not say on which \
of a CPU's lists its frames \
lay when the recording began. `zoneinfo` puts all of them on the list of movable single frames, \
which is a prediction; `trace` \
reads what it can from the rows of the recording.

--json adds \"against_kernel\" to what replay prints: {\"zone\", \"kernel\": its counts by \
zone, \"engines\": [{\"engine\", \
\"starting_lists\", \"within\": the verdict, \"refilled_frames\", \"drained_frames\": \
{\"kernel\", \"engine\", \
\"difference_percent\", \"within\": only where the verdict rests on it, \"starts\": least and most \
with --starts}, \"lists\", ...}]}.";

/// Arguments of `freehold replay fidelity`.
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(after_help = HELP)]
pub(crate) struct FidelityArgs {
    #[command(flatten)]
    common: Common,

    /// Engines to run at the same time. Default: as many as there are cores.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=u16::MAX))]
    jobs: Option<u16>,

    /// Replay from N more starts, drawn at random, and show how far apart they end. What a CPU's
    /// lists hold is drawn below the largest refill: where refills begin no recording says.
    #[arg(long, value_name = "N", default_value_t = 0)]
    starts: u16,

    /// Which starts are drawn.
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "starts")]
    seed: u64,
}

/// Where the contents of the CPUs' lists at the start of a recording come from.
#[derive(Clone, Copy)]
enum StartingLists {
    /// zoneinfo's count, all of it as movable single frames: a prediction.
    Zoneinfo,
    /// Frames whose first row shows that they lay on a list, and zoneinfo's count for the rest; the
    /// moment of the periodic work from the recorded drains.
    Trace,
    /// Movable single frames, a count of them drawn for each CPU: start `.0` of those asked for.
    Drawn(u16),
}

impl StartingLists {
    fn name(self) -> &'static str {
        match self {
            Self::Zoneinfo => "zoneinfo",
            Self::Trace => "trace",
            Self::Drawn(_) => "drawn",
        }
    }
}

/// Engines built at a time: each has some ten bytes for each frame of the machine.
const AT_ONCE: usize = 4;

/// What this mode prints beside the replay.
#[derive(Serialize)]
struct Against {
    against_kernel: AgainstKernel,
}

pub(crate) fn run(args: &FidelityArgs) -> Result<Outcome, CliError> {
    let replayed = |trace: &TraceFile| {
        let chosen = engines_of(&args.common, trace, &[])?;
        replayed(args, &chosen, trace)
    };
    each_trace(
        &args.common,
        replayed,
        |_| Vec::new(),
        |done, style| table::render(&done.replay, &done.more.against_kernel, style),
    )
}

fn replayed(
    args: &FidelityArgs,
    chosen: &Chosen,
    trace: &TraceFile,
) -> Result<Done<Against>, CliError> {
    let compared = Compared::new(args, trace)?;
    if args.starts > 0 && compared.recorded.zones[compared.zone].pagesets.is_empty() {
        return Err(CliError::new("--starts needs the CPUs' lists, which zoneinfo lacks"));
    }
    chosen.say();
    let mut done: Option<(Replay, AgainstKernel)> = None;
    let drawn = (0..args.starts).map(StartingLists::Drawn);
    for lists in [StartingLists::Zoneinfo, StartingLists::Trace].into_iter().chain(drawn) {
        for specs in chosen.specs.chunks(AT_ONCE) {
            let replay = compared.replay(args, specs, trace, lists)?;
            let comparison = compare::compare(
                &replay,
                compared.counts.clone(),
                compared.zone,
                lists.name(),
                &compared.survey,
            );
            match &mut done {
                // The prediction is the replay that everything else is about.
                Some((_, all)) if matches!(lists, StartingLists::Drawn(_)) => {
                    all.widen(&comparison);
                }
                Some((_, all)) => all.engines.extend(comparison.engines),
                None => done = Some((replay, comparison)),
            }
        }
    }
    let (replay, against_kernel) = done.ok_or_else(|| CliError::new("no engine to compare"))?;
    Ok(Done { replay, about: trace.about()?, beside: Vec::new(), more: Against { against_kernel } })
}

/// What is the same for every engine and every assumption about the lists.
struct Compared {
    recorded: Recorded,
    survey: Survey,
    kernel: Kernel,
    counts: Vec<KernelCounts>,
    zone: usize,
    /// When kswapd was at work, by its rows.
    reclaim: Vec<ReclaimChange>,
}

impl Compared {
    fn new(args: &FidelityArgs, trace: &TraceFile) -> Result<Self, CliError> {
        let recorded = Recorded::beside(&args.common, trace)?.ok_or_else(|| no_zoneinfo(trace))?;
        let kernel = trace.kernel().unwrap_or(Kernel::OWN);
        let all = count_kernel(trace, kernel, &recorded.zones, u64::MAX)?;
        let Some(zone) = main_zone(&all, &recorded.zones) else {
            // Where nothing at all can be read from it, that is worth more to know.
            passes::survey(&args.common, true, (trace.shown(), trace))?;
            let (trace, zones) = (trace.shown(), &recorded.shown);
            return Err(CliError::new(format!(
                "{trace}: the kernel took nothing from any zone of {zones}"
            ))
            .hint(
                "record the events kmem:mm_page_alloc_zone_locked and mm_page_pcpu_drain too, and \
                 the zoneinfo with them",
            ));
        };
        let rows = OfZone { trace, zones: &recorded.zones, at: zone };
        let survey = passes::survey(&args.common, true, (trace.shown(), &rows))?;
        let counts = count_kernel(trace, kernel, &recorded.zones, middle_ns(&survey))?;
        let account = &recorded.accounts[zone];
        if !account.is_of_engines() {
            let (order, largest) = (account.pageblock_order, account.max_order);
            return Err(CliError::new(format!(
                "{}: recorded with pageblocks of order {order} and orders to {largest}: no engine \
                 has a kernel's lists for that",
                trace.shown()
            ))
            .hint("'freehold replay' without a comparison runs such a trace page by page"));
        }
        let batch = recorded.zones[zone].pagesets.iter().map(|set| set.batch).max();
        let reclaim = reclaim::changes(trace, batch.unwrap_or_default())?;
        Ok(Self { recorded, survey, kernel, counts, zone, reclaim })
    }

    fn replay(
        &self,
        args: &FidelityArgs,
        specs: &[EngineSpec],
        trace: &TraceFile,
        lists: StartingLists,
    ) -> Result<Replay, CliError> {
        let rows = OfZone { trace, zones: &self.recorded.zones, at: self.zone };
        let mut zone = self.recorded.zones[self.zone].clone();
        let cpus = passes::cpus(&args.common, &self.survey)?;
        let cpus = passes::cpus_of(&args.common, &zone, cpus);
        let (lists, tick_phase_ns) = match lists {
            StartingLists::Zoneinfo => (assumed_lists(&zone, cpus), None),
            StartingLists::Drawn(start) => {
                let mut random = Random::split(args.seed, start.into());
                for set in &mut zone.pagesets {
                    set.count = random.below(set.batch.saturating_mul(1 << SCALE_MAX));
                }
                (assumed_lists(&zone, cpus), None)
            }
            StartingLists::Trace => {
                let lists = starting_lists::reconstruct(&rows, self.kernel, &mut zone)?;
                (lists, starting_lists::tick_phase(trace)?)
            }
        };
        let machine = MachineConfig::of_zone(&zone, cpus);
        let layout = self.recorded.layout(self.zone, &Beside::new(lists, &self.survey.warm));
        self.recorded.compare(self.zone, trace, &layout, &machine)?;
        let layout = Some(layout);
        let ticks = self.recorded.ticks.clone();
        let beginning = Beginning {
            origin: Origin::Recorded,
            layout,
            account: Some(self.recorded.accounts[self.zone].clone()),
            page_size: None,
            cma: machine.cma(),
            tick_phase_ns,
            ticks,
            reclaim: self.reclaim.clone(),
        };
        let jobs = given::jobs(args.jobs);
        let ready = Ready { survey: self.survey.clone(), warm: true, machine, beginning };
        passes::serially(&args.common, specs, (trace.shown(), &rows), ready, jobs)
    }
}

#[cfg(test)]
mod rows {
    use freehold::{CpuId, Order, Pfn};
    use freehold_trace::{Event, EventKind};

    pub(super) fn event(cpu: u16, kind: EventKind) -> Event {
        Event { ts_ns: 0, cpu: CpuId::new(cpu), pid: 1, kind }
    }

    pub(super) fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    pub(super) fn taken(cpu: u16, pfn: u64, size: u8, migratetype: u8) -> Event {
        let (pfn, order) = (Pfn::new(pfn), order(size));
        event(cpu, EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill: true })
    }

    pub(super) fn drained(cpu: u16, pfn: u64, size: u8, migratetype: u8) -> Event {
        event(cpu, EventKind::PcpuDrain { pfn: Pfn::new(pfn), order: order(size), migratetype })
    }
}
