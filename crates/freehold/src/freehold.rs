//! The allocator itself: made from a configuration and the caller's memory; finds CPUs, zones and blocks.

use core::mem::MaybeUninit;

use crate::biased::Barrier;
use crate::block::{Block, CLASS_DETACHED, FLAG_HOLES, FRAMES, NONE, WORDS};
use crate::carve::{ALIGN, Carver};
use crate::config::{Config, ConfigError, Watermarks};
use crate::holder::Holder;
use crate::inbox::Inbox;
use crate::map::{FrameMap, MemoryRange, SECTION_BLOCKS};
use crate::percpu::{CpuState, Pcp};
use crate::platform::{HostBarrier, Platform, Pressure, PressureLevel};
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, Plain};
use crate::remote::Inboxes;
use crate::shelf::TYPES;
use crate::wholes::Wholes;
use crate::zone::{Zone, ZoneGuard, map_blocks};
use crate::{CpuId, FrameRange, Migratetype, NodeId, Pfn};

/// A page-frame allocator over the caller's metadata memory. See the [crate's documentation](crate).
///
/// All methods take `&self`. Those that name no CPU work on [`Platform::current_cpu`]; [`Freehold::on`] names one, and
/// [`Freehold::own`] takes one for good, which is the fastest way.
pub struct Freehold<'m, P> {
    pub(crate) platform: P,
    pub(crate) map: FrameMap<'m>,
    pub(crate) zones: &'m [Zone<'m>],
    pub(crate) cpus: &'m [CpuState],
    /// One for each (CPU, zone).
    pub(crate) pcps: &'m [Pcp],
    /// For each node the zones to try, in order.
    zonelists: &'m [AtomicU8],
    /// The node of each CPU.
    cpu_nodes: &'m [AtomicU8],
    /// Serialises changes to which CPUs and what memory there are.
    pub(crate) hotplug: AtomicBool,
    /// The platform has a heavy barrier.
    pub(crate) asymmetric: bool,
    /// Frees made where the CPU's state was not to be had.
    pub(crate) unattributed_frees: AtomicU64,
}

/// The slices that the metadata is cut into.
struct Parts<'m> {
    blocks: &'m [Block],
    cpus: &'m [CpuState],
    pcps: &'m [Pcp],
    zones: &'m [Zone<'m>],
    sections: &'m [AtomicU32],
    ranges: &'m [MemoryRange],
    zonelists: &'m [AtomicU8],
    cpu_nodes: &'m [AtomicU8],
}

fn nodes(config: &Config<'_>) -> usize {
    let of_zones = config.zones.iter().map(|z| z.node);
    let of_cpus = config.cpu_nodes.iter().copied();
    of_zones.chain(of_cpus).map(|n| usize::from(n.get()) + 1).max().unwrap_or(1)
}

