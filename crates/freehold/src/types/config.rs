//! What the machine looks like: CPUs, nodes, zones, where memory is.

use core::fmt;

use super::MAX_CPUS;
use crate::block::{SECTION_BLOCKS, section, sections_of};
use crate::{FrameRange, NodeId, Order, PAGEBLOCK_FRAMES, Pfn};

/// The machine to manage. Slices are read by [`Freehold::new`](crate::Freehold::new) only.
#[derive(Clone, Copy, Debug)]
pub struct Config<'c> {
    /// How many CPUs there can be, from 0. All are offline at first but those named in `online`.
    pub cpus: u16,
    /// How many of them, from CPU 0 on, are online at once.
    pub online: u16,
    /// The node of each CPU; CPUs behind the end of the slice are on node 0.
    pub cpu_nodes: &'c [NodeId],
    /// The zones, at most 64. On each node, those with higher frame numbers are used first.
    pub zones: &'c [ZoneConfig<'c>],
    /// How many pieces of memory may be added at run time, over all zones.
    pub extra_ranges: u16,
}

/// A zone: memory of one node with its own watermarks.
#[derive(Clone, Copy, Debug)]
pub struct ZoneConfig<'c> {
    /// The node.
    pub node: NodeId,
    /// Where its memory may ever lie. Both ends pageblock-aligned; zones must not overlap.
    pub span: FrameRange,
    /// The memory there is at first: pieces within the span that do not overlap, of any alignment.
    pub memory: &'c [FrameRange],
    /// Which of it is CMA: pageblock-aligned pieces.
    pub cma: &'c [FrameRange],
    /// How many 128 MiB sections that `memory` does not touch may get memory at run time.
    pub spare_sections: u32,
    /// When to hold back; see [`Watermarks`].
    pub watermarks: Watermarks,
}

/// Below how many free frames a zone serves whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watermarks {
    /// The kernel's formulae over all zones:
    /// `min_free_kbytes = clamp(sqrt(16 * KiB managed), 128, 262144)`, each zone its share;
    /// `gap = max(min / 4, managed / 1000)`; `low = min + gap`; `high = low + gap`. Linux 7.3.
    Kernel,
    /// These numbers of frames, in rising order.
    Frames {
        /// Ordinary requests may not take the zone's own free frames below this.
        min: u64,
        /// CPUs may not take whole blocks below this; the first pressure level.
        low: u64,
        /// Pressure is over above this.
        high: u64,
    },
    /// Nothing is held back.
    None,
}

/// A word's number, eight to a pageblock, has 32 bits.
const MAX_SECTIONS: u64 = (1 << 29) / SECTION_BLOCKS;

