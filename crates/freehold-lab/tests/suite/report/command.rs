//! What `freehold report` takes, writes and refuses.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::page::replay;
use crate::common::machine_files::Folder;
use crate::common::{assert_refused, freehold};

#[test]
fn what_the_replay_says_of_holds_adds_up() {
    for engine in replay()["engines"].as_array().unwrap() {
        let name = &engine["engine"];
        let holds = engine["zone_lock_work_histogram"].as_array().unwrap();
        let sum: u64 = holds.iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
        assert_eq!(json!(sum), engine["zone_lock_acquisitions"], "{name}: each in one bucket");
        let ends = holds.iter().flat_map(|bucket| [bucket[0].as_u64(), bucket[1].as_u64()]);
        assert!(ends.is_sorted(), "{name}: by rising steps");
        let begins = holds.windows(2).all(|two| two[0][1] != two[1][0]);
        assert!(begins, "{name}: no step is in two");
        let longest = holds.last().map_or(json!(0), |bucket| bucket[1].clone());
        assert_eq!(longest, engine["zone_lock_work_max"], "{name}");

        let timeline = &engine["timeline"];
        let times = timeline["ts_ns"].as_array().unwrap();
        for (column, values) in timeline.as_object().unwrap() {
            assert_eq!(values.as_array().unwrap().len(), times.len(), "{name}: {column}");
        }
    }
}

#[test]
fn the_same_input_gives_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let [json, a, b] = ["x.json", "a.html", "b.html"].map(|name| folder.path().join(name));
    fs::write(&json, format!("{0}\n{0}", replay())).unwrap();
    for file in [&a, &b] {
        let words = ["report", path(&json), "-o", path(file), "--title", "Nightly <1>"];
        freehold().args(words).assert().success();
    }
    let text = fs::read_to_string(&a).unwrap();
    assert_eq!(text, fs::read_to_string(&b).unwrap());
    assert!(text.contains("<title>Nightly &lt;1&gt;</title>"));
    assert!(text.contains("x.json, document 1") && text.contains("x.json, document 2"));
    let mut piped = freehold();
    piped.args(["report", "-o", "-", "--title", "Nightly <1>", "-"]);
    let out = piped.write_stdin(fs::read(&json).unwrap()).assert().success();
    let told = text.replace("x.json, doc", "standard input, doc");
    assert_eq!(out.get_output().stdout.len(), told.len());
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

#[test]
fn what_cannot_be_reported_is_said_with_what_to_do() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| folder.file(name, text);
    let good = file("good.json", &replay().to_string());
    let other = file("other.json", "{\"presets\": [], \"switches\": []}");
    let simulated = file("simulated.json", "{\"rows\": [], \"model\": {}}");
    let missing = folder.path().join("missing.json");
    let before = fs::read(&good).unwrap();
    for (arguments, expected) in [
        (vec![file("empty.json", " \n")], vec!["empty.json is empty", "hint"]),
        (vec![file("table.txt", "ENGINE   5.17\n")], vec!["table.txt is not JSON", "line 1"]),
        (vec![file("cut.json", "{\"rows\": [")], vec!["cut.json is not JSON"]),
        (vec![file("t.parquet", "PAR1....")], vec!["Parquet", "freehold replay --json"]),
        (vec![file("old.html", "<!DOCTYPE html>")], vec!["put -o before it"]),
        (vec![other], vec!["other.json: this is not an output of replay", "hint"]),
        (vec![simulated], vec!["is what freehold simulate printed", "made of replays"]),
        (vec![good.clone(), missing], vec!["cannot read", "missing.json"]),
        (vec![PathBuf::from("-"), PathBuf::from("-")], vec!["only once"]),
    ] {
        let out = folder.path().join("out.html");
        let mut command = freehold();
        command.arg("report").args(&arguments).arg("-o").arg(&out).write_stdin("");
        assert_refused(&mut command, &expected);
        assert!(!out.exists(), "nothing is written for {arguments:?}");
    }
    for (to, said) in
        [(path(&good), "would overwrite"), ("/nowhere/x", "there is no folder /nowhere")]
    {
        assert_refused(freehold().args(["report", path(&good), "-o", to]), &[said]);
    }
    assert_eq!(fs::read(&good).unwrap(), before);
}
