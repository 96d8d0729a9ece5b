//! No engine at all: what of producer and consumer is the ring between them, of a simulated program
//! its own steps.

use freehold::{CpuId, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused, START};

/// Hands out numbers and forgets them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingAlone;

impl Machine for RingAlone {
    type Cpu<'a> = RingAloneCpu;

    fn cpu(&self, _: CpuId) -> Result<RingAloneCpu, Refused> {
        Ok(RingAloneCpu { next: 0 })
    }
}

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
    fn free_chunks(&mut self, chunks: &[(Pfn, Order)]) -> Result<(), Refused> {
        std::hint::black_box(chunks);
        Ok(())
    }
}
