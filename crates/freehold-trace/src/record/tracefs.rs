//! The kernel's tracing files: a mount, an instance with its own buffers, its switches and its
//! statistics.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{EVENTS, Tally};
use crate::{TraceError, ticks};

/// Where tracefs is usually mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An instance's file of [`Instance::pipe`].
pub(super) const PIPE: &str = "trace_pipe";

/// An instance's name begins with this; the number of its process follows.
const INSTANCE: &str = "freehold-";

/// Why nothing was recorded, or what was recorded was not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no tracefs where it was looked for.
    #[error("there is no tracefs at {}", shown(places))]
    NoTracefs {
        /// Where.
        places: Vec<PathBuf>,
    },
    /// The kernel does not have one of the events.
    #[error("this kernel has no event kmem:{event}")]
    NoEvent {
        /// Its name.
        event: &'static str,
    },
    /// One of the kernel's files could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Kernel {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The memory is too little for the buffers of all CPUs.
    #[error("too little memory for the buffers of {cpus} CPUs: each needs 16 KiB")]
    TooLittle {
        /// CPUs.
        cpus: usize,
    },
    /// The kernel's text could not be read as a trace, or the trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl RecordError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoTracefs { .. } => Some(
                "mount it (mount -t tracefs none /sys/kernel/tracing), or name it with --tracefs",
            ),
            Self::NoEvent { .. } => Some(
                "the kernel must be built with CONFIG_TRACING and have the kmem:mm_page_* events",
            ),
            Self::Kernel { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("recording needs root: the events show what every process on the machine does")
            }
            Self::Kernel { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
                Some("the kernel has no memory for buffers of that size: choose a smaller --buffer")
            }
            _ => None,
        }
    }
}

fn shown(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" or ")
}

