//! A history of calls as a string of bytes: any string is one, so a fuzzer can make them up and a
//! file can keep them.
//!
//! ```text
//!   byte 0: the machine   byte 1: the host has a heavy barrier   then op codes, each with its
//!                                                                operands
//!
//!   decode   bytes -> calls, right and wrong ones  model  what must be true: one state a frame,
//!                                                         nothing else
//!   machines what the calls are made on            play   makes each call on both and compares
//!   made_up  more of them, made up from a number   rules  when a request must not fail
//! ```
//!
//! Shared by the fuzz target (`proofs/fuzz/fuzz_targets/operations.rs`) and the ordinary test that
//! replays its corpus (`tests/suite/byte_histories.rs`), so that what the fuzzer once found stays
//! found where there is no fuzzer.
#![allow(unreachable_pub)]

mod decode;
mod machines;
mod made_up;
mod model;
mod play;
mod rules;

/// Plays the history that `bytes` spell and checks everything there is to check; panics, naming the
/// call, where something is wrong. `FREEHOLD_HISTORY=1` in the environment prints every call before
/// it is made.
pub fn check(bytes: &[u8]) {
    History(bytes.to_vec()).check();
}

/// A history that is printed as calls.
pub struct History(pub Vec<u8>);

impl History {
    pub fn check(&self) {
        play::play(&decode::decode(&self.0));
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        decode::decode(&self.0).fmt(f)
    }
}
