//! `freehold look`: figures of files, for people, programs and monitoring.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::common::machine_files::{Folder, zone};
use crate::common::{assert_refused, data, freehold, json};

/// A machine with so many free chunks of order 10 and some single pages.
fn machine(largest: u64, names: [&str; 2]) -> Folder {
    let folder = Folder::new();
    let free = largest * 1024 + 40;
    folder.file(names[0], zone(0, "Normal", free, 16384, 65536, ""));
    let buddies = format!("Node 0, zone   Normal 40 0 0 0 0 0 0 0 0 0 {largest}\n");
    folder.file(names[1], buddies);
    folder
}

/// What `look` prints with `--json`, with nothing to complain of.
fn document(arguments: &[&str]) -> Value {
    json(freehold().args(["look", "--json"]).args(arguments))
}

fn look(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = freehold().arg("look").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// `look --watch 1`, its standard output and its errors line by line.
fn watch(arguments: &[&str]) -> (Child, Lines<ChildStdout>, Lines<ChildStderr>) {
    let mut watch = Command::new(env!("CARGO_BIN_EXE_freehold"));
    watch.args(["look", "--watch", "1"]).args(arguments);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let errors = BufReader::new(watch.stderr.take().unwrap()).lines();
    (watch, lines, errors)
}

type Lines<T> = std::io::Lines<BufReader<T>>;

fn end(mut watch: Child) {
    watch.kill().unwrap();
    watch.wait().unwrap();
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn which_of_several_machines_in_a_folder_is_shown_is_said() {
    let folder = machine(3, ["a.zoneinfo.before.txt", "a.buddyinfo.before.txt"]);
    let first = folder.path().join("a.zoneinfo.before.txt");
    let copy = |name: &str| fs::copy(&first, folder.path().join(name)).unwrap();
    copy("a.zoneinfo.after.txt");
    // One machine, before and after.
    document(&[shown(folder.path())]);
    copy("b.zoneinfo.before.txt");
    let (code, _, errors) = look(&["--json", shown(folder.path())]);
    assert_eq!(code, Some(0));
    for part in ["2 machines", "shown is", "a.zoneinfo.before.txt", "b.zoneinfo.before.txt"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn files_of_proc_or_copies_of_them() {
    for names in [
        ["zoneinfo", "buddyinfo"],
        ["a.zoneinfo.before.txt", "a.buddyinfo.before.txt"],
        ["zoneinfo.txt", "buddyinfo.txt"],
    ] {
        let folder = machine(3, names);
        let found = document(&[shown(folder.path())]);
        assert_eq!((&found["page_size"], &found["pageblock_order"]), (&4096.into(), &9.into()));
        let zone = &found["zones"][0];
        let of = ["free", "whole_free_blocks", "held", "above"].map(|name| zone[name].as_u64());
        assert_eq!(of, [3112, 6, 9, 3].map(Some));
        assert!(zone["blocks"].is_null() && zone["mixed_blocks"].is_null());
        assert_eq!(zone["orders"][10]["pages"], 3072);
        assert_eq!(zone["orders"][10]["unusable_index"], 0.012_853);
        // The file itself may be named.
        let file: PathBuf = folder.path().join(names[0]);
        assert_eq!(document(&[shown(&file)])["zones"][0], *zone);
    }
}

#[test]
fn two_machines_compared() {
    let [one, other] = [3, 1].map(|largest| machine(largest, ["zoneinfo", "buddyinfo"]));
    let (code, text, _) = look(&[shown(one.path()), shown(other.path())]);
    assert_eq!(code, Some(0));
    let line = text.lines().find(|line| line.contains("wholly free blocks")).unwrap();
    assert_eq!(line.split_whitespace().rev().take(2).collect::<Vec<_>>(), ["2", "6"]);
    let found = document(&[shown(one.path()), shown(other.path())]);
    assert_eq!(found["machines"][1]["total"]["free"], 1064);
}

/// A plain file is whole at any moment; what is none stays what it is.
#[test]
fn figures_for_prometheus_replace_files_and_nothing_else() {
    let folder = machine(2, ["zoneinfo", "buddyinfo"]);
    let from = shown(folder.path());
    let place = |name: &str| folder.path().join(name);
    let written = |path: &std::path::Path| {
        let (code, page, _) = look(&[from, "--prometheus", shown(path)]);
        assert_eq!(code, Some(0));
        page
    };
    let line = "freehold_free_chunks{node=\"0\",zone=\"Normal\",order=\"10\"} 2\n";
    let (file, link, pipe) = (place("look.prom"), place("link.prom"), place("pipe"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    written(&link);
    assert!(link.is_symlink(), "the link is replaced");
    assert!(fs::read_to_string(&file).unwrap().contains(line));
    assert!(!place("look.unfinished").exists());
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    written(&pipe);
    assert!(reader.join().unwrap().contains(line));
    assert!(!pipe.is_file() && pipe.exists(), "the pipe is replaced");
    let page = written(std::path::Path::new("-"));
    assert!(page.contains(line), "'-' is standard output");
    let is_metric = |line: &str| line.starts_with("freehold_") || line.starts_with("# ");
    assert!(page.lines().all(is_metric), "and nothing else is on it: {page}");
    assert!(!place("-").exists());
}

#[test]
fn what_cannot_be_read_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let (code, text, errors) = look(&[shown(empty.path())]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(errors.contains("there is no zoneinfo and no") && errors.contains("hint:"), "{errors}");
    let folder = machine(2, ["zoneinfo", "buddyinfo"]);
    folder.file("buddyinfo", "Node 0, zone   Normal 40 0 0 0 0 0 0 0 0 0 9\n");
    let (code, text, errors) = look(&["--json", shown(folder.path())]);
    assert_eq!(code, Some(0), "of different moments: shown, with a warning");
    assert!(errors.contains("warning:") && errors.contains("more than 1 %"), "{errors}");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["doubts"].as_array().map(Vec::len), Some(1));
    let recipe = folder.file("recipe.txt", "Take two eggs.\n");
    let (code, _, errors) = look(&[shown(&recipe)]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("no zoneinfo, buddyinfo, pagetypeinfo or Mem-Info"), "{errors}");
    let mut piped = freehold();
    assert_refused(piped.args(["look", "-"]).write_stdin("Take two eggs.\n"), &["what is read:"]);
    assert!(!look(&["/a\x1b[31mb"]).2.contains('\x1b'), "a file's name steers no terminal");
    let three = [shown(folder.path()); 3];
    assert_eq!(look(&three).0, Some(2));
}

/// What people paste: a kernel log, out of a pipe too; chunks alone; a sosreport.
#[test]
fn a_log_a_lone_file_and_a_sosreport() {
    let folder = machine(2, ["zoneinfo", "buddyinfo"]);
    let log = "[ 1.1] worker invoked oom-killer: order=0\n[ 1.2] Mem-Info:\n[ 1.3] Node 0 Normal \
               free:88kB min:8kB low:12kB high:16kB present:4096kB managed:4000kB free_pcp:12kB\n\
               [ 1.4] Node 0 Normal: 2*4kB (UM) 0*8kB 5*16kB (C) = 88kB\n";
    let path = folder.file("dmesg.log", log);
    let check = |found: Value| {
        assert_eq!((&found["page_size"], &found["page_size_by"]), (&4096.into(), &"said".into()));
        let zone = &found["zones"][0];
        let of = ["free", "managed", "held"].map(|name| zone[name].as_u64());
        assert_eq!(of, [22, 1000, 3].map(Some));
        assert_eq!((&zone["cpus"], &zone["orders"][2]["letters"]), (&Value::Null, &"C".into()));
    };
    check(document(&[shown(&path)]));
    check(json(freehold().args(["look", "--json", "-"]).write_stdin(log)));
    // A wrong digit: shown, with a warning.
    let (code, text, errors) =
        look(&["--json", shown(&folder.file("wrong", log.replace("= 88", "= 89")))]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, found["doubts"].as_array().map(Vec::len)), (Some(0), Some(1)), "{errors}");
    assert!(errors.contains("warning: ") && errors.contains("88 KiB, and it says 89"), "{errors}");
    let (_, page, _) = look(&["--wide", shown(&path)]);
    assert!(page.contains("2 (UM)") && page.contains("of how many CPUs is not known"), "{page}");

    let alone = tempfile::tempdir().unwrap();
    fs::create_dir(alone.path().join("proc")).unwrap();
    let buddies = alone.path().join("proc/buddyinfo");
    fs::copy(folder.path().join("buddyinfo"), &buddies).unwrap();
    for path in [alone.path(), &buddies] {
        let (code, page, _) = look(&["--wide", shown(path)]);
        assert_eq!(code, Some(0));
        for part in ["8.2 MiB of memory of unknown size", "its marks are not known", "ASSUMED"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
    fs::copy(folder.path().join("zoneinfo"), alone.path().join("proc/zoneinfo")).unwrap();
    fs::write(alone.path().join("proc/meminfo"), "MemTotal: 65536 kB\n").unwrap();
    let found = document(&[shown(alone.path())]);
    assert_eq!(found["page_size_by"], "mem_total");
    assert_eq!(found["total"]["free"], 2088);
}

/// Flags as the kernel gives them: 64 MiB from page 65,536 on, of a process but for the last block.
#[test]
fn pages_are_drawn_block_by_block() {
    let folder = machine(0, ["m.zoneinfo.txt", "m.buddyinfo.txt"]);
    let path = folder.path().join("m.zoneinfo.txt");
    let (code, _, errors) = look(&["--pages", shown(&path)]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("what its pages are is not known"), "{errors}");
    let flags = |page: u64| match page {
        0..65536 => 1u64 << 20,
        _ if page % 512 < 40 && page < 66048 => 1 << 10,
        65536..81408 => 1 << 5 | 1 << 12,
        _ => 1 << 7,
    };
    let words: Vec<u8> = (0..81920).flat_map(|page| flags(page).to_ne_bytes()).collect();
    fs::write(folder.path().join("m.kpageflags.txt"), words).unwrap();
    let html = folder.path().join("pages.html");
    let (code, text, errors) = look(&["--pages", "--html", shown(&html), shown(&path)]);
    assert_eq!((code, errors), (Some(0), format!("freehold: wrote {}\n", shown(&html))));
    let picture = format!("a{}S", "A".repeat(30));
    assert!(text.lines().any(|line| line.trim() == picture), "{text}");
    assert!(text.contains("160 KiB free, 61.8 MiB anonymous, 0 KiB file"), "{text}");
    let page = fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<rect class=\"k0\" x=").count(), 31);

    // A recording keeps them.
    let (code, text, errors) =
        look(&["--pages", shown(&data("recorded/built/vanilla-full3.parquet"))]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("NODE 0 ZONE Normal by page, a cell 2.0 MiB: "), "{text}");
}

/// What `look` found on the command line's own terms: 1 where a threshold holds.
#[test]
fn a_threshold_that_holds_ends_with_one() {
    let folder = machine(3, ["zoneinfo", "buddyinfo"]);
    let from = shown(folder.path());
    let fails = |threshold: &str| look(&["--json", "--fail-if", threshold, from]);
    let (code, text, errors) = fails("unusable[10]>0.01");
    assert_eq!(code, Some(1));
    assert!(errors.contains("FAILED unusable[10]>0.01: 0.013 in zone Normal"), "{errors}");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["failed"].as_array().unwrap().len(), 1);
    let found = document(&["--fail-if", "unusable[10]>0.02", from]);
    assert_eq!(found["failed"], serde_json::json!([]), "asked, and nothing holds");
    let (_, text, _) = look(&["--fail-if", "free<0.01", from]);
    assert!(text.starts_with("OK: nothing of --fail-if holds\n"), "{text}");
    let html = folder.path().join("look.html");
    let (code, text, _) = look(&["--fail-if", "free<0.5", "--html", shown(&html), from]);
    assert!(code == Some(1) && text.starts_with("FAILED free<0.5: 0.190 in zone"), "{text}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<strong>FAILED free&lt;0.5") && page.contains("<td>40</td>"), "{page}");
    let (_, _, errors) = fails("compact_fail>0");
    assert!(errors.contains("--watch SECONDS"), "{errors}");
    let (code, _, errors) = fails("mixed>0");
    assert!(code == Some(2) && errors.contains("is not known"), "{errors}");
    let (code, _, errors) = fails("speed>0");
    assert!(code == Some(2) && errors.contains("unusable[ORDER]"), "{errors}");
}

#[test]
fn a_watch_as_csv_has_its_columns_once() {
    let folder = machine(3, ["zoneinfo", "buddyinfo"]);
    let (watch, lines, _) = watch(&["--format", "csv", shown(folder.path())]);
    let lines: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    end(watch);
    assert!(lines[0].contains("managed") && !lines[2].contains("managed"), "{lines:?}");
    assert_eq!(lines[1], lines[2]);
}

/// What cannot be written for a while is said, and the watch goes on and says when it is.
#[test]
fn a_watch_outlives_a_failed_write() {
    let folder = machine(2, ["zoneinfo", "buddyinfo"]);
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("look.prom");
    let (watch, lines, mut errors) =
        watch(&["--json", "--prometheus", shown(&file), shown(folder.path())]);
    let mut free = lines.map(|line| {
        serde_json::from_str::<Value>(&line.unwrap()).unwrap()["total"]["free"].as_u64()
    });
    assert_eq!(free.next(), Some(Some(2088)));
    fs::remove_file(&file).unwrap();
    fs::create_dir_all(file.join("in the way")).unwrap();
    let said = errors.next().unwrap().unwrap();
    assert!(said.contains("cannot write the metrics"), "{said}");
    fs::remove_dir_all(&file).unwrap();
    assert_eq!(free.next(), Some(Some(2088)));
    assert!(file.is_file());
    end(watch);
}

#[test]
fn this_machines_figures_have_a_time_and_those_of_copies_have_none() {
    let (code, text, _) = look(&["--json"]);
    assert_eq!(code, Some(0));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(found["unix_time"].as_f64().unwrap() > 1.7e9, "{text}");
    assert_eq!(found["page_size_by"], "said", "by the machine, not by the user");
    let folder = machine(3, ["zoneinfo", "buddyinfo"]);
    let found = document(&[shown(folder.path())]);
    assert_eq!((&found["unix_time"], &found["pressure"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_machine_in_a_packed_recording() {
    let folder = machine(3, ["t.zoneinfo.before.txt", "t.buddyinfo.before.txt"]);
    let trace = folder.path().join("t.parquet");
    fs::copy(data("page-cache-churn.parquet"), &trace).unwrap();
    let packed = folder.path().join("one.parquet");
    freehold().args(["pack", "-o"]).args([&packed, &trace]).assert().success();
    let zones = |path: &Path| document(&[shown(path)])["zones"].clone();
    assert_eq!(zones(&packed), zones(&folder.path().join("t.zoneinfo.before.txt")));
    let piped =
        json(freehold().args(["look", "--json", "-"]).write_stdin(fs::read(&packed).unwrap()));
    assert_eq!(piped["zones"], zones(&packed));
    let (code, _, errors) = look(&[shown(&trace)]);
    assert!(code == Some(2) && errors.contains("no file of a machine is packed"), "{errors}");
    assert!(errors.contains("\n  hint: name the zoneinfo beside it"), "{errors}");
    let cut = folder.file("cut.parquet", &fs::read(&packed).unwrap()[..9000]);
    let (_, _, errors) = look(&[shown(&cut)]);
    assert_eq!((errors.matches("hint:").count(), errors.matches("\n  hint:").count()), (1, 1));
}

/// The second look is the first with rates.
#[test]
fn a_watch_writes_rates_from_the_second_look_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("look.prom");
    let (watch, lines, _) = watch(&["--json", "--prometheus", shown(&file)]);
    let last = lines.take(2).last().unwrap().unwrap();
    end(watch);
    let look: Value = serde_json::from_str(&last).unwrap();
    assert!(look["pressure"]["compact_fail"].is_number(), "{last}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains("\nfreehold_compact_fail_per_second "), "{written}");
}
