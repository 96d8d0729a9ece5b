//! The parts of the differential test, one concept a file.

#![allow(unreachable_pub)] // private to the test

mod allocate;
pub mod both;
pub mod calls;
mod end;
mod release;
pub mod shape;
pub mod used;

pub const CPUS: u16 = 4;
pub const BASE: u64 = 0x10_0000;
