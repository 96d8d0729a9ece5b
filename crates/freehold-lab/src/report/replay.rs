//! A replay's section: the verdict, one picture, then tables; fragmentation over time below.

use freehold::PAGEBLOCK_FRAMES;
use serde_json::Value;

use super::embed::{self, text};
use super::table::{Table, cells};
use crate::draw::curves::{Area, Axis, Chart, Curve};
use crate::draw::panels::{self, Panel};
use crate::draw::series;
use crate::draw::svg::Svg;
use crate::results::fields::REPLAY;
use crate::tables::decimal;

/// The section of one trace.
pub(super) fn section(data: &Value) -> String {
    let name = data["trace"]["name"].as_str().unwrap_or("a trace");
    let mut html = format!("<h2>{}</h2>\n", text(name));
    if let Some(error) = data["error"].as_str() {
        return html + &format!("<p class=\"warning\">Not replayed: {}</p>\n", text(error));
    }
    let none = Vec::new();
    let engines = data["engines"].as_array().unwrap_or(&none);
    html.push_str(&verdict(data));
    html.push_str(&about(data));
    html.push_str(&picture(engines, &block(data)));
    html.push_str(&figures(engines));
    html.push_str(&sentences(data));
    html.push_str(&over_time(engines, &block(data)));
    html
}

/// Bytes of a page of the machine.
fn page_size(data: &Value) -> u64 {
    data["machine"]["page_size"].as_u64().unwrap_or(4096)
}

/// What a pageblock of the engines is called on this machine: `2 MiB blocks`.
fn block(data: &Value) -> String {
    format!("{} MiB blocks", page_size(data).saturating_mul(PAGEBLOCK_FRAMES) >> 20)
}

fn named(engine: &Value) -> String {
    engine["engine"].as_str().unwrap_or_default().to_owned()
}

/// The sentences of a list in the answer.
fn said<'d>(data: &'d Value, list: &str) -> Vec<&'d str> {
    let lists = [&data["answer"], &data["answer"]["zone_lock"]];
    let found = lists.iter().filter_map(|part| part[list].as_array());
    found.flatten().filter_map(Value::as_str).collect()
}

/// Warnings, and two sentences: is the lock a problem here, and who keeps most of memory whole.
fn verdict(data: &Value) -> String {
    let warned = |one: &str| format!("<p class=\"warning\">{}</p>\n", text(one));
    let warnings: String = said(data, "warnings").into_iter().map(warned).collect();
    let all = said(data, "sentences");
    let begins = |start: &str| all.iter().find(|sentence| sentence.starts_with(start));
    let lock = begins("Is the zone lock a problem").or_else(|| begins("Fewest zone locks"));
    let whole = begins("Most wholly free blocks").or_else(|| begins("On this trace"));
    let told: Vec<String> = lock.into_iter().chain(whole).map(|sentence| text(sentence)).collect();
    match &told[..] {
        [] => warnings,
        _ => format!("{warnings}<p class=\"verdict\">{}</p>\n", told.join(" ")),
    }
}

/// Locks and contiguity, engine by engine.
fn picture(engines: &[Value], block: &str) -> String {
    let of = |field: &str| -> Option<Vec<f64>> {
        engines.iter().map(|engine| engine[field].as_f64()).collect()
    };
    let free = format!("{block} free at the end");
    let panel = |title, field| Some(Panel { title, values: of(field)? });
    let panels = [
        panel("zone locks / 1,000 events", "zone_locks_per_1000"),
        panel(&free, "free_blocks_end"),
    ];
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    if panels.is_empty() || engines.is_empty() {
        return String::new();
    }
    let rows = engines.iter().map(named).collect();
    let chart = panels::Chart { title: "Locks and contiguity", rows, panels };
    format!("<figure>{}</figure>\n", panels::svg(&chart))
}

