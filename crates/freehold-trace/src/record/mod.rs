//! Recording a trace on the running kernel, through a tracefs instance of our own.
//!
//! ```text
//!  kernel ──> ring buffer, one a CPU (instances/freehold-PID) ──> text ──> TraceReader ──> Parquet
//!             in memory while the workload runs                   after it has ended
//! ```
//!
//! Nothing is read while the workload runs: a reader would allocate pages, take CPU time and so
//! record itself. The price is that everything must fit into the ring buffers; what does not is
//! lost, oldest first, and the kernel counts it. A trace with holes is of little use (a free
//! without its allocation, a frame allocated twice), so it is not kept unless asked for.
//!
//! An instance has its own buffers, events and clock: whatever else is traced on the machine goes
//! on undisturbed, and removing the instance's directory leaves nothing behind.

mod drain;
mod tracefs;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel::Kernel;
use crate::machine::Pages;
use crate::{OpenOptions, Source, TraceError, TraceMeta, TraceReader, TraceWriter, Written, ticks};

pub use drain::{Drained, drain_lists};
pub use tracefs::{Instance, RecordError, Tracefs};

/// The events that `freehold replay` and `freehold replay fidelity` need, in group `kmem`.
pub const EVENTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
    "mm_page_alloc_zone_locked",
];

/// Bytes of a Parquet trace for each event, for estimates: the seven recordings that the model was
/// checked with have between 2.1 and 4.2.
pub const FILE_BYTES_PER_EVENT: f64 = 4.0;

/// How fast events come and how much room they take in the ring buffers, as sampled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Events a second, on all CPUs together.
    pub events_per_second: f64,
    /// Bytes of ring buffer an event.
    pub bytes_per_event: f64,
}

/// Ring-buffer bytes an event where too few came to tell: an allocation, the commonest, is 40 bytes
/// and its header.
const BYTES_PER_EVENT: f64 = 48.0;
/// Fewer events than this tell nothing about their size.
const ENOUGH: u64 = 100;

impl Rate {
    /// What an instance gathered in some time.
    #[must_use]
    pub fn of(tally: Tally, time: Duration) -> Self {
        let known = tally.entries >= ENOUGH && tally.bytes > 0;
        Self {
            events_per_second: tally.entries as f64 / time.as_secs_f64().max(1e-9),
            bytes_per_event: if known {
                tally.bytes as f64 / tally.entries as f64
            } else {
                BYTES_PER_EVENT
            },
        }
    }

    /// Events that fit into one CPU's buffer.
    #[must_use]
    pub fn capacity(&self, buffer_bytes: u64) -> u64 {
        (buffer_bytes as f64 / self.bytes_per_event) as u64
    }
}

/// What the ring buffers hold and have lost, over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Events held.
    pub entries: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Events overwritten or dropped because a buffer was full.
    pub lost: u64,
}

/// What to write beside the events.
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
}

/// What was written, and where.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The trace.
    pub path: PathBuf,
    /// Its rows.
    pub written: Written,
    /// Its size in bytes.
    pub bytes: u64,
    /// When the periodic work ran (where [`Instance::records_ticks`] says so), `/proc/zoneinfo`
    /// before and after, and other descriptions of memory, beside it.
    pub beside: Vec<PathBuf>,
}

/// Where the description `kind` of memory, taken `when` (`before` or `after`), lies beside a trace.
#[must_use]
pub fn beside(trace: &Path, kind: &str, when: &str) -> PathBuf {
    let name = Source::Path(trace.to_owned()).name();
    trace.with_file_name(format!("{name}.{kind}.{when}.txt"))
}

/// Copies `/proc/zoneinfo`, `buddyinfo` and `pagetypeinfo` to files beside the trace; those that
/// exist.
///
/// # Errors
///
/// Where a file cannot be written.
pub fn describe_memory(trace: &Path, when: &str) -> Result<Vec<PathBuf>, RecordError> {
    let mut files = Vec::new();
    for kind in ["zoneinfo", "buddyinfo", "pagetypeinfo"] {
        let Ok(text) = fs::read(Path::new("/proc").join(kind)) else { continue };
        let path = beside(trace, kind, when);
        fs::write(&path, text)
            .map_err(|source| RecordError::Write { path: path.clone(), source })?;
        files.push(path);
    }
    Ok(files)
}

/// Says beside the trace what each page is, by `/proc/kpageflags`, if that may be read. It takes some
/// 35 ms for each GiB, so before the recording.
///
/// # Errors
///
/// Where the file cannot be written.
pub fn describe_pages(trace: &Path) -> Result<Option<PathBuf>, RecordError> {
    let Ok(pages) = Pages::open(Path::new("/proc/kpageflags")) else { return Ok(None) };
    let path = beside(trace, "pages", "before");
    fs::write(&path, pages.text())
        .map_err(|source| RecordError::Write { path: path.clone(), source })?;
    Ok(Some(path))
}

