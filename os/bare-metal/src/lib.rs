//! The parts of the kernel that need no bare machine, so that they are tested like everything else:
//! reading the memory map and the ACPI tables, the arithmetic of page tables, the command line, and
//! the self-test and the benchmarks of the page allocator, which run on the kernel's CPUs and on a
//! process's threads alike.
//!
//! The machine itself (boot, interrupts, page tables, other CPUs) is in `src/bare`, and is a
//! program of its own that an ordinary build passes over: see `README.md`, or run
//! `cargo xtask qemu`.

#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod acpi;
pub mod command_line;
pub mod memory_map;
pub mod paging;
pub mod suite;
