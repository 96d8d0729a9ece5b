//! Boots of the kernels that were built, and what each counted of itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::{Trouble, objects, tools};
use super::loads::{self, Load};
use super::table::Row;
use super::{Check, Design, Kind};
use crate::build;
use crate::qemu::{End, Machine};

/// Kernel and file system, ready to boot.
pub(super) struct Guest {
    pub(super) image: PathBuf,
    pub(super) archive: PathBuf,
    /// MiB of its memory that lie below 4 GiB.
    pub(super) low: u64,
    /// MiB that are in zone Movable.
    pub(super) movable: Option<u32>,
}

/// Makes the first file system of the guest, the same for all kernels, however many CPUs they have;
/// with `more` programs: names in the guest, and where they are.
pub(super) fn files(folder: &Path, more: &[(String, PathBuf)]) -> Result<PathBuf, Trouble> {
    let ours = build::root().join("os/linux/built");
    let mut inside = vec![("bin/busybox".to_owned(), folder.join("tools/bin/busybox"))];
    inside.extend(["init", "accounts"].map(|name| (name.to_owned(), ours.join(name))));
    for names in ["loads.c machine.c walks.c atomic.c", "port.c"] {
        let sources: Vec<PathBuf> = names.split(' ').map(|name| ours.join(name)).collect();
        inside.push(objects::program(folder, &sources)?);
    }
    inside.extend_from_slice(more);
    let folders = "bin dev lib lib64 ltp mm out proc sys tmp".split(' ');
    let mut list: String = folders.map(|name| format!("dir /{name} 0755 0 0\n")).collect();
    for (name, path) in inside {
        list += &format!("file /{name} {} 0755 0 0\n", path.display());
    }
    let [listed, maker, archive] =
        ["initramfs.list", "gen_init_cpio", "initramfs.cpio"].map(|name| folder.join(name));
    fs::write(&listed, list)?;
    let source = folder.join("source/usr/gen_init_cpio.c");
    tools::run(Command::new("cc").args(["-O2", "-o"]).arg(&maker).arg(source))?;
    tools::run(Command::new(maker).arg("-o").arg(&archive).arg(listed))?;
    Ok(archive)
}

/// Runs a guest that is told those words; how it ended, and each line that it printed. They are
/// shown at once, but for what a load counts. Memory that is allocated is not zeroed by the kernel:
/// that would be measured, too, and not of ours. Nor does it give up where a busy machine delays
/// its timers.
pub(super) fn run(
    machine: &Machine,
    guest: &Guest,
    words: &[String],
    limit: u64,
) -> Result<(End, Vec<String>), Trouble> {
    let always = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check init_on_alloc=0";
    let movable = guest.movable.map_or(String::new(), |mib| format!(" movablecore={mib}M"));
    let line = format!("{always}{movable} {}", words.join(" "));
    let machine = of_kernels(machine, guest);
    let mut child = machine.start(&guest.image, &line, Stdio::piped()).map_err(Trouble::Wrong)?;
    let stdout = child.stdout.take().map(BufReader::new);
    let reader = std::thread::spawn(move || {
        let lines = stdout.into_iter().flat_map(|of| of.split(b'\n')).map_while(Result::ok);
        let shown = lines.map(|line| {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.starts_with("snap\t") {
                println!("{line}");
            }
            line
        });
        shown.collect()
    });
    let end = Machine::wait(&mut child, Duration::from_secs(limit)).map_err(Trouble::Wrong)?;
    let lines = reader.join();
    Ok((end, lines.map_err(|_| Trouble::Wrong("the guest's output was not read".to_owned()))?))
}

