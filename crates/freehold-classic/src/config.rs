//! What a machine looks like: its CPUs, its zones, and the design that manages them.

use core::fmt;

use freehold::{AllocError, FrameRange, Order, PAGEBLOCK_FRAMES, Pfn};

use crate::presets::Design;
use crate::watermark::Watermarks;

/// A zone to be.
#[derive(Clone, Debug)]
pub struct ZoneConfig {
    /// Its name in reports.
    pub name: String,
    /// The memory node that it belongs to.
    pub node: u8,
    /// The frames it spans.
    pub range: FrameRange,
    /// Where it spans no memory. Sorted, inside `range`, not overlapping.
    pub holes: Vec<FrameRange>,
    /// Whole pageblocks lent to movable requests until a device claims them.
    pub cma: Vec<FrameRange>,
    /// Its watermarks; the kernel's default formula where not given.
    pub watermarks: Option<Watermarks>,
    /// Frames that requests which could use a higher zone leave free here (`lowmem_reserve`).
    pub lowmem_reserve: u64,
}

impl ZoneConfig {
    /// A zone of `frames` frames from `start` on, without holes.
    #[must_use]
    pub fn new(name: &str, start: Pfn, frames: u64) -> Self {
        Self {
            name: name.into(),
            node: 0,
            range: FrameRange { start, end: Pfn::new(start.get().saturating_add(frames)) },
            holes: Vec::new(),
            cma: Vec::new(),
            watermarks: None,
            lowmem_reserve: 0,
        }
    }

    /// Frames that are memory.
    #[must_use]
    pub fn managed(&self) -> u64 {
        self.range.len() - self.holes.iter().map(FrameRange::len).sum::<u64>()
    }
}

/// A machine to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it manages its memory.
    pub design: Design,
    /// CPUs.
    pub cpus: u16,
    /// The node of each CPU; of CPUs that are not named, node 0.
    pub cpu_nodes: Vec<u8>,
    /// Its zones by rising frame number. Requests try their CPU's node first, then the next ones
    /// and round; of each node the last zone first.
    pub zones: Vec<ZoneConfig>,
    /// Transparent huge pages are on: order 9 is kept on PCP lists, watermarks are raised.
    pub huge_pages: bool,
    /// Each CPU's share of the data cache in frames, which decides how long high-order pages may
    /// wait (`PCPF_FREE_HIGH_BATCH`): they may while the share is more than 3 batches.
    pub cache_slice: u64,
}

impl Config {
    /// One zone of `frames` frames from PFN 0x100000 (4 GiB) on, where zone Normal begins on
    /// x86-64.
    #[must_use]
    pub fn single_zone(design: Design, cpus: u16, frames: u64) -> Self {
        Self {
            design,
            cpus,
            cpu_nodes: Vec::new(),
            zones: vec![ZoneConfig::new("Normal", Pfn::new(0x10_0000), frames)],
            huge_pages: true,
            // 1 MiB: what current server cores have for themselves.
            cache_slice: 256,
        }
    }

    /// The node of a CPU.
    pub(crate) fn node_of(&self, cpu: u16) -> u8 {
        self.cpu_nodes.get(usize::from(cpu)).copied().unwrap_or(0)
    }

