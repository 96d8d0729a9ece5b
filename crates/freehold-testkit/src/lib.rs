//! What the tests of several crates share.

// What goes wrong here is a test that fails.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::new_without_default)]

pub mod length;
pub mod machine_files;
pub mod replays;
pub mod tables;
