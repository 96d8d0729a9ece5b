// What registries show, with its example compiled and run.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
//!
//! # Overview
//!
//! A machine's memory is an array of **frames** of 4 KiB, named by their **PFN** ([`Pfn`]).
//! Requests are for `2^order` neighbouring, naturally aligned frames ([`Order`], up to 1 GiB). 512
//! frames (2 MiB) form a **pageblock**, whose **migratetype** ([`Migratetype`]) says what kind of
//! allocation it is meant for, so that frames which can never move do not end up scattered over all
//! of memory. Allocators keep state per **CPU** ([`CpuId`]).
//!
//! Free frames are bits in their block's eight words. A CPU **leases** such words. The zone's
//! **scoreboard** says which block has a free run of which size; frees and failed searches correct
//! it. The caller hands over the metadata memory, which is written section by section when first
//! used, and a few KiB for each CPU.
//!
//! | room | what |
//! |---|---|
//! | `types` | the types of the interface |
//! | `boot` | from a memory map to an allocator in one call |
//! | `block` | a pageblock: words, tag, leases, class; the way from a PFN to it |
//! | `cpu` | what a CPU has: leases, what it freed last, a whole block or two, and the door to it |
//! | `zone` | the bitmap of whole blocks, the scoreboard of the others, watermarks |
//! | `alloc` | allocating: the fast way, and the ladder of the slow one |
//! | `free` | freeing |
//! | `memory` | memory that comes and goes, is emptied, or is asked for by its place |
//! | `calls` | one handle type, several doors to its CPU |
//! | `inspect` | statistics, and the walk that proves the invariants |
//!
//! Where to read on: [`Handle`], with its names [`On`] and [`Owned`], for the calls, and [`Frames`]
//! for code that does not care whose they are; [`Platform`] for what the host brings; [`Config`]
//! for zones, nodes and watermarks.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "freehold needs 64-bit atomics, which this target lacks: a word of 64 frames is one"
);

#[cfg(any(test, feature = "std"))]
extern crate std;

mod alloc;
mod block;
mod boot;
mod calls;
mod cpu;
mod free;
mod freehold;
mod inspect;
mod memory;
mod platform;
#[cfg_attr(any(test, loom), macro_use)]
mod primitive;
#[cfg(test)]
mod tests;
#[cfg(feature = "std")]
mod threads;
mod types;
mod zone;

pub use alloc::pick::RefillPhase;
pub use alloc::reserve::Reserve;
#[doc(hidden)]
pub use alloc::runs::Fit;
pub use boot::BootError;
pub use calls::{Anybody, Door, Frames, Handle, On, Owned, Owner};
pub use freehold::Freehold;
pub use inspect::stats::{CpuStats, PageblockState, Totals, ZoneBlocks, ZoneStats};
pub use inspect::validate::Violation;
pub use memory::evacuate::{Emptiest, Evacuation, SparseBlock};
pub use memory::hotplug::HotplugError;
pub use platform::{Platform, Pressure, PressureLevel, SingleCpu};
#[cfg(feature = "std")]
pub use threads::Threads;
pub use types::Migratetype;
pub use types::config::{Config, ConfigError, Watermarks, ZoneConfig};
pub use types::error::{AllocError, BulkFreeError, FreeError};
pub use types::request::{AllocFlags, Request};
pub use types::{CpuId, NodeId};
pub use types::{FrameRange, ORDERS, Order, Pfn};

/// Frames in a pageblock: 512, which is 2 MiB of 4 KiB frames.
pub const PAGEBLOCK_FRAMES: u64 = 1 << Order::PAGEBLOCK.get();

/// Bytes in a frame.
pub const FRAME_SIZE: u64 = 4096;
