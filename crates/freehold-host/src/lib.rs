// What registries show, with its example compiled and run.
#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! [`freehold`](crate::freehold) does the accounting, in bitmaps beside the memory, without
//! touching it. This crate brings the memory and the CPUs:
//!
//! ```text
//!                 an Arena
//!  addresses      base (a multiple of 1 GiB)                              base + size
//!  memory         |##block##|##block##|.........|##block##|.........|.........|
//!                  2 MiB, 512 frames    given back         not touched yet: costs nothing
//!  PFN            base >> 12                              a frame's PFN is its address >> 12
//!
//!  beside it      engine    100 bytes a block: which frames are free, which CPUs lease words
//!                 notes      68 bytes a block: does the OS back it, which frames are still zero
//!                 marks     128 bytes a block: which frames a thread that frees them may keep
//!                 stamp      one page that reads 0 in a forked child
//!
//!  threads        thread A -> CPU 0, its own:  plain loads and stores
//!                 thread B -> CPU 1, its own
//!                 thread X -> CPU E, shared:   a lock      (more threads than slots)
//! ```
//!
//! # fork
//!
//! In a child of `fork` every call on the arena returns [`Error::Forked`] without touching a lock,
//! handles that are dropped free nothing, and the parent is not affected. [`OnFork`] chooses what a
//! child finds at the frames' addresses. A child that needs frames makes an arena of its own.
//!
//! # I/O into frames
//!
//! Reading into a frame, or writing from it, with `read(2)`, `O_DIRECT` or an io_uring without
//! registered buffers is like any use of memory. It is different where the kernel or a device is
//! told of memory **once** and remembers its pages: `IORING_REGISTER_BUFFERS`, RDMA memory regions,
//! `AF_XDP` umems, VFIO. Memory that is given back and touched again is another page, and their
//! writes go to the old one. So such memory wants an arena of its own, a [pinned](Builder::pinned)
//! one: nothing of it is given back. It is registered once, and allocated and freed as ever.
//!
//! In a process that forks, [`OnFork::Unmapped`] spares the kernel copying pinned pages.
//!
//! What can go wrong, and what costs more than one might expect: `docs/userspace.md`.

#![warn(missing_docs)]

#[cfg(not(unix))]
compile_error!("freehold-host is for Linux and macOS: it is made of their memory and thread calls");

// Elsewhere the line above is the only error, not the first of hundreds.
#[cfg(unix)]
#[path = "."]
mod unix {
    pub(crate) mod arena;
    pub(crate) mod builder;
    #[cfg(test)]
    #[path = "../tests/common/child.rs"]
    pub(crate) mod child;
    pub(crate) mod core;
    pub(crate) mod descriptors;
    pub(crate) mod error;
    pub(crate) mod frames;
    pub(crate) mod guard;
    pub(crate) mod host;
    pub(crate) mod huge;
    pub(crate) mod key;
    pub(crate) mod mapping;
    pub(crate) mod marks;
    #[cfg(test)]
    pub(crate) mod meanwhile;
    pub(crate) mod memory;
    pub(crate) mod notes;
    pub(crate) mod numa;
    pub(crate) mod pass;
    pub(crate) mod psi;
    pub(crate) mod release;
    pub(crate) mod runs;
    pub(crate) mod slots;
    pub(crate) mod stamp;
    pub(crate) mod stats;
    pub(crate) mod stops;
    pub(crate) mod sys;
    pub(crate) mod tenants;
    pub(crate) mod thread;
    pub(crate) mod view;
    pub(crate) mod watch;

    pub use self::arena::{Arena, Evacuated, Handle};
    pub use self::builder::{Builder, Lock};
    pub use self::error::Error;
    pub use self::frames::Frames;
    pub use self::memory::{Backing, OnFork};
    pub use self::numa::{Numa, Topology};
    pub use self::pass::Released;
    pub use self::psi::Psi;
    pub use self::stats::Stats;
    pub use self::tenants::{Cause, Limits, Tenant, Tenants, Usage};
    pub use self::view::View;
    pub use self::watch::{Exhausted, Pressure};
    pub use freehold;
}

#[cfg(unix)]
pub use unix::*;

/// The project's front page; here so that its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct FrontPage;
