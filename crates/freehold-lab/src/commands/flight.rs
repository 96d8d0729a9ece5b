//! `freehold record --last`: a flight recorder, which writes the last seconds when something asks
//! for them: a signal, a threshold of `look`, or the end of a command.
//!
//! ```text
//!  Window (kernel's buffers) ──> Parquet in memory ──> Dumps: a file by the moment, the oldest go
//!     ^ SIGUSR1, Triggers, the end                        └── full disk: kept, tried again
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use freehold_trace::StateError;
use freehold_trace::machine::{Files, Look, Machine, Parts};
use freehold_trace::record::{About, Dumped, RecordError, Tracefs, Window};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use signal_hook::consts::SIGUSR1;

use super::record::{self, Ended, RecordArgs, cli_error, parse_buffer, parse_time, size};
use crate::cli::error::CliError;
use crate::cli::size::whole;
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output, stop};
use crate::look::Named;
use crate::look::pressure::{self, Counters};
use crate::look::threshold::Threshold;
use crate::tables::number::counted;

#[derive(Args, Debug)]
pub(super) struct FlightArgs {
    /// Be a flight recorder: keep the last TIME in the kernel's buffers, and write it into the folder
    /// --output at SIGUSR1, when --on holds, and when the command or --duration ends.
    #[arg(long, value_name = "TIME", value_parser = parse_time,
          conflicts_with_all = ["buffer", "drain", "allow_lost", "force"])]
    pub(super) last: Option<Duration>,

    /// Memory of the kernel's buffers over all CPUs, with --last.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_buffer, requires = "last")]
    memory: u64,

    /// Files in the folder at most, with --last; the oldest go.
    #[arg(long, value_name = "FILES", default_value = "8", value_parser = whole(1..=10_000u16), requires = "last")]
    keep: u16,

    /// Write when this begins to hold, as in look --fail-if: 'compact_fail>0', 'allocstall>0',
    /// 'unusable[9]>0.8'; may be given several times. Looked at once a second, and no sooner than
    /// --last after such a file before.
    #[arg(long, value_name = "FIGURE>NUMBER", requires = "last")]
    on: Vec<Threshold>,
}

/// How often thresholds are looked at.
const SECOND: Duration = Duration::from_secs(1);
/// How long until a file that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// What the names of files begin and end with.
const NAME: [&str; 2] = ["flight-", ".parquet"];

pub(super) fn run(
    args: &RecordArgs,
    tracefs: &Tracefs,
    last: Duration,
) -> Result<Outcome, CliError> {
    let folder = &args.output;
    if is_dash(folder) || fs::create_dir(folder).is_err() && !folder.is_dir() {
        let why = format!("{} is no folder and cannot be made one", folder.display());
        return Err(CliError::new(why).hint("with --last files go into the folder --output"));
    }
    // Before there is anything to leave behind.
    let stop = stop::on_signals(false);
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&asked))?;
    let triggers = Triggers::new(&args.flight.on, last)?;
    let window = Window::new(tracefs, args.flight.memory, last).map_err(cli_error)?;
    record::say_of_ticks(window.instance());
    let buffers = window.buffers().map_err(cli_error)?;
    output::complain(&format!(
        "keeping the last {:.1} s in buffers of {} over all CPUs; kill -USR1 {} writes it into {}",
        last.as_secs_f64(),
        size(buffers as f64),
        std::process::id(),
        folder.display()
    ));
    let dumps = Dumps {
        folder: folder.clone(),
        keep: args.flight.keep.into(),
        json: args.shown.printed.json,
        held: None,
        tried: Instant::now(),
    };
    let begun = Instant::now();
    let mut recorder =
        Recorder { args, last, window, buffers, triggers, dumps, asked, begun, tended: begun };
    let ended = record::wait(args, &stop, &mut || recorder.turn());
    if matches!(ended, Ok(Ended::Itself)) {
        recorder.dump("the end")?;
    }
    output::complain(&recorder.cost()?.told());
    recorder.dumps.end()?;
    Ok(if ended? == Ended::Stopped { Outcome::Interrupted } else { Outcome::Fine })
}

/// What recording costs, so far.
struct Cost {
    seconds: f64,
    /// Of this process, of all its threads.
    cpu_seconds: f64,
    /// This process's memory, at its most.
    peak: u64,
    buffers: u64,
    /// Events, also those that were overwritten unread.
    seen: u64,
}

impl Cost {
    fn told(&self) -> String {
        format!(
            "recorded {} in {:.1} s ({:.0} a second); the recorder took {:.2} s of CPU time ({:.3} % of \
             one CPU) and {} at most, its buffers {}",
            counted(self.seen, "event"),
            self.seconds,
            self.seen as f64 / self.seconds,
            self.cpu_seconds,
            100.0 * self.cpu_seconds / self.seconds,
            size(self.peak as f64),
            size(self.buffers as f64)
        )
    }
}

