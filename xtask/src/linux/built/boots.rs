//! Boots of the kernels that were built, and what each counted of itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::cpio::Archive;
use super::super::guest::{self, Guest};
use super::super::{Trouble, module};
use super::Design;
use super::table::Row;
use crate::build;
use crate::qemu::{End, Machine};

/// What the guest does, and how often: at most a few seconds each where a busy core translates two
/// CPUs.
const LOADS: &str = "exit:4,arena:6,huge:4,mixed:1,cache:2,shells:64";

/// The loads' names, in their order.
pub(super) fn loads() -> impl Iterator<Item = &'static str> {
    LOADS.split(',').map(|load| load.split(':').next().unwrap_or(load))
}

/// The first file system of the guest: the same for all kernels, and `more` programs: names in the
/// guest, and where they are.
///
/// # Errors
///
/// Where a program does not compile, or busybox is not there.
pub(super) fn archive(
    folder: &Path,
    busybox: &Path,
    more: &[(String, PathBuf)],
) -> Result<PathBuf, Trouble> {
    let mut archive = Archive::default();
    for name in ["bin", "dev", "lib", "lib64", "out", "proc", "sys", "tmp"] {
        archive.folder(name);
    }
    let ours = build::root().join("os/linux");
    archive.program("init", &fs::read(ours.join("built/init"))?);
    archive.program("bin/busybox", &fs::read(busybox)?);
    for source in [ours.join("built/loads.c"), ours.join("user/finish.c")] {
        let (name, program) = module::program(folder, &source)?;
        archive.program(&name, &fs::read(program)?);
    }
    for (name, program) in more {
        archive.program(name, &fs::read(program)?);
    }
    let path = folder.join("initramfs.cpio");
    fs::write(&path, archive.end())?;
    Ok(path)
}

/// Boots a kernel once; how it ended, and a row for each load.
///
/// # Errors
///
/// Where QEMU does not start, or the kernel has not counted.
pub(super) fn boot(
    machine: &Machine,
    guest: &Guest,
    design: Design,
    number: u32,
    limit: u64,
) -> Result<(End, Vec<Row>), Trouble> {
    let machine = of_kernels(machine, guest);
    let line = guest::command_line(&[format!("built.loads={LOADS}")]);
    let started = Instant::now();
    let shown = |line: &str| !line.starts_with("snap\t");
    let (end, lines) = guest::boot(&machine, guest, &line, Duration::from_secs(limit), shown)
        .map_err(Trouble::Wrong)?;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{}, boot {number}: {end:?} after {seconds:.0} s", design.name());
    let snapshots = Snapshots::of(&lines);
    let rows = loads().filter_map(|load| snapshots.row(load, design, machine.cpus, number));
    let rows: Vec<Row> = rows.collect();
    if end == End::Passed && rows.len() != loads().count() {
        return Err(Trouble::Wrong(format!("{} did not count all loads", design.name())));
    }
    Ok((end, rows))
}

/// The machine as these kernels need it.
pub(super) fn of_kernels(machine: &Machine, guest: &Guest) -> Machine {
    let mut machine = machine.clone();
    // Zone Normal begins at 4 GiB: the machine's memory shall, too, but for what the kernel needs.
    machine.extra.extend(["-machine".into(), "pc,max-ram-below-4g=512M".into()]);
    // The firmware's table lists one CPU for each socket.
    machine.extra.extend(["-smp".into(), format!("{0},sockets={0}", machine.cpus).into()]);
    machine.extra.extend(["-initrd".into(), guest.archive.clone().into()]);
    machine
}

/// What was counted before and after each load.
#[derive(Default)]
struct Snapshots<'a> {
    version: &'a str,
    counts: BTreeMap<(&'a str, &'a str, &'a str), i64>,
}

impl<'a> Snapshots<'a> {
    fn of(lines: &'a [String]) -> Self {
        let mut found = Self::default();
        for line in lines {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = fields.last().and_then(|number| number.parse().ok());
            if let (["snap", when, load, what, _], Some(number)) = (&fields[..], number) {
                found.counts.insert((load, what, when), number);
            }
            if let Some(rest) = line.strip_prefix("guest: Linux ") {
                found.version = rest.split(',').next().unwrap_or_default();
            }
        }
        found
    }

    /// None where the load did not come to its end.
    fn row(&self, load: &str, design: Design, vcpus: u8, boot: u32) -> Option<Row> {
        let count = |what, when| self.counts.get(&(load, what, when)).copied();
        let during = |what| Some(count(what, "after")? - count(what, "before")?);
        Some(Row {
            kernel: design.name(),
            version: self.version.to_owned(),
            workload: load.to_owned(),
            vcpus,
            boot,
            zone_locks: during("zone_locks")?,
            zone_waits: during("zone_waits")?,
            // What has no such file has no such locks.
            freehold_locks: during("freehold_locks").unwrap_or(0),
            refills: during("refills")?,
            drains: during("drains")?,
            free_blocks_after: count("kernel_blocks", "after")?
                + count("whole_blocks", "after").unwrap_or(0),
            reports: during("reports")?,
            others: OTHERS.iter().map(|&what| (what, during(what).unwrap_or(0))).collect(),
        })
    }
}

/// What is in the table by itself, and not in the JSON.
pub(super) const OTHERS: [&str; 8] = [
    "phase0_frames",
    "phase1_frames",
    "phase2_frames",
    "phase3_frames",
    "drained_frames",
    "merges",
    "remote_frees",
    "shared_writes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_what_was_counted_in_between() {
        let mut lines = vec!["guest: Linux 7.1.3, 2 CPUs, 1900 MiB".to_owned()];
        for (when, at) in [("before", 10), ("after", 17)] {
            for what in
                ["zone_locks", "zone_waits", "refills", "drains", "kernel_blocks", "reports"]
            {
                lines.push(format!("snap\t{when}\texit\t{what}\t{at}"));
            }
        }
        lines.push("snap\tbefore\tarena\tzone_locks\t5".to_owned());
        let snapshots = Snapshots::of(&lines);
        let row = snapshots.row("exit", Design::Vanilla, 2, 3).unwrap();
        assert_eq!((row.zone_locks, row.free_blocks_after, row.freehold_locks), (7, 17, 0));
        assert_eq!((row.version.as_str(), row.kernel, row.boot), ("7.1.3", "vanilla", 3));
        // A load that the machine died in has no row.
        assert!(snapshots.row("arena", Design::Vanilla, 2, 3).is_none());
    }
}
