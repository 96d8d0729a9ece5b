//! The comparison as one picture: SVG, so that it stays sharp at any size and needs nothing beside
//! it.
//!
//! ```text
//!  trace, events, CPUs
//!
//!             acquisitions      work             longest hold      three scales of their own, all from 0;
//!  5.17       ######  52.7      #####   2,090    ###    3,200      number and change against the first engine
//!  vanilla    #####   50.9      ######  2,305    ###### 5,952      written beside each bar
//!
//!  -- 5.17  -- vanilla                                             legend
//!  index |    ____/\                                    | live     lines: unusable-free-space index, order 9
//!        |___/      \____                               | memory   shaded: live memory of the trace
//!        +---------------------------- time
//! ```
//!
//! Colours are those of Okabe and Ito (2008), which people with any of the usual kinds of colour
//! blindness can tell apart; their yellow, too pale on white, is grey here. The picture brings its
//! own white ground, so it reads the same on a dark page. A viewer's font is not known here: widths
//! of text are estimated for a wide one, and names too long for their place are broken into lines
//! instead of running into what is beside them.
//!
//! Times of this machine are left out: the same trace and engines draw the same picture, byte for
//! byte.

mod axis;
mod canvas;
mod plot;
mod text;

use std::fmt::Write as _;

use plotters::prelude::{IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::text_anchor::HPos;

use super::number::{decimal, duration, memory_of, percent, thousands};
use super::table::rate;
use crate::replay::{EngineOutcome, Replay};
use canvas::{Canvas, units};
use plot::Plot;
use text::{broken, chars_in, escaped, width};

#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {0}")]
pub struct PictureError(String);

impl PictureError {
    /// What the drawing library said.
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Width of the picture, in CSS pixels.
const WIDTH: f64 = 800.0;
const MARGIN: f64 = 24.0;
/// Sizes of text, in pixels; nothing is smaller than [`SMALL`].
const TITLE: f64 = 18.0;
const HEADING: f64 = 13.0;
const PLAIN: f64 = 13.0;
const SMALL: f64 = 12.0;

/// Names of engines get this share of the width at most; longer ones are broken into lines.
const NAMES_MAX: f64 = 190.0;
const PANEL_GAP: f64 = 22.0;
const BAR: f64 = 14.0;
const ROW: f64 = 28.0;
const LINE: f64 = 17.0;
const CHART: f64 = 230.0;
/// Room beside the chart for the labels of its axes.
const AXIS_LEFT: f64 = 44.0;
const AXIS_RIGHT: f64 = 68.0;

pub(crate) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
pub(crate) const QUIET: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(crate) const RULE: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
const AREA: RGBColor = RGBColor(0xe3, 0xeb, 0xf3);
const WARN: RGBColor = RGBColor(0xb3, 0x3c, 0x00);

/// In the order of the engines; from the ninth on they come again, dashed.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x99, 0x99, 0x99),
];

/// One group of bars.
struct Panel {
    heading: &'static str,
    unit: &'static str,
    value: fn(&Replay, &EngineOutcome) -> f64,
    text: fn(f64) -> String,
}

/// The zone lock's share of the table.
const PANELS: [Panel; 3] = [
    Panel {
        heading: "Zone-lock acquisitions",
        unit: "per 1,000 events",
        value: |_, engine| rate(engine, engine.counters.zone_lock_acquisitions),
        text: decimal,
    },
    Panel {
        heading: "Work under the lock",
        unit: "steps per 1,000 events",
        value: |_, engine| rate(engine, engine.counters.zone_lock_work),
        text: decimal,
    },
    Panel {
        heading: "Longest hold",
        unit: "steps",
        value: |_, engine| engine.counters.zone_lock_work_max as f64,
        text: |steps| thousands(steps as u64),
    },
];

/// Draws `replay`: the text of an SVG file.
pub fn render(replay: &Replay) -> Result<String, PictureError> {
    let layout = Layout::new(replay);
    let mut body = String::new();
    {
        let size = (units(WIDTH) as u32, units(layout.height) as u32);
        let area = SVGBackend::with_string(&mut body, size).into_drawing_area();
        let canvas = Canvas { area: &area };
        canvas.background(layout.height)?;
        let mut top = MARGIN;
        draw_title(&canvas, &layout, &mut top)?;
        draw_bars(&canvas, replay, &layout, &mut top)?;
        draw_index(&canvas, replay, &layout, &mut top)?;
        area.present().map_err(PictureError::of)?;
    }
    Ok(wrap(&body, replay, layout.height))
}

/// Puts what plotters drew into a root of the size people see, with a description for those who do
/// not see it.
fn wrap(drawn: &str, replay: &Replay, height: f64) -> String {
    // The root element is the first line.
    let inside = drawn.split_once('\n').map_or("", |(_, inside)| inside);
    let mut description = String::new();
    for engine in &replay.engines {
        let _ = write!(description, "{}:", engine.engine);
        for panel in &PANELS {
            let value = (panel.text)((panel.value)(replay, engine));
            let _ =
                write!(description, " {} {} {};", panel.heading.to_lowercase(), value, panel.unit);
        }
        let _ = writeln!(
            description,
            " unusable index, order 9, mean {}.",
            decimal(engine.unusable_index_mean)
        );
    }
    let (units_wide, units_high) = (units(WIDTH), units(height));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {units_wide} {units_high}\" role=\"img\">\n\
         <title>{}</title>\n<desc>{}</desc>\n{inside}",
        escaped(&title(replay)),
        escaped(description.trim_end()),
    )
}

