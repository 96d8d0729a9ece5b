//! `freehold compare`: two results beside each other.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::given::Printed;
use crate::cli::target::is_dash;
use crate::cli::{Outcome, output};
use crate::compare::output::{Document, table};
use crate::compare::{Verdict, compare};
use crate::results::{read, shown_name};

const EXAMPLES: &str = "\
Examples:
  freehold replay --json > now.json; freehold compare main.json now.json
  freehold compare --worse 2 main.json now.json
                                                exit code 1 for anything worse by more than 2 %
  freehold compare --json main.json now.json | jq '.figures[] | select(.verdict == \"worse\")'

Compared is what both results have: the same trace on the same machine, or the same simulated \
machine, by the same engine, with the same seed. Counts are exact, and the same on every machine. \
The time of an event in a replay is noisy and not judged. Of several seeds the mean is shown. \
What bench prints is not compared: name both engines in one run of it.

--json prints \
{\"command\": \"compare\", \"before\", \"after\", \"tolerance_percent\", \"worse\", \"better\", \"summary\", \
\"figures\": [{\"command\", \"what\", \"engine\", \"metric\", \"better\": \"less\", \"more\" \
or \"neither\", \"before\", \
\"after\", \"percent\", \"seeds\", \"verdict\": \"worse\", \"better\", \"same\" or \"neither\"}], \
\"only_before\", \"only_after\"}.

Exit codes: 0 fine; 1 with --worse, something is worse; 2 wrong usage, or results that cannot be \
compared.";

#[derive(Args, Clone, PartialEq, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// The older result: what `freehold replay`, `contiguity` or `simulate` printed with --json;
    /// '-' is standard input.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The newer result.
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// End with exit code 1 if a figure is worse by more than PERCENT.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    worse: Option<f64>,

    /// Show equal figures, too.
    #[arg(long, conflicts_with = "json")]
    all: bool,

    #[command(flatten)]
    printed: Printed,
}

pub(crate) fn run(args: &CompareArgs) -> Result<Outcome, CliError> {
    if is_dash(&args.before) && is_dash(&args.after) {
        return Err(CliError::new("standard input can be read only once, but '-' was given twice"));
    }
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let names = names(&args.before, &args.after);
    let tolerance = args.worse.unwrap_or(0.0);
    let comparison = compare((&names.0, &before), (&names.1, &after), tolerance)?;
    output::result(&args.printed, &Document::from(&comparison), |style| {
        table(&comparison, args.all, style)
    })?;
    let is_worse = args.worse.is_some() && comparison.count(Verdict::Worse) > 0;
    Ok(if is_worse { Outcome::Worse } else { Outcome::Fine })
}

/// What to call two results: the names of their files, with the folders where those are what
/// differs.
fn names(before: &Path, after: &Path) -> (String, String) {
    let short = (shown_name(before), shown_name(after));
    if short.0 != short.1 {
        return short;
    }
    let long = (before.display().to_string(), after.display().to_string());
    if long.0 == long.1 {
        (format!("{} (before)", short.0), format!("{} (after)", short.1))
    } else {
        long
    }
}

/// `2.5`: by how much a figure may be worse.
fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
    percent
        .ok_or_else(|| format!("'{text}' is not a percentage: a number from 0 up, for example 2.5"))
}
