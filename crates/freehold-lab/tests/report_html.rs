//! `freehold report` in a real browser: that every figure is there, that keys work, that nothing is fetched, that it
//! fits a phone and can be read in light and dark. Skipped, loudly, where there is no Chromium; `CHROMIUM` names one.
//!
//! `FREEHOLD_PICTURES=docs/pictures cargo test -p freehold-lab --test report_html pictures` draws the pictures of
//! docs/report.md anew.

mod browser;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use assert_cmd::Command;
use browser::Browser;
use freehold_lab::replay::memory_map::decode;
use serde_json::{Value, json};

/// One browser at a time: each is half a dozen processes.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn freehold(arguments: &[&str]) -> Vec<u8> {
    let done = Command::new(env!("CARGO_BIN_EXE_freehold")).args(arguments).assert().success();
    done.get_output().stdout.clone()
}

/// The sample through all engines, with the picture of memory.
fn replay() -> &'static Value {
    static REPLAY: OnceLock<Value> = OnceLock::new();
    REPLAY.get_or_init(|| serde_json::from_slice(&freehold(&["replay", "--json", "--memory-map", "12"])).unwrap())
}

/// What `freehold bench` prints, and the fields that it may print besides.
fn bench() -> Value {
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

/// A small grid, with two seeds.
fn fragmentation() -> &'static Value {
    static GRID: OnceLock<Value> = OnceLock::new();
    GRID.get_or_init(|| {
        let machines = ["--cpus", "2,16", "--memory-per-cpu", "2M,8M,16M", "--seeds", "1,2"];
        let rest = ["--allocations", "1000", "--json", "--no-progress", "--jobs", "1"];
        serde_json::from_slice(&freehold(&[&["bench", "fragmentation"], &machines[..], &rest].concat())).unwrap()
    })
}

/// What `freehold simulate` prints, with more fields than are known.
fn simulate() -> Value {
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
                }));
            }
        }
    }
    json!({
        "command": "simulate", "seed": 20_240_917, "rows": rows,
        "model": {"local_cycles": 4.25, "line_transfer": {"core_cycles": 110, "socket_cycles": 320}},
        "validation": [
            {"workload": "pair", "engine": "vanilla", "cpus": 1, "measured": 15_300_000.0, "simulated": 14_900_000.0},
            {"workload": "pair", "engine": "vanilla", "cpus": 2, "measured": 21_000_000.0, "simulated": 28_000_000.0},
        ],
    })
}

struct Report {
    folder: tempfile::TempDir,
}

impl Report {
    fn of(documents: &[Value]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names: Vec<PathBuf> = (0..documents.len()).map(|n| folder.path().join(format!("{n}.json"))).collect();
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

    fn all() -> Self {
        Self::of(&[replay().clone(), bench(), fragmentation().clone(), simulate()])
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }
}

const VIEWS: [&str; 5] = ["replay", "bench", "fragmentation", "simulate", "about"];

/// Every number in a document but those of the charts' long lists.
fn numbers(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(array) if array.len() <= 12 || array.iter().all(Value::is_object) => {
            array.iter().for_each(|part| numbers(part, into))
        }
        Value::Object(object) => object
            .iter()
            .filter(|(name, _)| {
                !["timeline", "memory_map", "zone_lock_work_histogram", "histogram"].contains(&name.as_str())
            })
            .for_each(|(_, part)| numbers(part, into)),
        _ => {}
    }
}

/// The numbers that tables show, exactly.
fn shown(page: &mut Browser, within: &str) -> HashSet<u64> {
    page.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    page.settle();
    let values = page.eval(&format!("[...document.querySelectorAll('{within} data')].map((one) => one.value)"));
    let texts = values.as_array().unwrap().iter().map(|value| value.as_str().unwrap());
    texts.map(|text| text.parse::<f64>().unwrap_or_else(|_| panic!("{text} is no number")).to_bits()).collect()
}

fn assert_all_shown(page: &mut Browser, within: &str, document: &Value) {
    let mut expected = Vec::new();
    numbers(document, &mut expected);
    assert!(expected.len() > 15, "{} numbers", expected.len());
    let found = shown(page, within);
    let missing: Vec<f64> = expected.into_iter().filter(|number| !found.contains(&number.to_bits())).collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
}

#[test]
fn every_number_is_in_the_page() {
    let _one = alone();
    let Some(mut page) = browser::start("every_number_is_in_the_page") else { return };
    let report = Report::all();
    page.window(1280, 800, false);
    for (view, document) in [
        ("replay", replay().clone()),
        ("bench", bench()),
        ("fragmentation", fragmentation().clone()),
        ("simulate", simulate()),
    ] {
        page.open(&report.file(), &format!("view={view}"));
        assert_all_shown(&mut page, &format!("#panel-{view}"), &document);
    }
    // The curves' own figures, in the table under the chart.
    page.open(&report.file(), "view=replay&over-time=free_blocks");
    let found = shown(&mut page, "#panel-replay .chart");
    for engine in replay()["engines"].as_array().unwrap() {
        for blocks in engine["timeline"]["free_blocks"].as_array().unwrap() {
            assert!(found.contains(&blocks.as_f64().unwrap().to_bits()), "{blocks} of {}", engine["engine"]);
        }
    }
    // And as people read them.
    let text = page.eval("document.querySelector('.comparison').innerText");
    let acquisitions = replay()["engines"][0]["zone_lock_acquisitions"].as_f64().unwrap();
    let rate = acquisitions * 1000.0 / replay()["replayed_events"].as_f64().unwrap();
    assert!(text.as_str().unwrap().contains(&format!("{rate:.1}")), "{rate} in {text}");
}

