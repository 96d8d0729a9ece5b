//! `freehold replay`: traces through engines.

use std::fs::File;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};

use clap::Args;
use freehold::{NodeId, Order};
use serde::Serialize;

use super::against_kernel::StartingLists;
use super::error::CliError;
use super::input::TraceFile;
use super::machine::{self, Machine, parse_machine};
use super::progress::Progress;
use super::size::{Memory, parse_memory, parse_percent, parse_share};
use super::target::Target;
use super::{Outcome, against_kernel, given, notes, output, picture, report};
use crate::engine::Paths;
use crate::engines::{self, EngineSpec, MachineConfig};
use crate::html;
use crate::replay::against_kernel::AgainstKernel;
use crate::replay::{
    self, Beginning, NamedEngine, Replay, ReplayOptions, SAMPLES, Survey, SurveyOptions, Trace, TraceFacts, sizing,
    threads,
};
use crate::report::{json, paths, picture as draw, table, timeline};

const EXAMPLES: &str = "\
Examples:
  freehold replay                               the sample trace, the default engines
  freehold replay -e 5.17 -e vanilla trace.parquet
  freehold replay --machine 1G --warm trace.parquet
  freehold replay --cma 50% -e vanilla -e pcp-buddy trace.parquet
                                                half of the zone is CMA: what it serves
  freehold replay --timeline over-time.parquet trace.parquet
  freehold replay --picture comparison.svg trace.parquet
  freehold replay --html report.html trace.parquet
  zstdcat trace.txt.zst | freehold replay --json - | jq '.engines[] | {engine, zone_lock_acquisitions}'
  freehold replay --against-kernel trace.parquet
  freehold replay --paths -e freehold -e freehold,owned
                                                how often each of freehold's ways is taken, CPUs owned and not
  freehold replay --power *.parquet             which wrong kernels that comparison can tell from 6.18
  freehold replay --threads --interrupts 0.05 trace.parquet
                                                a thread for each CPU; 5 % of single frees arrive inside another call