/// A configuration that cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// There must be at least one CPU, and no more than 32,766.
    Cpus {
        /// The number given.
        cpus: u16,
    },
    /// No more CPUs can be online than there are.
    Online {
        /// How many were to be.
        online: u16,
        /// How many there are.
        cpus: u16,
    },
    /// There must be 1 to 64 zones.
    Zones {
        /// The number given.
        zones: usize,
    },
    /// There is no such zone.
    NoZone {
        /// The index given.
        zone: usize,
    },
    /// A zone's span or CMA piece is empty, not pageblock-aligned, or ends above PFN 2^40.
    Span {
        /// The piece.
        range: FrameRange,
    },
    /// Memory or CMA outside its zone's span, or empty.
    OutsideZone {
        /// The piece.
        range: FrameRange,
    },
    /// Two pieces of memory, or two zones, share frames.
    Overlap {
        /// The first frame of the later one.
        pfn: Pfn,
    },
    /// The metadata region is too small.
    TooSmall {
        /// Bytes given, after alignment.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Watermarks must rise from min to high.
    Watermarks,
    /// More than 2^29 pageblocks of metadata, spare sections included: 1 PiB of memory in frames of
    /// 4 KiB. On 32-bit targets, more metadata than can be addressed.
    TooLarge {
        /// Sections of 64 pageblocks.
        sections: u64,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { cpus } => {
                write!(f, "{cpus} CPUs: there must be 1 to 32766")
            }
            Self::Online { online, cpus } => {
                write!(f, "{online} CPUs online: there are {cpus}")
            }
            Self::Zones { zones } => write!(f, "{zones} zones: there must be 1 to 64"),
            Self::NoZone { zone } => write!(f, "there is no zone {zone}"),
            Self::Span { range } | Self::OutsideZone { range } if range.end < range.start => {
                write!(f, "{range} ends before it starts")
            }
            Self::Span { range } | Self::OutsideZone { range } if range.is_empty() => {
                write!(f, "{range} is empty")
            }
            Self::Span { range } if range.end.get() > 1 << 40 => {
                write!(f, "{range} ends above PFN 2^40")
            }
            Self::Span { range } => {
                write!(f, "{range} does not start and end at a pageblock, a multiple of 512 frames")
            }
            Self::OutsideZone { range } => write!(f, "{range} is outside its zone's span"),
            Self::Overlap { pfn } => write!(f, "two pieces of memory or two zones share {pfn}"),
            Self::TooSmall { given, needed } => {
                write!(
                    f,
                    "{needed} bytes of metadata are needed, {given} were given; ask Config::metadata_size"
                )
            }
            Self::Watermarks => f.write_str("watermarks must rise: min <= low <= high"),
            Self::TooLarge { sections: sections @ ..=MAX_SECTIONS } => {
                write!(
                    f,
                    "the metadata of {sections} sections of 64 pageblocks is more than this target can address"
                )
            }
            Self::TooLarge { sections } => {
                write!(
                    f,
                    "memory and spare sections are {sections} sections of 64 pageblocks; there may be {MAX_SECTIONS}"
                )
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl<'c> ZoneConfig<'c> {
    /// A zone of node 0 without CMA or room for hotplug, with the kernel's watermarks, whose span
    /// is just what its memory needs.
    #[must_use]
    pub fn new(memory: &'c [FrameRange]) -> Self {
        let start = memory.iter().map(|r| r.start).min().unwrap_or_default().pageblock();
        let end = memory.iter().map(|r| r.end).max().unwrap_or_default();
        // At the end of the number space there is no such multiple: the check refuses that span.
        let end =
            Pfn::new(end.get().checked_next_multiple_of(PAGEBLOCK_FRAMES).unwrap_or(u64::MAX));
        Self {
            node: NodeId::new(0),
            span: FrameRange { start, end },
            memory,
            cma: &[],
            spare_sections: 0,
            watermarks: Watermarks::Kernel,
        }
    }
}

impl<'c> Config<'c> {
    /// All of `cpus` online, on node 0, with these zones.
    #[must_use]
    pub const fn new(cpus: u16, zones: &'c [ZoneConfig<'c>]) -> Self {
        Self { cpus, online: cpus, cpu_nodes: &[], zones, extra_ranges: 0 }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let &Self { cpus, online, .. } = self;
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(ConfigError::Cpus { cpus });
        }
        if online > cpus {
            return Err(ConfigError::Online { online, cpus });
        }
        if self.zones.is_empty() || self.zones.len() > 64 {
            return Err(ConfigError::Zones { zones: self.zones.len() });
        }
        let aligned = |range: &FrameRange| {
            range.start.is_aligned(Order::PAGEBLOCK)
                && range.end.is_aligned(Order::PAGEBLOCK)
                && !range.is_empty()
                && range.end.get() <= 1 << 40
        };
        for (i, zone) in self.zones.iter().enumerate() {
            // Before the span, which may have been computed from it: a range is named as written.
            if let Some(range) = zone.memory.iter().find(|range| range.end < range.start) {
                return Err(ConfigError::OutsideZone { range: *range });
            }
            if !aligned(&zone.span) {
                return Err(ConfigError::Span { range: zone.span });
            }
            for other in &self.zones[..i] {
                if overlap(&zone.span, &other.span) {
                    return Err(ConfigError::Overlap {
                        pfn: zone.span.start.max(other.span.start),
                    });
                }
            }
            for (j, range) in zone.memory.iter().enumerate() {
                if range.is_empty() || range.start < zone.span.start || range.end > zone.span.end {
                    return Err(ConfigError::OutsideZone { range: *range });
                }
                if let Some(other) = zone.memory[..j].iter().find(|o| overlap(o, range)) {
                    return Err(ConfigError::Overlap { pfn: range.start.max(other.start) });
                }
            }
            for range in zone.cma {
                if !aligned(range) {
                    return Err(ConfigError::Span { range: *range });
                }
                if range.start < zone.span.start || range.end > zone.span.end {
                    return Err(ConfigError::OutsideZone { range: *range });
                }
            }
            if let Watermarks::Frames { min, low, high } = zone.watermarks {
                if min > low || low > high {
                    return Err(ConfigError::Watermarks);
                }
            }
        }
        match self.slots() {
            ..=MAX_SECTIONS => Ok(()),
            sections => Err(ConfigError::TooLarge { sections }),
        }
    }

    /// Sections with memory at first, and spare ones.
    pub(crate) fn slots(&self) -> u64 {
        let spare = self.zones.iter().map(|zone| u64::from(zone.spare_sections)).sum::<u64>();
        spare + sections_of(self.zones.iter().flat_map(|zone| zone.memory).copied())
    }

    /// The first section of the whole span, and how many there are.
    pub(crate) fn section_span(&self) -> (u64, u64) {
        let first = self.zones.iter().map(|z| section(z.span.start)).min().unwrap_or(0);
        let last =
            self.zones.iter().map(|z| section(Pfn::new(z.span.end.get() - 1))).max().unwrap_or(0);
        (first, last - first + 1)
    }

    pub(crate) fn memory_ranges(&self) -> usize {
        self.zones.iter().map(|z| z.memory.len()).sum::<usize>() + usize::from(self.extra_ranges)
    }
}

fn overlap(a: &FrameRange, b: &FrameRange) -> bool {
    a.start < b.end && b.start < a.end
}
