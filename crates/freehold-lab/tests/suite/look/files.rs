//! `freehold look`: figures of files, for people, programs and monitoring.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

struct Folder(tempfile::TempDir);

impl Folder {
    /// A machine with so many free chunks of order 10 and some single pages.
    fn machine(largest: u64, names: [&str; 2]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let free = largest * 1024 + 40;
        fs::write(
            folder.path().join(names[0]),
            format!(
                "Node 0, zone   Normal\n  pages free     {free}\n        min      30\n        \
                 low      50\n        high     70\n        \
                 spanned  16384\n        present  16384\n        managed  16384\n  pagesets\n    \
                 cpu: 0\n              count: 3\n              \
                 high:  10\n              batch: 1\n  start_pfn:           65536\n"
            ),
        )
        .unwrap();
        let buddies = format!("Node 0, zone   Normal 40 0 0 0 0 0 0 0 0 0 {largest}\n");
        fs::write(folder.path().join(names[1]), buddies).unwrap();
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn look(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_freehold")).arg("look").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn which_of_several_machines_in_a_folder_is_shown_is_said() {
    let folder = Folder::machine(3, ["a.zoneinfo.before.txt", "a.buddyinfo.before.txt"]);
    let first = folder.path().join("a.zoneinfo.before.txt");
    let copy = |name: &str| fs::copy(&first, folder.path().join(name)).unwrap();
    copy("a.zoneinfo.after.txt");
    let (code, _, errors) = look(&["--json", shown(folder.path())]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "one machine, before and after");
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
        let folder = Folder::machine(3, names);
        let (code, text, errors) = look(&["--json", shown(folder.path())]);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&document["page_size"], &document["pageblock_order"]),
            (&4096.into(), &9.into())
        );
        let zone = &document["zones"][0];
        assert_eq!(
            (&zone["free"], &zone["whole_free_blocks"], &zone["held"]),
            (&3112.into(), &6.into(), &3.into())
        );
        assert_eq!(
            (&zone["blocks"], &zone["mixed_blocks"], &zone["above"]),
            (&Value::Null, &Value::Null, &3.into())
        );
        assert_eq!(zone["orders"][10]["pages"], 3072);
        assert_eq!(zone["orders"][10]["unusable_index"], 0.012_853);
        // The file itself may be named.
        let file: PathBuf = folder.path().join(names[0]);
        assert_eq!(look(&["--json", shown(&file)]).0, Some(0));
    }
}

#[test]
fn two_machines_compared() {
    let (one, other) = (
        Folder::machine(3, ["zoneinfo", "buddyinfo"]),
        Folder::machine(1, ["zoneinfo", "buddyinfo"]),
    );
    let (code, text, _) = look(&[shown(one.path()), shown(other.path())]);
    assert_eq!(code, Some(0));
    let line = text.lines().find(|line| line.contains("wholly free blocks")).unwrap();
    assert_eq!(line.split_whitespace().rev().take(2).collect::<Vec<_>>(), ["2", "6"]);
    let (_, text, _) = look(&["--json", shown(one.path()), shown(other.path())]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["machines"][1]["total"]["free"], 1064);
}

/// A plain file is whole at any moment; what is none stays what it is.
#[test]
fn figures_for_prometheus_replace_files_and_nothing_else() {
    let folder = Folder::machine(2, ["zoneinfo", "buddyinfo"]);
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
    assert!(written(std::path::Path::new("-")).contains(line), "'-' is standard output");
    assert!(!place("-").exists());
}

#[test]
fn again_and_again_until_it_is_stopped() {
    let folder = Folder::machine(2, ["zoneinfo", "buddyinfo"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["look", "--json", "--watch", "1", shown(folder.path())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().expect("another document").unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["total"]["free"], 2088);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_cannot_be_read_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let (code, text, errors) = look(&[shown(empty.path())]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(errors.contains("there is no zoneinfo") && errors.contains("hint:"), "{errors}");
    let folder = Folder::machine(2, ["zoneinfo", "buddyinfo"]);
    fs::write(folder.path().join("buddyinfo"), "Node 0, zone   Normal 40 0 0 0 0 0 0 0 0 0 9\n")
        .unwrap();
    let (code, _, errors) = look(&[shown(folder.path())]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("more than 1 %"), "{errors}");
    let three = [shown(folder.path()); 3];
    assert_eq!(look(&three).0, Some(2));
}
