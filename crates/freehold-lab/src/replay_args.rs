//! Arguments of `freehold replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use freehold_labkit::cli::given::Shown;
use freehold_labkit::cli::size::{Memory, parse_memory, parse_percent, parse_share};
use freehold_labkit::engines::EngineSpec;
use freehold_labkit::replay::SAMPLES;
use freehold_labkit::replay::sizing::CPUS_MAX;

const EXAMPLES: &str = "\
Examples:
  freehold replay                               the sample trace, the default engines
  freehold replay -e 5.17 -e vanilla trace.parquet
  freehold replay --machine 1G --warm trace.parquet
  freehold replay --cma 50% -e vanilla -e pcp-buddy trace.parquet
                                                half of the zone is CMA: what it serves
  freehold replay --json --memory-map 48 trace.parquet | freehold report -o report.html -
                                                as a page with pictures
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

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// Traces to replay; '-' is standard input. Without any, the built-in sample.
    #[arg(value_name = "TRACE")]
    pub(super) traces: Vec<PathBuf>,

    /// An engine to compare: a preset, and after commas changes to switch on (+) or off (-). May be
    /// given several times; the first is the baseline. Default: 5.17, vanilla, pcp-buddy,
    /// pcp-buddy-fixed and freehold.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    pub(super) engines: Vec<EngineSpec>,

    /// The machine: `recorded` (zone, marks, CPU settings and what was free and in use, from the
    /// copies of /proc/zoneinfo, buddyinfo and pagetypeinfo beside the trace), `pristine` (the
    /// same, all memory free), or an amount of memory (K, M, G or T, rounded up to whole 4 MiB, all
    /// free). Default: recorded; without a zoneinfo beside the trace a machine sized by the trace's
    /// peak, all memory free.
    #[arg(long, value_name = "recorded|pristine|SIZE", value_parser = parse_machine)]
    pub(super) machine: Option<Machine>,

    /// The same as --machine SIZE.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_memory, conflicts_with = "machine")]
    pub(super) memory: Option<Memory>,

    /// Make that share of the machine's memory CMA, which serves movable requests only, for every
    /// engine alike: above 0 % up to 90 %. On a recorded machine it is as full as the rest of its
    /// movable memory. Counts what it serves: `cma` in the JSON, a group of the table. Default:
    /// what the recorded zone had, and always that in a comparison with its kernel.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(super) cma: Option<f64>,

    /// CPUs of the machine; CPUs of the trace beyond are folded onto these. Default: as the trace
    /// has them.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CPUS_MAX)))]
    pub(super) cpus: Option<u16>,

    /// Begin with the frames allocated that the trace frees without having allocated them. On the
    /// recorded machine they always are: they are part of what is in use.
    #[arg(long)]
    pub(super) warm: bool,

    /// Leave malformed lines and rows out, and count them, instead of stopping.
    #[arg(long)]
    pub(super) skip_bad: bool,

    /// After the table, print how often each of an engine's ways was taken: from the CPU's hand,
    /// from its group, from the zone. Of engines that count it, which freehold does;
    /// `-e freehold,owned` owns every CPU, as a kernel does.
    #[arg(long, conflicts_with_all = ["json", "against_kernel", "power", "threads"])]
    pub(super) paths: bool,

    /// Also record the state of every pageblock (holder, migratetype, free frames) at N moments of
    /// the trace, 1 to 200: `memory_map` in the JSON, the picture of memory with the slider in the
    /// report. Above 8 GiB a cell stands for several neighbouring pageblocks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SAMPLES)))]
    pub(super) memory_map: Option<u32>,

    /// Engines to run at the same time. Default: as many as there are cores.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) jobs: Option<u16>,

    #[command(flatten)]
    pub(super) shown: Shown,

    /// Compare the refills and drains of engine 6.18 (or those given) with what the recording
    /// kernel itself counted in the trace, on the recorded machine.
    #[arg(long, group = "comparison", conflicts_with_all = ["machine", "memory"])]
    pub(super) against_kernel: bool,

    /// With --against-kernel or --power: what the CPUs' lists held when the recording began; of
    /// several, each is compared. Default: zoneinfo, trace.
    #[arg(
        long,
        value_name = "NAME[,NAME]...",
        value_enum,
        value_delimiter = ',',
        requires = "comparison"
    )]
    pub(super) starting_lists: Vec<StartingLists>,

    /// Compare kernels that did not record the trace (5.17, 5.18, 7.1, pcp-buddy, and 6.18 with
    /// each of its rules switched off) and say which are told from 6.18, from zoneinfo alone unless
    /// --starting-lists says otherwise.
    #[arg(long, group = "comparison", conflicts_with_all = ["machine", "memory", "against_kernel"])]
    pub(super) power: bool,

    /// Replay each CPU's calls on a thread of its own, all against the engine's real locks. A CPU's
    /// calls stay in their order; a free waits for its allocation; nothing else is ordered, but
    /// that no thread is more than 4,096 operations ahead of another. Prints waits for locks, PCP
    /// trylock failures, calls that went past the PCP to the zone, and waits for another CPU's PCP
    /// lock (the inversion of order that reviewers of pcp-buddy feared): they differ from run to
    /// run, and with the machine. Threads run at full speed, without the work between calls, so
    /// locks are contended more often than in the recording; on two cores a thread put off with a
    /// lock in its hand makes the other wait as no kernel would; and nothing here says what many
    /// CPUs would do (`freehold simulate` is for that).
    #[arg(long, conflicts_with_all = ["memory_map", "against_kernel", "power", "jobs"])]
    pub(super) threads: bool,

    /// With --threads: the share of single frees, 0 to 1, that arrive inside another call of their
    /// CPU, as an interrupt's do: the CPU's own lists cannot be had. Which frees these are is the
    /// same in every run and for every engine. (Linux before 6.2 kept interrupts off there: for
    /// 5.17 and 5.18 this is a what-if.)
    #[arg(long, value_name = "SHARE", requires = "threads", value_parser = parse_share)]
    pub(super) interrupts: Option<f64>,

    /// The zoneinfo to use.
    #[arg(long, value_name = "FILE")]
    pub(super) zoneinfo: Option<PathBuf>,
}

impl ReplayArgs {
    /// What `freehold` alone does.
    pub(super) fn sample() -> Self {
        Self::default()
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
}

/// What `--machine` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    /// As recorded.
    Recorded,
    /// As recorded, all memory free.
    Pristine,
    /// Of that size, all memory free.
    Memory(Memory),
}

/// Parses `recorded`, `pristine` or an amount of memory.
pub(super) fn parse_machine(text: &str) -> Result<Machine, String> {
    match text {
        "recorded" => Ok(Machine::Recorded),
        "pristine" => Ok(Machine::Pristine),
        size => parse_memory(size)
            .map(Machine::Memory)
            .map_err(|error| format!("{error}, or recorded or pristine")),
    }
}

/// Where the contents of the CPUs' lists at the start of a recording come from.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StartingLists {
    /// zoneinfo's count, all of it as movable single frames: a prediction.
    Zoneinfo,
    /// zoneinfo's count, all of it on the list that the CPU's requests use least: another.
    Unused,
    /// Frames whose first row shows that they lay on a list, and zoneinfo's count for the rest; the
    /// moment of the periodic work from the recorded drains.
    Trace,
}

impl StartingLists {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Zoneinfo => "zoneinfo",
            Self::Unused => "unused",
            Self::Trace => "trace",
        }
    }
}
