//! `freehold engines`: what can be named after `--engine`.

use clap::Args;
use comfy_table::Cell;

use super::error::CliError;
use super::{Outcome, output};
use crate::engines::{self, Entry};
use crate::report::table::{Style, new_table, trim_lines};

const EXAMPLES: &str = "\
Examples:
  freehold engines
  freehold engines --json
  freehold replay --engine pcp-buddy-fixed,-merge   a preset with one change switched off";

/// Arguments of `freehold engines`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct EnginesArgs {
    /// Print JSON: {"presets": [...], "switches": [...]}, each with name, summary and source.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EnginesArgs) -> Result<Outcome, CliError> {
    let catalogue = engines::catalogue();
    if args.json {
        output::print_json(&catalogue)?;
    } else {
        let style = output::style();
        output::print(&format!(
            "{}\n\n{}\n\nName one with --engine; switch single changes with commas: --engine pcp-buddy-fixed,-merge\n",
            table("preset", &catalogue.presets, style),
            table("switch", &catalogue.switches, style),
        ))?;
    }
    Ok(Outcome::Fine)
}

fn table(what: &str, entries: &[Entry], style: Style) -> String {
    let mut table = new_table(style);
    table.set_header([what, "what it is", "from"]);
    for entry in entries {
        table.add_row([Cell::new(&entry.name), Cell::new(&entry.summary), Cell::new(&entry.source)]);
    }
    trim_lines(&table.to_string())
}