--json prints {\"trace\": what the file holds, \"machine\": {\"memory_frames\", \"cpus\", \"origin\", ...}, \"engines\": \
[{\"engine\", \"zone_lock_acquisitions\", \"zone_lock_work\", \"refilled_frames\", \"drained_frames\", \"timeline\", ...}]}, and \
{\"traces\": [...]} of such documents for several traces. --against-kernel adds \"against_kernel\": {\"zone\", \"kernel\": its \
counts by zone, \"engines\": [{\"engine\", \"starting_lists\", \"within\": the verdict, \"refilled_frames\", \"drained_frames\": \
{\"kernel\", \"engine\", \"difference_percent\", \"within\": only where the verdict rests on it}, \"lists\", ...}]}.";

/// Moments of the picture of memory in a report, unless asked for otherwise.
const REPORT_MAPS: u32 = 48;

/// Arguments of `freehold replay`.
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// Traces to replay; '-' is standard input. Without any, the built-in sample.
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// An engine to compare: a preset, and after commas changes to switch on (+) or off (-). May be given several
    /// times; the first is the baseline. Default: 5.17, vanilla, pcp-buddy, pcp-buddy-fixed and freehold.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    engines: Vec<EngineSpec>,

    /// The machine: `recorded` (zone, marks, CPU settings and what was free and in use, from the copies of
    /// /proc/zoneinfo, buddyinfo and pagetypeinfo beside the trace), `pristine` (the same, all memory free), or an amount
    /// of memory (K, M, G or T, rounded up to whole 4 MiB, all free). Default: recorded; without a zoneinfo beside the
    /// trace a machine sized by the trace's peak, all memory free.
    #[arg(long, value_name = "recorded|pristine|SIZE", value_parser = parse_machine)]
    machine: Option<Machine>,

    /// The same as --machine SIZE.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_memory, conflicts_with = "machine")]
    memory: Option<Memory>,

    /// Make that share of the machine's memory CMA, which serves movable requests only, for every engine alike: above 0 % up
    /// to 90 %. On a recorded machine it is as full as the rest of its movable memory. Counts what it serves: `cma` in the
    /// JSON, a group of the table. Default: what the recorded zone had, and always that in a comparison with its kernel.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    cma: Option<f64>,

    /// CPUs of the machine; CPUs of the trace beyond are folded onto these. Default: as the trace has them.
    #[arg(short, long, value_name = "N")]
    cpus: Option<NonZeroU16>,

    /// The memory node that the machine's memory belongs to.
    #[arg(long, value_name = "N", default_value_t = 0)]
    node: u8,

    /// Begin with the frames allocated that the trace frees without having allocated them. On the recorded machine they
    /// always are: they are part of what is in use.
    #[arg(long)]
    warm: bool,

    /// Put in an allocation for frames that were taken from the zone and later freed but whose allocation was not
    /// traced, at the moment they were taken.
    #[arg(long)]
    untraced: bool,

    /// Leave malformed lines and rows out, and count them, instead of stopping.
    #[arg(long)]
    skip_bad: bool,

    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,

    /// After the table, print how often each of an engine's ways was taken: from the CPU's hand, from its group, from the
    /// zone. Of engines that count it, which freehold does; `-e freehold,owned` owns every CPU, as a kernel does.
    #[arg(long, conflicts_with_all = ["json", "against_kernel", "power", "threads"])]
    paths: bool,

    /// Write the state of every engine over time to this Parquet file.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,

    /// Draw the comparison to this SVG file: zone-lock acquisitions, work and longest hold of every engine, and the
    /// unusable-free-space index over time. Of several traces each has its own, with its name put in before the ending.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Also record the state of every pageblock (holder, migratetype, free frames) at N moments of the trace, 1 to 200:
    /// `memory_map` in the JSON, the picture of memory with the slider in the report. Above 8 GiB a cell stands for
    /// several neighbouring pageblocks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SAMPLES)))]
    memory_map: Option<u32>,

    /// Write a report to this HTML file: tables, distributions, fragmentation over time and the picture of memory. It
    /// needs no network. Without --memory-map the picture has 48 moments.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Engines to run at the same time. Default: as many as there are cores.
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// No progress bar.
    #[arg(long)]
    no_progress: bool,

    /// Compare the refills and drains of engine 6.18 (or those given) with what the recording kernel itself counted in
    /// the trace, on the recorded machine.
    #[arg(long, group = "comparison", conflicts_with_all = ["machine", "memory", "timeline", "picture"])]
    against_kernel: bool,

    /// With --against-kernel or --power: what the CPUs' lists held when the recording began; of several, each is compared.
    /// Default: zoneinfo, trace.
    #[arg(long, value_enum, value_delimiter = ',', requires = "comparison")]
    starting_lists: Vec<StartingLists>,

    /// Compare kernels that did not record the trace (5.17, 5.18, 7.1, pcp-buddy, and 6.18 with each of its rules
    /// switched off) and say which are told from 6.18, from zoneinfo alone unless --starting-lists says otherwise.
    #[arg(long, group = "comparison", conflicts_with_all = ["machine", "memory", "timeline", "picture", "html", "against_kernel"])]
    power: bool,

    /// Replay each CPU's calls on a thread of its own, all against the engine's real locks. A CPU's calls stay in their
    /// order; a free waits for its allocation; nothing else is ordered, but that no thread is more than 4,096 operations
    /// ahead of another. Prints waits for locks, PCP trylock failures, calls that went past the PCP to the zone, and waits
    /// for another CPU's PCP lock (the inversion of order that reviewers of pcp-buddy feared): they differ from run to
    /// run, and with the machine. Threads run at full speed, without the work between calls, so locks are contended more
    /// often than in the recording; on two cores a thread put off with a lock in its hand makes the other wait as no
    /// kernel would; and nothing here says what many CPUs would do (`freehold simulate` is for that).
    #[arg(long, conflicts_with_all = ["timeline", "picture", "memory_map", "html", "against_kernel", "power", "jobs"])]
    threads: bool,

    /// With --threads: the share of single frees, 0 to 1, that arrive inside another call of their CPU, as an interrupt's
    /// do: the CPU's own lists cannot be had. Which frees these are is the same in every run and for every engine. (Linux
    /// before 6.2 kept interrupts off there: for 5.17 and 5.18 this is a what-if.)
    #[arg(long, value_name = "SHARE", requires = "threads", value_parser = parse_share)]
    interrupts: Option<f64>,

    /// The zoneinfo to use.
    #[arg(long, value_name = "FILE")]
    zoneinfo: Option<PathBuf>,
}

