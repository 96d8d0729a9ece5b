//! A thread's way to a CPU: as its owner, or as anybody.

use std::ops::Deref;

use freehold::{AllocError, CpuId, FrameRange, Frames, On, Owned, Platform};

type Host = &'static dyn Platform;

pub(crate) enum Handle {
    Owned(Owned<'static, 'static, Host>),
    On(On<'static, 'static, Host>),
}

/// A call by either.
macro_rules! by {
    ($handle:ident, $cpu:ident => $call:expr) => {
        match $handle {
            Self::Owned($cpu) => $call,
            Self::On($cpu) => $call,
        }
    };
}

impl Handle {
    pub(crate) fn owned(&self) -> Option<&Owned<'static, 'static, Host>> {
        match self {
            Self::Owned(owned) => Some(owned),
            Self::On(_) => None,
        }
    }

    pub(crate) fn cpu(&self) -> CpuId {
        by!(self, cpu => cpu.cpu())
    }

    pub(crate) fn tick(&self) -> Result<(), AllocError> {
        by!(self, cpu => cpu.tick())
    }

    pub(crate) fn flush(&self) -> Result<(), AllocError> {
        by!(self, cpu => cpu.flush())
    }

    pub(crate) fn alloc_run(&self, count: u64) -> Result<FrameRange, AllocError> {
        by!(self, cpu => cpu.alloc_run(count))
    }
}

impl Deref for Handle {
    type Target = dyn Frames;

    fn deref(&self) -> &Self::Target {
        by!(self, cpu => cpu)
    }
}
