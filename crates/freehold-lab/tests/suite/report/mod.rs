//! Tests of `freehold report` and `freehold compare`, the report also in a browser.

mod browser;
mod commands;
mod compare;
mod page;
