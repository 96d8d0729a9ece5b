//! Pictures of checked tables: what a table of a document says, as an SVG beside it.
//!
//! The table is held to what its command prints, and the picture to the table, so nothing has to
//! run to check a picture:
//!
//! ```text
//!  "pictures": [{
//!    "to": "docs/pictures/x.svg", "title": "what is to be seen",
//!    "names": ["vanilla", "freehold"],          one for each column of a panel; none where there is one column
//!    "panels": [{"title": "steps", "columns": [1, 2], "part": 1, "scale": "log"}]
//!  }]
//! ```
//!
//! `part`: which of a cell's numbers, as `;` separates them. `scale`: `linear` or `log`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::draw::Scale;
use super::{block, draw};

/// One picture of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The file, from the root of the repository.
    pub(super) to: String,
    title: String,
    #[serde(default)]
    names: Vec<String>,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    columns: Vec<usize>,
    #[serde(default)]
    part: usize,
    #[serde(deserialize_with = "scale")]
    scale: Scale,
}

/// A scale by its name in the JSON.
fn scale<'de, D: Deserializer<'de>>(from: D) -> Result<Scale, D::Error> {
    match String::deserialize(from)?.as_str() {
        "linear" => Ok(Scale::Linear),
        "log" => Ok(Scale::Log),
        other => Err(D::Error::custom(format!("'{other}' is no scale: linear, log"))),
    }
}

/// The picture of the first table in `text` behind a line with `after`.
pub(super) fn drawn(picture: &Picture, text: &str, after: &str) -> Result<String, String> {
    let rows: Vec<Vec<&str>> = text[block::table(text, after)?].lines().map(cells).collect();
    let panels = picture.panels.iter().map(|panel| numbers(panel, &picture.names, &rows));
    let panels = panels.collect::<Result<Vec<_>, String>>()?;
    let rows = rows.iter().map(|row| name(row).to_owned()).collect();
    Ok(draw::svg(&draw::Chart { title: &picture.title, names: &picture.names, rows, panels }))
}

/// A row's cells.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// What a row is called: its first cell, without marks of code.
fn name<'r>(row: &[&'r str]) -> &'r str {
    row.first().copied().unwrap_or_default().trim_matches(['`', '*'])
}

fn numbers<'p>(
    panel: &'p Panel,
    names: &[String],
    rows: &[Vec<&str>],
) -> Result<draw::Panel<'p>, String> {
    if panel.columns.len() != names.len().max(1) {
        return Err(format!(
            "'{}' has {} columns for {} names",
            panel.title,
            panel.columns.len(),
            names.len()
        ));
    }
    let of_row = |row: &Vec<&str>| -> Result<Vec<f64>, String> {
        let cells = panel
            .columns
            .iter()
            .map(|&column| row.get(column).copied().ok_or("a row has no such column"));
        cells
            .map(|cell| {
                let cell = cell?;
                let part = cell
                    .split(';')
                    .nth(panel.part)
                    .ok_or_else(|| format!("no part {} in {cell}", panel.part))?;
                number(part)
            })
            .collect()
    };
    let values = rows.iter().map(of_row).collect::<Result<_, _>>()?;
    Ok(draw::Panel { title: &panel.title, scale: panel.scale, values })
}

/// `1,234` or `1.84`, bold or not, with or without a sign of per cent.
fn number(text: &str) -> Result<f64, String> {
    let plain = text.trim().trim_matches('*').trim_start_matches('<').trim_end_matches('%');
    plain.trim().replace(',', "").parse().map_err(|_| format!("'{text}' is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "| t | a | b |\n|--|--:|--:|\n| `one` | 50; 1,000 | 100; 0 |\n| two | 4; 7 | 8; 9 |\n";

    fn picture(panels: &str) -> Picture {
        let text = format!(
            r#"{{"to": "x.svg", "title": "T <1>", "names": ["a", "b"], "panels": [{panels}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn numbers_are_those_of_the_table() {
        let rows: Vec<_> = TEXT.lines().skip(2).map(cells).collect();
        let of = |scale, part| {
            let panel = Panel { title: "p".into(), columns: vec![1, 2], part, scale };
            numbers(&panel, &["a".into(), "b".into()], &rows).unwrap().values
        };
        assert_eq!(of(Scale::Log, 1), [[1000.0, 0.0], [7.0, 9.0]]);
        assert_eq!(of(Scale::Linear, 0), [[50.0, 100.0], [4.0, 8.0]]);
    }

    #[test]
    fn a_picture_changes_with_any_number_and_only_with_those_it_shows() {
        let picture = picture(r#"{"title": "p", "columns": [1, 2], "part": 1, "scale": "log"}"#);
        let drawn = |text: &str| drawn(&picture, text, "| t |").unwrap();
        assert!(drawn(TEXT).contains("T &lt;1&gt;") && drawn(TEXT).contains(">one<"));
        assert_ne!(drawn(TEXT), drawn(&TEXT.replace("1,000", "1,001")));
        assert_ne!(drawn(TEXT), drawn(&TEXT.replace("; 9", "; 8")));
        assert_eq!(drawn(TEXT), drawn(&TEXT.replace("50;", "51;")));
    }

    #[test]
    fn what_is_not_in_the_table_is_not_drawn() {
        for panel in [
            r#"{"title": "p", "columns": [1], "scale": "log"}"#,
            r#"{"title": "p", "columns": [1, 3], "scale": "log"}"#,
            r#"{"title": "p", "columns": [1, 2], "part": 2, "scale": "log"}"#,
            r#"{"title": "p", "columns": [0, 1], "scale": "linear"}"#,
        ] {
            assert!(drawn(&picture(panel), TEXT, "| t |").is_err(), "{panel}");
        }
    }
}
