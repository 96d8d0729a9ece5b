//! `freehold record`: a trace of the running kernel, with what a replay needs in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use freehold_trace::record::{self, About, Instance, RecordError, Recording, Tracefs};
use freehold_trace::{Packed, Source};
use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::given::Shown;
use crate::cli::progress::Progress;
use crate::cli::provenance::{PROGRAM, command_line};
use crate::cli::size::{parse_bytes, whole};
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output, stop};
use crate::look::threshold::Threshold;
use crate::tables::number::{counted, memory_of};
use crate::tables::thousands as count;

const EXAMPLES: &str = "\
Records the events kmem:mm_page_* through a tracefs instance of its own, so that other tracing \
goes on undisturbed. The \
trace is one file: in it are also /proc/zoneinfo, buddyinfo and pagetypeinfo from before and after, \
which pages are free, when the once-a-second work on each CPU's lists ran (Linux 6.6 or later), what replays read, and \
the host's name, its kernel, settings of memory, the command line and the recorder's version. Needs \
root.

Everything stays in the kernel's buffers until the end, so that the recorder does not record \
itself. What does not fit is \
lost, and a trace with holes is not written unless --allow-lost says so.

--json prints {\"trace\", \"events\", \"event_counts\": alloc, free, free_batched, pcpu_drain, \
extfrag, zone_locked, \
\"lost_events\", \"seconds\", \"bytes\", \"files\": those of the machine in it}.

With --last it is a flight recorder: the kernel's buffers hold the last seconds, the oldest event is \
overwritten, and files are written into a folder when something asks for them, each a recording of \
its own. It begins at a known state of memory, one of which is taken every eighth of --last; what is \
missing behind it counts as lost, in the file, too. --json prints a line for each file, with \
\"trigger\", \"unix_time\", \"buffers_too_small\", \"paused_seconds\" and \"removed\" besides. docs/recording.md says more.

Examples:
  freehold record -o make.parquet -- make -j2          while a command runs
  freehold record -o idle.parquet --duration 10s       for a time
  freehold record -o big.parquet --buffer 512M -- ./workload
  freehold record --drain -o make.parquet -- make -j2  from empty lists: nothing is to be guessed
  freehold record --last 60s --memory 256M -o flight --on 'compact_fail>0' --on 'allocstall>0'
  freehold replay make.parquet && freehold replay fidelity make.parquet

Exit codes: 0 written; 2 nothing written; 130 stopped by Ctrl-C, SIGTERM or SIGHUP, with what \
there \
was written. The command's own exit code is told on standard error, and changes none of these.";

/// Record a trace of the running kernel (root).
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "freehold record [OPTIONS] --output <FILE> -- <COMMAND>...\n       \
                      freehold record [OPTIONS] --output <FILE> --duration <TIME>\n       \
                      freehold record [OPTIONS] --output <FOLDER> --last <TIME>"
)]
#[command(group = clap::ArgGroup::new("what").args(["duration", "command", "last"]).required(true).multiple(true))]
pub(super) struct RecordArgs {
    /// The trace to write (Parquet); '-' is standard output, where nothing else is printed then.
    /// With --last the folder for files.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,

    /// How long: a number with ms, s or m, 1ms to a day (1440m).
    #[arg(short, long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,

    /// Ring buffer for each CPU: a number with K, M or G, 16K to 16G.
    #[arg(short, long, value_name = "SIZE", default_value = "64M", value_parser = parse_buffer)]
    buffer: u64,

    /// Write the trace even if events were lost; it says how many.
    #[arg(long)]
    allow_lost: bool,

    /// Empty the CPUs' lists first (less than four batches stay on each), so that a replay need not
    /// guess on which lists frames lay, which zoneinfo does not say. Lowers
    /// vm.percpu_pagelist_high_fraction for a moment while every CPU frees some pages.
    #[arg(long)]
    drain: bool,

    /// Replace the trace if it is there already.
    #[arg(long)]
    force: bool,

    /// Where tracefs is mounted. Default: /sys/kernel/tracing, or /sys/kernel/debug/tracing.
    #[arg(long, value_name = "DIR")]
    tracefs: Option<PathBuf>,

