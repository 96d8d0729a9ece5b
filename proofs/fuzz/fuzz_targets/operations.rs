//! Byte strings as histories of calls on the allocator, right and wrong ones, against a table of
//! all frames.
//!
//! With a nightly compiler and `cargo install cargo-fuzz`, in this folder:
//!
//! ```text
//!   cargo +nightly fuzz run --fuzz-dir . operations -- -max_total_time=300
//!       looks for more, under AddressSanitizer
//!   cargo +nightly fuzz cmin --fuzz-dir . operations
//!       keeps the corpus small before it is committed
//! ```
//!
//! The history and its checks live with the ordinary tests, which replay the corpus where there is
//! no fuzzer.
#![no_main]

#[path = "../../../crates/freehold/tests/suite/exact/mod.rs"]
mod exact;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(wrong) = exact::of_bytes(bytes) {
        panic!("{wrong}");
    }
});
