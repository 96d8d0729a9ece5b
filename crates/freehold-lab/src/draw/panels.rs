//! A table as a picture: rows under each other, panels beside each other.
//!
//! ```text
//!               zone locks      blocks free at the end
//!  ■ 6.18       ████████ 38.7   ██████ 3,411
//!  ▼ freehold   0               ███████ 3,815
//! ```
//!
//! A panel of one column has bars, and each row is an engine. One of several has a mark for each.
//! This file depends on nothing but `series` and `svg`: the repository's own tools include it.

use super::series;
use super::svg::Svg;

/// How the numbers of a panel are spaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    Linear,
    /// By powers of ten; nothing is a place to the left of them.
    Log,
}

/// What is drawn.
pub(crate) struct Chart<'c> {
    pub(crate) title: &'c str,
    /// Of the series; none where a panel has one column.
    pub(crate) names: &'c [String],
    pub(crate) rows: Vec<String>,
    pub(crate) panels: Vec<Panel<'c>>,
}

/// One measure of all rows.
pub(crate) struct Panel<'c> {
    pub(crate) title: &'c str,
    pub(crate) scale: Scale,
    /// By row, then by series.
    pub(crate) values: Vec<Vec<f64>>,
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
/// For the rows' names.
const LABELS: f64 = 212.0;
const GAP: f64 = 44.0;
/// Above the first row: title, series, names of panels.
const HEAD: f64 = 92.0;
const ROW: f64 = 30.0;
/// Below the last row: the axis.
const FOOT: f64 = 34.0;

/// The picture.
pub(crate) fn svg(chart: &Chart) -> String {
    let bottom = HEAD + ROW * chart.rows.len() as f64;
    let height = bottom + FOOT;
    let mut svg = Svg::new(chart.title, (WIDTH, height));
    svg.text((MARGIN, 26.0), "text\" font-weight=\"bold", chart.title);
    let names: Vec<&str> = chart.names.iter().map(String::as_str).collect();
    svg.legend(&names, (MARGIN, 48.0));
    // Where a panel has one column, a row is an engine.
    let engines = chart.names.is_empty().then(|| places(&chart.rows));
    for (row, name) in chart.rows.iter().enumerate() {
        let mut left = MARGIN;
        if let Some(places) = &engines {
            svg.mark(places[row], (MARGIN + 6.0, middle(row)), name);
            left += 20.0;
        }
        svg.text((left, middle(row) + 4.0), "text", name);
    }
    let all = WIDTH - 2.0 * MARGIN - LABELS;
    let wide = (all - GAP * (chart.panels.len() as f64 - 1.0)) / chart.panels.len() as f64;
    for (at, drawn) in chart.panels.iter().enumerate() {
        let left = MARGIN + LABELS + at as f64 * (wide + GAP);
        panel(&mut svg, chart, drawn, Axis::new(drawn, left, wide), bottom);
    }
    svg.finished()
}

