//! The checks of `.ci/run`, all or some. They are written there and nowhere else, so that CI needs
//! no built program to begin with.

use std::process::{Command, ExitCode};

use clap::Args;

use crate::build::root;

/// Arguments of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Steps to run; all without any.
    #[arg(value_name = "STEP")]
    steps: Vec<String>,

    /// Print what steps there are, and nothing else.
    #[arg(long, conflicts_with = "steps")]
    list: bool,
}

/// Runs them; the exit code is that of the first step that failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let script = root().join(".ci/run");
    let mut command = Command::new("bash");
    command.arg(&script);
    if arguments.list {
        command.arg("--list");
    }
    let status = command.args(&arguments.steps).status();
    let status = status.map_err(|error| format!("cannot run {}: {error}", script.display()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