    /// For each CPU the zones in the order in which its requests try them, as positions. Source:
    /// Linux, `build_zonelists`, all nodes being as far from each other.
    pub(crate) fn zonelists(&self) -> Vec<Box<[usize]>> {
        let nodes =
            self.zones.iter().map(|zone| zone.node).max().map_or(1, |node| u16::from(node) + 1);
        let list = |cpu| {
            let far = |zone: usize| {
                (u16::from(self.zones[zone].node) + nodes - u16::from(self.node_of(cpu)) % nodes)
                    % nodes
            };
            let mut zones: Vec<usize> = (0..self.zones.len()).rev().collect();
            // Stable: of one node the last zone stays first.
            zones.sort_by_key(|&zone| far(zone));
            zones.into_boxed_slice()
        };
        (0..self.cpus).map(list).collect()
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.cpus == 0 || self.cpus > 4096 {
            return Err(ConfigError::Cpus { cpus: self.cpus });
        }
        if self.zones.is_empty() {
            return Err(ConfigError::NoZones);
        }
        let mut end = 0;
        for zone in &self.zones {
            let range = zone.range;
            let name = || zone.name.clone();
            // Indices are u32 with one value to spare, and a zone of the last order must fit.
            if range.is_empty() || range.len() > 1 << 31 {
                return Err(ConfigError::ZoneSize { zone: name(), frames: range.len() });
            }
            // 2^52 frames are 2^64 bytes.
            if range.end.get() > 1 << 52 {
                return Err(ConfigError::Beyond { zone: name(), pfn: range.end });
            }
            if range.start.get() < end {
                return Err(ConfigError::Overlap { zone: name(), pfn: range.start });
            }
            end = range.end.get();
            let mut after = range.start;
            for hole in &zone.holes {
                if hole.is_empty() || hole.start < after || hole.end > range.end {
                    return Err(ConfigError::BadHole { zone: name(), hole: *hole });
                }
                after = hole.end;
            }
            if zone.managed() == 0 {
                return Err(ConfigError::ZoneSize { zone: name(), frames: 0 });
            }
            for cma in &zone.cma {
                let aligned =
                    cma.start.is_aligned(Order::PAGEBLOCK) && cma.end.is_aligned(Order::PAGEBLOCK);
                if cma.is_empty() || !aligned || cma.start < range.start || cma.end > range.end {
                    return Err(ConfigError::BadCma { zone: name(), cma: *cma });
                }
            }
        }
        Ok(())
    }
}

/// Why a machine cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// No CPU, or more than 4096.
    Cpus {
        /// What was given.
        cpus: u16,
    },
    /// No zone.
    NoZones,
    /// A zone without memory, or with more than 2^31 frames (8 TiB).
    ZoneSize {
        /// The zone.
        zone: String,
        /// What was given.
        frames: u64,
    },
    /// A zone that ends behind frame 2^52: there are no such addresses.
    Beyond {
        /// The zone.
        zone: String,
        /// Where it ends.
        pfn: Pfn,
    },
    /// A zone that begins before the one before it ends.
    Overlap {
        /// The zone.
        zone: String,
        /// Where it begins.
        pfn: Pfn,
    },
    /// A hole that is empty, out of order, or not inside its zone.
    BadHole {
        /// The zone.
        zone: String,
        /// What was given.
        hole: FrameRange,
    },
    /// A CMA range that is not made of whole pageblocks of its zone.
    BadCma {
        /// The zone.
        zone: String,
        /// What was given.
        cma: FrameRange,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { cpus } => write!(f, "{cpus} CPUs: there must be 1 to 4096"),
            Self::NoZones => f.write_str("a machine needs at least one zone"),
            Self::ZoneSize { zone, frames } => {
                write!(f, "zone {zone} has {frames} frames: there must be 1 to 2^31")
            }
            Self::Beyond { zone, pfn } => {
                write!(f, "zone {zone} ends at {pfn}: no frame number is above 2^52")
            }
            Self::Overlap { zone, pfn } => {
                write!(f, "zone {zone} begins at {pfn}, before the zone before it ends")
            }
            Self::BadHole { zone, hole } => {
                write!(
                    f,
                    "the hole {hole} of zone {zone} is empty, out of order, or outside the zone"
                )
            }
            Self::BadCma { zone, cma } => {
                write!(
                    f,
                    "the CMA range {cma} of zone {zone} is not made of whole pageblocks \
                     ({PAGEBLOCK_FRAMES} frames)"
                )
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// A request for one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How much.
    pub order: Order,
    /// What kind: unmovable, movable or reclaimable.
    pub migratetype: freehold::Migratetype,
    /// How far the allocator may go.
    pub flags: freehold::AllocFlags,
}

impl Request {
    /// An ordinary request.
    #[must_use]
    pub fn new(order: Order, migratetype: freehold::Migratetype) -> Self {
        Self { order, migratetype, flags: freehold::AllocFlags::empty() }
    }

    /// This request with those flags instead of its own.
    #[must_use]
    pub fn with(self, flags: freehold::AllocFlags) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn check(self) -> Result<Self, AllocError> {
        if self.order > Order::LINUX_MAX {
            return Err(AllocError::OrderTooLarge { order: self.order, max: Order::LINUX_MAX });
        }
        if !freehold::Migratetype::PCP.contains(&self.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: self.migratetype });
        }
        Ok(self)
    }

    /// Movable requests may use CMA pageblocks (the kernel's `gfp_to_alloc_flags_cma`).
    pub(crate) fn may_cma(self) -> bool {
        self.migratetype == freehold::Migratetype::Movable
    }
}
