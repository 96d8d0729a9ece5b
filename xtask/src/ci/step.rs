//! A step of `cargo xtask ci`, and how it starts programs.
//!
//! ```text
//!   Step { name, lane, title, minutes, beside, covered_by, run: fn(&Run) }
//!                                                     |
//!   run.cargo("test -p freehold").env(..).must()      a program in a process group of its own:
//!       output -> the terminal (or kept, for steps that run beside), line by line
//!       lines that begin "SKIPPED" -> the summary
//!       too late, or Ctrl-C: the whole group is killed, so that nothing is left running
//! ```

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::build::{root, target};

/// Which job of the workflow a step belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Minutes.
    Quick,
    /// What shows that the allocator is right.
    Proofs,
    /// The workspace, other systems, other machines.
    Worlds,
}

impl Lane {
    #[cfg(test)]
    pub(super) const ALL: [Self; 3] = [Self::Quick, Self::Proofs, Self::Worlds];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Proofs => "proofs",
            Self::Worlds => "worlds",
        }
    }
}

/// One check.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) lane: Lane,
    pub(super) title: &'static str,
    /// After so many it has failed.
    pub(super) minutes: u64,
    /// It builds in a target folder of its own, so that it can run beside the other steps.
    pub(super) beside: bool,
    /// The step that does the same and more.
    pub(super) covered_by: Option<&'static str>,
    /// Does it; says what is wrong.
    pub(super) run: fn(&Run) -> Result<(), String>,
}

impl Step {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(60 * self.minutes)
    }
}

/// The groups of processes that are running now.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn running() -> std::sync::MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Ends a group of processes.
fn kill(group: u32) {
    let group = i32::try_from(group).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // It may be gone already.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// After Ctrl-C, or a signal that ends this program, nothing is left running.
///
/// # Errors
///
/// The handler cannot be set.
pub(super) fn end_children_when_interrupted() -> Result<(), String> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| format!("signals cannot be caught: {error}"))?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            running().iter().copied().for_each(kill);
            std::process::exit(130);
        }
    });
    Ok(())
}

/// A step that is running.
pub(super) struct Run {
    begun: Instant,
    limit: Duration,
    beside: bool,
    /// What was printed, of a step that runs beside.
    kept: Mutex<String>,
    skipped: Mutex<Vec<String>>,
}

impl Run {
    pub(super) fn new(limit: Duration, beside: bool) -> Self {
        let (kept, skipped) = (Mutex::default(), Mutex::default());
        Self { begun: Instant::now(), limit, beside, kept, skipped }
    }

    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn output(&self) -> String {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(super) fn skipped(&self) -> Vec<String> {
        self.skipped.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Says that a part of the step is not done, and why.
    pub(super) fn skip(&self, why: &str) {
        self.line(&format!("SKIPPED: {why}"));
    }

    /// Prints a line, or keeps it.
    pub(super) fn line(&self, line: &str) {
        if let Some(why) = line.trim_start().strip_prefix("SKIPPED") {
            let why = why.trim_start_matches([':', ',', ' ']).to_owned();
            let mut skipped =
                self.skipped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if !skipped.contains(&why) {
                skipped.push(why);
            }
        }
        if self.beside {
            let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.push_str(line);
            kept.push('\n');
        } else {
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
    }

    /// Where this step's builds go.
    pub(super) fn target(&self) -> PathBuf {
        if self.beside { target().join("beside") } else { target() }
    }

    /// A program with words, in the repository's folder.
    pub(super) fn program(&self, program: impl AsRef<OsStr>, words: &str) -> Job<'_> {
        let mut command = Command::new(program);
        command.current_dir(root()).args(words.split_whitespace()).stdin(Stdio::null());
        // Of cargo, which runs this program: they name this program's manifest and toolchain.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let of_cargo = name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST");
            if of_cargo || ["CARGO", "RUSTC", "RUSTDOC"].contains(&name.as_str()) {
                command.env_remove(name);
            }
        }
        command.env("CARGO_TARGET_DIR", self.target()).env("CARGO_TERM_COLOR", "never");
        if std::env::var_os("CARGO_INCREMENTAL").is_none() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        Job { run: self, command }
    }

    /// Cargo.
    pub(super) fn cargo(&self, words: &str) -> Job<'_> {
        self.program("cargo", words)
    }

    /// Cargo in another folder's workspace.
    pub(super) fn cargo_in(&self, folder: &str, words: &str) -> Job<'_> {
        let mut job = self.program("cargo", words);
        job.command.current_dir(root().join(folder));
        job
    }

    /// Runs a program that must end with that status, and print that line where one is given.
    pub(super) fn expect(&self, status: i32, line: &str, job: Job<'_>) -> Result<Heard, String> {
        let told = job.told();
        self.line(&format!("-- {told} (must end with {status})"));
        let (got, output) = job.heard()?;
        if output.lines().any(|line| line.starts_with("SKIPPED")) {
            output.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|l| self.line(l));
            return Ok(Heard::Skipped);
        }
        let has_line = line.split('|').any(|line| output.contains(line));
        if got == status && has_line {
            return Ok(Heard::AsExpected);
        }
        output.lines().for_each(|line| self.line(line));
        Err(format!("{told}: ended with {got}, not {status}, or without \"{line}\""))
    }
}