    #[command(flatten)]
    pub(super) flight: FlightArgs,

    #[command(flatten)]
    pub(super) shown: Shown,

    /// The command to record, and its arguments. Recording ends with it, or after --duration.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct FlightArgs {
    /// Be a flight recorder: keep the last TIME in the kernel's buffers, and write it into the
    /// folder --output at SIGUSR1, when --on holds, and when the command or --duration ends.
    #[arg(long, value_name = "TIME", value_parser = parse_time,
          conflicts_with_all = ["buffer", "drain", "allow_lost", "force"])]
    pub(super) last: Option<Duration>,

    /// Memory of the kernel's buffers over all CPUs, with --last.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_buffer, requires = "last")]
    pub(super) memory: u64,

    /// Files in the folder at most, with --last; the oldest go.
    #[arg(long, value_name = "FILES", default_value = "8", value_parser = whole(1..=10_000u16), requires = "last")]
    pub(super) keep: u16,

    /// Write when this begins to hold, as in look --fail-if: 'compact_fail>0', 'allocstall>0',
    /// 'unusable[9]>0.8'; may be given several times. Looked at once a second, and no sooner than
    /// --last after such a file before.
    #[arg(long, value_name = "FIGURE>NUMBER", requires = "last")]
    pub(super) on: Vec<Threshold>,
}

/// How often to look whether the end has come.
const TURN: Duration = Duration::from_millis(20);

pub(super) fn run(args: &RecordArgs) -> Result<Outcome, CliError> {
    if args.output.is_file() && !args.force {
        return Err(
            CliError::new(format!("{} exists", args.output.display())).hint("--force replaces it")
        );
    }
    Target::TRACE.check(Some(&args.output))?;
    let tracefs = find(args)?;
    // Before there is anything to leave behind.
    let stop = stop::on_signals(false);
    let instance = tracefs.instance(args.buffer.div_ceil(1024)).map_err(cli_error)?;
    say_of_ticks(&instance);
    if args.drain {
        drain()?;
    }
    let mut files = Packed::default();
    record::describe_pages(&mut files);
    // What happens between the description and the first row is unknown to a replay; what is in
    // both is counted twice. The files take a while to read, and zoneinfo, which has the lists, is
    // the first of them: so the recording begins before.
    let begun = Instant::now();
    instance.start().map_err(cli_error)?;
    record::describe_memory(&mut files, "before");
    say_what_is_missing(&files);
    let ended = wait(args, &stop, &mut || Ok(()));
    finish(args, &instance, begun, ended, files)
}

/// The kernel's tracing, and what is left behind in it.
pub(super) fn find(args: &RecordArgs) -> Result<Tracefs, CliError> {
    let tracefs = Tracefs::find(args.tracefs.as_deref()).map_err(cli_error)?;
    for instance in tracefs.left_behind() {
        let path = instance.display();
        output::complain(&format!(
            "warning: a recorder that was killed left {path} behind, with its events on; rmdir \
             {path} removes it"
        ));
    }
    Ok(tracefs)
}

/// Says where the kernel cannot tell when the periodic work runs.
pub(super) fn say_of_ticks(instance: &Instance) {
    if !instance.records_ticks() {
        output::complain(
            "warning: this kernel cannot say when the once-a-second work on the CPUs' lists runs \
             (Linux 6.6 can): a replay will take it to run once a second on every CPU",
        );
    }
}

