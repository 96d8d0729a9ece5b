//! What the loops of `lib/test_vmalloc.c` ask: areas of virtual memory, for static dispatch.

use freehold::{CpuId, FreeError};
use freehold_host::freehold_vm::VmallocError;
use rustix::io::Errno;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Vmalloc(#[from] VmallocError),
    #[error(transparent)]
    Frames(freehold::AllocError),
    #[error(transparent)]
    Free(FreeError),
    #[error("the system refused: {0}")]
    System(#[from] Errno),
    #[error("the thread that frees gave up")]
    Abandoned,
}

/// What kind of area is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) pages: u64,
    /// Pages; a power of two.
    pub(super) align: u64,
    pub(super) huge: bool,
    pub(super) zeroed: bool,
}

impl Shape {
    pub(super) const fn pages(pages: u64) -> Self {
        Self { pages, align: 1, huge: false, zeroed: false }
    }
}

/// The kernels of the proposal's table: how an area's frames come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kernel {
    /// Single frames (huge mappings: whole pageblocks), freed one by one.
    V6_18,
    /// The largest chunks that fit, split, and freed one by one: the regression that the proposal set out from.
    V6_19Rc1,
    /// The largest chunks, freed as runs: the proposal's change.
    Patched,
}

impl Kernel {
    pub(super) const ALL: [Self; 3] = [Self::V6_18, Self::V6_19Rc1, Self::Patched];
}

pub(super) trait Areas: Sync {
    /// An area. Where it is dropped without being freed, it may be lost.
    type Area: Send;
    /// What a thread that plays a CPU uses.
    type Thread<'a>: Thread<Area = Self::Area>
    where
        Self: 'a;

    /// Becomes a CPU. One thread at a time for each.
    fn thread(&self, cpu: CpuId) -> Result<Self::Thread<'_>, String>;

    /// As which kernel; `false` is returned where there is no such choice.
    fn set_kernel(&self, kernel: Kernel) -> bool;

    /// Gives back what CPUs hold.
    fn drain(&self);

    /// Whether all is whole, with nothing in use.
    fn check(&self) -> Result<(), String>;

    /// Whether areas are mappings of the system, of which a process may have 65,530.
    fn is_memory(&self) -> bool;
}

pub(super) trait Thread {
    type Area: Send;

    fn vmalloc(&mut self, shape: Shape) -> Result<Self::Area, Failed>;
    fn vfree(&mut self, area: Self::Area) -> Result<(), Failed>;
    /// Frees what has been gathered; leaves the list empty.
    fn vfree_many(&mut self, areas: &mut Vec<Self::Area>) -> Result<(), Failed>;
    /// Writes a byte, where there is memory.
    fn write(&mut self, area: &Self::Area);
    /// A frame of the caller's own for [`Thread::map_ram`], until [`Thread::done_with_ram`].
    fn prepare_ram(&mut self, pages: u64) -> Result<(), Failed>;
    fn map_ram(&mut self) -> Result<Self::Area, Failed>;
    fn unmap_ram(&mut self, area: Self::Area) -> Result<(), Failed>;
    fn done_with_ram(&mut self) -> Result<(), Failed>;
}