impl ReplayArgs {
    /// What `freehold` alone does.
    pub(super) fn sample() -> Self {
        Self::default()
    }

    /// `filled`: memory begins with what was in use, and what the recording kernel was asked to free of it is freed.
    pub(super) fn put_in(&self, filled: bool) -> SurveyOptions {
        SurveyOptions { warm: self.warm || filled, untraced: self.untraced }
    }

    /// Moments at which to look at every pageblock.
    fn memory_maps(&self) -> u32 {
        self.memory_map.unwrap_or(if self.html.is_some() { REPORT_MAPS } else { 0 })
    }

    /// Whether engines are compared with the recording kernel.
    pub(super) fn compares(&self) -> bool {
        self.against_kernel || self.power
    }

    /// The assumptions to compare, the prediction first.
    pub(super) fn starting_lists(&self) -> &[StartingLists] {
        match &self.starting_lists[..] {
            [] if self.power => &[StartingLists::Zoneinfo],
            [] => &[StartingLists::Zoneinfo, StartingLists::Trace],
            given => given,
        }
    }

    pub(super) fn machine(&self) -> Option<Machine> {
        self.machine.or(self.memory.map(Machine::Memory))
    }

    /// The share of memory that is to be CMA.
    pub(super) fn cma(&self) -> Option<f64> {
        self.cma
    }

    pub(super) fn zoneinfo(&self) -> Option<&Path> {
        self.zoneinfo.as_deref()
    }
}

pub(super) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    // Fail before the work, not after it.
    let mut others: Vec<(&str, &Path)> = args.traces.iter().map(|trace| ("a trace", trace.as_path())).collect();
    Target::TIMELINE.check(args.timeline.as_ref(), &others)?;
    others.extend(args.timeline.as_ref().map(|path| ("the timeline", path.as_path())));
    Target::REPORT.check(args.html.as_ref(), &others)?;
    against_kernel::check(args)?;
    let specs = specs(args)?;
    // A value that cannot be is known without reading anything.
    if let Some(cpus) = args.cpus.filter(|cpus| cpus.get() > sizing::CPUS_MAX) {
        return Err(CliError::new(format!("{cpus} CPUs are too many: {} is the most", sizing::CPUS_MAX)));
    }
    let mut pictures = picture::files(args.picture.as_ref(), &args.traces, &others)?.into_iter();

    let mut results: Vec<Result<Done, (String, CliError)>> = Vec::new();
    let mut outcome = Outcome::Fine;
    let arguments: Vec<Option<&PathBuf>> =
        if args.traces.is_empty() { vec![None] } else { args.traces.iter().map(Some).collect() };
    let mut printed = false;
    for argument in &arguments {
        let (name, done) = one(args, &specs, *argument);
        match &done {
            Ok(Done { replay, comparison }) => {
                notes::of_engines(&name, replay);
                if !replay.is_whole() && outcome == Outcome::Fine {
                    outcome = Outcome::NotWhole;
                }
                if !args.json && !args.power {
                    print_table(args, replay, comparison.as_ref(), !printed)?;
                    printed = true;
                }
            }
            Err(error) => {
                error.print();
                outcome = Outcome::Unreadable;
            }
        }
        if let (Some(path), Ok(done)) = (pictures.next(), &done) {
            let svg = draw::render(&done.replay).map_err(|error| Target::PICTURE.failed(&path, &error))?;
            Target::PICTURE.write(&path, svg)?;
        }
        results.push(done.map_err(|error| (name, error)));
    }

    write_out(args, &results)?;
    Ok(outcome)
}

