//! `buddy_system_allocator`, what most Rust kernels embed, behind the spin lock that it ships.

use buddy_system_allocator::LockedFrameAllocator;
use freehold::{CpuId, FrameRange, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused, START};

/// Its frame allocator, shared as its users share it: one lock around all of it, taken by each
/// call.
pub struct BuddySystem {
    shared: LockedFrameAllocator,
}

impl BuddySystem {
    pub fn new(frames: u64) -> Self {
        let shared = LockedFrameAllocator::new();
        shared.lock().insert(START.get() as usize..(START.get() + frames) as usize);
        Self { shared }
    }
}

impl Machine for BuddySystem {
    type Cpu<'a> = &'a Self;

    fn cpu(&self, _: CpuId) -> Result<&Self, Refused> {
        Ok(self)
    }
}

impl Calls for &BuddySystem {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        let first = self.shared.lock().alloc(order.frames() as usize);
        first.map(|first| Pfn::new(first as u64)).ok_or(Refused::NoMemory)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        self.shared.lock().dealloc(pfn.get() as usize, order.frames() as usize);
        Ok(())
    }

    /// It has no bulk call; the least that a user could do is to take the lock once.
    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let mut shared = self.shared.lock();
        for out in out {
            *out = Pfn::new(shared.alloc(1).ok_or(Refused::NoMemory)? as u64);
        }
        Ok(())
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        let mut shared = self.shared.lock();
        frames.iter().for_each(|pfn| shared.dealloc(pfn.get() as usize, 1));
        Ok(())
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        self.shared.lock().dealloc(range.start.get() as usize, range.len() as usize);
        Ok(())
    }
}
