//! What the loops of `lib/test_vmalloc.c` ask: areas of virtual memory, by `freehold-vm`'s vmalloc
//! over any page allocator and any way of mapping; compiled for each of them.

use freehold::{CpuId, FreeError};
use freehold_host::HostAreas;
use freehold_host::freehold_vm::{
    Frames, IntervalNode, Layout, Mmu, RunNode, SoftMmu, SpaceId, Vmalloc, VmallocError, Vpn,
    VpnRange,
};

use super::pages::PageAllocator;
use super::raw;

/// Areas there can be at a time: `full_fit_alloc_test` on two CPUs has 32,768.
const AREAS: usize = 40_000;
/// Runs of frames in them.
const RUNS: usize = 80_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Vmalloc(#[from] VmallocError),
    #[error(transparent)]
    Frames(#[from] freehold::AllocError),
    #[error(transparent)]
    Free(#[from] FreeError),
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
    /// The largest chunks that fit, split, and freed one by one: the regression that the proposal
    /// set out from.
    V6_19Rc1,
    /// The largest chunks, freed as runs: the proposal's change.
    Patched,
}

impl Kernel {
    pub(super) const ALL: [Self; 3] = [Self::V6_18, Self::V6_19Rc1, Self::Patched];
}

/// What an area's pages are: memory, or page work only.
pub(super) trait Backed: Mmu {
    /// Whether areas are mappings of the system, of which a process may have 65,530.
    const IS_MEMORY: bool;

    fn write(&self, at: Vpn);
    fn zero(&self, at: Vpn, pages: u64);
}

impl Backed for SoftMmu<1> {
    const IS_MEMORY: bool = false;

    fn write(&self, _: Vpn) {}
    fn zero(&self, _: Vpn, _: u64) {}
}

impl Backed for HostAreas {
    const IS_MEMORY: bool = true;

    fn write(&self, at: Vpn) {
        raw::write(self, at);
    }

    fn zero(&self, at: Vpn, pages: u64) {
        raw::zero(self, at, pages);
    }
}

pub(super) struct Areas<P, M> {
    pub(super) pages: P,
    pub(super) vmalloc: Vmalloc<'static, M>,
}

impl<P: PageAllocator, M: Backed> Areas<P, M> {
    pub(super) fn new(pages: P, mmu: M, range: VpnRange) -> Self {
        // The areas borrow their records. Leaked, they need not be stored beside what borrows them;
        // a process makes a few of these, of five MiB each.
        let (areas, runs) =
            (vec![IntervalNode::new(); AREAS].leak(), vec![RunNode::new(); RUNS].leak());
        Self { pages, vmalloc: Vmalloc::new(mmu, SpaceId::new(0), range, areas, runs) }
    }

    /// Becomes a CPU. One thread at a time for each.
    pub(super) fn thread(&self, cpu: CpuId) -> Result<Thread<'_, P::Cpu<'_>, M>, String> {
        Ok(Thread { frames: self.pages.cpu(cpu)?, vmalloc: &self.vmalloc })
    }

    pub(super) fn set_kernel(&self, kernel: Kernel) {
        self.vmalloc.set_large_orders(kernel != Kernel::V6_18);
        self.vmalloc.set_contig_free(kernel == Kernel::Patched);
    }

    /// Whether all is whole, with nothing in use.
    pub(super) fn check(&self) -> Result<(), String> {
        let stats = self.vmalloc.stats();
        if stats.areas != stats.areas_freed || stats.frames != stats.frames_freed {
            return Err(format!("areas or frames are left: {stats:?}"));
        }
        self.pages.check()
    }
}

/// What a thread that plays a CPU uses.
pub(super) struct Thread<'a, F, M> {
    pub(super) frames: F,
    pub(super) vmalloc: &'a Vmalloc<'static, M>,
}

impl<F: Frames, M: Backed> Thread<'_, F, M> {
    #[inline]
    pub(super) fn vmalloc(&self, shape: Shape) -> Result<Vpn, Failed> {
        let layout = Layout::pages(shape.pages).align(shape.align).huge(shape.huge);
        let at = self.vmalloc.vmalloc(&self.frames, layout)?;
        if shape.zeroed {
            self.vmalloc.mmu().zero(at, shape.pages);
        }
        Ok(at)
    }

    #[inline]
    pub(super) fn vfree(&self, area: Vpn) -> Result<(), Failed> {
        Ok(self.vmalloc.vfree(&self.frames, area)?)
    }

    /// Writes a byte, where there is memory.
    #[inline]
    pub(super) fn write(&self, area: Vpn) {
        self.vmalloc.mmu().write(area);
    }
}
