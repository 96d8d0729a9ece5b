//! `freehold record`: wrong usage anywhere; real recordings where the kernel's tracing files are
//! there and may be used.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::{assert_refused, freehold, parsed, printed, skipped};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// A folder to record into, where this process may make an instance of the kernel's tracing; says
/// so where it may not.
fn to_record() -> Option<TempDir> {
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()).expect("a test's name");
    let probe = Path::new(INSTANCES).join(format!("freehold-probe-{}-{test}", std::process::id()));
    let can = fs::create_dir(&probe).is_ok();
    let _ = fs::remove_dir(&probe);
    if !can {
        skipped(&format!("{test}: {INSTANCES} cannot be used (root and tracefs)"));
    }
    can.then(|| tempfile::tempdir().unwrap())
}

fn instance_of(recorder: u32) -> PathBuf {
    Path::new(INSTANCES).join(format!("freehold-{recorder}"))
}

fn signal(signal: &str, pid: u32) {
    let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// `freehold record` of a `dd` that writes 64 MiB, in pieces of that size, into a folder.
fn of_dd(piece: [&str; 2], folder: &TempDir, arguments: &[&str], to: &Path) -> assert_cmd::Command {
    let mut record = freehold();
    record.arg("record").args(arguments).arg("-o").arg(to);
    record.args(["--", "dd", "if=/dev/zero"]).args(piece).arg("status=none");
    record.arg(format!("of={}", folder.path().join("zeroes").display()));
    record
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.parquet");
    // Before the command runs: what it did would be lost.
    let marker = folder.path().join("ran");
    let mut command = freehold();
    command.args(["record", "-o", "/nowhere/t.parquet", "--", "touch"]).arg(&marker);
    assert_refused(&mut command, &["there is no folder /nowhere"]);
    assert!(!marker.exists());
    fs::create_dir_all(folder.path().join("events/kmem/mm_page_alloc")).unwrap();
    let (here, empty) = (folder.path().display().to_string(), tempfile::tempdir().unwrap());
    let empty = empty.path().display().to_string();
    for (arguments, said) in [
        (&[][..], &["--duration <TIME>", "<COMMAND>"][..]),
        (&["-d", "10"], &["10s"]),
        (&["-d", "1s", "-b", "1K"], &["16K"]),
        (&["-d", "1s", "--tracefs", &empty], &["no tracefs", "mount -t tracefs"]),
        (&["-d", "1s", "--tracefs", &here], &["kmem:mm_page_free"]),
        (&["-d", "1s", "--memory", "1M"], &["--last"]),
        (&["--last", "1s", "-b", "1M"], &["cannot be used with"]),
        (&["--last", "1s", "--on", "speed>1"], &["unusable[ORDER]"]),
        (&["--last", "1s", "--tracefs", &empty], &["no tracefs"]),
    ] {
        assert_refused(freehold().args(["record", "-o"]).arg(&trace).args(arguments), said);
    }
    assert!(!trace.exists());
    fs::write(&trace, "mine").unwrap();
    assert_refused(freehold().args(["record", "-d", "1s", "-o"]).arg(&trace), &["--force"]);
    assert_eq!(fs::read(&trace).unwrap(), b"mine");
}

/// The files of its machine that a recording has: those of before and after, at least.
fn assert_packed(trace: PathBuf) -> freehold_trace::Packed {
    let files = freehold_trace::packed_files(&freehold_trace::Source::Path(trace)).unwrap();
    let names: Vec<&str> = files.names().collect();
    for kind in ["zoneinfo.before", "zoneinfo.after", "buddyinfo.before", "buddyinfo.after"] {
        assert!(names.contains(&&*format!("{kind}.txt")), "{kind}: {names:?}");
    }
    files
}

#[test]
fn what_a_command_does_is_recorded_and_can_be_replayed() {
    let Some(folder) = to_record() else { return };
    let trace = folder.path().join("copy.parquet");
    let said = parsed(&mut of_dd(["bs=1M", "count=64"], &folder, &["--json"], &trace));
    assert_eq!(said["lost_events"], 0);
    // 64 MiB written are 16,384 pages, in chunks of any size.
    let allocations = said["event_counts"][0].as_u64().unwrap();
    assert!(allocations > 30, "{said}");
    // What the kernel took from the zone is recorded too, which an engine is held against.
    assert!(said["event_counts"][5].as_u64() > Some(0), "{said}");
    // One file: copied alone it is still of that machine.
    let files = assert_packed(trace.clone());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the trace, and what dd wrote");
    // dd may be done before the next tick; that the file is whole is what can be said.
    if let Some((_, ticks)) = files.get("ticks") {
        freehold_trace::ticks::parse(ticks).unwrap();
    }
    printed(freehold().args(["replay", "--json", "-e", "freehold"]).arg(&trace));
    // Nothing stays behind in the kernel: every instance of ours is that of a recorder still
    // running.
    for instance in fs::read_dir(INSTANCES).unwrap().flatten() {
        let name = instance.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("freehold-").and_then(|pid| pid.parse::<u32>().ok());
        let runs = pid.is_none_or(|pid| Path::new("/proc").join(pid.to_string()).exists());
        assert!(runs, "{name} was left behind");
    }
}

#[test]
fn the_last_seconds_are_written_at_each_signal_and_every_file_stands_alone() {
    let Some(root) = to_record() else { return };
    let folder = root.path().join("flight");
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.args(["record", "--last", "2s", "--memory", "4M", "--keep", "2", "--json", "-o"]);
    command.arg(&folder).args(["--on", "free>0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = command.spawn().unwrap();
    let pid = recorder.id();
    let mut said = BufReader::new(recorder.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("free>0: "), "held before: no file");
    while !said.next().unwrap().unwrap().contains("kill -USR1") {}
    let instance = instance_of(pid);
    let total = fs::read_to_string(instance.join("buffer_total_size_kb")).unwrap();
    assert!(total.trim().parse::<u64>().unwrap() <= 4096, "{total}");
    // What cannot be written is said, and recording goes on.
    fs::remove_dir(&folder).unwrap();
    signal("USR1", pid);
    let warning = said.next().unwrap().unwrap();
    assert!(warning.contains("nothing is written for SIGUSR1: cannot write"), "{warning}");
    fs::create_dir(&folder).unwrap();
    let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
    let mut files = Vec::new();
    for _ in 0..3 {
        // The test harness allocates, too, but not always.
        fs::write(root.path().join("some"), vec![1; 1 << 20]).unwrap();
        signal("USR1", pid);
        let line = lines.next().unwrap().unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(said["trigger"] == "SIGUSR1" && said["events"].as_u64() > Some(0), "{line}");
        assert!(said["events_seen"].as_u64() >= said["events"].as_u64(), "{line}");
        assert!(said["buffer_bytes"].as_u64() <= Some(4 << 20), "{line}");
        assert!(said["recorder_peak_bytes"].as_u64() > Some(1 << 20), "{line}");
        files.push(said["trace"].as_str().unwrap().to_owned());
        assert_eq!(said["removed"].as_array().unwrap().len(), usize::from(files.len() == 3));
    }
    signal("INT", pid);
    assert_eq!(recorder.wait().unwrap().code(), Some(130));
    assert!(!instance.exists(), "{instance:?} was left behind");
    assert!(!Path::new(&files[0]).exists(), "two are kept");
    for file in &files[1..] {
        let alone = root.path().join("alone.parquet");
        fs::copy(file, &alone).unwrap();
        printed(freehold().args(["replay", "--json", "-e", "freehold"]).arg(&alone));
        assert_packed(alone);
    }
}

/// What the file, the terminal and the JSON say is one number.
#[test]
fn buffers_that_are_too_small_are_said() {
    let Some(folder) = to_record() else { return };
    let flight = folder.path().join("flight");
    let memory = format!("{}K", 32 * std::thread::available_parallelism().unwrap().get());
    let arguments = ["--last", "60s", "--memory", &memory, "--json"];
    let said = parsed(&mut of_dd(["bs=4K", "count=16384"], &folder, &arguments, &flight));
    assert_eq!((&said["trigger"], &said["buffers_too_small"]), (&"the end".into(), &true.into()));
    let file = said["trace"].as_str().unwrap();
    let source = freehold_trace::Source::Path(file.into());
    let reader = freehold_trace::TraceReader::open(&source, Default::default()).unwrap();
    assert_eq!(reader.info().lost_events, said["lost_events"].as_u64());
}

#[test]
fn a_recording_that_is_ended_is_written_and_leaves_nothing_behind() {
    let Some(folder) = to_record() else { return };
    for name in ["INT", "TERM", "HUP"] {
        let trace = folder.path().join(name).with_extension("parquet");
        let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
        command.args(["record", "-d", "60s", "-b", "1M", "--allow-lost", "-o"]).arg(&trace);
        let mut recorder = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let instance = instance_of(recorder.id());
        // A new instance is on until the recorder switches it off, before it asks for any event.
        for switch in ["events/kmem/mm_page_alloc/enable", "tracing_on"] {
            let switch = instance.join(switch);
            while !fs::read_to_string(&switch).is_ok_and(|on| on.trim() == "1") {
                let ended = recorder.try_wait().unwrap();
                assert!(ended.is_none(), "the recorder ended before its time: {ended:?}");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        assert!(instance.exists());
        signal(name, recorder.id());
        let ended = recorder.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "SIG{name}: {said}");
        assert!(!instance.exists(), "SIG{name}: {instance:?} was left behind");
        assert!(trace.exists(), "SIG{name}");
    }
}

#[test]
fn what_cannot_be_run_leaves_no_file() {
    let Some(folder) = to_record() else { return };
    let mut command = freehold();
    command.args(["record", "-o"]).arg(folder.path().join("t.parquet"));
    assert_refused(command.args(["--", "no-such-program"]), &["cannot run 'no-such-program'"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "copies of /proc are left");
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite replay:: -- --ignored"]
fn a_trace_with_holes_is_not_written_unless_asked_for() {
    let Some(folder) = to_record() else { return };
    let trace = folder.path().join("holes.parquet");
    let record = |more: &[&str]| {
        of_dd(["bs=1M", "count=64"], &folder, &[&["-b", "16K"], more].concat(), &trace)
    };
    assert_refused(&mut record(&[]), &["were lost: nothing written", "--allow-lost"]);
    assert!(!trace.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only what dd wrote is there");
    fs::remove_file(folder.path().join("zeroes")).unwrap();
    let said = parsed(&mut record(&["--allow-lost", "--json"]));
    assert!(said["lost_events"].as_u64().unwrap() > 0, "{said}");
    printed(freehold().args(["replay", "--json", "-e", "freehold"]).arg(&trace));
}

#[test]
fn the_periodic_work_of_busy_cpus_is_recorded() {
    let Some(folder) = to_record() else { return };
    let trace = folder.path().join("busy.parquet");
    let mut command = freehold();
    command.args(["record", "-b", "16M", "--allow-lost", "-o"]).arg(&trace);
    command.args(["--", "timeout", "1.5", "sh", "-c", "while :; do :; done"]).assert().success();
    let files = assert_packed(trace);
    let ticks = files.get("ticks").map(|(_, text)| freehold_trace::ticks::parse(text).unwrap());
    // Linux before 6.6 cannot pick the event out.
    let has_some = ticks.is_some_and(|ticks| !ticks.is_empty());
    assert!(has_some || !has_filter_by_function(), "no tick in a second and a half");
}

/// Whether the kernel's tracing finds functions by name in filters.
fn has_filter_by_function() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 6)
}
