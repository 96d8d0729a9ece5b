//! How far work is that has a known number of steps.

use crate::cli::progress::bar;
use indicatif::ProgressBar;

/// What [`steps`] says of turns that take about as long as each other.
pub const TURNS: &str = "{pos}/{len}, {eta} left";

/// A bar for work of so many steps, `counted` as this template says.
pub fn steps(what: &str, length: u64, counted: &str, quiet: bool) -> ProgressBar {
    bar(what, Some(length), &format!("{{prefix}} [{{bar:30}}] {counted}, {{msg}}"), quiet)
}
