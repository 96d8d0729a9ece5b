//! Other programs: run, with what they said where they fail.

use std::process::{Command, Output};

use super::Trouble;

fn finished(command: &mut Command) -> Result<Output, Trouble> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|error| Trouble::Missing(format!("{name} cannot be run: {error}")))
}

/// Runs it; what it printed.
///
/// # Errors
///
/// [`Trouble::Missing`] where there is no such program, [`Trouble::Wrong`] with all it said where
/// it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, Trouble> {
    let done = finished(command)?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(said);
    }
    let name = command.get_program().to_string_lossy();
    let complained = String::from_utf8_lossy(&done.stderr);
    Err(Trouble::Wrong(format!("{name} fails:\n{}{}", said, complained.trim_end())))
}

/// Runs it for what it does.
///
/// # Errors
///
/// As [`output`].
pub(crate) fn run(command: &mut Command) -> Result<(), Trouble> {
    output(command).map(drop)
}
