//! Recording a trace on the running kernel, through a tracefs instance of our own.
//!
//! ```text
//!  kernel ──> ring buffer, one a CPU (instances/freehold-PID) ──> text ──> events ──> Parquet
//!             in memory while the workload runs                   after it has ended
//! ```
//!
//! Nothing is read while the workload runs: a reader would allocate pages, take CPU time and so
//! record itself. The price is that everything must fit into the ring buffers; what does not is
//! lost, oldest first, and the kernel counts it. A trace with holes is of little use (a free
//! without its allocation, a frame allocated twice), so it is not kept unless asked for.
//!
//! That is for workloads with an end. [`Window`] keeps the last seconds of a machine instead.
//!
//! An instance has its own buffers, events and clock: whatever else is traced on the machine goes
//! on undisturbed, and removing the instance's directory leaves nothing behind.

mod drain;
mod read_out;
mod tracefs;
mod window;

use std::fs;
use std::io::Write;
use std::path::Path;

use self::read_out::ReadOut;
use crate::buddyinfo::parse_buddyinfo;
use crate::machine::Pages;
use crate::{Packed, TraceMeta, TraceWriter, Written, ticks, zoneinfo};

pub use drain::{Drained, drain_lists};
pub use tracefs::{Instance, RecordError, Tracefs};
pub use window::{Dumped, Window};

/// The events that `freehold replay` and `freehold replay fidelity` need, in group `kmem`.
pub const EVENTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
    "mm_page_alloc_zone_locked",
];

/// What the ring buffers hold and have lost, over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Events held.
    pub entries: u64,
    /// Events since the start: held, overwritten or read out.
    pub seen: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Events overwritten or dropped because a buffer was full.
    pub lost: u64,
    /// Those of them that were overwritten, the oldest first.
    pub overwritten: u64,
    /// Since when every CPU's buffer has all of its events, on the trace's clock; 0 where nothing
    /// was overwritten.
    pub whole_from_ns: u64,
}

/// What to write with the events.
#[derive(Clone, Debug)]
pub struct About {
    /// What was recorded: the name in tables.
    pub name: String,
    /// The command that ran, if one did.
    pub command: Option<String>,
    /// Seconds that were recorded.
    pub seconds: f64,
    /// Bytes of a page, which no file of `/proc` says.
    pub page_size: u64,
    /// The recorder's own command line.
    pub command_line: String,
    /// The recorder's own version.
    pub program: String,
    /// The machine's files: [`describe_memory`] before and after.
    pub files: Packed,
    /// What made a flight recorder write it.
    pub trigger: Option<String>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Rows.
    pub written: Written,
    /// Events that are missing in it.
    pub lost: u64,
    /// What is packed into it: when the periodic work ran (where [`Instance::records_ticks`] says
    /// so), `/proc/zoneinfo` before and after, and other descriptions of memory.
    pub files: Packed,
}

/// Takes `/proc/zoneinfo`, `buddyinfo` and `pagetypeinfo` down, those that may be read, as of
/// `when` (`before` or `after`). Whether they are of one moment, as far as can be told: a replay
/// refuses those that are not.
pub fn describe_memory(files: &mut Packed, when: &str) -> bool {
    let [zones, buddies, _] = ["zoneinfo", "buddyinfo", "pagetypeinfo"].map(|kind| {
        let text = fs::read(Path::new("/proc").join(kind)).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        files.insert(format!("{kind}.{when}.txt"), text.as_str());
        Some(text)
    });
    zones.zip(buddies).is_none_or(|(zones, buddies)| agree(&zones, &buddies))
}

/// Whether free memory of each zone is the same in both, to 1 %.
fn agree(zones: &str, buddies: &str) -> bool {
    let (Ok(zones), Ok(buddies)) = (zoneinfo::parse(zones), parse_buddyinfo(buddies)) else {
        return true;
    };
    buddies.iter().all(|free| {
        let pages: u64 = free.chunks.iter().enumerate().map(|(order, n)| n << order).sum();
        let zone = zones.iter().find(|zone| zone.node == free.node && zone.name == free.zone);
        zone.is_none_or(|zone| zone.free.abs_diff(pages) <= zone.free / 100)
    })
}

/// Notes what each page is, by `/proc/kpageflags`, if that may be read. It takes some 35 ms for
/// each GiB, so before the recording.
pub fn describe_pages(files: &mut Packed) {
    if let Ok(pages) = Pages::open(Path::new("/proc/kpageflags")) {
        files.insert("pages.before.txt", pages.text());
    }
}

