//! The hosted arena: real page frames in Linux user space, with threads as CPUs.

pub mod arena;
pub mod builder;
pub mod frames;
pub mod knobs;
pub mod memory;
pub mod pins;
pub mod resize;
pub mod stats;