/// What came of a program that was expected to say something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// It did.
    AsExpected,
    /// This machine cannot run it.
    Skipped,
}

/// A program that is to be run.
pub(super) struct Job<'a> {
    run: &'a Run,
    command: Command,
}

impl Job<'_> {
    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// One more argument, which may have blanks in it.
    pub(super) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(super) fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    /// Builds in this folder of `target`.
    pub(super) fn target(self, folder: &str) -> Self {
        let folder = target().join(folder);
        self.env("CARGO_TARGET_DIR", folder)
    }

    /// The program and its arguments, as one would type them.
    fn told(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }

    /// Runs it, line by line to where the step's output goes.
    ///
    /// # Errors
    ///
    /// It ends with another status than 0, too late, or cannot be run.
    pub(super) fn must(self) -> Result<(), String> {
        let told = self.told();
        let run = self.run;
        match self.listen(|line| run.line(line))? {
            0 => Ok(()),
            status => Err(format!("'{told}' ended with status {status}")),
        }
    }

    /// Runs it and keeps what it says: its status, and both of its outputs.
    pub(super) fn heard(self) -> Result<(i32, String), String> {
        let output = Mutex::new(String::new());
        let status = self.listen(|line| {
            let mut output = output.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            output.push_str(line);
            output.push('\n');
        })?;
        Ok((status, output.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }

    /// Whether it ends with status 0; what it says is nobody's business.
    pub(super) fn works(self) -> bool {
        matches!(self.heard(), Ok((0, _)))
    }

    /// Runs it to its end or the step's, and hands each line on.
    fn listen(mut self, hear: impl Fn(&str) + Sync) -> Result<i32, String> {
        let told = self.told();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child =
            self.command.spawn().map_err(|error| format!("'{told}' cannot be run: {error}"))?;
        let group = child.id();
        running().push(group);
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let status = std::thread::scope(|scope| {
            let hear = &hear;
            let out = scope.spawn(move || lines(out, hear));
            let err = scope.spawn(move || lines(err, hear));
            let status = wait(&mut child, self.run.begun + self.run.limit);
            if status.is_none() {
                kill(group);
                let _ = child.wait();
            }
            // What it has left running would hold its output open.
            kill(group);
            let _ = (out.join(), err.join());
            status
        });
        running().retain(|&other| other != group);
        match status {
            None => Err(format!(
                "'{told}' had not ended after {} minutes, which the step has",
                self.run.limit.as_secs() / 60
            )),
            Some(status) => status.map_err(|error| format!("'{told}': {error}")),
        }
    }
}

/// Hands each line on.
fn lines(output: Option<impl Read>, hear: &(impl Fn(&str) + Sync)) {
    let Some(output) = output else { return };
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        hear(String::from_utf8_lossy(&line).trim_end_matches('\r'));
    }
}

/// Waits until it has ended; `None` if it is too late.
fn wait(child: &mut Child, deadline: Instant) -> Option<Result<i32, String>> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status.code().unwrap_or(128))),
            Ok(None) if Instant::now() >= deadline => return None,
            Ok(None) => std::thread::sleep(pause),
            Err(error) => return Some(Err(error.to_string())),
        }
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(seconds: u64) -> Run {
        Run::new(Duration::from_secs(seconds), true)
    }

    #[test]
    fn what_is_printed_is_kept_and_what_is_skipped_is_known() {
        let run = beside(60);
        let script = "echo one; echo 'SKIPPED: two' >&2; exit 3";
        let error = run.program("sh", "-c").arg(script).must().unwrap_err();
        assert!(error.contains("status 3"), "{error}");
        assert!(run.output().contains("one\n"), "{}", run.output());
        assert_eq!(run.skipped(), ["two"]);
        assert!(run.program("sh", "-c").arg("exit 0").must().is_ok());
        assert!(run.program("no-such-program", "").must().unwrap_err().contains("no-such-program"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_all_it_started() {
        // One that was left would hold the output open, and this test, for ten minutes.
        let run = beside(0);
        let script = "sleep 600 & sleep 600";
        let error = run.program("sh", "-c").arg(script).must().unwrap_err();
        assert!(error.contains("had not ended"), "{error}");
    }

    #[test]
    fn what_is_expected_is_a_status_and_a_line() {
        let run = beside(60);
        let job = |script: &str| run.program("sh", "-c").arg(script);
        assert_eq!(run.expect(1, "lost|late", job("echo late; exit 1")), Ok(Heard::AsExpected));
        assert_eq!(run.expect(1, "lost", job("echo SKIPPED: no")), Ok(Heard::Skipped));
        assert!(run.expect(0, "lost", job("echo late")).is_err());
        assert!(run.expect(0, "late", job("echo late; exit 1")).is_err());
    }
}
