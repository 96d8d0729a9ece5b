//! A replay by order and migratetype is drawn as the engines counted it; what a replay does not
//! know is said.

use serde_json::{Value, json};

use super::support::*;

/// The rows of each drawing: a title, and name and number of each row.
const DRAWN: &str = "[...document.querySelectorAll('#panel-replay .stacks')].map((one) => \
                     [one.caption.querySelector('strong').innerText, \
                     [...one.tBodies[0].rows].map((row) => [row.cells[0].innerText.trim(), \
                     row.cells[1].innerText.replaceAll(',', ''), \
                     row.querySelectorAll('.segment').length])])";

#[test]
fn refills_and_allocations_are_drawn_by_order() {
    let Some(mut page) = open("refills_and_allocations_are_drawn_by_order") else { return };
    let report = Report::of(&[replay().clone()]);
    let engines = replay()["engines"].as_array().unwrap();
    page.open(&report.file(), "view=replay&by-order=refills");
    let drawn = page.eval(DRAWN);
    let listed: Vec<&Value> =
        engines.iter().filter(|engine| !engine["by_order"]["refilled_frames"].is_null()).collect();
    assert!(!listed.is_empty());
    assert_eq!(drawn.as_array().unwrap().len(), listed.len(), "{drawn}");
    for (engine, drawing) in listed.iter().zip(drawn.as_array().unwrap()) {
        assert_eq!(drawing[0], engine["engine"]);
        for row in drawing[1].as_array().unwrap() {
            let order: usize =
                row[0].as_str().unwrap().trim_start_matches("order ").parse().unwrap();
            let types = engine["by_order"]["refilled_frames"][order].as_array().unwrap();
            let types: Vec<u64> = types.iter().map(|frames| frames.as_u64().unwrap()).collect();
            let expected = (
                json!(types.iter().sum::<u64>().to_string()),
                json!(types.iter().filter(|n| **n > 0).count()),
            );
            assert_eq!(
                (&row[1], &row[2]),
                (&expected.0, &expected.1),
                "{}: {row}",
                engine["engine"]
            );
        }
    }
    let said = page.eval("document.getElementById('panel-replay').innerText");
    let said = said.as_str().unwrap();
    let total = freehold_lab::tables::thousands(
        engines.last().unwrap()["refilled_frames"].as_u64().unwrap(),
    );
    for expected in [
        &format!("freehold does not count this by order: {total} frames in all."),
        "How long an allocation took is not known of a replay",
    ] {
        assert!(said.contains(expected), "{expected} in {said}");
    }

    // Every engine was asked for the same and gave it: drawn once.
    page.open(&report.file(), "view=replay&by-order=allocs");
    let drawn = page.eval(DRAWN);
    assert_eq!(drawn.as_array().unwrap().len(), 1, "{drawn}");
    assert_eq!(drawn[0][0], "Every engine");
    let singles: u64 = engines[0]["by_order"]["allocs"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(drawn[0][1][0], json!(["order 0", singles.to_string(), 3]));
    assert_eq!(page.complaints(), [] as [String; 0]);
}
