//! What arguments mean, alike in every command.

use std::num::NonZero;
use std::path::Path;
use std::str::FromStr;

use clap::Args;

use super::error::CliError;
use crate::report::unique;

/// What most commands have: how what they do and find is shown.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub(super) json: bool,

    /// Show no progress bar.
    #[arg(long)]
    pub(super) no_progress: bool,
}

/// What was given, each once, or the default.
pub(super) fn or<T: Clone + PartialEq>(given: &[T], default: &[T]) -> Vec<T> {
    unique(if given.is_empty() { default } else { given }.iter().cloned())
}

/// The engines that were given, or the default ones. Twice the same would be two rows of one name.
pub(super) fn engines<T>(given: &[T], default: &[&str]) -> Result<Vec<T>, CliError>
where
    T: Clone + PartialEq + FromStr<Err: std::error::Error>,
{
    let default: Result<Vec<T>, _> = default.iter().map(|name| name.parse()).collect();
    Ok(or(given, &default?))
}

/// How many jobs at the same time: as many as there are CPUs unless told otherwise.
pub(super) fn jobs(given: Option<u16>) -> usize {
    given.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), usize::from)
}

/// That a picture has the name of an SVG file, or none of another kind.
pub(super) fn svg(path: &Path) -> Result<(), CliError> {
    let Some(ending) = path.extension().filter(|ending| !ending.eq_ignore_ascii_case("svg")) else {
        return Ok(());
    };
    let (ending, named) = (ending.to_string_lossy(), path.with_extension("svg"));
    Err(CliError::new(format!("--picture writes SVG, not {ending}: {}", path.display())).hint(
        format!("name it {}; rsvg-convert or a browser makes other formats of it", named.display()),
    ))
}
