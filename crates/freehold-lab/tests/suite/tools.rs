//! The commands that are programs of their own: started from beside `freehold` or from the search
//! path, and named with the lines that install and run them where they are not there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::str::contains;

/// `freehold` alone in a folder of its own.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::copy(env!("CARGO_BIN_EXE_freehold"), folder.path().join("freehold")).expect("a copy");
        fs::create_dir(folder.path().join("path")).expect("a folder");
        Self(folder)
    }

    /// The command, with a search path of one folder, which has nothing but what tests put there.
    fn freehold(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("freehold"));
        command.env("PATH", self.path()).args(arguments);
        command
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("path")
    }
}

/// A program that says what it was given, and ends with 7.
fn put(folder: &Path, name: &str, says: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\nprintf '%s:' {says} \"$@\"\nexit 7\n")).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its permissions");
}

#[test]
fn a_command_that_is_not_built_is_named_with_the_line_that_runs_it() {
    let installed = Installed::new();
    for (arguments, line) in [
        (
            vec!["bench", "--quick", "pair"],
            "cargo run --profile measure -p freehold-bench -- --quick pair",
        ),
        (vec!["calibrate", "--runs", "1"], "-p freehold-bench -- calibrate --runs 1"),
        (vec!["look", "--json"], "cargo run --release -p freehold-look -- --json"),
        (vec!["look"], "cargo install --path crates/freehold-look\n"),
        (
            vec!["replay", "threads", "--help"],
            "cargo run --release -p freehold-replay-modes -- threads --help",
        ),
        (
            vec!["replay", "fidelity", "-e", "6.18", "a.parquet"],
            "cargo run --release -p freehold-replay-modes -- fidelity -e 6.18 a.parquet",
        ),
        (vec!["simulate", "--help"], "cargo run --release -p freehold-simulate -- --help"),
        (vec!["report", "a b.json"], "cargo run --release -p freehold-report -- 'a b.json'"),
        (vec!["compare", "a", "b"], "cargo run --release -p freehold-report -- compare a b"),
        (vec!["bench"], "cargo install --path crates/freehold-bench --profile measure\n"),
        (vec!["report"], "cargo install --path crates/freehold-report\n"),
        (vec!["soak"], "cargo install --path proofs/torture\n"),
        (vec!["soak"], "cd proofs/torture && cargo run --release --\n"),
    ] {
        let done = installed.freehold(&arguments).assert().code(2).stdout("");
        done.stderr(contains(line));
    }
}

#[test]
fn it_is_started_from_beside_freehold_and_then_from_the_search_path() {
    let installed = Installed::new();
    put(&installed.path(), "freehold-bench", "path");
    let run = |arguments: &[&str]| installed.freehold(arguments).assert().code(7).stderr("");
    run(&["bench", "-e", "a b", "--help"]).stdout("path:-e:a b:--help:");
    put(installed.0.path(), "freehold-bench", "beside");
    run(&["bench"]).stdout("beside:");
    run(&["calibrate", "--json"]).stdout("beside:calibrate:--json:");
    put(installed.0.path(), "freehold-replay-modes", "modes");
    run(&["replay", "threads", "--json", "a"]).stdout("modes:threads:--json:a:");
    run(&["replay", "fidelity", "--help"]).stdout("modes:fidelity:--help:");
}

#[test]
fn help_lists_every_command() {
    let mut help = Command::new(env!("CARGO_BIN_EXE_freehold"));
    let said = help.arg("--help").assert().success().get_output().stdout.clone();
    let said = String::from_utf8(said).expect("UTF-8");
    for command in ["replay", "record", "engines", "bench", "calibrate", "simulate", "report"]
        .into_iter()
        .chain(["compare", "soak", "look"])
    {
        assert!(said.contains(&format!("\n  {command} ")), "{command} in {said}");
    }
}

#[test]
fn a_bare_file_is_replayed() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/data/page-cache-churn.parquet");
    let mut freehold = Command::new(env!("CARGO_BIN_EXE_freehold"));
    freehold.args([trace, "-e", "vanilla"]).assert().success().stdout(contains("vanilla"));
    let mut freehold = Command::new(env!("CARGO_BIN_EXE_freehold"));
    freehold.arg("no-such.parquet").assert().code(2).stderr(contains("no-such.parquet"));
}
