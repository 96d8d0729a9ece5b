//! The `freehold-replay-modes` command, which `freehold replay threads` and `freehold replay fidelity`
//! start.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_replay_modes::main(std::env::args_os())
}
