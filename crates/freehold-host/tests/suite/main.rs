//! Arenas and virtual memory as programs use them, in one process: what needs one of its own is in
//! `kernel/`, or a test program by itself.

#[path = "../common/mod.rs"]
mod common;
mod evacuate;
mod examples;
mod extend;
mod guarded;
mod handles;
#[path = "../../../freehold/tests/suite/length.rs"]
#[allow(unreachable_pub)]
mod length;
mod lengths;
mod model;
mod release;
mod tenants;
mod threads;
mod waiting;