#[test]
fn the_page_is_valid_html_before_and_after_it_has_drawn_itself() {
    let report = Report::all();
    let text = fs::read_to_string(report.file()).unwrap();
    let parsed = scraper::Html::parse_document(&text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);

    let _one = alone();
    let Some(mut page) = browser::start("the_page_is_valid_html") else { return };
    for view in VIEWS {
        page.open(&report.file(), &format!("view={view}"));
        let drawn = page.eval("'<!DOCTYPE html>' + document.documentElement.outerHTML");
        let parsed = scraper::Html::parse_document(drawn.as_str().unwrap());
        assert!(parsed.errors.is_empty(), "{view}: {:?}", parsed.errors);
        let twice = page.eval(
            "[...document.querySelectorAll('[id]')].map((one) => one.id).filter((id, i, all) => all.indexOf(id) !== i)",
        );
        assert_eq!(twice, json!([]), "{view}: ids that are there twice");
        let bare = page.eval("[...document.querySelectorAll('th')].filter((one) => !one.scope).length + [...document.querySelectorAll('table')].filter((one) => !one.caption?.innerText).length");
        assert_eq!(bare, 0, "{view}: headings without a scope, tables without a caption");
        assert_eq!(page.eval("document.compatMode"), "CSS1Compat");
    }
}

#[test]
fn nothing_is_fetched_and_nothing_complains() {
    let _one = alone();
    let Some(mut page) = browser::start("nothing_is_fetched_and_nothing_complains") else { return };
    let report = Report::all();
    for view in VIEWS {
        page.open(&report.file(), &format!("view={view}"));
        page.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
        page.eval("document.querySelectorAll(`#panel-${new URLSearchParams(location.hash.slice(1)).get('view')} input[type=radio]`).forEach((one) => one.click())");
        page.settle();
        assert_eq!(page.complaints(), [] as [String; 0], "{view}");
        let fetched = page.fetched();
        assert_eq!(fetched.len(), 1, "{view}: {fetched:?}");
        assert!(fetched[0].starts_with("file://"), "{fetched:?}");
    }
    // The policy in the page would forbid it, too.
    let refused = page.eval("fetch('https://example.com/').then(() => 'fetched', () => 'refused')");
    assert_eq!(refused, "refused");
}

/// Asserts that what is said of a cell of the sample is what every engine said of it.
fn assert_cell_told(said: &str, cell: usize, moment: usize) {
    let map = &replay()["engines"][0]["memory_map"];
    let blocks = map["blocks_per_cell"].as_u64().unwrap();
    let name = if blocks > 1 { format!("Cell {cell} ({blocks} blocks)") } else { format!("Block {cell}") };
    let frames = constant_plane(map, "frames")[cell];
    let first = map["start_pfn"].as_u64().unwrap() + cell as u64 * blocks * 512;
    let range = format!("PFN 0x{first:x} to 0x{:x}", first + frames - 1);
    for expected in [name, range] {
        assert!(said.contains(&expected), "{expected} in {said}");
    }
    for engine in replay()["engines"].as_array().unwrap() {
        let name = engine["engine"].as_str().unwrap();
        let told = said.lines().skip_while(|line| line.trim() != format!("{name}:")).nth(1).unwrap_or_default();
        let holder = match plane(engine, "holder", moment)[cell] {
            0 => "the zone".to_owned(),
            cpu => format!("CPU {}", cpu - 1),
        };
        let free = plane(engine, "free", moment)[cell];
        let (free, frames) = (freehold_lab::report::thousands(free), freehold_lab::report::thousands(frames));
        assert!(told.contains(&holder), "{name}: {holder} in {said}");
        assert!(told.contains(&format!(" {free} of {frames} frames free")), "{name}: {free} of {frames} in {said}");
    }
}

