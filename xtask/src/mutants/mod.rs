//! `cargo xtask mutants`: whether the core's tests notice when one line of it is wrong.
//!
//! ```text
//!  {"name", "file", "old", "new", "why"}    in docs/mutants.json: an ordering weakened, a check, reset or bound left out
//!  {..., "within": TEXT}                    where the file has the old text more than once
//!  {..., "first": "PROGRAM::TEST"}          what probably notices it soonest
//!  {..., "survives": WHY}                   nothing can notice it, and why
//! ```
//!
//! A mutant whose old text the sources do not have exactly once is an error: a list that nobody
//! keeps true says nothing.

mod list;
mod scratch;
mod trial;

use std::process::ExitCode;

use clap::Args;

use crate::build::root;
use list::Mutant;
use scratch::Build;

/// Whether the core's tests notice when one line of it is wrong.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only mutants whose name or file contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// Print what mutants there are, and nothing else.
    #[arg(long)]
    list: bool,

    /// Run these tests and no others: `lib`, `loom`, `conformance`, or a file in the core's
    /// `tests`.
    #[arg(long, value_name = "PROGRAM")]
    by: Option<String>,

    /// Run the test that each names first and no other: minutes instead of hours, and says nothing
    /// of what that one misses.
    #[arg(long)]
    first: bool,

    /// Print the results as JSON, too.
    #[arg(long)]
    json: bool,
}

/// Runs the job. Fails where a mutant survives and nothing says why.
///
/// # Errors
///
/// A list that does not fit the sources; tests that cannot be built, or that fail without a mutant.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let mutants = list::read(&root())?;
    let fits =
        |mutant: &Mutant, text: &String| mutant.name.contains(text) || mutant.file.contains(text);
    let wanted: Vec<(usize, &Mutant)> = mutants
        .iter()
        .enumerate()
        .filter(|(_, mutant)| {
            arguments.filter.is_empty() || arguments.filter.iter().any(|text| fits(mutant, text))
        })
        .collect();
    if wanted.is_empty() {
        return Err("there is no such mutant; --list names them all".into());
    }
    if arguments.list {
        wanted.iter().for_each(|(_, mutant)| {
            println!("{:<42} {:<22} {}", mutant.name, mutant.file, mutant.why)
        });
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = scratch::Scratch::new(&mutants)?;
    let mut programs = Vec::new();
    for build in Build::ALL {
        if arguments.by.as_ref().is_none_or(|by| Build::of(by) == build) {
            programs.extend(scratch.build(build)?);
        }
    }
    programs.retain(|program| arguments.by.as_ref().is_none_or(|by| program.name == *by));
    let mut trials =
        trial::Trials::new(&scratch, programs, arguments.by.is_some(), arguments.first);
    let mut results = Vec::new();
    for (number, mutant) in wanted {
        let by = trials.noticed(number, mutant)?;
        let word = match (&by, &mutant.survives) {
            (Some(by), _) => format!("noticed   {by}"),
            (None, Some(why)) => format!("survives  {why}"),
            (None, None) => "SURVIVES".to_owned(),
        };
        let line = format!("{:<42} {word}", mutant.name);
        if arguments.json {
            eprintln!("{line}")
        } else {
            println!("{line}")
        }
        results.push((mutant, by));
    }
    Ok(print_results(&results, arguments.json))
}

/// The score, and whether every survivor is explained.
fn print_results(results: &[(&Mutant, Option<String>)], json: bool) -> ExitCode {
    let noticed = results.iter().filter(|(_, by)| by.is_some()).count();
    let unexplained =
        results.iter().filter(|(mutant, by)| by.is_none() && mutant.survives.is_none()).count();
    if json {
        let row = |(mutant, by): &(&Mutant, Option<String>)| {
            serde_json::json!({
                "name": mutant.name, "file": mutant.file, "why": mutant.why, "noticed": by.is_some(), "by": by,
                "survives": mutant.survives,
            })
        };
        let rows: Vec<_> = results.iter().map(row).collect();
        println!(
            "{:#}",
            serde_json::json!({ "mutants": rows, "noticed": noticed, "unexplained": unexplained })
        );
    } else {
        let survive = results.len() - noticed;
        println!(
            "{noticed} of {} noticed; {survive} survive, {unexplained} of them unexplained",
            results.len()
        );
    }
    if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
