//! The `freehold-simulate` command, which `freehold simulate` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_simulate::main(std::env::args_os())
}