/// Boots a kernel once; how it ended, and a row for each load. A kernel whose log tells of trouble
/// has failed, but for the RFC's as posted, whose defects are shown and not hidden.
pub(super) fn boot(
    machine: &Machine,
    guest: &Guest,
    kind: &Kind,
    (number, nodes): (u32, u8),
    loads: &[Load],
    limit: u64,
) -> Result<(End, Vec<Row>), Trouble> {
    let design = kind.design;
    let mut words = words(kind);
    words.push(loads::word(loads));
    words.extend(not_told_of(machine, guest.low, loads).map(|end| format!("mem={end}M")));
    words.extend((nodes > 1).then(|| format!("numa=fake={nodes}")));
    let started = Instant::now();
    let (end, lines) = run(machine, guest, &words, limit)?;
    if lines.is_empty() && end != End::Passed {
        return Err(Trouble::Wrong(format!("{} did not begin: {end:?}", kind.name())));
    }
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{}, boot {number}: {end:?} after {seconds:.0} s", kind.name());
    let snapshots = Snapshots::of(&lines);
    let rows = loads.iter().filter_map(|load| {
        let row = snapshots.row(load.name, design, (machine.cpus, nodes), number);
        if row.is_none() {
            eprintln!("{}, boot {number}: {} has no row", kind.name(), load.name);
        }
        row
    });
    let rows: Vec<Row> = rows.collect();
    if end == End::Passed && rows.len() != loads.len() {
        return Err(Trouble::Wrong(format!("{} did not count all loads", kind.name())));
    }
    let reported = snapshots.reports();
    if reported > 0 {
        eprintln!("{}, boot {number}: {reported} reports in the kernel's log", kind.name());
    }
    let failed = end == End::Passed && reported > 0 && design != Design::Rfc;
    Ok((if failed { End::Failed } else { end }, rows))
}

/// What a kernel is told whatever runs in it.
pub(super) fn words(kind: &Kind) -> Vec<String> {
    let mut words = Vec::new();
    // Reports of checks are long, and all are looked at.
    words.extend((!kind.checks.is_empty()).then(|| "log_buf_len=4M".to_owned()));
    // Each 400th access is watched, not each 4,000th, and for longer than the kernel would: the
    // other CPU is translated, and may wait for a core meanwhile.
    let races = kind.checks.contains(&Check::Kcsan);
    words.extend(races.then(|| "kcsan.skip_watch=400 kcsan.udelay_task=200".to_owned()));
    // What has gone wrong for good ends the machine at once; the RFC's kernel goes on as it was
    // posted.
    words.extend((kind.design != Design::Rfc).then(|| "oops=panic".to_owned()));
    // The guest looks whether it does, and whether it counts rightly.
    words.extend((kind.design == Design::Freehold).then(|| "built.freehold".to_owned()));
    words
}

/// Where the memory ends that the kernel is told of, in MiB, if a load adds the rest.
fn not_told_of(machine: &Machine, low: u64, loads: &[Load]) -> Option<u64> {
    let memory: u64 = machine.memory.trim_end_matches('M').parse().ok()?;
    let added = loads.iter().find(|load| load.name == loads::ADDED)?;
    Some(4096 + memory.checked_sub(low + loads::SECTION * u64::from(added.rounds))?)
}

fn of_kernels(machine: &Machine, guest: &Guest) -> Machine {
    let mut machine = machine.clone();
    // Zone Normal begins at 4 GiB, and most of the machine's memory does unless somebody says more.
    let low = format!("pc,max-ram-below-4g={}M", guest.low);
    machine.extra.extend(["-machine".into(), low.into()]);
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
    fn row(&self, load: &str, design: Design, (vcpus, nodes): (u8, u8), boot: u32) -> Option<Row> {
        let count = |what, when| self.counts.get(&(load, what, when)).copied();
        let during = |what| Some(count(what, "after")? - count(what, "before")?);
        let other = |what| {
            let before = count(what, "before").unwrap_or(0);
            (what, count(what, "after").map_or(0, |after| after - before))
        };
        let free = |order| {
            let what = format!("free_order_{order}");
            self.counts.get(&(load, what.as_str(), "after")).copied().unwrap_or(0)
        };
        Some(Row {
            kernel: design.name(),
            version: self.version.to_owned(),
            workload: load.to_owned(),
            vcpus,
            nodes,
            boot,
            zone_locks: during("zone_locks")?,
            zone_waits: during("zone_waits")?,
            // What has no such file has no such zones.
            freehold_locks: during("locks_since").unwrap_or(0),
            refills: during("refills")?,
            drains: during("drains")?,
            free_blocks_after: count("kernel_blocks", "after")?,
            reports: during("reports")?,
            others: OTHERS.split_whitespace().map(other).collect(),
            free_by_order: (0..=MAX_ORDER).map(free).collect(),
        })
    }

    /// At the last load's end: those of the boot before the first load as well.
    fn reports(&self) -> i64 {
        let reports = self.counts.iter().filter(|((_, what, _), _)| *what == "reports");
        reports.map(|(_, &reports)| reports).max().unwrap_or(0)
    }
}

/// The highest order of the kernel's lists.
const MAX_ORDER: usize = 10;

