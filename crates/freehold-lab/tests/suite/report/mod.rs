//! Tests of `freehold report` and `freehold compare`.

mod command;
mod compare;
mod page;
mod valid;
