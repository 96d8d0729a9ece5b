//! Freehold behind the interfaces that kernels and programs already have.
//!
//! Each adapter is a feature, and none is on by default:
//!
//! | feature | interface | how it is used |
//! |---|---|---|
//! | `x86_64` | `FrameAllocator` and `FrameDeallocator` of the [`x86_64`](https://docs.rs/x86_64/0.15) crate, for 4 KiB, 2 MiB and 1 GiB | `mapper.map_to(page, frame, flags, &mut frames)`, with `frames` of `Frames::new(&freehold)` |
//! | `ostd` | `GlobalFrameAllocator` of Asterinas OSTD | a `static`, which takes its metadata out of the first memory it is given |
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
//! All but `host` work without std.
//!
//! # Interfaces that are two calls
//!
//! The frame allocators of `buddy_system_allocator`, and Hermit's `PageRangeAllocator`, hand out
//! any number of frames in a row. Behind them go a search and a free of any range; what is aligned
//! to its size, and a power of two, is faster by `alloc` with a request:
//!
//! ```
//! use freehold::{AllocError, FrameRange, Freehold, FreeError, Order, Pfn, Platform};
//!
//! /// `count` frames in a row, the first a multiple of `align`.
//! fn alloc<P: Platform>(
//!     frames: &Freehold<'_, P>,
//!     count: u64,
//!     align: Order,
//! ) -> Result<FrameRange, AllocError> {
//!     let everywhere = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };
//!     frames.alloc_contig_free(count, align, everywhere)
//! }
//!
//! /// What was allocated, or any part of it. A wrong free changes nothing.
//! fn dealloc<P: Platform>(frames: &Freehold<'_, P>, range: FrameRange) -> Result<(), FreeError> {
//!     frames.here().free_range(range)
//! }
//!
//! # use freehold::{Config, Threads, ZoneConfig};
//! # let memory = [FrameRange::new(Pfn::new(0x1000), 1 << 15).unwrap()];
//! # let zones = [ZoneConfig::new(&memory)];
//! # let frames = Freehold::leaked(&Config::new(1, &zones), Threads::new(1)).unwrap();
//! let range = alloc(&frames, 5, Order::new(2).unwrap()).unwrap();
//! assert_eq!((range.len(), range.start.get() % 4), (5, 0));
//! dealloc(&frames, range).unwrap();
//! assert!(dealloc(&frames, range).is_err());
//! ```
//!
//! `alloc_at` and `allocate_at` are `alloc_contig_range` with a `migrate` that moves nothing.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "host")]
extern crate std;

#[cfg(feature = "host")]
pub mod global;
#[cfg(feature = "host")]
pub mod large;
#[cfg(feature = "ostd")]
pub mod ostd;
#[cfg(feature = "ostd")]
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