/// Stops, and writes what was recorded. `files` describe memory before it.
fn finish(
    args: &RecordArgs,
    instance: &Instance,
    begun: Instant,
    ended: Result<Ended, CliError>,
    mut files: Packed,
) -> Result<Outcome, CliError> {
    instance.stop().map_err(cli_error)?;
    let seconds = begun.elapsed().as_secs_f64();
    let ended = ended?;
    record::describe_memory(&mut files, "after");

    let tally = instance.tally().map_err(cli_error)?;
    if tally.lost > 0 && !args.allow_lost {
        let wanted = (args.buffer as f64 * (tally.entries + tally.lost) as f64
            / tally.entries.max(1) as f64
            * 1.5) as u64;
        return Err(CliError::new(format!(
            "{} of {} events were lost: nothing written",
            count(tally.lost),
            count(tally.entries + tally.lost)
        ))
        .hint(format!(
            "--buffer {}M would have held them; --allow-lost writes what there is",
            wanted.div_ceil(1 << 20)
        )));
    }
    let about = About { seconds, files, ..about(args, &args.output) };
    let progress = Progress::new(
        "writing",
        Some(tally.entries),
        args.shown.no_progress || args.shown.printed.json,
    );
    let recording = Target::TRACE.replace_with(&args.output, |output| {
        let done = |done| progress.update(done, (0, 0));
        let to = (output, &*args.output);
        let recording = record::write(instance, tally.lost, &about, to, done).map_err(cli_error)?;
        if recording.lost > 0 && !args.allow_lost {
            let late = count(recording.lost);
            let why = format!("{late} events came too late, by their times: nothing written");
            return Err(CliError::new(why).hint("--allow-lost writes the others"));
        }
        Ok(recording)
    });
    drop(progress);
    let recording = recording?;
    let (path, recording) = (&*args.output, &recording);
    report(args, &Told { path, recording, seconds })?;
    Ok(if ended == Ended::Stopped { Outcome::Interrupted } else { Outcome::Fine })
}

/// What a recording at `path` says of itself, without its time and files.
pub(super) fn about(args: &RecordArgs, path: &Path) -> About {
    About {
        name: Source::Path(path.to_owned()).name(),
        command: (!args.command.is_empty()).then(|| args.command.join(" ")),
        seconds: 0.0,
        page_size: rustix::param::page_size() as u64,
        command_line: command_line(),
        program: PROGRAM.to_owned(),
        files: Packed::default(),
        trigger: None,
    }
}

/// What a replay will not know of the machine, for want of a file.
fn say_what_is_missing(files: &Packed) {
    for (kind, what) in [
        ("zoneinfo", "a replay will assume a machine of the trace's size"),
        ("buddyinfo", "a replay will take free memory for chunks as large as can be"),
        (
            "pagetypeinfo",
            "a replay will take free memory for movable, and pageblocks for those of such pages",
        ),
    ] {
        if files.get(kind).is_none() {
            output::complain(&format!("warning: /proc/{kind} cannot be read: {what}"));
        }
    }
}

/// Empties the CPUs' lists, and says how far.
fn drain() -> Result<(), CliError> {
    let drained = record::drain_lists().map_err(|error| {
        CliError::new(format!("cannot empty the CPUs' lists: {error}")).hint(
            "it needs root and Linux 5.14 or later; without --drain the trace is recorded as it is",
        )
    })?;
    output::complain(&format!(
        "emptied the CPUs' lists: {} of {} frames are left on them",
        count(drained.after),
        count(drained.before)
    ));
    Ok(())
}

pub(super) fn cli_error(error: RecordError) -> CliError {
    let hint = error.hint();
    CliError::from(error).hint_if(hint)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Itself,
    Stopped,
}

/// Runs the command, if there is one, and waits for the end; meanwhile does `each_turn`.
pub(super) fn wait(
    args: &RecordArgs,
    stop: &AtomicBool,
    each_turn: &mut dyn FnMut() -> Result<(), CliError>,
) -> Result<Ended, CliError> {
    let mut child: Option<Child> = match args.command.split_first() {
        None => None,
        Some((program, rest)) => {
            Some(Command::new(program).args(rest).spawn().map_err(|error| {
                CliError::new(format!("cannot run '{program}': {error}"))
                    .hint("the command follows --, as in: -- make -j2")
            })?)
        }
    };
    let begun = Instant::now();
    loop {
        // Relaxed: a flag that says nothing about other memory.
        if stop.load(Ordering::Relaxed) {
            say_if_running(&mut child, args);
            return Ok(Ended::Stopped);
        }
        if let Some(child) = &mut child {
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    output::complain(&format!(
                        "warning: '{}' ended with {status}",
                        args.command[0]
                    ));
                    return Ok(Ended::Itself);
                }
                Ok(Some(_)) => return Ok(Ended::Itself),
                Ok(None) => {}
                Err(error) => {
                    return Err(CliError::new(format!(
                        "cannot wait for '{}': {error}",
                        args.command[0]
                    )));
                }
            }
        }
        if args.duration.is_some_and(|time| begun.elapsed() >= time) {
            say_if_running(&mut child, args);
            return Ok(Ended::Itself);
        }
        each_turn()?;
        std::thread::sleep(TURN);
    }
}

