//! Tests of `freehold bench` and of what is behind it.

mod command;
mod workloads;

/// The command, in a terminal that all of a table fits in.
fn bench() -> assert_cmd::Command {
    let mut command = crate::common::freehold();
    command.arg("bench").env("COLUMNS", "120");
    command
}
