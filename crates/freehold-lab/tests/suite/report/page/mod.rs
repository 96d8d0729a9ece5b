//! `freehold report` in a real browser: that every figure is there, that keys work, that nothing is
//! fetched, that it fits a phone and can be read in light and dark. Skipped, loudly, where there is
//! no Chromium; `CHROMIUM` names one.
//!
//! | file | what |
//! |---|---|
//! | this one | the page as a whole, every tab |
//! | [`memory`] | the picture of memory and its cells |
//! | [`benchmarks`] | the tab of `bench`: contents, groups, columns |
//! | [`orders`] | a replay by order and migratetype, and what it does not know of latency |
//! | [`paper`] | what is printed |
//! | [`grid`] | the pictures of `contiguity` |
//! | [`command`] | what the command takes, writes and refuses; no browser |
//! | [`support`] | documents to report, and how a page is looked at |
//!
//! `FREEHOLD_PICTURES=docs/pictures cargo test -p freehold-lab --test suite pictures` draws
//! the pictures of docs/report.md anew.

mod benchmarks;
mod command;
mod grid;
mod memory;
mod orders;
mod paper;
mod support;
mod valid;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::json;

use support::*;

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn every_number_is_in_the_page() {
    let Some(mut page) = open("every_number_is_in_the_page") else { return };
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
            assert!(
                found.contains(&blocks.as_f64().unwrap().to_bits()),
                "{blocks} of {}",
                engine["engine"]
            );
        }
    }
    // And as people read them.
    let text = page.eval(
        "[...document.querySelectorAll('.comparison')].map((one) => one.innerText).join(' ')",
    );
    let acquisitions = replay()["engines"][0]["zone_lock_acquisitions"].as_f64().unwrap();
    let rate = acquisitions * 1000.0 / replay()["replayed_events"].as_f64().unwrap();
    assert!(text.as_str().unwrap().contains(&format!("{rate:.1}")), "{rate} in {text}");
    // Latencies of the machine that was chosen.
    let of = "kernel-build%2C+CPUs+512";
    page.open(&report.file(), &format!("view=simulate&latency-of={of}&latency=max_ns"));
    let found = shown(&mut page, "#panel-simulate");
    let document = simulate();
    let rows = document["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["workload"] == "kernel-build" && row["cpus"] == 512) {
        for field in ["allocations", "p50_ns", "p99_ns", "max_ns"] {
            for number in row["allocation_latency"][field].as_array().unwrap() {
                assert!(
                    found.contains(&number.as_f64().unwrap().to_bits()),
                    "{field} {number} of {}",
                    row["engine"]
                );
            }
        }
    }
}

