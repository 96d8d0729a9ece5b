//! See Cargo.toml.

#![no_std]

use core::alloc::Layout;

use freehold::{Order, Pfn, SingleCpu};
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

// SAFETY: it is never given memory.
static GLOBAL: GlobalFrames<SingleCpu> =
    unsafe { GlobalFrames::new(Settings::new(1, 1 << 30, |paddr| paddr as *mut u8), || SingleCpu) };

/// Something of the adapters.
#[unsafe(no_mangle)]
pub extern "C" fn probe_adapters() -> usize {
    usize::from(GLOBAL.alloc(Layout::new::<u64>()).is_some())
}
