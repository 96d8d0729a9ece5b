//! What freehold asks of its host, answered by a machine with interrupts between CPUs.
//!
//! | it asks | a kernel answers with |
//! |---|---|
//! | which CPU is this? | OSTD's number of it |
//! | a full barrier on every CPU | an interrupt to each, and waiting for their answers |
//! | something to do while waiting for a lock | answering such calls of others |
//!
//! Without the last one the owner of a lock might wait for this CPU's answer while this CPU waits
//! for the lock.
//!
//! What it does not ask, and yet relies on, is that a CPU's [`Owned`](freehold::Owned) handle is
//! used by one party at a time. The handle is kept with the CPU's own data and refused in interrupt
//! handlers (`cpu::frames`); these use [`Freehold::on`](freehold::Freehold::on).

use freehold::{CpuId, Platform};

use super::{calls, cpu};

/// The machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

impl Platform for Machine {
    fn current_cpu(&self) -> CpuId {
        CpuId::new(cpu::index() as u16)
    }

    fn has_heavy_barrier(&self) -> bool {
        true
    }

    fn heavy_barrier(&self) {
        calls::barrier();
    }

    fn relax(&self) {
        cpu::pause();
    }
}
