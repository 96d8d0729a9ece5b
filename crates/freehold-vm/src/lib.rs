//! vm
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod area;
mod entry;
mod frames;
mod interval;
mod lock;
mod mmu;
mod page;
mod primitive;
mod runs;
mod table;
mod vmalloc;

pub use area::{Layout, VmallocError, VmallocStats};
pub use entry::Entry;
pub use frames::{FrameAllocator, free_array};
pub use interval::IntervalNode;
pub use mmu::{BATCH, Flush, FlushBatch, FlushKind, MapError, Mmu};
pub use page::{Access, SpaceId, Vpn, VpnRange};
pub use runs::RunNode;
pub use table::{AtomicEntry, PageTable, Slots, TABLE_ENTRIES};
pub use vmalloc::{Area, Vmalloc};
