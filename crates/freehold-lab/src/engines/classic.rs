//! The kernel's own designs as engines: [`freehold_classic`] behind [`Engine`].

use std::collections::BTreeMap;

use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, Pfn};
use freehold_classic::{
    Classic, Config, Design, Kernel, Proposal, Switch, Switches, Tuning, Watermarks, ZoneConfig,
    presets,
};

use super::machine::lowmem_reserve;
use super::{Catalogue, Entry, MachineConfig, RecordedZone};
use crate::engine::{Counters, Engine, ListFlow, Listed, Memory, Request};
use crate::tables::unique;

/// What of `freehold-classic` can be named.
pub(super) fn catalogue() -> Catalogue {
    let preset = |name: &str, summary: &str, switches| {
        let source = origin(switches);
        Entry { name: name.into(), summary: summary.into(), source }
    };
    let presets = presets().iter().flat_map(|known| {
        let alias = known.alias.map(|alias| {
            preset(alias, &format!("Another name for {}.", known.name), known.switches)
        });
        [Some(preset(known.name, known.summary, known.switches)), alias].into_iter().flatten()
    });
    let switches = Switch::ALL.iter().map(|switch| Entry {
        name: switch.name().into(),
        summary: switch.summary().into(),
        source: switch_origin(switch),
    });
    Catalogue {
        presets: presets.collect(),
        switches: switches.collect(),
        kernels: [Kernel::OLDEST, Kernel::NEWEST].map(|kernel| kernel.to_string()),
    }
}

/// Since when there is a change, and from whom.
fn switch_origin(switch: &Switch) -> String {
    let proposal = switch.proposal();
    if proposal == Proposal::FoundHere {
        return proposal.name().to_owned();
    }
    let by = switch.by().map_or_else(String::new, |by| format!(", {by}"));
    format!("{}: {}{by}", switch.since(), proposal.name())
}

/// Where a preset comes from: the proposals of what no kernel has, or of its newest change.
fn origin(switches: Switches) -> String {
    let posted = |switch: &Switch| Kernel::parse(switch.since()).is_none();
    let name = |switch: Switch| switch.proposal().name();
    let mut names = unique(switches.iter().filter(posted).map(name));
    if names.is_empty() {
        names.extend(switches.iter().last().map(name));
    }
    names.join("; ")
}

pub fn config(text: &str, machine: &MachineConfig) -> Result<Config, String> {
    let design = Design::parse(text).map_err(|error| error.to_string())?;
    let recorded = machine.zone.as_ref();
    let marks = recorded.map(|zone| Watermarks { min: zone.min, low: zone.low, high: zone.high });
    let range = machine.range()?;
    let zone = ZoneConfig {
        cma: machine.cma(),
        watermarks: marks,
        lowmem_reserve: recorded.map_or(0, lowmem_reserve),
        ..ZoneConfig::new(range.start, range.len())
    };
    let config = Config::single_zone(design, machine.cpus, machine.memory_frames);
    Ok(Config { zone, ..config })
}

/// A design, and the state to start from where one was recorded.
pub struct ClassicEngine {
    classic: Classic,
    recorded: Option<RecordedZone>,
}

impl ClassicEngine {
    /// The design that `text` names, on that machine.
    ///
    /// # Errors
    ///
    /// In words, where its switches do not go together or the machine does not suit it.
    pub fn new(text: &str, machine: &MachineConfig) -> Result<Self, String> {
        let classic = Classic::new(config(text, machine)?).map_err(|error| error.to_string())?;
        Ok(Self { classic, recorded: machine.zone.clone() })
    }

    /// Frees a chunk onto its CPU's list, which gives nothing back meanwhile. What a design keeps
    /// no list for is single frames.
    fn put_on_list(&self, of: &Listed) -> Result<(), FreeError> {
        // Marks that no count reaches; a batch that no row of frees reaches either.
        const ROOM: Tuning = Tuning::new(u32::MAX >> 6, u32::MAX >> 1, u32::MAX >> 1, true);
        let &Listed { cpu, pfn, order } = of;
        self.classic.set_tuning(cpu, ROOM);
        if order == Order::ZERO || self.classic.switches().has(Switch::HighOrderPcp) {
            return self.free(cpu, pfn, order);
        }
        self.split(pfn, order, Order::ZERO)?;
        let mut frames = (0..order.frames()).map(|n| Pfn::new(pfn.get() + n));
        frames.try_for_each(|frame| self.free(cpu, frame, Order::ZERO))
    }

    /// Frames of each CPU's lists beyond its mark, in a design that does not tune that: it never
    /// held more, and they are free in the zone. Empty where there are none.
    fn excess(&self, listed: &[Listed]) -> Vec<(CpuId, u64)> {
        if self.classic.switches().has(Switch::AutoHigh) {
            return Vec::new();
        }
        let sets = self.recorded.iter().flat_map(|zone| &zone.pagesets);
        let mut held: BTreeMap<CpuId, u64> = BTreeMap::new();
        for of in listed {
            *held.entry(of.cpu).or_default() += of.order.frames();
        }
        let excess = sets.map(|set| {
            let held = held.get(&set.cpu).copied().unwrap_or(0);
            (set.cpu, held.saturating_sub(set.high_min.unwrap_or(set.high)))
        });
        excess.filter(|(_, frames)| *frames > 0).collect()
    }

