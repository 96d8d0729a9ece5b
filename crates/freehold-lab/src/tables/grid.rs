//! Tables that fit the terminal and break no name and no number.
//!
//! ```text
//!  least width of a column   its longest cell, or its longest word where it may go on in a second
//!                            line
//!                            1. columns that give way are left out, the least important first
//!  does not fit?             2. columns of engines go on in a second table below, the first ones
//!                               beside them
//!  room to spare?            the columns that lack most get it
//! ```
//!
//! What is left out is named below the table: `--wide` shows all of it, however wide the terminal.

use std::fmt::Write as _;

/// How tables are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns of the terminal.
    pub width: u16,
    /// Whether to colour figures: green is better, red worse.
    pub color: bool,
    /// Whether all columns of tables are shown, not only as many as fit.
    pub wide: bool,
    /// Whether tables are Markdown's, for a mail or a page that renders it.
    pub markdown: bool,
}

impl Style {
    /// Without colours, for a terminal of that width.
    pub const fn plain(width: u16) -> Self {
        Self { width, color: false, wide: false, markdown: false }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Color {
    Green,
    Red,
    /// One of xterm's 256.
    Of(u8),
}

/// A piece of text in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    text: String,
    right: bool,
    bold: bool,
    color: Option<Color>,
}

impl Cell {
    pub fn new(text: impl ToString) -> Self {
        Self { text: text.to_string(), right: false, bold: false, color: None }
    }

    #[must_use]
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    #[must_use]
    pub fn fg(self, color: Color) -> Self {
        Self { color: Some(color), ..self }
    }

    /// One line of the cell in so many columns, with colours where they are wanted.
    fn line(&self, text: &str, width: usize, style: Style) -> String {
        let gap = " ".repeat(width.saturating_sub(wide(text)));
        let text = match (style.color, self.color) {
            (true, Some(Color::Green)) => format!("\x1b[32m{text}\x1b[0m"),
            (true, Some(Color::Red)) => format!("\x1b[31m{text}\x1b[0m"),
            (true, Some(Color::Of(number))) if !text.is_empty() => {
                format!("\x1b[1;38;5;{number}m{text}\x1b[0m")
            }
            (true, None) if self.bold && !text.is_empty() => format!("\x1b[1m{text}\x1b[0m"),
            _ => text.to_owned(),
        };
        if self.right { gap + &text } else { text + &gap }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// A cell with words: at the left of its column.
pub fn left(text: impl ToString) -> Cell {
    Cell::new(text)
}

/// A cell with a figure: at the right of its column.
pub fn right(text: impl ToString) -> Cell {
    Cell { right: true, ..Cell::new(text) }
}

/// What becomes of a column where there is little room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It is shown, each cell in one line.
    Always,
    /// It is left out, before those of a lower number.
    GivesWay(u8),
    /// Its cells go on in further lines, broken between words.
    Wraps,
}

/// Spaces between columns.
const GAP: usize = 2;

/// A table. A row of one cell is a heading over the rows below it.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<Cell>,
    room: Vec<Room>,
    rows: Vec<Vec<Cell>>,
    /// Columns that stand in every table where there are several below each other.
    repeated: Option<usize>,
}

impl Table {
    pub fn new<T: Into<Cell>>(columns: impl IntoIterator<Item = (T, Room)>) -> Self {
        let (header, room) = columns.into_iter().map(|(name, room)| (name.into(), room)).unzip();
        Self { header, room, rows: Vec::new(), repeated: None }
    }

    /// Where not all columns fit, tables below each other show them, each with the first so many.
    #[must_use]
    pub fn in_blocks(self, repeated: usize) -> Self {
        Self { repeated: Some(repeated), ..self }
    }

