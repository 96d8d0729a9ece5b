//! The `freehold` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_lab::cli::main()
}
