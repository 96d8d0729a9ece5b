//! Vocabulary of page-frame allocation, shared by every crate of the workspace.
//!
//! A machine's memory is an array of **frames** of 4 KiB, named by their **PFN** ([`Pfn`]). Requests are for
//! `2^order` neighbouring, naturally aligned frames ([`Order`]). 512 frames (2 MiB) form a **pageblock**, whose
//! **migratetype** ([`Migratetype`]) says what kind of allocation it is meant for, so that frames which can never
//! move do not end up scattered over all of memory. Allocators keep state per **CPU** ([`CpuId`]).
//!
//! ```
//! use freehold::{Order, Pfn};
//!
//! let block = Pfn::new(0x1234).pageblock();
//! assert_eq!(block, Pfn::new(0x1200));
//! assert_eq!(Order::PAGEBLOCK.frames(), 512);
//! assert!(block.is_aligned(Order::PAGEBLOCK));
//! ```

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod alloc;
mod biased;
mod bits;
mod block;
#[expect(unsafe_code, reason = "cuts the caller's memory into slices; see there")]
mod carve;
mod config;
mod cpu;
mod drain;
mod error;
mod flags;
mod free;
mod freehold;
mod handle;
mod holder;
mod hotplug;
mod inbox;
mod isolate;
mod large;
mod limits;
mod map;
mod migratetype;
mod order;
mod percpu;
mod pfn;
mod platform;
mod primitive;
mod refill;
mod remote;
mod report;
mod request;
mod shelf;
mod stats;
mod steal;
mod validate;
mod wholes;
mod zone;

#[cfg(all(test, loom))]
mod loom_tests;

pub use config::{Config, ConfigError, Watermarks, ZoneConfig};
pub use cpu::{CpuId, NodeId};
pub use error::{AllocError, BulkFreeError, FreeError};
pub use flags::AllocFlags;
pub use freehold::Freehold;
pub use handle::{On, Owned};
pub use hotplug::HotplugError;
pub use migratetype::Migratetype;
pub use order::Order;
pub use pfn::{FrameRange, Pfn};
pub use platform::{Platform, Pressure, PressureLevel, SingleCpu};
pub use report::Totals;
pub use request::Request;
pub use stats::{CpuStats, ORDERS, RefillPhase, WORK_BUCKETS, ZoneStats};
pub use validate::Violation;

/// Frames in a pageblock: 512, which is 2 MiB of 4 KiB frames.
pub const PAGEBLOCK_FRAMES: u64 = 1 << Order::PAGEBLOCK.get();

/// Bytes in a frame.
pub const FRAME_SIZE: u64 = 4096;
