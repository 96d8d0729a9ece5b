//! The `bitmap-allocator` crate, which several Rust kernels use for frames: a tree of 16-bit
//! bitmaps, behind a spin lock.

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use freehold::{CpuId, FrameRange, FreeError, Order, Pfn};
use spin::Mutex;

use crate::bench::calls::{Calls, Machine, Refused, START};

/// One lock around all of it, as its users have it.
pub struct BitmapMachine {
    shared: Box<Mutex<BitAlloc1M>>,
}

impl BitmapMachine {
    pub fn new(frames: u64) -> Result<Self, String> {
        if frames > BitAlloc1M::CAP as u64 {
            return Err(format!("{frames} frames are more than its {} bits", BitAlloc1M::CAP));
        }
        let shared = Box::new(Mutex::new(BitAlloc1M::DEFAULT));
        shared.lock().insert(0..frames as usize);
        Ok(Self { shared })
    }
}

impl Machine for BitmapMachine {
    type Cpu<'a> = BitmapCpu<'a>;

    fn cpu(&self, _: CpuId) -> Result<BitmapCpu<'_>, Refused> {
        Ok(BitmapCpu { shared: &self.shared })
    }
}

pub struct BitmapCpu<'a> {
    shared: &'a Mutex<BitAlloc1M>,
}

const fn pfn(bit: usize) -> Pfn {
    Pfn::new(START.get() + bit as u64)
}

#[inline(always)]
fn bit(pfn: Pfn) -> usize {
    (pfn.get() - START.get()) as usize
}

#[inline(always)]
fn taken_back(done: bool, pfn: Pfn) -> Result<(), Refused> {
    if done { Ok(()) } else { Err(Refused::Free(FreeError::DoubleFree { pfn })) }
}

impl Calls for BitmapCpu<'_> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        let mut shared = self.shared.lock();
        let first = match order {
            Order::ZERO => shared.alloc(),
            _ => shared.alloc_contiguous(None, order.frames() as usize, usize::from(order.get())),
        };
        first.map(pfn).ok_or(Refused::NoMemory)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        let mut shared = self.shared.lock();
        let done = match order {
            Order::ZERO => shared.dealloc(bit(pfn)),
            _ => shared.dealloc_contiguous(bit(pfn), order.frames() as usize),
        };
        taken_back(done, pfn)
    }

    /// It has no bulk call; the least that a user could do is to take the lock once.
    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let mut shared = self.shared.lock();
        for out in out {
            *out = shared.alloc().map(pfn).ok_or(Refused::NoMemory)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        let mut shared = self.shared.lock();
        frames.iter().try_for_each(|&pfn| taken_back(shared.dealloc(bit(pfn)), pfn))
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        let done = self.shared.lock().dealloc_contiguous(bit(range.start), range.len() as usize);
        taken_back(done, range.start)
    }
}
