//! What a thread has for itself in an arena: a CPU, and where it has freed runs.

use std::ops::Deref;

use crate::host::OwnedCpu;
use crate::runs::Runs;

/// See the module's documentation. The CPU first, which every call needs.
#[repr(C)]
pub(crate) struct Own {
    cpu: OwnedCpu,
    pub(crate) runs: Runs,
}

impl Own {
    pub(crate) fn new(cpu: OwnedCpu) -> Self {
        Self { cpu, runs: Runs::new() }
    }
}

impl Deref for Own {
    type Target = OwnedCpu;

    #[inline(always)]
    fn deref(&self) -> &OwnedCpu {
        &self.cpu
    }
}
