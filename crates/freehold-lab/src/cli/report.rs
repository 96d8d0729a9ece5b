//! `freehold report`: what the other commands found, as one HTML file.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::{Outcome, output};
use crate::html::{self, HtmlError, Source};

const EXAMPLES: &str = "\
Examples:
  freehold replay --json --memory-map 48 > replay.json
  freehold bench --quick --json > bench.json
  freehold bench fragmentation --json > grid.json
  freehold report -o report.html replay.json bench.json grid.json
  freehold replay --json trace.parquet | freehold report -o trace.html -
  freehold report -o - *.json > report.html
  freehold replay --html report.html trace.parquet      the same in one step

The file opens from disk in any browser of 2022 or later, on a laptop or a phone, light or dark, with a keyboard; it
fetches nothing. The same input gives the same file, byte for byte. It holds the JSON it was made from, at most 24 MiB of
it: above that every second moment of the pictures of memory is left out until it fits, and the page says so.

Exit codes: 0 fine; 2 wrong usage, or input that is not the JSON of replay, bench or simulate.";

/// The file that is written unless told otherwise.
const DEFAULT_OUTPUT: &str = "freehold-report.html";

/// Arguments of `freehold report`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArgs {
    /// What `freehold replay --json`, `bench --json`, `bench fragmentation --json` or `simulate --json` wrote, in any
    /// number and order; '-' is standard input. A file may hold several documents one after the other. Without any, standard input.
    #[arg(value_name = "JSON")]
    inputs: Vec<PathBuf>,

    /// The file to write; '-' is standard output.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    /// The title of the page.
    #[arg(long, value_name = "TEXT", default_value = html::TITLE)]
    title: String,
}

pub(super) fn run(args: &ReportArgs) -> Result<Outcome, CliError> {
    let mut inputs = args.inputs.clone();
    if inputs.is_empty() {
        if io::stdin().is_terminal() {
            return Err(CliError::new("there is nothing to report").hint(
                "name the JSON that replay, bench or simulate wrote: freehold replay --json > replay.json; \
                 freehold report replay.json",
            ));
        }
        inputs.push(PathBuf::from("-"));
    }
    if inputs.iter().filter(|path| is_dash(path)).count() > 1 {
        return Err(CliError::new("standard input can be read only once, but '-' was given several times"));
    }
    if let Some(path) = inputs.iter().find(|path| same_file(path, &args.output)) {
        return Err(CliError::new(format!("the report would overwrite its input {}", path.display()))
            .hint("give -o another file"));
    }
    let mut sources = Vec::new();
    for input in &inputs {
        sources.extend(read(input)?);
    }
    let page = html::render(&sources, &args.title).map_err(failed)?;
    if is_dash(&args.output) {
        output::print(&page)?;
        return Ok(Outcome::Fine);
    }
    fs::write(&args.output, &page).map_err(|error| {
        failed(HtmlError::Write { path: args.output.clone(), error })
            .hint("give -o a file in a folder that exists and may be written to")
    })?;
    output::complain(&format!("wrote {} ({} KiB)", args.output.display(), page.len().div_ceil(1024)));
    Ok(Outcome::Fine)
}

/// Whether a report can be written to `path`, asked before the work that it is to be of. Leaves what is there as it is.
pub(super) fn check_output(path: &Path, inputs: &[PathBuf], also: Option<&Path>) -> Result<(), CliError> {
    if let Some(taken) = inputs.iter().map(PathBuf::as_path).chain(also).find(|other| same_file(other, path)) {
        return Err(
            CliError::new(format!("the report would overwrite {}", taken.display())).hint("give --html another file")
        );
    }
    let existed = path.exists();
    OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(|error| {
        failed(HtmlError::Write { path: path.to_owned(), error })
            .hint("give --html a file in a folder that exists and may be written to")
    })?;
    if !existed {
        // An empty file left over is no reason to fail.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// A page of one document.
pub(super) fn write_one(document: &impl Serialize, path: &Path) -> Result<(), CliError> {
    let value = serde_json::to_value(document).map_err(|error| CliError::new(error.to_string()))?;
    html::write(&[value], path).map_err(failed)
}

/// An error of the library as the user sees it.
pub(super) fn failed(error: HtmlError) -> CliError {
    let hint = match &error {
        HtmlError::TooLarge { .. } => Some("give fewer files, or make a report of each"),
        HtmlError::Unknown { .. } => Some("run the command with --json and give what it prints"),
        _ => None,
    };
    let shown = CliError::new(error.to_string());
    match hint {
        Some(hint) => shown.hint(hint),
        None => shown,
    }
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn same_file(a: &Path, b: &Path) -> bool {
    let existing = fs::canonicalize(a).ok().zip(fs::canonicalize(b).ok());
    !is_dash(a) && !is_dash(b) && (a == b || existing.is_some_and(|(a, b)| a == b))
}

/// The documents in a file: one, or several one after the other.
fn read(path: &Path) -> Result<Vec<Source>, CliError> {
    let shown = if is_dash(path) { "standard input".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read =
        if is_dash(path) { io::stdin().lock().read_to_end(&mut bytes).map(drop) } else { slurp(path, &mut bytes) };
    read.map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(CliError::new(format!("{shown} is empty"))
            .hint("a command that fails prints no JSON; what was wrong it said on standard error"));
    }
    // A byte-order mark, as some editors and shells put before text.
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let name = path.file_name().map_or_else(|| shown.clone(), |name| name.to_string_lossy().into_owned());
    let name = if is_dash(path) { shown.clone() } else { name };
    let documents: Result<Vec<serde_json::Value>, _> = serde_json::Deserializer::from_slice(text).into_iter().collect();
    let documents = documents.map_err(|error| not_json(path, &shown, text, &error))?;
    let several = documents.len() > 1;
    let named = documents.into_iter().enumerate();
    Ok(named
        .map(|(n, value)| Source {
            name: if several { format!("{name}, document {}", n + 1) } else { name.clone() },
            value,
        })
        .collect())
}

fn slurp(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    *bytes = fs::read(path)?;
    Ok(())
}

fn not_json(path: &Path, shown: &str, text: &[u8], error: &serde_json::Error) -> CliError {
    let problem = CliError::new(format!("{shown} is not JSON: {error}"));
    let is_html = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("html"));
    if text.starts_with(b"PAR1") {
        problem.hint(format!("this is Parquet: freehold replay --json {shown} | freehold report -"))
    } else if is_html {
        problem.hint(format!("to name the file to write, put -o before it: freehold report -o {shown} ..."))
    } else {
        problem.hint("give what replay, bench or simulate print with --json; without it they print tables for people")
    }
}