fn places(names: &[String]) -> Vec<usize> {
    series::places(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn middle(row: usize) -> f64 {
    HEAD + ROW * (row as f64 + 0.5)
}

fn panel(svg: &mut Svg, chart: &Chart, panel: &Panel, axis: Axis, bottom: f64) {
    let logarithmic = if panel.scale == Scale::Log { ", powers of ten" } else { "" };
    svg.text((axis.left, HEAD - 14.0), "text", &format!("{}{logarithmic}", panel.title));
    let rows = chart.names.is_empty().then(|| places(&chart.rows));
    for (value, label) in axis.ticks() {
        let x = axis.x(value);
        svg.line((x, HEAD - 6.0), (x, bottom));
        svg.text((x, bottom + 18.0), "soft\" text-anchor=\"middle", &label);
    }
    for (row, values) in panel.values.iter().enumerate() {
        let y = middle(row);
        if let [value] = values[..] {
            let x = axis.x(value);
            let place = rows.as_ref().map_or(0, |places| places[row]);
            svg.bar(place, (axis.left, y - 8.0), (x - axis.left, 16.0));
            // A long bar has its number inside, in the colour of the ground.
            let inside = x > axis.left + 0.6 * axis.wide;
            let (at, how) = if inside {
                (x - 6.0, "ground\" text-anchor=\"end")
            } else {
                (x + 6.0, "text\" text-anchor=\"start")
            };
            svg.text((at, y + 4.0), how, &exact(value));
            continue;
        }
        let ends = |to: fn(f64, f64) -> f64, from: f64| {
            values.iter().map(|&value| axis.x(value)).fold(from, to)
        };
        svg.line((ends(f64::min, f64::INFINITY), y), (ends(f64::max, 0.0), y));
        let places = places(chart.names);
        for (series, &value) in values.iter().enumerate() {
            let told =
                format!("{}: {}", chart.names.get(series).map_or("", String::as_str), exact(value));
            // One under the other a little, so that equal ones are all seen.
            let shift = (series as f64 - (values.len() as f64 - 1.0) / 2.0) * 4.5;
            svg.mark(places[series], (axis.x(value), y + shift), &told);
        }
    }
}

/// Where numbers of a panel are.
struct Axis {
    scale: Scale,
    left: f64,
    wide: f64,
    /// The least and the most; logarithms where the scale has them.
    from: f64,
    to: f64,
    has_zero: bool,
}

impl Axis {
    fn new(panel: &Panel, left: f64, wide: f64) -> Self {
        let all = || panel.values.iter().flatten().copied();
        let most = all().fold(0.0, f64::max);
        let has_zero = all().any(|value| value <= 0.0);
        let (from, to) = match panel.scale {
            Scale::Linear => (0.0, if most > 0.0 { most } else { 1.0 }),
            Scale::Log => {
                let least = all()
                    .filter(|&value| value > 0.0)
                    .fold(f64::INFINITY, f64::min)
                    .min(most.max(1.0));
                let from = least.log10().floor();
                // A place to the left of the least power for what is nothing.
                (from - f64::from(u8::from(has_zero)), most.max(1.0).log10().ceil().max(from + 1.0))
            }
        };
        Self { scale: panel.scale, left, wide, from, to, has_zero }
    }

    fn x(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Log if value <= 0.0 => self.from,
            Scale::Log => value.log10(),
            _ => value,
        };
        self.left + self.wide * (at - self.from) / (self.to - self.from)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => vec![(0.0, "0".to_owned())],
            Scale::Log => {
                let first = self.from as i32 + i32::from(self.has_zero);
                let powers = (first..=self.to as i32)
                    .map(|power| 10f64.powi(power))
                    .map(|value| (value, short(value)));
                self.has_zero.then(|| (0.0, "0".to_owned())).into_iter().chain(powers).collect()
            }
        }
    }
}

/// A power of ten.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e3.. => format!("{} k", value / 1e3),
        _ => value.to_string(),
    }
}

/// As it stands in a table: two decimals are enough for any that is not whole.
fn exact(value: f64) -> String {
    let text = format!("{value:.2}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = grouped(whole);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") }
}

/// Digits with a comma before each three of them.
fn grouped(digits: &str) -> String {
    let comma = |at: usize| at > 0 && (digits.len() - at) % 3 == 0;
    digits
        .char_indices()
        .flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::svg::TEXT;
    use super::*;

    #[test]
    fn text_is_large_enough_and_engines_have_their_own_marks() {
        // As wide as a page of a repository shows it.
        const { assert!(TEXT * 830.0 / WIDTH >= 11.0) };
        let panel =
            Panel { title: "locks", scale: Scale::Log, values: vec![vec![1.0], vec![100.0]] };
        let rows = ["freehold", "vanilla"].map(str::to_owned).into();
        let bars = svg(&Chart { title: "t", names: &[], rows, panels: vec![panel] });
        let place = |bar: &str, text: &str| {
            let (_, rest) = text.split_once(bar).expect("it is drawn");
            rest.split('"').next().map(str::to_owned)
        };
        assert_eq!(place("<rect class=\"s", &bars).as_deref(), Some("4"), "freehold's colour");
        assert!(bars.contains("locks, powers of ten") && bars.contains(series::LOOKS[4].path));
        let names = ["6.18", "freehold"].map(str::to_owned);
        let values = vec![vec![1.0, 2.0]];
        let panel = Panel { title: "locks", scale: Scale::Linear, values };
        let marks =
            svg(&Chart { title: "t", names: &names, rows: vec!["a".into()], panels: vec![panel] });
        for place in [1, 4] {
            assert_eq!(marks.matches(series::LOOKS[place].path).count(), 2, "legend and row");
        }
    }
}
