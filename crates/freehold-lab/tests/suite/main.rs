//! Tests of the `freehold` command and of what is behind it, a folder a command. One program, since
//! each takes seconds to link: `cargo test -p freehold-lab --test suite look::` for one command's.

mod bench;
mod common;
mod contiguity;
mod fidelity;
mod look;
mod replay;
mod report;
mod simulate;
