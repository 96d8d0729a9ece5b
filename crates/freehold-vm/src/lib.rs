// What registries show, with its example compiled and run.
#![doc = include_str!("../README.md")]
//!
//! # Why
//!
//! Linux's reclaim cleared the entries of a large folio one by one, with an update of the folio's
//! state for each, so that the folio was partly mapped in between. Here neighbouring pages are
//! mapped, unmapped, flushed and freed together.
//!
//! ```text
//!                  Vm
//!    folios, reverse map, lists       Space: VMAs, page tables
//!    madvise_free, reclaim, split
//!          |                \
//!    Frames (freehold)       Mmu: map, flush, get-and-clear
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
//!
//! Where to read on: [`Mmu`] for hosts and kernels; `unmap.rs` for reclaim.

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod access;
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
mod soft;
mod space;
mod split;
mod stats;
mod table;
mod unmap;
mod vm;

#[cfg(all(test, loom))]
mod loom_tests;

pub use entry::Entry;
pub use error::VmError;
pub use folio::Frame;
pub use freehold::Frames;
pub use interval::IntervalNode;
pub use mmu::{BATCH, Flush, FlushBatch, FlushKind, MapError, Mmu};
pub use page::{Access, SpaceId, Vpn, VpnRange};
pub use rmap::Mapping;
pub use soft::{SoftMmu, SoftStats};
pub use space::{Fault, Space, Vma};
pub use stats::VmStats;
pub use table::{AtomicEntry, PageTable, Slots, TABLE_ENTRIES};
pub use vm::{Folio, FolioState, UnmapPath, Vm};
