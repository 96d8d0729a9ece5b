//! Tests of `freehold bench` and of what is behind it.

mod command;
mod counts;
mod fragmentation;
mod fragmentation_random;
mod memory;
mod workloads;
