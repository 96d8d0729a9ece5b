//! Freehold behind the interfaces that kernels and programs already have.
//!
//! Each adapter is a feature, and none is on by default:
//!
//! | feature | interface | how it is used |
//! |---|---|---|
//! | `x86_64` | `FrameAllocator` and `FrameDeallocator` of the [`x86_64`](https://docs.rs/x86_64/0.15) crate, for 4 KiB, 2 MiB and 1 GiB | `mapper.map_to(page, frame, flags, &mut frames)`, with `frames` of `Frames::new(&freehold)` |
//! | `buddy` | `FrameAllocator` and `LockedFrameAllocator` of `buddy_system_allocator` | change `use buddy_system_allocator::…` to `use freehold_adapters::buddy::…` |
//! | `ostd` | `GlobalFrameAllocator` of Asterinas OSTD | a `static`, which takes its metadata out of the first memory it is given |
//! | `hermit` | `PageRangeAllocator` of the Hermit kernel, over the `free-list` crate's ranges and layouts | two functions on a type of the kernel's own |
//! | `host` | `Allocator` of `allocator-api2`, and `GlobalAlloc` | large buffers from a [hosted arena](https://docs.rs/freehold-host) of this process, small ones from the system |
//!
//! # What happens to a wrong free
//!
//! Freehold knows for every frame whether it is handed out. A free of a frame that is free, was
//! never handed out or does not exist is refused and changes nothing. Most of these interfaces
//! cannot report that: their frees return nothing. There the adapter **panics**, with the frame and
//! the reason; its `try_` functions return the reason instead. A free of frames that are in use by
//! *somebody else* cannot be seen. And of two frees at the same moment, one of them by the CPU that
//! leases the frame's word, neither may see the other: the frame is free once, and the platform's
//! `late_double_free` is told.
//!
//! All but `host` work without std; `buddy` needs a heap.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "buddy")]
extern crate alloc;
#[cfg(feature = "host")]
extern crate std;

#[cfg(feature = "buddy")]
pub mod buddy;
#[cfg(feature = "host")]
pub mod global;
#[cfg(feature = "hermit")]
pub mod hermit;
#[cfg(feature = "host")]
pub mod large;
#[cfg(feature = "ostd")]
pub mod ostd;
#[cfg(any(feature = "buddy", feature = "ostd", feature = "hermit"))]
mod run;
#[cfg(feature = "x86_64")]
pub mod x86_64;

/// The page for whoever embeds the allocator; here so that its code is compiled and run.
#[cfg(all(doctest, feature = "host"))]
#[doc = include_str!("../../../docs/kernels.md")]
pub struct Kernels;

/// The page that package registries show, here so that its example is compiled and run.
#[cfg(all(doctest, feature = "host"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
