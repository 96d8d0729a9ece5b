//! Who does something: a CPU, whose state is entered, or somebody outside of all of them.

use super::state::CpuState;
use crate::primitive::{Count, SharedCount};
use crate::zone::Zone;
use crate::{Freehold, Platform};

/// See the module's documentation. A CPU counts on its own lines, by plain stores; a thread that is
/// outside of all has no counts that plain stores could change.
pub(crate) struct By<'a, 'm, P> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: Option<&'a CpuState<'m>>,
}

impl<P> Clone for By<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for By<'_, '_, P> {}

impl<P: Platform> By<'_, '_, P> {
    /// Counts writes to what all CPUs of a zone share.
    pub(crate) fn wrote(self, zone: &Zone<'_>, writes: u32) {
        match self.cpu {
            Some(cpu) => cpu.counters.shared_writes.add(u64::from(writes)),
            None if writes != 0 => zone.counters.shared_writes.add_shared(u64::from(writes)),
            None => {}
        }
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// A CPU whose state is the calling thread's.
    #[inline(always)]
    pub(crate) fn by<'a>(&'a self, cpu: &'a CpuState<'m>) -> By<'a, 'm, P> {
        By { fh: self, cpu: Some(cpu) }
    }

    /// Somebody outside of every CPU's state.
    pub(crate) fn outside(&self) -> By<'_, 'm, P> {
        By { fh: self, cpu: None }
    }
}
