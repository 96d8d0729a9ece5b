//! The page of a table of many machines: the worst are named, losses are counted, each machine has
//! its section, and ten thousand rows have room.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fastrand::Rng;
use freehold_lab::tables::thousands;
use predicates::str::contains;
use serde_json::{Map, Value, json};

use super::valid::problems;
use crate::common::length::length;
use crate::common::machine_files::{Folder, plain};
use crate::common::{freehold, text};

const COLUMNS: &str = include_str!("../../../src/commands/columns.tsv");
const ENGINES: [&str; 5] = ["6.18", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"];

fn report(words: &[&str], table: &str) -> assert_cmd::assert::Assert {
    freehold().args(["report", "-o", "-"]).args(words).write_stdin(table).assert()
}

fn page(words: &[&str], table: &str) -> String {
    let html = text(&report(words, table).success());
    assert_eq!(problems(&html), Vec::<String>::new());
    assert!(!html.contains("<script"));
    html
}

/// A row with all columns, of any values.
fn row(rng: &mut Rng, recording: usize, engine: &str) -> Map<String, Value> {
    let mut row = Map::new();
    for column in COLUMNS.lines().skip(1) {
        let mut cells = column.split('\t');
        let (name, kind) = (cells.next().unwrap(), cells.next().unwrap());
        let value = match kind {
            "int" => json!(rng.u64(0..10_000_000)),
            "real" => json!(rng.f64()),
            "bool" => json!(rng.bool()),
            _ => json!(format!("{:016x}", rng.u64(..))),
        };
        row.insert(name.to_owned(), value);
    }
    let host = recording / 2;
    for (name, value) in [
        ("schema", json!(1)),
        ("status", json!("ok")),
        ("error", Value::Null),
        ("warnings", Value::Null),
        ("node", json!(0)),
        ("zone", json!("Normal")),
        ("host", json!(format!("host{host:04}.example.org"))),
        ("kernel", json!(format!("6.{}.3-generic", host % 7 + 1))),
        ("path", json!(format!("fleet/host{host:04}/{recording}.parquet"))),
        ("sha256", json!(format!("{recording:064x}"))),
        ("engine", json!(engine)),
    ] {
        row.insert(name.to_owned(), value);
    }
    row
}

fn lines(rows: &[Map<String, Value>]) -> String {
    rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n").collect()
}

/// The names that the table of that caption links, in its order.
fn linked<'p>(html: &'p str, caption: &str) -> Vec<&'p str> {
    let table = html.split(&format!("<caption>{caption}")).nth(1).expect(caption);
    let table = table.split("</table>").next().unwrap();
    let links = table.split("<a href=\"#m").skip(1);
    links.filter_map(|link| link.split(['>', '<']).nth(1)).collect()
}

/// Ten thousand where there is time for them, as CI has.
#[test]
fn ten_thousand_rows_are_under_five_megabytes_and_the_worst_machines_are_named() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let of = |recording| ENGINES.map(|engine| (recording, engine));
    let recordings = length(300, 2_000);
    let mut rows: Vec<_> = (0..recordings).flat_map(of).map(|(n, e)| row(&mut rng, n, e)).collect();
    let mut worst = BTreeMap::<&str, u64>::new();
    for row in rows.iter().filter(|row| row["engine"] == "vanilla") {
        let longest = worst.entry(row["host"].as_str().unwrap()).or_default();
        *longest = (*longest).max(row["zone_lock_work_max"].as_u64().unwrap());
    }
    let mut worst: Vec<(&str, u64)> = worst.into_iter().collect();
    worst.sort_by_key(|(_, longest)| std::cmp::Reverse(*longest));
    let worst: Vec<String> = worst[..20].iter().map(|(host, _)| (*host).to_owned()).collect();
    // A store gives files in any order.
    rng.shuffle(&mut rows);
    let html = page(&[], &lines(&rows));
    assert!(html.len() < 5_000_000, "{} bytes", html.len());
    // The order of the rows is not seen.
    let section = html.split("<section class=\"machine\"").nth(7).unwrap();
    let table = section.split("</table>").next().unwrap().split("<th scope=\"row\">").skip(1);
    let named: Vec<&str> = table.map(|row| row.split('<').next().unwrap()).collect();
    assert_eq!(named, ["vanilla", "6.18", "freehold", "pcp-buddy", "pcp-buddy-fixed"]);
    assert_eq!(linked(&html, "Worst machines by steps of the longest hold, with vanilla"), worst);
    assert_eq!(html.matches("<section class=\"machine\"").count(), recordings / 2);
    let [all, machines] = [recordings, recordings / 2].map(|n| thousands(n as u64));
    assert!(
        html.contains(&format!("{all} recordings of {machines} machines; 0 could not be read."))
    );
    if recordings < 2_000 {
        return;
    }
    // So many machines have no room for a section each, and that is said.
    let many: Vec<_> = (0..7_000).map(|n| row(&mut rng, 2 * n, "vanilla")).collect();
    let short = many.iter().cloned().map(|mut row| {
        row.retain(|name, _| !name.starts_with("trace_") && !name.starts_with("machine_"));
        row
    });
    let html = page(&[], &lines(&short.collect::<Vec<_>>()));
    assert!(html.len() < 5_000_000, "{} bytes", html.len());
    assert!(html.contains("had no room: make a page of fewer rows"));
}

