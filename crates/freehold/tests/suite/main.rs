//! The allocator from outside: everything that uses only its public interface, on simulated memory.
//!
//! One program and not one for each file: each program more compiles and links the allocator once
//! more, in every build that runs these tests (plain, poisoned, under sanitizers, on 32 bits),
//! which took longer than the tests themselves. One file's tests:
//! `cargo test -p freehold --test suite placement::`.

mod common;
mod exact;

mod board;
mod boot;
mod each_call_alone;
mod histories;
mod histories_of_audits;
mod large_machines;
#[allow(unreachable_pub)]
mod length;
mod placement;
#[cfg(feature = "debug-poison")]
mod poison;
mod regions;
mod what_kernels_meet;
mod work_in_exact_counts;
mod zones_and_hotplug;
