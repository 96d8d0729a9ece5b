//! `cargo xtask ostd`: an OSTD kernel (`os/ostd`) whose frames are Freehold's, with OSTD's own
//! tests and ours of page tables in it, under QEMU.
//!
//! What `cargo osdk` does is little for one kernel: flags, a link script, and two bytes for QEMU.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::build;
use crate::qemu::{self, Accelerator, Machine};

const TARGET: &str = "x86_64-unknown-none";
/// OSTD's link script has no place for position-independent code, its interrupt handlers use the
/// stack's end, and its tests catch panics, for which `core` is built as well. Its tests are
/// compiled in by the last one.
const FLAGS: [&str; 7] = [
    "-Crelocation-model=static",
    "-Crelro-level=off",
    "-Cforce-unwind-tables=yes",
    "-Cno-redzone=y",
    "-Cpanic=unwind",
    "--check-cfg=cfg(ktest)",
    "--cfg=ktest",
];
/// Where less than that is below 4 GiB, QEMU has its ACPI tables behind all memory, and OSTD maps
/// no further than to there.
const MEMORY: &str = "4G";

#[derive(Args)]
#[command(after_help = "\
Needs the sources of `core` (rustup component add rust-src), QEMU and, once, the crate registry. \
The machine has \
one CPU, as OSTD's runner wants it.

Exit status: 0 all passed, or it was skipped; 1 something failed, 2 nothing was run, 3 the time \
limit, 4 the machine died
without a word.")]
pub(crate) struct Arguments {
    /// Seconds after which the machine is stopped.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// A defect, on purpose, to see it found: frames that are freed are lost.
    #[arg(long)]
    lose: bool,
    /// Another defect: the CPU is not told to forget translations.
    #[arg(long)]
    no_flush: bool,
    /// QEMU, where it is not the one in PATH.
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,
}

/// Builds the kernel; returns where it is.
fn kernel(features: &str) -> Result<PathBuf, String> {
    let (folder, target) = (build::root().join("os"), build::target().join("ostd"));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let words = "build --package=freehold-ostd --quiet --release --locked";
    cargo.current_dir(&folder).args(words.split(' ')).args(["--target", TARGET, "--target-dir"]);
    cargo.arg(&target).arg("-Zbuild-std=core,alloc");
    cargo.args(["-Zbuild-std-features=compiler-builtins-mem", "--features", features]);
    let script = format!("-Clink-arg=-T{}", folder.join("ostd/linker.ld").display());
    let flags = FLAGS.map(str::to_owned).into_iter().chain([script]).collect::<Vec<_>>();
    // The options with -Z, and OSTD's unstable features, are there in every rustc, for those who
    // ask in this way.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let status = cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !status.success() {
        return Err("the kernel was not built".to_owned());
    }
    let built = target.join(TARGET).join("release/freehold-ostd");
    let mut bytes =
        std::fs::read(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    // QEMU loads a Multiboot kernel of 64 bits only where its file says that it is one for the 386:
    // e_machine, EM_386.
    bytes.get_mut(18..20).ok_or("the kernel is empty")?.copy_from_slice(&[3, 0]);
    let image = built.with_extension("qemu");
    std::fs::write(&image, bytes).map_err(|error| format!("{}: {error}", image.display()))?;
    Ok(image)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let qemu = match qemu::find(arguments.qemu.as_deref()) {
        Err(error) if arguments.qemu.is_none() => {
            eprintln!("SKIPPED: {error}");
            return Ok(ExitCode::SUCCESS);
        }
        found => found?,
    };
    if !build::of_rustc("src/rust/library/core").is_dir() {
        eprintln!("SKIPPED: the sources of `core` are not there: rustup component add rust-src");
        return Ok(ExitCode::SUCCESS);
    }
    let defects = [(arguments.lose, "lose,"), (arguments.no_flush, "no-flush,")];
    let defects = defects.map(|(on, name)| if on { name } else { "" }).concat();
    let image = kernel(&defects)?;
    let (memory, accelerator) = (MEMORY.to_owned(), Accelerator::TcgSingle);
    let machine = Machine { qemu, cpus: 1, memory, accelerator, extra: Vec::new() };
    let started = Instant::now();
    let mut child = machine.start(&image, "", Stdio::inherit())?;
    let end = Machine::wait(&mut child, Duration::from_secs(arguments.timeout))?;
    end.tell(started.elapsed().as_secs_f64(), arguments.timeout);
    Ok(ExitCode::from(end.code()))
}
