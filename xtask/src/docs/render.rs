//! Rows of a table from a command's JSON.
//!
//! A template is filled once for each trace of a replay, for each workload and number of CPUs of a
//! simulation, for each benchmark of `bench` (whose exact figures are the engines' values), or for
//! each row of the comparison of `contiguity`, worst first (`{memory}`: how much; `{not_below/9}`
//! of `{of}`: the tallies, alike for every row):
//!
//! ```text
//!  {trace/name}                         a value of the item
//!  {vanilla/zone_lock_acquisitions}     of the engine of that name
//!  {6.18@trace/refilled_frames/kernel}  of the engine with those starting lists (replay fidelity)
//!  {vanilla/wait/256}                   of its CPUs' time, what 256 wait for the zone lock (a
//!                                       replay's answer)
//!  {A ÷ B}  how often B goes into A; in what a document says, from the least to the greatest of
//!           all items
//!  {...:%}, {...:0.01%}  a share as per cent   {...:0.1}, {...:0.3}  so many decimals
//!  {...:.3}   three without the leading 0      {...:+.3}  with a sign, without the 0
//!  {...:+}    a signed per cent
//!  {...:M}  in millions
//! ```

use serde_json::{Map, Value, json};

use super::digits::thousands;

/// The rows: of all items, or of the first so many.
pub(super) fn rows(
    document: &Value,
    template: &[String],
    first: Option<usize>,
) -> Result<String, String> {
    let mut text = String::new();
    for item in items(document).into_iter().take(first.unwrap_or(usize::MAX)) {
        for line in template {
            text.push_str(&filled(&item, line)?);
            text.push('\n');
        }
    }
    Ok(text)
}

/// A sentence over all items: each hole is a figure's range, or that of a ratio of two.
pub(super) fn said(document: &Value, template: &str) -> Result<String, String> {
    let items = items(document);
    holes(template, |hole| {
        let (hole, times) = hole.strip_suffix(":%").map_or((hole, 1.0), |hole| (hole, 100.0));
        let number = |item: &Value, path: &str| {
            let found = value(item, path.trim()).and_then(Value::as_f64);
            found.ok_or_else(|| format!("the command's JSON has no number {path}"))
        };
        let figures = items.iter().map(|item| match hole.split_once('÷') {
            Some((a, b)) => Ok(number(item, a)? / number(item, b)?),
            None => Ok(number(item, hole)? * times),
        });
        let figures = figures.collect::<Result<Vec<f64>, String>>()?;
        let (least, most) =
            (figures.iter().copied().reduce(f64::min), figures.iter().copied().reduce(f64::max));
        let (least, most) = least.zip(most).ok_or("the command's JSON has no item")?;
        let (least, most) = (short(least), short(most));
        Ok(if least == most { most } else { format!("{least} to {most}") })
    })
}

/// A number as people say it.
fn short(figure: f64) -> String {
    let small = figure < 10.0 && figure.fract() != 0.0;
    if small { format!("{figure:.1}") } else { thousands(figure.round() as u64) }
}

/// A replay whose engines say what CPUs wait for the zone lock, by their number, as its answer has
/// it.
fn with_waits(mut document: Value) -> Value {
    let lock = document["answer"]["zone_lock"].take();
    let cpus: Vec<String> =
        lock["cpus"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    for engine in document["engines"].as_array_mut().into_iter().flatten() {
        let all = lock["engines"].as_array().into_iter().flatten();
        let Some(wait) = all.into_iter().find(|one| one["engine"] == engine["engine"]) else {
            continue;
        };
        let shares = wait["waiting_shares"].as_array().into_iter().flatten().cloned();
        engine["wait"] = Value::Object(cpus.iter().cloned().zip(shares).collect());
    }
    document
}

/// What a template is filled for.
fn items(document: &Value) -> Vec<Value> {
    if let Some(traces) = document["traces"].as_array() {
        return traces.clone();
    }
    if let Some(rows) = document["comparison"]["rows"].as_array() {
        return compared(rows, &document["comparison"]["tallies"]);
    }
    let Some(rows) = document["rows"].as_array() else {
        return vec![with_waits(document.clone())];
    };
    if rows.iter().any(|row| row["metric"].is_string()) {
        return benchmarks(rows);
    }
    let mut items: Vec<Value> = Vec::new();
    for row in rows {
        let machine = ["workload", "cpus"];
        if items.last().is_none_or(|item| machine.iter().any(|&key| item[key] != row[key])) {
            let mut item: Map<String, Value> =
                machine.iter().map(|&key| (key.into(), row[key].clone())).collect();
            item.insert("engines".into(), Value::Array(Vec::new()));
            items.push(Value::Object(item));
        }
        if let Some(engines) = items.last_mut().and_then(|item| item["engines"].as_array_mut()) {
            engines.push(row.clone());
        }
    }
    items
}

/// The exact figures of each benchmark, by engine and metric.
fn benchmarks(rows: &[Value]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for row in rows.iter().filter(|row| row["exact"] == true) {
        let item = of(&mut items, "benchmark", row);
        if item["engines"].is_null() {
            item["engines"] = json!([]);
        }
        let Some(engines) = item["engines"].as_array_mut() else { continue };
        if let Some(metric) = row["metric"].as_str() {
            of(engines, "engine", row)[metric] = row["median"].clone();
        }
    }
    items
}

/// The one of these whose name in that field is the row's; a new one where there is none.
fn of<'v>(all: &'v mut Vec<Value>, field: &str, row: &Value) -> &'v mut Value {
    let at = all.iter().position(|one| one[field] == row[field]).unwrap_or(all.len());
    if at == all.len() {
        all.push(json!({field: row[field]}));
    }
    &mut all[at]
}

