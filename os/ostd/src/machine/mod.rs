//! The machine under the tests of page tables, as far as OSTD leaves it to a kernel: an address
//! space of our own beside OSTD's half, accesses that may fault. One CPU, on which OSTD's runner
//! runs.

pub(crate) mod folios;
pub(crate) mod mmu;
pub(crate) mod probe;
pub(crate) mod space;
pub(crate) mod tables;
mod tlb;
pub(crate) mod zone;
