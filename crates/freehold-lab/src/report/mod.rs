//! Results as one HTML page: `freehold report`.
//!
//! ```text
//!  JSON of replay, bench, contiguity, simulate ──> html   the page: tables, charts, memory's picture
//!                                  └──> crate::compare    every figure of one beside the other's
//! ```

mod command;
pub mod html;
pub(crate) mod results;

pub(crate) use command::{ReportArgs, run};
