//! Tests of `freehold replay threads` and `freehold replay fidelity`.

mod commands;
mod fidelity;
mod tables;
mod threads;

/// The program that both start, whatever the terminal that tests run in.
fn modes() -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_freehold-replay-modes"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}
