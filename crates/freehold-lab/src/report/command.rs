//! `freehold report`: what replays found, as one HTML file.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{fleet, fleet_page, page};
use crate::cli::error::CliError;
use crate::cli::target::{Target, folder, is_dash};
use crate::cli::{Outcome, output};
use crate::results::{self, Kind, bytes, rows, split};

const EXAMPLES: &str = "\
Examples:
  freehold replay --json > replay.json; freehold report -o report.html replay.json
  freehold replay --json trace.parquet | freehold report -o trace.html -
  freehold report -o - *.json > report.html
  freehold report -o fleet.html rows/*.parquet  rows of many machines

The file opens from disk in any browser, on a laptop or a phone, light or dark, or printed. It has \
no script and fetches nothing. The same input gives the same file, byte for byte. The JSON that it \
was made from stands at its end.

Exit codes: 0 fine; 2 wrong usage, or input that no replay has written.";

/// The file that is written unless told otherwise.
const DEFAULT_OUTPUT: &str = "freehold-report.html";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// What `freehold replay --json` wrote, in any number and order; '-' is standard input. A file
    /// may hold several documents one after the other. Or tables of many machines, as `freehold
    /// replay --format jsonl` and `parquet` write them. Without any, standard input.
    #[arg(value_name = "JSON")]
    inputs: Vec<PathBuf>,

    /// The file to write; '-' is standard output.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    /// The title of the page.
    #[arg(long, value_name = "TEXT", default_value = "Freehold report")]
    title: String,
}

pub(crate) fn run(args: &ReportArgs) -> Result<Outcome, CliError> {
    let mut inputs = args.inputs.clone();
    if inputs.is_empty() {
        if io::stdin().is_terminal() {
            return Err(CliError::new("there is nothing to report").hint(
                "name the JSON that replay wrote: freehold replay --json > replay.json; \
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
    let (mut documents, mut tables) = (Vec::new(), Vec::new());
    for input in &inputs {
        let (shown, bytes) = bytes(input)?;
        if let Some(table) = rows::table(input, (&shown, &bytes), &fleet::columns())? {
            tables.push(table);
            continue;
        }
        for source in results::documents(input, &shown, &bytes)? {
            documents.extend(split(&source)?);
        }
    }
    if let Some(other) = documents.iter().find(|document| document.kind != Kind::Replay) {
        let command = other.kind.command();
        let problem = format!("{} is what freehold {command} printed", other.source);
        let hint = format!("a page is made of replays; {command} prints its table without --json");
        return Err(CliError::new(problem).hint(hint));
    }
    let page = match (&tables[..], &documents[..]) {
        ([], _) => page::render(&documents, &args.title),
        (_, []) => fleet_page::render(&tables, &args.title)?,
        _ => {
            let problem = "a page is of documents or of tables, and both were given";
            return Err(CliError::new(problem).hint("make a page of each"));
        }
    };
    Target::PAGE.replace(&args.output, &page)?;
    if is_dash(&args.output) {
        return Ok(Outcome::Fine);
    }
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
