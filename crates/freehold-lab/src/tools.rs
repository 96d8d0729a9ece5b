//! The commands that are programs of their own, started as cargo starts its subcommands: from beside
//! this program, or from the search path.
//!
//! ```text
//!  freehold bench ...        freehold-bench ...              freehold report ...    freehold-report ...
//!  freehold calibrate ...    freehold-bench calibrate ...    freehold compare ...   freehold-report compare ...
//!  freehold simulate ...     freehold-simulate ...           freehold soak ...      freehold-soak ...
//!  freehold look ...         freehold-look ...
//!  freehold replay threads ...                                 freehold-replay-modes threads ...
//!  freehold replay fidelity ...                                freehold-replay-modes fidelity ...
//! ```
//!
//! So a first build makes what a replay needs and nothing else. A program that is not there is
//! named with the lines that install and run it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::{Args, CommandFactory, Subcommand};
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::output;

use super::replay_args::Mode;

#[derive(Subcommand, Debug)]
pub(crate) enum Tool {
    /// Show how fragmented a machine's memory is, without a trace [freehold-look].
    #[command(disable_help_flag = true)]
    Look(Passed),
    /// Measure what allocations and frees cost, engines side by side [freehold-bench].
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Measure the constants of the simulation's cost model on this machine [freehold-bench].
    #[command(disable_help_flag = true)]
    Calibrate(Passed),
    /// Simulate engines on 1 to 1,024 CPUs [freehold-simulate].
    #[command(disable_help_flag = true)]
    Simulate(Passed),
    /// Make one HTML page of what other commands printed with --json [freehold-report].
    #[command(disable_help_flag = true)]
    Report(Passed),
    /// Compare two results that one of the commands printed with --json [freehold-report].
    #[command(disable_help_flag = true)]
    Compare(Passed),
    /// Stress the allocator on many threads, and check every frame [freehold-soak].
    #[command(disable_help_flag = true)]
    Soak(Passed),
}

/// What the program gets, as it is.
#[derive(Args, Clone, PartialEq, Debug)]
pub(crate) struct Passed {
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        help = "see the command's own --help"
    )]
    arguments: Vec<OsString>,
}

impl Tool {
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Look(passed) => passed.to("freehold-look", None),
            Self::Bench(passed) => passed.to("freehold-bench", None),
            Self::Calibrate(passed) => passed.to("freehold-bench", Some("calibrate")),
            Self::Simulate(passed) => passed.to("freehold-simulate", None),
            Self::Report(passed) => passed.to("freehold-report", None),
            Self::Compare(passed) => passed.to("freehold-report", Some("compare")),
            Self::Soak(passed) => passed.to("freehold-soak", None),
        }
    }
}

impl Mode {
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Threads(passed) => passed.to("freehold-replay-modes", Some("threads")),
            Self::Fidelity(passed) => passed.to("freehold-replay-modes", Some("fidelity")),
        }
    }
}

impl Passed {
    /// Runs the program, or this subcommand of it, in the place of this one; its exit code is this
    /// one's.
    fn to(&self, program: &str, subcommand: Option<&str>) -> ExitCode {
        let arguments: Vec<&OsStr> = subcommand
            .map(OsStr::new)
            .into_iter()
            .chain(self.arguments.iter().map(OsString::as_os_str))
            .collect();
        let beside = env::current_exe()
            .ok()
            .map(|own| own.with_file_name(format!("{program}{}", env::consts::EXE_SUFFIX)))
            .filter(|path| path.is_file());
        // A bare name is looked for in the search path.
        let path = beside.as_deref().unwrap_or(Path::new(program));
        // Replaces this process: signals and the terminal are the program's own. Whoever goes on here
        // could not be replaced.
        let error = Command::new(path).args(&arguments).exec();
        output::error(failed(program, &arguments, path, &error));
        ExitCode::from(2)
    }
}

fn failed(program: &str, arguments: &[&OsStr], path: &Path, error: &io::Error) -> CliError {
    if error.kind() != io::ErrorKind::NotFound {
        return CliError::new(format!("cannot start {}: {error}", path.display()));
    }
    // Times are taken of programs that are optimised throughout, which `release` is not.
    let measures = program == "freehold-bench";
    let (run, install) = if measures {
        ("cargo run --profile measure", " --profile measure")
    } else {
        ("cargo run --release", "")
    };
    // The soak's folder is a workspace of its own.
    let (folder, mut line) = match program {
        "freehold-soak" => ("proofs/torture".to_owned(), format!("cd proofs/torture && {run} --")),
        _ => (format!("crates/{program}"), format!("{run} -p {program} --")),
    };
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(&argument.to_string_lossy()));
    }
    let problem =
        format!("{program} is a program of its own, which is neither beside freehold nor in PATH");
    CliError::new(problem).hint(format!(
        "in Freehold's sources, to install it: cargo install --path {folder}{install}\n  \
         or to run it from there: {line}"
    ))
}

/// As a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=+:%@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// The command line with `replay` put in where the first argument is a file, `freehold
/// trace.parquet`, or an option that is not the command's own, `freehold --json`. What is neither a
/// command nor looks like a file is left for clap to complain about.
pub(crate) fn with_replay(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_of_replay = |argument: &OsString| {
        let text = argument.to_string_lossy();
        if text.starts_with('-') && text != "-" {
            return !["-h", "--help", "-V", "--version"].contains(&&*text);
        }
        let known = super::Cli::command().find_subcommand(&*text).is_some() || text == "help";
        let path = Path::new(argument);
        !known && (text == "-" || path.extension().is_some() || path.exists())
    };
    if arguments.get(1).is_some_and(is_of_replay) {
        arguments.insert(1, OsString::from("replay"));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(arguments: &[&str]) -> Vec<String> {
        let all = [&["freehold"], arguments].concat();
        let all = with_replay(all.into_iter().map(OsString::from).collect());
        all.into_iter().skip(1).map(|argument| argument.into_string().unwrap()).collect()
    }

    #[test]
    fn a_bare_file_or_option_is_replayed_and_nothing_else() {
        assert_eq!(replayed(&["a.parquet", "--warm"]), ["replay", "a.parquet", "--warm"]);
        assert_eq!(replayed(&["-"]), ["replay", "-"]);
        assert_eq!(replayed(&["--json", "a.parquet"]), ["replay", "--json", "a.parquet"]);
        assert_eq!(replayed(&["src"]), ["replay", "src"], "it is there");
        for other in ["replay", "bench", "help", "relpay", "--version", "-h"] {
            assert_eq!(replayed(&[other]), [other]);
        }
        assert!(replayed(&[]).is_empty());
    }

    #[test]
    fn the_line_to_run_is_one_that_a_shell_takes() {
        let arguments = ["--cpus", "1,2", "a b", "it's", ""].map(OsStr::new);
        let error =
            failed("freehold-x", &arguments, Path::new("x"), &io::ErrorKind::NotFound.into());
        let line = r"cargo run --release -p freehold-x -- --cpus 1,2 'a b' 'it'\''s' ''";
        assert!(error.to_string().contains(line), "{error}");
    }
}
