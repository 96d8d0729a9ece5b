//! Drawing a table: rows under each other, panels beside each other, a mark for each column of a
//! panel.
//!
//! Each series has a colour of Okabe and Ito and a shape, so that neither alone has to be told
//! apart. Text and lines take the reader's light or dark colours, on a ground of its own, so that
//! the picture is legible wherever it is shown.

use std::fmt::Write;

use super::picture::Scale;
use super::render::thousands;

/// What is drawn.
pub(super) struct Chart<'c> {
    pub(super) title: &'c str,
    /// Of the series; none where a panel has one column.
    pub(super) names: &'c [String],
    pub(super) rows: Vec<String>,
    pub(super) panels: Vec<Panel<'c>>,
}

/// One measure of all rows.
pub(super) struct Panel<'c> {
    pub(super) title: &'c str,
    pub(super) scale: Scale,
    /// By row, then by series.
    pub(super) values: Vec<Vec<f64>>,
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

const STYLE: &str = "<style>
.ground{fill:#ffffff}.text{fill:#1f2328}.soft{fill:#59636e}.line{stroke:#d8dee4}
.s0{fill:#1f2328}.s1{fill:#e69f00}.s2{fill:#56b4e9}.s3{fill:#009e73}.s4{fill:#cc79a7}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117}.text{fill:#f0f6fc}.soft{fill:#9198a1}.line{stroke:#3d444d}.s0{fill:#f0f6fc}}
text{font-family:sans-serif;font-size:12px}
</style>
";

/// The picture.
pub(super) fn svg(chart: &Chart) -> String {
    let bottom = HEAD + ROW * chart.rows.len() as f64;
    let height = bottom + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{0}</title>\n{STYLE}<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(chart.title)
    );
    text(&mut svg, MARGIN, 26.0, "text\" font-weight=\"bold", chart.title);
    let mut x = MARGIN;
    for (series, name) in chart.names.iter().enumerate() {
        mark(&mut svg, series, x + 6.0, 48.0, name);
        text(&mut svg, x + 18.0, 52.0, "text", name);
        // Wide letters have some 7.5 pixels.
        x += 44.0 + 7.5 * name.chars().count() as f64;
    }
    for (row, name) in chart.rows.iter().enumerate() {
        text(&mut svg, MARGIN, middle(row) + 4.0, "text", name);
    }
    let all = WIDTH - 2.0 * MARGIN - LABELS;
    let wide = (all - GAP * (chart.panels.len() as f64 - 1.0)) / chart.panels.len() as f64;
    for (at, drawn) in chart.panels.iter().enumerate() {
        let left = MARGIN + LABELS + at as f64 * (wide + GAP);
        panel(&mut svg, chart, drawn, Axis::new(drawn, left, wide), bottom);
    }
    svg.push_str("</svg>\n");
    svg
}

fn middle(row: usize) -> f64 {
    HEAD + ROW * (row as f64 + 0.5)
}

fn panel(svg: &mut String, chart: &Chart, panel: &Panel, axis: Axis, bottom: f64) {
    text(svg, axis.left, HEAD - 14.0, "text", panel.title);
    for (value, label) in axis.ticks() {
        let x = axis.x(value);
        line(svg, (x, HEAD - 6.0), (x, bottom));
        text(svg, x, bottom + 18.0, "soft\" text-anchor=\"middle", &label);
    }
    for (row, values) in panel.values.iter().enumerate() {
        let y = middle(row);
        if let [value] = values[..] {
            let x = axis.x(value);
            let (left, top, wide) = (axis.left, y - 8.0, x - axis.left);
            let _ = writeln!(
                svg,
                "<rect class=\"s2\" x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"16\"/>"
            );
            // A long bar has its number inside, on a colour that is the same in light and dark.
            let inside = x > axis.left + 0.6 * axis.wide;
            let (at, how) = if inside {
                (x - 6.0, "end\" fill=\"#1f2328")
            } else {
                (x + 6.0, "start\" class=\"text")
            };
            let _ = writeln!(
                svg,
                "<text text-anchor=\"{how}\" x=\"{at:.1}\" y=\"{}\">{}</text>",
                y + 4.0,
                exact(value)
            );
            continue;
        }
        let ends = |to: fn(f64, f64) -> f64, from: f64| {
            values.iter().map(|&value| axis.x(value)).fold(from, to)
        };
        line(svg, (ends(f64::min, f64::INFINITY), y), (ends(f64::max, 0.0), y));
        for (series, &value) in values.iter().enumerate() {
            let told =
                format!("{}: {}", chart.names.get(series).map_or("", String::as_str), exact(value));
            // One under the other a little, so that equal ones are all seen.
            let shift = (series as f64 - (values.len() as f64 - 1.0) / 2.0) * 4.5;
            mark(svg, series, axis.x(value), y + shift, &told);
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
            Scale::Share => (0.0, 100.0),
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
            Scale::Share => {
                [0.0, 25.0, 50.0, 75.0, 100.0].map(|value| (value, format!("{value} %"))).to_vec()
            }
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
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), thousands);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") }
}

/// The mark of a series; `told` is shown to who points at it.
fn mark(svg: &mut String, series: usize, x: f64, y: f64, told: &str) {
    let path = match series {
        0 => "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
        1 => "M-4.5-4.5h9v9h-9z",
        2 => "M0-6l5.5 10h-11z",
        3 => "M0-6l6 6l-6 6l-6-6z",
        _ => "M-6-4h12l-6 10z",
    };
    let _ = writeln!(
        svg,
        "<path class=\"s{}\" transform=\"translate({x:.1} {y:.1})\" d=\"{path}\"><title>{}</title></path>",
        series.min(4),
        escaped(told)
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"line\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// `class` may be followed by more attributes.
fn text(svg: &mut String, x: f64, y: f64, class: &str, said: &str) {
    let _ =
        writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(said));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
