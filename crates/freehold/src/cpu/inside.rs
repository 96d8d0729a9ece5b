//! Being inside a CPU's state: whatever door was taken, what is done inside is the same.

use core::cell::Cell;

use super::by::By;
use super::state::{CpuState, Cursors};
use crate::platform::PlatformExt;
use crate::primitive::{Relaxed, rarely};
use crate::{AllocError, CpuId, Freehold, Platform};

/// A CPU's state, entered. Left when dropped; in between too, to reach into other CPUs.
pub(crate) struct Inside<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: &'m CpuState<'m>,
    pub(crate) id: CpuId,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// Gets in, waiting, without a guard: [`get_out`](Self::get_out) or [`already`](Self::already)
    /// must follow. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline(always)]
    pub(crate) fn get_in(fh: &Freehold<'m, P>, cpu: &CpuState<'m>, owner: bool) {
        if owner {
            cpu.door.enter_owner(&fh.platform.barrier());
        } else {
            cpu.door.enter_intruder(&fh.platform.barrier());
        }
    }

    /// Gets in if that takes neither waiting nor a heavy barrier.
    #[inline(always)]
    pub(crate) fn try_get_in(cpu: &CpuState<'m>, owner: bool) -> bool {
        if owner { cpu.door.try_enter_owner() } else { cpu.door.try_enter_unowned() }
    }

    /// Gets out.
    #[inline(always)]
    pub(crate) fn get_out(cpu: &CpuState<'m>, owner: bool) {
        if owner {
            cpu.door.leave_owner();
        } else {
            rarely();
            cpu.door.leave_intruder();
        }
    }

    /// Enters, waiting. As [`get_in`](Self::get_in).
    #[inline]
    pub(crate) fn enter(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        id: CpuId,
        owner: bool,
    ) -> Self {
        Self::get_in(fh, cpu, owner);
        Self::already(fh, cpu, id, owner)
    }

    /// Enters if that takes neither waiting nor a heavy barrier.
    #[inline]
    pub(crate) fn try_enter(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        id: CpuId,
        owner: bool,
    ) -> Option<Self> {
        Self::try_get_in(cpu, owner).then(|| Self::already(fh, cpu, id, owner))
    }

    /// For who has got in already.
    #[inline(always)]
    pub(crate) fn already(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        id: CpuId,
        owner: bool,
    ) -> Self {
        Self { fh, cpu, id, owner, inside: Cell::new(true) }
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards, and the CPU offline.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.inside.set(false);
        Self::get_out(self.cpu, self.owner);
        let result = f();
        Self::get_in(self.fh, self.cpu, self.owner);
        self.inside.set(true);
        result
    }

    /// Whether it is online, if only by now; what is there to say otherwise.
    pub(crate) fn is_online(&self) -> Result<(), AllocError> {
        if self.cpu.online.get() { Ok(()) } else { Err(AllocError::CpuOffline { cpu: self.id }) }
    }

    /// What a lease of this CPU says.
    #[inline(always)]
    pub(crate) fn lease_name(&self) -> u16 {
        self.id.get() + 1
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
            Self::get_out(self.cpu, self.owner);
        }
    }
}
