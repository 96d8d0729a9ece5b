//! The `freehold-bench` command, which `freehold bench` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    freehold_bench::main(std::env::args_os())
}
