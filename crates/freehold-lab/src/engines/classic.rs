//! The kernel's own designs as engines: [`freehold_classic`] behind [`Engine`].

use freehold::{AllocError, CpuId, FrameRange, FreeError, Migratetype, Order, Pfn};
use freehold_classic::{Classic, Config, Design, Switch, Watermarks, ZoneConfig, presets};

use super::{Catalogue, Entry, MachineConfig, ZoneTuning};
use crate::engine::{Counters, Engine, Memory, Request};

/// What of `freehold-classic` can be named.
pub(super) fn catalogue() -> Catalogue {
    let preset = |name: &str, summary: &str, switches| {
        let source = origin(switches);
        Entry { name: name.into(), summary: summary.into(), source }
    };
    let presets = presets().iter().flat_map(|known| {
        let alias = known.alias.map(|alias| preset(alias, &format!("The same as {}.", known.name), known.switches));
        [Some(preset(known.name, known.summary, known.switches)), alias].into_iter().flatten()
    });
    let switches = Switch::ALL.iter().map(|switch| Entry {
        name: switch.name().into(),
        summary: switch.summary().into(),
        source: format!("{}: {}", switch.since(), switch.thread().name()),
    });
    Catalogue { presets: presets.collect(), switches: switches.collect() }
}

/// Where a preset comes from: the thread of its newest change.
fn origin(switches: freehold_classic::Switches) -> String {
    switches.iter().last().map_or("kernel history", |newest| newest.thread().name()).to_owned()
}

/// Builds the design `text` for `machine`.
pub(super) fn build(text: &str, machine: &MachineConfig) -> Result<Box<dyn Engine>, String> {
    let design = Design::parse(text).map_err(|error| error.to_string())?;
    let name = machine.zone.as_ref().map_or("Normal", |zone| zone.name.as_str());
    let mut zone = ZoneConfig::new(name, machine.start_pfn, machine.memory_frames);
    if let Some(tuning) = &machine.zone {
        zone.range = FrameRange::new(machine.start_pfn, machine.memory_frames).ok_or("the zone is too large")?;
        zone.watermarks = Some(Watermarks { min: tuning.min, low: tuning.low, high: tuning.high });
    }
    let config = Config { zones: vec![zone], ..Config::single_zone(design, machine.cpus, machine.memory_frames) };
    let classic = Classic::new(config).map_err(|error| error.to_string())?;
    if let Some(tuning) = &machine.zone {
        tune(&classic, tuning);
    }
    Ok(Box::new(classic))
}

/// Puts the PCPs into the state that a recording began with. The lists' mixture is not in a zoneinfo: all of what they
/// hold is taken to be single movable frames.
fn tune(classic: &Classic, zone: &ZoneTuning) {
    let narrow = |frames: u64| u32::try_from(frames).unwrap_or(u32::MAX);
    for set in &zone.pagesets {
        let cpu = CpuId::new(set.cpu);
        let Some(known) = classic.tuning(0, cpu) else { continue };
        classic.prefill(0, cpu, Migratetype::Movable, Order::ZERO, narrow(set.count));
        classic.set_tuning(
            0,
            cpu,
            freehold_classic::Tuning {
                batch: narrow(set.batch),
                high: narrow(set.high),
                high_min: narrow(set.high_min),
                high_max: narrow(set.high_max),
                ..known
            },
        );
    }
}

impl Engine for Classic {
    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let Request { order, migratetype, flags } = request;
        self.alloc(cpu, freehold_classic::Request { order, migratetype, flags })
    }

    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free(cpu, pfn, order).map(drop)
    }

    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        self.free_folios(cpu, chunks).map(drop)
    }

    fn split(&self, pfn: Pfn, from: Order, to: Order) -> Result<(), FreeError> {
        self.split(pfn, from, to)
    }

    fn tick(&self, cpu: CpuId) {
        self.tick(cpu);
    }

    fn drain_all(&self) {
        self.drain_all();
    }

    fn counters(&self) -> Counters {
        let stats = self.stats();
        let (zone, pcp) = (&stats.zone, &stats.pcp);
        Counters {
            allocs: zone.allocs + pcp.allocs,
            frees: zone.frees + pcp.frees,
            failed: stats.failed,
            pcp_hits: pcp.hits,
            zone_lock_acquisitions: stats.zone_lock.holds(),
            zone_lock_work: stats.zone_lock.total(),
            zone_lock_work_max: stats.zone_lock.max(),
            zone_lock_work_p99: stats.zone_lock.quantile(0.99),
            merges_zone: zone.merges,
            merges_pcp: pcp.merges,
            splits_zone: zone.splits,
            splits_pcp: pcp.splits,
            refills: pcp.refills,
            refills_by_phase: [pcp.refills_recover, pcp.refills_claim, pcp.refills_fragment, pcp.refills_fallback],
            refilled_frames: pcp.refilled_frames,
            drains: pcp.drains,
            drained_frames: pcp.drained_frames,
            remote_frees: pcp.remote_frees,
            lists_looked_at: pcp.lists_looked_at,
            fallbacks: zone.fallbacks,
        }
    }

    fn memory(&self) -> Memory {
        let map = self.memory_map();
        Memory {
            managed_frames: map.managed,
            free_frames: map.free,
            pcp_frames: map.on_pcp,
            free_chunks: map.chunks,
            free_blocks: map.free_blocks,
            mixed_blocks: map.mixed_blocks,
            blocks_by_type: map.blocks_by_type,
            largest_free_order: map.largest_free_order().map(Order::get),
            blocks_by_owner: map.blocks_by_owner,
        }
    }

    fn validate(&self) -> Result<(), String> {
        self.validate()
    }
}
