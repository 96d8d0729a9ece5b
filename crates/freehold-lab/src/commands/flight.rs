//! `freehold record --last`: a flight recorder, which writes the last seconds when something asks
//! for them: a signal, a threshold of `look`, or the end of a command.
//!
//! ```text
//!  Window (kernel's buffers) ──> Parquet, a file by the moment; the oldest go
//!     ^ SIGUSR1, Triggers, the end
//! ```

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use freehold_trace::StateError;
use freehold_trace::machine::{Files, Look, Machine, Parts};
use freehold_trace::record::{About, Dumped, Window};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use signal_hook::consts::SIGUSR1;

use super::record::{self, Ended, RecordArgs, Told, cli_error, size};
use crate::cli::error::CliError;
use crate::cli::target::{Target, is_dash};
use crate::cli::{Outcome, output, stop};
use crate::look::Named;
use crate::look::pressure::{self, Counters};
use crate::look::threshold::Threshold;
use crate::tables::number::counted;

/// How often thresholds are looked at.
const SECOND: Duration = Duration::from_secs(1);
/// What the names of files begin and end with.
const NAME: [&str; 2] = ["flight-", ".parquet"];

pub(super) fn run(args: &RecordArgs, last: Duration) -> Result<Outcome, CliError> {
    let tracefs = record::find(args)?;
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
    let window = Window::new(&tracefs, args.flight.memory, last).map_err(cli_error)?;
    record::say_of_ticks(window.instance());
    let buffers = window.instance().total_kib().map_err(cli_error)? * 1024;
    output::complain(&format!(
        "keeping the last {:.1} s in buffers of {} over all CPUs; kill -USR1 {} writes it into {}",
        last.as_secs_f64(),
        size(buffers as f64),
        std::process::id(),
        folder.display()
    ));
    let begun = Instant::now();
    let mut recorder =
        Recorder { args, last, window, buffers, triggers, asked, begun, tended: begun };
    let ended = record::wait(args, &stop, &mut || recorder.turn());
    if matches!(ended, Ok(Ended::Itself)) {
        recorder.dump("the end")?;
    }
    output::complain(&recorder.cost()?.told());
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
    buffers: u64,
    triggers: Triggers,
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
        self.triggers.fired().map_or(Ok(()), |why| self.dump(&why))
    }

    /// Writes a file. Where it cannot be written, that is said, and recording goes on.
    fn dump(&mut self, why: &str) -> Result<(), CliError> {
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = self.args.output.join(file_name(moment));
        let trigger = Some(why.to_owned());
        let about = About { trigger, ..record::about(self.args, &path) };
        let written = Target::TRACE.replace_with(&path, |output| {
            self.window.dump(&about, (output, &path)).map_err(cli_error)
        });
        // A machine in trouble may not live until it does that by itself.
        let synced = written.and_then(|dumped| {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map(|()| dumped).map_err(|error| Target::TRACE.failed(&path, &error))
        });
        match synced {
            Ok(dumped) => {
                let removed = rotate(&self.args.output, self.args.flight.keep.into());
                self.report((why, moment, &removed), &path, &dumped)
            }
            Err(error) => {
                output::complain(&format!("warning: nothing is written for {why}: {error}"));
                Ok(())
            }
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

    fn report(
        &self,
        (why, moment, removed): (&str, Duration, &[String]),
        path: &Path,
        dumped: &Dumped,
    ) -> Result<(), CliError> {
        let Dumped { recording, length, paused, is_short } = dumped;
        let (seconds, asked) = (length.as_secs_f64(), self.last.as_secs_f64());
        let (paused, cost) = (paused.as_secs_f64(), self.cost()?);
        let told = Told { path, recording, seconds };
        if self.args.shown.printed.json {
            let mut said = told.json();
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
                "removed": removed,
            });
            for (name, value) in more.as_object().into_iter().flatten() {
                said[name] = value.clone();
            }
            return output::print(&format!("{said}\n"));
        }
        let mut told = told.text() + &format!("; for {why}");
        if *is_short {
            told += &format!("; the buffers hold no more of {asked:.1} s: a larger --memory does");
        }
        if paused > 0.0 {
            told += &format!("; nothing was recorded for {paused:.1} s while it was read");
        }
        output::print(&format!("{told}\n"))
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
        Ok(Self { on: known, files, named, before, last, quiet_until })
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
                Ok(look) => self.named.look = look,
                Err(error) => output::complain(&format!("warning: zones are not seen: {error}")),
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

/// Removes the oldest files of a folder beyond those to be kept, also what a killed recorder left
/// unfinished among them; which they were.
fn rotate(folder: &Path, keep: usize) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| is_flight(name));
    names.sort_unstable_by(|one, other| other.cmp(one));
    let whole = names.iter().filter(|name| name.ends_with(NAME[1]));
    let Some(oldest) = whole.clone().nth(keep - 1).cloned() else { return Vec::new() };
    names.retain(|name| *name < oldest && fs::remove_file(folder.join(name)).is_ok());
    names
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

    #[test]
    fn the_oldest_files_go_and_nothing_else() {
        let of = |second: u64| file_name(Duration::from_millis(1_798_761_599_042 + 1000 * second));
        assert_eq!(of(0), "flight-1798761599.042.parquet");
        let folder = tempfile::tempdir().unwrap();
        let mine = ["flight-1798761599-042.parquet", "flight-mine.parquet", &(of(0) + ".gz")];
        let ours = [of(3), of(1), of(0) + ".unfinished", of(2)];
        let all = mine.into_iter().chain(ours.iter().map(String::as_str));
        all.for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        assert_eq!(rotate(folder.path(), 4), [""; 0], "three are whole");
        assert_eq!(rotate(folder.path(), 2), ours[1..3]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_threshold_asks_once_when_it_begins_to_hold() {
        let on = ["compact_fail>0", "free<0.1"].map(|text| (text.parse().unwrap(), false)).to_vec();
        let start = Instant::now();
        let last = Duration::from_secs(10);
        let (quiet_until, files) = (start, Files::default());
        let mut triggers =
            Triggers { on, files, named: machine(), before: None, last, quiet_until };
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
