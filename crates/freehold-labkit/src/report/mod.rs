//! Presenting what a replay found out: a table for people, JSON for programs, a picture for a
//! glance, Parquet for plots over time.

pub mod against_kernel;
pub(crate) mod columns;
pub(crate) mod number;
pub mod paths;
pub mod picture;
pub mod power;
pub mod table;
pub mod threads;
pub mod timeline;
pub(crate) mod verdict;

pub use number::{decimal, percent, thousands};

/// Each name once, in the order in which they come.
pub(crate) fn unique<T: PartialEq>(names: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}
