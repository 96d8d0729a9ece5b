//! A chart of curves: values over an axis, a line for each series in its colour and with its mark.
//!
//! ```text
//!  title
//!  10 M |        ___ freehold
//!   1 M |   ____----
//!       +----------------- CPUs
//!         2   16   128
//! ```

use super::svg::{At, Svg};

/// Where the lines of a chart are, in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

pub(crate) struct Curve<'c> {
    pub(crate) name: &'c str,
    /// Its place among the series.
    pub(crate) place: usize,
    /// By rising first coordinate.
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis: what its numbers are called, and whether they are spaced by their logarithms.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) log: bool,
    pub(crate) label: fn(f64) -> String,
    /// What stands below or beside it.
    pub(crate) unit: &'static str,
}

pub(crate) struct Chart<'c> {
    pub(crate) title: &'c str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The upright axis ends here at least.
    pub(crate) least: f64,
    /// Pixels that a number below the chart takes.
    pub(crate) room: f64,
    pub(crate) curves: Vec<Curve<'c>>,
    /// What whoever points at a mark is shown of its value.
    pub(crate) told: fn(f64) -> String,
}

#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
    log: bool,
}

impl Span {
    /// The share of the axis at which a value is.
    fn share(self, value: f64) -> f64 {
        if self.log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    /// Where it has its numbers: by powers of ten, or by steps of 1, 2 or 5 of them.
    fn ticks(self) -> Vec<f64> {
        if self.log {
            let powers = self.from.log10().round() as i32..=self.to.log10().round() as i32;
            return powers.map(|power| 10f64.powi(power)).collect();
        }
        let power = 10f64.powf((self.to / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = step.into_iter().find(|step| self.to / step <= 6.0).unwrap_or(self.to);
        (0..=6u8).map(|n| f64::from(n) * step).filter(|value| *value <= self.to).collect()
    }
}

impl Chart<'_> {
    /// Draws it; the title stands above `area`, numbers beside and below it.
    pub(crate) fn draw(&self, svg: &mut Svg, area: Area) {
        let all = || self.curves.iter().flat_map(|curve| curve.points.iter().copied());
        let mut xs: Vec<f64> = all().map(|(x, _)| x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let [first, .., last] = xs[..] else {
            // A single place needs some width too.
            let Some(&one) = xs.first() else { return };
            return self.within(svg, area, &[one], one / 2.0, one * 2.0 + 1.0);
        };
        self.within(svg, area, &xs, first, last);
    }

    fn within(&self, svg: &mut Svg, area: Area, xs: &[f64], first: f64, last: f64) {
        let across = Span { from: first, to: last, log: self.x.log };
        let upright = self.upright();
        let x = |value: f64| area.left + (area.right - area.left) * across.share(value);
        let y = |value: f64| area.bottom - (area.bottom - area.top) * upright.share(value);
        svg.text((area.left - 50.0, area.top - 14.0), "text", self.title);
        for value in upright.ticks() {
            svg.line((area.left, y(value)), (area.right, y(value)));
            let label = (area.left - 10.0, y(value) + 4.0);
            svg.text(label, "soft\" text-anchor=\"end", &(self.y.label)(value));
        }
        let mut free = f64::NEG_INFINITY;
        for &value in xs {
            if x(value) >= free {
                svg.line((x(value), area.bottom), (x(value), area.bottom + 4.0));
                let label = (x(value), area.bottom + 18.0);
                svg.text(label, "soft\" text-anchor=\"middle", &(self.x.label)(value));
                free = x(value) + self.room;
            }
        }
        let middle = f64::midpoint(area.left, area.right);
        svg.text((middle, area.bottom + 36.0), "soft\" text-anchor=\"middle", self.x.unit);
        for curve in &self.curves {
            let at: Vec<At> = curve.points.iter().map(|&(at, value)| (x(at), y(value))).collect();
            svg.curve(curve.place, &at);
            // Of many points only the last has its mark, which says whose line it is.
            let marked = if at.len() > 24 { at.len() - 1 } else { 0 };
            for (&(at_x, value), &place) in curve.points.iter().zip(&at).skip(marked) {
                let (name, told) = (curve.name, (self.told)(value));
                let told = format!("{name}, {} {}: {told}", (self.x.label)(at_x), self.x.unit);
                svg.mark(curve.place, place, &told);
            }
        }
    }

    fn upright(&self) -> Span {
        let values = || self.curves.iter().flat_map(|curve| curve.points.iter().map(|one| one.1));
        let most = values().fold(self.least, f64::max);
        if self.y.log {
            let least = values().fold(f64::INFINITY, f64::min).max(1.0);
            let (from, to) = (least.log10().floor(), most.max(10.0).log10().ceil());
            return Span { from: 10f64.powf(from), to: 10f64.powf(to), log: true };
        }
        Span { from: 0.0, to: if most > 0.0 { most * 1.05 } else { 1.0 }, log: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let axis = |log, unit| Axis { log, label: |value| format!("{value}"), unit };
        let curves = vec![Curve { name: "freehold", place: 4, points }];
        let chart = Chart {
            title: "frames",
            x: axis(true, "CPUs"),
            y: axis(false, ""),
            least: 0.0,
            room: 34.0,
            curves,
            told: |value| format!("{value:.1}"),
        };
        let mut svg = Svg::new("t", (300.0, 200.0));
        chart.draw(&mut svg, Area { left: 60.0, right: 280.0, top: 40.0, bottom: 150.0 });
        svg.finished()
    }

    #[test]
    fn the_ends_of_a_line_are_at_the_ends_of_the_axis() {
        let text = chart(vec![(2.0, 0.0), (128.0, 10.0)]);
        assert!(text.contains("points=\"60.0,150.0 280.0,"), "{text}");
        assert!(text.contains("freehold, 128 CPUs: 10.0"), "{text}");
    }

    #[test]
    fn one_point_and_none_are_drawn() {
        assert!(chart(vec![(2.0, 5.0)]).contains("freehold, 2 CPUs: 5.0"));
        assert!(!chart(Vec::new()).contains("polyline"));
    }
}
