//! No engine at all: what of producer and consumer is the ring between them.

use freehold::{CpuId, FrameRange, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused, START};

/// Hands out numbers and forgets them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingAlone;

impl Machine for RingAlone {
    type Cpu<'a> = RingAloneCpu;

    fn cpu(&self, _: CpuId) -> Result<RingAloneCpu, Refused> {
        Ok(RingAloneCpu { next: 0 })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        Ok(())
    }
}

/// Counts.
#[derive(Debug)]
pub struct RingAloneCpu {
    next: u64,
}

impl Calls for RingAloneCpu {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        self.next += order.frames();
        Ok(Pfn::new(START.get() + self.next))
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, _: Order) -> Result<(), Refused> {
        std::hint::black_box(pfn);
        Ok(())
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        out.iter_mut().try_for_each(|out| self.alloc(Order::ZERO).map(|pfn| *out = pfn))
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        std::hint::black_box(frames);
        Ok(())
    }

    #[inline(always)]
    fn split(&mut self, _: Pfn, _: Order) -> Result<(), Refused> {
        Ok(())
    }

    #[inline(always)]
    fn free_range(&mut self, _: FrameRange) -> Result<(), Refused> {
        Ok(())
    }
}
