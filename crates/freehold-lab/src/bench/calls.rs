//! What a benchmark asks of an engine.
//!
//! Unlike [`crate::engine::Engine`], which replays drive through a trait object, these traits are
//! for static dispatch: the loops in [`super::loops`] and [`super::threads`] are generic and
//! compiled once for each engine, so that no call through a table is added to work that takes two
//! or three nanoseconds. It is the same source for all of them; what the compiler inlines of an
//! engine is what it would inline for a user of that engine's crate.

use freehold::{AllocError, BulkFreeError, CpuId, FrameRange, FreeError, Order, Pfn};

use crate::trials::simulated::{Simulated, accounted};

/// Where every engine's memory starts: 4 GiB, as zone Normal does on x86-64.
pub const START: Pfn = Pfn::new(1 << 20);

/// An engine with some memory and some CPUs, all of it free at first.
pub trait Machine: Sync {
    /// What a thread that plays a CPU uses.
    type Cpu<'a>: Calls
    where
        Self: 'a;

    /// Becomes a CPU. One thread at a time for each.
    fn cpu(&self, cpu: CpuId) -> Result<Self::Cpu<'_>, Refused>;

    /// What it counts, and can be asked about itself; `None` where that is nothing.
    fn engine(&self) -> Option<&dyn Simulated> {
        None
    }

    /// Gives everything that CPUs hold back, so that each run begins alike; nothing where CPUs hold
    /// nothing.
    fn drain(&self) {
        if let Some(engine) = self.engine() {
            engine.drain_all();
        }
    }

    /// Checks the engine where it can be checked: consistent, and `live` frames in use.
    fn check(&self, live: u64) -> Result<(), String> {
        let Some(engine) = self.engine() else { return Ok(()) };
        engine.validate()?;
        accounted(engine, live)
    }

    /// How often the zone's lock has been taken since it was made, exact while nobody uses it.
    /// `None` of an engine that does not count.
    fn zone_locks(&self) -> Option<u64> {
        Some(self.engine()?.counters().zone_lock_acquisitions)
    }
}

/// The calls of one CPU. All requests are movable, without flags: what page faults ask for.
pub trait Calls {
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused>;

    /// Frees one chunk as it was allocated, or one frame of a chunk that was split.
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused>;

    /// Fills `out` with single frames, by the engine's bulk call where it has one.
    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        out.iter_mut().try_for_each(|out| self.alloc(Order::ZERO).map(|pfn| *out = pfn))
    }

    /// Frees single frames, by the engine's bulk call where it has one.
    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        frames.iter().try_for_each(|&pfn| self.free(pfn, Order::ZERO))
    }

    /// Makes an allocated chunk into single frames; nothing to do where any part of what was
    /// allocated can be freed.
    #[inline(always)]
    fn split(&mut self, _pfn: Pfn, _order: Order) -> Result<(), Refused> {
        Ok(())
    }

    /// Frees the frames of a chunk that was split, by one call where the engine has one.
    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        (range.start.get()..range.end.get())
            .try_for_each(|pfn| self.free(Pfn::new(pfn), Order::ZERO))
    }

    /// Allocates one chunk that cannot be moved, as drivers and slabs do; as [`alloc`](Self::alloc)
    /// where the engine makes no difference.
    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        self.alloc(order)
    }
}

/// An engine did not do what was asked: why a call failed, and the loop or workload that made it.
/// Small and without heap, so that handing it up costs a timed loop no more than the branch that
/// any caller has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error("allocation: {0}")]
    Alloc(#[from] AllocError),
    #[error("free: {0}")]
    Free(#[from] FreeError),
    #[error("a bulk call for {wanted} frames gave {got}")]
    Short { wanted: usize, got: usize },
    /// There was no memory, said by an engine that gives no reason.
    #[error("out of memory")]
    NoMemory,
    #[error("there is no such CPU")]
    NoSuchCpu,
}

impl Refused {
    /// Whether it says that there was no memory for an allocation, and nothing worse.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::NoMemory | Self::Alloc(AllocError::NoMemory { .. }))
    }
}

impl From<BulkFreeError> for Refused {
    fn from(error: BulkFreeError) -> Self {
        Self::Free(error.error)
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.to_string()
    }
}
