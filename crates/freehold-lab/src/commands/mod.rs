//! The command line of `freehold`.
//!
//! ```text
//!  replay ── replay_args, chosen, machine, passes, zones, notes, rows, sample: traces through engines
//!  record    a trace of the running kernel; flight: its last seconds, when something asks for them
//!  pack      a trace and what lies beside it as one file
//!  engines   the names of designs and switches
//!  built     the commands of other modules, where their features are built in
//! ```
//!
//! Results go to standard output and everything else (progress, warnings, errors) to standard
//! error, so that `--json` is always one valid document. Exit codes: 0 fine; 1 an engine lost
//! frames or failed its checks; 2 wrong usage or input that cannot be read; 130 stopped by the
//! user.

mod built;
pub mod chosen;
#[cfg(feature = "completions")]
mod completions;
mod engines;
mod flight;
pub mod machine;
mod notes;
mod pack;
pub mod passes;
mod record;
pub mod replay;
pub mod replay_args;
mod rows;
mod sample;
mod zones;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::exit_status;
use crate::cli::output::{self, Caught};

const EXAMPLES: &str = "\
Examples:
  freehold                                      the built-in recording, five designs
  freehold trace.parquet                        replay a trace of your own
  freehold replay --json *.parquet              several traces, as JSON
  freehold replay -e vanilla -e pcp-buddy-fixed,-merge trace.txt.gz
                                                two engines, one without a change
  freehold replay --memory 1G trace.parquet     on a machine short of memory
  freehold bench --quick                        what allocations and frees cost
  freehold contiguity                           what engines do to contiguity
  freehold report -o report.html *.json         one page of replays
  freehold compare --worse 2 main.json now.json exit code 1 if a figure is over 2 % worse
  freehold simulate -w kernel-build-like --cpus 1,32,1024
                                                on simulated machines
  freehold look                                 how fragmented memory is
  freehold engines                              what can be named after --engine

A trace is Parquet, or the text of tracefs, `trace-cmd report`, `perf script` or bpftrace \
(docs/recording.md has the \
script), plain or compressed with gzip or zstd; '-' reads standard input. To record one, as root:
  freehold record -o trace.parquet -- make

A build without features has replay, record, pack and engines; the others say how to install them.

Exit codes: 0 fine; 1 an engine lost frames or failed its checks, compare --worse found \
something worse, or a threshold of look --fail-if holds; 2 wrong usage \
or unreadable input; 130 stopped by Ctrl-C.";

/// Replays traces of a kernel's page allocator through several designs, and says which is best at
/// what, and whether the zone lock is a problem.
#[derive(Parser, Debug)]
#[command(
    name = "freehold", version, after_help = EXAMPLES, max_term_width = 120,
    override_usage = "freehold [TRACE]...\n       freehold <COMMAND> [OPTIONS] [ARGUMENTS]..."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Replay traces through engines and print a comparison.
    Replay(Box<replay_args::ReplayArgs>),
    /// Record a trace of the running kernel (root).
    Record(record::RecordArgs),
    /// Put a trace and the files beside it into one file.
    Pack(pack::PackArgs),
    /// List the engines and switches that can be named.
    Engines(engines::EnginesArgs),
    /// Show how fragmented a machine's memory is, without a trace.
    Look(built::LookArgs),
    /// Measure what allocations and frees cost, engines side by side.
    Bench(built::BenchArgs),
    /// Count what engines do to contiguity, over machines of many shapes.
    Contiguity(built::ContiguityArgs),
    /// Simulate engines on 1 to 1,024 CPUs.
    Simulate(built::SimulateArgs),
    /// Make one HTML page of what replays printed with --json.
    Report(built::ReportArgs),
    /// Compare two results that one of the commands printed with --json.
    Compare(built::CompareArgs),
    /// Print completions for a shell, or write them and the manual pages.
    Completions(built::CompletionsArgs),
}

/// The other ways to replay.
#[derive(Subcommand, Clone, PartialEq, Debug)]
pub(crate) enum Mode {
    /// Compare refills and drains of the recording kernel's engine (or those given) with what that
    /// kernel itself counted in the trace.
    Fidelity(Box<built::FidelityArgs>),
}

/// The definition of the command line: what completions and manual pages are made from.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with these arguments, the first of which is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(status(arguments))
}

/// As [`main`]: the exit code as a number.
pub fn status(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    run(&Cli::parse_from(with_replay(arguments.into_iter().collect())))
}

