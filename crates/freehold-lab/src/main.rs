//! The `freehold` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_lab::main(std::env::args_os())
}
