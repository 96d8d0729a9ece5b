//! The bootable kernel.
#![no_std]
#![no_main]

mod boot;
mod calls;
mod cpu;
mod exit;
mod libc;
mod ports;
mod serial;

/// The first Rust code.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    serial::init();
    say!("freehold kernel: start info at {start_info:#x}");
    exit::exit(exit::Status::Passed)
}
