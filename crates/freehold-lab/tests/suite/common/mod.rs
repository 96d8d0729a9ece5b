//! What the tests of several commands share.

// What goes wrong here is a test that fails.
#![allow(unreachable_pub, clippy::new_without_default)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use serde_json::Value;

#[path = "../../../../freehold/tests/suite/length.rs"]
pub mod length;
pub mod machine_files;
pub mod replays;
pub mod tables;

/// The program, whatever the terminal that tests run in.
pub fn freehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

/// A file of the repository's data.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

/// The JSON that a command prints, with nothing to complain of.
pub fn json(command: &mut Command) -> Value {
    document_of(&command.assert().code(0).stderr(""))
}

/// The JSON in what was printed.
pub fn document_of(done: &Assert) -> Value {
    serde_json::from_slice(&done.get_output().stdout).expect("valid JSON and nothing else")
}

/// That a command is refused, with all of this said.
pub fn assert_refused(command: &mut Command, said: &[&str]) {
    let done = command.assert().code(2).stdout("");
    said.iter().fold(done, |done, part| done.stderr(predicates::str::contains(*part)));
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(why: &str) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("SKIPPED {why}\n"));
}

pub fn text(done: &Assert) -> String {
    String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8")
}

/// A text however its lines are broken.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the program prints with these words between spaces, as JSON.
pub fn result(words: &str) -> Value {
    document_of(&freehold().args(words.split_whitespace()).assert().success())
}

/// The names in an object.
pub fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// What a command prints that ends well, whatever it complains of.
pub fn printed(command: &mut Command) -> String {
    String::from_utf8(command.assert().code(0).get_output().stdout.clone()).expect("UTF-8")
}

/// The JSON that such a command prints.
pub fn parsed(command: &mut Command) -> Value {
    serde_json::from_str(&printed(command)).expect("valid JSON and nothing else")
}
