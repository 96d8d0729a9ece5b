//! `freehold engines`: what can be named after `--engine`.

use crate::cli::given::Printed;
use clap::Args;

use crate::cli::error::CliError;
use crate::cli::{Outcome, output};
use crate::engines::{self, Entry};
use crate::tables::table::{Style, rendered, wrap};

const EXAMPLES: &str = "\
Examples:
  freehold engines
  freehold engines --json
  freehold replay --engine pcp-buddy-fixed,-merge   a preset with one change switched off

--json prints {\"presets\": [...], \"switches\": [...], \"kernels\": [OLDEST, NEWEST]}, presets \
and switches each with name, \
summary and source.";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct EnginesArgs {
    #[command(flatten)]
    printed: Printed,
}

pub(super) fn run(args: &EnginesArgs) -> Result<Outcome, CliError> {
    let catalogue = engines::catalogue();
    let [oldest, newest] = &catalogue.kernels;
    output::result(&args.printed, &catalogue, |style| {
        let notes = [
            format!(
                "Any Linux from {oldest} to {newest} is an engine by its version: --engine 6.12"
            ),
            "--engine NAME takes any of these; after a comma, +SWITCH turns a change on and \
             -SWITCH off: --engine pcp-buddy-fixed,-merge"
                .to_owned(),
        ];
        format!(
            "{}\n\n{}\n\n{}\n",
            table("preset", &catalogue.presets, style),
            table("switch", &catalogue.switches, style),
            notes.map(|note| wrap(&note, style, "  ")).join("\n"),
        )
    })?;
    Ok(Outcome::Fine)
}

fn table(what: &str, entries: &[Entry], style: Style) -> String {
    // A column of its own for the source would be a word or two wide.
    let row = |entry: &Entry| [entry.name.clone(), format!("{}\n{}", entry.summary, entry.source)];
    rendered(style, [what, "what it is, and where it is from"], entries.iter().map(row))
}
