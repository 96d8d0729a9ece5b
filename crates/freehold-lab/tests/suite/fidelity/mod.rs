//! Tests of `freehold replay fidelity`.

mod commands;
mod recordings;

/// The command, whatever the terminal that tests run in.
fn fidelity() -> assert_cmd::Command {
    let mut command = crate::common::freehold();
    command.args(["replay", "fidelity"]);
    command
}
