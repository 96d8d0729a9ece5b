//! The allocator itself: made from a configuration and the caller's memory.

use core::mem::MaybeUninit;

use crate::Pfn;
use crate::alloc::watch::{ANY, Failures, Watch};
use crate::block::layout::{ALIGN, LayoutBuilder};
use crate::block::{ABSENT, FrameMap, HOLES, MemoryRange};
use crate::cpu::{CpuState, Cursors};
use crate::memory::hotplug::Hotplug;
use crate::platform::Platform;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Relaxed, full_fence};
use crate::types::config::{Config, ConfigError, Watermarks};
use crate::zone::board::{Board, Summary};
use crate::zone::supply::Apart;
use crate::zone::whole::WholeBitmap;
use crate::zone::{Zone, Zonelists, bitmap_blocks, first_block};

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
    pub(crate) zonelists: Zonelists<'m>,
    /// Somebody changes which CPUs and what memory there are: an ordinary spin lock, see [`Hotplug`].
    pub(crate) hotplug: AtomicBool,
    /// The platform has a heavy barrier.
    pub(crate) asymmetric: bool,
    /// What failed requests wait for.
    pub(crate) watch: Watch,
    /// CPUs that may have something in hand.
    pub(crate) holding: Apart,
    /// Requests that are about to fail.
    pub(crate) failing: Failures,
    /// Double frees that no call could see.
    pub(crate) late_double_frees: AtomicU64,
}

/// The slices that the metadata is cut into.
struct Parts<'m> {
    cpus: &'m [CpuState<'m>],
    cursors: &'m [Cursors],
    zones: &'m [Zone<'m>],
    map: FrameMap<'m>,
    zonelists: Zonelists<'m>,
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
        zonelists: Zonelists {
            lists: layout.take(nodes(config) * zones, |_| AtomicU8::new(0)),
            zones,
            cpu_nodes: layout.take(cpus, |cpu| {
                AtomicU8::new(config.cpu_nodes.get(cpu).copied().unwrap_or_default().get())
            }),
        },
        map: FrameMap {
            first_section,
            ranges: layout.take(config.memory_ranges(), |_| MemoryRange::default()),
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

/// Blocks of 1 GiB: memory of less than two such regions has none to be kept apart.
pub(crate) const REGION: u64 = 512;

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
        let end = zone.memory.iter().map(|piece| piece.end.get() >> 9).max();
        let frames: u64 = zone.memory.iter().map(|piece| piece.len()).sum();
        let end = end.filter(|_| frames >> 9 >= 2 * REGION);
        let first_end = end.map_or(0, |end| end - first_block(zone.span));
        Zone::new((z as u8, zone.node, zone.span), (bitmap, board), first_end)
    })
}

impl Config<'_> {
    /// Bytes of metadata that [`Freehold::new`] needs for this configuration, whatever the
    /// alignment of the region.
    ///
    /// 100 bytes for each 2 MiB of memory (50 KiB a GiB, 0.0048 %), in whole sections of 128 MiB,
    /// and about 5 KiB for each CPU.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served.
    pub fn metadata_size(&self) -> Result<usize, ConfigError> {
        self.check()?;
        let mut layout = LayoutBuilder::measure();
        lay_out(self, &mut layout);
        // No region is larger than that. On 64 bits no configuration comes near it.
        match layout.used().checked_add(ALIGN).filter(|&size| size <= isize::MAX as usize) {
            Some(size) => Ok(size),
            None => Err(ConfigError::TooLarge { sections: self.slots() }),
        }
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Makes an allocator whose metadata is `metadata`, with all memory of the configuration free.
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
        let needed = config.metadata_size()?;
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
            hotplug: AtomicBool::new(false),
            asymmetric,
            watch: Watch::new(),
            holding: Apart::default(),
            failing: Failures(Apart::default()),
            late_double_frees: AtomicU64::new(0),
        };
        this.zonelists.fill(this.zones);
        let hotplug = Hotplug::lock(&this);
        for (zone, config) in this.zones.iter().zip(config.zones) {
            for range in config.memory {
                let populated = hotplug.populate(zone, *range, config.cma, true);
                debug_assert!(populated.is_ok(), "the configuration was counted through");
            }
            zone.kernel_marks.set(config.watermarks == Watermarks::Kernel);
            if let Watermarks::Frames { min, low, high } = config.watermarks {
                zone.set_marks([min, low, high]);
            }
        }
        for (number, cpu) in this.cpus.iter().enumerate() {
            cpu.online.set(number < usize::from(config.online));
        }
        hotplug.memory_changed();
        drop(hotplug);
        Ok(this)
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
        let Some(z) = self.zones.get(zone) else { return Err(ConfigError::NoZone { zone }) };
        if min > low || low > high {
            return Err(ConfigError::Watermarks);
        }
        let hotplug = Hotplug::lock(self);
        z.kernel_marks.set(false);
        z.set_marks([min, low, high]);
        z.update_mode();
        drop(hotplug);
        // As in `refresh_watermarks`.
        full_fence();
        self.watch.came(ANY);
        self.outside().tell_pressure();
        Ok(())
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
        let tag = self.map.locate(pfn.get()).map(|block| block.tag.get());
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
}
