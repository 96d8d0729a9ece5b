//! Rows of a table from a command's JSON.
//!
//! A template is filled once for each trace of a replay, or for each number of CPUs and nodes of a simulation:
//!
//! ```text
//!  {trace/name}                         a value of the item
//!  {vanilla/zone_lock_acquisitions}     of the engine of that name
//!  {6.18@trace/refilled_frames/kernel}  of the engine with those starting lists (--against-kernel)
//!  {...:%}  a share as per cent         {...:.4}  four decimals without the leading 0       {...:0.3}  three decimals   {...:+}  a signed per cent
//! ```

use serde_json::{Map, Value};

/// The rows.
pub(super) fn rows(document: &Value, template: &[String]) -> Result<String, String> {
    let mut text = String::new();
    for item in items(document) {
        for line in template {
            text.push_str(&filled(&item, line)?);
            text.push('\n');
        }
    }
    Ok(text)
}

/// What a template is filled for.
fn items(document: &Value) -> Vec<Value> {
    if let Some(traces) = document["traces"].as_array() {
        return traces.clone();
    }
    let Some(rows) = document["rows"].as_array() else { return vec![document.clone()] };
    let mut items: Vec<Value> = Vec::new();
    for row in rows {
        let machine = ["cpus", "nodes"];
        if items.last().is_none_or(|item| machine.iter().any(|&key| item[key] != row[key])) {
            let mut item: Map<String, Value> = machine.iter().map(|&key| (key.into(), row[key].clone())).collect();
            item.insert("engines".into(), Value::Array(Vec::new()));
            items.push(Value::Object(item));
        }
        if let Some(engines) = items.last_mut().and_then(|item| item["engines"].as_array_mut()) {
            engines.push(row.clone());
        }
    }
    items
}

fn filled(item: &Value, line: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('{') {
        let (hole, after) = behind.split_once('}').ok_or_else(|| format!("a brace is not closed: {line}"))?;
        text.push_str(before);
        let (path, format) = hole.split_once(':').unwrap_or((hole, ""));
        let value = value(item, path).ok_or_else(|| format!("the command's JSON has no {path}"))?;
        text.push_str(&shown(value, format));
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The value at a path: of the item itself, or of one of its engines.
fn value<'v>(item: &'v Value, path: &str) -> Option<&'v Value> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let at = |value: &'v Value, path: &str| {
        path.split('/').filter(|part| !part.is_empty()).try_fold(value, |value, part| value.get(part))
    };
    if let Some(found) = item.get(first).and_then(|value| at(value, rest)) {
        return Some(found);
    }
    let (name, lists) = first.split_once('@').map_or((first, None), |(name, lists)| (name, Some(lists)));
    let compared = item.get("against_kernel").filter(|_| lists.is_some()).unwrap_or(item);
    let engine = compared["engines"]
        .as_array()?
        .iter()
        .find(|engine| engine["engine"] == *name && lists.is_none_or(|lists| engine["starting_lists"] == *lists))?;
    at(engine, rest)
}

fn shown(value: &Value, format: &str) -> String {
    match (value, format) {
        (Value::Null, _) => "-".to_owned(),
        (Value::Number(number), "%") => format!("{:.1} %", number.as_f64().unwrap_or_default() * 100.0),
        (Value::Number(number), "+") => format!("{:+.1} %", number.as_f64().unwrap_or_default()),
        (Value::Number(number), "0.3") => format!("{:.3}", number.as_f64().unwrap_or_default()),
        (Value::Number(number), ".4") => {
            format!("{:.4}", number.as_f64().unwrap_or_default()).trim_start_matches('0').to_owned()
        }
        (Value::Number(number), _) => number.as_u64().map_or_else(|| number.to_string(), thousands),
        (Value::String(text), _) => text.clone(),
        (Value::Bool(true), _) => "yes".to_owned(),
        (Value::Bool(false), _) => "no".to_owned(),
        (value, _) => value.to_string(),
    }
}

pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_for_each_trace_and_for_each_number_of_cpus() {
        let one = json!({"trace": {"name": "a"}, "engines": [{"engine": "5.17", "work": 1_234_567}]});
        assert_eq!(rows(&one, &["| {trace/name} | {5.17/work} |".into()]).unwrap(), "| a | 1,234,567 |\n");
        let both = json!({"traces": [one.clone(), one]});
        assert_eq!(rows(&both, &["x".into(), "y".into()]).unwrap(), "x\ny\nx\ny\n");
        let swept = json!({"rows": [{"cpus": 16, "engine": "a", "wait": 0.125}, {"cpus": 16, "engine": "b", "wait": 0},
            {"cpus": 1024, "engine": "a", "wait": 0.0031}]});
        assert_eq!(
            rows(&swept, &["{cpus} {a/wait:%} {a/wait:.4}".into()]).unwrap(),
            "16 12.5 % .1250\n1,024 0.3 % .0031\n"
        );
        assert!(rows(&swept, &["{b/wait}".into()]).is_err(), "the last item has no b");
    }

    #[test]
    fn an_engine_with_its_starting_lists() {
        let item = json!({"engines": [{"engine": "6.18", "work": 1}], "against_kernel": {"engines": [
            {"engine": "6.18", "starting_lists": "zoneinfo", "off": -14.84, "within": true},
            {"engine": "6.18", "starting_lists": "trace", "off": null}]}});
        let text = rows(&item, &["{6.18@zoneinfo/off:+} {6.18@zoneinfo/within} {6.18@trace/off:+} {6.18/work}".into()]);
        assert_eq!(text.unwrap(), "-14.8 % yes - 1\n");
    }
}
