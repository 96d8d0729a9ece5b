//! Drawing in pixels: plotters counts in whole units, of which a pixel has several.

use plotters::coord::Shift;
use plotters::prelude::{
    Color, DrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, ShapeStyle,
    TextStyle,
};
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::text::printable;
use super::{PictureError, WIDTH};

/// Units per pixel: plotters counts in whole units, and lines over time need finer ones than
/// pixels.
pub(super) const SCALE: f64 = 10.0;
/// plotters makes text smaller than it is told, by this.
const FONT_SHRINK: f64 = 1.24;

pub(super) fn units(pixels: f64) -> i32 {
    (pixels * SCALE).round() as i32
}

pub(super) fn stroke(color: RGBColor, pixels: f64) -> ShapeStyle {
    ShapeStyle { color: color.to_rgba(), filled: false, stroke_width: units(pixels) as u32 }
}

/// Drawing in pixels.
pub(super) struct Canvas<'a, 'b> {
    pub(super) area: &'a DrawingArea<SVGBackend<'b>, Shift>,
}

impl Canvas<'_, '_> {
    pub(super) fn background(&self, height: f64) -> Result<(), PictureError> {
        self.rect((0.0, 0.0), (WIDTH, height), RGBColor(0xff, 0xff, 0xff))
    }

    pub(super) fn rect(
        &self,
        from: (f64, f64),
        to: (f64, f64),
        color: RGBColor,
    ) -> Result<(), PictureError> {
        let corners = [(units(from.0), units(from.1)), (units(to.0), units(to.1))];
        self.area.draw(&Rectangle::new(corners, color.filled())).map_err(PictureError::of)
    }

    pub(super) fn line(
        &self,
        from: (f64, f64),
        to: (f64, f64),
        color: RGBColor,
        wide: f64,
    ) -> Result<(), PictureError> {
        let ends = [(units(from.0), units(from.1)), (units(to.0), units(to.1))];
        self.area.draw(&PathElement::new(ends, stroke(color, wide))).map_err(PictureError::of)
    }

    /// One line of text; `at` is its middle in height and its `side` in width.
    pub(super) fn text(
        &self,
        text: &str,
        at: (f64, f64),
        size: f64,
        color: RGBColor,
        side: HPos,
        bold: bool,
    ) -> Result<(), PictureError> {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = ("sans-serif", size * SCALE * FONT_SHRINK).into_font().style(style);
        let style = TextStyle::from(font).color(&color).pos(Pos::new(side, VPos::Top));
        // plotters escapes what has a meaning in XML; what XML cannot hold at all it lets pass. Of
        // what plotters can anchor text at, only the top does not depend on the font: it puts the
        // base line 0.76 em below. Half the height of a digit is about 0.36 em.
        let top = at.1 + (0.36 - 0.76) * size;
        self.area
            .draw_text(&printable(text), &style, (units(at.0), units(top)))
            .map_err(PictureError::of)
    }
}
