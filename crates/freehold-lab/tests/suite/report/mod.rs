//! Tests of `freehold report` and `freehold compare`.

mod command;
mod commands;
mod compare;
mod page;
mod valid;
