//! Other programs: run, with what they said where they fail.

use std::process::Command;

use super::Trouble;

/// Runs it; what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, Trouble> {
    let name = command.get_program().to_string_lossy().into_owned();
    let missing = |error| Trouble::Missing(format!("{name} cannot be run: {error}"));
    let done = command.output().map_err(missing)?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(said);
    }
    let complained = String::from_utf8_lossy(&done.stderr);
    Err(Trouble::Wrong(format!("{name} fails:\n{}{}", said, complained.trim_end())))
}

/// Runs it for what it does.
pub(crate) fn run(command: &mut Command) -> Result<(), Trouble> {
    output(command).map(drop)
}
