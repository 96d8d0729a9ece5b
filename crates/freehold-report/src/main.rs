//! The `freehold-report` command, which `freehold report` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_report::main(std::env::args_os())
}