/// What is told beside the table, and has no field of its own in a row.
pub(super) const OTHERS: &str = "\
    exercised_thread exercised_thread_nothing exercised_hardirq \
    exercised_hardirq_nothing exercised_nmi exercised_nmi_nothing pgscan_kswapd pgsteal_kswapd \
    pgscan_direct pgsteal_direct phase0_frames phase1_frames phase2_frames phase3_frames \
    drained_frames merges remote_frees shared_writes thp_fault_alloc thp_fault_fallback \
    compact_success compact_fail compact_stall compact_migrate_scanned compact_free_scanned \
    compact_daemon_wake compact_daemon_migrate_scanned oom_kill pgmigrate_success pswpin \
    pswpout filled_MiB huge_from_pieces blocks_made_whole blocks_wanted blocks_had \
    scanners_apart cpus_gone memory_gone memory_stayed added_MiB ranges_had ranges_busy \
    cma_had split_deferred huge_pages_had left_beside_cma broken_pages reported_MiB \
    reported_later_MiB atomic_kept_blocks atomic_pages_beside atomic_given_up_blocks \
    looks rounds emptied not_emptied had_of_pinned put_off had_once_movable \
    thp_collapse_alloc thp_collapse_alloc_failed races";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_of_less_where_a_load_adds_the_rest() {
        let machine = Machine {
            qemu: PathBuf::new(),
            cpus: 2,
            memory: "2560M".to_owned(),
            accelerator: crate::qemu::Accelerator::Kvm,
            extra: Vec::new(),
        };
        let load = |name, rounds| [Load { name, rounds }];
        assert_eq!(not_told_of(&machine, 512, &load("exit", 2)), None);
        assert_eq!(not_told_of(&machine, 512, &load(loads::ADDED, 2)), Some(4096 + 2048 - 256));
        assert_eq!(not_told_of(&machine, 512, &load(loads::ADDED, 17)), None, "not so much");
    }

    /// The guest's own function, with a log of ours.
    #[test]
    fn a_race_is_ours_where_a_stack_goes_through_a_function_of_ours() {
        let init = fs::read_to_string(build::root().join("os/linux/built/init")).unwrap();
        let (_, rest) = init.split_once("\nraces() {\n").unwrap();
        let (body, _) = rest.split_once("\n}\n").unwrap();
        let line = "=".repeat(66);
        let log = format!(
            "[1.0] {line}\n[1.0] BUG: KCSAN: data-race in a / b\n\
             [1.0]  fh_page+0x3/0x9\n[1.0] {line}\n\
             [1.1] {line}\n[1.1] BUG: KCSAN: data-race in c / d\n\
             [1.1]  tick+0x3/0x9\n[1.1] {line}\n\
             [1.2] freehold: fh_counts\n"
        );
        let script =
            format!("log=$1\ndmesg() {{ printf %s \"$log\"; }}\nraces() {{\n{body}\n}}\nraces");
        let told = std::process::Command::new("sh").args(["-c", &script, "sh", &log]).output();
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        assert_eq!(told, "ours: data-race in a / b\nkernel: data-race in c / d\n");
    }

    #[test]
    fn a_row_is_what_was_counted_in_between() {
        let mut lines = vec!["guest: Linux 7.1.3, 2 CPUs, 1900 MiB".to_owned()];
        let counts = "zone_locks zone_waits refills drains kernel_blocks reports";
        for (when, at) in [("before", 10), ("after", 17)] {
            let line = |what| format!("snap\t{when}\texit\t{what}\t{at}");
            lines.extend(counts.split(' ').map(line));
        }
        // What was not there before has been nothing.
        lines.push("snap\tafter\texit\tcpus_gone\t8".to_owned());
        lines.push("snap\tafter\texit\tfree_order_10\t71".to_owned());
        lines.push("snap\tbefore\tarena\tzone_locks\t5".to_owned());
        let snapshots = Snapshots::of(&lines);
        let row = snapshots.row("exit", Design::Vanilla, (2, 1), 3).unwrap();
        assert_eq!((row.zone_locks, row.free_blocks_after, row.freehold_locks), (7, 17, 0));
        assert!(row.others.contains(&("cpus_gone", 8)) && row.others.contains(&("pswpin", 0)));
        assert_eq!(row.free_by_order, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 71]);
        assert_eq!(snapshots.reports(), 17);
        assert_eq!((row.version.as_str(), row.kernel, row.boot), ("7.1.3", "vanilla", 3));
        // A load that the machine died in has no row.
        assert!(snapshots.row("arena", Design::Vanilla, (2, 1), 3).is_none());
    }
}
