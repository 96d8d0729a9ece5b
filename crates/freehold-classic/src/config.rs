//! What a machine looks like: its CPUs, its zone, and the design that manages it.

use freehold::{AllocError, FrameRange, Order, PAGEBLOCK_FRAMES, Pfn};

use crate::presets::Design;
use crate::watermark::Watermarks;

/// A zone to be.
#[derive(Clone, Debug)]
pub struct ZoneConfig {
    /// Its frames.
    pub range: FrameRange,
    /// Whole pageblocks lent to movable requests until a device claims them.
    pub cma: Vec<FrameRange>,
    /// Its watermarks; the kernel's default formula where not given.
    pub watermarks: Option<Watermarks>,
    /// Frames that stay free above each mark, kept from requests that a higher zone could serve
    /// (`lowmem_reserve`). All requests are taken for such.
    pub lowmem_reserve: u64,
}

impl ZoneConfig {
    /// A zone of `frames` frames from `start` on.
    #[must_use]
    pub fn new(start: Pfn, frames: u64) -> Self {
        let range = FrameRange { start, end: Pfn::new(start.get().saturating_add(frames)) };
        Self { range, cma: Vec::new(), watermarks: None, lowmem_reserve: 0 }
    }
}

/// A machine to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it manages its memory.
    pub design: Design,
    /// CPUs.
    pub cpus: u16,
    /// Its zone: several zones, or nodes, are a machine each.
    pub zone: ZoneConfig,
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
            zone: ZoneConfig::new(Pfn::new(0x10_0000), frames),
            huge_pages: true,
            // 1 MiB: what current server cores have for themselves.
            cache_slice: 256,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.cpus == 0 || self.cpus > 4096 {
            return Err(ConfigError::Cpus(self.cpus));
        }
        let range = self.zone.range;
        // Indices are u32 with one value to spare, and a zone of the last order must fit.
        if range.is_empty() || range.len() > 1 << 31 {
            return Err(ConfigError::ZoneSize(range.len()));
        }
        // 2^52 frames are 2^64 bytes.
        if range.end.get() > 1 << 52 {
            return Err(ConfigError::Beyond(range.end));
        }
        for cma in &self.zone.cma {
            let aligned =
                cma.start.is_aligned(Order::PAGEBLOCK) && cma.end.is_aligned(Order::PAGEBLOCK);
            if cma.is_empty() || !aligned || cma.start < range.start || cma.end > range.end {
                return Err(ConfigError::BadCma(*cma));
            }
        }
        Ok(())
    }
}

/// Why a machine cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No CPU, or more than 4096.
    #[error("{0} CPUs: there must be 1 to 4096")]
    Cpus(u16),
    /// A zone of so many frames: none, or more than 2^31 (8 TiB).
    #[error("a zone of {0} frames: there must be 1 to 2^31")]
    ZoneSize(u64),
    /// A zone that ends behind frame 2^52: there are no such addresses.
    #[error("the zone ends at {0}: no frame number is above 2^52")]
    Beyond(Pfn),
    /// A CMA range that is not made of whole pageblocks of the zone.
    #[error(
        "the CMA range {0} is not made of whole pageblocks ({PAGEBLOCK_FRAMES} frames) of the zone"
    )]
    BadCma(FrameRange),
}

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
