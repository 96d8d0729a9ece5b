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

use crate::draw::curves::{Area, Axis, Chart, Curve};
use crate::draw::series;
use crate::draw::svg::Svg;
use crate::tables::unique;

use super::model::Model;
use super::output::memory;
use super::row::Row;

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 12.0;
const ROW: f64 = 280.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 30.0;

/// What one of the three charts of a row shows.
struct Measure {
    title: &'static str,
    value: fn(&Row) -> f64,
    label: fn(f64) -> String,
    /// The axis ends here at least.
    least: f64,
    log: bool,
    /// A value with more digits than an axis has.
    told: fn(f64) -> String,
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

const CHARTS: [Measure; 3] = [
    Measure {
        title: "frames allocated per second",
        value: |r| r.frames_per_second,
        label: rate,
        least: 0.0,
        log: true,
        told: |value| format!("{value:.3e}"),
    },
    Measure {
        title: "CPU time spent waiting for locks",
        value: |r| r.zone_lock_wait_share + r.pcp_lock_wait_share,
        label: share,
        least: 0.1,
        log: false,
        told: |value| format!("{:.2} %", value * 100.0),
    },
    Measure {
        title: "unusable-free-space index, order 9",
        value: |r| r.unusable_index,
        label: |value| format!("{value:.2}"),
        least: 0.1,
        log: false,
        told: |value| format!("{value:.4}"),
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
    let height = HEAD + ROW * groups.len() as f64 + FOOT;
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
    let foot = format!("simulated by the constants of: {}", model.machine);
    svg.text((MARGIN, height - 10.0), "soft", &foot);
    svg.finished()
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

/// The line of each engine over CPUs or sizes of memory.
fn draw(
    svg: &mut Svg,
    area: Area,
    chart: &Measure,
    rows: &[&Row],
    engines: &[&str],
    by_memory: bool,
) {
    let at = |row: &Row| {
        if by_memory { row.memory_bytes as f64 } else { f64::from(row.cpus) }
    };
    let curve = |(engine, place): (&&'_ str, usize)| {
        let of_it = rows.iter().filter(|row| row.engine == **engine);
        let points = means(of_it.map(|row| (at(row), (chart.value)(row))));
        (place, points)
    };
    let drawn: Vec<_> = engines.iter().zip(series::places(engines)).map(curve).collect();
    let curves = drawn.into_iter().zip(engines);
    let curves = curves.map(|((place, points), name)| Curve { name, place, points }).collect();
    // CPUs and sizes of memory are powers of two as a rule; sizes are longer than numbers of CPUs.
    let (label, unit, room): (fn(f64) -> String, _, _) = if by_memory {
        (|value| memory(value as u64), "memory", 54.0)
    } else {
        (|value| format!("{value}"), "CPUs", 34.0)
    };
    let chart = Chart {
        title: chart.title,
        x: Axis { log: true, label, unit },
        y: Axis { log: chart.log, label: chart.label, unit: "" },
        least: chart.least,
        room,
        curves,
        told: chart.told,
    };
    chart.draw(svg, area);
}
