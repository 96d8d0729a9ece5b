//! What the kernel does beside the arena, and to it: forks, signals, limits of the
//! process, huge pages made behind its back, locked memory, closed descriptors. Each test that
//! changes the process does so in a child of its own.

#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod limits;
mod refused;
mod resident;
mod trouble;
