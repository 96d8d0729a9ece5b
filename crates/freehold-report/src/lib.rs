//! Results as one HTML page (`freehold report`), or two results side by side (`freehold compare`).
//!
//! ```text
//!  JSON of replay, bench, fragmentation, simulate ──> html     the page: tables, charts, the picture of memory
//!                                               └──> compare  every figure of one beside that of the other
//! ```

#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod cli;
pub mod compare;
pub mod html;

pub use cli::{command, main};
