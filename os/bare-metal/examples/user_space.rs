//! The kernel's self-test and benchmarks in a process, over threads: to compare with what the
//! kernel prints.
//!
//! ```text
//! cargo run --release --example user_space            4 threads
//! cargo run --release --example user_space -- 2       2 threads
//! ```

#[path = "../tests/common/threads.rs"]
mod threads;

use freehold_kernel::suite::{self, Summary};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpus = std::env::args().nth(1).map_or(Ok(4), |n| n.parse())?;
    // 256 MiB, as `cargo xtask qemu` gives the kernel.
    let machine = threads::Process::new(cpus, 64 << 10, false);
    let mut summary = Summary::default();
    suite::run(&machine, &suite::tests(), "", &mut summary);
    println!("self-test: {summary}");
    suite::bench::run(&machine).map_err(|failure| failure.to_string())?;
    if summary.failed == 0 { Ok(()) } else { Err(summary.to_string().into()) }
}
