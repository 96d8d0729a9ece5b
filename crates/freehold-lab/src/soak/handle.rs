//! A thread's way to a CPU: as its owner, or as anybody.

use freehold::{AllocError, BulkFreeError, CpuId, FrameRange, FreeError, On, Order, Owned, Pfn, Request};

use super::call::Door;
use super::host::Host;
use super::world::World;

pub(super) enum Handle {
    Owned(Owned<'static, 'static, Host>),
    On(On<'static, 'static, Host>),
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(pub(super) fn $name(&self, $($arg: $type),*) -> $result {
            match self {
                Self::Owned(owned) => owned.$name($($arg),*),
                Self::On(on) => on.$name($($arg),*),
            }
        })*
    };
}

impl Handle {
    /// Anybody's way.
    pub(super) fn on(world: &'static World, cpu: u16) -> Self {
        Self::On(world.freehold.on(CpuId::new(cpu)))
    }

    pub(super) fn door(&self) -> Door {
        match self {
            Self::Owned(_) => Door::Owner,
            Self::On(_) => Door::Anybody,
        }
    }

    forward! {
        alloc(request: Request) -> Result<Pfn, AllocError>;
        alloc_bulk(request: Request, out: &mut [Pfn]) -> Result<usize, AllocError>;
        free(pfn: Pfn, order: Order) -> Result<(), FreeError>;
        free_range(range: FrameRange) -> Result<(), FreeError>;
        free_bulk(frames: &[Pfn]) -> Result<(), BulkFreeError>;
        tick() -> Result<(), AllocError>;
        flush() -> Result<(), AllocError>;
        cpu() -> CpuId;
    }
}