/// Rows of a comparison of one engine with another, each with the tallies of all of them.
fn compared(rows: &[Value], tallies: &Value) -> Vec<Value> {
    let tallies = tallies.as_array().map_or(&[][..], Vec::as_slice);
    let not_below = |tally: &Value| (tally["order"].to_string(), tally["not_below"].clone());
    let not_below: Map<String, Value> = tallies.iter().map(not_below).collect();
    let with_tallies = |row: &Value| {
        let mut item = row.clone();
        let mib = row["memory_mib"].as_u64().unwrap_or_default();
        // Drawn memory is no round number of GiB.
        let whole = mib % 1024 == 0;
        item["memory"] = if whole { amount(mib) } else { format!("{} MiB", thousands(mib)) }.into();
        item["not_below"] = not_below.clone().into();
        item["of"] = rows.len().into();
        item
    };
    rows.iter().map(with_tallies).collect()
}

fn amount(mib: u64) -> String {
    if mib < 1024 { format!("{mib} MiB") } else { format!("{} GiB", mib as f64 / 1024.0) }
}

fn filled(item: &Value, line: &str) -> Result<String, String> {
    holes(line, |hole| {
        let (path, format) = hole.split_once(':').unwrap_or((hole, ""));
        if let Some((a, b)) = path.split_once('÷') {
            let number = |path: &str| value(item, path.trim()).and_then(Value::as_f64);
            let (a, b) = number(a)
                .zip(number(b))
                .ok_or_else(|| format!("the command's JSON has no two numbers {path}"))?;
            return Ok(short(a / b));
        }
        let value = value(item, path).ok_or_else(|| format!("the command's JSON has no {path}"))?;
        Ok(shown(value, format))
    })
}

