//! See Cargo.toml.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};

use freehold::{Order, Pfn, SingleCpu};
use freehold_adapters::buddy::LockedFrameAllocator;
use freehold_adapters::ostd::{GlobalFrames, Settings};
use freehold_vm::{Access, Entry, Flush, FlushKind, Mmu, SoftMmu, SpaceId, Vpn, VpnRange};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Something of the crate, so that it is really linked.
#[unsafe(no_mangle)]
pub extern "C" fn probe(pfn: u64) -> u64 {
    Pfn::new(pfn).buddy(Order::ZERO).get()
}

/// Something of the virtual memory crate, too.
#[unsafe(no_mangle)]
pub extern "C" fn probe_vm(pfn: u64) -> u64 {
    let mmu = SoftMmu::<1>::new();
    let space = SpaceId::new(0);
    let range = VpnRange { start: Vpn::new(pfn), end: Vpn::new(pfn + 1) };
    mmu.flush(&[Flush { space, range, kind: FlushKind::Unmapped }]);
    mmu.stats().pages_flushed + Entry::new(Pfn::new(pfn), Access::Read).bits()
}

/// The buddy adapter takes its metadata from a heap. There is none here, only what the linker asks
/// for.
struct NoHeap;

// SAFETY: it never has memory, which an allocator may say at any time.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: NoHeap = NoHeap;

static BUDDY: LockedFrameAllocator = LockedFrameAllocator::new();
// SAFETY: it is never given memory.
static GLOBAL: GlobalFrames<SingleCpu> =
    unsafe { GlobalFrames::new(Settings::new(1, 1 << 30, |paddr| paddr as *mut u8), || SingleCpu) };

/// Something of the adapters.
#[unsafe(no_mangle)]
pub extern "C" fn probe_adapters(count: usize) -> usize {
    let there = BUDDY.lock().alloc(count).is_some() || GLOBAL.alloc(Layout::new::<u64>()).is_some();
    usize::from(there)
}
