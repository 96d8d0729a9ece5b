//! Being inside a CPU's state: whatever door was taken, what is done inside is the same.

use core::cell::Cell;

use super::state::{CpuState, Cursors};
use crate::primitive::Plain;
use crate::{CpuId, Freehold, Platform};

/// A CPU's state, entered. Left when dropped; may be left and entered again in between, to reach into other CPUs.
pub(crate) struct Inside<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: &'m CpuState<'m>,
    pub(crate) id: CpuId,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// Enters, waiting. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline(always)]
    pub(crate) fn enter(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, id: CpuId, owner: bool) -> Self {
        if owner {
            cpu.door.enter_owner(&fh.barrier());
        } else {
            cpu.door.enter_intruder(&fh.barrier());
        }
        Self { fh, cpu, id, owner, inside: Cell::new(true) }
    }

    /// Enters if that takes neither waiting nor a heavy barrier.
    #[inline(always)]
    pub(crate) fn try_enter(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, id: CpuId, owner: bool) -> Option<Self> {
        let entered = if owner { cpu.door.try_enter_owner() } else { cpu.door.try_enter_unowned() };
        entered.then(|| Self { fh, cpu, id, owner, inside: Cell::new(true) })
    }

    /// For who has got in by other means; see [`Freehold::recall`](crate::Freehold).
    pub(crate) fn already(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, id: CpuId) -> Self {
        Self { fh, cpu, id, owner: false, inside: Cell::new(true) }
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards, and the CPU offline.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.leave();
        let result = f();
        if self.owner {
            self.cpu.door.enter_owner(&self.fh.barrier());
        } else {
            self.cpu.door.enter_intruder(&self.fh.barrier());
        }
        self.inside.set(true);
        result
    }

    /// What a lease of this CPU says.
    #[inline(always)]
    pub(crate) fn lease_name(&self) -> u16 {
        self.id.get() + 1
    }

    /// Where this CPU leases its next words of that zone.
    pub(crate) fn cursors(&self, zone: usize) -> &'m Cursors {
        &self.fh.cursors[self.id.index() * self.fh.zones.len() + zone]
    }

    /// Whether the zone is the one that this CPU's requests go to first.
    #[inline(always)]
    pub(crate) fn is_home(&self, zone: usize) -> bool {
        self.cpu.home_zone.get() as usize == zone
    }

    #[inline(always)]
    fn leave(&self) {
        self.inside.set(false);
        if self.owner {
            self.cpu.door.leave_owner();
        } else {
            self.cpu.door.leave_intruder();
        }
    }
}

impl<P: Platform> Drop for Inside<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inside.get() {
            self.leave();
        }
    }
}
