//! Being inside a CPU's state: whatever door was taken, what is done inside is the same.

use core::cell::Cell;

use super::by::By;
use super::state::{CpuState, Cursors};
use crate::platform::PlatformExt;
use crate::primitive::Relaxed;
use crate::{AllocError, CpuId, Freehold, Platform};

/// A CPU's state, entered. Left when dropped; in between too, to reach into other CPUs.
pub(crate) struct Inside<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: &'m CpuState<'m>,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// Enters, waiting. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline]
    pub(crate) fn enter(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, owner: bool) -> Self {
        cpu.door.enter(owner, &fh.platform.barrier());
        Self::already(fh, cpu, owner)
    }

    /// Enters if that takes neither waiting nor a heavy barrier.
    #[inline]
    pub(crate) fn try_enter(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        owner: bool,
    ) -> Option<Self> {
        cpu.door.try_enter(owner).then(|| Self::already(fh, cpu, owner))
    }

    /// For who has got in already.
    #[inline(always)]
    pub(crate) fn already(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, owner: bool) -> Self {
        Self { fh, cpu, owner, inside: Cell::new(true) }
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards, and the CPU offline.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.inside.set(false);
        self.cpu.door.leave(self.owner);
        let result = f();
        self.cpu.door.enter(self.owner, &self.fh.platform.barrier());
        self.inside.set(true);
        result
    }

    /// Whether it is online, if only by now; what is there to say otherwise.
    pub(crate) fn is_online(&self) -> Result<(), AllocError> {
        if self.cpu.online.get() { Ok(()) } else { Err(AllocError::CpuOffline { cpu: self.id() }) }
    }

    /// Which CPU it is.
    #[inline(always)]
    pub(crate) fn id(&self) -> CpuId {
        CpuId::new(self.cpu.number)
    }

    /// What a lease of this CPU says.
    #[inline(always)]
    pub(crate) fn lease_name(&self) -> u16 {
        self.cpu.number + 1
    }

    /// This CPU, as who does something.
    #[inline(always)]
    pub(crate) fn by(&self) -> By<'a, 'm, P> {
        self.fh.by(self.cpu)
    }

    /// Where this CPU leases its next words of that zone.
    pub(crate) fn cursors(&self, zone: usize) -> &'m Cursors {
        self.cpu.cursors(self.fh, zone)
    }

    /// Whether the zone is the one that this CPU's requests go to first.
    #[inline(always)]
    pub(crate) fn is_home(&self, zone: usize) -> bool {
        self.cpu.home_zone.get() as usize == zone
    }
}

impl<P: Platform> Drop for Inside<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inside.get() {
            self.cpu.door.leave(self.owner);
        }
    }
}
