//! What every command line has: how results are printed, errors said, progress shown, and amounts,
//! files and traces named.
//!
//! Results go to standard output and everything else (progress, warnings, errors) to standard
//! error, so that `--json` is always one valid document.

pub mod error;
pub mod given;
pub mod input;
pub mod output;
pub mod progress;
pub mod provenance;
pub mod rows;
pub mod size;
pub mod stop;
pub mod target;

use error::CliError;

/// What came of a command that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All is well.
    Fine,
    /// An engine lost frames or failed its checks.
    NotWhole,
    /// A result is worse than another by more than what is tolerated.
    Worse,
    /// Some of the input could not be read; said already.
    Unreadable,
    /// The user stopped it; what there was has been printed.
    Interrupted,
}

/// The exit code of a command, its error said: 0 fine; 1 an engine lost frames or failed its
/// checks, `compare --worse` found something worse, or a threshold of `look --fail-if` holds; 2
/// wrong usage or input that cannot be read; 130 stopped by the user.
pub fn exit_status(done: Result<Outcome, CliError>) -> u8 {
    match done {
        Ok(Outcome::Fine) => 0,
        Ok(Outcome::NotWhole | Outcome::Worse) => 1,
        Ok(Outcome::Unreadable) => 2,
        // What a shell reports of a program that Ctrl-C has ended.
        Ok(Outcome::Interrupted) => 130,
        // The reader of our output has seen enough: `freehold | head` is no error.
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) => {
            output::error(error);
            2
        }
    }
}
