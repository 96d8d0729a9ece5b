//! Tests of `freehold bench` and of what is behind it. One program, since each takes seconds to
//! link.

mod command;
mod counts;
mod fragmentation;
mod fragmentation_random;
mod memory;
mod workloads;
