//! Areas by `freehold-vm`'s vmalloc, over any page allocator and any way of mapping.

use freehold::{CpuId, Migratetype, Order, Pfn};
use freehold_host::HostAreas;
use freehold_host::freehold_vm::{
    FrameAllocator, IntervalNode, Layout, Mmu, RunNode, SoftMmu, SpaceId, Vmalloc, Vpn, VpnRange,
};

use super::areas::{Areas, Failed, Kernel, Shape, Thread};
use super::pages::PageAllocator;
use super::raw;

/// Areas there can be at a time: `full_fit_alloc_test` on two CPUs has 32,768.
const AREAS: usize = 40_000;
/// Runs of frames in them.
const RUNS: usize = 80_000;

/// What an area's pages are: memory, or page work only.
pub(super) trait Backed: Mmu {
    const IS_MEMORY: bool;

    fn write(&self, at: Vpn);
    fn zero(&self, at: Vpn, pages: u64);
}

/// Page work only.
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

/// vmalloc over a page allocator.
pub(super) struct OverVm<P, M> {
    pages: P,
    vmalloc: Vmalloc<'static, M>,
}

impl<P: PageAllocator, M: Backed> OverVm<P, M> {
    pub(super) fn new(pages: P, mmu: M, range: VpnRange) -> Self {
        // The areas borrow their records. Leaked, they need not be stored beside what borrows them; a process makes a
        // few of these, of five MiB each.
        let (areas, runs) = (vec![IntervalNode::new(); AREAS].leak(), vec![RunNode::new(); RUNS].leak());
        Self { pages, vmalloc: Vmalloc::new(mmu, SpaceId::new(0), range, areas, runs) }
    }

    #[cfg(test)]
    pub(super) fn pages(&self) -> &P {
        &self.pages
    }

    #[cfg(test)]
    pub(super) fn stats(&self) -> freehold_host::freehold_vm::VmallocStats {
        self.vmalloc.stats()
    }
}

impl<P: PageAllocator, M: Backed> Areas for OverVm<P, M> {
    type Area = Vpn;
    type Thread<'a>
        = OverVmThread<'a, P::Cpu<'a>, M>
    where
        Self: 'a;

    fn thread(&self, cpu: CpuId) -> Result<Self::Thread<'_>, String> {
        Ok(OverVmThread { frames: self.pages.cpu(cpu)?, vmalloc: &self.vmalloc, ram: Vec::new() })
    }

    fn set_kernel(&self, kernel: Kernel) -> bool {
        self.vmalloc.set_large_orders(kernel != Kernel::V6_18);
        self.vmalloc.set_contig_free(kernel == Kernel::Patched);
        true
    }

    fn drain(&self) {
        self.pages.drain();
    }

    fn check(&self) -> Result<(), String> {
        let stats = self.vmalloc.stats();
        if stats.areas != stats.areas_freed || stats.frames != stats.frames_freed {
            return Err(format!("areas or frames are left: {stats:?}"));
        }
        self.pages.check()
    }

    fn is_memory(&self) -> bool {
        M::IS_MEMORY
    }
}

pub(super) struct OverVmThread<'a, F, M> {
    frames: F,
    vmalloc: &'a Vmalloc<'static, M>,
    ram: Vec<Pfn>,
}

impl<F: FrameAllocator, M: Backed> Thread for OverVmThread<'_, F, M> {
    type Area = Vpn;

    #[inline]
    fn vmalloc(&mut self, shape: Shape) -> Result<Vpn, Failed> {
        let layout = Layout::pages(shape.pages).align(shape.align).huge(shape.huge);
        let at = self.vmalloc.vmalloc(&self.frames, layout)?;
        if shape.zeroed {
            self.vmalloc.mmu().zero(at, shape.pages);
        }
        Ok(at)
    }

    #[inline]
    fn vfree(&mut self, area: Vpn) -> Result<(), Failed> {
        Ok(self.vmalloc.vfree(&self.frames, area)?)
    }

    fn vfree_many(&mut self, areas: &mut Vec<Vpn>) -> Result<(), Failed> {
        self.vmalloc.vfree_many(&self.frames, areas)?;
        areas.clear();
        Ok(())
    }

    #[inline]
    fn write(&mut self, area: &Vpn) {
        self.vmalloc.mmu().write(*area);
    }

    fn prepare_ram(&mut self, pages: u64) -> Result<(), Failed> {
        for _ in 0..pages {
            self.ram.push(self.frames.alloc(Order::ZERO, Migratetype::Unmovable).map_err(Failed::Frames)?);
        }
        Ok(())
    }

    #[inline]
    fn map_ram(&mut self) -> Result<Vpn, Failed> {
        Ok(self.vmalloc.vm_map_ram(&self.ram)?)
    }

    #[inline]
    fn unmap_ram(&mut self, area: Vpn) -> Result<(), Failed> {
        Ok(self.vmalloc.vm_unmap_ram(area)?)
    }

    fn done_with_ram(&mut self) -> Result<(), Failed> {
        self.ram.drain(..).try_for_each(|pfn| self.frames.free(pfn, Order::ZERO)).map_err(Failed::Free)
    }
}
