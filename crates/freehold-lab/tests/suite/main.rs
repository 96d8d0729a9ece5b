//! Tests of the `freehold` command and of what is behind it. One program, since each takes seconds
//! to link; the report in a browser has its own.

mod against_kernel;
mod bench_command;
mod bench_counts;
mod bench_memory;
mod bench_workloads;
mod cli_errors;
mod cli_extras;
mod cli_output;
mod compare;
mod differential;
mod differential_support;
mod fragmentation;
mod fragmentation_random;
mod picture;
mod record;
mod recorded_machine;
mod replay_rules;
mod replay_targets;
mod replay_threads;
mod replay_whole;
mod simulate;
mod simulate_command;
mod soak_command;
mod support;