/// What is said of all traces together.
fn write_out(args: &ReplayArgs, results: &[Result<Done, (String, CliError)>]) -> Result<(), CliError> {
    if args.power && !args.json {
        let comparisons = results
            .iter()
            .flatten()
            .filter_map(|done| Some((done.replay.survey.description.name.as_str(), done.comparison.as_ref()?)));
        output::print(&crate::report::power::render(comparisons, output::style()))?;
    }
    if let Some(path) = &args.timeline {
        let file = File::create(path).map_err(|error| Target::TIMELINE.failed(path, &error))?;
        timeline::write(file, results.iter().flatten().map(|done| &done.replay))
            .map_err(|error| Target::TIMELINE.failed(path, &error))?;
    }
    if let Some(path) = args.html.as_ref().filter(|_| results.iter().any(Result::is_ok)) {
        write_html(path, results)?;
    }
    // Nothing at all is no document; the errors have been said.
    if args.json && results.iter().any(Result::is_ok) {
        let documents: Vec<Document<'_>> = results.iter().map(Document::from).collect();
        match &documents[..] {
            [document] => output::print_json(document)?,
            traces => output::print_json(&Documents { traces })?,
        }
    }
    Ok(())
}

/// The report of all traces, made of the same JSON that `--json` prints.
fn write_html(path: &Path, results: &[Result<Done, (String, CliError)>]) -> Result<(), CliError> {
    let documents: Result<Vec<_>, _> =
        results.iter().map(|result| serde_json::to_value(Document::from(result))).collect();
    let documents = documents.map_err(|error| CliError::new(format!("cannot put the result into JSON: {error}")))?;
    html::write(&documents, path).map_err(report::failed)
}

/// What `--json` prints of a trace.
#[derive(Serialize)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant)] // one for each trace of a command line
enum Document<'a> {
    Replayed {
        #[serde(flatten)]
        replay: json::ReplayReport<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        against_kernel: Option<&'a AgainstKernel>,
    },
    Unreadable {
        trace: Named<'a>,
        error: &'a str,
    },
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

/// What `--json` prints of several traces.
#[derive(Serialize)]
struct Documents<'a> {
    traces: &'a [Document<'a>],
}

impl<'a> From<&'a Result<Done, (String, CliError)>> for Document<'a> {
    fn from(result: &'a Result<Done, (String, CliError)>) -> Self {
        match result {
            Ok(done) => Self::Replayed { replay: (&done.replay).into(), against_kernel: done.comparison.as_ref() },
            Err((name, error)) => Self::Unreadable { trace: Named { name }, error: error.message() },
        }
    }
}

/// What came of one trace.
pub(super) struct Done {
    pub(super) replay: Replay,
    pub(super) comparison: Option<AgainstKernel>,
}

fn one(args: &ReplayArgs, specs: &[EngineSpec], argument: Option<&PathBuf>) -> (String, Result<Done, CliError>) {
    let trace = match argument {
        None => TraceFile::sample(),
        Some(path) => match TraceFile::named(path, args.skip_bad) {
            Ok(trace) => trace,
            Err(error) => return (path.display().to_string(), Err(error)),
        },
    };
    let name = trace.shown().to_owned();
    let done = if args.compares() {
        against_kernel::run(args, specs, &trace)
    } else {
        replay_one(args, specs, &trace).map(|replay| Done { replay, comparison: None })
    };
    (name, done)
}

fn replay_one(args: &ReplayArgs, specs: &[EngineSpec], trace: &TraceFile) -> Result<Replay, CliError> {
    let choice = machine::choose(args, trace)?;
    let put_in = args.put_in(choice.is_filled());
    let survey = survey(args, put_in, trace)?;
    let machine = choice.machine(args, trace, &survey)?;
    drive(args, specs, trace, &survey, put_in, machine)
}

/// The first pass.
pub(super) fn survey(args: &ReplayArgs, put_in: SurveyOptions, trace: &TraceFile) -> Result<Survey, CliError> {
    let progress = Progress::new(&format!("reading {}", trace.shown()), None, args.no_progress);
    let survey = replay::survey(trace as &dyn Trace, put_in, Order::LINUX_MAX, |events, reader| {
        progress.update(events, reader);
    })
    .map_err(|error| CliError::from_reader(&error.to_string()))?;
    drop(progress);
    let TraceFacts { events, .. } = survey.facts;
    if events == 0 {
        return Err(CliError::new(format!("{}: there is no page-allocator event in it", trace.shown()))
            .hint("record the kernel's events kmem:mm_page_*; 'freehold --help' says how"));
    }
    if let Some(why) = survey.nothing_to_replay() {
        return Err(CliError::new(format!("{}: nothing of its {events} events can be replayed: {why}", trace.shown()))
            .hint(match survey.facts.unknown_frees {
                0 => "record kmem:mm_page_alloc and kmem:mm_page_free; 'freehold --help' says how",
                _ => "--warm puts in what was allocated before the recording began",
            }));
    }
    notes::of_trace(trace.shown(), &survey);
    Ok(survey)
}