/// A template with its holes filled.
fn holes(line: &str, fill: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('{') {
        let (hole, after) =
            behind.split_once('}').ok_or_else(|| format!("a brace is not closed: {line}"))?;
        text.push_str(before);
        text.push_str(&fill(hole)?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The value at a path: of the item itself, or of one of its engines.
fn value<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let at = |value: &'v Value, path: &str| {
        path.split('/').filter(|part| !part.is_empty()).try_fold(value, |value, part| {
            value.get(part).or_else(|| value.get(part.parse::<usize>().ok()?))
        })
    };
    if let Some(found) = item.get(first).and_then(|value| at(value, rest)) {
        return Some(found);
    }
    let (name, lists) =
        first.split_once('@').map_or((first, None), |(name, lists)| (name, Some(lists)));
    let compared = item.get("against_kernel").filter(|_| lists.is_some()).unwrap_or(item);
    let engine = compared["engines"].as_array()?.iter().find(|engine| {
        engine["engine"] == *name && lists.is_none_or(|lists| engine["starting_lists"] == *lists)
    })?;
    at(engine, rest)
}

fn shown(value: &Value, format: &str) -> String {
    let Some(number) = value.as_f64() else {
        return match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Bool(said) => if *said { "yes" } else { "no" }.to_owned(),
            value => value.to_string(),
        };
    };
    match format {
        "%" => format!("{:.1} %", number * 100.0),
        "0.01%" if number > 0.0 && number * 100.0 < 0.01 => "<0.01 %".to_owned(),
        "0.01%" => format!("{:.2} %", number * 100.0),
        "0.1" => format!("{number:.1}"),
        "+" => format!("{number:+.1} %"),
        "M" => format!("{:.1} M", number / 1e6),
        "0.3" => format!("{number:.3}"),
        "+.3" => format!("{number:+.3}").replacen("0.", ".", 1),
        ".3" => format!("{number:.3}").trim_start_matches('0').to_owned(),
        _ if number.fract() == 0.0 && number >= 0.0 => thousands(number as u64),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_say_how_long_many_cpus_wait() {
        let document = json!({
            "engines": [{"engine": "6.18"}, {"engine": "freehold"}],
            "answer": {"zone_lock": {"cpus": [2, 256], "engines": [
                {"engine": "freehold", "waiting_shares": [0.0, 0.00001]},
                {"engine": "6.18", "waiting_shares": [0.001, 0.25]}
            ]}}
        });
        let line = "{6.18/wait/2:0.01%} {6.18/wait/256:0.01%} {freehold/wait/256:0.01%}";
        assert_eq!(rows(&document, &[line.to_owned()], None).unwrap(), "0.10 % 25.00 % <0.01 %\n");
    }

    #[test]
    fn a_row_for_each_trace_and_for_each_number_of_cpus() {
        let one =
            json!({"trace": {"name": "a"}, "engines": [{"engine": "5.17", "work": 1_234_567}]});
        let template = "| {trace/name} | {5.17/work} |";
        assert_eq!(rows(&one, &[template.into()], None).unwrap(), "| a | 1,234,567 |\n");
        let both = json!({"traces": [one.clone(), one]});
        assert_eq!(rows(&both, &["x".into(), "y".into()], None).unwrap(), "x\ny\nx\ny\n");
        assert_eq!(rows(&both, &["x".into(), "y".into()], Some(1)).unwrap(), "x\ny\n");
        let swept = json!({"rows": [{"cpus": 16, "engine": "a", "wait": 0.125},
            {"cpus": 16, "engine": "b", "wait": 0}, {"cpus": 1024, "engine": "a", "wait": 0.0031}]});
        let waits = rows(&swept, &["{cpus} {a/wait:%} {a/wait:.3}".into()], None);
        assert_eq!(waits.unwrap(), "16 12.5 % .125\n1,024 0.3 % .003\n");
        assert!(rows(&swept, &["{b/wait}".into()], None).is_err(), "the last item has no b");
    }

    #[test]
    fn a_comparison_has_its_rows_in_their_order_and_its_tallies_everywhere() {
        let row = |cpus: u64, mib: u64, difference: f64| {
            json!({"workload": "aging", "cpus": cpus, "memory_mib": mib, "used_percent": 70.0,
                "contiguity": {"9": 0.5}, "difference": {"9": difference}})
        };
        let all = json!({"cells": [{"cpus": 7}], "comparison": {
            "rows": [row(1024, 2048, -0.0719), row(2, 64, 0.25)],
            "tallies": [{"order": 3, "not_below": 2}, {"order": 9, "not_below": 1}]}});
        let template =
            "| {cpus}, {memory} | {used_percent} % | {contiguity/9:.3} {difference/9:+.3} |";
        assert_eq!(
            rows(&all, &[template.into()], None).unwrap(),
            "| 1,024, 2 GiB | 70 % | .500 -.072 |\n| 2, 64 MiB | 70 % | .500 +.250 |\n"
        );
        let tallies = said(&all, "{not_below/3} and {not_below/9} of {of} cells").unwrap();
        assert_eq!(tallies, "2 and 1 of 2 cells");
    }

    #[test]
    fn a_sentence_has_the_range_of_all_items() {
        let item = |a: u64, b: u64| {
            json!({"trace": {},
            "engines": [{"engine": "a", "n": a}, {"engine": "b", "n": b}]})
        };
        let both = json!({"traces": [item(1_600, 1_000), item(9_000_000, 1_000)]});
        let sentence = |template: &str| said(&both, template);
        assert_eq!(sentence("{a/n ÷ b/n} times, {b/n}").unwrap(), "1.6 to 9,000 times, 1,000");
        assert!(sentence("{c/n}").is_err());
        let cells = json!({"cells": [{"n": 7}, {"n": 1_234}]});
        assert_eq!(said(&cells, "{cells/1/n}").unwrap(), "1,234", "a place in a list");
    }

    #[test]
    fn the_exact_figures_of_a_benchmark() {
        let row = |engine: &str, metric: &str, exact: bool, median: f64| {
            json!({"benchmark": "ring",
            "engine": engine, "metric": metric, "exact": exact, "median": median})
        };
        let all = [
            row("a", "uses", true, 5000.0),
            row("a", "ns", false, 1.5),
            row("b", "uses", true, 2000.0),
        ];
        let all = json!({"rows": all});
        let filled = |line: &str| rows(&all, &[line.into()], None);
        let line = filled("{benchmark} {a/uses} x{a/uses ÷ b/uses} {a/uses:M}").unwrap();
        assert_eq!(line, "ring 5,000 x2.5 0.0 M\n");
        assert!(filled("{a/ns}").is_err(), "a time is not for checking");
    }

    #[test]
    fn an_engine_with_its_starting_lists() {
        let item = json!({"engines": [{"engine": "6.18", "work": 1}],
            "against_kernel": {"engines": [
            {"engine": "6.18", "starting_lists": "zoneinfo", "off": -14.84, "within": true},
            {"engine": "6.18", "starting_lists": "trace", "off": null}]}});
        let line = "{6.18@zoneinfo/off:+} {6.18@zoneinfo/within} {6.18@trace/off:+} {6.18/work}";
        assert_eq!(rows(&item, &[line.into()], None).unwrap(), "-14.8 % yes - 1\n");
    }
}
