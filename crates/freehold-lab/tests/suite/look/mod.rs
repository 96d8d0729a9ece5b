//! Tests of `freehold look`.

mod files;
mod machines;
