//! What freehold asks of its host, answered by a bare machine. All of it is here.
//!
//! | it asks | a kernel answers with |
//! |---|---|
//! | which CPU is this? | a word behind the GS register |
//! | a full barrier on every CPU | an interrupt to each, and waiting for their answers |
//! | something to do while waiting for a lock | answering such calls of others; without that, the owner of the lock might wait for this CPU's answer while this CPU waits for the lock |
//! | where to tell of pressure and of late double frees | counters |
//!
//! What it does not ask, and yet relies on, is that a CPU's [`Owned`](freehold::Owned) handle is
//! used by one party at a time. The handle is kept with the CPU's own data and refused in interrupt
//! handlers (`cpu::frames`); these use
//! [`Freehold::on`](freehold::Freehold::on).

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{CpuId, Pfn, Platform, Pressure, PressureLevel};

use crate::{calls, cpu};

/// The bare machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine;

/// Changes of a zone's pressure that were told, by level.
pub(crate) static PRESSURE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Frames that were freed twice in a way that only showed later.
pub(crate) static LATE_DOUBLE_FREES: AtomicU64 = AtomicU64::new(0);

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
        calls::poll();
        core::hint::spin_loop();
    }

    fn pressure(&self, pressure: Pressure) {
        let level = match pressure.level {
            PressureLevel::None => 0,
            PressureLevel::Low => 1,
            PressureLevel::Min => 2,
        };
        // Relaxed: statistics.
        PRESSURE[level].fetch_add(1, Ordering::Relaxed);
    }

    fn late_double_free(&self, _: Pfn) {
        // Relaxed: statistics.
        LATE_DOUBLE_FREES.fetch_add(1, Ordering::Relaxed);
    }
}
