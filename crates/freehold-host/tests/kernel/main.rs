//! What the kernel does beside the arena, and to it: huge pages made behind its back, locked
//! memory, closed descriptors, devices that know its pages, filters, signals and limits. Each test
//! that changes the process does so in a child of its own.

mod checks;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod filters;
mod limits;
mod pins;
mod resident;
mod ring;
