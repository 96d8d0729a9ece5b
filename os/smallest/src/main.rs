#![no_std]
#![no_main]

use freehold::{Freehold, Migratetype, Order, Request, SingleCpu};

/// Called by the boot code with the free pieces of memory: first byte and length.
fn kernel_main(map: &[(u64, u64)]) {
    let phys_to_virt = |physical: u64| (0xffff_8000_0000_0000 + physical) as *mut u8;
    // SAFETY: the boot loader says that nobody uses these pieces, and has mapped all of memory.
    let freehold = unsafe { Freehold::from_map(map, 1, phys_to_virt, SingleCpu) }.expect("memory");

    let frames = freehold.here();
    let page = frames.alloc(Request::new(Order::ZERO, Migratetype::Unmovable)).expect("a frame");
    let huge = frames.alloc(Request::new(Order::PAGEBLOCK, Migratetype::Movable)).expect("2 MiB");
    frames.free(page, Order::ZERO).expect("freed once");
    frames.free(huge, Order::PAGEBLOCK).expect("freed once");
}

#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    kernel_main(&[(1 << 20, 127 << 20)]); // what the boot loader told
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
