//! What the kernel does beside the arena, and to it: huge pages made behind its back, locked
//! memory, closed descriptors, devices that know its pages, filters and limits. Each test that
//! changes the process does so in a child of its own.

#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod pins;
mod resident;
mod ring;
