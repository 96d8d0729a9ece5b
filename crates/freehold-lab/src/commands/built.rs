//! Commands behind features: each as it is where it is built in, and otherwise one that says how to
//! get it.

use std::ffi::OsString;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::error::CliError;

/// A command's arguments and function: its own, or those that stand for what is not built in.
macro_rules! built {
    ($($feature:literal: $command:ident $Args:ident of $($module:ident)::+;)*) => {$(
        #[cfg(feature = $feature)]
        pub(super) use crate::$($module)::+::{$Args, run as $command};
        #[cfg(not(feature = $feature))]
        pub(super) use {Missing as $Args, missing as $command};
    )*};
}

built! {
    "bench": bench BenchArgs of bench::cli;
    "completions": completions CompletionsArgs of commands::completions;
    "contiguity": contiguity ContiguityArgs of contiguity::cli;
    "fidelity": fidelity FidelityArgs of fidelity;
    "look": look LookArgs of look;
    "report": compare CompareArgs of compare;
    "report": report ReportArgs of report;
    "simulate": simulate SimulateArgs of simulate;
}

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
