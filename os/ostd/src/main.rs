//! An OSTD kernel whose frames are Freehold's: it runs OSTD's own tests and a few of ours, and
//! powers off.
//!
//! `cargo xtask ostd` builds it with `--cfg ktest`, by which OSTD compiles its tests in, and boots
//! it in QEMU. Everything that OSTD has in frames comes from here then: page tables, slabs, stacks,
//! user memory.
//!
//! The tests' runner is OSTD's (`osdk-test-kernel`); `cargo osdk`, which would write the statics
//! below, is not needed.

#![no_std]
#![no_main]

extern crate osdk_test_kernel;

#[cfg(ktest)]
extern crate alloc;

mod frames;
mod heap;
#[cfg(ktest)]
mod machine;
#[cfg(ktest)]
mod tests;

use core::panic::PanicInfo;

/// The runner asks for these two: which tests, and of which crates.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub static KTEST_TEST_WHITELIST: Option<&[&str]> = None;
/// See above.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub static KTEST_CRATE_WHITELIST: Option<&[&str]> = None;

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    unsafe extern "Rust" {
        fn __ostd_panic_handler(info: &PanicInfo) -> !;
    }
    // SAFETY: the tests' runner defines it with this signature.
    unsafe { __ostd_panic_handler(info) }
}
