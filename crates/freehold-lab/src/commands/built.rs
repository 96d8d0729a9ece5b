//! Commands behind features: each as it is where it is built in, and otherwise one that says how to
//! get it.

use std::ffi::OsString;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::error::CliError;

#[cfg(feature = "bench")]
pub(super) use crate::bench::cli::{BenchArgs, run as bench};
#[cfg(not(feature = "bench"))]
pub(super) use {Missing as BenchArgs, missing as bench};

#[cfg(feature = "completions")]
pub(super) use super::completions::{CompletionsArgs, run as completions};
#[cfg(not(feature = "completions"))]
pub(super) use {Missing as CompletionsArgs, missing as completions};

#[cfg(feature = "contiguity")]
pub(super) use crate::contiguity::cli::{ContiguityArgs, run as contiguity};
#[cfg(not(feature = "contiguity"))]
pub(super) use {Missing as ContiguityArgs, missing as contiguity};

#[cfg(feature = "fidelity")]
pub(super) use crate::fidelity::{FidelityArgs, run as fidelity};
#[cfg(not(feature = "fidelity"))]
pub(super) use {Missing as FidelityArgs, missing as fidelity};

#[cfg(feature = "look")]
pub(super) use crate::look::{LookArgs, run as look};
#[cfg(not(feature = "look"))]
pub(super) use {Missing as LookArgs, missing as look};

#[cfg(feature = "report")]
pub(super) use crate::{
    compare::{CompareArgs, run as compare},
    report::{ReportArgs, run as report},
};
#[cfg(not(feature = "report"))]
pub(super) use {
    Missing as CompareArgs, Missing as ReportArgs, missing as compare, missing as report,
};

#[cfg(feature = "simulate")]
pub(super) use crate::simulate::{SimulateArgs, run as simulate};
#[cfg(not(feature = "simulate"))]
pub(super) use {Missing as SimulateArgs, missing as simulate};

/// Any arguments, of a command that is not built in.
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(disable_help_flag = true)]
pub(crate) struct Missing {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Says how to install all commands.
#[cfg_attr(feature = "full", allow(dead_code))] // Then nothing is missing.
pub(super) fn missing(_: &Missing) -> Result<Outcome, CliError> {
    Err(CliError::new("this freehold was built without that command").hint(
        "in Freehold's sources, to install all of them: \
         cargo install --path crates/freehold-lab --features full",
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Cli {
        Bench(Missing),
    }

    #[test]
    fn a_command_that_is_not_built_in_says_how_to_install_it() {
        for arguments in [&[][..], &["--help"], &["--quick", "bulk", "-e", "vanilla"]] {
            let words = ["freehold", "bench"].iter().chain(arguments);
            let Cli::Bench(args) = Cli::try_parse_from(words).expect("any arguments");
            let error = missing(&args).expect_err("it is not there").to_string();
            let line = "cargo install --path crates/freehold-lab --features full";
            assert!(error.ends_with(line), "{error}");
        }
    }
}
