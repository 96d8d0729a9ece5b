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
use freehold_trace::machine::{Files, Look, Machine, Parts};
use freehold_trace::record::{About, Dumped, RecordError, Tracefs, Window};
use freehold_trace::{Packed, Source, StateError};
use serde_json::json;
use signal_hook::consts::SIGUSR1;

use super::record::{Ended, RecordArgs, cli_error, parse_buffer, parse_time, size, wait};
use crate::cli::error::CliError;
use crate::cli::provenance::{PROGRAM, command_line};
use crate::cli::size::whole;
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output, stop};
use crate::look::Named;
use crate::look::pressure::{self, Counters};
use crate::look::threshold::Threshold;
use crate::tables::number::counted;
use crate::tables::thousands as count;

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
    let mut window = Window::new(tracefs, args.flight.memory, last).map_err(cli_error)?;
    super::record::say_of_ticks(window.instance());
    window.start().map_err(cli_error)?;
    let buffers = size(window.buffers().map_err(cli_error)? as f64);
    let pid = std::process::id();
    output::complain(&format!(
        "keeping the last {:.1} s in buffers of {buffers} over all CPUs; kill -USR1 {pid} writes it \
         into {}",
        last.as_secs_f64(),
        folder.display()
    ));
    let dumps = Dumps {
        folder: folder.clone(),
        keep: args.flight.keep.into(),
        json: args.shown.printed.json,
        held: None,
        tried: Instant::now(),
    };
    let tended = Instant::now();
    let mut recorder = Recorder { args, last, window, triggers, dumps, asked, tended };
    let ended = wait(args, &stop, &mut || recorder.turn())?;
    if ended == Ended::Itself {
        recorder.dump("the end")?;
    }
    recorder.dumps.end()?;
    Ok(if ended == Ended::Stopped { Outcome::Interrupted } else { Outcome::Fine })
}

struct Recorder<'a> {
    args: &'a RecordArgs,
    last: Duration,
    window: Window,
    triggers: Triggers,
    dumps: Dumps,
    asked: Arc<AtomicBool>,
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
        let about = About {
            name: Source::Path(path.clone()).name(),
            command: (!self.args.command.is_empty()).then(|| self.args.command.join(" ")),
            seconds: 0.0,
            page_size: rustix::param::page_size() as u64,
            command_line: command_line(),
            program: PROGRAM.to_owned(),
            files: Packed::default(),
            trigger: Some(why.to_owned()),
        };
        let mut bytes = Vec::new();
        match self.window.dump(&about, (&mut bytes, &path)) {
            Ok(dumped) => {
                let asked = self.last;
                let why = why.to_owned();
                self.dumps.put(Held { path, bytes, why, moment, asked, dumped })
            }
            Err(RecordError::Trace(error)) => {
                output::complain(&format!("warning: nothing is written for {why}: {error}"));
                Ok(())
            }
            Err(error) => Err(cli_error(error)),
        }
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
    why: String,
    /// Since 1970.
    moment: Duration,
    /// The time that should be in it.
    asked: Duration,
    dumped: Dumped,
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
                counted(old.dumped.recording.written.rows, "event"),
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
        report(held, &removed, self.json)
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
    let moment = name.strip_suffix(".unfinished").unwrap_or(name).strip_prefix(NAME[0]);
    let form = file_name(Duration::ZERO);
    let of_form =
        |(c, as_in): (char, char)| c == as_in || c.is_ascii_digit() && as_in.is_ascii_digit();
    moment.is_some_and(|moment| {
        let form = &form[NAME[0].len()..];
        moment.len() == form.len() && moment.chars().zip(form.chars()).all(of_form)
    })
}

/// `flight-20261128T215118.123Z.parquet`, of a time since 1970: by name is by time.
fn file_name(since_1970: Duration) -> String {
    let (seconds, millis) = (since_1970.as_secs(), since_1970.subsec_millis());
    let (mut year, mut month, mut day) = (1970, 1, seconds / 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        (month, day) = (month + 1, day - days);
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let date = format!("{year:04}{month:02}{:02}", day + 1);
    let [begin, end] = NAME;
    format!("{begin}{date}T{hour:02}{minute:02}{second:02}.{millis:03}Z{end}")
}

fn report(held: &Held, removed: &[String], json: bool) -> Result<(), CliError> {
    let Dumped { recording, length, lost, paused, first_unread, is_short } = &held.dumped;
    let path = held.path.display();
    let (seconds, asked) = (length.as_secs_f64(), held.asked.as_secs_f64());
    if let Some(why) = first_unread {
        output::complain(&format!("warning: {path}: lines of the kernel's were not read: {why}"));
    }
    if json {
        let line = json!({
            "trace": path.to_string(),
            "unix_time": held.moment.as_secs_f64(),
            "trigger": held.why,
            "events": recording.written.rows,
            "event_counts": recording.written.event_counts,
            "lost_events": lost,
            "seconds": seconds,
            "asked_seconds": asked,
            "paused_seconds": paused.as_secs_f64(),
            "buffers_too_small": is_short,
            "bytes": held.bytes.len(),
            "files": recording.files.names().collect::<Vec<_>>(),
            "removed": removed,
        });
        return output::print(&format!("{line}\n"));
    }
    let mut more = String::new();
    if *is_short {
        more += &format!("; the buffers hold no more of {asked:.1} s: a larger --memory does");
    }
    if !paused.is_zero() {
        more +=
            &format!("; nothing was recorded for {:.1} s while it was read", paused.as_secs_f64());
    }
    output::print(&format!(
        "{path}: {} in {seconds:.1} s, {} lost, {}; for {}{more}\n",
        counted(recording.written.rows, "event"),
        count(*lost),
        size(held.bytes.len() as f64),
        held.why,
    ))
}

#[cfg(test)]
mod tests {
    use freehold_trace::record::Recording;

    use super::*;
    use crate::look::tests::machine;

    fn held(folder: &Path, seconds: u64) -> Held {
        let recording = Recording { written: Default::default(), files: Packed::default() };
        let (length, paused, first_unread) = (Duration::ZERO, Duration::ZERO, None);
        let moment = Duration::from_secs(seconds);
        Held {
            path: folder.join(file_name(moment)),
            bytes: vec![7; 3],
            why: "a test".to_owned(),
            moment,
            asked: SECOND,
            dumped: Dumped { recording, length, lost: 0, paused, first_unread, is_short: false },
        }
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
        let name = |seconds: u64| file_name(Duration::from_millis(seconds * 1000 + 42));
        assert_eq!(name(0), "flight-19700101T000000.042Z.parquet");
        assert_eq!(name(951_782_399), "flight-20000228T235959.042Z.parquet");
        assert_eq!(name(951_868_800), "flight-20000301T000000.042Z.parquet");
        assert_eq!(name(1_798_761_599), "flight-20261231T235959.042Z.parquet");
        assert_eq!(name(4_107_542_400), "flight-21000301T000000.042Z.parquet");
        assert!(is_flight(&name(951_868_800)) && is_flight(&format!("{}.unfinished", name(0))));
        for other in ["flight-mine.parquet", "flight-20000301T000000.042Z.parquet.gz", "t.parquet"]
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