#[test]
fn keys_reach_and_move_everything() {
    let _one = alone();
    let Some(mut page) = browser::start("keys_reach_and_move_everything") else { return };
    let report = Report::all();
    page.window(1280, 800, false);
    page.open(&report.file(), "");
    let focused = "document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || ''";

    page.key("Tab");
    assert_eq!(page.eval(focused), "Skip to the results");
    page.key("Tab");
    assert_eq!(page.eval(focused), "Theme");
    page.key("Tab");
    assert_eq!(page.eval(focused), "Replay");
    let outline =
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth";
    assert_eq!(page.eval(outline), "solid3px", "the focus can be seen");

    // Tabs: arrows, and round the end.
    let selected = "document.querySelector('[role=tab][aria-selected=true]').innerText";
    for (key, tab) in [
        ("ArrowRight", "Bench"),
        ("ArrowRight", "Fragmentation"),
        ("ArrowRight", "Simulate"),
        ("End", "About"),
        ("ArrowRight", "Replay"),
        ("ArrowLeft", "About"),
        ("Home", "Replay"),
    ] {
        page.key(key);
        assert_eq!(page.eval(selected), tab, "{key}");
        assert_eq!(page.eval(focused), tab);
        assert_eq!(
            page.eval("[...document.querySelectorAll('[role=tabpanel]')].filter((one) => !one.hidden).length"),
            1
        );
    }

    // The slider: the pictures and the counts below move with it.
    page.eval("document.querySelector('input[type=range]').focus()");
    let value = "document.querySelector('input[type=range]').getAttribute('aria-valuetext')";
    let pictures = "[...document.querySelectorAll('canvas')].map((one) => one.toDataURL()).join()";
    let (text, before) = (page.eval(value), page.eval(pictures));
    page.key("Home");
    assert_ne!(page.eval(value), text);
    assert!(page.eval(value).as_str().unwrap().contains("moment 1 of 12"), "{}", page.eval(value));
    assert_ne!(page.eval(pictures), before);
    page.key("ArrowRight");
    assert!(page.eval(value).as_str().unwrap().contains("moment 2 of 12"));

    // A map: the text says what is under the cursor on every engine.
    let readout = "[...document.querySelectorAll('#panel-replay output.readout')].pop().innerText";
    page.eval("document.querySelector('canvas').focus()");
    page.key("ArrowRight");
    page.key("ArrowRight");
    let said = page.eval(readout);
    assert_cell_told(said.as_str().unwrap(), 1, 1);
    page.key("End");
    let last = replay()["engines"][0]["memory_map"]["cells"].as_u64().unwrap() as usize - 1;
    let said = page.eval(readout);
    assert_cell_told(said.as_str().unwrap(), last, 1);

    // A chart.
    page.eval("document.querySelector('.plot').focus()");
    page.key("ArrowRight");
    let first = page.eval("document.querySelector('.chart .readout').innerText");
    page.key("End");
    let last = page.eval("document.querySelector('.chart .readout').innerText");
    assert!(first.as_str().unwrap().contains("vanilla") || first.as_str().unwrap().contains("5.17"), "{first}");
    assert_ne!(first, last);

    // Radio buttons: what the cells are coloured by.
    page.eval("[...document.querySelectorAll('input[type=radio]')].find((one) => one.value === 'holder').focus()");
    let before = page.eval(pictures);
    page.key("ArrowRight");
    assert_eq!(page.eval("document.activeElement.value"), "migratetype");
    assert_ne!(page.eval(pictures), before);

    // Everything that can be focused has a name, and is focused in the order in which it is read.
    page.eval("document.body.focus(); document.activeElement.blur()");
    let tree = page.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let mut roles = HashSet::new();
    for node in nodes.iter().filter(|node| node["ignored"] == false) {
        let focusable = node["properties"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|property| property["name"] == "focusable" && property["value"]["value"] == true);
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if focusable && !["RootWebArea", "main"].contains(&role) {
            roles.insert(role.to_owned());
            assert!(!node["name"]["value"].as_str().unwrap_or_default().is_empty(), "{role} without a name: {node}");
        }
    }
    for role in ["tab", "slider", "combobox", "radio", "button", "application", "region"] {
        assert!(roles.contains(role), "{role} among {roles:?}");
    }
    let order = page.eval("[...document.querySelectorAll('[tabindex]')].every((one) => one.tabIndex <= 0)");
    assert_eq!(order, true, "no order of its own");
}

/// Of all text that can be seen, what stands out from its ground by less than 4.5 to 1 (3 to 1 if large), and of the
/// colours of curves and cells those by less than 3 to 1.
const FAINT: &str = r"(() => {
  const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length > 3 && n[3] === 0 ? null : n.slice(0, 3); };
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const ground = (one) => { for (let at = one; at; at = at.parentElement) { const found = parse(getComputedStyle(at).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const faint = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.checkVisibility({ checkOpacity: true }) || ['SCRIPT', 'NOSCRIPT', 'OPTION'].includes(one.tagName)) continue;
    const style = getComputedStyle(one);
    const ink = parse(one.namespaceURI.includes('svg') ? style.fill : style.color);
    const found = contrast(ink, ground(one));
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 600);
    if (found < (large ? 3 : 4.5)) faint.push(`${one.tagName}.${one.className?.baseVal ?? one.className} '${one.textContent.slice(0, 20)}' ${found.toFixed(2)}`);
  }
  const page = parse(getComputedStyle(document.body).backgroundColor);
  for (const name of ['zone', 'edge', 'accent', ...Array.from({ length: 8 }, (_, i) => `series-${i}`)]) {
    const found = contrast(resolved(`--${name}`), page);
    if (found < 3) faint.push(`--${name} ${found.toFixed(2)}`);
  }
  return faint;
})()";

const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[test]
fn light_and_dark_follow_the_system_and_the_choice() {
    let _one = alone();
    let Some(mut page) = browser::start("light_and_dark_follow_the_system_and_the_choice") else { return };
    let report = Report::all();
    let (light, dark) = (json!("rgb(255, 255, 255)"), json!("rgb(15, 20, 25)"));
    for (scheme, expected) in [("light", &light), ("dark", &dark)] {
        page.prefer(scheme);
        for view in VIEWS {
            page.open(&report.file(), &format!("view={view}"));
            assert_eq!(page.eval(BACKGROUND), *expected, "{scheme}");
            assert_eq!(page.eval(FAINT), json!([]), "{view} in {scheme}: text or colours that are hard to see");
        }
    }
    // The choice beats the system, stays in the address, and maps are painted anew.
    page.open(&report.file(), "");
    let picture = "document.querySelector('canvas').toDataURL()";
    let before = page.eval(picture);
    let choose = |theme: &str| {
        format!(
            "(() => {{ const list = document.querySelector('header select'); list.value = '{theme}'; list.dispatchEvent(new Event('change')); }})()"
        )
    };
    page.eval(&choose("light"));
    page.settle();
    assert_eq!(page.eval(BACKGROUND), light);
    assert_ne!(page.eval(picture), before);
    assert!(page.eval("location.hash").as_str().unwrap().contains("theme=light"));
    page.eval(&choose("auto"));
    assert_eq!(page.eval(BACKGROUND), dark);
    page.open(&report.file(), "theme=light");
    assert_eq!(page.eval(BACKGROUND), light, "an address that was sent");
}