    pub fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, without a line break at its end; of Markdown with an empty line before and behind
    /// it, without which its neighbours would be rows of it.
    pub fn render(&self, style: Style) -> String {
        let is_to_fit = !style.wide && !style.markdown;
        if is_to_fit && self.room.contains(&Room::Always) && !self.fits(style) {
            // Rather names in two lines than lines that end beyond the terminal.
            let wraps = |&room: &Room| if room == Room::Always { Room::Wraps } else { room };
            let room = self.room.iter().map(wraps).collect();
            return Self { room, ..self.clone() }.render(style);
        }
        let shown = self.chosen(style);
        if style.markdown {
            return self.markdown(&shown);
        }
        let mut text = String::new();
        for block in self.blocks(&shown, style) {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&self.block(&block, style));
        }
        let hidden: Vec<&str> = (0..self.header.len())
            .filter(|column| !shown.contains(column))
            .map(|column| self.header[column].text.as_str())
            .collect();
        if !style.wide && !hidden.is_empty() {
            let note = format!("Not shown: {}. --wide shows all.", hidden.join(", "));
            let _ = write!(text, "\n{}", wrap(&note, style, ""));
        }
        text
    }

    /// As GitHub, editors and most mail readers render it. A heading over rows is a bold row.
    fn markdown(&self, shown: &[usize]) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| -> String {
            let cells = cells.map(|cell| cell.trim().replace('|', "\\|").replace('\n', "<br>"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let names = || shown.iter().map(|&column| &self.header[column]);
        let mut text = String::from("\n");
        text += &line(&mut names().map(|name| name.text.clone()));
        text += &line(&mut names().map(|name| if name.right { "--:" } else { "---" }.to_owned()));
        for row in &self.rows {
            let heading = |at| if at == 0 { format!("**{}**", row[0].text) } else { String::new() };
            text += &match row.len() {
                1 => line(&mut (0..shown.len()).map(heading)),
                _ => line(&mut shown.iter().map(|&column| {
                    row.get(column).map(|cell| cell.text.clone()).unwrap_or_default()
                })),
            };
        }
        text
    }

    /// Whether it is no wider than the terminal, in as many blocks as that takes.
    pub fn fits(&self, style: Style) -> bool {
        let blocks = self.blocks(&self.chosen(style), style);
        blocks.iter().all(|block| self.least(block) <= usize::from(style.width))
    }

    /// Whether all of it fits the terminal, side by side and with no line broken.
    pub fn is_in_one_piece(&self, style: Style) -> bool {
        let needed: usize = (0..self.header.len()).map(|column| self.widths(column).1 + GAP).sum();
        style.markdown || style.wide || needed < usize::from(style.width) + GAP
    }

    /// The columns that are shown.
    fn chosen(&self, style: Style) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.header.len()).collect();
        let is_all = style.wide || style.markdown || self.repeated.is_some();
        while !is_all && self.least(&shown) > usize::from(style.width) {
            // Of equals the last.
            let rank = |&(_, &column): &(usize, &usize)| match self.room[column] {
                Room::GivesWay(rank) => rank + 1,
                _ => 0,
            };
            let Some((at, _)) =
                shown.iter().enumerate().max_by_key(rank).filter(|one| rank(one) > 0)
            else {
                break;
            };
            shown.remove(at);
        }
        shown
    }

    /// The columns of each table.
    fn blocks(&self, shown: &[usize], style: Style) -> Vec<Vec<usize>> {
        let Some(repeated) = self.repeated.filter(|_| !style.wide) else {
            return vec![shown.to_vec()];
        };
        let (first, others) = shown.split_at(repeated.min(shown.len()));
        let mut blocks: Vec<Vec<usize>> = vec![first.to_vec()];
        for &column in others {
            let last = blocks.last_mut().expect("one at least");
            last.push(column);
            // One beside the repeated ones at least, however narrow the terminal.
            if self.least(last) > usize::from(style.width) && last.len() > repeated + 1 {
                last.pop();
                blocks.push([first, &[column]].concat());
            }
        }
        blocks
    }