/// A mounted tracefs.
#[derive(Clone, Debug)]
pub struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// The one at `root`, or where it usually is.
    ///
    /// # Errors
    ///
    /// [`RecordError::NoTracefs`], and [`RecordError::NoEvent`] where the kernel lacks an event
    /// that is needed.
    pub fn find(root: Option<&Path>) -> Result<Self, RecordError> {
        let places: Vec<PathBuf> = match root {
            Some(root) => vec![root.to_owned()],
            None => MOUNTS.map(PathBuf::from).to_vec(),
        };
        let mut denied = None;
        for root in &places {
            match fs::metadata(root.join("events")) {
                Ok(_) => {
                    let tracefs = Self { root: root.clone() };
                    let missing = EVENTS
                        .into_iter()
                        .find(|event| !tracefs.root.join("events/kmem").join(event).exists());
                    return missing
                        .map_or(Ok(tracefs), |event| Err(RecordError::NoEvent { event }));
                }
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    denied = Some(RecordError::Kernel { path: root.clone(), source });
                }
                Err(_) => {}
            }
        }
        Err(denied.unwrap_or(RecordError::NoTracefs { places }))
    }

    /// The instances of recorders that are gone: one that was killed (SIGKILL) cannot remove its
    /// own, and its events stay switched on. By the number in the name, which says nothing of a
    /// process in another PID namespace: so they are told, not removed.
    #[must_use]
    pub fn left_behind(&self) -> Vec<PathBuf> {
        let instances = fs::read_dir(self.root.join("instances")).into_iter().flatten().flatten();
        let gone = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let pid = name
                .and_then(|name| name.strip_prefix(INSTANCE))
                .and_then(|pid| pid.parse::<u32>().ok());
            pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
        };
        instances.map(|instance| instance.path()).filter(gone).collect()
    }

    /// Makes an instance, switched off, with that many KiB of buffer for each CPU. It records none
    /// of this process's own allocations, where the kernel can be told so.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`]; nothing is left behind then.
    pub fn instance(&self, buffer_kib: u64) -> Result<Instance, RecordError> {
        let path = self.root.join("instances").join(format!("{INSTANCE}{}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|source| RecordError::Kernel { path: path.clone(), source })?;
        // From here on dropping it removes it.
        let mut instance = Instance::new(path);
        instance.prepare(buffer_kib)?;
        Ok(instance)
    }
}

/// Buffers and switches of our own; removed when dropped.
#[derive(Debug)]
pub struct Instance {
    pub(super) path: PathBuf,
    records_ticks: bool,
}

impl Instance {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, records_ticks: false }
    }

    /// Sets the buffers and switches of one that has just been made.
    pub(super) fn prepare(&mut self, buffer_kib: u64) -> Result<(), RecordError> {
        self.set("tracing_on", "0")?;
        self.resize(buffer_kib)?;
        self.set("trace_clock", "mono")?;
        // Newer than some kernels; without it the trace has a few events more.
        let _ = self.set("set_event_notrace_pid", &std::process::id().to_string());
        for event in EVENTS {
            self.set(&format!("events/kmem/{event}/enable"), "1")?;
        }
        // Linux before 6.6 cannot pick it out by name: better without it than with all work of the
        // machine.
        let of_lists = format!("function.function == {}", ticks::FUNCTION);
        let event = "events/workqueue/workqueue_execute_start";
        let picked_out = self.set(&format!("{event}/filter"), &of_lists);
        let switched_on = picked_out.and_then(|()| self.set(&format!("{event}/enable"), "1"));
        self.records_ticks = switched_on.is_ok();
        Ok(())
    }

    /// Whether it records when the periodic work of the CPUs' lists runs, which Linux before 6.6
    /// cannot be asked for alone.
    #[must_use]
    pub fn records_ticks(&self) -> bool {
        self.records_ticks
    }

    /// Gives each CPU's buffer that many KiB; what no longer fits, the oldest, is lost.
    pub(super) fn resize(&self, buffer_kib: u64) -> Result<(), RecordError> {
        self.set("buffer_size_kb", &buffer_kib.to_string())
    }

    /// KiB that all buffers take, also those of CPUs that have gone.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`].
    pub fn total_kib(&self) -> Result<u64, RecordError> {
        let file = "buffer_total_size_kb";
        let text = fs::read_to_string(self.path.join(file));
        let text = text.map_err(|source| self.failed(file, source))?;
        // `2820 (expanded: ...)` before the first use.
        Ok(text.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0))
    }

    /// What is full overwrites its oldest events, whatever the machine's own tracing is set to.
    pub(super) fn overwrite(&self) -> Result<(), RecordError> {
        self.set("options/overwrite", "1")
    }

    /// The file that takes events out as it is read, in the order of time, while recording goes on.
    /// Where there are none, reading it fails at once with [`io::ErrorKind::WouldBlock`].
    pub(super) fn pipe(&self) -> Result<fs::File, RecordError> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened =
            fs::OpenOptions::new().read(true).custom_flags(flags).open(self.path.join(PIPE));
        opened.map_err(|source| self.failed(PIPE, source))
    }

    pub(super) fn set(&self, file: &str, value: &str) -> Result<(), RecordError> {
        fs::write(self.path.join(file), value).map_err(|source| self.failed(file, source))
    }

    pub(super) fn failed(&self, file: &str, source: io::Error) -> RecordError {
        RecordError::Kernel { path: self.path.join(file), source }
    }

    /// Starts recording, from nothing.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`].
    pub fn start(&self) -> Result<(), RecordError> {
        // Writing anything to this file empties the buffers.
        self.set("trace", "")?;
        self.resume()
    }

    /// Goes on recording, with what was recorded before.
    pub(super) fn resume(&self) -> Result<(), RecordError> {
        self.set("tracing_on", "1")
    }

    /// Stops recording; what was recorded stays.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`].
    pub fn stop(&self) -> Result<(), RecordError> {
        self.set("tracing_on", "0")
    }

    /// What the buffers hold and have lost.
    ///
    /// # Errors
    ///
    /// [`RecordError::Kernel`].
    pub fn tally(&self) -> Result<Tally, RecordError> {
        let mut all = Tally::default();
        for one in self.tallies()? {
            all.entries += one.entries;
            all.seen += one.seen;
            all.bytes += one.bytes;
            all.lost += one.lost;
            all.overwritten += one.overwritten;
            let whole_from_ns = if one.overwritten > 0 { one.whole_from_ns } else { 0 };
            all.whole_from_ns = all.whole_from_ns.max(whole_from_ns);
        }
        Ok(all)
    }

    /// That of each CPU, which is whole from its oldest event on.
    pub(super) fn tallies(&self) -> Result<Vec<Tally>, RecordError> {
        let cpus = fs::read_dir(self.path.join("per_cpu"))
            .map_err(|source| self.failed("per_cpu", source))?;
        let of = |cpu: fs::DirEntry| {
            let path = cpu.path().join("stats");
            let text = fs::read_to_string(&path);
            text.map_or_else(
                |source| Err(RecordError::Kernel { path, source }),
                |text| Ok(parse_stats(&text)),
            )
        };
        cpus.flatten().map(of).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
        // A directory of the kernel's: removing it removes what is in it. It goes with a reboot at
        // the latest.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Reads `per_cpu/cpuN/stats`: lines of `name: number`.
fn parse_stats(text: &str) -> Tally {
    let number = |name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let overwritten = number("overrun");
    let oldest = text.lines().find_map(|line| seconds(line.strip_prefix("oldest event ts:")?));
    let entries = number("entries");
    Tally {
        entries,
        seen: entries + overwritten + number("read events"),
        bytes: number("bytes"),
        lost: overwritten + number("commit overrun") + number("dropped events"),
        overwritten,
        whole_from_ns: oldest.unwrap_or(0),
    }
}

/// `5172.912345` in nanoseconds, rounded up to the next microsecond.
fn seconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.trim().split_once('.')?;
    let micros = micros.parse::<u64>().ok().filter(|_| micros.len() == 6)?;
    let all = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros + 1)?;
    all.checked_mul(1000)
}

