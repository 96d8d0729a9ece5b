//! `freehold record`: wrong usage anywhere; real recordings where the kernel's tracing files are
//! there and may be used.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::freehold;

/// Whether this process may make an instance of the kernel's tracing; says so where it may not.
fn can_record(test: &str) -> bool {
    let instances = Path::new("/sys/kernel/tracing/instances");
    let probe = instances.join(format!("freehold-probe-{}-{test}", std::process::id()));
    let can = fs::create_dir(&probe).is_ok();
    let _ = fs::remove_dir(&probe);
    if !can {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: {} cannot be used (root and tracefs)",
            instances.display()
        );
    }
    can
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.parquet");
    let both = contains("--duration <TIME>").and(contains("<COMMAND>"));
    freehold().args(["record", "-o"]).arg(&trace).assert().code(2).stderr(both);
    // Before the command runs: what it did would be lost.
    let marker = folder.path().join("ran");
    freehold()
        .args(["record", "-o", "/nowhere/t.parquet", "--", "touch"])
        .arg(&marker)
        .assert()
        .code(2)
        .stderr(contains("there is no folder /nowhere").and(contains("recording while").not()));
    assert!(!marker.exists());
    fs::create_dir_all(folder.path().join("events/kmem/mm_page_alloc")).unwrap();
    let (here, empty) = (folder.path().display().to_string(), tempfile::tempdir().unwrap());
    let empty = empty.path().display().to_string();
    for (arguments, said) in [
        (&["-d", "10"][..], &["10s"][..]),
        (&["-d", "1s", "-b", "1K"], &["16K"]),
        (&["-d", "1s", "--tracefs", &empty], &["no tracefs", "mount -t tracefs"]),
        (&["-d", "1s", "--tracefs", &here], &["kmem:mm_page_free"]),
        (&["-d", "1s", "--memory", "1M"], &["--last"]),
        (&["--last", "1s", "-b", "1M"], &["cannot be used with"]),
        (&["--last", "1s", "--on", "speed>1"], &["unusable[ORDER]"]),
        (&["--last", "1s", "--tracefs", &empty], &["no tracefs"]),
    ] {
        let mut done =
            freehold().args(["record", "-o"]).arg(&trace).args(arguments).assert().code(2);
        for part in said {
            done = done.stderr(contains(*part));
        }
    }
    assert!(!trace.exists());
    fs::write(&trace, "mine").unwrap();
    freehold()
        .args(["record", "-d", "1s", "-o"])
        .arg(&trace)
        .assert()
        .code(2)
        .stderr(contains("--force"));
    assert_eq!(fs::read(&trace).unwrap(), b"mine");
}