/// Ctrl-C reaches the command as well; a signal to the recorder alone does not.
fn say_if_running(child: &mut Option<Child>, args: &RecordArgs) {
    if child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
        output::complain(&format!(
            "'{}' is still running; it goes on, unrecorded",
            args.command[0]
        ));
    }
}

fn report(args: &RecordArgs, told: &Told<'_>) -> Result<(), CliError> {
    if is_dash(&args.output) {
        return Ok(());
    }
    if args.shown.printed.json {
        return output::print_json(&told.json());
    }
    let files = counted(told.recording.files.names().count() as u64, "file");
    let path = args.output.display();
    let told = told.text();
    output::print(&format!("{told}; {files} of the machine in it\nto replay it: freehold {path}\n"))
}

/// What is said of a recording that is written.
pub(super) struct Told<'a> {
    pub(super) path: &'a Path,
    pub(super) recording: &'a Recording,
    pub(super) seconds: f64,
}

impl Told<'_> {
    /// Of a pipe or a device nothing is known.
    fn bytes(&self) -> u64 {
        std::fs::metadata(self.path).map_or(0, |file| file.len())
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "trace": self.path.display().to_string(),
            "events": self.recording.written.rows,
            "event_counts": self.recording.written.event_counts,
            "lost_events": self.recording.lost,
            "seconds": self.seconds,
            "bytes": self.bytes(),
            "files": self.recording.files.names().collect::<Vec<_>>(),
        })
    }

    pub(super) fn text(&self) -> String {
        let (path, seconds, lost) = (self.path.display(), self.seconds, count(self.recording.lost));
        let events = counted(self.recording.written.rows, "event");
        let bytes = size(self.bytes() as f64);
        format!("{path}: {events} in {seconds:.1} s, {lost} lost, {bytes}")
    }
}

/// Bytes of a file as an amount of memory, a KiB at least.
pub(super) fn size(bytes: f64) -> String {
    memory_of((bytes / 1024.0).ceil() as u64, 1024)
}

/// `500ms`, `10s`, `2m`.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a number with ms, s or m, for example 10s";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a time; {FORM}"))?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "" => return Err(format!("'{text}' has no unit; {FORM}")),
        _ => return Err(format!("'{unit}' is not a unit of time; {FORM}")),
    };
    let valid = (0.001..=86_400.0).contains(&seconds);
    valid
        .then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| format!("{text} is out of range: 1ms to a day (1440m)"))
}

/// `64M`: bytes.
pub(super) fn parse_buffer(text: &str) -> Result<u64, String> {
    let bytes = Some(parse_bytes(text)?).filter(|bytes| (16 << 10..=16 << 30).contains(bytes));
    bytes.ok_or_else(|| format!("{text} is out of range: 16K to 16G"))
}

#[cfg(test)]
mod tests {
    use freehold_trace::Written;

    use super::*;

    #[test]
    fn times_and_sizes() {
        assert_eq!(parse_time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "s", "10", "10h", "-1s", "0s", "0.1ms", "1e9s", "nans"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert_eq!(parse_buffer("64M"), Ok(64 << 20));
        assert_eq!(parse_buffer("16k"), Ok(16 << 10));
        for text in ["", "M", "64", "64T", "1K", "17G", "99999999999999999999G"] {
            assert!(parse_buffer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_json_prints_is_told() {
        let (written, files) = (Written::default(), Packed::default());
        let recording = Recording { written, lost: 0, files };
        let told = Told { path: Path::new("t"), recording: &recording, seconds: 1.0 };
        for name in told.json().as_object().unwrap().keys() {
            assert!(EXAMPLES.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