#[test]
fn no_page_scrolls_sideways_on_a_phone() {
    let _one = alone();
    let Some(mut page) = browser::start("no_page_scrolls_sideways_on_a_phone") else { return };
    // Names as long as they may come.
    let mut long = replay().clone();
    long["trace"]["name"] = json!("a-recording-of-a-very-long-name/".repeat(6));
    long["engines"][1]["engine"] = json!("pcp-buddy-fixed,-merge,+lock-free-drain,-contig-free,-right-buddy-prefetch");
    let mut grid = fragmentation().clone();
    for cell in grid["cells"].as_array_mut().unwrap().iter_mut().filter(|cell| cell["engine"] == "vanilla") {
        cell["engine"] = json!("pcp-buddy-fixed,-merge,+lock-free-drain,-contig-free,-right-buddy-prefetch");
    }
    let report = Report::of(&[long, bench(), grid, simulate()]);
    for width in [320, 390, 820, 1280] {
        page.window(width, 844, width < 1000);
        for view in VIEWS {
            page.open(&report.file(), &format!("view={view}"));
            let widths = page.eval("[document.documentElement.scrollWidth, window.innerWidth]");
            assert_eq!(widths, json!([width, width]), "{view} at {width}");
        }
    }
    // And text is not made small to fit.
    page.window(390, 844, true);
    page.open(&report.file(), "");
    assert_eq!(page.eval("parseFloat(getComputedStyle(document.body).fontSize) >= 16"), true);
}

#[test]
fn text_in_the_data_is_never_markup() {
    let _one = alone();
    let Some(mut page) = browser::start("text_in_the_data_is_never_markup") else { return };
    let evil =
        "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'><!-- {{data}} \u{2028}";
    let mut replayed = replay().clone();
    replayed["trace"]["name"] = json!(evil);
    replayed["trace"]["kernel"] = json!(evil);
    replayed["engines"][2]["engine"] = json!(evil);
    let mut measured = bench();
    measured["rows"][1]["engine"] = json!(evil);
    measured["rows"][1]["metric"] = json!(evil);
    let mut simulated = simulate();
    simulated["rows"][0]["workload"] = json!(evil);
    simulated["model"][evil] = json!(evil);
    let mut grid = fragmentation().clone();
    for cell in grid["cells"].as_array_mut().unwrap().iter_mut().filter(|cell| cell["engine"] == "vanilla") {
        cell["engine"] = json!(evil);
    }
    grid["cells"][0]["workload"] = json!(evil);
    let report = Report::of(&[replayed, measured, grid, simulated]);
    for view in VIEWS {
        page.open(&report.file(), &format!("view={view}"));
        page.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
        page.settle();
        assert_eq!(page.eval("window.harmed === undefined"), true, "{view}");
        assert_eq!(
            page.eval("document.querySelectorAll('img, body script').length"),
            2,
            "{view}: only its own scripts"
        );
        assert_eq!(page.complaints(), [] as [String; 0], "{view}");
    }
    page.open(&report.file(), "view=replay");
    assert_eq!(page.eval("document.querySelector('h2').textContent"), evil, "it is shown as it is");
}

/// A plane that is the same at all moments, from the JSON.
fn constant_plane(map: &Value, name: &str) -> Vec<u64> {
    let mut cells = vec![0; map["cells"].as_u64().unwrap() as usize];
    decode(map[name].as_str().unwrap(), &mut cells).unwrap();
    cells
}

/// A plane of a moment, from the JSON.
fn plane(engine: &Value, name: &str, moment: usize) -> Vec<u64> {
    let map = &engine["memory_map"];
    let mut cells = vec![0; map["cells"].as_u64().unwrap() as usize];
    for text in &map[name].as_array().unwrap()[..=moment] {
        decode(text.as_str().unwrap(), &mut cells).unwrap();
    }
    cells
}

#[test]
fn the_picture_of_memory_is_what_the_engines_said() {
    let _one = alone();
    let Some(mut page) = browser::start("the_picture_of_memory_is_what_the_engines_said") else { return };
    let report = Report::of(&[replay().clone()]);
    page.window(1280, 800, false);
    let engines = replay()["engines"].as_array().unwrap();
    for moment in [0, 5, 11] {
        page.open(&report.file(), &format!("colour=holder&moment={moment}"));
        let table = page.eval("[...document.querySelectorAll('.legend-table tbody tr')].map((row) => [row.querySelector('th').innerText.trim(), [...row.querySelectorAll('data')].map((one) => Number(one.value))])");
        let table: Vec<(String, Vec<u64>)> = serde_json::from_value(table).unwrap();
        for (holder, name) in [(0, "the zone"), (1, "CPU 0"), (2, "CPU 1")] {
            let counts: Vec<u64> = engines
                .iter()
                .map(|engine| plane(engine, "holder", moment).iter().filter(|held| **held == holder).count() as u64)
                .collect();
            let row = table.iter().find(|(found, _)| found == name).map(|(_, counts)| counts.clone());
            assert_eq!(row.unwrap_or_else(|| vec![0; counts.len()]), counts, "{name} at moment {moment}");
        }
    }
    // A cell has the colour of its holder in the legend, the stronger the more of it is in use: the fullest and the
    // emptiest that each holder has.
    let freehold = engines.last().unwrap();
    let map = &freehold["memory_map"];
    let (holders, free) = (plane(freehold, "holder", 11), plane(freehold, "free", 11));
    let used: Vec<f64> =
        constant_plane(map, "frames").iter().zip(&free).map(|(all, free)| 1.0 - *free as f64 / *all as f64).collect();
    let mut cells = Vec::new();
    for holder in [0, 1] {
        let own = || (0..holders.len()).filter(|cell| holders[*cell] == holder);
        let by_use = |a: &usize, b: &usize| used[*a].total_cmp(&used[*b]);
        cells.extend([own().max_by(by_use), own().min_by(by_use)].map(|cell| cell.expect("each holds a cell")));
    }
    assert!(used[cells[2]] - used[cells[3]] > 0.25, "CPU 0 has cells in use and others that are not");
    for cell in cells {
        let name = if holders[cell] == 0 { "the zone" } else { "CPU 0" };
        let looked = look_at_cell(&mut page, holders.len(), cell, name);
        assert!(looked.size < 7, "no room to fill a cell from below: {looked:?}");
        looked.assert_mixed(looked.middle, 0.3 + 0.7 * used[cell], &format!("cell {cell} of {name}"));
    }
}