    /// The cells of a column, headings of rows not among them.
    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(|row| row.len() > 1);
        rows.filter_map(move |row| Some(row.get(column)?.text.as_str()))
    }

    /// The least width of a column, and what it needs to be in one line.
    fn widths(&self, column: usize) -> (usize, usize) {
        let longest_word = |text: &str| text.split_whitespace().map(wide).max().unwrap_or(0);
        let name = &self.header[column].text;
        let whole = self.cells(column).flat_map(str::lines).map(wide).max().unwrap_or(0);
        let least = match self.room[column] {
            Room::Wraps => self.cells(column).map(longest_word).max().unwrap_or(0),
            _ => whole,
        };
        (least.max(longest_word(name)), whole.max(wide(name)))
    }

    /// The least width of a table of these columns.
    fn least(&self, columns: &[usize]) -> usize {
        let cells: usize = columns.iter().map(|&column| self.widths(column).0).sum();
        1 + cells + GAP * columns.len().saturating_sub(1)
    }

    fn block(&self, columns: &[usize], style: Style) -> String {
        let needs: Vec<(usize, usize)> =
            columns.iter().map(|&column| self.widths(column)).collect();
        let mut widths: Vec<usize> = needs.iter().map(|&(least, _)| least).collect();
        let most = if style.wide { usize::MAX } else { usize::from(style.width) };
        let mut spare = most.saturating_sub(self.least(columns));
        // To the column that lacks most, one by one.
        while spare > 0 {
            let lacks = |at: &usize| needs[*at].1 - widths[*at];
            let Some(at) = (0..widths.len()).max_by_key(lacks).filter(|at| lacks(at) > 0) else {
                break;
            };
            widths[at] += 1;
            spare -= 1;
        }
        let total = 1 + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let pick = |row: &[Cell]| -> Vec<Cell> {
            let blank = || Cell::new("");
            columns.iter().map(|&column| row.get(column).cloned().unwrap_or_else(blank)).collect()
        };
        let mut text = format!("{}\n", "─".repeat(total));
        lines(&pick(&self.header), &widths, style, &mut text);
        let _ = writeln!(text, "{}", "═".repeat(total));
        for row in &self.rows {
            match &row[..] {
                [heading] => {
                    let indent = heading.text.len() - heading.text.trim_start().len();
                    let indent = " ".repeat(indent + 1);
                    let wrapped = wrap(&heading.text, style, &indent);
                    let whole: Vec<String> =
                        wrapped.lines().map(|line| heading.line(line, 0, style)).collect();
                    let _ = writeln!(text, "{indent}{}", whole.join("\n"));
                }
                _ => lines(&pick(row), &widths, style, &mut text),
            }
        }
        text + &"─".repeat(total)
    }
}

/// A row of a table: as many lines as its longest cell takes.
fn lines(cells: &[Cell], widths: &[usize], style: Style, text: &mut String) {
    let broken: Vec<Vec<String>> =
        cells.iter().zip(widths).map(|(cell, &width)| broken(&cell.text, width)).collect();
    let most = broken.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..most {
        let mut whole = String::from(" ");
        for (at, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            if at > 0 {
                whole.push_str(&" ".repeat(GAP));
            }
            let part = broken[at].get(line).map_or("", String::as_str);
            whole.push_str(&cell.line(part, width, style));
        }
        // Padding at the ends of lines would wrap on a terminal one column narrower.
        let _ = writeln!(text, "{}", whole.trim_end());
    }
}

