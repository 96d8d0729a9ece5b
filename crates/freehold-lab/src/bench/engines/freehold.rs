//! Freehold: a thread owns its CPU, and single frames, blocks and ranges go through the owner's
//! calls.

use freehold::{CpuId, FrameRange, Frames, Freehold, Migratetype, On, Order, Owned, Pfn, Request};

use crate::bench::calls::{Calls, Machine, Refused};
use crate::engines::{Barriers, FreeholdEngine, MachineConfig, leaked_freehold};
use crate::trials::simulated::Simulated;

pub struct FreeholdMachine<P: Barriers> {
    engine: FreeholdEngine<'static, 'static, P>,
}

impl<P: Barriers> FreeholdMachine<P> {
    /// A machine with so many CPUs and frames, and the kernel's watermarks.
    pub fn new(cpus: u16, frames: u64, platform: P) -> Result<Self, String> {
        let allocator = leaked_freehold(&MachineConfig::new(frames, cpus), platform)?;
        Ok(Self { engine: FreeholdEngine::new(allocator, Vec::new()) })
    }

    /// The calls that anybody may make, on that CPU.
    pub fn on(&self, cpu: CpuId) -> OnCpu<'_, P> {
        ByDoor(self.freehold().on(cpu))
    }

    pub fn freehold(&self) -> &'static Freehold<'static, P> {
        self.engine.allocator()
    }
}

impl<P: Barriers> Machine for FreeholdMachine<P> {
    type Cpu<'a> = FreeholdCpu<'a, P>;

    fn cpu(&self, cpu: CpuId) -> Result<FreeholdCpu<'_, P>, Refused> {
        Ok(ByDoor(self.freehold().own(cpu)?))
    }

    fn engine(&self) -> Option<&dyn Simulated> {
        Some(&self.engine)
    }
}

/// A CPU, by one of its ways in.
pub struct ByDoor<D>(D);

/// A CPU that this thread owns.
pub type FreeholdCpu<'a, P> = ByDoor<Owned<'a, 'static, P>>;
/// A CPU by the calls that name it and that anybody may make: what a host has that owns no CPUs.
pub type OnCpu<'a, P> = ByDoor<On<'a, 'static, P>>;

/// A single frame that can be moved.
const MOVABLE: Request = Request::new(Order::ZERO, Migratetype::Movable);

impl<D: Frames> Calls for ByDoor<D> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.0.alloc(Request::new(order, Migratetype::Movable))?)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        Ok(self.0.free(pfn, order)?)
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let (wanted, got) = (out.len(), self.0.alloc_bulk(MOVABLE, out)?);
        if got == wanted { Ok(()) } else { Err(Refused::Short { wanted, got }) }
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        Ok(self.0.free_bulk(frames)?)
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        Ok(self.0.free_range(range)?)
    }

    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.0.alloc(Request::new(order, Migratetype::Unmovable))?)
    }
}
