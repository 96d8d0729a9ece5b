//! Recordings of the loads in a kernel that was built: `freehold record` runs in the guest.
//!
//! ```text
//!   guest: freehold record --drain ──> /out (memory) ──> tar ──> port 0xe9
//!     ──> QEMU ──> a file of ours ──> FOLDER
//! ```
//!
//! The guest has neither disks nor a network. Its serial port would take minutes; QEMU's debug
//! console takes a byte for each write to a port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Trouble;
use super::super::tools::{libraries, output, run};
use super::Kind;
use super::boots::{self, Guest};
use super::loads::{self, Load};
use crate::build;
use crate::qemu::{Accelerator, End, Machine};

/// The loads of a boot, in rounds that make recordings of 30 to 130 KB.
pub(super) const LOADS: [&str; 6] =
    ["exit:3", "arena:6", "huge:4", "mixed:300", "cache:2", "shells:32"];

/// What the guest has besides: the recorder with its libraries.
pub(super) fn programs() -> Result<Vec<(String, PathBuf)>, Trouble> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.current_dir(build::root()).args(["build", "--quiet", "--release", "-p", "freehold-lab"]);
    run(cargo.arg("--target-dir").arg(build::target()))?;
    let recorder = build::target().join("release/freehold");
    let mut programs = libraries(&output(Command::new("ldd").arg(&recorder))?);
    programs.push(("freehold".to_owned(), recorder));
    Ok(programs)
}

/// Boots a kernel, records its loads, and puts them into a folder; how it ended.
pub(super) fn record(
    machine: &Machine,
    guest: &Guest,
    kind: &Kind,
    to: &Path,
    loads: &[Load],
    limit: u64,
) -> Result<End, Trouble> {
    let folder = guest.archive.with_file_name("recorded").join(kind.design.name());
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let archive = folder.join("out.tar");
    let mut machine = machine.clone();
    if machine.accelerator == Accelerator::TcgMulti {
        // Switching events on changes the code that CPUs are running, which QEMU 7.2 cannot follow
        // where it translates each on a thread: "Oops: int3".
        machine.accelerator = Accelerator::TcgSingle;
    }
    machine.extra.extend(["-debugcon".into(), format!("file:{}", archive.display()).into()]);
    let design = kind.design;
    let mut words = boots::words(kind);
    words.extend([loads::word(loads), format!("built.record={}", design.name())]);
    words.extend(clock(&fs::read_to_string("/proc/cpuinfo")?));
    let (end, lines) = boots::run(&machine, guest, &words, limit)?;
    fs::write(folder.join("log.txt"), lines.join("\n"))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&folder))?;
    fs::create_dir_all(to)?;
    for load in loads {
        let name = format!("{}-{}", design.name(), load.name);
        let file = format!("{name}.parquet");
        fs::copy(folder.join(&file), to.join(&file)).map_err(|error| {
            Trouble::Wrong(format!("{name} has not been recorded: {file}: {error}"))
        })?;
        eprintln!("recorded: {}", to.join(format!("{name}.parquet")).display());
    }
    Ok(end)
}

/// Words that have a kernel count time by its CPUs' counter, which QEMU takes from this machine's.
/// It trusts that of several translated CPUs by itself no more than it measures how fast it is; its
/// clock would then go in steps of 4 ms, and no row say which CPU was first in one.
fn clock(cpuinfo: &str) -> Option<String> {
    let speed = cpuinfo.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1));
    let mhz: f64 = speed?.trim().parse().ok()?;
    Some(format!("tsc=reliable tsc_early_khz={:.0}", mhz * 1000.0))
}

#[test]
fn the_counter_of_the_cpus_is_the_clock() {
    let told = clock("processor : 0\ncpu MHz\t\t: 2445.430\ncpu MHz\t\t: 9\n");
    assert_eq!(told.unwrap(), "tsc=reliable tsc_early_khz=2445430");
    assert_eq!(clock("BogoMIPS\t: 50.00\n"), None);
}
