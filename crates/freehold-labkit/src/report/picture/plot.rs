//! The chart of the unusable-free-space index over time, with its three axes.

use freehold::Order;
use plotters::prelude::{AreaSeries, ChartBuilder, DashedLineSeries, LineSeries};
use plotters::style::text_anchor::HPos;

use super::axis::{Ticks, memory_unit, time_unit};
use super::canvas::{Canvas, stroke, units};
use super::{AREA, PALETTE, PictureError, QUIET, RULE, SMALL, color};
use crate::replay::Sample;

/// The index of every engine over time, above the trace's live memory.
pub(super) struct Plot<'a, 'c, 'b> {
    pub(super) canvas: &'a Canvas<'c, 'b>,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) above: f64,
    pub(super) below: f64,
    /// When the trace begins.
    pub(super) start: u64,
    pub(super) engines: Vec<&'a [Sample]>,
}

impl Plot<'_, '_, '_> {
    fn time(&self, sample: &Sample) -> f64 {
        sample.point.ts_ns.saturating_sub(self.start) as f64
    }

    pub(super) fn draw(&self) -> Result<(), PictureError> {
        let index = |sample: &Sample| sample.memory.unusable_index(Order::PAGEBLOCK);
        let samples = || self.engines.iter().copied().flatten();
        let end = samples().map(|sample| self.time(sample)).fold(0.0, f64::max).max(1.0);
        let highest = samples().map(index).fold(0.0, f64::max);
        let index_scale = Ticks::upto(if highest > 0.0 { highest } else { 0.1 }, 5);
        let index_top = index_scale.above.min(1.0);
        let live = self.engines.first().copied().unwrap_or_default();
        let most_live = live.iter().map(|sample| sample.point.live_frames).max().unwrap_or(0);
        let (unit_frames, unit) = memory_unit(most_live);
        let live_scale = Ticks::upto((most_live as f64 / unit_frames).max(1.0), 5);

        let size = (units(self.right) - units(self.left), units(self.below) - units(self.above));
        let plot = self.canvas.area.clone().shrink((units(self.left), units(self.above)), size);
        let builder = |top: f64| {
            ChartBuilder::on(&plot).build_cartesian_2d(0.0..end, 0.0..top).map_err(PictureError::of)
        };
        let lived = live
            .iter()
            .map(|sample| (self.time(sample), sample.point.live_frames as f64 / unit_frames));
        builder(live_scale.above)?
            .draw_series(AreaSeries::new(lived, 0.0, AREA))
            .map_err(PictureError::of)?;
        self.draw_index_axis(&index_scale, index_top)?;
        self.draw_memory_axis(&live_scale, unit)?;
        self.draw_time_axis(end)?;

        let mut chart = builder(index_top)?;
        for (i, samples) in self.engines.iter().enumerate() {
            let points: Vec<(f64, f64)> =
                samples.iter().map(|sample| (self.time(sample), index(sample))).collect();
            // Engines that agree lie upon each other; the ones below are wider, so that all can be
            // seen.
            let above = (self.engines.len() - 1 - i) as f64 / self.engines.len().max(2) as f64;
            let style = stroke(color(i), 1.7 + 1.7 * above);
            if i < PALETTE.len() {
                chart.draw_series(LineSeries::new(points, style)).map_err(PictureError::of)?;
            } else {
                let (dash, space) = (units(7.0), units(4.0));
                chart
                    .draw_series(DashedLineSeries::new(points, dash, space, style))
                    .map_err(PictureError::of)?;
            }
        }
        Ok(())
    }

    fn draw_index_axis(&self, scale: &Ticks, top: f64) -> Result<(), PictureError> {
        let Self { canvas, left, right, above, below, .. } = *self;
        for tick in scale.values() {
            let y = below - (below - above) * tick / top;
            if y < above - 0.5 {
                continue;
            }
            canvas.line((left, y), (right, y), if tick == 0.0 { QUIET } else { RULE }, 1.0)?;
            canvas.text(&scale.text(tick), (left - 8.0, y), SMALL, QUIET, HPos::Right, false)?;
        }
        Ok(())
    }

    fn draw_memory_axis(&self, scale: &Ticks, unit: &str) -> Result<(), PictureError> {
        let Self { canvas, right, above, below, .. } = *self;
        for tick in scale.values() {
            let y = below - (below - above) * tick / scale.above;
            canvas.line((right, y), (right + 4.0, y), QUIET, 1.0)?;
            canvas.text(
                &format!("{} {unit}", scale.text(tick)),
                (right + 8.0, y),
                SMALL,
                QUIET,
                HPos::Left,
                false,
            )?;
        }
        Ok(())
    }

    fn draw_time_axis(&self, end: f64) -> Result<(), PictureError> {
        let Self { canvas, left, right, below, .. } = *self;
        let (unit_ns, unit) = time_unit(end);
        let scale = Ticks::upto(end / unit_ns, 8);
        for tick in scale.values().filter(|tick| tick * unit_ns <= end * 1.0001) {
            let x = left + (right - left) * tick * unit_ns / end;
            canvas.line((x, below), (x, below + 5.0), QUIET, 1.0)?;
            canvas.text(&scale.text(tick), (x, below + 15.0), SMALL, QUIET, HPos::Center, false)?;
        }
        let axis = format!("time since the first event ({unit})");
        canvas.text(&axis, ((left + right) / 2.0, below + 33.0), SMALL, QUIET, HPos::Center, false)
    }
}
