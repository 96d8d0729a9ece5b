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

    /// Show these columns of tables, by the names above them, beside those that say what a row is
    /// of.
    #[arg(long, value_name = "NAME[,NAME]...", value_delimiter = ',', conflicts_with_all = ["json", "wide"])]
    pub columns: Vec<String>,
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