struct Recorder<'a> {
    args: &'a RecordArgs,
    last: Duration,
    window: Window,
    /// Bytes.
    buffers: u64,
    triggers: Triggers,
    dumps: Dumps,
    asked: Arc<AtomicBool>,
    begun: Instant,
    tended: Instant,
}

impl Recorder<'_> {
    /// What is to be done now; called some times a second.
    fn turn(&mut self) -> Result<(), CliError> {
        // Relaxed: a flag that says nothing about other memory. A signal while a file is written
        // sets it again, and several then ask for one more file.
        if self.asked.swap(false, Ordering::Relaxed) {
            self.dump("SIGUSR1")?;
        }
        if self.tended.elapsed() < SECOND.min(self.last / 8) {
            return Ok(());
        }
        self.tended = Instant::now();
        self.window.tend().map_err(cli_error)?;
        if let Some(why) = self.triggers.fired() {
            self.dump(&why)?;
        }
        self.dumps.again()
    }

    fn dump(&mut self, why: &str) -> Result<(), CliError> {
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = self.dumps.folder.join(file_name(moment));
        let trigger = Some(why.to_owned());
        let about = About { trigger, ..record::about(self.args, &path) };
        let mut bytes = Vec::new();
        match self.window.dump(&about, (&mut bytes, &path)) {
            Ok(dumped) => {
                let cost = self.cost()?;
                let (said, told) = self.report((why, moment, &cost), (&path, bytes.len()), &dumped);
                let events = dumped.recording.written.rows;
                self.dumps.put(Held { path, bytes, events, said, told })
            }
            Err(RecordError::Trace(error)) => {
                output::complain(&format!("warning: nothing is written for {why}: {error}"));
                Ok(())
            }
            Err(error) => Err(cli_error(error)),
        }
    }

    fn cost(&self) -> Result<Cost, CliError> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(Cost {
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            peak: kib.unwrap_or(0) * 1024,
            buffers: self.buffers,
            seen: self.window.instance().tally().map_err(cli_error)?.seen,
        })
    }

    /// A file, for programs and for people.
    fn report(
        &self,
        (why, moment, cost): (&str, Duration, &Cost),
        (path, bytes): (&Path, usize),
        dumped: &Dumped,
    ) -> (Value, String) {
        let Dumped { recording, length, lost, paused, is_short } = dumped;
        let (seconds, asked) = (length.as_secs_f64(), self.last.as_secs_f64());
        let paused = paused.as_secs_f64();
        let mut said = record::described(path, recording, *lost, seconds, bytes as u64);
        let more = json!({
            "unix_time": moment.as_secs_f64(),
            "trigger": why,
            "asked_seconds": asked,
            "paused_seconds": paused,
            "buffers_too_small": is_short,
            "buffer_bytes": cost.buffers,
            "recorder_seconds": cost.seconds,
            "recorder_cpu_seconds": cost.cpu_seconds,
            "recorder_peak_bytes": cost.peak,
            "events_seen": cost.seen,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            said[name] = value.clone();
        }
        let told = record::told(path, recording, *lost, seconds, bytes as u64);
        let mut told = format!("{told}; for {why}");
        if *is_short {
            told += &format!("; the buffers hold no more of {asked:.1} s: a larger --memory does");
        }
        if paused > 0.0 {
            told += &format!("; nothing was recorded for {paused:.1} s while it was read");
        }
        (said, told)
    }
}

/// What asks for a file by itself.
struct Triggers {
    /// Thresholds, and whether each held at the last look.
    on: Vec<(Threshold, bool)>,
    files: Files,
    named: Named,
    before: Option<Counters>,
    last: Duration,
    quiet_until: Instant,
    is_blind: bool,
}

impl Triggers {
    fn new(on: &[Threshold], last: Duration) -> Result<Self, CliError> {
        let proc = Path::new("/proc");
        let mut files = Files::in_directory(proc).unwrap_or_default();
        // Reading it stops allocations of the zone for a moment.
        if !on.iter().any(Threshold::is_of_types) {
            files.states.retain(|path| !path.ends_with("pagetypeinfo"));
        }
        let before = Counters::read(proc);
        let mut named = Named::new("this machine".to_owned(), look(&files)?);
        named.pressure = Some(pressure::of(proc, before.as_ref(), before.as_ref()));
        let mut known = Vec::new();
        for threshold in on {
            let found = threshold.found(&named);
            let found = found.map_err(|why| CliError::new(why).hint("name another figure"))?;
            for what in &found {
                output::complain(&format!("note: {what} already: a file when it holds anew"));
            }
            known.push((threshold.clone(), !found.is_empty()));
        }
        let quiet_until = Instant::now();
        Ok(Self { on: known, files, named, before, last, quiet_until, is_blind: false })
    }

