//! Freehold as OSTD's frame allocator, by OSTD's own macro.

use core::alloc::Layout;

use freehold::{CpuId, Pfn, Platform};
use freehold_adapters::ostd::{GlobalFrames, Settings};
use ostd::irq::disable_local;
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::{KERNEL_VADDR_RANGE, Paddr};

/// As many as the machine may have.
const CPUS: u16 = 16;
/// Where memory ends at most: its metadata is 0.9 MiB.
const LIMIT: Paddr = 16 << 30;

/// What only OSTD knows.
pub(crate) struct Kernel;

impl Platform for Kernel {
    fn current_cpu(&self) -> CpuId {
        CpuId::new(u32::from(ostd::cpu::CpuId::current_racy()) as u16)
    }

    fn late_double_free(&self, pfn: Pfn) {
        panic!("frame {:#x} was freed twice at the same moment", pfn.get());
    }
}

/// The adapter, with interrupts off around each call: handlers drop frames, too.
pub(crate) struct Frames(pub(crate) GlobalFrames<Kernel>);

impl GlobalFrameAllocator for Frames {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let _off = disable_local();
        self.0.alloc(layout)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        if cfg!(feature = "lose") {
            return;
        }
        let _off = disable_local();
        self.0.dealloc(addr, size);
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        let _off = disable_local();
        self.0.add_free_memory(addr, size);
    }
}

/// OSTD has all physical memory where its part of the address space begins; the function that says
/// so is its own.
pub(crate) fn direct_map(paddr: Paddr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(KERNEL_VADDR_RANGE.start + paddr)
}

/// All frames.
#[ostd::global_frame_allocator]
pub(crate) static FRAMES: Frames = {
    let settings = Settings::new(CPUS, LIMIT, direct_map);
    // SAFETY: OSTD maps all physical memory there from the start on, and adds what nobody uses,
    // each frame once.
    Frames(unsafe { GlobalFrames::new(settings, || Kernel) })
};
