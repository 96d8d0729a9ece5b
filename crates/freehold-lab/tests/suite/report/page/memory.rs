//! The picture of memory says what the engines said, whatever a cell stands for.

use serde_json::{Value, json};

use super::support::*;
use crate::report::browser::Browser;

#[test]
fn the_picture_of_memory_is_what_the_engines_said() {
    let Some(mut page) = open("the_picture_of_memory_is_what_the_engines_said") else { return };
    let report = Report::of(&[replay().clone()]);
    page.window(1280, 800, false);
    let engines = replay()["engines"].as_array().unwrap();
    for moment in [0, 5, 11] {
        page.open(&report.file(), &format!("colour=holder&moment={moment}"));
        let table = page.eval(
            "[...document.querySelectorAll('.legend-table tbody tr')].map((row) \
                               => [row.querySelector('th').innerText.trim(), \
                               [...row.querySelectorAll('data')].map((one) => \
                               Number(one.value))])",
        );
        let table: Vec<(String, Vec<u64>)> = serde_json::from_value(table).unwrap();
        for (holder, name) in [(0, "the zone"), (1, "CPU 0"), (2, "CPU 1")] {
            let counts: Vec<u64> = engines
                .iter()
                .map(|engine| {
                    plane(engine, "holder", moment).iter().filter(|held| **held == holder).count()
                        as u64
                })
                .collect();
            let row =
                table.iter().find(|(found, _)| found == name).map(|(_, counts)| counts.clone());
            assert_eq!(
                row.unwrap_or_else(|| vec![0; counts.len()]),
                counts,
                "{name} at moment {moment}"
            );
        }
    }
    // A cell has the colour of its holder in the legend, the stronger the more of it is in use: the
    // fullest and the emptiest that each holder has.
    let owning = engines.last().unwrap();
    let map = &owning["memory_map"];
    let (holders, free) = (plane(owning, "holder", 11), plane(owning, "free", 11));
    let used: Vec<f64> = constant_plane(map, "frames")
        .iter()
        .zip(&free)
        .map(|(all, free)| 1.0 - *free as f64 / *all as f64)
        .collect();
    let mut cells = Vec::new();
    // A cell stands for two blocks here, and its holder is who has both: often the zone alone.
    let all: std::collections::BTreeSet<u64> = holders.iter().copied().collect();
    for holder in all {
        let own = || (0..holders.len()).filter(|cell| holders[*cell] == holder);
        let by_use = |a: &usize, b: &usize| used[*a].total_cmp(&used[*b]);
        cells.extend(
            [own().max_by(by_use), own().min_by(by_use)]
                .map(|cell| cell.expect("each holds a cell")),
        );
    }
    assert!(used[cells[0]] - used[cells[1]] > 0.25, "some are in use and others are not");
    for cell in cells {
        let name = holder_name(holders[cell]);
        let looked = look_at_cell(&mut page, -1, holders.len(), cell, &name);
        assert!(looked.size < 7, "no room to fill a cell from below: {looked:?}");
        looked.assert_mixed(
            looked.middle,
            0.3 + 0.7 * used[cell],
            &format!("cell {cell} of {name}"),
        );
    }
}

/// What the legend calls a holder.
fn holder_name(holder: u64) -> String {
    if holder == 0 { "the zone".to_owned() } else { format!("CPU {}", holder - 1) }
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
            assert!(
                (colour - expected).abs() <= 1.0,
                "{what}: {found:?}, not {share} of the legend's: {self:?}"
            );
        }
    }
}

/// Looks at a cell of the last map, of so many cells, whose holder has this name in the legend.
fn look_at_cell(page: &mut Browser, map: isize, cells: usize, cell: usize, holder: &str) -> Looked {
    let found = page.eval(&format!(
        "(() => {{
            const map = [...document.querySelectorAll('canvas')].at({map});
            const columns = [8, 16, 32, 64, 128].find((columns) => {{
                const size = map.clientWidth / columns;
                return Number.isInteger(size) && Math.ceil({cells} / columns) * size === \
map.clientHeight;
            }});
            const size = map.clientWidth / columns;
            const pixel = (down) => [...map.getContext('2d').getImageData({cell} % columns * size \
+ Math.floor(size / 2), Math.floor({cell} / columns) * size + down, 1, 1).data].slice(0, 3);
            const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const row = [...document.querySelectorAll('.legend-table tbody tr')].find((row) => \
row.querySelector('th').innerText.trim() === '{holder}');
            return {{
                size, top: pixel(0), middle: pixel(Math.floor(size / 2) - 1), bottom: pixel(size - \
2),
                legend: parts(getComputedStyle(row.querySelector('.swatch')).backgroundColor),
                page: parts(getComputedStyle(document.body).backgroundColor),
            }};
        }})()"
    ));
    serde_json::from_value(found).unwrap()
}

#[test]
fn large_cells_are_filled_from_below_as_far_as_they_are_in_use() {
    let Some(mut page) = open("large_cells_are_filled_from_below") else { return };
    let text =
        freehold(&["replay", "--json", "--machine", "512M", "--memory-map", "2", "-e", "freehold"]);
    let replayed: Value = serde_json::from_slice(&text).unwrap();
    let engine = &replayed["engines"][0];
    let frames = constant_plane(&engine["memory_map"], "frames");
    let (holders, free) = (plane(engine, "holder", 1), plane(engine, "free", 1));
    let is_half = |cell: &usize| (frames[*cell] / 4..=frames[*cell] * 3 / 4).contains(&free[*cell]);
    // One that a CPU holds, where there is one.
    let mut half: Vec<usize> = (0..holders.len()).filter(is_half).collect();
    half.sort_by_key(|cell| holders[*cell] == 0);
    let cell = *half.first().expect("a block half in use");
    let report = Report::of(std::slice::from_ref(&replayed));
    page.window(1280, 800, false);
    page.open(&report.file(), "colour=holder&moment=1");
    let looked = look_at_cell(&mut page, -1, holders.len(), cell, &holder_name(holders[cell]));
    looked.assert_mixed(looked.top, 0.3, "what is free, above");
    looked.assert_mixed(looked.bottom, 1.0, "what is in use, below");
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite report:: -- --ignored"]
fn a_large_machines_cells_stand_for_several_blocks_and_say_so() {
    let text = freehold(&[
        "replay",
        "--json",
        "--memory",
        "64G",
        "--memory-map",
        "2",
        "-e",
        "freehold",
        "-e",
        "vanilla",
    ]);
    let replayed: Value = serde_json::from_slice(&text).unwrap();
    for engine in replayed["engines"].as_array().unwrap() {
        let map = &engine["memory_map"];
        assert_eq!(
            (&map["blocks"], &map["blocks_per_cell"], &map["cells"]),
            (&json!(32768), &json!(8), &json!(4096))
        );
        // The last sample but one: the last is that of the trace's end.
        let frames = engine["timeline"]["free_frames"].as_array().unwrap();
        assert_eq!(
            json!(plane(engine, "free", 1).iter().sum::<u64>()),
            frames[frames.len() - 2],
            "{}",
            engine["engine"]
        );
    }
    let Some(mut page) = open("a_large_machines_cells_stand_for_several_blocks") else { return };
    let report = Report::of(&[replayed]);
    page.open(&report.file(), "");
    let text = page.eval("document.querySelector('#panel-replay').innerText");
    assert!(
        text.as_str().unwrap().contains("Each cell stands for 8 neighbouring pageblocks (16 MiB)")
    );
}