/// Between quick (3) and small (19).
const ZSTD_LEVEL: i32 = 9;

/// What of `/proc/sys` and `/sys` decides where pages go, as far as the kernel has it.
const SETTINGS: [&str; 12] = [
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/vm/watermark_scale_factor",
    "/proc/sys/vm/watermark_boost_factor",
    "/proc/sys/vm/percpu_pagelist_high_fraction",
    "/proc/sys/vm/lowmem_reserve_ratio",
    "/proc/sys/vm/extfrag_threshold",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/vm/defrag_mode",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/swappiness",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
];

fn line_of(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().replace('\t', " "))
}

/// Reads a stopped instance out, makes a Parquet trace of it, and says what it is. `path` is for
/// messages, `progress` is told how many events are done.
///
/// # Errors
///
/// Where the text cannot be read or the trace cannot be written; what was written is no trace then.
pub fn write(
    instance: &Instance,
    lost: u64,
    about: &About,
    (output, path): (impl Write + Send, &Path),
    mut progress: impl FnMut(u64),
) -> Result<Recording, RecordError> {
    let mut writer = TraceWriter::new(output, path, meta(about), ZSTD_LEVEL)?;
    let mut reading = instance.read_out((0, u64::MAX), &about.files)?;
    let (mut done, mut events, mut has_more) = (0, Vec::new(), true);
    while has_more {
        has_more = reading.next(&mut events)?;
        writer.write(&events)?;
        done += events.len() as u64;
        progress(done);
        events.clear();
    }
    finish(instance, writer, lost, reading.read)
}

/// Completes what a recording says about itself.
fn finish(
    instance: &Instance,
    mut writer: TraceWriter<impl Write + Send>,
    lost: u64,
    mut read: ReadOut,
) -> Result<Recording, RecordError> {
    let lost = lost + read.too_late;
    writer.set_lost_events(lost);
    let files = writer.files_mut();
    if instance.records_ticks() {
        // A file without times would say that there were none.
        // Lines of several CPUs may be out of order by what their clocks differ.
        read.ticks.sort_by_key(|tick| tick.ts_ns);
        files.insert(format!("{}.txt", ticks::KIND), ticks::written(&read.ticks));
    }
    let files = files.clone();
    Ok(Recording { written: writer.finish()?, lost, files })
}

