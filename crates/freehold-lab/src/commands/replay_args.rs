//! Arguments of `freehold replay`, and those that its other modes have as well.

use std::path::{Path, PathBuf};

use clap::Args;
use freehold_trace::kernel::Kernel;

use super::Mode;
use crate::cli::given::Shown;
use crate::cli::size::{parse_memory, parse_page_size, parse_percent, whole};
use crate::engines::EngineSpec;
use crate::replay::sizing::CPUS_MAX;

const EXAMPLES: &str = "\
Examples:
  freehold replay                               the built-in recording
  freehold replay -e 5.17 -e vanilla trace.parquet
  freehold replay --machine 1G --warm trace.parquet
  freehold replay --machine dmesg.txt trace.parquet
                                                on memory as it was when it ran out
  freehold replay --cma 50% -e vanilla -e pcp-buddy trace.parquet
                                                half of the zone is CMA
  freehold replay --json trace.parquet | freehold report -o report.html -
                                                as a page with pictures
  freehold replay --format parquet -o rows.parquet fleet/*.parquet
                                                a row for each trace, zone and
                                                engine, the unreadable ones too
  zstdcat trace.txt.zst | freehold replay --json - | jq '.engines[] | \
{engine, zone_lock_acquisitions}'
  freehold replay fidelity trace.parquet        an engine beside the counts of
                                                the recording kernel

--json prints \
{\"trace\": what the file holds, \"machine\": \
{\"memory_frames\", \"cpus\", \"origin\", ...}, \"engines\": \
[{\"engine\", \"zone_lock_acquisitions\", \"zone_lock_work\", \"refilled_frames\", \"drained_frames\", \"timeline\", ...}], \"answer\": {\"warnings\", \"sentences\", \"zone_lock\"}, \"about\": {\"program\", \"command\", \"path\", \"sha256\"}}, and \
{\"traces\": [...]} of such documents for several traces. Where rows lie in several zones, the \
document is of that with the most, with \"rows_by_zone\", \"other_zones\" and the \"sum\".";

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(super) struct ReplayArgs {
    #[command(subcommand)]
    pub(super) mode: Option<Mode>,

    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) machine: MachineArgs,

    /// Replay this zone of the recorded machine alone, for example DMA32 or 1:Normal. Default: each
    /// zone that one in a hundred of the trace's rows lies in.
    #[arg(long, value_name = "[NODE:]ZONE", value_parser = parse_zone)]
    pub(super) zone: Option<ZoneName>,

    /// Engines to run at the same time. Default: as many as there are cores.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=u16::MAX))]
    pub(super) jobs: Option<u16>,
}

/// A zone of a recorded machine: `DMA32`, or `1:Normal` on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneName {
    node: Option<u32>,
    name: String,
}

impl ZoneName {
    pub fn is(&self, node: u32, name: &str) -> bool {
        self.node.is_none_or(|wanted| wanted == node) && self.name.eq_ignore_ascii_case(name)
    }
}

impl std::fmt::Display for ZoneName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.node.map_or(Ok(()), |node| write!(f, " of node {node}"))
    }
}

/// Parses `ZONE` or `NODE:ZONE`.
fn parse_zone(text: &str) -> Result<ZoneName, String> {
    let (node, name) = match text.split_once(':') {
        Some((node, name)) => {
            (Some(node.parse().map_err(|_| format!("'{node}' is no node's number"))?), name)
        }
        None => (None, text),
    };
    Ok(ZoneName { node, name: name.to_owned() })
}

/// What every mode heeds.
#[derive(Args, Clone, PartialEq, Debug, Default)]
pub struct Common {
    /// Traces to replay; '-' is standard input. Without any, the built-in sample.
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// An engine to compare: a preset, and after commas changes to switch on (+) or off (-). May be
    /// given several times; the first is the baseline. Default: the kernel that recorded the trace
    /// (where it is not known, vanilla), vanilla, pcp-buddy, pcp-buddy-fixed and freehold; for
    /// fidelity the recording kernel alone.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    pub engines: Vec<EngineSpec>,

    /// CPUs of the machine, 1 to 4,096; the trace's CPUs above that number are
    /// folded onto these. Default: as many as the trace has.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=CPUS_MAX))]
    pub cpus: Option<u16>,

    /// Leave malformed lines and rows out, and count them, instead of stopping.
    #[arg(long)]
    pub skip_bad: bool,

    #[command(flatten)]
    pub shown: Shown,

    /// Write the rows of --format csv, jsonl or parquet to this file; '-' is standard output.
    #[arg(short, long, value_name = "FILE", requires = "format")]
    pub output: Option<PathBuf>,

    /// The kernel that recorded the trace, as `uname -r` prints it: what the trace's numbers mean
    /// (flags, migratetypes), and the baseline. Default: what the trace's own header says.
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<Kernel>,

    /// The page size of the recorded machine, where nothing says it.
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size)]
    pub page_size: Option<u64>,
}

/// The machine, where it need not be the recorded one.
#[derive(Args, Clone, PartialEq, Debug, Default)]
pub struct MachineArgs {
    /// The machine: `recorded` (zone, marks, CPU settings and what was free and in use, from the
    /// copies of /proc/zoneinfo, buddyinfo and pagetypeinfo beside the trace), an amount of memory
    /// (K, M, G or T, rounded up to whole 1,024 pages, all free), or what `freehold look` reads: a
    /// directory with copies of those files, one of them, or a kernel log with a Mem-Info report.
    /// What such files do not say is guessed, and said. Default: recorded; without a zoneinfo
    /// beside the trace a machine sized by the trace's peak, all memory free.
    #[arg(short, long, visible_alias = "memory", value_name = "recorded|SIZE|FILE",
          value_parser = parse_machine)]
    pub machine: Option<Machine>,

    /// Make this share of the machine's memory CMA, which serves movable requests only, for every
    /// engine alike: above 0 % up to 90 %, on a recorded machine up to its movable share. There it
    /// is as full as the rest of the movable memory. What it serves is counted: `cma` in the JSON,
    /// a group of the table. Default: what the recorded zone had.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub cma: Option<f64>,

    /// Begin with those frames in use that the trace frees without having allocated them. On the
    /// recorded machine they always are.
    #[arg(long)]
    pub warm: bool,
}

/// What `--machine` asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Machine {
    /// As recorded.
    Recorded,
    /// Of so much memory, in 4 KiB, all of it free.
    Memory(u64),
    /// As files describe it, which need not be of the machine that recorded the trace.
    Described(PathBuf),
}

/// Parses `recorded`, an amount of memory or what names files.
pub fn parse_machine(text: &str) -> Result<Machine, String> {
    match text {
        "recorded" => Ok(Machine::Recorded),
        other => match parse_memory(other) {
            Ok(memory) => Ok(Machine::Memory(memory)),
            Err(_) if Path::new(other).exists() => Ok(Machine::Described(other.into())),
            Err(error) => Err(format!(
                "{error}, or an existing file or directory; 'recorded' is a machine, too"
            )),
        },
    }
}
