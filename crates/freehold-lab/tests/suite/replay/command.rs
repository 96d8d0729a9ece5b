//! Runs of `freehold`, also on the machines of [`crate::common::machine_files`].

use std::path::Path;
use std::process::Output;

use crate::common::machine_files::{Files, Folder};
use crate::common::{freehold, printed};
use serde_json::Value;

pub(crate) fn run(arguments: &[&str]) -> Output {
    freehold().args(arguments).output().unwrap()
}

pub(crate) fn replay(trace: &Path, more: &[&str]) -> Output {
    let trace = trace.to_str().unwrap();
    run(&[&["replay", "--json", "--no-progress", "-e", "vanilla", trace], more].concat())
}

pub(crate) fn replayed(files: &Files, more: &[&str]) -> Value {
    let folder = Folder::new();
    json(&replay(&folder.write(files), more))
}

pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What people are shown of it.
pub(crate) fn table(trace: &Path) -> String {
    printed(freehold().args(["replay", "--no-progress", "-e", "vanilla", "--wide"]).arg(trace))
}

pub(crate) fn refused(files: &Files, more: &[&str]) -> String {
    let folder = Folder::new();
    let output = replay(&folder.write(files), more);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}
