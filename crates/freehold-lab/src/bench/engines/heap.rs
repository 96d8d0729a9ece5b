//! Malloc families, for blocks of pages: called directly, never installed as this program's
//! allocator.
//!
//! A user who wants buffers of pages from a malloc asks for 4 KiB << order bytes aligned to 4 KiB
//! (`posix_memalign`). Alignment to the block's whole size is what frames have by themselves; to
//! ask a malloc for that would be to measure its padding. What comes back is an address; its number
//! in units of 4 KiB stands for the frame. Their memory is theirs: they map it, fault it in, write
//! their own lists into it and give it back when they like, which is what their users get.

use std::alloc::{GlobalAlloc, Layout};

use freehold::{CpuId, FRAME_SIZE, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused};

const FRAME: usize = FRAME_SIZE as usize;

#[derive(Clone, Copy, Debug)]
pub struct HeapMachine<A> {
    heap: A,
}

impl<A> HeapMachine<A> {
    pub fn new(heap: A) -> Self {
        Self { heap }
    }
}

impl<A: GlobalAlloc + Sync> Machine for HeapMachine<A> {
    type Cpu<'a>
        = &'a Self
    where
        A: 'a;

    /// Any thread: they keep their own lists by thread.
    fn cpu(&self, _: CpuId) -> Result<&Self, Refused> {
        Ok(self)
    }
}

/// A block of that order, aligned to a page. Orders are at most 18: 1 GiB.
#[inline(always)]
fn layout(order: Order) -> Result<Layout, Refused> {
    Layout::from_size_align(FRAME << order.get(), FRAME).map_err(|_| Refused::NoMemory)
}

impl<A: GlobalAlloc + Sync> Calls for &HeapMachine<A> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        // SAFETY: the size is not 0.
        let block = unsafe { self.heap.alloc(layout(order)?) };
        if block.is_null() {
            return Err(Refused::NoMemory);
        }
        Ok(Pfn::new((block.expose_provenance() / FRAME) as u64))
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        let block = std::ptr::with_exposed_provenance_mut(pfn.get() as usize * FRAME);
        // SAFETY: benchmarks free only what they were given, once and with the order they asked
        // for.
        unsafe { self.heap.dealloc(block, layout(order)?) };
        Ok(())
    }
}
