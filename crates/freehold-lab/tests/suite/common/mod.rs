//! What the tests of several commands share.

// What goes wrong here is a test that fails.
#![allow(unreachable_pub, clippy::new_without_default)]

#[path = "../../../../freehold/tests/suite/length.rs"]
pub mod length;
pub mod machine_files;
pub mod replays;
pub mod tables;