    /// What has begun to hold.
    fn fired(&mut self) -> Option<String> {
        if self.on.is_empty() {
            return None;
        }
        let proc = Path::new("/proc");
        let now = Counters::read(proc);
        self.named.pressure = Some(pressure::of(proc, now.as_ref(), self.before.as_ref()));
        self.before = now;
        if self.on.iter().any(|(threshold, _)| threshold.is_of_zones()) {
            match look(&self.files) {
                Ok(look) => (self.named.look, self.is_blind) = (look, false),
                Err(error) if !self.is_blind => {
                    output::complain(&format!(
                        "warning: thresholds of zones are not seen: {error}"
                    ));
                    self.is_blind = true;
                }
                Err(_) => {}
            }
        }
        self.begun(Instant::now())
    }

    fn begun(&mut self, now: Instant) -> Option<String> {
        let is_quiet = now < self.quiet_until;
        let mut begun = Vec::new();
        for (threshold, held) in &mut self.on {
            let found = threshold.found(&self.named).unwrap_or_default();
            if !found.is_empty() && !*held && !is_quiet {
                begun.extend_from_slice(&found);
                *held = true;
            }
            *held &= !found.is_empty();
        }
        if begun.is_empty() {
            return None;
        }
        self.quiet_until = now + self.last;
        Some(begun.join("; "))
    }
}

fn look(files: &Files) -> Result<Look, StateError> {
    let page_size = rustix::param::page_size() as u64;
    Ok(Look::new(&Machine::new(Parts::read(files)?, Some(page_size))?))
}

/// A recording that is to become a file.
struct Held {
    path: PathBuf,
    bytes: Vec<u8>,
    events: u64,
    said: Value,
    told: String,
}

/// The files.
struct Dumps {
    folder: PathBuf,
    keep: usize,
    json: bool,
    /// What could not be written yet.
    held: Option<Held>,
    tried: Instant,
}

impl Dumps {
    fn put(&mut self, new: Held) -> Result<(), CliError> {
        if let Some(old) = self.held.take()
            && let Err(error) = self.write(&old)
        {
            output::complain(&format!(
                "warning: {} is given up with {}: {}",
                old.path.display(),
                counted(old.events, "event"),
                error.message()
            ));
        }
        match self.write(&new) {
            Err(error) if !error.is_broken_pipe() => {
                output::complain(&format!(
                    "warning: {error}\n  it is kept in memory until it can be"
                ));
                (self.held, self.tried) = (Some(new), Instant::now());
                Ok(())
            }
            done => done,
        }
    }

    /// Tries what could not be written, now and then.
    fn again(&mut self) -> Result<(), CliError> {
        if self.tried.elapsed() < AGAIN {
            return Ok(());
        }
        self.tried = Instant::now();
        match self.end() {
            Err(error) if error.is_broken_pipe() => Err(error),
            _ => Ok(()),
        }
    }

    /// Tries what could not be written; it stays where that fails again.
    fn end(&mut self) -> Result<(), CliError> {
        if let Some(held) = &self.held {
            self.write(held)?;
            self.held = None;
        }
        Ok(())
    }

    fn write(&self, held: &Held) -> Result<(), CliError> {
        let failed = |error| Target::TRACE.failed(&held.path, &error);
        let written = Target::TRACE
            .replace_with(&held.path, |out| out.write_all(&held.bytes).map_err(failed))
            // A machine in trouble may not live until it does that by itself.
            .and_then(|()| File::open(&held.path).and_then(|file| file.sync_all()).map_err(failed));
        if let Err(error) = written {
            // A part of it says less than none.
            let _ = fs::remove_file(&held.path);
            return Err(error);
        }
        let removed = self.rotate();
        if !self.json {
            return output::print(&format!("{}\n", held.told));
        }
        let mut said = held.said.clone();
        said["removed"] = removed.into();
        output::print(&format!("{said}\n"))
    }

    /// Removes the oldest files beyond those to be kept, also what a killed recorder left unfinished
    /// among them; which they were.
    fn rotate(&self) -> Vec<String> {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| is_flight(name));
        names.sort_unstable_by(|one, other| other.cmp(one));
        let whole = names.iter().filter(|name| name.ends_with(NAME[1]));
        let Some(oldest) = whole.clone().nth(self.keep - 1).cloned() else { return Vec::new() };
        names.retain(|name| *name < oldest && fs::remove_file(self.folder.join(name)).is_ok());
        names
    }
}

