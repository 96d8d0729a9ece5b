//! Whether the tests of a crate notice when one line of it is wrong: of the core, of the designs of
//! the kernel, or of virtual memory. The lists have what no tool thinks of: orderings weakened, and
//! checks, resets, fences and bounds left out.
//!
//! ```text
//!  {"name", "file", "old", "new", "why"}    in mutants.json, classic.json, vm.json
//!  {..., "within": TEXT}                    where the file has the old text more than once
//!  {..., "first": "PROGRAM::TEST"}          what probably notices it soonest
//!  {..., "survives": WHY}                   no test notices it, and why
//! ```
//!
//! The crates are checked out once more (`target/mutants/tree`), and there one mistake at a time is
//! put in, built and tried: a minute each, and more where loom is asked. A list that does not fit
//! the sources is an error: one that nobody keeps true says nothing.

mod list;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

use list::{LISTS, Mutant, folder, text_of};

/// Whether the tests of a crate notice when one line of it is wrong.
#[derive(Parser)]
#[command(after_help = "\
Examples, in proofs:
  cargo run -p mutants -- --list                what there is
  cargo run -p mutants -- door-                 against each only the test that it names first
  cargo run -p mutants -- --all door-           and where that passes all others
  FREEHOLD_SECONDS=1 cargo run -p mutants       long tests whole, as CI runs them

Exit status: 0 all were noticed, or are explained; 1 some were not; 2 nothing, or not all, was run.")]
struct Arguments {
    /// Only mutants whose name or file contains one of these.
    text: Vec<String>,

    /// The crate that is changed.
    #[arg(long, default_value = "freehold", value_parser = LISTS.map(|(name, _)| name))]
    package: String,

    /// Print what mutants there are, and nothing else.
    #[arg(long)]
    list: bool,

    /// Not only the test that each names first: all tests, loom's last.
    #[arg(long)]
    all: bool,
}

/// The repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// What git says; the working tree with all that is changed in it is `git stash create`.
fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root()).args(arguments).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {told}", arguments.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// All tests: programs, and what their names begin with.
const ALL: [(&str, &str); 2] = [("all", ""), ("loom", "loom_")];

/// A checkout of the working tree as it is, in which mistakes are made.
struct Tree<'a> {
    folder: PathBuf,
    package: &'a str,
}

impl<'a> Tree<'a> {
    fn new(package: &'a str) -> Result<Self, String> {
        let folder = root().join("target/mutants/tree");
        let path = folder.display().to_string();
        let changed = git(&["stash", "create"])?;
        let commit = if changed.is_empty() { "HEAD".to_owned() } else { changed };
        if folder.exists() {
            git(&["worktree", "remove", "--force", &path])?;
        }
        // Of one whose folder somebody has deleted.
        git(&["worktree", "prune"])?;
        git(&["worktree", "add", "--detach", &path, &commit])?;
        Ok(Self { folder, package })
    }

    /// Whether tests pass; a mistake that does not compile is an error.
    fn passes(&self, program: &str, tests: &str) -> Result<bool, String> {
        // CPU time would be fairer than the clock; nothing takes near as long as this.
        let is_loom = program == "loom";
        let target = root().join("target/mutants").join(if is_loom { "loom" } else { "ordinary" });
        // Loom itself is what takes long.
        let optimised = "profile.release.package.\"*\".opt-level=3";
        let tested: &[&str] = match program {
            "lib" => &["--lib"],
            "suite" => &["--test", "suite"],
            "loom" => &["--lib", "--release", "--config", optimised],
            _ => &["--lib", "--tests"],
        };
        let cargo = |last: &[&str]| {
            let mut command = Command::new("timeout");
            command.args(["1800", "cargo", "test", "--quiet", "-p", self.package]);
            command.args(tested).args(last).current_dir(&self.folder).stdout(Stdio::null());
            command.env("CARGO_TARGET_DIR", &target).env("LOOM_MAX_PREEMPTIONS", "3");
            command.env("RUSTFLAGS", if is_loom { "--cfg loom" } else { "" });
            command
        };
        if !cargo(&["--no-run"]).status().is_ok_and(|status| status.success()) {
            return Err(format!("{} does not compile", self.package));
        }
        let output = cargo(&["--", tests]).output();
        let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
        verdict(output.status.code(), &String::from_utf8_lossy(&output.stderr))
    }

