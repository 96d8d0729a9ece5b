//! Standard output and standard error: never a panic when the other end is closed, colours only for
//! people.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use super::error::CliError;
use super::given::{Form, Printed};
use super::rows;
use crate::tables::table::Style;

/// Columns to use where standard output is no terminal and `COLUMNS` is not set.
const DEFAULT_WIDTH: u16 = 120;
/// Tables are not made narrower or wider than this, whatever the terminal.
const WIDTHS: std::ops::RangeInclusive<u16> = 60..=160;

/// What a mail has room for.
const MAIL: u16 = 72;

/// A command that another program calls as a function.
#[derive(Default)]
pub struct Caught {
    words: Vec<String>,
    /// What would have gone to standard output.
    pub output: Vec<u8>,
    /// What would have gone to standard error.
    pub said: String,
}

thread_local! {
    static CAUGHT: RefCell<Option<Caught>> = const { RefCell::new(None) };
}

/// Runs a command of these words, and keeps what it prints in this thread.
pub fn caught<T>(words: Vec<String>, run: impl FnOnce() -> T) -> (T, Caught) {
    CAUGHT.set(Some(Caught { words, ..Caught::default() }));
    let done = run();
    (done, CAUGHT.take().unwrap_or_default())
}

/// The words of a command that is called as a function.
pub fn words() -> Option<Vec<String>> {
    CAUGHT.with_borrow(|caught| caught.as_ref().map(|caught| caught.words.clone()))
}

/// Keeps what is printed, where the command is called as a function.
fn keep(put: impl FnOnce(&mut Caught)) -> bool {
    CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(put).is_some())
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<(), CliError> {
    if keep(|caught| caught.output.extend_from_slice(text.as_bytes())) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| CliError::of_output(&error))
}

/// Writes to standard output what comes in pieces, and may be no text.
pub fn stream<T>(
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<T, CliError>,
) -> Result<T, CliError> {
    if words().is_some() {
        let mut all = Vec::new();
        let done = write(&mut all)?;
        keep(|caught| caught.output.append(&mut all));
        return Ok(done);
    }
    let mut out = BufWriter::new(io::stdout());
    let done = write(&mut out)?;
    out.flush().map_err(|error| CliError::of_output(&error))?;
    Ok(done)
}

/// Writes a JSON document to standard output.
pub fn print_json(document: &impl Serialize) -> Result<(), CliError> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    print(&text)
}

/// Writes a result to standard output: as JSON where that was asked for, for people otherwise.
pub fn result(
    printed: &Printed,
    document: &impl Serialize,
    text: impl FnOnce(Style) -> String,
) -> Result<(), CliError> {
    if printed.json {
        return print_json(document);
    }
    if let Some(form) = printed.rows() {
        return print(&rows::of_document(&serde_json::to_value(document)?, form)?);
    }
    print(&text(style(printed)))
}

/// Writes a line to standard error; nobody can be told where that fails.
/// What would steer the terminal, as in the name of a file, is shown as one character.
pub fn complain(text: &str) {
    let text = text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}");
    if !keep(|caught| caught.said += &format!("freehold: {text}\n")) {
        let _ = writeln!(io::stderr().lock(), "freehold: {text}");
    }
}

pub fn error(what: impl Display) {
    complain(&format!("error: {what}"));
}

/// The style of tables on standard output.
pub fn style(printed: &Printed) -> Style {
    let markdown = printed.format == Some(Form::Markdown);
    let terminal = io::stdout().is_terminal();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = terminal
        .then(|| terminal_size::terminal_size().map(|(width, _)| width.0))
        .flatten()
        .or(columns)
        .unwrap_or(DEFAULT_WIDTH)
        .clamp(*WIDTHS.start(), *WIDTHS.end());
    // https://no-color.org: any value but an empty one.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_mail = printed.format.is_some();
    let width = if is_mail { MAIL } else { width };
    let wide = printed.wide || markdown;
    Style { width, color: terminal && !plain && !is_mail, wide, markdown }
}
