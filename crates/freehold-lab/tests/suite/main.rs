//! Tests of the `freehold` command and of replays. One program, since each takes seconds to link.

mod cli_errors;
mod cli_output;
mod command;
mod differential;
mod differential_support;
mod fidelity;
mod machines;
mod random_machines;
mod record;
mod recorded_machine;
mod replay_rules;
mod replay_targets;
mod replay_threads;
mod replay_whole;
mod support;
mod tables;
mod tools;
