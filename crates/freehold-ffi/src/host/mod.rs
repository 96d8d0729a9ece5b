//! The hosted arena: real page frames in Linux user space, with threads as CPUs.

pub mod arena;
pub mod frames;
pub mod memory;
pub mod options;
pub mod stats;