/// CPUs that are online, whichever of them this process may run on.
pub(super) fn cpus() -> usize {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    online.trim().split(',').map(count).sum::<Option<usize>>().unwrap_or(1).max(1)
}

/// The kernel that runs, as `uname -srv` prints it.
pub(super) fn kernel() -> Option<String> {
    let read = |name: &str| fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok();
    let (kind, release, version) = (read("ostype")?, read("osrelease")?, read("version")?);
    Some(format!("{} {} {}", kind.trim(), release.trim(), version.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_processes_that_are_gone_are_told_from_others() {
        let root = tempfile::tempdir().unwrap();
        let instances = root.path().join("instances");
        // 4,194,304 is the largest PID there can be.
        let names = ["freehold-4194305", "freehold-probe-1", "someone-4194305", "freehold-"];
        names.into_iter().for_each(|name| fs::create_dir_all(instances.join(name)).unwrap());
        fs::create_dir(instances.join(format!("freehold-{}", std::process::id()))).unwrap();
        let tracefs = Tracefs { root: root.path().to_owned() };
        assert_eq!(tracefs.left_behind(), [instances.join("freehold-4194305")]);
    }

    #[test]
    fn statistics_are_read_by_name() {
        let text = "entries: 129\noverrun: 7\ncommit overrun: 2\nbytes: 6012\noldest event ts:  5172.900001\n\
                    now ts:  5173.1\ndropped events: 4\nread events: 1\n";
        let (lost, overwritten, whole_from_ns) = (13, 7, 5_172_900_002_000);
        let tally =
            Tally { entries: 129, seen: 137, bytes: 6012, lost, overwritten, whole_from_ns };
        assert_eq!(parse_stats(text), tally);
        assert_eq!(parse_stats("something else"), Tally::default());
        let folder = tempfile::tempdir().unwrap();
        let cpu = folder.path().join("per_cpu/cpu0");
        fs::create_dir_all(&cpu).unwrap();
        let instance = Instance::new(folder.path().to_owned());
        for (overrun, whole_from_ns) in [("overrun: 0", 0), ("overrun: 7", whole_from_ns)] {
            fs::write(cpu.join("stats"), text.replace("overrun: 7", overrun)).unwrap();
            assert_eq!(instance.tally().unwrap().whole_from_ns, whole_from_ns, "{overrun}");
        }
    }
}
