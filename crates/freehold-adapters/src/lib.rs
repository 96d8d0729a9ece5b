// What registries show, with its example compiled and run.
#![cfg_attr(feature = "ostd", doc = include_str!("../README.md"))]
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
//! # Frames of the `x86_64` crate
//!
//! Its traits want `&mut self`, and the allocator is everybody's. So what implements them is a
//! handle, of which there may be any number. A page's size says the order:
//!
//! ```
//! use freehold::{Migratetype, Order, Pfn, Request};
//! use x86_64::PhysAddr;
//! use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};
//!
//! struct Frames<S>(S); // `&Freehold`, or a CPU's own handle
//!
//! const fn order<Z: PageSize>() -> Order {
//!     Order::fitting(Z::SIZE / freehold::FRAME_SIZE).expect("a page is at least a frame")
//! }
//!
//! // SAFETY: the source hands out a frame to one caller at a time, until it is freed.
//! unsafe impl<S: freehold::Frames, Z: PageSize> FrameAllocator<Z> for Frames<S> {
//!     fn allocate_frame(&mut self) -> Option<PhysFrame<Z>> {
//!         let pfn = self.0.alloc(Request::new(order::<Z>(), Migratetype::Unmovable)).ok()?;
//!         Some(PhysFrame::containing_address(PhysAddr::new(pfn.get() * freehold::FRAME_SIZE)))
//!     }
//! }
//!
//! impl<S: freehold::Frames, Z: PageSize> FrameDeallocator<Z> for Frames<S> {
//!     unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Z>) {
//!         let pfn = Pfn::new(frame.start_address().as_u64() / freehold::FRAME_SIZE);
//!         self.0.free(pfn, order::<Z>()).expect("the frame was handed out, and is freed once");
//!     }
//! }
//! # use freehold::{Config, FrameRange, Freehold, Threads, ZoneConfig};
//! # use x86_64::structures::paging::{Size2MiB, Size4KiB};
//! # let memory = [FrameRange::new(Pfn::new(0x1000), 1 << 15).unwrap()];
//! # let zones = [ZoneConfig::new(&memory)];
//! # let all = Freehold::leaked(&Config::new(1, &zones), Threads::new(1)).unwrap();
//! # let free = || all.zone_stats(0).unwrap().free;
//! # let before = free();
//! # let mut frames = Frames(&all);
//! # let table: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
//! # let huge: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
//! # assert_eq!((huge.start_address().as_u64() % (2 << 20), before - free()), (0, 513));
//! # unsafe { frames.deallocate_frame(table) };
//! # unsafe { frames.deallocate_frame(huge) };
//! # assert_eq!(free(), before);
//! ```
//!
//! # Interfaces that are two calls
//!
//! The frame allocators of `buddy_system_allocator`, and Hermit's `PageRangeAllocator`, hand out
//! any number of frames in a row. Behind them go [`alloc_contig_free`] over all of memory and
//! [`free_range`] of any part; what is aligned to its size, and a power of two, is faster by `alloc`
//! with a request. `alloc_at` and `allocate_at` are `alloc_contig_range` with a `migrate` that moves
//! nothing.
//!
//! [`alloc_contig_free`]: freehold::Freehold::alloc_contig_free
//! [`free_range`]: freehold::Frames::free_range

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(feature = "ostd")]
pub mod ostd;

/// The page on embedding the allocator; here so that its code is compiled and run.
#[cfg(all(doctest, feature = "ostd"))]
#[doc = include_str!("../../../docs/kernels.md")]
pub struct Kernels;
