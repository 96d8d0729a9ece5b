//! Jobs of this workspace that cargo has no command for. `cargo xtask help` lists them.

mod build;
mod ci;
mod dist;
mod docs;
mod linux;
mod msrv;
mod ostd;
mod qemu;
#[cfg(test)]
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Jobs of this workspace that cargo has no command for.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Command {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Run Freehold as a module of a stock Linux kernel under QEMU: its self-test, and
    /// ordinary memory of processes.
    Linux(linux::Arguments),
    /// Run an OSTD kernel on Freehold's frames under QEMU: OSTD's own tests, and ours of page tables
    /// and interrupts.
    Ostd(ostd::Arguments),
    /// Check that README and docs say what the commands print, or make them say so.
    Docs(docs::Arguments),
    /// Run the checks that a change must pass, or some of them: which .ci/run calls.
    Ci(ci::Arguments),
    /// Make what a package of the commands is made from: static programs, completions, manual pages,
    /// checksums, a bill of materials.
    Dist(dist::Arguments),
    /// Check that each crate builds with the oldest Rust that it says it needs.
    Msrv,
}

fn main() -> ExitCode {
    let result = match Command::parse().job {
        Job::Linux(arguments) => linux::run(&arguments),
        Job::Ostd(arguments) => ostd::run(&arguments),
        Job::Docs(arguments) => docs::run(&arguments),
        Job::Ci(arguments) => ci::run(&arguments),
        Job::Dist(arguments) => dist::run(&arguments),
        Job::Msrv => msrv::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}