/// The lines of a cell: its own, broken between words, and never within one.
fn broken(text: &str, width: usize) -> Vec<String> {
    if let Some((first, more)) = text.split_once('\n') {
        return [broken(first, width), broken(more, width)].concat();
    }
    if wide(text) <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| wide(line) + 1 + wide(word) <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Columns that a text takes: a character each, as all that is printed here.
fn wide(text: &str) -> usize {
    text.chars().count()
}

/// Lines that fit, each but the first indented.
pub fn wrap(text: &str, style: Style, indent: &str) -> String {
    let most = usize::from(style.width).saturating_sub(indent.len() + 2).max(20);
    broken(text.trim(), most).join(&format!("\n{indent}"))
}

/// Text whose lines are broken where the terminal ends, each with its own indentation and two more.
pub fn wrap_lines(text: &str, style: Style) -> String {
    let fitted = |line: &str| {
        let indent = " ".repeat(line.len() - line.trim_start().len());
        format!("{indent}{}", wrap(line, style, &format!("{indent}  ")))
    };
    text.lines().map(fitted).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            ("engine", Room::Always),
            ("frames / s", Room::GivesWay(0)),
            ("unusable index", Room::GivesWay(2)),
            ("zone wait", Room::GivesWay(1)),
        ]);
        table.row([Cell::new("pcp-buddy-fixed"), right("1,234,567"), right("0.1"), right("5 %")]);
        table
    }

    #[test]
    fn columns_give_way_in_their_order_and_are_named() {
        let text = |width| table().render(Style::plain(width));
        // However the note is broken into lines.
        let said = |width| text(width).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!said(60).contains("Not shown"), "{}", text(60));
        assert!(said(40).contains("Not shown: unusable index."), "{}", text(40));
        assert!(said(40).contains("5 %") && !said(40).contains("0.1"), "{}", text(40));
        assert!(said(30).contains("Not shown: unusable index, zone wait."), "{}", text(30));
        let all = table().render(Style { wide: true, ..Style::plain(30) });
        assert!(all.contains("unusable index") && !all.contains("Not shown"), "{all}");
        // However narrow: the name, whole.
        assert!(text(10).contains("pcp-buddy-fixed"), "{}", text(10));
        for width in [30, 40, 60, 120] {
            for line in text(width).lines() {
                assert!(wide(line) <= usize::from(width), "{width}: {line}");
            }
        }
    }

    #[test]
    fn markdown_has_every_cell_and_its_bars_are_no_columns() {
        let mut table = Table::new([("a|b", Room::Always), ("figure", Room::GivesWay(0))]);
        table.row(["GROUP"]);
        table.row([left("  x"), right("1\n(+5 %)")]);
        let text = table.render(Style { markdown: true, ..Style::plain(5) });
        let lines = "\n| a\\|b | figure |\n| --- | --- |\n| **GROUP** |  |\n| x | 1<br>(+5 %) |\n";
        assert_eq!(text, lines);
    }

    #[test]
    fn engines_go_on_in_a_second_table_beside_the_first_one() {
        let engines = ["5.17", "vanilla", "pcp-buddy-fixed", "freehold"];
        let columns = std::iter::once("").chain(engines).map(|name| (right(name), Room::Wraps));
        let mut table = Table::new(columns).in_blocks(2);
        table.row(["LOCKS"]);
        let figure = || right("20,598 (-43.1%)");
        table.row([Cell::new("work per hold"), figure(), figure(), figure(), figure()]);
        let text = table.render(Style::plain(50));
        assert_eq!(text.matches("5.17").count(), 2, "{text}");
        assert_eq!(text.matches("LOCKS").count(), 2, "{text}");
        for whole in ["pcp-buddy-fixed", "20,598", "(-43.1%)", "freehold"] {
            assert!(text.split_whitespace().any(|word| word == whole), "{whole}: {text}");
        }
        for line in text.lines() {
            assert!(wide(line) <= 50, "{line}");
        }
        assert_eq!(table.render(Style::plain(120)).matches("5.17").count(), 1);
    }

    #[test]
    fn words_are_never_broken() {
        assert_eq!(broken("a bc def", 3), ["a", "bc", "def"]);
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("unbreakable", 3), ["unbreakable"]);
        assert_eq!(broken("  indented", 12), ["  indented"]);
        assert_eq!(broken("1,234\n(+5.0%)", 20), ["1,234", "(+5.0%)"], "its own lines");
    }
}