/// The command as a function of another program: its exit code, and what it printed.
///
/// # Errors
///
/// Where the arguments are wrong.
pub fn called(arguments: Vec<OsString>) -> Result<(u8, Caught), clap::Error> {
    let words = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let cli = Cli::try_parse_from(with_replay(arguments))?;
    Ok(output::caught(words, || run(&cli)))
}

fn run(cli: &Cli) -> u8 {
    exit_status(match &cli.command {
        None => replay::run(&replay_args::ReplayArgs::default()),
        Some(Command::Replay(args)) => match &args.mode {
            Some(Mode::Fidelity(args)) => built::fidelity(args),
            None => replay::run(args),
        },
        Some(Command::Record(args)) => {
            args.flight.last.map_or_else(|| record::run(args), |last| flight::run(args, last))
        }
        Some(Command::Pack(args)) => pack::run(args),
        Some(Command::Engines(args)) => engines::run(args),
        Some(Command::Look(args)) => built::look(args),
        Some(Command::Bench(args)) => built::bench(args),
        Some(Command::Contiguity(args)) => built::contiguity(args),
        Some(Command::Simulate(args)) => built::simulate(args),
        Some(Command::Report(args)) => built::report(args),
        Some(Command::Compare(args)) => built::compare(args),
        Some(Command::Completions(args)) => built::completions(args),
    })
}

/// The command line with `replay` put in where the first argument is a file, `freehold
/// trace.parquet`, or an option that is not the command's own, `freehold --json`. What is neither a
/// command nor looks like a file is left for clap to complain about.
fn with_replay(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_of_replay = |argument: &OsString| {
        let text = argument.to_string_lossy();
        if text.starts_with('-') && text != "-" {
            return !["-h", "--help", "-V", "--version"].contains(&&*text);
        }
        let known = command().find_subcommand(&*text).is_some() || text == "help";
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
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn no_subcommand_and_an_empty_replay_are_the_same() {
        let cli = Cli::parse_from(["freehold", "replay"]);
        let Some(Command::Replay(args)) = cli.command else { panic!("replay is a subcommand") };
        assert_eq!(*args, replay_args::ReplayArgs::default());
    }

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

    /// The command lines of a text of shell, word by word; what is quoted is one word.
    fn commands_in(text: &str) -> Vec<Vec<OsString>> {
        let (mut all, mut words, mut word, mut quote) =
            (Vec::new(), Vec::new(), String::new(), None);
        for letter in text.replace("\\\n", " ").chars().chain(['\n']) {
            match (quote, letter) {
                (Some(open), _) if open == letter => quote = None,
                (Some(_), _) => word.push(letter),
                (None, '\'' | '"') => quote = Some(letter),
                (None, ' ' | '\n' | '|' | '#' | ';' | '&' | '>' | '<') => {
                    words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                    if letter != ' ' {
                        all.push(std::mem::take(&mut words));
                    }
                }
                (None, _) => word.push(letter),
            }
        }
        let own = |words: Vec<String>| {
            let ours = |word: &String| word == "freehold" || word.ends_with("/freehold");
            let at = words.iter().position(ours)?;
            let is_called = words[..at].iter().all(|word| word == "sudo" || word.contains('='));
            is_called.then(|| words[at..].iter().map(OsString::from).collect())
        };
        all.into_iter().filter_map(own).collect()
    }

    /// What documents tell people to type is taken.
    #[test]
    fn every_command_line_of_the_documents_is_taken() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let (mut count, mut refused) = (0, Vec::new());
        for folder in ["", "docs", "docs/threads", "docs/decisions", "os", "proofs"] {
            for entry in std::fs::read_dir(format!("{root}/{folder}")).expect(folder) {
                let path = entry.unwrap().path();
                if path.extension().is_none_or(|ending| ending != "md") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for code in text.split('`').skip(1).step_by(2) {
                    let block = code.strip_prefix("sh\n");
                    let line = code.replace('\n', " ");
                    for words in commands_in(block.unwrap_or(&line)) {
                        count += 1;
                        let taken = Cli::try_parse_from(with_replay(words.clone()));
                        let wrong = taken.err().filter(clap::Error::use_stderr);
                        // In a sentence a command may be named without all that it needs.
                        let counts = |wrong: &clap::Error| {
                            block.is_some() || wrong.kind() == ErrorKind::UnknownArgument
                        };
                        let wrong = wrong.filter(counts);
                        refused.extend(wrong.map(|wrong| format!("{path:?}: {words:?}: {wrong}")));
                    }
                }
            }
        }
        assert!(count > 50 && refused.is_empty(), "{count} command lines; {}", refused.join("\n"));
    }
}
