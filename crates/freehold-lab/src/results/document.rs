//! What a JSON document is: the output of which command, or none that is known.
//!
//! Only the names that make a command's output what it is are asked for; fields may be added to any
//! of them.

use serde::Serialize;
use serde_json::Value;

use super::read::Source;
use crate::cli::error::CliError;

/// Which command wrote a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `freehold replay --json`, one trace.
    Replay,
    Contiguity,
    Simulate,
}

impl Kind {
    pub const fn command(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Contiguity => "contiguity",
            Self::Simulate => "simulate",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Document {
    pub(crate) source: String,
    pub(crate) kind: Kind,
    pub(crate) data: Value,
}

/// The documents in a source: a replay of several traces is several.
pub(crate) fn split(source: &Source) -> Result<Vec<Document>, CliError> {
    let documents = documents(source).ok_or_else(|| {
        CliError::new(format!(
            "{}: this is not an output of replay, contiguity or simulate: there is no \"trace\" \
             with \"engines\", no \"traces\", and there are no \"cells\" or \"rows\" with a \
             workload and an engine each",
            source.name
        ))
        .hint(
            "run the command with --json and give what it prints; times are compared within one \
             run: freehold bench -e ONE -e OTHER",
        )
    })?;
    Ok(documents.into_iter().flat_map(by_zone).collect())
}

/// Those; `None` where no command writes such a document.
fn documents(source: &Source) -> Option<Vec<Document>> {
    let document =
        |kind, data: &Value| Document { source: source.name.clone(), kind, data: data.clone() };
    let traces = source.value.get("traces").and_then(Value::as_array);
    let of_replay =
        |trace: &Value| (kind(trace)? == Kind::Replay).then(|| document(Kind::Replay, trace));
    match traces {
        Some(traces) if !traces.is_empty() => traces.iter().map(of_replay).collect(),
        _ => Some(vec![document(kind(&source.value)?, &source.value)]),
    }
}

/// A document, and one more for each of a machine's other zones that were replayed, all of them
/// named by their zones.
fn by_zone(mut document: Document) -> Vec<Document> {
    let others = document.data.as_object_mut().and_then(|data| data.remove("other_zones"));
    let Some(Value::Array(others)) = others else { return vec![document] };
    let of = |data| Document { source: document.source.clone(), kind: document.kind, data };
    let others: Vec<Document> = others.into_iter().map(of).collect();
    let mut all: Vec<Document> = [document].into_iter().chain(others).collect();
    for Document { data, .. } in &mut all {
        let name = data["trace"]["name"].as_str().unwrap_or("a trace");
        let zone = data["machine"]["zone"].as_str().unwrap_or("of no name");
        let node = data["machine"]["node"].as_u64().unwrap_or(0);
        data["trace"]["name"] = format!("{name}, zone {zone} of node {node}").into();
    }
    all
}

fn kind(value: &Value) -> Option<Kind> {
    let is = |name: &str, check: fn(&Value) -> bool| value.get(name).is_some_and(check);
    if is("trace", Value::is_object) && (is("engines", all_named) || is("error", Value::is_string))
    {
        return Some(Kind::Replay);
    }
    if let Some(cells) = value.get("cells").and_then(Value::as_array) {
        // Stopped at once, it has none.
        let is_grid = all_have(cells, "workload") && all_have(cells, "engine");
        return is_grid.then_some(Kind::Contiguity);
    }
    if let Some(rows) = value.get("rows").and_then(Value::as_array) {
        // An interrupted run may have no row; the rest of the document still says what it is.
        let are_simulated = match rows.is_empty() {
            true => is("model", Value::is_object),
            false => all_have(rows, "workload") && all_have(rows, "engine"),
        };
        return are_simulated.then_some(Kind::Simulate);
    }
    None
}

fn all_named(engines: &Value) -> bool {
    engines.as_array().is_some_and(|engines| !engines.is_empty() && all_have(engines, "engine"))
}

/// Whether each of them has a text of that name.
fn all_have(objects: &[Value], name: &str) -> bool {
    objects.iter().all(|object| object.get(name).is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds(value: Value) -> Result<Vec<Kind>, String> {
        let documents = split(&Source { name: "x".into(), value });
        let documents = documents.map_err(|error| error.to_string())?;
        Ok(documents.iter().map(|document| document.kind).collect())
    }

    #[test]
    fn each_commands_output_is_known() {
        let replay = json!({"trace": {"name": "a"}, "engines": [{"engine": "5.17"}]});
        assert_eq!(kinds(replay.clone()), Ok(vec![Kind::Replay]));
        let failed = json!({"trace": {"name": "b"}, "error": "no such file"});
        assert_eq!(kinds(json!({"traces": [replay, failed]})), Ok(vec![Kind::Replay; 2]));
        let row = json!({"workload": "make", "engine": "x"});
        assert_eq!(kinds(json!({"rows": [row]})), Ok(vec![Kind::Simulate]));
        let cell = json!({"workload": "aging", "engine": "x", "cpus": 16, "memory_mib": 1024});
        assert_eq!(kinds(json!({"cells": [cell]})), Ok(vec![Kind::Contiguity]));
        assert_eq!(kinds(json!({"cells": []})), Ok(vec![Kind::Contiguity]), "interrupted at once");
    }

    #[test]
    fn each_zone_of_a_replay_is_a_document() {
        let zone = |node: u64| {
            json!({"trace": {"name": "a"}, "machine": {"zone": "Normal", "node": node},
                   "engines": [{"engine": "5.17"}]})
        };
        let mut value = zone(0);
        value["other_zones"] = json!([zone(1)]);
        let found = split(&Source { name: "x".into(), value }).unwrap();
        let names: Vec<&Value> = found.iter().map(|one| &one.data["trace"]["name"]).collect();
        assert_eq!(names, ["a, zone Normal of node 0", "a, zone Normal of node 1"]);
        let one = split(&Source { name: "x".into(), value: zone(0) }).unwrap();
        assert_eq!((one.len(), &one[0].data["trace"]["name"]), (1, &json!("a")));
    }

    #[test]
    fn what_no_command_writes_is_refused() {
        for value in [
            json!({"a": 1, "b": 2}),
            json!([1, 2]),
            json!({"trace": {}, "engines": []}),
            json!({"rows": [{"name": "x"}]}),
            json!({"cells": [{"engine": "x"}]}),
            json!({"traces": []}),
            json!({"traces": [{"rows": []}]}),
        ] {
            let error = kinds(value).expect_err("no command's output");
            assert!(error.contains("no \"trace\""), "{error}");
        }
    }
}
