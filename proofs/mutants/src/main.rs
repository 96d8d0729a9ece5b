//! Whether a crate's tests notice when one line of it is wrong: the core's, the kernel's designs',
//! or those of virtual memory.
//!
//! ```text
//!  {"name", "file", "old", "new", "why"}    in mutants.json, classic.json, vm.json: an ordering weakened, a check, reset or bound left out
//!  {..., "within": TEXT}                    where the file has the old text more than once
//!  {..., "first": "PROGRAM::TEST"}          what probably notices it soonest
//!  {..., "survives": WHY}                   no test notices it, and why
//! ```
//!
//! A mutant whose old text the sources do not have exactly once is an error: a list that nobody
//! keeps true says nothing.

mod list;
mod scratch;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use list::{Mutant, Package};
use scratch::Build;

/// Whether a crate's tests notice when one line of it is wrong.
#[derive(Parser)]
#[command(after_help = "\
Examples, in proofs/mutants:
  cargo run -- --list                     what there is
  cargo run -- --filter door-             all tests against some
  cargo run -- --first                    against each only the test that it names first: minutes
  cargo run -- --first --sample 12        and of all only twelve, which --seed picks
  cargo run -- --package freehold-classic those of the kernel's designs
  FREEHOLD_SECONDS=1 cargo run            long tests whole, as CI runs them

Exit status: 0 all were noticed, or are explained; 1 some were not; 2 nothing was run.")]
struct Arguments {
    /// The crate that is changed.
    #[arg(long, value_enum, default_value_t = Package::Freehold)]
    package: Package,

    /// Only mutants whose name or file contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// Print what mutants there are, and nothing else.
    #[arg(long)]
    list: bool,

    /// Only that many of them, picked by the seed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,

    /// Which sample.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sample")]
    seed: u64,

    /// Run these tests and no others: `lib`, `loom`, or a file in the crate's `tests`.
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

/// The repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Where everything is built: `target` of the repository, unless the caller names another place.
fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// The distance between two mutants of a sample, and its first: at most `sample` of `all` are taken.
fn stride(all: usize, sample: u64, seed: u64) -> (usize, usize) {
    let step = all.div_ceil(usize::try_from(sample).unwrap_or(usize::MAX)).max(1);
    (step, (seed % step as u64) as usize)
}

/// Runs the job. Fails where a mutant survives and nothing says why.
///
/// # Errors
///
/// A list that does not fit the sources; tests that cannot be built, or that fail without a mutant.
fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let package = arguments.package;
    let mutants = list::read(&root(), package)?;
    let fits =
        |mutant: &Mutant, text: &String| mutant.name.contains(text) || mutant.file.contains(text);
    let mut wanted: Vec<(usize, &Mutant)> = mutants
        .iter()
        .enumerate()
        .filter(|(_, mutant)| {
            arguments.filter.is_empty() || arguments.filter.iter().any(|text| fits(mutant, text))
        })
        .collect();
    if wanted.is_empty() {
        return Err("there is no such mutant; --list names them all".into());
    }
    if let Some(sample) = arguments.sample {
        let (step, first) = stride(wanted.len(), sample, arguments.seed);
        wanted = wanted.into_iter().skip(first).step_by(step).collect();
    }
    if arguments.list {
        wanted.iter().for_each(|(_, mutant)| {
            println!("{:<42} {:<22} {}", mutant.name, mutant.file, mutant.why)
        });
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = scratch::Scratch::new(package, &mutants)?;
    let mut programs = Vec::new();
    for build in Build::ALL {
        // Loom takes long to build, and of the first tests of a crate none may be loom's.
        let named = wanted.iter().filter_map(|(_, mutant)| mutant.first());
        let of_named = named.map(|(program, _)| Build::of(program)).any(|named| named == build);
        let by = arguments.by.as_ref().is_none_or(|by| Build::of(by) == build);
        if by && (of_named || !arguments.first) {
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

#[cfg(test)]
mod tests {
    use super::stride;

    #[test]
    fn each_mutant_is_in_the_sample_of_some_seed() {
        for (all, sample) in [(135, 12), (135, 135), (5, 12), (7, 1)] {
            let (step, _) = stride(all, sample, 0);
            let mut taken = vec![0; all];
            for seed in 0..step as u64 {
                let (step, first) = stride(all, sample, seed);
                let picked: Vec<usize> = (0..all).skip(first).step_by(step).collect();
                assert!(picked.len() as u64 <= sample && !picked.is_empty());
                picked.into_iter().for_each(|at| taken[at] += 1);
            }
            assert_eq!(taken, vec![1; all], "{sample} of {all}");
        }
    }
}
