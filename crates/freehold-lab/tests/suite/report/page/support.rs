//! Documents to report, and how a page is looked at.

use std::collections::HashSet;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use assert_cmd::Command;
use freehold_lab::report::html::planes::decode;
use serde_json::{Value, json};

use crate::report::browser::{self, Browser};
pub(crate) use crate::report::commands::freehold;

/// The browser, one for all tests: it is half a dozen processes, and starting them takes longer
/// than most tests.
static BROWSER: Mutex<Option<Browser>> = Mutex::new(None);
/// Tests that wait for it.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The browser as one test has it, alone.
pub(crate) struct Page(MutexGuard<'static, Option<Browser>>);

/// The browser as new; `None`, said loudly, where there is none.
pub(crate) fn open(test: &str) -> Option<Page> {
    WAITING.fetch_add(1, Relaxed);
    let mut one = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.fetch_sub(1, Relaxed);
    if one.is_none() {
        *one = browser::start(test);
    }
    let browser = one.as_mut()?;
    browser.events.clear();
    browser.window(1280, 800, false);
    browser.prefer("light");
    Some(Page(one))
}

impl Deref for Page {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().expect("a page is made with a browser")
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut Browser {
        self.0.as_mut().expect("a page is made with a browser")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // What is in a static is never dropped: the last to leave ends the browser. So does a test
        // that fails, as nobody knows in what state it left it.
        if std::thread::panicking() || WAITING.load(Relaxed) == 0 {
            *self.0 = None;
        }
    }
}

/// The sample through all engines, with the picture of memory.
pub(crate) fn replay() -> &'static Value {
    static REPLAY: OnceLock<Value> = OnceLock::new();
    REPLAY.get_or_init(|| {
        serde_json::from_slice(&freehold(&["replay", "--json", "--memory-map", "12"])).unwrap()
    })
}

/// What `freehold bench` prints, and the fields that it may print besides.
pub(crate) fn bench() -> Value {
    let row = |benchmark: &str, engine: &str, metric: &str, median: f64, more: Value| {
        let mut row = json!({
            "benchmark": benchmark, "engine": engine, "metric": metric, "unit": "ns",
            "median": median, "min": median * 0.875, "max": median * 1.25, "runs": 5,
        });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let histogram = json!([[10, 90_000], [20, 9000], [400, 60], [5000, 3]]);
    json!({
        "yardstick": {"rmw_ns": 2.6265, "handover_ns": 33.9098},
        "rows": [
            row("pair", "freehold", "ns_per_pair_order0", 1.717_405, json!({"histogram": histogram, "baseline": true})),
            row("pair", "vanilla", "ns_per_pair_order0", 63.878, json!({"percent": 3619.4, "significant": true})),
            row("exit-avalanche", "freehold", "bystander_p999", 1234.5, json!({})),
            row("exit-avalanche", "vanilla", "bystander_p999", 98_765.0, json!({"significant": false})),
        ],
    })
}

/// All workloads on these machines.
fn grid(machines: &[&str]) -> Value {
    let rest = ["--allocations", "1000", "--json", "--no-progress", "--jobs", "1"];
    let printed = freehold(&[&["contiguity"], machines, &rest].concat());
    serde_json::from_slice(&printed).unwrap()
}

/// A small grid, with two seeds. It takes many seconds: for tests that are left to CI.
pub(crate) fn fragmentation() -> &'static Value {
    static GRID: OnceLock<Value> = OnceLock::new();
    GRID.get_or_init(|| {
        grid(&["--cpus", "2,16", "--memory-per-cpu", "2M,8M,16M", "--seeds", "1,2"])
    })
}

/// One machine of that grid.
pub(crate) fn one_machine() -> &'static Value {
    static GRID: OnceLock<Value> = OnceLock::new();
    GRID.get_or_init(|| grid(&["--cpus", "2", "--memory-per-cpu", "2M", "--seeds", "1"]))
}

