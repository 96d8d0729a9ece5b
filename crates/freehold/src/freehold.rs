//! The allocator itself: made from a configuration and the caller's memory; finds CPUs, zones and
//! blocks.

use core::mem::MaybeUninit;

use crate::alloc::watch::{ANY, Watch};
use crate::block::FRAMES;
use crate::block::layout::{ALIGN, LayoutBuilder};
use crate::block::map::{FrameMap, MemoryRange};
use crate::block::tag::{ABSENT, HOLES, TYPES, Tag};
use crate::cpu::by::By;
use crate::cpu::inside::Inside;
use crate::cpu::lease::SLOTS;
use crate::cpu::state::{CpuState, Cursors};
use crate::memory::hotplug::Lock;
use crate::platform::{HostBarrier, Platform, Pressure, PressureLevel};
use crate::primitive::{AtomicU8, AtomicU32, AtomicU64, Ordering, Relaxed, full_fence};
use crate::types::config::{Config, ConfigError, Watermarks};
use crate::zone::bitmap::WholeBitmap;
use crate::zone::board::Board;
use crate::zone::summary::Summary;
use crate::zone::watermarks::kernel_watermarks;
use crate::zone::{Apart, Zone, ZoneParts, bitmap_blocks};
use crate::{CpuId, NodeId, Pfn};

/// A page-frame allocator over the caller's metadata memory. See the
/// [crate's documentation](crate).
///
/// All methods take `&self`. Frames come from, and go to, a CPU of it: [`Freehold::here`] is the
/// current one, [`Freehold::on`] names one, and [`Freehold::own`] takes one for good, which is the
/// fastest way.
pub struct Freehold<'m, P> {
    pub(crate) platform: P,
    pub(crate) map: FrameMap<'m>,
    pub(crate) zones: &'m [Zone<'m>],
    pub(crate) cpus: &'m [CpuState<'m>],
    /// One for each (CPU, zone).
    pub(crate) cursors: &'m [Cursors],
    /// For each node the zones to try, in order.
    zonelists: &'m [AtomicU8],
    /// The node of each CPU.
    cpu_nodes: &'m [AtomicU8],
    /// Serialises changes to which CPUs and what memory there are.
    pub(crate) hotplug: Lock,
    /// The platform has a heavy barrier.
    pub(crate) asymmetric: bool,
    /// What failed requests wait for.
    pub(crate) watch: Watch,
    /// CPUs that may have something in hand.
    pub(crate) holding: Apart,
    /// Requests that are about to fail.
    pub(crate) failing: Apart,
    /// Double frees that no call could see.
    pub(crate) late_double_frees: AtomicU64,
}

/// The slices that the metadata is cut into.
struct Parts<'m> {
    cpus: &'m [CpuState<'m>],
    cursors: &'m [Cursors],
    zones: &'m [Zone<'m>],
    map: FrameMap<'m>,
    zonelists: &'m [AtomicU8],
    cpu_nodes: &'m [AtomicU8],
}

fn nodes(config: &Config<'_>) -> usize {
    let of_zones = config.zones.iter().map(|z| z.node);
    let of_cpus = config.cpu_nodes.iter().copied();
    of_zones.chain(of_cpus).map(|n| usize::from(n.get()) + 1).max().unwrap_or(1)
}

fn lay_out<'m>(config: &Config<'_>, layout: &mut LayoutBuilder<'m>) -> Parts<'m> {
    let zones = config.zones.len();
    let cpus = usize::from(config.cpus);
    let (first_section, sections) = config.section_span();
    Parts {
        cpus: lay_out_cpus(cpus, layout),
        cursors: layout.take(cpus * zones, |_| Cursors::new()),
        zones: lay_out_zones(config, layout),
        zonelists: layout.take(nodes(config) * zones, |_| AtomicU8::new(0)),
        cpu_nodes: layout.take(cpus, |cpu| AtomicU8::new(config.node_of(cpu).get())),
        map: FrameMap {
            first_section,
            ranges: layout.take(config.memory_ranges(), |_| MemoryRange::new()),
            blocks: layout.take_blocks(sections as usize, config.slots() as usize),
            ranges_version: AtomicU32::new(0),
        },
    }
}

