//! A kernel's design, through the calls that name their CPU.

use freehold::{AllocFlags, CpuId, FrameRange, Migratetype, Order, Pfn};
use freehold_classic::{Classic, Request};

use crate::bench::calls::{Calls, Machine, Refused};
use crate::engines::{ClassicEngine, MachineConfig};
use crate::trials::simulated::Simulated;

pub struct ClassicMachine {
    engine: ClassicEngine,
}

impl ClassicMachine {
    /// The design `text` with so many CPUs and frames, and the kernel's watermarks.
    pub fn new(text: &str, cpus: u16, frames: u64) -> Result<Self, String> {
        let engine = ClassicEngine::new(text, &MachineConfig::new(frames, cpus))?;
        Ok(Self { engine })
    }

    pub fn classic(&self) -> &Classic {
        self.engine.classic()
    }
}

impl Machine for ClassicMachine {
    type Cpu<'a> = ClassicCpu<'a>;

    fn cpu(&self, cpu: CpuId) -> Result<ClassicCpu<'_>, Refused> {
        Ok(ClassicCpu { classic: self.classic(), cpu, slots: Vec::new() })
    }

    fn engine(&self) -> Option<&dyn Simulated> {
        Some(&self.engine)
    }
}

pub struct ClassicCpu<'a> {
    classic: &'a Classic,
    cpu: CpuId,
    /// For the bulk call, which fills the empty places of an array as the kernel's does. Kept, so
    /// that no allocation of the benchmark's own is timed.
    slots: Vec<Option<Pfn>>,
}

impl Calls for ClassicCpu<'_> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.classic.alloc(self.cpu, Request::new(order, Migratetype::Movable))?)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        // Whether the frame was freed or had further references, which none has here.
        self.classic.free(self.cpu, pfn, order).map(drop).map_err(Into::into)
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        self.slots.clear();
        self.slots.resize(out.len(), None);
        // May stop short where a list ran empty; the kernel's callers call again.
        let (wanted, mut got) = (out.len(), 0);
        while got < wanted {
            let now = self.classic.alloc_bulk(
                self.cpu,
                Migratetype::Movable,
                AllocFlags::empty(),
                &mut self.slots,
            )?;
            if now == got {
                return Err(Refused::Short { wanted, got });
            }
            got = now;
        }
        out.iter_mut().zip(self.slots.iter().flatten()).for_each(|(out, pfn)| *out = *pfn);
        Ok(())
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        self.classic.free_array(self.cpu, frames)?;
        Ok(())
    }

    #[inline(always)]
    fn split(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        Ok(self.classic.split(pfn, order, Order::ZERO)?)
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        self.classic.free_contig_range(self.cpu, range)?;
        Ok(())
    }

    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.classic.alloc(self.cpu, Request::new(order, Migratetype::Unmovable))?)
    }
}