/// A cell of the last map, and the colours that it is to be made of.
#[derive(serde::Deserialize, Debug)]
struct Looked {
    /// Pixels from one cell to the next.
    size: u64,
    top: [f64; 3],
    middle: [f64; 3],
    bottom: [f64; 3],
    /// The colour of the holder in the legend.
    legend: [f64; 3],
    /// The ground of the page.
    page: [f64; 3],
}

impl Looked {
    /// Asserts that a colour is so much of the legend's on the ground of the page.
    fn assert_mixed(&self, found: [f64; 3], share: f64, what: &str) {
        for (part, colour) in found.into_iter().enumerate() {
            let expected = self.page[part] + (self.legend[part] - self.page[part]) * share;
            assert!((colour - expected).abs() <= 1.0, "{what}: {found:?}, not {share} of the legend's: {self:?}");
        }
    }
}

/// Looks at a cell of the last map, of so many cells, whose holder has this name in the legend.
fn look_at_cell(page: &mut Browser, cells: usize, cell: usize, holder: &str) -> Looked {
    let found = page.eval(&format!(
        "(() => {{
            const map = [...document.querySelectorAll('canvas')].pop();
            const columns = [8, 16, 32, 64, 128].find((columns) => {{
                const size = map.clientWidth / columns;
                return Number.isInteger(size) && Math.ceil({cells} / columns) * size === map.clientHeight;
            }});
            const size = map.clientWidth / columns;
            const pixel = (down) => [...map.getContext('2d').getImageData({cell} % columns * size + Math.floor(size / 2), Math.floor({cell} / columns) * size + down, 1, 1).data].slice(0, 3);
            const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const row = [...document.querySelectorAll('.legend-table tbody tr')].find((row) => row.querySelector('th').innerText.trim() === '{holder}');
            return {{
                size, top: pixel(0), middle: pixel(Math.floor(size / 2) - 1), bottom: pixel(size - 2),
                legend: parts(getComputedStyle(row.querySelector('.swatch')).backgroundColor),
                page: parts(getComputedStyle(document.body).backgroundColor),
            }};
        }})()"
    ));
    serde_json::from_value(found).unwrap()
}

#[test]
fn large_cells_are_filled_from_below_as_far_as_they_are_in_use() {
    let _one = alone();
    let Some(mut page) = browser::start("large_cells_are_filled_from_below") else { return };
    let text = freehold(&["replay", "--json", "--machine", "512M", "--memory-map", "2", "-e", "freehold"]);
    let replayed: Value = serde_json::from_slice(&text).unwrap();
    let engine = &replayed["engines"][0];
    let frames = constant_plane(&engine["memory_map"], "frames");
    let (holders, free) = (plane(engine, "holder", 1), plane(engine, "free", 1));
    let is_half = |cell: &usize| (frames[*cell] / 4..=frames[*cell] * 3 / 4).contains(&free[*cell]);
    let cell = (0..holders.len()).filter(|cell| holders[*cell] == 1).find(is_half).expect("a block half in use");
    let report = Report::of(std::slice::from_ref(&replayed));
    page.window(1280, 800, false);
    page.open(&report.file(), "colour=holder&moment=1");
    let looked = look_at_cell(&mut page, holders.len(), cell, "CPU 0");
    looked.assert_mixed(looked.top, 0.3, "what is free, above");
    looked.assert_mixed(looked.bottom, 1.0, "what is in use, below");
}

#[test]
fn a_large_machines_cells_stand_for_several_blocks_and_say_so() {
    let text =
        freehold(&["replay", "--json", "--memory", "64G", "--memory-map", "2", "-e", "freehold", "-e", "vanilla"]);
    let replayed: Value = serde_json::from_slice(&text).unwrap();
    for engine in replayed["engines"].as_array().unwrap() {
        let map = &engine["memory_map"];
        assert_eq!((&map["blocks"], &map["blocks_per_cell"], &map["cells"]), (&json!(32768), &json!(8), &json!(4096)));
        // The last sample but one: the last is that of the trace's end.
        let frames = engine["timeline"]["free_frames"].as_array().unwrap();
        assert_eq!(
            json!(plane(engine, "free", 1).iter().sum::<u64>()),
            frames[frames.len() - 2],
            "{}",
            engine["engine"]
        );
    }
    let _one = alone();
    let Some(mut page) = browser::start("a_large_machines_cells_stand_for_several_blocks") else { return };
    let report = Report::of(&[replayed]);
    page.open(&report.file(), "");
    let text = page.eval("document.querySelector('#panel-replay').innerText");
    assert!(text.as_str().unwrap().contains("Each cell stands for 8 neighbouring pageblocks (16 MiB)"));
}