#[test]
fn the_page_is_valid_html_before_and_after_it_has_drawn_itself() {
    let report = Report::each();
    let text = fs::read_to_string(report.file()).unwrap();
    assert_eq!(valid::problems(&text), [] as [String; 0]);

    let Some(mut page) = open("the_page_is_valid_html") else { return };
    for view in VIEWS {
        page.open(&report.file(), &format!("view={view}"));
        let drawn = page.eval("'<!DOCTYPE html>' + document.documentElement.outerHTML");
        assert_eq!(valid::problems(drawn.as_str().unwrap()), [] as [String; 0], "{view}");
        let twice = page.eval(
            "[...document.querySelectorAll('[id]')].map((one) => one.id).filter((id, i, all) => \
             all.indexOf(id) !== i)",
        );
        assert_eq!(twice, json!([]), "{view}: ids that are there twice");
        let bare = page.eval(
            "[...document.querySelectorAll('th')].filter((one) => \
                              !one.scope).length + \
                              [...document.querySelectorAll('table')].filter((one) => \
                              !one.caption?.innerText).length",
        );
        assert_eq!(bare, 0, "{view}: headings without a scope, tables without a caption");
        assert_eq!(page.eval("document.compatMode"), "CSS1Compat");
    }
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn nothing_is_fetched_and_nothing_complains() {
    let Some(mut page) = open("nothing_is_fetched_and_nothing_complains") else { return };
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
    let name =
        if blocks > 1 { format!("Cell {cell} ({blocks} blocks)") } else { format!("Block {cell}") };
    let frames = constant_plane(map, "frames")[cell];
    let first = map["start_pfn"].as_u64().unwrap() + cell as u64 * blocks * 512;
    let range = format!("PFN 0x{first:x} to 0x{:x}", first + frames - 1);
    for expected in [name, range] {
        assert!(said.contains(&expected), "{expected} in {said}");
    }
    for engine in replay()["engines"].as_array().unwrap() {
        let name = engine["engine"].as_str().unwrap();
        let told = said
            .lines()
            .skip_while(|line| line.trim() != format!("{name}:"))
            .nth(1)
            .unwrap_or_default();
        let holder = match plane(engine, "holder", moment)[cell] {
            0 => "the zone".to_owned(),
            cpu => format!("CPU {}", cpu - 1),
        };
        let free = plane(engine, "free", moment)[cell];
        let (free, frames) =
            (freehold_lab::tables::thousands(free), freehold_lab::tables::thousands(frames));
        assert!(told.contains(&holder), "{name}: {holder} in {said}");
        assert!(
            told.contains(&format!(" {free} of {frames} frames free")),
            "{name}: {free} of {frames} in {said}"
        );
    }
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
#[expect(clippy::too_many_lines, reason = "one walk over a page, step after step")]
fn keys_reach_and_move_everything() {
    let Some(mut page) = open("keys_reach_and_move_everything") else { return };
    let report = Report::all();
    page.window(1280, 800, false);
    page.open(&report.file(), "");
    let focused =
        "document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || ''";

    page.key("Tab");
    assert_eq!(page.eval(focused), "Skip to the results");
    page.key("Tab");
    assert_eq!(page.eval(focused), "Theme");
    page.key("Tab");
    assert_eq!(page.eval(focused), "Replay");
    let outline = "getComputedStyle(document.activeElement).outlineStyle + \
                   getComputedStyle(document.activeElement).outlineWidth";
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
            page.eval(
                "[...document.querySelectorAll('[role=tabpanel]')].filter((one) => \
                       !one.hidden).length"
            ),
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
    assert!(
        first.as_str().unwrap().contains("vanilla") || first.as_str().unwrap().contains("5.17"),
        "{first}"
    );
    assert_ne!(first, last);

    // Radio buttons: what the cells are coloured by.
    page.eval(
        "[...document.querySelectorAll('input[type=radio]')].find((one) => one.value === \
               'holder').focus()",
    );
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
        let focusable =
            node["properties"].as_array().into_iter().flatten().any(|property| {
                property["name"] == "focusable" && property["value"]["value"] == true
            });
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if focusable && !["RootWebArea", "main"].contains(&role) {
            roles.insert(role.to_owned());
            assert!(
                !node["name"]["value"].as_str().unwrap_or_default().is_empty(),
                "{role} without a name: {node}"
            );
        }
    }
    for role in ["tab", "slider", "combobox", "radio", "button", "application", "region"] {
        assert!(roles.contains(role), "{role} among {roles:?}");
    }
    let order =
        page.eval("[...document.querySelectorAll('[tabindex]')].every((one) => one.tabIndex <= 0)");
    assert_eq!(order, true, "no order of its own");
}

/// Of all text that can be seen, what stands out from its ground by less than 4.5 to 1 (3 to 1 if
/// large), and of the colours of curves and cells those by less than 3 to 1.
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
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn light_and_dark_follow_the_system_and_the_choice() {
    let Some(mut page) = open("light_and_dark_follow_the_system_and_the_choice") else { return };
    let report = Report::all();
    let (light, dark) = (json!("rgb(255, 255, 255)"), json!("rgb(15, 20, 25)"));
    for (scheme, expected) in [("light", &light), ("dark", &dark)] {
        page.prefer(scheme);
        for view in VIEWS {
            page.open(&report.file(), &format!("view={view}"));
            assert_eq!(page.eval(BACKGROUND), *expected, "{scheme}");
            assert_eq!(
                page.eval(FAINT),
                json!([]),
                "{view} in {scheme}: text or colours that are hard to see"
            );
        }
    }
    // The choice beats the system, stays in the address, and maps are painted anew.
    page.open(&report.file(), "");
    let picture = "document.querySelector('canvas').toDataURL()";
    let before = page.eval(picture);
    let choose = |theme: &str| {
        format!(
            "(() => \
             {{ const list = document.querySelector('header select'); list.value = '{theme}'; \
             list.dispatchEvent(new Event('change')); }})()"
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
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn no_page_scrolls_sideways_on_a_phone() {
    let Some(mut page) = open("no_page_scrolls_sideways_on_a_phone") else { return };
    // Names as long as they may come.
    let mut long = replay().clone();
    long["trace"]["name"] = json!("a-recording-of-a-very-long-name/".repeat(6));
    long["engines"][1]["engine"] =
        json!("pcp-buddy-fixed,-merge,+lock-free-drain,-contig-free,-right-buddy-prefetch");
    let mut grid = one_machine().clone();
    for cell in
        grid["cells"].as_array_mut().unwrap().iter_mut().filter(|cell| cell["engine"] == "vanilla")
    {
        cell["engine"] =
            json!("pcp-buddy-fixed,-merge,+lock-free-drain,-contig-free,-right-buddy-prefetch");
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
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn a_verdict_stands_on_top() {
    let Some(mut page) = open("a_verdict_stands_on_top") else {
        return;
    };
    let report = Report::all();
    for (width, phone) in [(1280, false), (390, true)] {
        page.window(width, 844, phone);
        page.open(&report.file(), "view=replay");
        let said = page.eval("document.querySelector('#panel-replay .verdict').innerText");
        let said = said.as_str().unwrap();
        // What the command itself printed, word for word.
        let answer = &replay()["answer"];
        let sentences = [&answer["sentences"], &answer["zone_lock"]["sentences"]];
        for sentence in sentences.into_iter().flat_map(|all| all.as_array().unwrap()) {
            let sentence = sentence.as_str().unwrap();
            assert!(said.contains(sentence), "{sentence}: {said}");
        }
        let above = page
            .eval("document.querySelector('#panel-replay .verdict').getBoundingClientRect().top");
        assert!(above.as_f64().unwrap() < 844.0, "the verdict is seen without scrolling: {above}");
        let panel = page.eval("document.querySelector('#panel-replay').innerText");
        assert!(panel.as_str().unwrap().contains("Replayed events: the allocations and frees"));

        for (view, document) in
            [("simulate", simulate()), ("fragmentation", fragmentation().clone())]
        {
            page.open(&report.file(), &format!("view={view}"));
            let said =
                page.eval(&format!("document.querySelector('#panel-{view} .verdict').textContent"));
            assert!(said.is_string() && said == document["verdict"], "{view}: {said}");
        }
        assert_eq!(page.complaints(), [] as [String; 0]);
    }
    page.open(&report.file(), "view=bench");
    assert_eq!(
        page.eval("document.querySelectorAll('#panel-bench .verdict').length"),
        0,
        "no row says its baseline"
    );
}

/// What limits a row differs from row to row: it was taken for a setting, and each engine fell
/// apart into a curve for each limit.
#[test]
fn a_chart_has_a_curve_for_each_engine() {
    let Some(mut page) = open("a_chart_has_a_curve_for_each_engine") else { return };
    let report = Report::of(&[replay().clone(), simulate()]);
    let engines = |rows: &serde_json::Value, key: &str| {
        let names = rows[key].as_array().unwrap().iter().map(|row| row["engine"].clone());
        names.collect::<std::collections::HashSet<_>>().len()
    };
    let curves = "[...document.querySelectorAll('svg')].map((one) => \
                  one.querySelectorAll('path.curve').length).filter((n) => n > 0)";
    for (view, engines) in
        [("simulate", engines(&simulate(), "rows")), ("replay", engines(replay(), "engines"))]
    {
        page.open(&report.file(), &format!("view={view}"));
        page.settle();
        let drawn = page.eval(curves);
        let drawn = drawn.as_array().unwrap();
        assert!(!drawn.is_empty(), "{view} draws no chart");
        // An engine that takes no zone lock has no curve of how long it is held.
        let (most, least) = (engines, if view == "replay" { 1 } else { engines });
        let fits = |n: &serde_json::Value| (least..=most).contains(&(n.as_u64().unwrap() as usize));
        assert!(drawn.iter().all(fits), "{view}: {drawn:?}, of {engines} engines");
        assert!(drawn.contains(&serde_json::json!(engines)), "{view}: {drawn:?}");
    }
    page.open(&report.file(), "view=simulate");
    page.settle();
    // An outline in the page's own colour would be no mark.
    let hollow = page.eval(
        "[...document.querySelectorAll('path.mark.hollow')].map((mark) => \
         getComputedStyle(mark)).filter((look) => \
         look.fill === getComputedStyle(document.body).backgroundColor && look.stroke !== \
         look.fill).length",
    );
    assert_eq!(hollow, 2 * 2 * 3, "two sizes, in two charts, of three engines are bound by think");
}

#[test]
fn text_in_the_data_is_never_markup() {
    let Some(mut page) = open("text_in_the_data_is_never_markup") else { return };
    let evil = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = \
                2'><!-- {{data}} \u{2028}";
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
    for cell in
        grid["cells"].as_array_mut().unwrap().iter_mut().filter(|cell| cell["engine"] == "vanilla")
    {
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

#[test]
fn pictures() {
    let Some(folder) = std::env::var_os("FREEHOLD_PICTURES") else { return };
    // Tests run in the crate's folder; the command in the documentation is given at the root.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let Some(mut page) = open("pictures") else { return };
    let report = Report::of(&[serde_json::from_slice(&freehold(&[
        "replay",
        "--json",
        "--memory-map",
        "48",
    ]))
    .unwrap()]);
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