/// Where the figures come from, so that a stranger can get them again.
fn about(data: &Value) -> String {
    let (trace, machine, about) = (&data["trace"], &data["machine"], &data["about"]);
    let bytes = machine["memory_frames"].as_u64().unwrap_or(0).saturating_mul(page_size(data));
    let memory = bytes as f64 / f64::from(1 << 30);
    let named = [
        ("command", "command"),
        ("program", "program"),
        ("trace", "path"),
        ("sha256 of the trace", "sha256"),
        ("host", "host"),
    ];
    let named = named.into_iter().filter_map(|(name, field)| Some((name, about[field].as_str()?)));
    let mut rows: Vec<(&str, String)> = named.map(|(name, said)| (name, said.to_owned())).collect();
    rows.extend([
        ("recorded by", trace["kernel"].as_str().unwrap_or("a kernel that is not known").into()),
        (
            "replayed on",
            format!(
                "{} CPUs, {} GiB, {} machine",
                machine["cpus"].as_u64().unwrap_or(0),
                decimal(memory),
                machine["origin"].as_str().unwrap_or("unknown")
            ),
        ),
        ("rows", decimal(trace["events"].as_f64().unwrap_or(0.0))),
    ]);
    let guessed = machine["guessed"].as_array().into_iter().flatten().filter_map(Value::as_str);
    rows.extend(guessed.map(|guess| ("guessed, for no file says it", guess.to_owned())));
    embed::list(&rows)
}

fn figures(engines: &[Value]) -> String {
    let names: Vec<String> = engines.iter().map(named).collect();
    let headings: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new("What each design did. Bold is best.", &headings);
    for (field, said) in &REPLAY {
        let values: Vec<Option<f64>> = engines.iter().map(|engine| field.of(engine)).collect();
        if values.iter().any(Option::is_some) {
            let way = match field.better.word() {
                "" => (*said).to_owned(),
                word => format!("{said} ({word})"),
            };
            table.row(&way, &cells(&values, field.better));
        }
    }
    table.finished()
}

/// All that the answer says, under the table.
fn sentences(data: &Value) -> String {
    let all = said(data, "sentences");
    let items: String = all.iter().map(|one| format!("<li>{}</li>\n", text(one))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// A chart of the timeline: its title, the column of the JSON, and how its numbers read.
type OverTime<'t> = (&'t str, &'static str, fn(f64) -> String);

/// Fragmentation over the trace: one chart beside the other.
fn over_time(engines: &[Value], block: &str) -> String {
    let free = format!("{block} free");
    let charts: [OverTime<'_>; 2] = [
        ("unusable index of order 9", "unusable_index_order9", |value| format!("{value:.2}")),
        (&free, "free_blocks", decimal),
    ];
    let names: Vec<String> = engines.iter().map(named).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let places = series::places(&names);
    let mut svg = Svg::new("Fragmentation over the trace", (960.0, 300.0));
    svg.legend(&names, (12.0, 22.0));
    let mut is_empty = true;
    for ((title, column, label), left) in charts.into_iter().zip([70.0, 560.0]) {
        let all = engines.iter().zip(&places).zip(&names);
        let curves: Vec<Curve> = all
            .filter_map(|((engine, &place), &name)| {
                Some(Curve { name, place, points: timeline(engine, column)? })
            })
            .collect();
        is_empty &= curves.is_empty();
        let seconds = |value: f64| format!("{value:.1}");
        let chart = Chart {
            title,
            x: Axis { log: false, label: seconds, unit: "seconds" },
            y: Axis { log: false, label, unit: "" },
            least: 0.0,
            room: 60.0,
            curves,
            told: label,
        };
        chart.draw(&mut svg, Area { left, right: left + 370.0, top: 70.0, bottom: 240.0 });
    }
    if is_empty { String::new() } else { format!("<figure>{}</figure>\n", svg.finished()) }
}

/// Seconds since the trace's first moment, and the value at each.
fn timeline(engine: &Value, name: &str) -> Option<Vec<(f64, f64)>> {
    let column = |name: &str| {
        let values = engine["timeline"][name].as_array()?.iter();
        values.map(Value::as_f64).collect::<Option<Vec<f64>>>()
    };
    let (times, values) = (column("ts_ns")?, column(name)?);
    let begin = *times.first()?;
    Some(times.iter().map(|time| (time - begin) / 1e9).zip(values).collect())
}
