//! Tests of `freehold replay fidelity`.

mod commands;
mod recordings;
mod tables;

/// The command, whatever the terminal that tests run in.
fn fidelity() -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.args(["replay", "fidelity"]);
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}
