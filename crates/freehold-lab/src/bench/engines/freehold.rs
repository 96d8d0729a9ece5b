//! Freehold: a thread owns its CPU, and single frames, blocks and ranges go through the owner's
//! calls.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use freehold::{
    Config, CpuId, FrameRange, Frames, Freehold, Migratetype, On, Order, Owned, Pfn, Platform,
    Request, SingleCpu, ZoneConfig,
};

use crate::bench::calls::{Calls, Machine, Refused, START, TIB};
use crate::bench::clock::timed;
use crate::bench::loops;
use crate::bench::sampler::Sampled;
use crate::engine::Engine;
use crate::engines::{Barriers, FreeholdEngine, MachineConfig, leaked_freehold};
use crate::trials::simulated::Simulated;

/// The CPU of the measurements of this file.
const CPU: CpuId = CpuId::new(0);

pub struct FreeholdMachine<P: Barriers> {
    engine: FreeholdEngine<'static, 'static, P>,
    /// This machine on a platform without a heavy barrier, made when it is first measured.
    without_barrier: OnceLock<Result<Box<FreeholdMachine<SingleCpu>>, String>>,
}

impl<P: Barriers> FreeholdMachine<P> {
    /// A machine with so many CPUs and frames, and the kernel's watermarks.
    pub fn new(cpus: u16, frames: u64, platform: P) -> Result<Self, String> {
        let allocator = leaked_freehold(&MachineConfig::new(frames, cpus), platform)?;
        Ok(Self {
            engine: FreeholdEngine::new(allocator, Vec::new()),
            without_barrier: OnceLock::new(),
        })
    }

    /// The calls that anybody may make, on that CPU.
    pub fn on(&self, cpu: CpuId) -> OnCpu<'_, P> {
        ByDoor { freehold: self.freehold(), door: self.freehold().on(cpu) }
    }

    pub fn freehold(&self) -> &'static Freehold<'static, P> {
        self.engine.allocator()
    }
}

impl<P: Barriers> Machine for FreeholdMachine<P> {
    type Cpu<'a> = FreeholdCpu<'a, P>;

    fn cpu(&self, cpu: CpuId) -> Result<FreeholdCpu<'_, P>, Refused> {
        Ok(ByDoor { freehold: self.freehold(), door: self.freehold().own(cpu)? })
    }

    fn engine(&self) -> Option<&dyn Simulated> {
        Some(&self.engine)
    }

    const DOORS: bool = true;
    const STARTS: bool = true;

    fn doors(&self, n: u64) -> Result<[Sampled; 3], Refused> {
        // An ordinary lock is enough for any number of threads.
        let other = self.without_barrier.get_or_init(|| {
            let frames = self.engine.memory().managed_frames;
            FreeholdMachine::new(self.freehold().cpu_count() as u16, frames, SingleCpu)
                .map(Box::new)
        });
        let other = other.as_ref().map_err(|_| Refused::Unbuildable)?;
        // One after the other: calls that name an owned CPU would have to stop its owner, which is
        // not what is measured.
        let owned = loops::pair_on::<_, 0>(&mut self.cpu(CPU)?, n)?;
        let owned_no_barrier = loops::pair_on::<_, 0>(&mut other.cpu(CPU)?, n)?;
        let on = loops::pair_on::<_, 0>(&mut self.on(CPU), n)?;
        Ok([owned, owned_no_barrier, on])
    }

    fn start_up(&self) -> Result<(Duration, Option<Duration>), Refused> {
        Ok((started(TIB)?.ok_or(Refused::Unbuildable)?, started(64 * TIB)?))
    }
}

/// How long it takes to make one for so many frames, and to allocate the first; `None` where the
/// system has no addresses to give.
fn started(frames: u64) -> Result<Option<Duration>, Refused> {
    let memory: Vec<FrameRange> = FrameRange::new(START, frames).into_iter().collect();
    let zones = [ZoneConfig::new(&memory)];
    let config = Config::new(2, &zones);
    let size = Freehold::<SingleCpu>::metadata_size(&config).map_err(|_| Refused::Unbuildable)?;
    // Fresh from the system, as a kernel's is from its boot allocator: the first touch of each page
    // counts. What is not touched, of 64 TiB nearly all of 3.5 GiB, is addresses only.
    let mut metadata: Vec<u8> = Vec::new();
    if metadata.try_reserve_exact(size).is_err() {
        return Ok(None);
    }
    let region = &mut metadata.spare_capacity_mut()[..size];
    let time = timed(|| {
        let other = Freehold::new(&config, region, SingleCpu).map_err(|_| Refused::Unbuildable)?;
        let pfn = black_box(other.on(CPU).alloc(MOVABLE)?);
        Ok::<(), Refused>(other.on(CPU).free(pfn, Order::ZERO)?)
    })?;
    Ok(Some(time))
}

/// A CPU, by one of its ways in.
pub struct ByDoor<'a, P, D> {
    freehold: &'a Freehold<'static, P>,
    door: D,
}

/// A CPU that this thread owns.
pub type FreeholdCpu<'a, P> = ByDoor<'a, P, Owned<'a, 'static, P>>;
/// A CPU by the calls that name it and that anybody may make: what a host has that owns no CPUs.
pub type OnCpu<'a, P> = ByDoor<'a, P, On<'a, 'static, P>>;

/// A single frame that can be moved.
const MOVABLE: Request = Request::new(Order::ZERO, Migratetype::Movable);

impl<P: Platform, D: Frames> Calls for ByDoor<'_, P, D> {
    #[inline(always)]
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.door.alloc(Request::new(order, Migratetype::Movable))?)
    }

    #[inline(always)]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        Ok(self.door.free(pfn, order)?)
    }

    #[inline(always)]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> Result<(), Refused> {
        let (wanted, got) = (out.len(), self.door.alloc_bulk(MOVABLE, out)?);
        if got == wanted { Ok(()) } else { Err(Refused::Short { wanted, got }) }
    }

    #[inline(always)]
    fn free_bulk(&mut self, frames: &[Pfn]) -> Result<(), Refused> {
        Ok(self.door.free_bulk(frames)?)
    }

    #[inline(always)]
    fn free_range(&mut self, range: FrameRange) -> Result<(), Refused> {
        Ok(self.door.free_range(range)?)
    }

    #[inline(always)]
    fn alloc_unmovable(&mut self, order: Order) -> Result<Pfn, Refused> {
        Ok(self.door.alloc(Request::new(order, Migratetype::Unmovable))?)
    }

    fn alloc_contig(&mut self, range: FrameRange) -> Result<FrameRange, Refused> {
        self.freehold.alloc_contig_range(range, |_| false)?;
        Ok(range)
    }
}
