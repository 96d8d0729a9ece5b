//! The pictures of `contiguity` say what its cells said, to eyes and to keys.

use std::collections::BTreeMap;

use serde_json::json;

use super::support::*;
use crate::report::browser::Browser;

/// The means over the seeds of a figure of the grid, by "CPUs memory-a-CPU", of one engine.
fn means(workload: &str, level: Option<f64>, engine: &str, figure: &str) -> BTreeMap<String, f64> {
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for cell in fragmentation()["cells"].as_array().unwrap() {
        if cell["workload"] == workload
            && cell["engine"] == engine
            && level == cell["used_percent"].as_f64()
        {
            let each = cell["memory_mib"].as_u64().unwrap() / cell["cpus"].as_u64().unwrap();
            let values = found.entry(format!("{} {each}", cell["cpus"])).or_default();
            values.push(cell.pointer(figure).unwrap().as_f64().unwrap());
        }
    }
    found
        .into_iter()
        .map(|(place, all)| (place, all.iter().sum::<f64>() / all.len() as f64))
        .collect()
}

/// A picture of the grid: for each engine the cells' place, how strong their colour is, and what is
/// written in them.
fn heat(page: &mut Browser, title: &str) -> Vec<Vec<(String, f64, String)>> {
    let found = page.eval(&format!(
        "(() => {{
            const figure = [...document.querySelectorAll('figure.heat')].find((one) => \
one.querySelector('strong').innerText === '{title}');
            return [...figure.querySelectorAll('svg')].map((picture) => \
[...picture.querySelectorAll('.heat-cell')].map((cell) =>
                [cell.dataset.place, Number(cell.getAttribute('fill-opacity')), \
cell.nextElementSibling.textContent]));
        }})()"
    ));
    serde_json::from_value(found).unwrap_or_else(|error| panic!("{title}: {error}"))
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
#[expect(clippy::too_many_lines, reason = "one walk over a page, step after step")]
fn the_picture_of_the_grid_is_what_the_cells_said() {
    let Some(mut page) = open("the_picture_of_the_grid_is_what_the_cells_said") else { return };
    let report = Report::of(&[fragmentation().clone()]);
    page.window(1280, 800, false);
    page.open(&report.file(), "");
    let share = |value: f64| format!("{value:.3}");
    let rate = |value: f64| match value {
        0.0 => "0".to_owned(),
        _ if value < 0.1 => format!("{value:.3}"),
        _ if value < 100.0 => format!("{value:.2}"),
        _ if value < 1000.0 => format!("{value:.1}"),
        _ => freehold_lab::tables::thousands(value.round() as u64),
    };
    let linear = |value: f64, least: f64, most: f64| (value - least) / (most - least);
    let reversed = |value: f64, least: f64, most: f64| 1.0 - (value - least) / (most - least);
    // A zero is a tenth of the least above it.
    let log =
        |value: f64, least: f64, most: f64| (value.max(least) / least).ln() / (most / least).ln();
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
        (
            "aging",
            Some(60.0),
            "/unusable/9",
            "aging, 60 % in use: unusable-free-space index, order 9",
            share,
            linear,
        ),
        (
            "aging",
            Some(60.0),
            "/order9_share",
            "aging, 60 % in use: share of free memory that can serve order 9",
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
                assert!(
                    (strength - expected).abs() < 1e-3,
                    "{title}: {place} {value}: {strength}, not {expected}"
                );
            }
        }
    }
    // What no cell has is not drawn.
    let titles = page.eval(
        "[...document.querySelectorAll('figure.heat strong')].map((one) => one.innerText).join()",
    );
    let titles = titles.as_str().unwrap();
    assert!(
        titles.contains("fill, order 9: how full memory is at the first failure, %"),
        "{titles}"
    );
    assert!(!titles.contains("fill, order 9: unusable"), "{titles}");
    assert!(titles.contains("idle, 50 % in use: share of memory that idle CPUs keep"), "{titles}");
    // One machine at several levels is one picture, levels across.
    let mut mix = fragmentation().clone();
    mix["cells"]
        .as_array_mut()
        .unwrap()
        .retain(|cell| cell["workload"] == "two-cpu-mix" && cell["memory_mib"] == 32);
    page.open(&Report::of(&[mix]).file(), "");
    let drawn = heat(&mut page, "two-cpu-mix: wholly free blocks");
    let places: Vec<&str> = drawn[1].iter().map(|(place, ..)| place.as_str()).collect();
    assert_eq!(places.len(), 8, "{places:?}");
    assert_eq!((places[0], places[7]), ("10 % in use machine", "80 % in use machine"));
}

/// The least contrast of text in the pictures of the grid, and of the worst colour against the
/// page.
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
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn the_grid_can_be_read_in_light_and_dark_and_by_keys() {
    let Some(mut page) = open("the_grid_can_be_read_in_light_and_dark_and_by_keys") else { return };
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
    let unusable = |engine: &str, place: &str| {
        format!("{:.3}", means("kernel-build-like", None, engine, "/unusable/9")[place])
    };
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
        let engines =
            ["vanilla", "freehold"].map(|engine| format!("{engine} {}", unusable(engine, place)));
        for expected in [said, &engines[0], &engines[1]] {
            assert!(found.contains(expected), "{key}: {expected} in {found}");
        }
        let marked = page.eval("[...document.querySelector('.heats').querySelectorAll('.heat-mark')].filter((one) => one.getAttribute('visibility') === 'visible').length");
        assert_eq!(marked, 2, "{key}: on both engines");
    }
    let names = page.eval(
        "[...document.querySelectorAll('.heats')].every((one) => one.tabIndex \
                           === 0 && /freehold: from .* to \
                           .*/.test(one.getAttribute('aria-label')))",
    );
    assert_eq!(names, true, "each picture can be reached and says what is in it");
}

#[test]
fn a_grid_that_was_stopped_at_once_is_said_to_be_empty() {
    let Some(mut page) = open("a_grid_that_was_stopped_at_once_is_said_to_be_empty") else {
        return;
    };
    let report = Report::of(&[json!({"cells": []})]);
    page.open(&report.file(), "");
    let text = page.eval("document.querySelector('#panel-fragmentation').innerText");
    assert!(text.as_str().unwrap().contains("No cell was finished"), "{text}");
    assert_eq!(page.complaints(), [] as [String; 0]);
}
