//! A table as a picture: rows under each other, panels beside each other.
//!
//! ```text
//!               zone locks      blocks free at the end
//!  ■ 6.18       ████████ 38.7   ██████ 3,411
//!  ▼ freehold   0               ███████ 3,815
//! ```
//!
//! Each row is an engine, with its mark and a bar in each panel. This file depends on nothing but
//! `digits`, `series` and `svg`: the repository's own tools include it.

use std::fmt::Write as _;

use super::digits::thousands;
use super::series;
use super::svg::{At, Svg};

pub(crate) struct Chart<'c> {
    pub(crate) title: &'c str,
    pub(crate) rows: Vec<String>,
    pub(crate) panels: Vec<Panel<'c>>,
}

/// One measure of all rows, from nothing to the most of them.
pub(crate) struct Panel<'c> {
    pub(crate) title: &'c str,
    /// By row.
    pub(crate) values: Vec<f64>,
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
const LABELS: f64 = 212.0;
const GAP: f64 = 44.0;
/// Above the first row: title, names of panels.
const HEAD: f64 = 92.0;
const ROW: f64 = 30.0;
/// Below the last row: the axis.
const FOOT: f64 = 34.0;

pub(crate) fn svg(chart: &Chart) -> String {
    let bottom = HEAD + ROW * chart.rows.len() as f64;
    let height = bottom + FOOT;
    let mut svg = Svg::new(chart.title, (WIDTH, height));
    svg.text((MARGIN, 26.0), "text\" font-weight=\"bold", chart.title);
    let places = series::places(&chart.rows.iter().map(String::as_str).collect::<Vec<_>>());
    for (row, name) in chart.rows.iter().enumerate() {
        svg.mark(places[row], (MARGIN + 6.0, middle(row)), name);
        svg.text((MARGIN + 20.0, middle(row) + 4.0), "text", name);
    }
    let all = WIDTH - 2.0 * MARGIN - LABELS;
    let wide = (all - GAP * (chart.panels.len() as f64 - 1.0)) / chart.panels.len() as f64;
    for (at, drawn) in chart.panels.iter().enumerate() {
        let left = MARGIN + LABELS + at as f64 * (wide + GAP);
        panel(&mut svg, drawn, &places, (left, wide), bottom);
    }
    svg.finished()
}

fn middle(row: usize) -> f64 {
    HEAD + ROW * (row as f64 + 0.5)
}

impl Svg {
    /// A bar in the colour of a place among the series.
    fn bar(&mut self, place: usize, (x, y): At, (width, height): (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<rect class=\"s{place}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" \
             height=\"{height}\"/>"
        );
    }
}

fn panel(svg: &mut Svg, panel: &Panel, places: &[usize], (left, wide): (f64, f64), bottom: f64) {
    svg.text((left, HEAD - 14.0), "text", panel.title);
    svg.line((left, HEAD - 6.0), (left, bottom));
    svg.text((left, bottom + 18.0), "soft\" text-anchor=\"middle", "0");
    let most = panel.values.iter().copied().fold(0.0, f64::max);
    for (row, &value) in panel.values.iter().enumerate() {
        let y = middle(row);
        let long = wide * value / if most > 0.0 { most } else { 1.0 };
        svg.bar(places[row], (left, y - 8.0), (long, 16.0));
        // A long bar has its number inside, in the colour of the ground.
        let (at, how) = if long > 0.6 * wide {
            (left + long - 6.0, "ground\" text-anchor=\"end")
        } else {
            (left + long + 6.0, "text\" text-anchor=\"start")
        };
        svg.text((at, y + 4.0), how, &exact(value));
    }
}

/// As it stands in a table: two decimals are enough for any that is not whole.
fn exact(value: f64) -> String {
    let text = format!("{value:.2}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), thousands);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::super::svg::TEXT;
    use super::*;

    #[test]
    fn text_is_large_enough_and_engines_have_their_own_marks() {
        // As wide as a page of a repository shows it.
        const { assert!(TEXT * 830.0 / WIDTH >= 11.0) };
        let panel = Panel { title: "locks", values: vec![1.0, 100.0] };
        let rows = ["freehold", "vanilla"].map(str::to_owned).into();
        let bars = svg(&Chart { title: "t", rows, panels: vec![panel] });
        let place = |bar: &str, text: &str| {
            let (_, rest) = text.split_once(bar).expect("it is drawn");
            rest.split('"').next().map(str::to_owned)
        };
        assert_eq!(place("<rect class=\"s", &bars).as_deref(), Some("4"), "freehold's colour");
        assert!(bars.contains(">locks<") && bars.contains(series::LOOKS[4].path));
        assert_eq!(bars.matches(series::LOOKS[4].path).count(), 1, "freehold's mark, in its row");
    }
}
