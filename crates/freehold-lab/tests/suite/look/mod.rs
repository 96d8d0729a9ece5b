//! Tests of `freehold look`.

mod files;
