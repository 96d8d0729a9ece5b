//! vm
#![no_std]
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

pub use access::WriteFault;
pub use area::{Layout, VmallocError, VmallocStats};
pub use entry::Entry;
pub use error::VmError;
pub use folio::Frame;
pub use frames::{FrameAllocator, free_array};
pub use interval::IntervalNode;
pub use mmu::{BATCH, Flush, FlushBatch, FlushKind, MapError, Mmu};
pub use page::{Access, SpaceId, Vpn, VpnRange};
pub use rmap::Mapping;
pub use runs::RunNode;
pub use soft::{SoftMmu, SoftStats};
pub use space::{Fault, Space, Vma};
pub use stats::VmStats;
pub use table::{AtomicEntry, PageTable, Slots, TABLE_ENTRIES};
pub use vm::{Folio, FolioState, UnmapPath, Vm};
pub use vmalloc::{Area, Vmalloc};
