//! Byte strings as histories of calls on the allocator, right and wrong ones, against a model of
//! one state a frame.
//!
//! With a nightly compiler and `cargo install cargo-fuzz`, in this folder:
//!
//! ```text
//!   cargo +nightly fuzz run --fuzz-dir . operations -- -max_total_time=300
//!       looks for more, under AddressSanitizer
//!   cargo +nightly fuzz cmin --fuzz-dir . operations
//!       keeps the corpus small before it is committed
//!   FREEHOLD_HISTORY=1 cargo +nightly fuzz run --fuzz-dir . operations FILE
//!       prints one history, call by call
//! ```
//!
//! The history and its checks live with the ordinary tests, which replay the corpus where there is
//! no fuzzer.
#![no_main]

#[path = "../../../crates/freehold/tests/suite/byte_history/mod.rs"]
mod byte_history;
#[path = "../../../crates/freehold/tests/suite/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| byte_history::check(bytes));
