//! What the kernel does beside the arena, and to it: forks, signals, filters, limits of the process
//! and of its control group, huge pages made behind its back, locked memory, closed descriptors,
//! devices that know its pages. Each test that changes the process does so in a child of its own.

mod attempts;
mod checks;
#[path = "../common/mod.rs"]
mod common;
mod control_group;
mod descriptors;
mod filters;
mod fork;
mod limits;
mod own_threads;
mod pins;
mod resident;
mod ring;
mod signals;
mod trouble;