#[test]
fn what_a_command_does_is_recorded_and_can_be_replayed() {
    if !can_record("what_a_command_does_is_recorded_and_can_be_replayed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("copy.parquet");
    let output = freehold()
        .args(["record", "--json", "-o"])
        .arg(&trace)
        .args(["--", "dd", "if=/dev/zero", "bs=1M", "count=64", "status=none"])
        .arg(format!("of={}", folder.path().join("zeroes").display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("recording while 'dd' runs"));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["lost_events"], 0);
    // 64 MiB written are 16,384 pages, in chunks of any size.
    let allocations = said["event_counts"][0].as_u64().unwrap();
    assert!(allocations > 30, "{said}");
    // What the kernel took from the zone is recorded too, which an engine is held against.
    assert!(said["event_counts"][5].as_u64() > Some(0), "{said}");
    // One file: copied alone it is still of that machine.
    let files = freehold_trace::packed_files(&freehold_trace::Source::Path(trace.clone())).unwrap();
    let names: Vec<&str> = files.names().collect();
    for kind in ["zoneinfo", "buddyinfo"] {
        for when in ["before", "after"] {
            assert!(names.contains(&&*format!("{kind}.{when}.txt")), "{kind} {when}: {names:?}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the trace, and what dd wrote");
    // dd may be done before the next tick; that the file is whole is what can be said.
    if let Some((_, ticks)) = files.get("ticks") {
        freehold_trace::ticks::parse(ticks).unwrap();
    }
    let replay =
        freehold().args(["replay", "--json", "-e", "freehold"]).arg(&trace).output().unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    // Nothing stays behind in the kernel: every instance of ours is that of a recorder still
    // running.
    for instance in fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten() {
        let name = instance.file_name().to_string_lossy().into_owned();
        let Some(pid) =
            name.strip_prefix("freehold-").filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        assert!(Path::new("/proc").join(pid).exists(), "{name} was left behind");
    }
}

#[test]
fn the_last_seconds_are_written_at_each_signal_and_every_file_stands_alone() {
    if !can_record("the_last_seconds_are_written_at_each_signal_and_every_file_stands_alone") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("flight");
    let mut recorder = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["record", "--last", "2s", "--memory", "4M", "--keep", "2", "--json", "-o"])
        .arg(&folder)
        .args(["--on", "free>0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(recorder.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("free>0: "), "held before: no file");
    while !said.next().unwrap().unwrap().contains("kill -USR1") {}
    let instance = format!("/sys/kernel/tracing/instances/freehold-{}", recorder.id());
    let total = fs::read_to_string(Path::new(&instance).join("buffer_total_size_kb")).unwrap();
    assert!(total.trim().parse::<u64>().unwrap() <= 4096, "{total}");
    let pid = recorder.id().to_string();
    let signal = |signal| {
        let sent = std::process::Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    };
    // What cannot be written is said, and recording goes on.
    fs::remove_dir(&folder).unwrap();
    signal("USR1");
    let warning = said.next().unwrap().unwrap();
    assert!(warning.contains("nothing is written for SIGUSR1: cannot write"), "{warning}");
    fs::create_dir(&folder).unwrap();
    let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
    let mut files = Vec::new();
    for _ in 0..3 {
        // The test harness allocates, too, but not always.
        fs::write(root.path().join("some"), vec![1; 1 << 20]).unwrap();
        signal("USR1");
        let line = lines.next().unwrap().unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(said["trigger"] == "SIGUSR1" && said["events"].as_u64() > Some(0), "{line}");
        assert!(said["events_seen"].as_u64() >= said["events"].as_u64(), "{line}");
        assert!(said["buffer_bytes"].as_u64() <= Some(4 << 20), "{line}");
        assert!(said["recorder_peak_bytes"].as_u64() > Some(1 << 20), "{line}");
        files.push(said["trace"].as_str().unwrap().to_owned());
        assert_eq!(said["removed"].as_array().unwrap().len(), usize::from(files.len() == 3));
    }
    signal("INT");
    assert_eq!(recorder.wait().unwrap().code(), Some(130));
    assert!(!Path::new(&instance).exists(), "{instance} was left behind");
    assert!(!Path::new(&files[0]).exists(), "two are kept");
    for file in &files[1..] {
        let alone = root.path().join("alone.parquet");
        fs::copy(file, &alone).unwrap();
        let replay = freehold().args(["replay", "--json", "-e", "freehold"]).arg(&alone).output();
        let replay = replay.unwrap();
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        let packed = freehold_trace::packed_files(&freehold_trace::Source::Path(alone)).unwrap();
        let names: Vec<&str> = packed.names().collect();
        assert!(names.contains(&"zoneinfo.before.txt"), "{names:?}");
        assert!(names.contains(&"buddyinfo.after.txt"), "{names:?}");
    }
}

/// What the file, the terminal and the JSON say is one number.
#[test]
fn buffers_that_are_too_small_are_said() {
    if !can_record("buffers_that_are_too_small_are_said") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let flight = folder.path().join("flight");
    let memory = format!("{}K", 32 * std::thread::available_parallelism().unwrap().get());
    let output = freehold()
        .args(["record", "--last", "60s", "--memory", &memory, "--json", "-o"])
        .arg(&flight)
        .args(["--", "dd", "if=/dev/zero", "bs=4K", "count=16384", "status=none"])
        .arg(format!("of={}", folder.path().join("zeroes").display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["trigger"], &said["buffers_too_small"]), (&"the end".into(), &true.into()));
    let file = said["trace"].as_str().unwrap();
    let source = freehold_trace::Source::Path(file.into());
    let reader = freehold_trace::TraceReader::open(&source, Default::default()).unwrap();
    assert_eq!(reader.info().lost_events, said["lost_events"].as_u64());
}

#[test]
fn a_recording_that_is_ended_is_written_and_leaves_nothing_behind() {
    if !can_record("a_recording_that_is_ended_is_written_and_leaves_nothing_behind") {
        return;
    }
    for signal in ["INT", "TERM", "HUP"] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("cut.parquet");
        let mut recorder = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"))
            .args(["record", "-d", "60s", "-b", "1M", "--allow-lost", "-o"])
            .arg(&trace)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let instance = format!("/sys/kernel/tracing/instances/freehold-{}", recorder.id());
        // On for longer than the look at the machine before it: recording has begun.
        let on = Path::new(&instance).join("tracing_on");
        let mut turns = 0;
        while turns < 100 {
            assert!(recorder.try_wait().unwrap().is_none(), "the recorder ended before its time");
            let is_on = fs::read_to_string(&on).is_ok_and(|on| on.trim() == "1");
            turns = if is_on { turns + 1 } else { 0 };
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(Path::new(&instance).exists());
        let kill = std::process::Command::new("kill")
            .args(["-s", signal, &recorder.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(recorder.wait().unwrap().code(), Some(130), "SIG{signal}");
        assert!(!Path::new(&instance).exists(), "SIG{signal}: {instance} was left behind");
        assert!(trace.exists(), "SIG{signal}");
    }
}

#[test]
fn what_cannot_be_run_leaves_no_file() {
    if !can_record("what_cannot_be_run_leaves_no_file") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    freehold()
        .args(["record", "-o"])
        .arg(folder.path().join("t.parquet"))
        .args(["--", "no-such-program"])
        .assert()
        .code(2)
        .stderr(contains("cannot run 'no-such-program'"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "copies of /proc are left");
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite replay:: -- --ignored"]
fn a_trace_with_holes_is_not_written_unless_asked_for() {
    if !can_record("a_trace_with_holes_is_not_written_unless_asked_for") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("holes.parquet");
    let zeroes = folder.path().join("zeroes");
    let record = |more: &[&str]| {
        let mut command = freehold();
        command.args(["record", "-b", "16K", "-o"]).arg(&trace).args(more);
        command.args(["--", "dd", "if=/dev/zero", "bs=1M", "count=64", "status=none"]);
        command.arg(format!("of={}", zeroes.display()));
        command
    };
    record(&[])
        .assert()
        .code(2)
        .stderr(contains("were lost: nothing written").and(contains("--allow-lost")));
    assert!(!trace.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only what dd wrote is there");
    fs::remove_file(&zeroes).unwrap();
    let output = record(&["--allow-lost", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["lost_events"].as_u64().unwrap() > 0, "{said}");
    let replay =
        freehold().args(["replay", "--json", "-e", "freehold"]).arg(&trace).output().unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
}

#[test]
fn the_periodic_work_of_busy_cpus_is_recorded() {
    if !can_record("the_periodic_work_of_busy_cpus_is_recorded") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("busy.parquet");
    let output = freehold()
        .args(["record", "-b", "16M", "--allow-lost", "-o"])
        .arg(&trace)
        .args(["--", "timeout", "1.5", "sh", "-c", "while :; do :; done"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = freehold_trace::packed_files(&freehold_trace::Source::Path(trace)).unwrap();
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