/// CPUs of the machine, as the user wants or as the trace has them.
pub(super) fn cpus(args: &ReplayArgs, survey: &Survey) -> Result<Option<u16>, CliError> {
    let cpus = args.cpus.map(NonZeroU16::get);
    let shown = sizing::default_cpus(survey);
    if cpus.is_none() && shown > sizing::CPUS_MAX {
        let most = sizing::CPUS_MAX;
        return Err(CliError::new(format!("the trace has {shown} CPUs; {most} is the most that can be replayed"))
            .hint(format!("fold them onto fewer: --cpus {most}")));
    }
    Ok(cpus)
}

/// The second pass.
pub(super) fn drive(
    args: &ReplayArgs,
    specs: &[EngineSpec],
    trace: &TraceFile,
    survey: &Survey,
    put_in: SurveyOptions,
    (machine, beginning): (MachineConfig, Beginning),
) -> Result<Replay, CliError> {
    let machine = MachineConfig { node: NodeId::new(args.node), ..machine };
    if args.threads && machine.cpus > threads::CPUS_MAX {
        let (cpus, most) = (machine.cpus, threads::CPUS_MAX);
        return Err(CliError::new(format!("{cpus} CPUs are too many for threads: {most} is the most"))
            .hint(format!("fold them onto fewer: --cpus {most}")));
    }
    let build = if args.threads { engines::build_for_threads } else { engines::build };
    let engines: Vec<NamedEngine> = specs
        .iter()
        .map(|spec| Ok(NamedEngine { name: spec.name().to_owned(), engine: build(spec, &machine)? }))
        .collect::<Result<_, engines::EngineError>>()
        .map_err(|error| CliError::new(format!("{}: {error}", trace.shown())))?;
    let options = ReplayOptions {
        cpus: machine.cpus,
        put_in,
        jobs: given::jobs(args.jobs),
        samples: SAMPLES,
        memory_maps: args.memory_maps(),
    };
    if args.threads {
        let (frames, interrupts) = (machine.memory_frames, args.interrupts.unwrap_or(0.0));
        return threads::replay_on_threads(beginning, trace, survey, &engines, frames, options, interrupts)
            .map_err(|error| CliError::from_reader(&error.to_string()));
    }
    let what = format!("replaying {}", trace.shown());
    let progress = Progress::new(&what, Some(survey.facts.events), args.no_progress);
    replay::replay_from(beginning, trace, survey, &engines, machine.memory_frames, options, |events, reader| {
        progress.update(events, reader);
    })
    .map_err(|error| CliError::from_reader(&error.to_string()))
}

fn specs(args: &ReplayArgs) -> Result<Vec<EngineSpec>, CliError> {
    if !args.engines.is_empty() {
        return Ok(args.engines.clone());
    }
    let recording = || engines::RECORDING_KERNEL.parse().into_iter();
    if args.power {
        return Ok(recording().chain(engines::wrong_kernels()).collect());
    }
    let names: &[&str] = if args.against_kernel { &[engines::RECORDING_KERNEL] } else { &engines::DEFAULT };
    names.iter().map(|name| name.parse().map_err(|error| CliError::new(format!("{error}")))).collect()
}

/// The ways of the engines that say them.
fn taken(replay: &Replay) -> Vec<(String, Paths)> {
    replay.engines.iter().filter_map(|engine| Some((engine.engine.clone(), engine.paths?))).collect()
}

fn print_table(
    args: &ReplayArgs,
    replay: &Replay,
    comparison: Option<&AgainstKernel>,
    first: bool,
) -> Result<(), CliError> {
    let style = output::style();
    let text = match comparison {
        Some(comparison) => crate::report::against_kernel::render(replay, comparison, style),
        None if replay.threads.is_some() => crate::report::threads::render(replay, style),
        None => table::render(replay, style),
    };
    let text = if args.paths { format!("{text}\n{}", paths::render(&taken(replay), style)) } else { text };
    output::print(&if first { text } else { format!("\n{text}") })
}
