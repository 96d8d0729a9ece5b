//! Byte strings as traces and descriptions of machines: no reader panics, and what one accepts
//! holds together.
//!
//! With a nightly compiler and `cargo install cargo-fuzz`, in this folder:
//!
//! ```text
//!   cargo +nightly fuzz run --fuzz-dir . texts -- -max_total_time=600 -max_len=4096
//! ```
//!
//! The harness lives with the ordinary tests of freehold-trace, which read the corpus where there
//! is no fuzzer. The first byte of an input says which reader it is for, so a file to try by hand
//! needs one: 0 zoneinfo, 1 buddyinfo, 2 pagetypeinfo, 3 all three with \x01 between, 4 a version,
//! 5 a trace.
#![no_main]

#[path = "../../../crates/freehold-trace/tests/suite/byte_text/mod.rs"]
mod byte_text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    byte_text::check(bytes);
});
