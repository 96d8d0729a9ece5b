//! See Cargo.toml.

#![no_std]

use freehold::{Order, Pfn};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Something of the crate, so that it is really linked.
#[unsafe(no_mangle)]
pub extern "C" fn probe(pfn: u64) -> u64 {
    Pfn::new(pfn).buddy(Order::ZERO).get()
}