fn title(replay: &Replay) -> String {
    let facts = &replay.survey.facts;
    let (events, cpus) =
        (counted(facts.events, "event"), counted(u64::from(facts.cpus_seen), "CPU"));
    format!("{}: {events} on {cpus}", replay.survey.description.name)
}

fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// Where things go that depend on how much there is to say.
struct Layout {
    title: Vec<String>,
    subtitle: Vec<String>,
    /// Width of the column of names.
    names_wide: f64,
    rows: Vec<Row>,
    legend: Vec<Legend>,
    height: f64,
}

/// A piece of text in the legend.
struct Legend {
    /// The engine whose key stands before it; none for a further line of a broken name.
    engine: Option<usize>,
    line: usize,
    left: f64,
    text: String,
}

/// An engine in the bars.
struct Row {
    name: Vec<String>,
    /// What its bars must not be read without.
    warnings: Vec<String>,
}

impl Row {
    fn height(&self) -> f64 {
        let lines = (self.name.len() + self.warnings.len()) as f64;
        ROW.max(lines * LINE + ROW - LINE)
    }
}

const BARS_HEAD: f64 = 48.0;
const INDEX_HEAD: f64 = 46.0;
const GAP: f64 = 26.0;
const AXIS_BOTTOM: f64 = 42.0;
const SWATCH: f64 = 10.0;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_KEY: f64 = 24.0;