/// The means over the seeds of a figure of the grid, by "CPUs memory-a-CPU", of one engine.
fn means(workload: &str, level: Option<f64>, engine: &str, figure: &str) -> BTreeMap<String, f64> {
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for cell in fragmentation()["cells"].as_array().unwrap() {
        if cell["workload"] == workload && cell["engine"] == engine && level == cell["used_percent"].as_f64() {
            let each = cell["memory_mib"].as_u64().unwrap() / cell["cpus"].as_u64().unwrap();
            let values = found.entry(format!("{} {each}", cell["cpus"])).or_default();
            values.push(cell.pointer(figure).unwrap().as_f64().unwrap());
        }
    }
    found.into_iter().map(|(place, all)| (place, all.iter().sum::<f64>() / all.len() as f64)).collect()
}

/// A picture of the grid: for each engine the cells' place, how strong their colour is, and what is written in them.
fn heat(page: &mut Browser, title: &str) -> Vec<Vec<(String, f64, String)>> {
    let found = page.eval(&format!(
        "(() => {{
            const figure = [...document.querySelectorAll('figure.heat')].find((one) => one.querySelector('strong').innerText === '{title}');
            return [...figure.querySelectorAll('svg')].map((picture) => [...picture.querySelectorAll('.heat-cell')].map((cell) =>
                [cell.dataset.place, Number(cell.getAttribute('fill-opacity')), cell.nextElementSibling.textContent]));
        }})()"
    ));
    serde_json::from_value(found).unwrap_or_else(|error| panic!("{title}: {error}"))
}

#[test]
fn the_picture_of_the_grid_is_what_the_cells_said() {
    let _one = alone();
    let Some(mut page) = browser::start("the_picture_of_the_grid_is_what_the_cells_said") else { return };
    let report = Report::of(&[fragmentation().clone()]);
    page.window(1280, 800, false);
    page.open(&report.file(), "");
    let share = |value: f64| format!("{value:.3}");
    let rate = |value: f64| match value {
        0.0 => "0".to_owned(),
        _ if value < 0.1 => format!("{value:.3}"),
        _ if value < 100.0 => format!("{value:.2}"),
        _ if value < 1000.0 => format!("{value:.1}"),
        _ => freehold_lab::report::thousands(value.round() as u64),
    };
    let linear = |value: f64, least: f64, most: f64| (value - least) / (most - least);
    let reversed = |value: f64, least: f64, most: f64| 1.0 - (value - least) / (most - least);
    // A zero is a tenth of the least above it.
    let log = |value: f64, least: f64, most: f64| (value.max(least) / least).ln() / (most / least).ln();
    type Text = fn(f64) -> String;
    type Scale = fn(f64, f64, f64) -> f64;
    for (workload, level, figure, title, text, scale) in [
        (
            "kernel-build-like",
            None,
            "/unusable/9",
            "kernel-build-like: unusable-free-space index, order 9",
            share as Text,
            linear as Scale,
        ),
        (
            "kernel-build-like",
            None,
            "/zone_locks_per_1000",
            "kernel-build-like: zone locks per 1,000 frames",
            rate,
            log,
        ),
        ("aging", Some(60.0), "/unusable/9", "aging, 60 % in use: unusable-free-space index, order 9", share, linear),
        (
            "aging",
            Some(60.0),
            "/order9_share",
            "aging, 60 % in use: share of free memory to be had as order 9",
            share,
            reversed,
        ),
    ] {
        let engines = ["vanilla", "freehold"].map(|engine| means(workload, level, engine, figure));
        let all = || engines.iter().flat_map(BTreeMap::values).copied();
        let (mut least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        if title.contains("locks") && least == 0.0 {
            least = all().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min) / 10.0;
        }
        assert!(least < most && engines[0] != engines[1], "{title}: nothing to tell apart");
        let drawn = heat(&mut page, title);
        assert_eq!(drawn.len(), 2, "{title}");
        for (engine, drawn) in engines.iter().zip(drawn) {
            assert_eq!(drawn.len(), 6, "{title}: two numbers of CPUs, three sizes");
            for (place, strength, written) in drawn {
                let value = engine[&place];
                assert_eq!(written, text(value), "{title}: {place}");
                let expected = scale(value, least, most);
                assert!((strength - expected).abs() < 1e-3, "{title}: {place} {value}: {strength}, not {expected}");
            }
        }
    }
    // What no cell has is not drawn.
    let titles = page.eval("[...document.querySelectorAll('figure.heat strong')].map((one) => one.innerText).join()");
    let titles = titles.as_str().unwrap();
    assert!(titles.contains("fill, order 9: how full memory is at the first failure, %"), "{titles}");
    assert!(!titles.contains("fill, order 9: unusable"), "{titles}");
    assert!(titles.contains("idle, 50 % in use: share of memory that idle CPUs keep"), "{titles}");
    // One machine at several levels is one picture, levels across.
    let mut mix = fragmentation().clone();
    mix["cells"].as_array_mut().unwrap().retain(|cell| cell["workload"] == "two-cpu-mix" && cell["memory_mib"] == 32);
    page.open(&Report::of(&[mix]).file(), "");
    let drawn = heat(&mut page, "two-cpu-mix: wholly free blocks");
    let places: Vec<&str> = drawn[1].iter().map(|(place, ..)| place.as_str()).collect();
    assert_eq!(places.len(), 8, "{places:?}");
    assert_eq!((places[0], places[7]), ("10 % in use machine", "80 % in use machine"));
}

