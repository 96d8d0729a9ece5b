//! Tests of `freehold bench` and of what is behind it.

mod command;
mod memory;
mod workloads;