impl Layout {
    fn new(replay: &Replay) -> Self {
        let full = WIDTH - 2.0 * MARGIN;
        let survey = &replay.survey;
        let title = broken(&title(replay), chars_in(full, TITLE, true));
        let about = format!(
            "{} of a recording, replayed on {} with {}; live at most {}",
            duration(survey.facts.span_ns()),
            counted(u64::from(replay.machine.cpus), "CPU"),
            memory_of(replay.machine.memory_frames, replay.machine.page_size),
            memory_of(survey.facts.peak_live_frames, replay.machine.page_size),
        );
        let mut subtitle = broken(&about, chars_in(full, PLAIN, false));
        if let Some(first) = replay.engines.first().filter(|_| replay.engines.len() > 1) {
            let read =
                format!("Less is better throughout; percentages compare with {}", first.engine);
            subtitle.extend(broken(&read, chars_in(full, PLAIN, false)));
        }

        let warnings = |engine: &EngineOutcome| {
            let failures =
                (engine.counters.failed > 0).then(|| counted(engine.counters.failed, "failure"));
            failures.into_iter().chain((!engine.whole).then(|| "not whole at the end".to_owned()))
        };
        let beside_bars = replay
            .engines
            .iter()
            .flat_map(|engine| warnings(engine).chain([engine.engine.clone()]));
        let longest = beside_bars.map(|text| width(&text, PLAIN, false)).fold(60.0, f64::max);
        let names_wide = (longest + SWATCH + 8.0).min(NAMES_MAX);
        let room = chars_in(names_wide - SWATCH - 8.0, PLAIN, false);
        let row = |engine: &EngineOutcome| Row {
            name: broken(&engine.engine, room),
            warnings: warnings(engine).flat_map(|warning| broken(&warning, room)).collect(),
        };
        let rows: Vec<Row> = replay.engines.iter().map(row).collect();

        let mut legend = Vec::new();
        let (mut line, mut left) = (0, 0.0);
        for (i, engine) in replay.engines.iter().enumerate() {
            for (n, text) in
                broken(&engine.engine, chars_in(full - LEGEND_KEY - 10.0, PLAIN, false))
                    .into_iter()
                    .enumerate()
            {
                let wide = LEGEND_KEY + width(&text, PLAIN, false) + 18.0;
                if n > 0 || (left > 0.0 && left + wide > full) {
                    (line, left) = (line + 1, 0.0);
                }
                legend.push(Legend { engine: (n == 0).then_some(i), line, left, text });
                left += wide;
            }
        }

        let bars: f64 = rows.iter().map(Row::height).sum();
        let height = MARGIN
            + title.len() as f64 * (TITLE + 8.0)
            + subtitle.len() as f64 * (PLAIN + 6.0)
            + GAP
            + BARS_HEAD
            + bars
            + GAP
            + INDEX_HEAD
            + (line + 1) as f64 * LEGEND_LINE
            + 14.0
            + CHART
            + AXIS_BOTTOM
            + MARGIN / 2.0;
        Self { title, subtitle, names_wide, rows, legend, height: height.ceil() }
    }
}

fn draw_title(canvas: &Canvas<'_, '_>, layout: &Layout, top: &mut f64) -> Result<(), PictureError> {
    for line in &layout.title {
        canvas.text(line, (MARGIN, *top + TITLE / 2.0), TITLE, INK, HPos::Left, true)?;
        *top += TITLE + 8.0;
    }
    for line in &layout.subtitle {
        canvas.text(line, (MARGIN, *top + PLAIN / 2.0), PLAIN, QUIET, HPos::Left, false)?;
        *top += PLAIN + 6.0;
    }
    *top += GAP;
    Ok(())
}

fn draw_bars(
    canvas: &Canvas<'_, '_>,
    replay: &Replay,
    layout: &Layout,
    top: &mut f64,
) -> Result<(), PictureError> {
    let head = *top;
    *top += BARS_HEAD;
    let mut y = *top;
    for (i, row) in layout.rows.iter().enumerate() {
        canvas.line((MARGIN, y), (WIDTH - MARGIN, y), RULE, 1.0)?;
        let lines = (row.name.len() + row.warnings.len()) as f64;
        let mut line_y = y + row.height() / 2.0 - (lines - 1.0) * LINE / 2.0;
        canvas.rect(
            (MARGIN, line_y - SWATCH / 2.0),
            (MARGIN + SWATCH, line_y + SWATCH / 2.0),
            color(i),
        )?;
        let named = row.name.iter().map(|line| (line, INK));
        for (line, ink) in named.chain(row.warnings.iter().map(|line| (line, WARN))) {
            canvas.text(line, (MARGIN + SWATCH + 8.0, line_y), PLAIN, ink, HPos::Left, false)?;
            line_y += LINE;
        }
        y += row.height();
    }
    canvas.line((MARGIN, y), (WIDTH - MARGIN, y), RULE, 1.0)?;

    let all = WIDTH - 2.0 * MARGIN - layout.names_wide;
    let wide = (all - PANEL_GAP * PANELS.len() as f64) / PANELS.len() as f64;
    for (n, panel) in PANELS.iter().enumerate() {
        let left = MARGIN + layout.names_wide + PANEL_GAP + n as f64 * (wide + PANEL_GAP);
        canvas.text(panel.heading, (left, head + 8.0), HEADING, INK, HPos::Left, true)?;
        canvas.text(panel.unit, (left, head + 27.0), SMALL, QUIET, HPos::Left, false)?;

        let values: Vec<f64> =
            replay.engines.iter().map(|engine| (panel.value)(replay, engine)).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let numbers: Vec<String> = values.iter().map(|&value| (panel.text)(value)).collect();
        let changes: Vec<Option<String>> =
            values
                .iter()
                .enumerate()
                .map(|(i, &value)| {
                    if i == 0 { None } else { percent(values[0], value).map(|text| shorter(&text)) }
                })
                .collect();
        let widest = |texts: &mut dyn Iterator<Item = &String>| {
            texts.map(|text| width(text, SMALL, false)).fold(0.0, f64::max)
        };
        let beside = widest(&mut numbers.iter()) + widest(&mut changes.iter().flatten()) + 15.0;
        let longest = (wide - beside).max(20.0);
        let mut y = *top;
        for (i, row) in layout.rows.iter().enumerate() {
            let middle = y + row.height() / 2.0;
            let long = if most > 0.0 { longest * values[i] / most } else { 0.0 };
            canvas.rect((left, middle - BAR / 2.0), (left + long, middle + BAR / 2.0), color(i))?;
            canvas.text(&numbers[i], (left + long + 5.0, middle), SMALL, INK, HPos::Left, false)?;
            if let Some(change) = &changes[i] {
                canvas.text(change, (left + wide, middle), SMALL, QUIET, HPos::Right, false)?;
            }
            y += row.height();
        }
        canvas.line((left, *top + 4.0), (left, y - 4.0), QUIET, 1.0)?;
    }
    *top = y + GAP;
    Ok(())
}

