//! Freehold itself as an engine: [`freehold::Freehold`] behind [`Engine`].

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use freehold::{
    AllocError, Config, CpuId, FrameRange, FreeError, Freehold, Order, Pfn, SingleCpu, WORK_BUCKETS, Watermarks,
    ZoneConfig,
};

use super::{Catalogue, Entry, MachineConfig};
use crate::engine::{Block, Counters, Engine, HoldBucket, Memory, Request};
use crate::simulate::engine::{Family, Marks, Simulated};

/// The engine's name.
pub(super) const NAME: &str = "freehold";

/// What of `freehold` can be named: one design without switches.
pub(super) fn catalogue() -> Catalogue {
    let entry = Entry {
        name: NAME.into(),
        summary: "The block economy: CPUs own pageblocks, free frames are bits, any free is lock-free.".into(),
        source: "this project".into(),
    };
    Catalogue { presets: vec![entry], switches: Vec::new() }
}

/// Builds it for `machine`.
pub(super) fn build(machine: &MachineConfig) -> Result<Box<dyn Engine>, String> {
    with_config(machine, |config| {
        let bytes = Freehold::<SingleCpu>::metadata_size(config).map_err(|error| error.to_string())?;
        // Lent for good: 128 KiB for each GiB of the machine, a few machines a process.
        let metadata: &'static mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(bytes));
        Ok(Box::new(FreeholdEngine::new(config, metadata)?) as Box<dyn Engine>)
    })
}

/// The same, for a simulation: a sweep makes many machines, so their memory is given back.
pub(super) fn with_simulated<R>(machine: &MachineConfig, run: impl FnOnce(&dyn Simulated) -> R) -> Result<R, String> {
    with_config(machine, |config| {
        let bytes = Freehold::<SingleCpu>::metadata_size(config).map_err(|error| error.to_string())?;
        let mut metadata = Box::new_uninit_slice(bytes);
        let engine = FreeholdEngine::new(config, &mut metadata)?;
        Ok(run(&engine))
    })
}

fn with_config<R>(machine: &MachineConfig, make: impl FnOnce(&Config<'_>) -> Result<R, String>) -> Result<R, String> {
    let range = FrameRange::new(machine.start_pfn, machine.memory_frames).ok_or("the zone is too large")?;
    let memory = [range];
    let watermarks = machine.zone.as_ref().map_or(Watermarks::Kernel, |zone| Watermarks::Frames {
        min: zone.min,
        low: zone.low,
        high: zone.high,
    });
    let zones =
        [ZoneConfig { node: machine.node, span: range, memory: &memory, cma: &[], spare_sections: 0, watermarks }];
    let nodes = vec![machine.node; usize::from(machine.cpus)];
    let config = Config { cpus: machine.cpus, online: machine.cpus, cpu_nodes: &nodes, zones: &zones, extra_ranges: 0, group: None };
    make(&config)
}

/// The machine has one zone.
const ZONE: usize = 0;

struct FreeholdEngine<'m> {
    allocator: Freehold<'m, SingleCpu>,
    /// What had been counted when the trace began.
    before: Mutex<Counted>,
}

/// All that is counted and can be subtracted.
#[derive(Clone, Default)]
struct Counted {
    counters: Counters,
    work: [u64; WORK_BUCKETS],
}

impl<'m> FreeholdEngine<'m> {
    fn new(config: &Config<'_>, metadata: &'m mut [MaybeUninit<u8>]) -> Result<Self, String> {
        let allocator = Freehold::new(config, metadata, SingleCpu).map_err(|error| error.to_string())?;
        Ok(Self { allocator, before: Mutex::new(Counted::default()) })
    }

    fn counted(&self) -> Counted {
        let totals = self.allocator.totals();
        let zone = self.allocator.zone_stats(ZONE).unwrap_or_default();
        let cpus = &totals.cpus;
        let allocs = cpus.total_allocs();
        let counters = Counters {
            allocs,
            frees: cpus.local_frees + cpus.remote_frees + totals.unattributed_frees,
            failed: cpus.failed,
            pcp_hits: allocs.saturating_sub(cpus.slow),
            zone_lock_acquisitions: zone.lock_acquisitions,
            zone_lock_work: zone.lock_work,
            zone_lock_work_max: zone.lock_work_max,
            splits_zone: zone.splits,
            refills: cpus.refills,
            refills_by_phase: cpus.refills_by_phase,
            refilled_frames: cpus.refilled_frames,
            drains: cpus.drains,
            drained_frames: cpus.drained_frames,
            remote_frees: cpus.remote_frees,
            fallbacks: zone.fallbacks,
            // Neighbouring bits are one run: there is nothing to merge, no list of frames to look at.
            ..Counters::default()
        };
        Counted { counters, work: zone.lock_work_histogram }
    }
}

/// An upper bound of the steps that 99 % of holds stayed within; bucket b holds `2^(b-1)` to `2^b - 1` steps.
fn p99(buckets: &[u64; WORK_BUCKETS], max: u64) -> u64 {
    let holds: u64 = buckets.iter().sum();
    let target = holds - holds / 100;
    let mut seen = 0;
    let bucket = buckets.iter().position(|n| {
        seen += n;
        seen >= target
    });
    bucket.map_or(0, |bucket| ((1u64 << bucket) - 1).min(max))
}