/// Takes the text of a stopped instance, makes a Parquet trace of it, and says what it is.
/// `progress` is told how many events are done.
///
/// # Errors
///
/// Where the text cannot be read or the trace cannot be written; there is no trace then.
pub fn write(
    instance: &Instance,
    lost: u64,
    about: &About,
    path: &Path,
    mut progress: impl FnMut(u64),
) -> Result<Recording, RecordError> {
    // A copy first: the kernel's file changes its mind about its size, and is formatted anew at
    // each reading.
    let mut text =
        tempfile::NamedTempFile::new().map_err(|source| RecordError::Temporary { source })?;
    let mut held =
        File::open(instance.text()).map_err(|source| instance.failed("trace", source))?;
    io::copy(&mut held, text.as_file_mut()).map_err(|source| RecordError::Temporary { source })?;

    let written = convert(text.path(), lost, about, path, &mut progress);
    let ticks = ticks::in_text(BufReader::new(
        text.reopen().map_err(|source| RecordError::Temporary { source })?,
    ));
    let ticks = ticks.map_err(|source| RecordError::Temporary { source })?;
    if written.is_err() {
        // Half a trace is no trace; where even that cannot be removed, the error that matters is
        // the first.
        let _ = fs::remove_file(path);
    }
    let written = written?;
    let bytes = fs::metadata(path).map_or(0, |file| file.len());
    let name = Source::Path(path.to_owned()).name();
    let times = path.with_file_name(format!("{name}.{}.txt", ticks::KIND));
    let mut beside = Vec::new();
    let done = if instance.records_ticks() {
        beside.push(times.clone());
        fs::write(&times, ticks::written(&ticks))
    } else {
        // A file without times would say that there were none; one of an earlier recording of that
        // name, that they were others.
        match fs::remove_file(&times) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    done.map_err(|source| RecordError::Write { path: times, source })?;
    Ok(Recording { path: path.to_owned(), written, bytes, beside })
}

fn convert(
    text: &Path,
    lost: u64,
    about: &About,
    path: &Path,
    progress: &mut impl FnMut(u64),
) -> Result<Written, TraceError> {
    let kernel = tracefs::kernel();
    let options =
        OpenOptions { kernel: kernel.as_deref().and_then(Kernel::parse), ..OpenOptions::default() };
    let mut reader = TraceReader::open(&Source::Path(text.to_owned()), options)?;
    let mut extra = serde_json::Map::new();
    if let Some(command) = &about.command {
        extra.insert("command".into(), command.clone().into());
    }
    extra.insert("recorded_seconds".into(), about.seconds.into());
    extra.insert("page_size".into(), about.page_size.into());
    let meta = TraceMeta {
        name: about.name.clone(),
        kernel,
        cpus: reader.info().cpus,
        lost_events: Some(lost),
        extra,
    };
    let mut writer = TraceWriter::create(path, meta, 9)?;
    let (mut events, mut done) = (Vec::new(), 0);
    while reader.next_batch(&mut events)? {
        writer.write(&events)?;
        done += events.len() as u64;
        progress(done);
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# tracer: nop
            make-77    [002] .....     5.000001: mm_page_free: page=x pfn=0x10 order=0
     kworker/1:0-19581 [001] .....     5.000002: workqueue_execute_start: work struct 0: function vmstat_update
";

    /// A directory as an instance of a kernel that can pick events out by function, or cannot.
    fn instance(picks_out: bool) -> (tempfile::TempDir, Instance) {
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
        fs::write(folder.path().join("trace"), TEXT).unwrap();
        let mut instance = Instance::new(folder.path().to_owned());
        instance.prepare(64).unwrap();
        (folder, instance)
    }

    /// An empty list of times would say that the periodic work never ran.
    #[test]
    fn times_of_the_periodic_work_that_cannot_be_recorded_are_not_written() {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("t.parquet");
        let about = About { name: "t".into(), command: None, seconds: 1.0, page_size: 4096 };
        let ticks = out.path().join("t.ticks.txt");
        for picks_out in [true, false, true, false] {
            let (_folder, instance) = instance(picks_out);
            assert_eq!(instance.records_ticks(), picks_out);
            let written = write(&instance, 0, &about, &path, |_| {}).unwrap();
            assert_eq!(written.beside.contains(&ticks), picks_out);
            // Nor does one of an earlier recording of that name stay.
            assert_eq!(ticks.exists(), picks_out);
        }
    }

    #[test]
    fn descriptions_lie_where_a_replay_looks_for_them() {
        let path = beside(Path::new("/tmp/make.parquet"), "zoneinfo", "before");
        assert_eq!(path, Path::new("/tmp/make.zoneinfo.before.txt"));
    }

    #[test]
    fn few_events_tell_their_rate_but_not_their_size() {
        let second = Duration::from_secs(1);
        let few = Rate::of(Tally { entries: 5, bytes: 5000, lost: 0 }, second);
        assert_eq!((few.events_per_second, few.bytes_per_event), (5.0, BYTES_PER_EVENT));
        let many = Rate::of(Tally { entries: 1000, bytes: 40_000, lost: 0 }, second / 2);
        assert_eq!((many.events_per_second, many.bytes_per_event), (2000.0, 40.0));
        assert_eq!(many.capacity(4096), 102);
    }
}