/// Beside a bar whole per cents are enough, with a real minus.
fn shorter(percent: &str) -> String {
    let whole = percent.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match whole.map(f64::round) {
        Some(0.0) => "±0%".to_owned(),
        Some(whole) => format!("{whole:+}%").replace('-', "\u{2212}"),
        None => percent.replace('x', "×"),
    }
}

fn draw_index(
    canvas: &Canvas<'_, '_>,
    replay: &Replay,
    layout: &Layout,
    top: &mut f64,
) -> Result<(), PictureError> {
    let heading = "Unusable-free-space index, order 9";
    canvas.text(heading, (MARGIN, *top + 8.0), HEADING, INK, HPos::Left, true)?;
    let unit = "share of free memory that cannot serve a 2 MiB block; shaded: live memory of the trace (right axis)";
    canvas.text(unit, (MARGIN, *top + 27.0), SMALL, QUIET, HPos::Left, false)?;
    *top += INDEX_HEAD;
    draw_legend(canvas, layout, *top)?;
    let lines = layout.legend.last().map_or(0, |entry| entry.line + 1);
    *top += lines as f64 * LEGEND_LINE + 14.0;

    let plot = Plot {
        canvas,
        left: MARGIN + AXIS_LEFT,
        right: WIDTH - MARGIN - AXIS_RIGHT,
        above: *top,
        below: *top + CHART,
        start: replay.survey.facts.first_ts_ns,
        engines: replay.engines.iter().map(|engine| engine.samples.as_slice()).collect(),
    };
    plot.draw()?;
    *top = plot.below + AXIS_BOTTOM;
    Ok(())
}

fn draw_legend(canvas: &Canvas<'_, '_>, layout: &Layout, top: f64) -> Result<(), PictureError> {
    for Legend { engine, line, left, text } in &layout.legend {
        let (x, y) = (MARGIN + left, top + *line as f64 * LEGEND_LINE + LEGEND_LINE / 2.0);
        if let Some(engine) = *engine {
            let whole: &[(f64, f64)] = &[(0.0, 18.0)];
            let dashes = if engine < PALETTE.len() { whole } else { &[(0.0, 7.0), (11.0, 18.0)] };
            for (from, to) in dashes {
                canvas.line((x + from, y), (x + to, y), color(engine), 3.0)?;
            }
        }
        canvas.text(text, (x + LEGEND_KEY, y), PLAIN, INK, HPos::Left, false)?;
    }
    Ok(())
}

/// The colour of an engine, in all pictures.
pub(crate) fn color(engine: usize) -> RGBColor {
    PALETTE[engine % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_short() {
        for (long, short) in [
            ("-77.0%", "\u{2212}77%"),
            ("+12.5%", "+13%"),
            ("0.0%", "±0%"),
            ("-0.4%", "±0%"),
            ("x25", "×25"),
        ] {
            assert_eq!(shorter(long), short);
        }
    }
}
