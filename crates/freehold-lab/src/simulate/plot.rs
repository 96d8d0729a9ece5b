//! Pictures of rows: throughput, waiting for locks and fragmentation against CPUs, a line an
//! engine in its colour and with its mark.
//!
//! ```text
//!  frames per second          time waiting for locks       unusable-free-space index
//!  |            ___ freehold  |        ___ vanilla         |     ___
//!  |   ____----               |   ___--                    |____/
//!  +--------- CPUs (log)      +--------- CPUs (log)        +--------- CPUs (log)
//! ```
//!
//! One row of three charts for each workload (and memory size). Where all rows have the same number
//! of CPUs and memory varies, that is the axis.

use crate::tables::{series, unique};

use super::model::Model;
use super::output::{memory, validation_note};
use super::row::Row;
use super::svg::{At, Svg};

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 12.0;
const ROW: f64 = 280.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 30.0;
/// A line more at the foot.
const LINE: f64 = 18.0;

struct Chart {
    title: &'static str,
    value: fn(&Row) -> f64,
    label: fn(f64) -> String,
    /// The axis ends here at least.
    least: f64,
    log: bool,
}

fn rate(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{} G", v / 1e9),
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e3 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}

fn share(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

const CHARTS: [Chart; 3] = [
    Chart {
        title: "frames allocated per second",
        value: |r| r.frames_per_second,
        label: rate,
        least: 0.0,
        log: true,
    },
    Chart {
        title: "CPU time spent waiting for locks",
        value: |r| r.zone_lock_wait_share + r.pcp_lock_wait_share,
        label: share,
        least: 0.1,
        log: false,
    },
    Chart {
        title: "unusable-free-space index, order 9",
        value: |r| r.unusable_index,
        label: |value| format!("{value:.2}"),
        least: 0.1,
        log: false,
    },
];

/// Draws. The same rows give the same picture, byte for byte.
pub fn render(rows: &[Row], model: &Model) -> String {
    let engines = unique(rows.iter().map(|row| row.engine.as_str()));
    let by_memory = rows.iter().all(|row| row.cpus == rows[0].cpus)
        && rows.iter().any(|row| row.memory_bytes != rows[0].memory_bytes);
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    let several = rows.iter().any(|row| row.memory_bytes != rows[0].memory_bytes);
    for row in rows {
        let name = match (by_memory, several) {
            (true, _) => format!("{}, {} CPUs", row.workload, row.cpus),
            (false, true) => format!("{}, {}", row.workload, memory(row.memory_bytes)),
            (false, false) => format!("{}, {} of memory", row.workload, memory(row.memory_bytes)),
        };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    let off = validation_note(rows);
    let foot = if off.is_empty() { FOOT } else { FOOT + LINE };
    let height = HEAD + ROW * groups.len() as f64 + foot;
    let mut svg = Svg::new("Throughput, waiting for locks and fragmentation", (WIDTH, height));
    svg.legend(&engines, (MARGIN, 22.0));
    for ((name, rows), top) in groups.iter().zip((0..).map(|at| HEAD + ROW * f64::from(at))) {
        svg.text((MARGIN, top + 18.0), "text\" font-weight=\"bold", name);
        let wide = WIDTH / CHARTS.len() as f64;
        for (chart, left) in CHARTS.iter().zip((0..).map(|at| wide * f64::from(at))) {
            let area = Area {
                left: left + 62.0,
                right: left + wide - 22.0,
                top: top + 58.0,
                bottom: top + ROW - 50.0,
            };
            draw(&mut svg, area, chart, rows, &engines, by_memory);
        }
    }
    if !off.is_empty() {
        let note = off.trim_end().trim_start_matches("* ");
        svg.text((MARGIN, height - 10.0 - LINE), "soft", note);
    }
    let foot = format!("simulated by the constants of: {}", model.machine);
    svg.text((MARGIN, height - 10.0), "soft", &foot);
    svg.finished()
}

/// Where the lines of a chart are.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// The mean of the values at each place, as there are of several seeds; by place.
fn means(values: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut sums: Vec<(f64, f64, f64)> = Vec::new();
    for (at, value) in values {
        match sums.iter_mut().find(|(x, ..)| *x == at) {
            Some((_, sum, n)) => (*sum, *n) = (*sum + value, *n + 1.0),
            None => sums.push((at, value, 1.0)),
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0));
    sums.into_iter().map(|(x, sum, n)| (x, sum / n)).collect()
}

/// Where an axis has its numbers: by powers of ten, or by steps of 1, 2 or 5 of them.
fn ticks(chart: &Chart, from: f64, to: f64) -> Vec<f64> {
    if chart.log {
        let powers = from.log10().round() as i32..=to.log10().round() as i32;
        return powers.map(|power| 10f64.powi(power)).collect();
    }
    let power = 10f64.powf((to / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let step = step.into_iter().find(|step| to / step <= 6.0).unwrap_or(to);
    (0..=6u8).map(|n| f64::from(n) * step).filter(|value| *value <= to).collect()
}

fn draw(
    svg: &mut Svg,
    area: Area,
    chart: &Chart,
    rows: &[&Row],
    engines: &[&str],
    by_memory: bool,
) {
    let at = |row: &Row| {
        if by_memory { row.memory_bytes as f64 } else { f64::from(row.cpus) }
    };
    let mut xs = unique(rows.iter().map(|row| at(row)));
    xs.sort_by(f64::total_cmp);
    // A single point needs some width too.
    let (first, last) = match xs[..] {
        [one] => (one / 2.0, one * 2.0),
        _ => (xs[0], xs[xs.len() - 1]),
    };
    let values = rows.iter().map(|row| (chart.value)(row));
    let most = values.clone().fold(chart.least, f64::max);
    let (from, to) = if chart.log {
        let least = values.fold(f64::INFINITY, f64::min).max(1.0);
        (10f64.powf(least.log10().floor()), 10f64.powf(most.max(10.0).log10().ceil()))
    } else {
        (0.0, most * 1.05)
    };
    // CPUs and sizes of memory are powers of two as a rule.
    let x = |value: f64| {
        area.left + (area.right - area.left) * (value / first).log2() / (last / first).log2()
    };
    let y = |value: f64| {
        let share = if chart.log {
            (value.max(from) / from).log10() / (to / from).log10()
        } else {
            value / to
        };
        area.bottom - (area.bottom - area.top) * share
    };
    svg.text((area.left - 50.0, area.top - 14.0), "text", chart.title);
    for value in ticks(chart, from, to) {
        svg.line((area.left, y(value)), (area.right, y(value)));
        let label = (area.left - 10.0, y(value) + 4.0);
        svg.text(label, "soft\" text-anchor=\"end", &(chart.label)(value));
    }
    let x_label = |value: f64| if by_memory { memory(value as u64) } else { format!("{value}") };
    // Sizes of memory are longer than numbers of CPUs.
    let room = if by_memory { 54.0 } else { 34.0 };
    let mut free = f64::NEG_INFINITY;
    for &value in &xs {
        svg.line((x(value), area.bottom), (x(value), area.bottom + 4.0));
        if x(value) >= free {
            let label = (x(value), area.bottom + 18.0);
            svg.text(label, "soft\" text-anchor=\"middle", &x_label(value));
            free = x(value) + room;
        }
    }
    let middle = f64::midpoint(area.left, area.right);
    let unit = if by_memory { "memory" } else { "CPUs" };
    svg.text((middle, area.bottom + 36.0), "soft\" text-anchor=\"middle", unit);
    for (engine, place) in engines.iter().zip(series::places(engines)) {
        let of_it = rows.iter().filter(|row| row.engine == **engine);
        let points = means(of_it.map(|row| (at(row), (chart.value)(row))));
        let places: Vec<At> = points.iter().map(|&(at, value)| (x(at), y(value))).collect();
        svg.curve(place, &places);
        for (&(at, value), place_at) in points.iter().zip(places) {
            let told = format!("{engine}, {} {unit}: {}", x_label(at), told(chart, value));
            svg.mark(place, place_at, &told);
        }
    }
}

/// A value with more digits than an axis has.
fn told(chart: &Chart, value: f64) -> String {
    match (chart.log, chart.title.contains("time")) {
        (true, _) => format!("{value:.3e}"),
        (false, true) => format!("{:.2} %", value * 100.0),
        (false, false) => format!("{value:.4}"),
    }
}