/// What a recording says about itself.
fn meta(about: &About) -> TraceMeta {
    let mut extra = serde_json::Map::new();
    if let Some(command) = &about.command {
        extra.insert("command".into(), command.clone().into());
    }
    if let Some(trigger) = &about.trigger {
        extra.insert("trigger".into(), trigger.clone().into());
    }
    extra.insert("recorded_seconds".into(), about.seconds.into());
    extra.insert("page_size".into(), about.page_size.into());
    extra.insert("recorder".into(), about.program.clone().into());
    extra.insert("command_line".into(), about.command_line.clone().into());
    if let Some(host) = line_of("/proc/sys/kernel/hostname") {
        extra.insert("host".into(), host.into());
    }
    let settings = SETTINGS.iter().filter_map(|path| Some((*path, line_of(path)?)));
    extra.insert("settings".into(), settings.collect());
    TraceMeta {
        name: about.name.clone(),
        kernel: tracefs::kernel(),
        cpus: u16::try_from(tracefs::cpus()).ok(),
        lost_events: None,
        files: about.files.clone(),
        extra,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::{EventKind, OpenOptions, Source, TraceReader};
    use freehold::{Migratetype, Order, Pfn};

    const TEXT: &str = "# tracer: nop
            make-77    [002] .....     5.000001: mm_page_free: page=x pfn=0x10 order=0
     kworker/1:0-19581 [001] .....     5.000002: workqueue_execute_start: work struct 0: function vmstat_update
";

    /// A directory as an instance of a kernel that can pick events out by function, or cannot.
    pub(super) fn instance(picks_out: bool) -> (tempfile::TempDir, Instance) {
        let folder = tempfile::tempdir().unwrap();
        for event in EVENTS {
            fs::create_dir_all(folder.path().join("events/kmem").join(event)).unwrap();
        }
        let work = folder.path().join("events/workqueue/workqueue_execute_start");
        fs::create_dir_all(&work).unwrap();
        if !picks_out {
            // What cannot be written to, by root either.
            fs::create_dir(work.join("filter")).unwrap();
        }
        fs::write(folder.path().join("trace_pipe"), TEXT).unwrap();
        let mut instance = Instance::new(folder.path().to_owned());
        instance.prepare(64).unwrap();
        (folder, instance)
    }

    pub(super) fn about() -> About {
        About {
            name: "t".into(),
            command: None,
            seconds: 1.0,
            page_size: 65536,
            command_line: "freehold record -o t.parquet".into(),
            program: "freehold 1".into(),
            files: Packed::default(),
            trigger: Some("a test".into()),
        }
    }

    #[test]
    fn files_of_different_moments_are_told() {
        let head = "Node 0, zone   Normal\n  pages free     ";
        let rest = "\n  min 30\n  low 50\n  high 70\n  spanned 9000\n  present 9000\n  managed 9000\n  \
                    pagesets\n    cpu: 0\n  count: 3\n  high: 10\n  batch: 1\n  start_pfn: 65536\n";
        let zones = |free| format!("{head}{free}{rest}");
        assert!(zoneinfo::parse(&zones(9)).is_ok());
        let buddies = "Node 0, zone   Normal 500 250 0 0 0 0 0 0 0 0 1\n";
        for (free, as_well) in [(2024, true), (2044, true), (2045, false), (1990, false)] {
            assert_eq!(agree(&zones(free), buddies), as_well, "{free}");
        }
    }

    /// One that is 2 ms before the last is for no reader; and types have the numbers of the machine.
    #[test]
    fn what_came_too_late_is_lost_and_types_are_the_machines() {
        let (folder, instance) = instance(true);
        let row = |at: &str, event: &str| format!("make-77 [002] ..... {at}: mm_page_{event}\n");
        let late = row("4.998001", "free: page=x pfn=0x11 order=0");
        let drain = row("5.000003", "pcpu_drain: page=x pfn=0x20 order=0 migratetype=4");
        fs::write(folder.path().join("trace_pipe"), [TEXT, &late, &drain].concat()).unwrap();
        let types = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate"];
        let free = types.map(|of| format!("Node 0, zone Normal, type {of} 0\n")).concat();
        let info = format!(
            "Page block order: 9\nPages per block: 512\n\nFree pages count per migrate type at \
             order 0\n{free}\nNumber of blocks type {}\nNode 0, zone Normal 1 1 1 1 0\n",
            types.join(" ")
        );
        let mut about = about();
        about.files.insert("pagetypeinfo.before.txt", info);
        let path = folder.path().join("t.parquet");
        let file = File::create(&path).unwrap();
        let written = write(&instance, 0, &about, (file, &path), |_| {}).unwrap();
        let mut reader = TraceReader::open(&Source::Path(path), OpenOptions::default()).unwrap();
        assert_eq!((written.lost, reader.info().lost_events), (1, Some(1)));
        let (mut events, mut last) = (Vec::new(), None);
        while reader.next_batch(&mut events).unwrap() {
            last = events.last().map(|event| event.kind);
        }
        let (pfn, order) = (Pfn::new(0x20), Order::ZERO);
        let migratetype = Migratetype::Isolate as u8;
        assert_eq!(last, Some(EventKind::PcpuDrain { pfn, order, migratetype }));
    }

    /// An empty list of times would say that the periodic work never ran.
    #[test]
    fn times_of_the_periodic_work_that_cannot_be_recorded_are_not_written() {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("t.parquet");
        let mut about = about();
        about.files.insert("zoneinfo.before.txt", "Node 0, zone Normal");
        for picks_out in [true, false] {
            let (_folder, instance) = instance(picks_out);
            assert_eq!(instance.records_ticks(), picks_out);
            let file = File::create(&path).unwrap();
            let written = write(&instance, 0, &about, (file, &path), |_| {}).unwrap();
            let source = Source::Path(path.clone());
            let files = crate::packed_files(&source).unwrap();
            assert_eq!(files, written.files);
            assert_eq!(files.get(ticks::KIND).is_some(), picks_out);
            assert_eq!(files.get("zoneinfo").unwrap().1, "Node 0, zone Normal");
            let reader = TraceReader::open(&source, OpenOptions::default()).unwrap();
            let info = reader.info();
            assert_eq!(info.page_size, Some(65536), "the machine's, not the engines'");
            assert_eq!(info.description["command_line"], about.command_line);
            assert!(info.description["settings"].is_object());
            assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "one file");
        }
    }
}