/// What `freehold simulate` prints, with more fields than are known.
pub(crate) fn simulate() -> Value {
    let mut rows = Vec::new();
    for (e, engine) in ["vanilla", "pcp-buddy", "freehold"].iter().enumerate() {
        for workload in ["kernel-build", "exit-avalanche"] {
            for power in 0..=10 {
                let cpus = 1u64 << power;
                let limit = 60.0 * 8f64.powi(e as i32);
                let wait = cpus as f64 / (cpus as f64 + limit);
                rows.push(json!({
                    "engine": engine, "workload": workload, "cpus": cpus, "memory_bytes": 68_719_476_736u64,
                    "frames_per_second": (cpus as f64 * 5e7 * (1.0 - wait)).round(),
                    "zone_lock_wait_share": (wait * 1e4).round() / 1e4, "fallbacks": cpus * 3 + e as u64,
                    "unusable_index": 0.125,
                    "bound": if power < 2 { "think" } else if wait > 0.5 { "zone-lock" } else { "lines" },
                    "allocation_latency": {
                        "window_ns": 16_000, "allocations": [cpus * 900 + e as u64, 0, cpus * 800],
                        "p50_ns": [20 + e as u64, 0, 21], "p99_ns": [90 * cpus, 0, 95 * cpus], "max_ns": [9000, 0, 9_000_001],
                    },
                }));
            }
        }
    }
    json!({
        "command": "simulate", "seed": 20_240_917, "rows": rows,
        "verdict": "Most frames/s with the most CPUs: freehold in 2 of 2 cases.",
        "model": {"local_cycles": 4.25, "line_transfer": {"core_cycles": 110, "socket_cycles": 320}},
        "validation": [
            {"workload": "pair", "engine": "vanilla", "cpus": 1, "measured": 15_300_000.0, "simulated": 14_900_000.0},
            {"workload": "pair", "engine": "vanilla", "cpus": 2, "measured": 21_000_000.0, "simulated": 28_000_000.0},
        ],
    })
}

pub(crate) struct Report {
    folder: tempfile::TempDir,
}

impl Report {
    pub(crate) fn of(documents: &[Value]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names: Vec<PathBuf> =
            (0..documents.len()).map(|n| folder.path().join(format!("{n}.json"))).collect();
        for (name, document) in names.iter().zip(documents) {
            fs::write(name, document.to_string()).unwrap();
        }
        let report = Self { folder };
        Command::new(env!("CARGO_BIN_EXE_freehold"))
            .arg("report")
            .arg("-o")
            .arg(report.file())
            .args(names)
            .assert()
            .success();
        report
    }

    /// A result of each command, the grid of one machine.
    pub(crate) fn each() -> Self {
        Self::of(&[replay().clone(), bench(), one_machine().clone(), simulate()])
    }

    pub(crate) fn all() -> Self {
        Self::of(&[replay().clone(), bench(), fragmentation().clone(), simulate()])
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }
}

pub(crate) const VIEWS: [&str; 5] = ["replay", "bench", "fragmentation", "simulate", "about"];

/// Every number in a document but those of the charts' long lists.
pub(crate) fn numbers(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(array) if array.len() <= 12 || array.iter().all(Value::is_object) => {
            array.iter().for_each(|part| numbers(part, into))
        }
        Value::Object(object) => object
            .iter()
            .filter(|(name, _)| {
                ![
                    "timeline",
                    "memory_map",
                    "zone_lock_work_histogram",
                    "histogram",
                    "allocation_latency",
                    // Said in sentences.
                    "answer",
                ]
                .contains(&name.as_str())
            })
            .for_each(|(_, part)| numbers(part, into)),
        _ => {}
    }
}

/// The numbers that tables show, exactly.
pub(crate) fn shown(page: &mut Browser, within: &str) -> HashSet<u64> {
    page.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    page.settle();
    let values = page
        .eval(&format!("[...document.querySelectorAll('{within} data')].map((one) => one.value)"));
    let texts = values.as_array().unwrap().iter().map(|value| value.as_str().unwrap());
    texts
        .map(|text| {
            text.parse::<f64>().unwrap_or_else(|_| panic!("{text} is not a number")).to_bits()
        })
        .collect()
}

pub(crate) fn assert_all_shown(page: &mut Browser, within: &str, document: &Value) {
    let mut expected = Vec::new();
    numbers(document, &mut expected);
    assert!(expected.len() > 15, "{} numbers", expected.len());
    let found = shown(page, within);
    let missing: Vec<f64> =
        expected.into_iter().filter(|number| !found.contains(&number.to_bits())).collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
}

/// A plane that is the same at all moments, from the JSON.
pub(crate) fn constant_plane(map: &Value, name: &str) -> Vec<u64> {
    let mut cells = vec![0; map["cells"].as_u64().unwrap() as usize];
    decode(map[name].as_str().unwrap(), &mut cells).unwrap();
    cells
}

/// A plane of a moment, from the JSON.
pub(crate) fn plane(engine: &Value, name: &str, moment: usize) -> Vec<u64> {
    let map = &engine["memory_map"];
    let mut cells = vec![0; map["cells"].as_u64().unwrap() as usize];
    for text in &map[name].as_array().unwrap()[..=moment] {
        decode(text.as_str().unwrap(), &mut cells).unwrap();
    }
    cells
}
