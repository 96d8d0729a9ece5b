//! The machine under the tests of page tables and interrupts, as far as OSTD leaves it to a kernel:
//! address spaces of our own beside OSTD's half, calls to other CPUs that wait for an answer, work
//! for CPUs that OSTD has started and left.

pub(crate) mod calls;
pub(crate) mod cpu;
pub(crate) mod folios;
mod ipi;
pub(crate) mod mmu;
mod platform;
pub(crate) mod probe;
pub(crate) mod spaces;
pub(crate) mod tables;
mod tlb;
pub(crate) mod zone;
