//! The page allocators under vmalloc: freehold, a kernel's design, and an arena of real frames.

use freehold::{AllocError, AllocFlags, CpuId, FrameRange, FreeError, Order, Owned, Pfn};
use freehold_classic::{Classic, Request};
use freehold_host::ArenaFrames;

use super::raw::Frames;
use crate::bench::calls::Machine;
use crate::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads};

pub(super) trait PageAllocator: Whole + Sync {
    type Cpu<'a>: freehold::Frames
    where
        Self: 'a;

    fn cpu(&self, cpu: CpuId) -> Result<Self::Cpu<'_>, String>;
}

/// What all of them can do alike.
pub(super) trait Whole {
    /// Gives back what CPUs hold.
    fn drain(&self);

    /// Whether all is whole, with nothing in use.
    fn check(&self) -> Result<(), String>;
}

impl<M: Machine> Whole for M {
    fn drain(&self) {
        Machine::drain(self);
    }

    fn check(&self) -> Result<(), String> {
        Machine::drain(self);
        Machine::check(self, 0)
    }
}

impl PageAllocator for FreeholdMachine<HostThreads> {
    type Cpu<'a> = Owned<'a, 'static, HostThreads>;

    fn cpu(&self, cpu: CpuId) -> Result<Self::Cpu<'_>, String> {
        self.freehold().own(cpu).map_err(|error| error.to_string())
    }
}

/// One CPU's way into a kernel's design, with what the kernel's vmalloc does to a chunk: it is
/// split into single frames as soon as it is there.
pub(super) struct ClassicCpu<'a> {
    classic: &'a Classic,
    cpu: CpuId,
}

impl PageAllocator for ClassicMachine {
    type Cpu<'a> = ClassicCpu<'a>;

    fn cpu(&self, cpu: CpuId) -> Result<ClassicCpu<'_>, String> {
        Ok(ClassicCpu { classic: self.classic(), cpu })
    }
}

impl freehold::Frames for ClassicCpu<'_> {
    #[inline]
    fn alloc(&self, request: freehold::Request) -> Result<Pfn, AllocError> {
        let (order, migratetype) = (request.order(), request.migratetype());
        let pfn = self.classic.alloc(self.cpu, Request::new(order, migratetype))?;
        if order > Order::ZERO {
            // A chunk of its own, with one reference: it can be split.
            self.classic
                .split(pfn, order, Order::ZERO)
                .map_err(|_| AllocError::NoMemory { order })?;
        }
        Ok(pfn)
    }

    fn alloc_bulk(&self, request: freehold::Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        let migratetype = request.migratetype();
        const MOST: usize = 100;
        let mut slots = [None; MOST];
        let slots = &mut slots[..out.len().min(MOST)];
        let filled = self.classic.alloc_bulk(self.cpu, migratetype, AllocFlags::empty(), slots)?;
        out.iter_mut().zip(slots.iter().flatten()).for_each(|(out, pfn)| *out = *pfn);
        if filled == 0 { Err(AllocError::NoMemory { order: Order::ZERO }) } else { Ok(filled) }
    }

    #[inline]
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.classic.free(self.cpu, pfn, order).map(drop)
    }

    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.classic.free_contig_range(self.cpu, range).map(drop)
    }
}

impl PageAllocator for Frames {
    type Cpu<'a> = ArenaFrames<'a>;

    /// An arena knows its threads by itself.
    fn cpu(&self, _: CpuId) -> Result<ArenaFrames<'_>, String> {
        Ok(self.allocator())
    }
}

impl Whole for Frames {
    fn drain(&self) {
        // It fails in a forked child only.
        let _ = self.arena().drain();
    }

    fn check(&self) -> Result<(), String> {
        let arena = self.arena();
        arena.drain().and_then(|()| arena.validate()).map_err(|error| error.to_string())?;
        let (free, all) = (arena.free_frames(), arena.range().len());
        if free == all {
            Ok(())
        } else {
            Err(format!("{free} frames are free of {all}, and none is in use"))
        }
    }
}