#[test]
fn gains_and_losses_against_the_baseline_are_counted() {
    let mut rng = Rng::with_seed(1);
    let mut rows = Vec::new();
    for (recording, base, other) in [(0, 100, 50), (2, 100, 100), (4, 0, 3), (6, 100, 400)] {
        for (engine, steps) in [("vanilla", base), ("7.2", base), ("freehold", other)] {
            let mut row = row(&mut rng, recording, engine);
            row.insert("zone_lock_work".into(), json!(steps));
            rows.push(row);
        }
    }
    rows[0].insert("machine_origin".into(), json!("assumed"));
    let mut broken = row(&mut rng, 8, "");
    broken.insert("status".into(), json!("unreadable"));
    broken.insert("path".into(), json!("a <b>/8.parquet"));
    broken.insert("error".into(), json!("it is <cut> short"));
    rows.push(broken);
    rows[9..12].iter_mut().for_each(|row| drop(row.remove("host")));
    let html = page(&[], &lines(&rows));
    let said = "4 recordings of 3 machines; of 1 the machine is not known; 1 could not be read.";
    assert!(html.contains(said), "{html}");
    assert!(html.contains("Fewest steps under the zone lock: vanilla and 7.2, on 3 of them."));
    assert!(html.contains("1 row of an assumed machine"));
    assert!(html.contains("<li>a &lt;b&gt;/8.parquet: it is &lt;cut&gt; short</li>"));
    let caption = "steps under the zone lock: figures, and their ratio to vanilla's";
    assert_eq!(linked(&html, caption), ["host0002.example.org"], "from nothing is the worst");
    let table = html.split(caption).nth(1).unwrap().split("</table>").next().unwrap();
    let figures = table.rsplit("value=\"").take(2).map(|cell| cell.split('"').next().unwrap());
    assert_eq!(figures.collect::<Vec<_>>(), ["2", "1"], "worse on two, better on one");
}

/// A path may be bytes of any kind, and is part of the page.
#[test]
fn a_file_whose_name_is_no_text_is_replayed() {
    let folder = Folder::new();
    let trace = folder.path().join(OsStr::from_bytes(b"a\xff.trace"));
    std::fs::rename(folder.write(&plain()), &trace).unwrap();
    let mut command = freehold();
    let json = command.args(["replay", "--json", "-e", "freehold"]).arg(&trace).assert().success();
    assert!(text(&json).contains("a\u{fffd}.trace"));
}

#[test]
fn parquet_and_json_lines_make_one_page_and_what_is_neither_is_refused() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    let table = |form: &str| {
        let file = folder.path().join(form);
        let mut command = freehold();
        command.args(["replay", "--no-progress", "-e", "6.18", "-e", "freehold", "--format", form]);
        command.arg("-o").arg(&file).arg(&trace).assert().success();
        file
    };
    // What differs is where it is from, and the time that it took.
    let body = |path: &Path| {
        let html = page(&[path.to_str().unwrap()], "");
        html.split("</dl>").nth(1).unwrap().to_owned()
    };
    let (jsonl, parquet) = (table("jsonl"), table("parquet"));
    assert_eq!(body(&jsonl), body(&parquet));
    assert!(body(&parquet).contains("<th scope=\"row\">freehold</th>"));
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/data/page-cache-churn.parquet");
    report(&[trace], "").code(2).stderr(contains("no rows of replays"));
    let rows = std::fs::read_to_string(&jsonl).unwrap();
    let newer = rows.replace("\"schema\":1", "\"schema\":2");
    report(&[], &newer).code(2).stderr(contains("another schema than 1"));
}
