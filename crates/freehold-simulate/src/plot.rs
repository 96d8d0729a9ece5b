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

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::{
    ChartBuilder, Color, DrawingArea, EmptyElement, IntoDrawingArea, IntoFont, LineSeries, Polygon,
    RGBColor, SVGBackend, ShapeStyle, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::model::Model;
use super::output::{memory, validation_note};
use super::row::Row;
use freehold_labkit::report::{series, unique};

#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {0}")]
pub struct PictureError(String);

impl PictureError {
    /// What the drawing library said.
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const QUIET: RGBColor = RGBColor(0x59, 0x63, 0x6e);
const RULE: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// The colour of a place in [`series::LOOKS`].
fn color(place: usize) -> RGBColor {
    let number = u32::from_str_radix(&series::LOOKS[place].light[1..], 16).unwrap_or_default();
    let [_, red, green, blue] = number.to_be_bytes();
    RGBColor(red, green, blue)
}

/// The outline of the mark of a place, in pixels around 0, 0.
const OUTLINES: [&[(i32, i32)]; 8] = [
    &[(-5, -2), (-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2)],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -6), (5, 4), (-5, 4)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(-6, -4), (6, -4), (0, 6)],
    &[
        (-2, -6),
        (2, -6),
        (2, -2),
        (6, -2),
        (6, 2),
        (2, 2),
        (2, 6),
        (-2, 6),
        (-2, 2),
        (-6, 2),
        (-6, -2),
        (-2, -2),
    ],
    &[(-6, -5), (0, 0), (6, -5), (6, 5), (0, 0), (-6, 5)],
    &[(0, -6), (6, -1), (4, 6), (-4, 6), (-6, -1)],
];

fn outline(place: usize, at: (i32, i32)) -> Vec<(i32, i32)> {
    OUTLINES[place].iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect()
}

/// The least size of text: 11 pixels where the picture is 830 wide, as on a page of a repository. The
/// library takes sizes 1.24 times as large as it writes them.
const SMALL: i32 = 15;
const WIDTH: u32 = 900;
const ROW: u32 = 280;
const HEAD: u32 = 44;
const FOOT: u32 = 30;
/// A line more at the foot.
const LINE: u32 = 18;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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
pub fn render(rows: &[Row], model: &Model) -> Result<String, PictureError> {
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
    let height = HEAD + ROW * groups.len() as u32 + foot;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&RGBColor(255, 255, 255)).map_err(PictureError::of)?;
        legend(&area, &engines).map_err(PictureError::of)?;
        let (_, below) = area.split_vertically(HEAD);
        let (charts, _) = below.split_vertically(ROW * groups.len() as u32);
        for ((name, rows), strip) in groups.iter().zip(charts.split_evenly((groups.len(), 1))) {
            let text = TextStyle::from(("sans-serif", 17).into_font()).color(&INK);
            strip.draw_text(name, &text, (12, 4)).map_err(PictureError::of)?;
            let (_, strip) = strip.split_vertically(24);
            for (chart, cell) in CHARTS.iter().zip(strip.split_evenly((1, CHARTS.len()))) {
                draw(&cell, chart, rows, &engines, by_memory).map_err(PictureError::of)?;
            }
        }
        let foot = format!("simulated by the constants of: {}", model.machine);
        let text = TextStyle::from(("sans-serif", SMALL).into_font()).color(&QUIET);
        area.draw_text(&foot, &text, (12, height as i32 - 20)).map_err(PictureError::of)?;
        if !off.is_empty() {
            let above = (12, height as i32 - 20 - LINE as i32);
            area.draw_text(off.trim_end().trim_start_matches("* "), &text, above)
                .map_err(PictureError::of)?;
        }
        area.present().map_err(PictureError::of)?;
    }
    Ok(svg)
}