    /// Which tests notice the mutant, if any do.
    fn noticed(&self, mutant: &Mutant, all: bool) -> Result<Option<String>, String> {
        let path = folder(&self.folder, self.package).join("src").join(&mutant.file);
        let text = text_of(&path)?;
        let put = |text: &str| {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        put(&mutant.applied(&text)?)?;
        let others: &[(&str, &str)] = if all { &ALL } else { &[] };
        let mut noticed = Ok(None);
        for (program, tests) in mutant.first().into_iter().chain(others.iter().copied()) {
            match self.passes(program, tests) {
                Ok(true) => continue,
                Ok(false) => noticed = Ok(Some(format!("{program}: {tests}"))),
                Err(error) => noticed = Err(format!("{}: {error}", mutant.name)),
            }
            break;
        }
        put(&text)?;
        noticed
    }
}

/// Whether tests passed, by cargo's status and words. What was killed has judged nothing. Time that
/// is over notices a mutant, which may keep a test from ending, and is told.
fn verdict(code: Option<i32>, said: &str) -> Result<bool, String> {
    match code {
        Some(0) => Ok(true),
        Some(101) if !said.contains("SIGKILL") => Ok(false),
        Some(124) => {
            println!("the next one by the time alone: half an hour was over");
            Ok(false)
        }
        _ => Err(format!("the tests ended with {code:?}, which says nothing of them: {said}")),
    }
}

#[test]
fn tests_that_were_killed_notice_nothing() {
    assert_eq!([Some(0), Some(101)].map(|code| verdict(code, "")), [Ok(true), Ok(false)]);
    assert!(verdict(Some(101), "(signal: 9, SIGKILL: kill)").is_err());
    assert!(verdict(None, "").is_err() && verdict(Some(1), "").is_err());
}

/// Runs the job. Fails where a mutant survives and nothing says why.
fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let mutants = list::read(&root(), &arguments.package)?;
    let fits =
        |mutant: &Mutant, text: &String| mutant.name.contains(text) || mutant.file.contains(text);
    let is_wanted = |mutant: &&Mutant| {
        arguments.text.is_empty() || arguments.text.iter().any(|text| fits(mutant, text))
    };
    let wanted: Vec<&Mutant> = mutants.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        return Err("there is no such mutant; --list names them all".into());
    }
    if arguments.list {
        for mutant in wanted {
            println!("{:<42} {:<22} {}", mutant.name, mutant.file, mutant.why);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let tree = Tree::new(&arguments.package)?;
    let mut asked: Vec<_> = wanted.iter().filter_map(|mutant| mutant.first()).collect();
    asked.extend(arguments.all.then_some(ALL).into_iter().flatten());
    asked.sort_unstable();
    asked.dedup();
    for (program, tests) in asked {
        if !tree.passes(program, tests)? {
            return Err(format!("{program}: {tests} fails without a mutant"));
        }
    }
    let (mut noticed, mut unexplained) = (0, 0);
    for mutant in &wanted {
        let by = tree.noticed(mutant, arguments.all)?;
        noticed += usize::from(by.is_some());
        unexplained += usize::from(by.is_none() && mutant.survives.is_none());
        let word = match (by, &mutant.survives) {
            (Some(by), _) => format!("noticed   {by}"),
            (None, Some(why)) if mutant.first().is_none() && !arguments.all => {
                format!("not tried {why}")
            }
            (None, Some(why)) => format!("survives  {why}"),
            (None, None) => "SURVIVES".to_owned(),
        };
        println!("{:<42} {word}", mutant.name);
    }
    git(&["worktree", "remove", "--force", &tree.folder.display().to_string()])?;
    let survive = wanted.len() - noticed;
    let all = wanted.len();
    println!("{noticed} of {all} noticed; {survive} survive, {unexplained} of them unexplained");
    Ok(if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