/// The least contrast of text in the pictures of the grid, and of the worst colour against the page.
const HEAT_CONTRAST: &str = r"(() => {
  const parse = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const fill = (one) => parse(getComputedStyle(one).fill);
  let [least, texts] = [Infinity, 0];
  for (const cell of document.querySelectorAll('.heat-cell')) {
    const [from, to] = [fill(cell.previousElementSibling), fill(cell)];
    const ground = from.map((part, i) => part + (to[i] - part) * Number(cell.getAttribute('fill-opacity')));
    for (let text = cell.nextElementSibling; text?.tagName === 'text' && /heat-/.test(text.className.baseVal); text = text.nextElementSibling) {
      least = Math.min(least, contrast(fill(text), ground));
      texts += 1;
    }
  }
  return [texts, least, contrast(fill(document.querySelector('.heat-cell')), parse(getComputedStyle(document.body).backgroundColor))];
})()";

#[test]
fn the_grid_can_be_read_in_light_and_dark_and_by_keys() {
    let _one = alone();
    let Some(mut page) = browser::start("the_grid_can_be_read_in_light_and_dark_and_by_keys") else { return };
    let report = Report::of(&[fragmentation().clone()]);
    page.window(1280, 800, false);
    let mut colours = Vec::new();
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        page.open(&report.file(), "");
        let found: (u64, f64, f64) = serde_json::from_value(page.eval(HEAT_CONTRAST)).unwrap();
        assert!(found.0 > 100, "{scheme}: {found:?}");
        assert!(found.1 >= 4.5, "{scheme}: text in cells {found:?}");
        assert!(found.2 >= 2.5, "{scheme}: the worst colour against the page {found:?}");
        colours.push(page.eval("getComputedStyle(document.querySelector('.heat-cell')).fill"));
    }
    assert_ne!(colours[0], colours[1], "colours of their own in the dark");

    let readout = "document.querySelector('figure.heat .readout').innerText";
    page.eval("document.querySelector('.heats').focus()");
    let unusable =
        |engine: &str, place: &str| format!("{:.3}", means("kernel-build-like", None, engine, "/unusable/9")[place]);
    for (key, said, place) in [
        ("ArrowRight", "2 CPUs, 2 MiB a CPU", "2 2"),
        ("ArrowRight", "16 CPUs, 2 MiB a CPU", "16 2"),
        ("ArrowRight", "16 CPUs, 2 MiB a CPU", "16 2"),
        ("ArrowDown", "16 CPUs, 8 MiB a CPU", "16 8"),
        ("ArrowLeft", "2 CPUs, 8 MiB a CPU", "2 8"),
        ("ArrowUp", "2 CPUs, 2 MiB a CPU", "2 2"),
        ("End", "16 CPUs, 16 MiB a CPU", "16 16"),
        ("Home", "2 CPUs, 2 MiB a CPU", "2 2"),
    ] {
        page.key(key);
        let found = page.eval(readout);
        let found = found.as_str().unwrap().replace('\n', " ");
        let engines = ["vanilla", "freehold"].map(|engine| format!("{engine} {}", unusable(engine, place)));
        for expected in [said, &engines[0], &engines[1]] {
            assert!(found.contains(expected), "{key}: {expected} in {found}");
        }
        let marked = page.eval("[...document.querySelector('.heats').querySelectorAll('.heat-mark')].filter((one) => one.getAttribute('visibility') === 'visible').length");
        assert_eq!(marked, 2, "{key}: on both engines");
    }
    let names = page.eval("[...document.querySelectorAll('.heats')].every((one) => one.tabIndex === 0 && /freehold: from .* to .*/.test(one.getAttribute('aria-label')))");
    assert_eq!(names, true, "each picture can be reached and says what is in it");
}

#[test]
fn a_grid_that_was_stopped_at_once_is_said_to_be_empty() {
    let _one = alone();
    let Some(mut page) = browser::start("a_grid_that_was_stopped_at_once_is_said_to_be_empty") else { return };
    let report = Report::of(&[json!({"cells": []})]);
    page.open(&report.file(), "");
    let text = page.eval("document.querySelector('#panel-fragmentation').innerText");
    assert!(text.as_str().unwrap().contains("No cell was finished"), "{text}");
    assert_eq!(page.complaints(), [] as [String; 0]);
}

#[test]
fn what_the_replay_says_of_blocks_and_holds_adds_up() {
    for engine in replay()["engines"].as_array().unwrap() {
        let name = &engine["engine"];
        let holds = engine["zone_lock_work_histogram"].as_array().unwrap();
        let sum: u64 = holds.iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
        assert_eq!(json!(sum), engine["zone_lock_acquisitions"], "{name}: every hold is in one bucket");
        assert!(holds.iter().all(|bucket| bucket[0].as_u64() <= bucket[1].as_u64()), "{name}");
        assert!(holds.windows(2).all(|two| two[0][1].as_u64() < two[1][0].as_u64()), "{name}: by rising steps");
        assert_eq!(holds.last().unwrap()[1], engine["zone_lock_work_max"], "{name}");

        let timeline = &engine["timeline"];
        let times = timeline["ts_ns"].as_array().unwrap();
        for (column, values) in timeline.as_object().unwrap() {
            assert_eq!(values.as_array().unwrap().len(), times.len(), "{name}: {column}");
        }
        let map = &engine["memory_map"];
        assert_eq!(map["ts_ns"].as_array().unwrap().len(), 12);
        for (moment, time) in map["ts_ns"].as_array().unwrap().iter().enumerate() {
            let at = times.iter().position(|other| other == time).expect("a moment of the timeline");
            let free: u64 = plane(engine, "free", moment).iter().sum();
            let total = timeline["free_frames"][at].as_u64().unwrap();
            assert_eq!(free, total, "{name}: moment {moment}");
            assert_eq!(plane(engine, "holder", moment).iter().filter(|held| **held > 2).count(), 0, "two CPUs");
        }
    }
    let plain: Value = serde_json::from_slice(&freehold(&["replay", "--json", "-e", "freehold"])).unwrap();
    assert!(plain["engines"][0].get("memory_map").is_none(), "only where it is asked for");
}

