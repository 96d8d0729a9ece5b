//! `freehold report`: what the other commands found, as one HTML file.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;

use super::results::read;
use crate::cli::error::CliError;
use crate::cli::target::{Target, folder, is_dash};
use crate::cli::{Outcome, output};
use crate::report::html::{self, HtmlError};

const EXAMPLES: &str = "\
Examples:
  freehold replay --json --memory-map 48 > replay.json
  freehold bench --quick --json > bench.json
  freehold contiguity --json > grid.json
  freehold report -o report.html replay.json bench.json grid.json
  freehold replay --json trace.parquet | freehold report -o trace.html -
  freehold report -o - *.json > report.html

The file opens from disk in any browser of 2022 or later, on a laptop or a phone, light or dark, \
with a keyboard; it \
fetches nothing. The same input gives the same file, byte for byte. It holds the JSON it was made \
from, at most 24 MiB of \
it: above that every second moment of the pictures of memory is left out until it fits, and the \
page says so.

Exit codes: 0 fine; 2 wrong usage, or input that is not the JSON of one of these commands.";

/// The file that is written unless told otherwise.
const DEFAULT_OUTPUT: &str = "freehold-report.html";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// What `freehold replay --json`, `bench --json`, `simulate --json` or `contiguity
    /// --json` wrote, in any number and order; '-' is standard input. A file
    /// may hold several documents one after the other. Without any, standard input.
    #[arg(value_name = "JSON")]
    inputs: Vec<PathBuf>,

    /// The file to write; '-' is standard output.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    /// The title of the page.
    #[arg(long, value_name = "TEXT", default_value = html::TITLE)]
    title: String,
}

pub(crate) fn run(args: &ReportArgs) -> Result<Outcome, CliError> {
    let mut inputs = args.inputs.clone();
    if inputs.is_empty() {
        if io::stdin().is_terminal() {
            return Err(CliError::new("there is nothing to report").hint(
                "name the JSON that replay, bench or simulate wrote: freehold replay --json > \
                 replay.json; \
                 freehold report replay.json",
            ));
        }
        inputs.push(PathBuf::from("-"));
    }
    if inputs.iter().filter(|path| is_dash(path)).count() > 1 {
        return Err(CliError::new(
            "standard input can be read only once, but '-' was given several times",
        ));
    }
    let page = Some(&args.output).filter(|path| !is_dash(path));
    if let Some(page) = page
        && inputs.iter().any(|input| !is_dash(input) && resolved(input) == resolved(page))
    {
        let problem = format!("the report would overwrite its input: {}", page.display());
        return Err(CliError::new(problem).hint("give -o another file"));
    }
    Target::PAGE.check(page)?;
    let mut sources = Vec::new();
    for input in &inputs {
        sources.extend(read(input)?);
    }
    let page = html::render(&sources, &args.title).map_err(failed)?;
    if is_dash(&args.output) {
        output::print(&page)?;
        return Ok(Outcome::Fine);
    }
    Target::PAGE.write(&args.output, &page)?;
    output::complain(&format!(
        "wrote {} ({} KiB)",
        args.output.display(),
        page.len().div_ceil(1024)
    ));
    Ok(Outcome::Fine)
}

/// What a file is called whatever the way to it, there already or not.
fn resolved(path: &Path) -> PathBuf {
    let beside = |_| Ok(fs::canonicalize(folder(path))?.join(path.file_name().unwrap_or_default()));
    fs::canonicalize(path).or_else(beside).unwrap_or_else(|_: io::Error| path.to_owned())
}

/// An error of the library as the user sees it.
fn failed(error: HtmlError) -> CliError {
    let hint = match &error {
        HtmlError::TooLarge { .. } => "give fewer files, or make a report of each",
        HtmlError::Unknown { .. } => "run the command with --json and give what it prints",
    };
    CliError::from(error).hint(hint)
}
