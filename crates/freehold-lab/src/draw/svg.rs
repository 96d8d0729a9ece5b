//! An SVG as every picture of this repository is: text and lines take the reader's light or dark
//! colours, on a ground of its own, so that it is legible wherever it is shown; each engine has its
//! colour and its mark (`series`), so that neither alone has to be told apart; whoever points at a
//! mark is shown what it stands for.
//!
//! This file depends on nothing but `series`: the repository's own tools include it.

use std::fmt::Write as _;

use super::series;

/// Text is 11 pixels high at least where the picture is 830 wide, as on a page of a repository.
pub(crate) const TEXT: f64 = 13.0;

/// A place in the picture, from its upper left corner.
pub(crate) type At = (f64, f64);

/// A picture that is being drawn.
pub(crate) struct Svg {
    head: String,
    pub(super) body: String,
    has_curves: bool,
}

impl Svg {
    pub(crate) fn new(title: &str, (width, height): (f64, f64)) -> Self {
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{}</title>\n",
            escaped(title)
        );
        let body = format!("<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n");
        Self { head, body, has_curves: false }
    }

    /// Text; `class` may be followed by more attributes.
    pub(crate) fn text(&mut self, (x, y): At, class: &str, said: &str) {
        let said = escaped(said);
        let _ =
            writeln!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{said}</text>");
    }

    /// A line of the ground.
    pub(crate) fn line(&mut self, (x1, y1): At, (x2, y2): At) {
        let _ = writeln!(
            self.body,
            "<line class=\"line\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// The mark of a place; `told` is shown to whoever points at it.
    pub(crate) fn mark(&mut self, place: usize, (x, y): At, told: &str) {
        let (path, told) = (series::LOOKS[place].path, escaped(told));
        let _ = writeln!(
            self.body,
            "<path class=\"s{place}\" transform=\"translate({x:.1} {y:.1})\" \
             d=\"{path}\"><title>{told}</title></path>"
        );
    }

    /// Squares in the colour of a place, as dark as `opacity` says.
    pub(crate) fn squares(&mut self, place: usize, opacity: f64, side: f64, corners: &[At]) {
        let square = |(x, y): &At| format!("M{x} {y}h{side}v{side}h-{side}z");
        let path: String = corners.iter().map(square).collect();
        let _ = writeln!(
            self.body,
            "<path class=\"s{place}\" fill-opacity=\"{opacity}\" d=\"{path}\"/>"
        );
    }

    /// A line from point to point in the colour of a place.
    pub(crate) fn curve(&mut self, place: usize, points: &[At]) {
        self.has_curves = true;
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ =
            writeln!(self.body, "<polyline class=\"c{place}\" points=\"{}\"/>", points.join(" "));
    }

    /// Each name behind its mark, in a row.
    pub(crate) fn legend(&mut self, names: &[&str], (mut x, y): At) {
        for (name, place) in names.iter().zip(series::places(names)) {
            self.mark(place, (x + 6.0, y), name);
            self.text((x + 18.0, y + 4.0), "text", name);
            // Wide letters have some 8 pixels.
            x += 44.0 + 8.0 * name.chars().count() as f64;
        }
    }

    pub(crate) fn finished(self) -> String {
        let curves = if self.has_curves { "polyline{fill:none;stroke-width:2}\n" } else { "" };
        format!(
            "{}<style>
.ground{{fill:#ffffff}}.text{{fill:#1f2328}}.soft{{fill:#59636e}}.line{{stroke:#d8dee4}}
{}
@media \
(prefers-color-scheme:dark){{.ground{{fill:#0d1117}}.text{{fill:#f0f6fc}}.soft{{fill:#9198a1}}.line{{stroke:#3d444d}}{}}}
{curves}text{{font-family:sans-serif;font-size:{TEXT}px}}
</style>
{}</svg>
",
            self.head,
            self.colors(|look| look.light),
            self.colors(|look| look.dark),
            self.body
        )
    }

    /// The rules of all series, with one of the two colours that each has.
    fn colors(&self, color: fn(&series::Look) -> &'static str) -> String {
        let rule = |(place, look): (usize, &series::Look)| {
            let color = color(look);
            let curve = if self.has_curves {
                format!(".c{place}{{stroke:{color}}}")
            } else {
                String::new()
            };
            format!(".s{place}{{fill:{color}}}{curve}")
        };
        series::LOOKS.iter().enumerate().map(rule).collect()
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
