//! A comparison as a table for people, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Compared, Comparison, Place, Verdict};
use crate::tables::number::read;
use crate::tables::percent;
use crate::tables::table::{Cell, Color, Room, Style, Table, right, wrap};
use crate::tables::{thousands, unique};

/// What `--json` prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Document<'a> {
    pub command: &'static str,
    /// How many figures are.
    pub worse: usize,
    pub better: usize,
    pub summary: String,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

impl<'a> From<&'a Comparison> for Document<'a> {
    fn from(comparison: &'a Comparison) -> Self {
        Self {
            command: "compare",
            worse: comparison.count(Verdict::Worse),
            better: comparison.count(Verdict::Better),
            summary: summary(comparison),
            comparison,
        }
    }
}

/// The verdict in a sentence or two.
pub fn summary(comparison: &Comparison) -> String {
    let tolerance = comparison.tolerance_percent;
    let by = if tolerance > 0.0 { format!(" by more than {tolerance} %") } else { String::new() };
    let mut text = format!(
        "Of {} figures {} {} worse{by} and {} better.",
        thousands(comparison.figures.len() as u64),
        comparison.count(Verdict::Worse),
        if comparison.count(Verdict::Worse) == 1 { "is" } else { "are" },
        comparison.count(Verdict::Better),
    );
    if let Some(worst) = worst(comparison) {
        let Place { what, engine, metric, .. } = &worst.place;
        let change = percent(worst.before, worst.after).unwrap_or_else(|| "from 0".to_owned());
        let _ = write!(text, " Worst: {metric} of {engine} ({what}), {change}.");
    }
    text
}

/// The figure that got worse by most; of those that came from nothing the first.
fn worst(comparison: &Comparison) -> Option<&Compared> {
    let worse = comparison.figures.iter().filter(|figure| figure.verdict == Verdict::Worse);
    let size = |figure: &Compared| figure.percent.map_or(f64::INFINITY, f64::abs);
    // Of equal ones `max_by` gives the last.
    worse.rev().max_by(|a, b| size(a).total_cmp(&size(b)))
}

/// The table: what differs, or all of it.
pub fn table(comparison: &Comparison, all: bool, style: Style) -> String {
    let mut text = String::new();
    let is_shown = |figure: &&Compared| all || figure.before != figure.after;
    let shown: Vec<&Compared> = comparison.figures.iter().filter(is_shown).collect();
    if !shown.is_empty() {
        let _ = writeln!(text, "{}\n", rows(comparison, &shown, style));
    }
    let mut sum = summary(comparison);
    let equal = comparison.figures.len() - shown.len();
    if equal > 0 {
        let _ = write!(sum, " {} equal figures are not shown.", thousands(equal as u64));
    }
    let _ = writeln!(text, "{}", wrap(&sum, style, ""));
    for (name, only) in
        [(&comparison.before, &comparison.only_before), (&comparison.after, &comparison.only_after)]
    {
        let places = places(only);
        if !places.is_empty() {
            let _ = writeln!(
                text,
                "{}",
                wrap(&format!("Only in {name}: {}.", few(&places)), style, "  ")
            );
        }
    }
    text
}

/// What each place is, with the engines that were there.
fn places(only: &[Place]) -> Vec<String> {
    let named = only.chunk_by(|a, b| a.what == b.what).map(|of| {
        let engines = unique(of.iter().map(|place| place.engine.as_str()));
        let word = if engines.len() == 1 { "engine" } else { "engines" };
        format!("{word} {} on {}", engines.join(", "), of[0].what)
    });
    unique(named)
}

/// So many are named.
const NAMED: usize = 6;

fn few(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let named = names[..names.len().min(NAMED)].join("; ");
    if more > 0 { format!("{named}; and {more} more") } else { named }
}

fn rows(comparison: &Comparison, shown: &[&Compared], style: Style) -> String {
    let columns = [
        ("metric", Room::Always),
        ("engine", Room::Always),
        (&*comparison.before, Room::Wraps),
        (&*comparison.after, Room::Wraps),
        ("change", Room::GivesWay(0)),
        ("verdict", Room::Always),
    ];
    let mut table = Table::new(columns);
    let mut place = "";
    for figure in shown {
        if figure.place.what != place {
            place = &figure.place.what;
            table.row([Cell::new(place).bold()]);
        }
        let verdict = Cell::new(figure.verdict.text());
        let verdict = match figure.verdict {
            Verdict::Worse => verdict.fg(Color::Red),
            Verdict::Better => verdict.fg(Color::Green),
            _ => verdict,
        };
        table.row([
            Cell::new(format!("  {}", figure.place.metric)),
            Cell::new(&figure.place.engine),
            right(read(figure.before)),
            right(read(figure.after)),
            right(percent(figure.before, figure.after).unwrap_or_default()),
            verdict,
        ]);
    }
    table.render(style)
}
