//! The picture of a checked table: a column of a document's table as bars, in an SVG beside it.
//!
//! The table is held to what its command prints, and the picture to the table, so nothing has to
//! run to check a picture:
//!
//! ```text
//!  "picture": {"to": "docs/pictures/x.svg", "title": "all of it", "panel": "steps", "column": 1}
//! ```

use serde::Deserialize;

use super::{block, draw};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The file, from the root of the repository.
    pub(super) to: String,
    title: String,
    panel: String,
    /// The rows' names are column 0.
    column: usize,
}

/// The picture of the first table in `text` behind a line with `after`.
pub(super) fn drawn(picture: &Picture, text: &str, after: &str) -> Result<String, String> {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for line in text[block::table(text, after)?].lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        rows.push(cells[0].trim_matches(['`', '*']).to_owned());
        values.push(number(cells.get(picture.column).ok_or("a row has no such column")?)?);
    }
    let panels = vec![draw::Panel { title: &picture.panel, values }];
    Ok(draw::svg(&draw::Chart { title: &picture.title, rows, panels }))
}

/// `1,234` or `1.84`, bold or not.
fn number(text: &str) -> Result<f64, String> {
    let plain = text.trim_matches('*').replace(',', "");
    plain.parse().map_err(|_| format!("'{text}' is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "| t | a | b |\n|--|--:|--:|\n| `one` | **1,000** | 0 % |\n| two | 7 | 9 |\n";

    fn picture(column: usize) -> Picture {
        Picture { to: "x.svg".into(), title: "T <1>".into(), panel: "p".into(), column }
    }

    #[test]
    fn a_picture_changes_with_any_number_and_only_with_those_it_shows() {
        let drawn = |text: &str| drawn(&picture(1), text, "| t |").unwrap();
        let shown = drawn(TEXT);
        assert!(shown.contains("T &lt;1&gt;") && shown.contains(">one<"));
        assert!(shown.contains(">1,000<") && shown.contains(">7<"));
        assert_ne!(shown, drawn(&TEXT.replace("1,000", "1,001")));
        assert_ne!(shown, drawn(&TEXT.replace("| 7", "| 8")));
        assert_eq!(shown, drawn(&TEXT.replace("| 9", "| 8")));
    }

    #[test]
    fn what_is_not_in_the_table_is_not_drawn() {
        for column in [0, 2, 3] {
            assert!(drawn(&picture(column), TEXT, "| t |").is_err(), "{column}");
        }
    }
}
