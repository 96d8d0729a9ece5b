//! A table of figures in HTML: names down the side, a column for each engine or field.
//!
//! The best figure of a row or column is bold. Each figure is written for people, and stands in a
//! `<data>` element whose `value` is the JSON's own number.

use std::fmt::Write as _;

use super::embed::text;
use crate::tables::are_equal;
use crate::tables::better::Better;
use crate::tables::number::read;

/// Figures that are compared with each other, in the order of their cells; none is no figure.
pub(super) fn cells(figures: &[Option<f64>], better: Better) -> Vec<String> {
    let known = figures.iter().flatten().copied();
    let best = match better {
        Better::Less => known.reduce(f64::min),
        Better::More => known.reduce(f64::max),
        Better::Neither => None,
    };
    // Where all are as good nobody is best.
    let differ =
        figures.iter().flatten().any(|&one| best.is_some_and(|best| !are_equal(one, best)));
    let cell = |figure: &Option<f64>| match figure {
        None => "<td></td>".to_owned(),
        Some(value) => {
            let data = format!("<data value=\"{value}\">{}</data>", read(*value));
            match differ && best.is_some_and(|best| are_equal(*value, best)) {
                true => format!("<td><strong>{data}</strong></td>"),
                false => format!("<td>{data}</td>"),
            }
        }
    };
    figures.iter().map(cell).collect()
}

/// A figure that is compared with none.
pub(super) fn plain(value: f64) -> String {
    format!("<td><data value=\"{value}\">{}</data></td>", read(value))
}

/// A table that is being written.
pub(super) struct Table(String);

impl Table {
    /// With these headings; the first is of the names.
    pub(super) fn new(caption: &str, headings: &[&str]) -> Self {
        let mut html = "<div class=\"wide\"><table>".to_owned();
        if !caption.is_empty() {
            let _ = write!(html, "<caption>{}</caption>", text(caption));
        }
        html.push_str("<thead><tr>");
        for heading in headings {
            let _ = write!(html, "<th scope=\"col\">{}</th>", text(heading));
        }
        html.push_str("</tr></thead><tbody>\n");
        Self(html)
    }

    /// A row: its name, and cells as [`cells`] makes them.
    pub(super) fn row(&mut self, name: &str, cells: &[String]) {
        self.linked_row(&text(name), cells);
    }

    /// A row whose name is HTML.
    pub(super) fn linked_row(&mut self, name: &str, cells: &[String]) {
        let _ = writeln!(self.0, "<tr><th scope=\"row\">{name}</th>{}</tr>", cells.concat());
    }

    pub(super) fn finished(self) -> String {
        self.0 + "</tbody></table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_bold_and_equals_are_not() {
        let bold = |figures: &[Option<f64>], better| {
            let cells = cells(figures, better);
            cells.iter().map(|cell| cell.contains("<strong>")).collect::<Vec<_>>()
        };
        assert_eq!(bold(&[Some(3.0), Some(1.0), None], Better::Less), [false, true, false]);
        assert_eq!(bold(&[Some(3.0), Some(1.0)], Better::More), [true, false]);
        assert_eq!(bold(&[Some(3.0), Some(3.0)], Better::More), [false, false]);
        assert_eq!(bold(&[Some(3.0), Some(1.0)], Better::Neither), [false, false]);
    }

    #[test]
    fn a_figure_is_exact_beside_what_people_read() {
        let cell = &cells(&[Some(38.746_737_041)], Better::Less)[0];
        assert_eq!(cell, "<td><data value=\"38.746737041\">38.7</data></td>");
        let count = &cells(&[Some(447.0)], Better::Less)[0];
        assert_eq!(count, "<td><data value=\"447\">447</data></td>");
    }
}
