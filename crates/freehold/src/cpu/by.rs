//! Who does something: a CPU, whose state is entered, or somebody outside of all of them.

use super::state::CpuState;
use crate::primitive::{AtomicU64, Count, SharedCount};
use crate::zone::Zone;
use crate::{Freehold, Platform};

/// See the module's documentation. A CPU counts on its own lines, by plain stores.
#[derive(Clone, Copy)]
pub(crate) struct By<'a>(pub(crate) Option<&'a CpuState<'a>>);

/// Nobody whose counts could be written by plain stores.
pub(crate) const OUTSIDE: By<'static> = By(None);

impl<P: Platform> Freehold<'_, P> {
    /// Counts writes to what all CPUs of a zone share.
    pub(crate) fn wrote(&self, by: By<'_>, zone: &Zone<'_>, writes: u32) {
        match by.0 {
            Some(cpu) => cpu.counters.shared_writes.add(u64::from(writes)),
            None => add(&zone.counters.shared_writes, writes),
        }
    }
}

fn add(count: &AtomicU64, n: u32) {
    if n != 0 {
        count.add_shared(u64::from(n));
    }
}