#[test]
fn the_same_input_gives_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let (json, a, b) = (folder.path().join("x.json"), folder.path().join("a.html"), folder.path().join("b.html"));
    fs::write(&json, format!("{}\n{}", bench(), simulate())).unwrap();
    for file in [&a, &b] {
        freehold(&["report", path(&json), "-o", path(file), "--title", "Nightly <1>"]);
    }
    let text = fs::read_to_string(&a).unwrap();
    assert_eq!(text, fs::read_to_string(&b).unwrap());
    assert!(text.contains("<title>Nightly &lt;1&gt;</title>"));
    assert!(text.contains("x.json, document 1") && text.contains("x.json, document 2"), "several in one file");
    let out = Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["report", "-o", "-", "--title", "Nightly <1>", "-"])
        .write_stdin(fs::read(&json).unwrap())
        .assert()
        .success();
    assert_eq!(out.get_output().stdout.len(), text.replace("x.json, doc", "standard input, doc").len());
}

#[test]
fn replay_writes_the_report_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("replay.html");
    freehold(&["replay", "-e", "vanilla", "-e", "freehold", "--html", path(&file)]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"memory_map\"") && text.contains("page-cache-churn"));
    let missing = folder.path().join("no/such/folder.html");
    let done = Command::new(env!("CARGO_BIN_EXE_freehold")).args(["replay", "--html", path(&missing)]).assert().code(2);
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(said.contains("cannot write the report") && said.contains("hint"), "{said}");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

#[test]
fn help_names_what_can_be_reported() {
    let said = String::from_utf8(freehold(&["report", "--help"])).unwrap();
    for command in ["replay --json", "bench --json", "bench fragmentation --json", "simulate --json"] {
        assert!(said.contains(command), "{command} in {said}");
    }
}

#[test]
fn what_cannot_be_reported_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let good = file("good.json", &bench().to_string());
    let before = fs::read(&good).unwrap();
    for (arguments, expected) in [
        (vec![file("empty.json", " \n")], vec!["empty.json is empty", "hint"]),
        (vec![file("table.txt", "ENGINE   5.17\n")], vec!["table.txt is not JSON", "line 1", "--json"]),
        (vec![file("cut.json", "{\"rows\": [")], vec!["cut.json is not JSON"]),
        (vec![file("t.parquet", "PAR1....")], vec!["Parquet", "freehold replay --json"]),
        (vec![file("old.html", "<!DOCTYPE html>")], vec!["put -o before it"]),
        (
            vec![file("other.json", "{\"presets\": [], \"switches\": []}")],
            vec!["\"presets\", \"switches\"", "expected"],
        ),
        (vec![file("rows.json", "{\"rows\": [{\"colour\": 1}]}")], vec!["first row the keys \"colour\""]),
        (vec![good.clone(), folder.path().join("missing.json")], vec!["cannot read", "missing.json"]),
        (vec![PathBuf::from("-"), PathBuf::from("-")], vec!["only once"]),
    ] {
        let out = folder.path().join("out.html");
        let done = Command::new(env!("CARGO_BIN_EXE_freehold"))
            .arg("report")
            .args(&arguments)
            .arg("-o")
            .arg(&out)
            .write_stdin("")
            .assert()
            .code(2);
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        for expected in expected {
            assert!(said.contains(expected), "{expected:?} in {said}");
        }
        assert!(!out.exists(), "nothing is written for {arguments:?}");
    }
    let over =
        Command::new(env!("CARGO_BIN_EXE_freehold")).arg("report").arg(&good).arg("-o").arg(&good).assert().code(2);
    assert!(String::from_utf8_lossy(&over.get_output().stderr).contains("would overwrite"));
    assert_eq!(fs::read(&good).unwrap(), before);
}

#[test]
fn pictures() {
    let Some(folder) = std::env::var_os("FREEHOLD_PICTURES") else { return };
    // Tests run in the crate's folder; the command in the documentation is given at the root.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let _one = alone();
    let Some(mut page) = browser::start("pictures") else { return };
    let report = Report::of(&[serde_json::from_slice(&freehold(&["replay", "--json", "--memory-map", "48"])).unwrap()]);
    for (name, width, height, phone, scheme, place) in [
        ("report-laptop.png", 1280, 800, false, "light", ""),
        ("report-dark.png", 1280, 800, false, "dark", "at=memory&moment=36"),
        ("report-phone.png", 390, 844, true, "light", "at=fragmentation"),
    ] {
        page.window(width, height, phone);
        page.prefer(scheme);
        page.open(&report.file(), place);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let png = page.screenshot();
        assert!(png.len() < 200 << 10, "{name}: {} bytes", png.len());
        fs::write(folder.join(name), png).unwrap();
    }
}
