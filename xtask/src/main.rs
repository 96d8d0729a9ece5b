//! Jobs of this workspace that cargo has no command for. `cargo xtask help` lists them.

mod build;
mod docs;
#[cfg(feature = "header")]
mod header;
mod linux;
mod ostd;
mod qemu;

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
    /// Compile Linux with Freehold as a zone's allocator, with the pcp-buddy RFC or as it is, boot
    /// it under QEMU and count what its page allocator does.
    Linux(Box<linux::Arguments>),
    /// Run an OSTD kernel on Freehold's frames under QEMU: OSTD's own tests, and ours of page
    /// tables.
    Ostd(ostd::Arguments),
    /// Check that README and docs say what the commands print, or make them say so.
    Docs(docs::Arguments),
    /// Write freehold.h anew, of the sources of freehold-ffi.
    #[cfg(feature = "header")]
    Header {
        /// Only say where it is stale.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let result = match Command::parse().job {
        Job::Linux(arguments) => linux::run(&arguments),
        Job::Ostd(arguments) => ostd::run(&arguments),
        Job::Docs(arguments) => docs::run(&arguments),
        #[cfg(feature = "header")]
        Job::Header { check } => header::run(check).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}
