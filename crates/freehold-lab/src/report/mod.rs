//! Presenting what a replay found out: a table for people, JSON for programs, a picture for a glance, Parquet for plots over time.

pub mod against_kernel;
pub mod json;
pub(crate) mod number;
pub mod paths;
pub mod picture;
pub mod power;
pub mod table;
pub mod threads;
pub mod timeline;

pub use number::{percent, thousands};
