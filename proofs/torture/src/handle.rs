//! A thread's way to a CPU: as its owner, as anybody, or as whoever runs on it.

use std::ops::Deref;

use freehold::{AllocError, CpuId, FrameRange, Frames, On, Owned};

use super::bounds::Door;
use super::platform::{Core, Threads};
use super::world::World;

pub(super) enum Handle {
    Owned(Owned<'static, 'static, Threads>),
    On(On<'static, 'static, Threads>),
    /// By the calls that name no CPU: the host says which one it is.
    Here(&'static Core, CpuId),
}

impl Handle {
    /// Anybody's way.
    pub(super) fn on(world: &'static World, cpu: u16) -> Self {
        Self::On(world.freehold.on(CpuId::new(cpu)))
    }

    /// The way of the thread that runs on that CPU.
    pub(super) fn here(world: &'static World, cpu: u16) -> Self {
        Self::Here(world.freehold, CpuId::new(cpu))
    }

    pub(super) fn door(&self) -> Door {
        match self {
            Self::Owned(_) => Door::Owner,
            Self::On(_) | Self::Here(..) => Door::Anybody,
        }
    }

    pub(super) fn owned(&self) -> Option<&Owned<'static, 'static, Threads>> {
        match self {
            Self::Owned(owned) => Some(owned),
            Self::On(_) | Self::Here(..) => None,
        }
    }

    pub(super) fn cpu(&self) -> CpuId {
        match self {
            Self::Owned(owned) => owned.cpu(),
            Self::On(on) => on.cpu(),
            Self::Here(_, cpu) => *cpu,
        }
    }

    pub(super) fn tick(&self) -> Result<(), AllocError> {
        match self {
            Self::Owned(owned) => owned.tick(),
            Self::On(on) => on.tick(),
            Self::Here(freehold, cpu) => freehold.on(*cpu).tick(),
        }
    }

    pub(super) fn alloc_run(&self, count: u64) -> Result<FrameRange, AllocError> {
        match self {
            Self::Owned(owned) => owned.alloc_run(count),
            Self::On(on) => on.alloc_run(count),
            Self::Here(freehold, cpu) => freehold.on(*cpu).alloc_run(count),
        }
    }

    pub(super) fn flush(&self) -> Result<(), AllocError> {
        match self {
            Self::Owned(owned) => owned.flush(),
            Self::On(on) => on.flush(),
            Self::Here(freehold, cpu) => freehold.on(*cpu).flush(),
        }
    }
}

impl Deref for Handle {
    type Target = dyn Frames;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Owned(owned) => owned,
            Self::On(on) => on,
            Self::Here(freehold, _) => *freehold,
        }
    }
}
