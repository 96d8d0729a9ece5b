//! Being inside a CPU's state: whatever door was taken, what is done inside is the same.

use core::cell::Cell;
use core::ops::Deref;

use super::by::Cpu;
use super::state::CpuState;
use crate::{Freehold, Platform};

/// A CPU's state, entered. Left when dropped; in between too, to reach into other CPUs.
pub(crate) struct Inside<'a, 'm, P: Platform> {
    at: Cpu<'a, 'm, P>,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// Enters, waiting. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline]
    pub(crate) fn enter(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, owner: bool) -> Self {
        cpu.door.enter(owner, &fh.platform);
        Self::already(fh.cpu(cpu), owner)
    }

    /// Enters if that takes neither waiting nor a heavy barrier.
    #[inline]
    pub(crate) fn try_enter(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        owner: bool,
    ) -> Option<Self> {
        cpu.door.try_enter(owner).then(|| Self::already(fh.cpu(cpu), owner))
    }

    /// For who has got in already.
    #[inline(always)]
    pub(crate) fn already(at: Cpu<'a, 'm, P>, owner: bool) -> Self {
        Self { at, owner, inside: Cell::new(true) }
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards, and the CPU offline.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.inside.set(false);
        self.cpu.door.leave(self.owner);
        let result = f();
        self.cpu.door.enter(self.owner, &self.fh.platform);
        self.inside.set(true);
        result
    }
}

impl<'a, 'm, P: Platform> Deref for Inside<'a, 'm, P> {
    type Target = Cpu<'a, 'm, P>;

    #[inline(always)]
    fn deref(&self) -> &Cpu<'a, 'm, P> {
        &self.at
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