fn cut<'m>(config: &Config<'_>, carver: &mut Carver<'m>) -> Parts<'m> {
    let zones = config.zones.len();
    let cpus = usize::from(config.cpus);
    Parts {
        blocks: carver.take((config.slots() * SECTION_BLOCKS) as usize, |_| Block::new()),
        cpus: carver.take(cpus, |_| CpuState::new()),
        pcps: carver.take(cpus * zones, |_| Pcp::new()),
        sections: carver.take(config.section_span().1 as usize, |_| AtomicU32::new(NONE)),
        ranges: carver.take(config.memory_ranges(), |_| MemoryRange::new()),
        zonelists: carver.take(nodes(config) * zones, |_| AtomicU8::new(0)),
        cpu_nodes: carver.take(cpus, |cpu| AtomicU8::new(config.node_of(cpu).get())),
        zones: {
            // The zones' own slices come first, so that each zone can be written with them.
            let mut levels = [[&[][..]; 3]; 64];
            let mut homes = [&[][..]; 64];
            for (z, zone) in config.zones.iter().enumerate() {
                let sizes = Wholes::sizes(map_blocks(zone.span));
                levels[z] = sizes.map(|n| carver.take(n, |_| AtomicU64::new(0)));
                homes[z] = carver.take(cpus * TYPES, |_| AtomicU32::new(NONE));
            }
            carver.take(zones, |z| {
                let zone = &config.zones[z];
                let [words, any, any2] = levels[z];
                Zone::new(z as u8, zone.node, zone.span, Wholes::new(words, any, any2), homes[z])
            })
        },
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Bytes of metadata that [`Freehold::new`] needs for this configuration, whatever the alignment of the region.
    ///
    /// 256 bytes for each 2 MiB of memory (128 KiB a GiB, 0.0122 %), in whole sections of 128 MiB, and about 2.5 KiB
    /// for each CPU and zone.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served.
    pub fn metadata_size(config: &Config<'_>) -> Result<usize, ConfigError> {
        config.check()?;
        let mut carver = Carver::measure();
        cut(config, &mut carver);
        Ok(carver.used() + ALIGN)
    }

    /// Makes an allocator whose metadata lives in `metadata`, with all memory of the configuration free.
    ///
    /// Takes time proportional to the memory managed: about 256 bytes are written for each 2 MiB.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served, and of too small a region.
    pub fn new(config: &Config<'_>, metadata: &'m mut [MaybeUninit<u8>], platform: P) -> Result<Self, ConfigError> {
        let needed = Self::metadata_size(config)?;
        let mut carver = Carver::new(metadata);
        if carver.len() + ALIGN < needed {
            return Err(ConfigError::TooSmall { given: carver.len(), needed });
        }
        let parts = cut(config, &mut carver);
        let asymmetric = platform.has_heavy_barrier();
        let this = Self {
            platform,
            map: FrameMap {
                sections: parts.sections,
                first_section: config.section_span().0,
                blocks: parts.blocks,
                ranges: parts.ranges,
                slots: AtomicU32::new(0),
            },
            zones: parts.zones,
            cpus: parts.cpus,
            pcps: parts.pcps,
            zonelists: parts.zonelists,
            cpu_nodes: parts.cpu_nodes,
            hotplug: AtomicBool::new(false),
            asymmetric,
            unattributed_frees: AtomicU64::new(0),
        };
        this.fill_zonelists(nodes(config));
        for (zone, config) in this.zones.iter().zip(config.zones) {
            for range in config.memory {
                this.populate(zone, *range, config.cma);
            }
        }
        this.compute_watermarks(config);
        for (cpu, state) in this.cpus.iter().enumerate() {
            state.first_pcp.set((cpu * this.zones.len() + this.first_zone(cpu)) as u32);
        }
        for cpu in 0..usize::from(config.online) {
            this.cpus[cpu].inbox.open();
            this.cpus[cpu].online.set(true);
        }
        this.compute_shares();
        Ok(this)
    }

    /// For each node: its own zones, highest first, then those of the next nodes round the ring.
    fn fill_zonelists(&self, nodes: usize) {
        let zones = self.zones.len();
        for node in 0..nodes {
            let list = &self.zonelists[node * zones..(node + 1) * zones];
            let rank = |z: usize| {
                let distance = (usize::from(self.zones[z].node.get()) + nodes - node) % nodes;
                (distance, u64::MAX - self.zones[z].span.start.get())
            };
            for z in 0..zones {
                let place = (0..zones).filter(|&other| rank(other) < rank(z)).count();
                list[place].set(z as u8);
            }
        }
    }

    /// Makes a piece of memory free and the zone's. It must not be present yet. Under the hotplug lock, or before
    /// anyone else knows this allocator. `false` where a section or a range slot is missing; nothing has changed then.
    pub(crate) fn populate(&self, zone: &Zone<'m>, range: FrameRange, cma: &[FrameRange]) -> bool {
        // A piece that continues another one needs no entry of its own.
        let used = |r: &&MemoryRange| r.start.get() < r.end.get() && zone.span.contains(Pfn::new(r.start.get()));
        let below = self.map.ranges.iter().filter(used).find(|r| r.end.get() == range.start.get());
        let above = self.map.ranges.iter().filter(used).find(|r| r.start.get() == range.end.get());
        let free = self.map.ranges.iter().find(|r| r.start.get() == r.end.get());
        let Some(entry) = below.or(above).or(free) else { return false };
        let (first, last) = (range.start.get() >> 9, (range.end.get() - 1) >> 9);
        // All slots at once or none.
        let sections = || ((first / SECTION_BLOCKS)..=(last / SECTION_BLOCKS)).map(|s| s << crate::map::SECTION_SHIFT);
        let missing = sections().filter(|&pfn| self.map.locate(pfn).is_none()).count() as u64;
        if missing > self.map.free_slots() || sections().any(|pfn| self.map.slot_for(pfn).is_none()) {
            return false;
        }
        let start = below.map_or(range.start.get(), |r| r.start.get());
        let end = above.map_or(range.end.get(), |r| r.end.get());
        if let (Some(_), Some(above)) = (below, above) {
            above.end.set(above.start.get());
        }
        entry.start.set(start);
        entry.end.set(end);
        for number in first..=last {
            let Some(index) = self.map.locate_block(number) else { continue };
            let base = number << 9;
            let start = range.start.get().max(base);
            let end = range.end.get().min(base + FRAMES as u64);
            let mut present = [0; WORDS];
            for (w, m) in crate::bits::spans((start - base) as usize, (end - start) as usize) {
                present[w] |= m;
            }
            self.populate_block(zone, index, &present, cma);
        }
        true
    }

    fn populate_block(&self, zone: &Zone<'m>, index: u32, present: &[u64; WORDS], cma: &[FrameRange]) {
        let block = &self.map.blocks[index as usize];
        let frames: u32 = present.iter().map(|m| m.count_ones()).sum();
        loop {
            let guard = self.lock_zone_quietly(zone);
            if block.holder() == Holder::NOBODY {
                block.set_zone(zone.id);
                let base = Pfn::new(block.base());
                let is_cma = cma.iter().any(|r| r.contains(base));
                block.set_migratetype(if is_cma { Migratetype::Cma } else { Migratetype::Movable } as u8);
                block.set_class(CLASS_DETACHED);
            } else if block.holder() == Holder::ZONE {
                // Two pieces of memory meet in one block.
                guard.unplace(index);
            } else {
                drop(guard);
                self.pull(index);
                continue;
            }
            block.add_memory(present);
            block.count.set(block.popcount() as u16);
            // Written while the zone has the block, so nobody takes a frame of it as present that is not.
            block.set_flag(FLAG_HOLES, self.map.present_of_ranges(block) != [!0; WORDS]);
            guard.place(index, block.exact_class());
            zone.managed.set(zone.managed.get() + u64::from(frames));
            return;
        }
    }

    fn compute_watermarks(&self, config: &Config<'_>) {
        let total: u64 = self.zones.iter().map(|z| z.managed.get()).sum();
        for (zone, config) in self.zones.iter().zip(config.zones) {
            let managed = zone.managed.get();
            let [min, low, high] = match config.watermarks {
                Watermarks::Kernel => kernel_watermarks(managed, total),
                Watermarks::Frames { min, low, high } => [min, low, high],
                Watermarks::None => [0; 3],
            };
            zone.kernel_marks.set(config.watermarks == Watermarks::Kernel);
            zone.min.set(min);
            zone.low.set(low);
            zone.high.set(high);
        }
    }

    /// Computes the watermarks that follow the kernel's formulae again, after the amount of memory has changed.
    pub(crate) fn refresh_watermarks(&self) {
        let total: u64 = self.zones.iter().map(|z| z.managed.get()).sum();
        for zone in self.zones.iter().filter(|z| z.kernel_marks.get()) {
            let [min, low, high] = kernel_watermarks(zone.managed.get(), total);
            let _guard = self.lock_zone_quietly(zone);
            zone.min.set(min);
            zone.low.set(low);
            zone.high.set(high);
        }
    }

    /// Sets a zone's watermarks, in frames.
    ///
    /// # Errors
    ///
    /// Where there is no such zone, or they do not rise.
    pub fn set_watermarks(&self, zone: usize, min: u64, low: u64, high: u64) -> Result<(), ConfigError> {
        let Some(z) = self.zones.get(zone) else { return Err(ConfigError::Zones { zones: zone }) };
        if min > low || low > high {
            return Err(ConfigError::Watermarks);
        }
        let _guard = self.lock_zone(z);
        z.kernel_marks.set(false);
        z.min.set(min);
        z.low.set(low);
        z.high.set(high);
        Ok(())
    }

    /// Gives each CPU that is online its share of each zone: at most an eighth of it between them all (Linux 6.7's
    /// `high_max`). A share below one block means that the CPU holds none and is served from the zone's own.
    pub(crate) fn compute_shares(&self) {
        let online = self.cpus.iter().filter(|c| c.online.get()).count().max(1) as u64;
        for (z, zone) in self.zones.iter().enumerate() {
            let share = zone.managed.get() / 8 / online;
            let least = (zone.low.get() / online).max(2 * FRAMES as u64).min(share);
            for cpu in 0..self.cpus.len() {
                let pcp = self.pcp(cpu, z);
                pcp.high_max.set(share.min(u64::from(u32::MAX / 2)) as u32);
                pcp.high_min.set(least.min(u64::from(u32::MAX / 2)) as u32);
                pcp.high.set(pcp.high.get().clamp(pcp.high_min.get(), pcp.high_max.get()));
            }
        }
    }

    #[inline(always)]
    pub(crate) fn pcp(&self, cpu: usize, zone: usize) -> &'m Pcp {
        &self.pcps[cpu * self.zones.len() + zone]
    }

    /// The zones for requests from that CPU, or of that node, in the order to try them.
    pub(crate) fn zonelist(&self, cpu: usize, node: Option<NodeId>) -> impl Iterator<Item = usize> + Clone {
        let zones = self.zones.len();
        let nodes = self.zonelists.len() / zones;
        let node = node.map_or(self.cpu_nodes[cpu].get() as usize, |n| n.get() as usize % nodes);
        self.zonelists[node * zones..(node + 1) * zones].iter().map(|z| z.get() as usize)
    }

    /// The zone that requests from that CPU go to first.
    pub(crate) fn first_zone(&self, cpu: usize) -> usize {
        self.zonelist(cpu, None).next().unwrap_or(0)
    }

    pub(crate) fn lock_zone<'z>(&'z self, zone: &'z Zone<'m>) -> ZoneGuard<'z, 'm> {
        zone.lock(&self.map, || self.platform.relax())
    }

    /// Takes the lock for a look that the statistics shall not show.
    pub(crate) fn lock_zone_quietly<'z>(&'z self, zone: &'z Zone<'m>) -> ZoneGuard<'z, 'm> {
        let mut guard = self.lock_zone(zone);
        guard.counted = false;
        guard
    }

    pub(crate) fn barrier(&self) -> HostBarrier<'_, P> {
        HostBarrier(&self.platform)
    }

    pub(crate) fn late_double_free(&self, pfn: u64) {
        self.platform.late_double_free(Pfn::new(pfn));
    }

    /// Tells the host about changed pressure. Called at the edge of the API, without locks.
    pub(crate) fn tell_pressure(&self) {
        for (z, zone) in self.zones.iter().enumerate() {
            // Relaxed: only who gets `true` speaks, and what it says is read afresh.
            if zone.level_changed.get() && zone.level_changed.swap(false, Ordering::Relaxed) {
                self.platform.pressure(Pressure {
                    zone: z,
                    level: match zone.level.get() {
                        0 => PressureLevel::None,
                        1 => PressureLevel::Low,
                        _ => PressureLevel::Min,
                    },
                    free: zone.free.get(),
                    watermarks: [zone.min.get(), zone.low.get(), zone.high.get()],
                });
            }
        }
    }

    /// Runs `f` while nobody else changes which CPUs and what memory there are.
    pub(crate) fn with_hotplug_lock<T>(&self, f: impl FnOnce() -> T) -> T {
        // Acquire / Release: an ordinary spin lock.
        while self.hotplug.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.barrier().relax();
        }
        let result = f();
        self.hotplug.store(false, Ordering::Release);
        result
    }

    /// How many zones there are.
    #[must_use]
    pub fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// How many CPUs there can be.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The zone that a frame belongs to, as an index into the configuration; `None` where there is no memory. Constant
    /// time, but for blocks with holes.
    #[must_use]
    pub fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let block = &self.map.blocks[self.map.locate(pfn.get())? as usize];
        let present =
            block.holder() != Holder::NOBODY && (!block.has_flag(FLAG_HOLES) || self.map.is_present(pfn.get()));
        present.then(|| block.zone() as usize)
    }

    /// The host that was given to [`Freehold::new`].
    #[must_use]
    pub fn platform(&self) -> &P {
        &self.platform
    }

    pub(crate) fn cpu_state(&self, cpu: CpuId) -> Option<&'m CpuState> {
        self.cpus.get(cpu.index())
    }
}

/// min, low and high of a zone, in frames; see [`Watermarks::Kernel`].
pub(crate) fn kernel_watermarks(managed: u64, total: u64) -> [u64; 3] {
    if total == 0 {
        return [0; 3];
    }
    let min_kib = (total * 4 * 16).isqrt().clamp(128, 262_144);
    let min = (u128::from(min_kib / 4) * u128::from(managed) / u128::from(total)) as u64;
    let gap = (min / 4).max(managed / 1000);
    [min, min + gap, min + 2 * gap]
}

impl<P: Platform> Inboxes for Freehold<'_, P> {
    #[inline]
    fn inbox(&self, block: &Block, holder: Holder) -> Option<&Inbox> {
        if holder == Holder::ZONE {
            return Some(&self.zones[block.zone() as usize].inbox);
        }
        self.cpus.get(holder.as_cpu()?.index()).map(|cpu| &cpu.inbox)
    }

    fn relax(&self) {
        self.platform.relax();
    }
}
