//! Keeping the file within bounds.
//!
//! Tables and curves are small: what grows is the pictures of memory, a plane a moment and engine.
//! Where the data is too large every second moment is left out, again and again, until it fits or
//! each picture has two moments left. The page says what was left out. Nothing else is ever left
//! out: rather no report than one that lacks rows.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::document::{Document, Kind};
use super::planes::decode;
use super::{HtmlError, embed};
use crate::replay::memory_map::{CELLS_MAX, encode};

/// Bytes of data in a report at most: what a phone still opens in a few seconds.
pub const DATA_MAX: usize = 24 << 20;

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    version: &'a str,
    notes: &'a [String],
    /// What each benchmark in them is, as `bench --list` says it.
    benchmarks: &'a BTreeMap<String, Value>,
    documents: &'a [Document],
}

/// The data of the page in at most `most` bytes.
pub(super) fn within(
    mut documents: Vec<Document>,
    title: &str,
    most: usize,
) -> Result<String, HtmlError> {
    let benchmarks = benchmarks(&documents);
    let mut left_out = 1u32;
    loop {
        let note = (left_out > 1).then(|| {
            let most = most >> 20;
            format!(
                "Of the pictures of memory one moment in {left_out} is shown, so that this file \
                 stays below {most} MiB."
            )
        });
        let version = env!("CARGO_PKG_VERSION");
        let text = embed::json(&Data {
            title,
            version,
            notes: note.as_slice(),
            benchmarks: &benchmarks,
            documents: &documents,
        });
        if text.len() <= most {
            return Ok(text);
        }
        let mut thinned = false;
        for map in documents.iter_mut().flat_map(maps) {
            thinned |= thin(map);
        }
        if !thinned {
            return Err(HtmlError::TooLarge { size: text.len() });
        }
        left_out = left_out.saturating_mul(2);
    }
}

/// What the benchmarks are of which documents have figures: the documents say it. Those of older
/// versions do not, and the page shows no more than names.
fn benchmarks(documents: &[Document]) -> BTreeMap<String, Value> {
    let benches = documents.iter().filter(|document| document.kind == Kind::Bench);
    let about = benches.filter_map(|document| document.data.get("benchmarks")?.as_object());
    about.flatten().map(|(name, about)| (name.clone(), about.clone())).collect()
}

/// The pictures of memory in a document.
fn maps(document: &mut Document) -> impl Iterator<Item = &mut Value> {
    let engines = document.data.get_mut("engines").and_then(Value::as_array_mut);
    engines.into_iter().flatten().filter_map(|engine| engine.get_mut("memory_map"))
}

/// The moments of a picture: times, and one list of planes each for holder, migratetype and free
/// frames.
const PLANES: [&str; 3] = ["holder", "migratetype", "free"];

/// Leaves every second moment out, keeping the first and the last; false where there are only two
/// left.
fn thin(map: &mut Value) -> bool {
    let cells =
        map.get("cells").and_then(Value::as_u64).unwrap_or(0).min(CELLS_MAX as u64) as usize;
    let moments = map.get("ts_ns").and_then(Value::as_array).map_or(0, Vec::len);
    if moments <= 2 {
        return false;
    }
    let stays = |moment: usize| {
        moment == moments - 1 || (moment.is_multiple_of(2) && moment != moments - 2)
    };
    for name in PLANES {
        let (mut before, mut now) = (vec![0; cells], vec![0; cells]);
        let mut kept = Vec::new();
        for (moment, plane) in map[name].as_array().into_iter().flatten().enumerate() {
            // What cannot be read stays as it was: no command writes it.
            let _ = decode(plane.as_str().unwrap_or_default(), &mut now);
            if stays(moment) {
                kept.push(json!(encode(&before, &now)));
                before.clone_from(&now);
            }
        }
        map[name] = Value::Array(kept);
    }
    if let Some(times) = map["ts_ns"].as_array_mut() {
        let mut moment = 0;
        times.retain(|_| {
            moment += 1;
            stays(moment - 1)
        });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::document::Kind;
    use super::*;

    fn with_map(map: Value) -> Document {
        let data = json!({"trace": {"name": "t"}, "engines": [{"engine": "e", "memory_map": map}]});
        Document { source: "s.json".into(), kind: Kind::Replay, data }
    }

    /// Every moment another value in every other cell: as bad as it gets.
    fn restless(moments: usize, cells: u64) -> Value {
        let (mut before, mut planes) = (vec![0; cells as usize], Vec::new());
        for moment in 0..moments as u64 {
            let now: Vec<u64> = (0..cells).map(|cell| (cell * 7 + moment) % 512).collect();
            planes.push(encode(&before, &now));
            before = now;
        }
        json!({
            "blocks": cells, "blocks_per_cell": 1, "cells": cells, "start_pfn": 0, "frames": format!("0 {cells} 512"),
            "ts_ns": (0..moments).collect::<Vec<_>>(), "holder": planes, "migratetype": planes, "free": planes,
        })
    }

    fn last(map: &Value, cells: usize) -> Vec<u64> {
        let mut plane = vec![0; cells];
        for moment in map["free"].as_array().unwrap() {
            decode(moment.as_str().unwrap(), &mut plane).unwrap();
        }
        plane
    }

    #[test]
    fn pictures_are_thinned_until_they_fit() {
        let map = restless(33, 200);
        let documents = vec![with_map(map.clone())];
        let all = within(documents.clone(), "t", usize::MAX).unwrap();
        let few = within(documents, "t", all.len() / 3).unwrap();
        assert!(few.len() <= all.len() / 3);
        let few: Value = serde_json::from_str(&few).unwrap();
        assert!(few["notes"][0].as_str().unwrap().contains("one moment in 4"), "{}", few["notes"]);
        let thinned = &few["documents"][0]["data"]["engines"][0]["memory_map"];
        let times: Vec<u64> =
            thinned["ts_ns"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!((times[0], *times.last().unwrap()), (0, 32), "the ends stay");
        assert_eq!(last(thinned, 200), last(&map, 200), "and what is shown is what was");
        assert_eq!(thinned["free"].as_array().unwrap().len(), times.len());
    }

    #[test]
    fn what_cannot_fit_is_refused() {
        let error = within(vec![with_map(restless(40, 100))], "t", 100).unwrap_err();
        assert!(matches!(error, HtmlError::TooLarge { .. }), "{error}");
    }
}
