//! `cargo xtask ci`: everything that a change must pass, in three lanes.
//!
//! ```text
//!  mod.rs      the command: which steps, in which order, what is printed, the summary
//!  step.rs     what a step is, and the one place where programs are started, timed out and ended
//!  ask.rs      what this machine has: toolchains, targets, compilers
//!  quick.rs    steps of the first lane: minutes, what to run before every push
//!  proofs.rs   steps of the second: what shows that the allocator is right
//!  worlds.rs   steps of the third: the whole workspace, other systems, other machines, what users do
//! ```
//!
//! Two threads work: one goes through the steps that share a target folder, the other through those
//! that have one of their own (`beside`), since cargo has one build at a time in each. Builds and test
//! programs often have work for one core only. A step that fails does not keep the others from running. `.ci/run` prepares a machine and
//! calls this.

mod ask;
mod proofs;
mod quick;
mod step;
mod worlds;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;

use step::{Run, Step};

/// Arguments of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Lanes (quick, proofs, worlds) or steps to run; all without any.
    #[arg(value_name = "LANE|STEP")]
    wanted: Vec<String>,

    /// Print what steps there are, and nothing else.
    #[arg(long, conflicts_with = "wanted")]
    list: bool,

    /// End with the first step that fails.
    #[arg(long)]
    fail_fast: bool,
}

/// What became of a step.
struct Outcome {
    name: &'static str,
    took: Duration,
    failed: Option<String>,
    skipped: Vec<String>,
}

/// Every step, in the order in which they run.
fn steps() -> Vec<Step> {
    [quick::STEPS, worlds::STEPS, proofs::STEPS].concat()
}

/// Runs them.
///
/// # Errors
///
/// A word that is neither a lane nor a step.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let all = steps();
    if arguments.list {
        for step in &all {
            println!("{:<7} {:<14} {}", step.lane.name(), step.name, step.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = chosen(&all, &arguments.wanted)?;
    step::end_children_when_interrupted()?;
    let begun = Instant::now();
    let results = Mutex::new(Vec::new());
    let (beside, first): (Vec<&Step>, Vec<&Step>) =
        wanted.iter().partition(|step| step.beside && wanted.len() > 1);
    std::thread::scope(|scope| {
        let aside = scope.spawn(|| line(&beside, true, arguments.fail_fast, &results));
        line(&first, false, arguments.fail_fast, &results);
        if !aside.is_finished() {
            println!("\n== waiting for what runs beside");
        }
        // A panic there is a defect of a step; what it says is on the terminal already.
        aside.join().is_err().then(|| {
            let failed = Some("ended with a panic".to_owned());
            locked(&results).push(Outcome {
                name: "beside",
                took: begun.elapsed(),
                failed,
                skipped: Vec::new(),
            });
        });
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(summary(&results, wanted.len(), begun.elapsed()))
}

/// The steps that the words name; without any all but those that others cover.
fn chosen<'a>(all: &'a [Step], words: &[String]) -> Result<Vec<&'a Step>, String> {
    for word in words {
        let known = |step: &Step| step.name == word || step.lane.name() == word;
        if !all.iter().any(known) {
            return Err(format!(
                "'{word}' is neither a lane nor a step: 'cargo xtask ci --list' names them all"
            ));
        }
    }
    let named = |step: &Step| words.iter().any(|word| word == step.name);
    let in_lane =
        |step: &Step| words.is_empty() || words.iter().any(|word| word == step.lane.name());
    let mut wanted: Vec<&Step> = all.iter().filter(|step| named(step) || in_lane(step)).collect();
    let names: Vec<&str> = wanted.iter().map(|step| step.name).collect();
    // What another step of this run does as well is left to that one, unless it is asked for by name.
    wanted
        .retain(|step| named(step) || step.covered_by.is_none_or(|other| !names.contains(&other)));
    Ok(wanted)
}

fn locked(results: &Mutex<Vec<Outcome>>) -> std::sync::MutexGuard<'_, Vec<Outcome>> {
    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs steps one after the other.
fn line(steps: &[&Step], beside: bool, fail_fast: bool, results: &Mutex<Vec<Outcome>>) {
    for step in steps {
        if fail_fast && locked(results).iter().any(|result| result.failed.is_some()) {
            return;
        }
        if !beside {
            println!("\n== {}: {}", step.name, step.title);
        }
        let run = Run::new(step.limit(), beside);
        let failed = (step.run)(&run).err();
        let (took, output) = (run.took(), run.output());
        if beside {
            println!("\n== {} (ran beside): {}\n{output}", step.name, step.title);
        }
        if let Some(error) = &failed {
            eprintln!("FAILED: {}: {error}", step.name);
        }
        let skipped = run.skipped();
        locked(results).push(Outcome { name: step.name, took, failed, skipped });
    }
}

/// Prints how long each step took, what was skipped and what failed.
fn summary(results: &[Outcome], wanted: usize, took: Duration) -> ExitCode {
    println!("\n== times");
    for result in results {
        let end = match (&result.failed, result.skipped.is_empty()) {
            (Some(_), _) => "  FAILED",
            (None, false) => "  (part of it skipped)",
            (None, true) => "",
        };
        println!("{:5} s  {}{end}", result.took.as_secs(), result.name);
    }
    println!("{:5} s  in all, two steps at a time", took.as_secs());
    let skipped = results.iter().flat_map(|result| {
        result.skipped.iter().map(move |line| format!("{}: {line}", result.name))
    });
    let skipped: Vec<String> = skipped.collect();
    if !skipped.is_empty() {
        println!("\n== SKIPPED");
        skipped.iter().for_each(|line| println!("{line}"));
    }
    let failed: Vec<&Outcome> = results.iter().filter(|result| result.failed.is_some()).collect();
    if failed.is_empty() && results.len() == wanted {
        println!("\neverything passed");
        return ExitCode::SUCCESS;
    }
    println!("\n== FAILED");
    for result in failed {
        println!("{}: {}", result.name, result.failed.as_deref().unwrap_or_default());
    }
    if results.len() < wanted {
        println!("{} steps were not run", wanted - results.len());
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::step::Lane;
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let all = steps();
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let names = chosen(&all, &words)?.iter().map(|step| step.name).collect();
        Ok(names)
    }

    #[test]
    fn each_step_has_a_name_of_its_own_that_is_no_lane() {
        let mut names: Vec<&str> = steps().iter().map(|step| step.name).collect();
        names.extend(Lane::ALL.map(Lane::name));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn what_another_step_does_as_well_is_left_to_it() {
        let all = names(&[]).unwrap();
        assert!(all.contains(&"tests") && !all.contains(&"core"), "{all:?}");
        let quick = names(&["quick"]).unwrap();
        assert!(quick.contains(&"core") && !quick.contains(&"tests"), "{quick:?}");
        assert_eq!(names(&["core", "tests"]).unwrap(), ["core", "tests"]);
        let covering: Vec<&str> = steps().iter().filter_map(|step| step.covered_by).collect();
        assert!(covering.iter().all(|name| all.contains(name)), "{covering:?}");
    }

    #[test]
    fn the_lanes_are_all_there_is() {
        let mut lanes: Vec<&str> = Vec::new();
        for lane in Lane::ALL {
            lanes.extend(names(&[lane.name()]).unwrap());
        }
        for name in names(&[]).unwrap() {
            assert!(lanes.contains(&name), "{name}");
        }
        assert!(names(&["nonsense"]).unwrap_err().contains("'nonsense' is neither"));
    }
}
