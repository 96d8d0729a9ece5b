//! What the tests of several crates share.

pub mod length;
pub mod tables;
