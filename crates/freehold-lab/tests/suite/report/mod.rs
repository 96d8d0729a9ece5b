//! Tests of `freehold report` and `freehold compare`.

mod command;
mod compare;
mod fleet;
mod page;
mod valid;
