//! Tests of `freehold contiguity` and of what is behind it.

mod cells;
mod random;
