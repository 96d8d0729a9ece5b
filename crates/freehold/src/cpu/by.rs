//! Who does something: a CPU, whose state is entered, or somebody outside of all of them. Whatever
//! door was taken, what is done inside is the same.

use core::cell::Cell;
use core::ops::Deref;

use super::state::{CpuState, Cursors};
use crate::platform::{OnPanic, Pressure, PressureLevel};
use crate::primitive::{Count, Ordering, Relaxed};
use crate::zone::Zone;
use crate::zone::supply::Supply;
use crate::{AllocError, CpuId, Freehold, Platform};

/// Copies a type whatever host it is for, which a derive would want to be copied, too.
macro_rules! copied {
    ($name:ident) => {
        impl<P> Clone for $name<'_, '_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P> Copy for $name<'_, '_, P> {}
    };
}

/// What is done with a CPU's state in one way, for a thread that is inside: each way is a type.
macro_rules! way_inside {
    ($name:ident) => {
        $crate::cpu::by::copied!($name);

        impl<'a, 'm, P> core::ops::Deref for $name<'a, 'm, P> {
            type Target = $crate::cpu::by::Cpu<'a, 'm, P>;

            #[inline(always)]
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}
pub(crate) use {copied, way_inside};

/// See the module's documentation. A CPU counts on its own lines, by plain stores; a thread that is
/// outside of all has no counts that plain stores could change.
pub(crate) struct By<'a, 'm, P> {
    pub(crate) fh: &'a Freehold<'m, P>,
    state: Option<&'m CpuState<'m>>,
}

/// A CPU's state and the allocator that it is of: for a thread that is inside, or for a look at it
/// from outside, which changes nothing.
pub(crate) struct Cpu<'a, 'm, P> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: &'m CpuState<'m>,
}

copied!(Cpu);

impl<'m, P> Deref for Cpu<'_, 'm, P> {
    type Target = CpuState<'m>;

    #[inline(always)]
    fn deref(&self) -> &CpuState<'m> {
        self.cpu
    }
}

impl<'a, 'm, P: Platform> Cpu<'a, 'm, P> {
    /// It, as who does something.
    #[inline(always)]
    pub(crate) fn by(self) -> By<'a, 'm, P> {
        By { fh: self.fh, state: Some(self.cpu) }
    }

    /// Which one it is.
    #[inline(always)]
    pub(crate) fn id(self) -> CpuId {
        CpuId::new(self.cpu.number)
    }

    /// Whether it is online, if only by now.
    pub(crate) fn is_online(self) -> Result<(), AllocError> {
        if self.online.get() { Ok(()) } else { Err(AllocError::CpuOffline { cpu: self.id() }) }
    }

    /// The zone that its requests go to first.
    #[inline(always)]
    pub(crate) fn home(self) -> &'m Zone<'m> {
        &self.fh.zones[self.home_zone.get() as usize]
    }

    /// Whether that is the one of this number.
    #[inline(always)]
    pub(crate) fn is_home(self, zone: usize) -> bool {
        self.home_zone.get() as usize == zone
    }

    /// What it has of a zone: where it leases its next words.
    #[inline(always)]
    pub(crate) fn cursors(self, zone: usize) -> &'m Cursors {
        &self.fh.cursors[usize::from(self.cpu.number) * self.fh.zones.len() + zone]
    }
}

copied!(By);

impl<P: Platform> By<'_, '_, P> {
    /// Counts writes to what all CPUs of a zone share.
    pub(crate) fn wrote(self, zone: &Supply, writes: u32) {
        match self.state {
            Some(cpu) => cpu.counters.shared_writes.add(u64::from(writes)),
            None if writes != 0 => zone.counters.shared_writes.add_shared(u64::from(writes)),
            None => {}
        }
    }
}

impl<'a, 'm, P: Platform> By<'a, 'm, P> {
    /// The CPU, if it is one.
    #[inline(always)]
    pub(crate) fn cpu(self) -> Option<Cpu<'a, 'm, P>> {
        self.state.map(|cpu| Cpu { fh: self.fh, cpu })
    }

    /// [`tell_pressure`](Self::tell_pressure); where the host panics, what a call took goes back.
    pub(crate) fn tell_pressure_or(self, give_back: impl FnMut()) {
        let back = OnPanic(give_back);
        self.tell_pressure();
        core::mem::forget(back);
    }

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
    pub(crate) fn cpu<'a>(&'a self, cpu: &'m CpuState<'m>) -> Cpu<'a, 'm, P> {
        Cpu { fh: self, cpu }
    }

    /// Somebody outside of every CPU's state.
    pub(crate) fn outside(&self) -> By<'_, 'm, P> {
        By { fh: self, state: None }
    }
}

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

    /// For who has got in already. What others have freed of a chunk goes back first, since nobody
    /// finds it in leased words.
    #[inline(always)]
    pub(crate) fn already(at: Cpu<'a, 'm, P>, owner: bool) -> Self {
        at.end_freed_chunk();
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
