//! Tests of `freehold bench` and of what is behind it.

mod command;
mod counts;
mod memory;
mod workloads;
