//! Presenting what a replay found out: tables for people, JSON for programs.

pub mod answer;
pub mod better;
mod grid;
pub mod metrics;
pub mod number;
pub mod table;

pub use number::{decimal, percent, thousands};

/// Each name once, in the order in which they come.
pub fn unique<T: PartialEq>(names: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Whether figures are called equal: one is within a hundredth of the other.
pub fn are_equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.01 * a.abs().max(b.abs())
}