/// Not inlined, nor are zones: a kernel's stack has 16 KiB, and what is made here is made on it.
#[inline(never)]
fn lay_out_cpus<'m>(cpus: usize, layout: &mut LayoutBuilder<'m>) -> &'m [CpuState<'m>] {
    match layout.take(1, |_| AtomicU64::new(0)).first() {
        Some(no_word) => layout.take(cpus, |number| CpuState::new(number, no_word)),
        None => layout.skip::<CpuState<'m>>(cpus),
    }
}

#[inline(never)]
fn lay_out_zones<'m>(config: &Config<'_>, layout: &mut LayoutBuilder<'m>) -> &'m [Zone<'m>] {
    // The zones' own slices come first, so that each zone can be written with them.
    let mut levels = [[&[][..]; 3]; 64];
    let mut boards = [[&[][..]; 2]; 64];
    for (z, zone) in config.zones.iter().enumerate() {
        let blocks = bitmap_blocks(zone.span);
        levels[z] = WholeBitmap::sizes(blocks).map(|n| layout.take(n, |_| AtomicU64::new(0)));
        boards[z] = Board::sizes(zone.span).map(|n| layout.take(n, |_| AtomicU64::new(0)));
    }
    layout.take(config.zones.len(), |z| {
        let zone = &config.zones[z];
        let [words, any, any2] = levels[z];
        let bitmap = WholeBitmap::new(words, Summary::new(any, any2));
        let board = Board::new(zone.span, boards[z][0], boards[z][1]);
        let parts = ZoneParts { bitmap, board };
        Zone::new(z as u8, zone.node, zone.span, parts)
    })
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Bytes of metadata that [`Freehold::new`] needs for this configuration, whatever the
    /// alignment of the region.
    ///
    /// 100 bytes for each 2 MiB of memory (50 KiB a GiB, 0.0048 %), in whole sections of 128 MiB,
    /// and about 5 KiB for each CPU.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served.
    pub fn metadata_size(config: &Config<'_>) -> Result<usize, ConfigError> {
        config.check()?;
        let mut layout = LayoutBuilder::measure();
        lay_out(config, &mut layout);
        // No region is larger than that. On 64 bits no configuration comes near it.
        match layout.used().checked_add(ALIGN).filter(|&size| size <= isize::MAX as usize) {
            Some(size) => Ok(size),
            None => Err(ConfigError::TooLarge { sections: config.slots() }),
        }
    }

    /// Makes an allocator whose metadata lives in `metadata`, with all memory of the configuration
    /// free.
    ///
    /// Writes one bit for each 2 MiB and what CPUs need. A block's metadata is written
    /// when the first of its section of 128 MiB is used: what the region holds until then does not
    /// matter, and pages of it that the host backs on first use stay unbacked.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served, and of too small a region.
    pub fn new(
        config: &Config<'_>,
        metadata: &'m mut [MaybeUninit<u8>],
        platform: P,
    ) -> Result<Self, ConfigError> {
        let needed = Self::metadata_size(config)?;
        let mut layout = LayoutBuilder::new(metadata);
        if layout.len() + ALIGN < needed {
            return Err(ConfigError::TooSmall { given: layout.len(), needed });
        }
        let parts = lay_out(config, &mut layout);
        let asymmetric = platform.has_heavy_barrier();
        let this = Self {
            platform,
            map: parts.map,
            zones: parts.zones,
            cpus: parts.cpus,
            cursors: parts.cursors,
            zonelists: parts.zonelists,
            cpu_nodes: parts.cpu_nodes,
            hotplug: Lock::new(),
            asymmetric,
            watch: Watch::new(),
            holding: Apart(AtomicU64::new(0)),
            failing: Apart(AtomicU64::new(0)),
            late_double_frees: AtomicU64::new(0),
        };
        this.fill_zonelists(nodes(config));
        for (zone, config) in this.zones.iter().zip(config.zones) {
            for range in config.memory {
                let populated = this.hotplug().populate(zone, *range, config.cma, true);
                debug_assert!(populated.is_ok(), "the configuration was counted through");
            }
        }
        this.compute_watermarks(config);
        for (number, cpu) in this.cpus.iter().enumerate() {
            cpu.online.set(number < usize::from(config.online));
        }
        this.choose_home_zones();
        this.compute_limits();
        Ok(this)
    }

    /// Each CPU's home is the first zone of its list that has memory. After memory has come or
    /// gone; what a CPU has of its old home goes back.
    pub(crate) fn choose_home_zones(&self) {
        for (number, cpu) in self.cpus.iter().enumerate() {
            let zones = || self.zonelist(number, None).map(|z| &self.zones[z]);
            let Some(zone) = zones().find(|zone| zone.managed.get() != 0).or(zones().next()) else {
                continue;
            };
            if cpu.home_zone.get() != u32::from(zone.id) {
                let inside = Inside::enter(self, cpu, CpuId::new(number as u16), false);
                // What it has counted is told as well: it counts another zone from now on.
                inside.give_back_all();
                cpu.home_zone.set(u32::from(zone.id));
                cpu.home_split.set(Tag::ordinary_in(zone.id));
            }
        }
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

    /// Computes the watermarks that follow the kernel's formulae again, after the amount of memory
    /// has changed.
    pub(crate) fn refresh_watermarks(&self) {
        let total: u64 = self.zones.iter().map(|z| z.managed.get()).sum();
        for zone in self.zones.iter().filter(|z| z.kernel_marks.get()) {
            let [min, low, high] = kernel_watermarks(zone.managed.get(), total);
            // Under the hotplug lock, as `set_watermarks`.
            zone.min.set(min);
            zone.low.set(low);
            zone.high.set(high);
        }
        // They may be lower than before: the marks before the look at who watches.
        full_fence();
        self.watch.came(ANY);
    }

    /// Sets a zone's watermarks, in frames.
    ///
    /// # Errors
    ///
    /// Where there is no such zone, or they do not rise.
    pub fn set_watermarks(
        &self,
        zone: usize,
        min: u64,
        low: u64,
        high: u64,
    ) -> Result<(), ConfigError> {
        let Some(z) = self.zones.get(zone) else { return Err(ConfigError::Zones { zones: zone }) };
        if min > low || low > high {
            return Err(ConfigError::Watermarks);
        }
        let hotplug = self.hotplug();
        z.kernel_marks.set(false);
        z.min.set(min);
        z.low.set(low);
        z.high.set(high);
        z.update_mode();
        drop(hotplug);
        // As in `refresh_watermarks`.
        full_fence();
        self.watch.came(ANY);
        self.tell_pressure();
        Ok(())
    }

    /// What follows from how much memory and how many CPUs there are: how many words each CPU may
    /// lease, how exactly frames are counted, which blocks are spared. A leased word keeps
    /// its block from becoming whole, so all leases together are in at most 1 % of the blocks; but
    /// each CPU has two, since with one it would change it between requests of two types or orders.
    pub(crate) fn compute_limits(&self) {
        let online = self.cpus.iter().filter(|cpu| cpu.online.get()).count().max(1) as u64;
        let managed: u64 = self.zones.iter().map(|zone| zone.managed.get()).sum();
        let words = managed / FRAMES as u64 / 100 / online;
        for cpu in self.cpus {
            // Relaxed: read by its CPU at its next lease.
            cpu.leases.set_limit(words.clamp(2, SLOTS as u64) as u32);
        }
        for zone in self.zones {
            // A CPU has up to seven blocks in use: for single frames and for runs, of three types,
            // and the one that it cuts runs of any length from.
            zone.spread.set(zone.blocks() / online >= 128);
            // All CPUs' allowances together are about 1/64 of the zone at most, where that is not
            // less than a few frames each.
            let fold = (zone.managed.get() / (64 * self.cpus.len() as u64)).clamp(8, FRAMES as u64);
            zone.fold.set(fold);
            let cpus = self.cpus.len() as u64;
            zone.shares.set(2 * online);
            // Each type's may be twice a grant; and of one a free has just come.
            zone.untold.set((2 * fold * TYPES as u64 + FRAMES as u64) * cpus);
            zone.update_mode();
        }
    }

    /// The zones for requests from that CPU, or of that node, in the order to try them.
    pub(crate) fn zonelist(
        &self,
        cpu: usize,
        node: Option<NodeId>,
    ) -> impl Iterator<Item = usize> + Clone + use<'m, P> {
        let zones = self.zones.len();
        let nodes = self.zonelists.len() / zones;
        let node = node.map_or(self.cpu_nodes[cpu].get() as usize, |n| n.get() as usize % nodes);
        self.zonelists[node * zones..(node + 1) * zones].iter().map(|z| z.get() as usize)
    }

    /// The zone that a tag names; of a block that is none yet, any.
    #[inline(always)]
    pub(crate) fn zone_by(&self, tag: Tag) -> &'m Zone<'m> {
        self.zones.get(tag.zone()).unwrap_or(&self.zones[0])
    }

    pub(crate) fn barrier(&self) -> HostBarrier<'_, P> {
        HostBarrier(&self.platform)
    }

    /// Tells the host about changed pressure. Called at the edge of the API.
    pub(crate) fn tell_pressure(&self) {
        self.update_levels(self.outside());
        self.tell_levels();
    }

    /// See [`update_level`](Zone::update_level).
    pub(crate) fn update_levels(&self, by: By<'_, 'm, P>) {
        self.zones.iter().for_each(|zone| zone.update_level(by));
    }

    /// Tells the host about levels that have changed.
    pub(crate) fn tell_levels(&self) {
        for (z, zone) in self.zones.iter().enumerate() {
            // Acquire: pairs with `update_level`; the level that made the change is seen.
            while zone.level_changed.get() && zone.level_changed.swap(false, Ordering::Acquire) {
                let level = zone.level.get();
                self.platform.pressure(Pressure {
                    zone: z,
                    level: match level {
                        0 => PressureLevel::None,
                        1 => PressureLevel::Low,
                        _ => PressureLevel::Min,
                    },
                    free: zone.free(self).all,
                    watermarks: [zone.min.get(), zone.low.get(), zone.high.get()],
                });
                // Another CPU may have told a later one before this: the last thing told must be
                // true.
                if zone.level.get() != level {
                    zone.level_changed.store(true, Ordering::Release);
                }
            }
        }
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

    /// The zone that a frame belongs to, as an index into the configuration; `None` where there is
    /// no memory. Constant time, but for blocks with holes and blocks never used.
    #[must_use]
    pub fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let tag = self.map.locate(pfn.get()).map(|block| block.head.tag.get());
        match tag.filter(|tag| tag.state() != ABSENT) {
            Some(tag) if !tag.has(HOLES) => Some(tag.zone()),
            _ => self
                .zones
                .iter()
                .position(|z| z.span.contains(pfn) && self.map.is_present(pfn.get())),
        }
    }

    /// The host has begun to take the memory of parts of blocks away, and says of which with
    /// [`Platform::in_memory`]. From now on CPUs ask for the next frames to take even where nearly
    /// all of a zone is free, since those at hand may have none.
    pub fn keep_to_memory(&self) {
        for zone in self.zones.iter().filter(|zone| !zone.thrifty.get()) {
            zone.thrifty.set(true);
            zone.update_mode();
        }
    }

    /// The host that was given to [`Freehold::new`].
    #[must_use]
    pub fn platform(&self) -> &P {
        &self.platform
    }

    pub(crate) fn cpu_state(&self, cpu: CpuId) -> Option<&'m CpuState<'m>> {
        self.cpus.get(cpu.index())
    }
}

impl<'m> CpuState<'m> {
    /// What a CPU has of a zone.
    #[inline(always)]
    pub(crate) fn cursors(&self, fh: &Freehold<'m, impl Platform>, zone: usize) -> &'m Cursors {
        &fh.cursors[usize::from(self.number) * fh.zones.len() + zone]
    }
}
