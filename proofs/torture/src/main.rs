//! Whether an allocator keeps its word: on more threads than cores, near the end of memory, while
//! CPUs and memory come and go, and while threads stand still in the middle of a call.
//!
//! ```text
//! exact    exact/      one thread: each answer is compared with a table of all frames
//! mt       mt.rs       several threads: an owner of each frame in a ledger
//! nofalse  nofalse.rs  there is always a free chunk: no request may fail
//! stop     stand.rs    one thread stands still anywhere; the others get all else, without waiting
//! mark     mark.rs     threads that take all they get leave the min mark
//! ```
//!
//! `exact` and `mt` make every call there is (`exact/case`), and `exact/bounds.rs` has what each
//! may cost at most. Each case prints what it found as JSON.

#![deny(unsafe_code)]

mod cli;
/// What the core's own tests play with one thread.
#[path = "../../../crates/freehold/tests/suite/exact/mod.rs"]
mod exact;
mod mark;
mod mt;
mod nofalse;
mod stand;
#[allow(unsafe_code)]
mod stops;

fn main() -> std::process::ExitCode {
    cli::run()
}
