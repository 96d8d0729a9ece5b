//! The grid as one picture: a panel for each engine, a row of panels for each workload and level.
//!
//! ```text
//!                 vanilla                      freehold
//!  aging, 70 %    2 MiB │ .. │ .. │ .. │       2 MiB │ .. │ .. │ .. │
//!                 8 MiB │ .. │ .. │ .. │       8 MiB │ .. │ .. │ .. │     memory a CPU, downwards
//!                         2    16   96                 2    16   96       CPUs
//! ```
//!
//! The darker, the worse; the scale of a row of panels is the same for all engines. Every number is written in its
//! cell, with the machine's memory below it. The same cells give the same picture, byte for byte.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend, ShapeStyle, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::cell::Workload;
use super::figure::{Cell, Figure};
use super::output;
use crate::better::Better;
use crate::report::picture::{INK, PictureError, QUIET, RULE};
use crate::report::unique;

const WHITE: RGBColor = RGBColor(255, 255, 255);
/// The worst of a row of panels; Okabe and Ito's vermilion.
const WORST: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

const CELL: (i32, i32) = (72, 40);
const NAMES: i32 = 84;
const HEAD: i32 = 40;
const TITLE: i32 = 48;
const GAP: i32 = 28;
const MARGIN: i32 = 16;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = Box<dyn std::error::Error>;

/// Panels of one workload and level or order.
struct Strip<'c> {
    title: String,
    figure: &'static Figure,
    cells: Vec<&'c Cell>,
    /// Numbers of CPUs, rising.
    cpus: Vec<u16>,
    /// Sizes that a number of CPUs has, at most.
    sizes: usize,
}

impl<'c> Strip<'c> {
    fn new(workload: Workload, cells: Vec<&'c Cell>) -> Option<Self> {
        let first = *cells.first()?;
        let figure = workload.about().figures.first()?;
        let level = match (first.order, first.used_percent) {
            (Some(order), _) => format!(", order {order}"),
            (None, Some(percent)) => format!(", {percent:.0} %"),
            (None, None) => String::new(),
        };
        let mut cpus: Vec<u16> = cells.iter().map(|cell| cell.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut strip = Self { title: format!("{workload}{level}: {}", figure.name), figure, cells, cpus, sizes: 0 };
        strip.sizes = strip.cpus.iter().map(|&cpus| strip.memory(cpus).len()).max().unwrap_or(0);
        Some(strip)
    }

    /// Sizes of machines with so many CPUs, rising.
    fn memory(&self, cpus: u16) -> Vec<u64> {
        let mut sizes: Vec<u64> =
            self.cells.iter().filter(|cell| cell.cpus == cpus).map(|cell| cell.memory_mib).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn value(&self, engine: &str, cpus: u16, memory: u64) -> Option<f64> {
        let same = |cell: &&&Cell| cell.engine == engine && cell.cpus == cpus && cell.memory_mib == memory;
        let cells: Vec<&Cell> = self.cells.iter().filter(same).copied().collect();
        output::mean(&cells, self.figure)
    }

    /// How bad a value is among all of the strip's, 0 to 1.
    fn badness(&self, value: f64) -> f64 {
        let all = self.cells.iter().filter_map(|cell| (self.figure.value)(cell));
        let (least, most) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if most <= least {
            return 0.0;
        }
        let place = (value - least) / (most - least);
        if self.figure.better == Better::More { 1.0 - place } else { place }
    }

    fn height(&self) -> i32 {
        HEAD + self.sizes as i32 * CELL.1 + GAP
    }

    fn width(&self) -> i32 {
        NAMES + self.cpus.len() as i32 * CELL.0 + GAP
    }
}

pub fn render(cells: &[Cell]) -> Result<String, PictureError> {
    let engines = output::engines(cells);
    let strips = strips(cells);
    let width = strips.iter().map(Strip::width).max().unwrap_or(0) * engines.len() as i32 + 2 * MARGIN;
    let height = TITLE + strips.iter().map(|strip| strip.height() + GAP).sum::<i32>() + MARGIN;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width.max(480) as u32, height as u32)).into_drawing_area();
        draw(&area, &strips, &engines).map_err(PictureError::of)?;
        area.present().map_err(PictureError::of)?;
    }
    Ok(svg)
}

