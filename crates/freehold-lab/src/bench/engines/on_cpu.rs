//! Freehold by the calls that name their CPU and that anybody may make: what a host has that owns no CPUs.

use freehold::{CpuId, FrameRange, Freehold, Migratetype, On, Order, Pfn, Platform, Request};

use super::freehold::{FreeholdMachine, MOVABLE};
use crate::bench::calls::{Calls, Refused};

/// A CPU of a machine, by calls that anybody may make.
pub struct OnCpu<'a, P: Platform> {
    freehold: &'a Freehold<'static, P>,
    on: On<'a, 'static, P>,
}

impl<P: Platform> FreeholdMachine<P> {
    /// The calls that anybody may make, on that CPU.
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> OnCpu<'_, P> {
        OnCpu { freehold: self.freehold(), on: self.freehold().on(cpu) }
    }
}

impl<P: Platform> Calls for OnCpu<'_, P> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.on.alloc(Request::new(order, Migratetype::Movable))?)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        Ok(self.on.free(pfn, order)?)
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let (wanted, got) = (out.len(), self.on.alloc_bulk(MOVABLE, out)?);
        if got == wanted { Ok(()) } else { Err(Refused::Short { wanted, got }) }
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        Ok(self.on.free_bulk(frames)?)
    }

    /// Nothing to do: any part of what was allocated can be freed.
    #[inline(always)]
    fn split(&mut self, _: Pfn, _: Order) -> Result<(), Refused> {
        Ok(())
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        Ok(self.on.free_range(range)?)
    }

    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.on.alloc(Request::new(order, Migratetype::Unmovable))?)
    }

    fn alloc_contig(&mut self, range: FrameRange) -> Result<FrameRange, Refused> {
        self.freehold.alloc_contig_range(range, |_| false)?;
        Ok(range)
    }
}
