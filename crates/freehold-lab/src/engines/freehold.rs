//! Freehold itself as an engine: [`freehold::Freehold`] behind [`Engine`].
//!
//! Replays make calls that name their CPU, as a host does that owns none; simulations and counts
//! own every CPU, as a kernel does. One thread plays all of them, so a heavy barrier has nothing to
//! wait for and is counted only.

use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{
    AllocError, Config, CpuId, FreeError, Freehold, Migratetype, Order, Owned, Pfn, Platform,
    Watermarks, ZoneConfig, ZoneStats,
};

use super::machine::lowmem_reserve;
use super::{Barriers, Counting, Entry, MachineConfig, ZONE};
use crate::engine::{Count, Counters, Engine, Listed, Memory, Request};

pub const NAME: &str = "freehold";

/// What of `freehold` can be named: one design without switches.
pub(super) fn entry() -> Entry {
    Entry {
        name: NAME.into(),
        summary: "CPUs lease words of 64 frames, free frames are bits, a scoreboard says which \
                  block has which run; no call takes a lock."
            .into(),
        source: "this project".into(),
    }
}

/// Builds it for `machine`, its CPUs owned by nobody.
pub(super) fn build(machine: &MachineConfig) -> Result<Box<dyn Engine>, String> {
    let allocator = leaked(machine, Counting::new(false))?;
    Ok(Box::new(FreeholdEngine::new(allocator, Vec::new())))
}

/// An allocator that is lent for good: 50 KiB for each GiB of the machine, a few machines a
/// process.
pub fn leaked<P: Platform + 'static>(
    machine: &MachineConfig,
    platform: P,
) -> Result<&'static Freehold<'static, P>, String> {
    with_config(machine, |config| {
        let allocator = Freehold::leaked(config, platform).map_err(|error| error.to_string())?;
        Ok(&*Box::leak(Box::new(allocator)))
    })
}

