//! Tests of `freehold bench` and `freehold contiguity` and of what is behind it. One program, since each takes seconds to
//! link.

mod command;
mod contiguity;
mod contiguity_random;
mod counts;
mod memory;
mod workloads;
