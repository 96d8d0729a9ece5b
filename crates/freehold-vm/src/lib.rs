// What registries show, with its example compiled and run.
#![doc = include_str!("../README.md")]
//!
//! ```text
//!            Vmalloc                        Vm
//!    areas in an interval tree     folios, reverse map, lists     Space: VMAs, page tables
//!    frames as runs                madvise_free, reclaim, split
//!          |        \                /        |
//!          |         Mmu: map, unmap, flush,  |
//!          |              get-and-clear       |
//!          +------------- Frames ---------+
//!                        (freehold)
//! ```
//!
//! There is no heap: the caller hands over slices of records, whose sizes bound everything. The
//! only unsafe code is a lock.
//!
//! # Lazyfree folios
//!
//! `madvise_free` says of pages that their contents may be dropped, unless they are written to
//! again. Reclaim later clears the folio's entries. Only then can it know whether a page was
//! written to or is pinned; if so, it puts the entries back exactly as they were. [`UnmapPath`]
//! chooses between page by page and batches.
//!
//! ```
//! # use freehold::{Config, FrameRange, Freehold, Order, Pfn, SingleCpu, ZoneConfig};
//! use freehold_vm::{
//!     Access, Frame, IntervalNode, Mapping, PageTable, SoftMmu, Space, SpaceId, Vm, Vma, Vpn,
//!     VpnRange,
//! };
//!
//! # let memory = [FrameRange::new(Pfn::new(0x1000), 1 << 14).unwrap()];
//! # let frames = Freehold::leaked(&Config::new(1, &[ZoneConfig::new(&memory)]), SingleCpu)?;
//! // Records for 16384 frames, 64 mappings, and an address space of 4 MiB with room for 8 VMAs.
//! let records: Vec<Frame> = (0..1 << 14).map(|_| Frame::new()).collect();
//! let mappings: Vec<Mapping> = (0..64).map(|_| Mapping::new()).collect();
//! let tables = [PageTable::new(), PageTable::new()];
//! let mut vmas = [IntervalNode::new(); 8];
//! let spaces = [Space::new(SpaceId::new(0), Vpn::new(0), &tables, &mut vmas)];
//! let vm = Vm::new(SoftMmu::<1>::new(), Pfn::new(0x1000), &records, &mappings, &spaces);
//!
//! let (space, all) = (SpaceId::new(0), VpnRange::new(Vpn::new(0), 1024).unwrap());
//! vm.add_vma(space, all, Vma { access: Access::ReadWrite, droppable: false })?;
//! for i in 0..4 {
//!     vm.map_new(&frames, space, Vpn::new(i * 16), Order::new(4).unwrap(), Access::ReadWrite)?;
//! }
//! assert_eq!(vm.madvise_free(&frames, space, all)?, 64);
//! // Somebody writes to one page of the second folio: that folio stays.
//! vm.touch(space, Vpn::new(20), true)?;
//! assert_eq!(vm.madvise_pageout(&frames, space, all)?, 48);
//! let stats = vm.stats();
//! assert_eq!((stats.reclaimed_folios, stats.redirtied), (3, 1));
//! assert_eq!((stats.reclaim_flushes, stats.deferred_queued), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Not a byte is lost.** What was written after `madvise_free` has returned, through an entry
//!   or through a pin, stays until the page is unmapped or advised again. That rests on three
//!   properties of the machine, spelt out at [`Mmu`], and on the order of four steps (clear, full
//!   barrier, count references, look at the dirty flag).
//! - **No frame is freed while a CPU may reach it.** Flushes are collected, of several ranges,
//!   folios and address spaces, and done once, before the frames are freed. A call that maps,
//!   unmaps or protects in an address space where reclaim has a flush outstanding does that flush
//!   first.
//! - **No half-way state.** A folio that is unmapped in one batch or several counts as mapped until
//!   the last; the deferred-split queue never sees it, unless it is written to meanwhile.
//! - **Restored entries have their own rights**, since entries that are cleared together agree on
//!   them.
//!
//! # What is not here
//!
//! There is no swap, no page cache and no copy on write. Page tables are one level deep and as many
//! as the caller gives; hardware tables are an [`Mmu`] implementation's. Folios of a whole 2 MiB
//! are mapped by 512 entries, unless [`Vm::set_pmd_mappings`] asks for one.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod access;
mod area;
mod entry;
mod error;
mod folio;
mod frames;
mod interval;
mod lock;
mod madvise;
mod mapping;
mod mmu;
mod page;
mod primitive;
mod protect;
mod reclaim;
mod rmap;
mod runs;
mod soft;
mod space;
mod split;
mod stats;
mod table;
mod unmap;
mod vm;
mod vmalloc;

#[cfg(all(test, loom))]
mod loom_tests;

pub use area::{Layout, VmallocError, VmallocStats};
pub use entry::Entry;
pub use error::VmError;
pub use folio::Frame;
pub use freehold::Frames;
pub use interval::IntervalNode;
pub(crate) use mmu::FlushBatch;
pub use mmu::{BATCH, Flush, FlushKind, MapError, Mmu};
pub use page::{Access, SpaceId, Vpn, VpnRange};
pub use rmap::Mapping;
pub use runs::RunNode;
pub use soft::{SoftMmu, SoftStats};
pub use space::{Fault, Space, Vma};
pub use stats::VmStats;
pub use table::{PageTable, Slots, TABLE_ENTRIES};
pub use vm::{Folio, FolioState, UnmapPath, Vm};
pub use vmalloc::{Area, Vmalloc};
