//! Tests of the `freehold` command and of replays.

mod cli_errors;
mod cli_output;
mod command;
mod machines;
mod one_file;
mod random_machines;
mod record;
mod recorded_machine;
mod replay_rules;
mod replay_whole;
mod rows;
mod tables;