fn legend(area: &Area<'_>, engines: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let mut x = 12;
    for (engine, place) in engines.iter().zip(series::places(engines)) {
        let color = color(place);
        area.draw(&plotters::prelude::Rectangle::new(
            [(x, 19), (x + 22, 21)],
            ShapeStyle::from(color).filled(),
        ))?;
        area.draw(&Polygon::new(outline(place, (x + 11, 20)), ShapeStyle::from(color).filled()))?;
        let text = TextStyle::from(("sans-serif", 16).into_font())
            .color(&INK)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(engine, &text, (x + 28, 20))?;
        // Estimated for a wide font: a viewer's is not known here.
        x += 28 + 9 * engine.chars().count() as i32 + 26;
    }
    Ok(())
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

fn draw(
    cell: &Area<'_>,
    chart: &Chart,
    rows: &[&Row],
    engines: &[&str],
    by_memory: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let at = |row: &Row| {
        if by_memory {
            row.memory_bytes as f64 / f64::from(1u32 << 30)
        } else {
            f64::from(row.cpus)
        }
    };
    let xs = rows.iter().map(|row| at(row));
    let (first, last) = (xs.clone().fold(f64::INFINITY, f64::min), xs.fold(0.0, f64::max));
    // A single point needs some width too.
    let range = if first < last { first..last } else { first / 2.0..last * 2.0 };
    let values = rows.iter().map(|row| (chart.value)(row));
    let most = values.clone().fold(chart.least, f64::max);
    let x_label = |x: &f64| {
        if by_memory { memory((x * f64::from(1u32 << 30)) as u64) } else { format!("{x}") }
    };
    // By doublings: CPUs and sizes of memory are powers of two as a rule.
    let doublings = (range.end / range.start).log2().round().max(1.0) as usize;
    // Sizes of memory are longer than numbers of CPUs.
    let every_other = by_memory || doublings > 6;
    let x_labels = if every_other { doublings.min(11) / 2 + 1 } else { doublings.min(11) + 1 };
    let x_range = range.log_scale().base(2.0);
    let mut builder = ChartBuilder::on(cell);
    builder
        .margin(8)
        .margin_right(22)
        .set_label_area_size(plotters::prelude::LabelAreaPosition::Left, 62);
    builder.set_label_area_size(plotters::prelude::LabelAreaPosition::Bottom, 44);
    builder.caption(chart.title, TextStyle::from(("sans-serif", 16).into_font()).color(&INK));
    let small = TextStyle::from(("sans-serif", SMALL).into_font()).color(&QUIET);
    let x_desc = if by_memory { "memory" } else { "CPUs" };
    macro_rules! finish {
        ($context:expr, $y_labels:expr) => {{
            let mut context = $context;
            context
                .configure_mesh()
                .x_labels(x_labels)
                .y_labels($y_labels)
                .x_label_formatter(&x_label)
                .y_label_formatter(&|y: &f64| (chart.label)(*y))
                .label_style(small.clone())
                .axis_style(QUIET)
                .bold_line_style(RULE)
                .light_line_style(RULE.mix(0.0))
                .x_desc(x_desc)
                .draw()?;
            for (engine, place) in engines.iter().zip(series::places(engines)) {
                let color = color(place);
                let of_it = rows.iter().filter(|row| row.engine == **engine);
                let points = means(of_it.map(|row| (at(row), (chart.value)(row))));
                context.draw_series(LineSeries::new(
                    points.iter().copied(),
                    ShapeStyle::from(color).stroke_width(2),
                ))?;
                context.draw_series(points.iter().map(|&point| {
                    let mark = outline(place, (0, 0));
                    EmptyElement::at(point) + Polygon::new(mark, ShapeStyle::from(color).filled())
                }))?;
            }
        }};
    }
    if chart.log {
        let least = values.fold(f64::INFINITY, f64::min).max(1.0);
        let decades = 10f64.powf(least.log10().floor())..10f64.powf(most.max(10.0).log10().ceil());
        let y_labels = (decades.end / decades.start).log10().round() as usize + 1;
        finish!(builder.build_cartesian_2d(x_range, decades.log_scale())?, y_labels);
    } else {
        finish!(builder.build_cartesian_2d(x_range, 0.0..most * 1.05)?, 6);
    }
    Ok(())
}
