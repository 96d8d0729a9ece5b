//! Tests of `freehold simulate` and of what is behind it.

mod command;
mod estimate;
mod simulated;
