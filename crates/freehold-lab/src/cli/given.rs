//! What arguments mean, alike in every command.

use std::num::NonZero;
use std::str::FromStr;

use clap::Args;

use super::error::CliError;
use crate::tables::unique;

/// How what a command finds is printed.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct Printed {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,

    /// Show all columns of tables, however wide the terminal is.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,

    /// Print in another form: text of 72 columns without colours, for a mail; Markdown; csv or
    /// jsonl (a JSON object in each line), of one table of rows.
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<Form>,
}

/// The form of what is printed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Text,
    Markdown,
    Csv,
    Jsonl,
    /// Of replay alone, whose columns have fixed types.
    Parquet,
}

impl Printed {
    /// The form, where it is of rows and not of text or a document.
    pub fn rows(&self) -> Option<Form> {
        self.format.filter(|form| !matches!(form, Form::Text | Form::Markdown))
    }

    /// Whether tables are printed.
    pub fn is_text(&self) -> bool {
        !self.json && self.rows().is_none()
    }
}

/// What most commands have: how what they do and find is shown.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    #[command(flatten)]
    pub printed: Printed,

    /// Show no progress bar.
    #[arg(long)]
    pub no_progress: bool,
}

/// What was given, each once, or the default.
pub fn or<T: Clone + PartialEq>(given: &[T], default: &[T]) -> Vec<T> {
    unique(if given.is_empty() { default } else { given }.iter().cloned())
}

/// The engines that were given, or the default ones. Twice the same would be two rows of one name.
pub fn engines<T>(given: &[T], default: &[&str]) -> Result<Vec<T>, CliError>
where
    T: Clone + PartialEq + FromStr<Err: std::error::Error>,
{
    let default: Result<Vec<T>, _> = default.iter().map(|name| name.parse()).collect();
    Ok(or(given, &default?))
}

/// How many jobs at the same time: as many as there are CPUs unless told otherwise.
pub fn jobs(given: Option<u16>) -> usize {
    given.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}
