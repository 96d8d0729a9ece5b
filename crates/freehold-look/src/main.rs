//! The `freehold-look` command, which `freehold look` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_look::main(std::env::args_os())
}