    /// Tunes each CPU as it was recorded, and counts from here on.
    fn begin(&self) {
        let narrow = |frames: u64| u32::try_from(frames).unwrap_or(u32::MAX);
        for set in self.recorded.iter().flat_map(|zone| &zone.pagesets) {
            // Whether high-order chunks may wait for a whole batch depends on the CPU's cache,
            // which no recording names; server CPUs are large enough.
            let [least, most] =
                [set.high_min, set.high_max].map(|high| narrow(high.unwrap_or(set.high)));
            let tuning = Tuning::new(narrow(set.batch), least, most, true);
            // A kernel that does not tune `high` has it where the others begin.
            let tuned = self.classic.switches().has(Switch::AutoHigh);
            let high = if tuned { narrow(set.high) } else { tuning.high };
            self.classic.set_tuning(set.cpu, Tuning { high, ..tuning });
        }
        self.classic.reset_stats();
    }

    pub fn classic(&self) -> &Classic {
        &self.classic
    }
}

impl Engine for ClassicEngine {
    fn start(&self) {
        // The set-up took memory as no workload does.
        self.classic.forget_setup();
        self.begin();
    }

    fn fill_lists(&self, listed: &[Listed]) -> Result<(), FreeError> {
        let mut excess = self.excess(listed);
        let (beyond, kept): (Vec<&Listed>, Vec<&Listed>) = listed.iter().partition(|of| {
            let left = excess.iter_mut().find(|(cpu, left)| *cpu == of.cpu && *left > 0);
            left.map(|(_, left)| *left = left.saturating_sub(of.order.frames())).is_some()
        });
        beyond.into_iter().try_for_each(|of| self.put_on_list(of))?;
        if !excess.is_empty() {
            self.classic.drain_all();
        }
        kept.into_iter().try_for_each(|of| self.put_on_list(of))?;
        self.begin();
        Ok(())
    }

    fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        self.classic.alloc(cpu, request)
    }

    fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.classic.free(cpu, pfn, order).map(drop)
    }

    fn free_batch(&self, cpu: CpuId, chunks: &[(Pfn, Order)]) -> Result<(), FreeError> {
        self.classic.free_folios(cpu, chunks).map(drop)
    }

    fn split(&self, pfn: Pfn, from: Order, to: Order) -> Result<(), FreeError> {
        self.classic.split(pfn, from, to)
    }

    fn tick(&self, cpu: CpuId) {
        self.classic.tick(cpu);
    }

    fn set_reclaim(&self, active: bool) {
        self.classic.set_reclaim(active);
    }

    fn set_recorded(&self) {
        self.classic.set_kswapd_elsewhere();
    }

    fn drain_all(&self) {
        self.classic.drain_all();
    }

    fn counters(&self) -> Counters {
        let stats = self.classic.stats();
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
            // Its CPUs share no lock but the zone's.
            shared_writes: stats.zone_lock.holds() + stats.zone_lock.total(),
            pcp_lock_acquisitions: pcp.lock_holds,
            pcp_lock_work: pcp.lock_steps,
            merges_zone: zone.merges,
            merges_pcp: pcp.merges,
            splits_zone: zone.splits,
            splits_pcp: pcp.splits,
            refills: pcp.refills,
            refills_by_phase: [
                pcp.refills_recover,
                pcp.refills_claim,
                pcp.refills_fragment,
                pcp.refills_fallback,
            ],
            refilled_frames: pcp.refilled_frames,
            drains: pcp.drains,
            drained_frames: pcp.drained_frames,
            drains_of_all: stats.drain_all,
            cpus_asked: stats.cpus_asked,
            remote_frees: pcp.remote_frees,
            lists_looked_at: pcp.lists_looked_at,
            fallbacks: zone.fallbacks,
        }
    }

    fn memory(&self) -> Memory {
        let map = self.classic.memory_map();
        Memory {
            managed_frames: map.managed,
            free_frames: map.free,
            pcp_frames: map.on_pcp,
            free_runs: map.runs,
            free_chunks: map.chunks,
            free_blocks: map.free_blocks,
            mixed_blocks: map.mixed_blocks,
            blocks_by_type: map.blocks_by_type,
            largest_free_order: map.largest_free_order().map(Order::get),
        }
    }

    fn free_cma(&self) -> u64 {
        let blocks = self.classic.pageblocks().into_iter();
        let cma = blocks.filter(|block| block.migratetype == Migratetype::Cma);
        cma.map(|block| u64::from(block.free)).sum()
    }

    fn zone_lock_holds(&self) -> Vec<[u64; 3]> {
        self.classic.stats().zone_lock.buckets().map(<[u64; 3]>::from).collect()
    }

    fn list_flow(&self) -> Option<ListFlow> {
        Some(self.classic.stats().flow)
    }

    fn validate(&self) -> Result<(), String> {
        self.classic.validate()
    }
}