/// The handles of so many CPUs.
pub fn own_all<'a, 'm, P: Platform>(
    allocator: &'a Freehold<'m, P>,
    cpus: u16,
) -> Result<Vec<Mutex<Owned<'a, 'm, P>>>, String> {
    let owned = (0..cpus).map(|cpu| allocator.own(CpuId::new(cpu)).map(Mutex::new));
    owned.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Calls `make` with the machine as the allocator is told of it.
pub fn with_config<R>(
    machine: &MachineConfig,
    make: impl FnOnce(&Config<'_>) -> Result<R, String>,
) -> Result<R, String> {
    let (memory, cma) = ([machine.range()?], machine.cma());
    let watermarks = machine.zone.as_ref().map_or(Watermarks::Kernel, |zone| {
        let [min, low, high] =
            [zone.min, zone.low, zone.high].map(|mark| mark.saturating_add(lowmem_reserve(zone)));
        Watermarks::Frames { min, low, high }
    });
    let zones = [ZoneConfig { watermarks, cma: &cma, ..ZoneConfig::new(&memory) }];
    make(&Config::new(machine.cpus, &zones))
}

pub struct FreeholdEngine<'a, 'm, P: Platform> {
    allocator: &'a Freehold<'m, P>,
    /// The CPUs, where they are owned; calls that name their CPU otherwise. A handle is no two
    /// threads' at once.
    owned: Vec<Mutex<Owned<'a, 'm, P>>>,
    /// What had been counted when the trace began, with the calls that were slow.
    before: Mutex<(Counters, u64)>,
}

impl<'a, 'm, P: Barriers> FreeholdEngine<'a, 'm, P> {
    /// An allocator and the handles of those of its CPUs that are owned.
    pub fn new(allocator: &'a Freehold<'m, P>, owned: Vec<Mutex<Owned<'a, 'm, P>>>) -> Self {
        Self { allocator, owned, before: Mutex::new(Default::default()) }
    }

    pub fn allocator(&self) -> &'a Freehold<'m, P> {
        self.allocator
    }

    /// The CPU's handle, where it is owned.
    fn owned(&self, cpu: CpuId) -> Option<MutexGuard<'_, Owned<'a, 'm, P>>> {
        // A handle is whole whatever its user's panic was about.
        self.owned
            .get(cpu.index())
            .map(|handle| handle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn zone(&self) -> ZoneStats {
        self.allocator.zone_stats(ZONE).unwrap_or_default()
    }

    /// What has been counted, and the calls that needed more than what their CPU had in hand.
    fn counted(&self) -> (Counters, u64) {
        let totals = self.allocator.totals();
        let zone = self.zone();
        let cpus = &totals.cpus;
        let [partly, whole, other_type] = cpus.refills_by_phase;
        let counters = Counters {
            allocs: cpus.total_allocs(),
            frees: cpus.local_frees + cpus.remote_frees + totals.unattributed_frees,
            failed: cpus.failed,
            refills: cpus.refills,
            refills_by_phase: [partly, whole, 0, other_type],
            refilled_frames: cpus.refilled_frames,
            remote_frees: cpus.remote_frees,
            fallbacks: zone.fallbacks,
            shared_writes: totals.shared_writes,
            // Neighbouring bits are one run: there is nothing to merge, no list of frames to look
            // at.
            ..Counters::default()
        };
        (counters, cpus.slow)
    }
}

impl<P: Barriers> Engine for FreeholdEngine<'_, '_, P> {
    fn start(&self) {
        self.allocator.drain_all();
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = self.counted();
    }

    fn fill_lists(&self, listed: &[Listed]) -> Result<(), FreeError> {
        listed.iter().try_for_each(|of| self.free(of.cpu, of.pfn, of.order))?;
        self.start();
        Ok(())
    }

    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let Request { order, migratetype, flags } = request;
        let request = freehold::Request::new(order, migratetype).flags(flags);
        match self.owned(cpu) {
            Some(owned) => owned.alloc(request),
            None => self.allocator.on(cpu).alloc(request),
        }
    }

    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        match self.owned(cpu) {
            Some(owned) => owned.free(pfn, order),
            None => self.allocator.on(cpu).free(pfn, order),
        }
    }

    /// Single frames, for which there is a call for many, 64 at a time; larger chunks each by
    /// itself.
    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        let (on, owned) = (self.allocator.on(cpu), self.owned(cpu));
        let mut frames = [Pfn::new(0); 64];
        for part in chunks.chunks(frames.len()) {
            let mut singles = 0;
            for &(pfn, order) in part {
                if order == Order::ZERO {
                    frames[singles] = pfn;
                    singles += 1;
                    continue;
                }
                owned.as_ref().map_or_else(|| on.free(pfn, order), |own| own.free(pfn, order))?;
            }
            let frames = &frames[..singles];
            let freed =
                owned.as_ref().map_or_else(|| on.free_bulk(frames), |own| own.free_bulk(frames));
            freed.map_err(|error| error.error)?;
        }
        Ok(())
    }

    fn tick(&self, cpu: CpuId) {
        // Fails only for a CPU that is offline, which has nothing to do.
        let _ = match self.owned(cpu) {
            Some(owned) => owned.tick(),
            None => self.allocator.on(cpu).tick(),
        };
    }

    fn drain_all(&self) {
        self.allocator.drain_all();
    }

    fn counters(&self) -> Counters {
        let (before, slow_before) = &*self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let (counters, slow) = self.counted();
        let counters = counters.since(before);
        // A request that fails is slow and no allocation.
        Counters { pcp_hits: counters.allocs.saturating_sub(slow - slow_before), ..counters }
    }

    fn memory(&self) -> Memory {
        let zone = self.zone();
        let blocks = self.allocator.zone_blocks(ZONE).unwrap_or_default();
        let largest = Order::LINUX_MAX.index();
        // Larger chunks than the kernel has count as so many of its largest.
        let runs = std::array::from_fn(|order| {
            if order < largest {
                return blocks.free_chunks[order];
            }
            blocks.free_chunks[largest..].iter().enumerate().map(|(above, n)| n << above).sum()
        });
        Memory {
            managed_frames: zone.managed,
            free_frames: zone.free,
            pcp_frames: zone.free_in_cpus,
            // Free neighbours are one run of bits: there are no lists on which they could be apart.
            free_runs: runs,
            free_chunks: runs,
            free_blocks: blocks.free_blocks,
            // Frames carry no type; that many allocations went into blocks of another type.
            mixed_blocks: zone.mixed,
            blocks_by_type: blocks.blocks_by_type,
            largest_free_order: blocks.largest_free_order().map(Order::get),
        }
    }

    fn free_cma(&self) -> u64 {
        let blocks = self.allocator.pageblocks(ZONE);
        let cma = blocks.filter(|block| block.migratetype == Migratetype::Cma);
        cma.map(|block| u64::from(block.free)).sum()
    }

    fn validate(&self) -> Result<(), String> {
        self.allocator.validate().map_err(|violation| violation.to_string())
    }
}
