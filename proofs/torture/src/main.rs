//! The `freehold-soak` command, which `freehold soak` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_soak::main(std::env::args_os())
}
