//! What the tests of several commands share.

// What goes wrong here is a test that fails.
#![allow(unreachable_pub, clippy::new_without_default)]

use std::path::{Path, PathBuf};

use assert_cmd::Command;

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
pub fn json(command: &mut Command) -> serde_json::Value {
    let done = command.assert().code(0).stderr("");
    serde_json::from_slice(&done.get_output().stdout).expect("valid JSON and nothing else")
}