impl Engine for FreeholdEngine<'_> {
    fn start(&self) {
        self.allocator.drain_all();
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = self.counted();
    }

    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let Request { order, migratetype, flags } = request;
        self.allocator.on(cpu).alloc(freehold::Request::new(order, migratetype).flags(flags))
    }

    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.allocator.on(cpu).free(pfn, order)
    }

    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        let on = self.allocator.on(cpu);
        let mut frames = [Pfn::new(0); 64];
        for part in chunks.chunks(frames.len()) {
            let mut singles = 0;
            for &(pfn, order) in part {
                if order == Order::ZERO {
                    frames[singles] = pfn;
                    singles += 1;
                } else {
                    on.free(pfn, order)?;
                }
            }
            on.free_bulk(&frames[..singles]).map_err(|error| error.error)?;
        }
        Ok(())
    }

    fn split(&self, _pfn: Pfn, _from: Order, _to: Order) -> Result<(), FreeError> {
        // An allocated frame carries no order: any part of it can be freed as it is.
        Ok(())
    }

    fn tick(&self, cpu: CpuId) {
        // Fails only for a CPU that is offline, which has nothing to do.
        let _ = self.allocator.on(cpu).tick();
    }

    fn drain_all(&self) {
        self.allocator.drain_all();
    }

    fn counters(&self) -> Counters {
        let Counted { counters: now, work } = self.counted();
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let then = &before.counters;
        let work: [u64; WORK_BUCKETS] = std::array::from_fn(|bucket| work[bucket] - before.work[bucket]);
        Counters {
            allocs: now.allocs - then.allocs,
            frees: now.frees - then.frees,
            failed: now.failed - then.failed,
            pcp_hits: now.pcp_hits - then.pcp_hits,
            zone_lock_acquisitions: now.zone_lock_acquisitions - then.zone_lock_acquisitions,
            zone_lock_work: now.zone_lock_work - then.zone_lock_work,
            // A maximum cannot be taken apart; that of the set-up counts too.
            zone_lock_work_max: now.zone_lock_work_max,
            zone_lock_work_p99: p99(&work, now.zone_lock_work_max),
            splits_zone: now.splits_zone - then.splits_zone,
            refills: now.refills - then.refills,
            refills_by_phase: std::array::from_fn(|p| now.refills_by_phase[p] - then.refills_by_phase[p]),
            refilled_frames: now.refilled_frames - then.refilled_frames,
            drains: now.drains - then.drains,
            drained_frames: now.drained_frames - then.drained_frames,
            remote_frees: now.remote_frees - then.remote_frees,
            fallbacks: now.fallbacks - then.fallbacks,
            ..Counters::default()
        }
    }

    fn memory(&self) -> Memory {
        let zone = self.allocator.zone_stats(ZONE).unwrap_or_default();
        let largest = Order::LINUX_MAX.index();
        let cpus = self.allocator.cpu_count();
        let held = |cpu: Option<CpuId>| self.allocator.blocks_held(cpu);
        Memory {
            managed_frames: zone.managed,
            free_frames: zone.free,
            pcp_frames: zone.free_in_cpus,
            // Larger chunks than the kernel has count as so many of its largest.
            free_chunks: std::array::from_fn(|order| {
                if order < largest {
                    return zone.free_chunks[order];
                }
                zone.free_chunks[largest..].iter().enumerate().map(|(above, n)| n << above).sum()
            }),
            free_blocks: zone.free_blocks,
            // Frames carry no type; that many allocations went into blocks of another type.
            mixed_blocks: zone.mixed,
            blocks_by_type: zone.blocks_by_type,
            blocks_by_owner: std::iter::once(None)
                .chain((0..cpus).map(|cpu| Some(CpuId::new(cpu as u16))))
                .map(held)
                .collect(),
            largest_free_order: zone.largest_free_order().map(|order| order.get().min(Order::LINUX_MAX.get())),
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let states = self.allocator.pageblocks(ZONE);
        states
            .map(|block| Block {
                start: block.start,
                holder: block.holder,
                migratetype: block.migratetype,
                frames: block.frames,
                free: block.free,
            })
            .collect()
    }

    fn zone_lock_holds(&self) -> Vec<HoldBucket> {
        let Counted { counters, work } = self.counted();
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = work.iter().zip(&before.work).map(|(now, then)| now - then).enumerate();
        holds
            .filter(|(_, holds)| *holds > 0)
            .map(|(bucket, holds)| {
                let from = (1u64 << bucket) / 2;
                // The last one is open; no hold did more than the longest.
                let last = bucket == WORK_BUCKETS - 1;
                let to = if last { u64::MAX } else { (1 << bucket) - 1 };
                HoldBucket { from, to: to.min(counters.zone_lock_work_max), holds }
            })
            .collect()
    }

    fn validate(&self) -> Result<(), String> {
        self.allocator.validate().map_err(|violation| violation.to_string())
    }
}

impl Simulated for FreeholdEngine<'_> {
    fn family(&self) -> Family {
        Family::Freehold
    }

    fn marks(&self, cpu: CpuId) -> Marks {
        let (holds, steps) = self.allocator.zone_lock_counts(ZONE).unwrap_or_default();
        let changes = self.allocator.cpu_stats(cpu).map_or(0, |stats| stats.refills);
        Marks { holds, steps, changes, ..Marks::default() }
    }

    fn home(&self, pfn: Pfn) -> Option<CpuId> {
        self.allocator.holder_of(pfn)
    }

    fn alloc_finding_busy(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        // Nobody but its owner enters a CPU's state on the way of an allocation or a free.
        self.alloc(cpu, request)
    }
}
