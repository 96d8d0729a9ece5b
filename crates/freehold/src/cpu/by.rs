//! Who does something: a CPU, whose state is entered, or somebody outside of all of them.

use super::state::CpuState;
use crate::platform::{Pressure, PressureLevel};
use crate::primitive::{Count, Ordering, Relaxed, SharedCount};
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

impl<'m, P: Platform> By<'_, 'm, P> {
    /// Tells the host about changed pressure. Called at the edge of the API.
    pub(crate) fn tell_pressure(self) {
        self.fh.zones.iter().for_each(|zone| zone.update_level(self.fh));
        for (z, zone) in self.fh.zones.iter().enumerate() {
            // Acquire: pairs with `update_level`; the level that made the change is seen.
            while zone.level_changed.get() && zone.level_changed.swap(false, Ordering::Acquire) {
                let level = zone.level.get();
                self.fh.platform.pressure(Pressure {
                    zone: z,
                    level: match level {
                        0 => PressureLevel::None,
                        1 => PressureLevel::Low,
                        _ => PressureLevel::Min,
                    },
                    free: zone.free(self.fh).all,
                    watermarks: [zone.min.get(), zone.low.get(), zone.high.get()],
                });
                // Another CPU may have told a later one before: the last told must be true.
                if zone.level.get() != level {
                    zone.level_changed.store(true, Ordering::Release);
                }
            }
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