/// By workload, then level and order, as they come.
fn strips(cells: &[Cell]) -> Vec<Strip<'_>> {
    let mut strips = Vec::new();
    for workload in Workload::ALL {
        let of: Vec<&Cell> = cells.iter().filter(|cell| cell.workload == workload.name()).collect();
        // A level is what the cell was given; of `fill` it is what was found.
        let key = |cell: &Cell| (cell.order, cell.order.is_none().then_some(cell.used_percent.map(f64::to_bits)));
        strips.extend(unique(of.iter().map(|cell| key(cell))).into_iter().filter_map(|wanted| {
            Strip::new(workload, of.iter().copied().filter(|cell| key(cell) == wanted).collect())
        }));
    }
    strips
}

fn style(size: i32, color: &RGBColor, horizontal: HPos) -> TextStyle<'_> {
    TextStyle::from(("sans-serif", size).into_font()).color(color).pos(Pos::new(horizontal, VPos::Center))
}

fn draw(area: &Area<'_>, strips: &[Strip<'_>], engines: &[&str]) -> Result<(), Failure> {
    area.fill(&WHITE)?;
    let title = "Contiguity by CPUs (across) and memory a CPU (down); the darker, the worse";
    area.draw_text(title, &style(18, &INK, HPos::Left), (MARGIN, TITLE / 2))?;
    let mut top = TITLE;
    for strip in strips {
        area.draw_text(&strip.title, &style(15, &INK, HPos::Left), (MARGIN, top + 8))?;
        for (n, engine) in engines.iter().enumerate() {
            panel(area, strip, engine, (MARGIN + n as i32 * strip.width(), top + HEAD))?;
        }
        top += strip.height() + GAP;
    }
    Ok(())
}

fn panel(area: &Area<'_>, strip: &Strip<'_>, engine: &str, (left, top): (i32, i32)) -> Result<(), Failure> {
    area.draw_text(engine, &style(13, &INK, HPos::Left), (left + NAMES, top - 10))?;
    for (column, &cpus) in strip.cpus.iter().enumerate() {
        let x = left + NAMES + column as i32 * CELL.0;
        for (row, memory) in strip.memory(cpus).into_iter().enumerate() {
            let y = top + row as i32 * CELL.1;
            if column == 0 {
                let name = output::memory(memory / u64::from(cpus));
                area.draw_text(&name, &style(12, &QUIET, HPos::Right), (left + NAMES - 8, y + CELL.1 / 2))?;
            }
            let corners = [(x, y), (x + CELL.0 - 2, y + CELL.1 - 2)];
            let Some(value) = strip.value(engine, cpus, memory) else {
                area.draw(&Rectangle::new(corners, ShapeStyle::from(RULE)))?;
                continue;
            };
            area.draw(&Rectangle::new(corners, ShapeStyle::from(shade(strip.badness(value))).filled()))?;
            let middle = x + CELL.0 / 2 - 1;
            let text = (strip.figure.text)(value);
            area.draw_text(&text, &style(14, &INK, HPos::Center), (middle, y + CELL.1 / 2 - 7))?;
            area.draw_text(&output::memory(memory), &style(11, &INK, HPos::Center), (middle, y + CELL.1 / 2 + 10))?;
        }
        let bottom = top + strip.sizes as i32 * CELL.1 + 10;
        area.draw_text(&format!("{cpus}"), &style(12, &QUIET, HPos::Center), (x + CELL.0 / 2 - 1, bottom))?;
    }
    Ok(())
}

/// From nearly white to the worst; light enough that ink can be read on it.
fn shade(badness: f64) -> RGBColor {
    let mixed = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * badness).round() as u8;
    let pale = RGBColor(0xf4, 0xf6, 0xf8);
    RGBColor(mixed(pale.0, WORST.0), mixed(pale.1, WORST.1), mixed(pale.2, WORST.2))
}