/// Whether a file is one of a flight recorder, whole or not: nothing else is ever removed.
fn is_flight(name: &str) -> bool {
    let form = file_name(Duration::ZERO);
    let name = name.strip_suffix(".unfinished").unwrap_or(name);
    let is_as = |(c, form): (char, char)| c == form || c.is_ascii_digit() && form == '0';
    name.len() == form.len() && name.chars().zip(form.chars()).all(is_as)
}

/// `flight-1798761599.042.parquet`, of seconds since 1970: by name is by time.
fn file_name(since_1970: Duration) -> String {
    let (seconds, millis) = (since_1970.as_secs(), since_1970.subsec_millis());
    format!("{}{seconds:010}.{millis:03}{}", NAME[0], NAME[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::tests::machine;

    fn held(folder: &Path, seconds: u64) -> Held {
        let path = folder.join(file_name(Duration::from_secs(seconds)));
        Held { path, bytes: vec![7; 3], events: 1, said: json!({}), told: String::new() }
    }

    fn dumps(folder: &Path) -> Dumps {
        let (folder, tried) = (folder.to_owned(), Instant::now());
        Dumps { folder, keep: 2, json: true, held: None, tried }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_named_by_the_moment() {
        let name = file_name(Duration::from_millis(1_798_761_599_042));
        assert_eq!(name, "flight-1798761599.042.parquet");
        assert!(is_flight(&name) && is_flight(&format!("{name}.unfinished")));
        for other in ["flight-mine.parquet", &format!("{name}.gz"), "flight-1798761599-042.parquet"]
        {
            assert!(!is_flight(other), "{other}");
        }
    }

    #[test]
    fn the_oldest_files_go_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mine = ["flight-mine.parquet", "notes"];
        mine.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        fs::write(folder.path().join(file_name(Duration::ZERO) + ".unfinished"), "").unwrap();
        let mut dumps = dumps(folder.path());
        (1..=4).for_each(|second| dumps.put(held(folder.path(), second)).unwrap());
        let kept = [3, 4].map(|second| file_name(Duration::from_secs(second)));
        assert_eq!(names(folder.path()), [&kept[..], &mine.map(str::to_owned)].concat());
        assert_eq!(fs::read(folder.path().join(&kept[1])).unwrap(), [7; 3]);
    }

    #[test]
    fn what_cannot_be_written_is_kept_until_it_can_be() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("gone");
        let mut dumps = dumps(&folder);
        dumps.put(held(&folder, 1)).unwrap();
        assert!(dumps.held.is_some() && dumps.end().is_err());
        // A newer one matters more.
        dumps.put(held(&folder, 2)).unwrap();
        fs::create_dir(&folder).unwrap();
        dumps.again().unwrap();
        assert!(dumps.held.is_some(), "it is not time yet");
        dumps.tried = Instant::now().checked_sub(AGAIN).unwrap();
        dumps.again().unwrap();
        assert!(dumps.held.is_none());
        assert_eq!(names(&folder), [file_name(Duration::from_secs(2))]);
    }

    /// Of a device that is full the name is a link.
    #[test]
    fn a_full_disk_leaves_no_part_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut dumps = dumps(folder.path());
        let held = held(folder.path(), 1);
        std::os::unix::fs::symlink("/dev/full", &held.path).unwrap();
        dumps.put(held).unwrap();
        assert!(dumps.held.is_some());
        assert_eq!(names(folder.path()), [""; 0]);
        dumps.end().unwrap();
        assert_eq!(names(folder.path()), [file_name(SECOND)]);
    }

    #[test]
    fn a_threshold_asks_once_when_it_begins_to_hold() {
        let on = ["compact_fail>0", "free<0.1"].map(|text| (text.parse().unwrap(), false)).to_vec();
        let start = Instant::now();
        let last = Duration::from_secs(10);
        let (quiet_until, files, is_blind) = (start, Files::default(), false);
        let mut triggers =
            Triggers { on, files, named: machine(), before: None, last, quiet_until, is_blind };
        let mut at = |second, rate: f64| {
            triggers.named.pressure = Some([("compact_fail", rate)].into());
            triggers.begun(start + Duration::from_secs(second))
        };
        assert_eq!(at(0, 0.0), None);
        assert_eq!(at(1, 3.0).unwrap(), "compact_fail>0: 3.000 in a \"machine\"");
        assert_eq!(at(2, 3.0), None, "it still holds");
        assert_eq!(at(3, 0.0), None);
        assert_eq!(at(4, 1.0), None, "too soon");
        assert!(at(11, 1.0).is_some(), "and not forgotten");
        assert_eq!(at(30, 1.0), None);
    }
}
