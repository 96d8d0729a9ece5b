//! What the machine looks like: the caller's structures, read without copying more than a little.

use core::mem::offset_of;

use freehold::{
    Config as EngineConfig, FrameRange as EngineRange, NodeId, Pfn, Watermarks, ZoneConfig,
};

use crate::arguments;
use crate::error::Failure;

/// Neighbouring frames: `start` included, `end` not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct FrameRange {
    /// The first frame.
    pub start: u64,
    /// The frame after the last.
    pub end: u64,
}

impl From<EngineRange> for FrameRange {
    fn from(range: EngineRange) -> Self {
        Self { start: range.start.get(), end: range.end.get() }
    }
}

/// Arrays of ranges are handed on where they lie (there is no heap to copy them to), so both
/// must look the same.
const _: () = {
    assert!(size_of::<FrameRange>() == size_of::<EngineRange>());
    assert!(align_of::<FrameRange>() >= align_of::<EngineRange>());
    assert!(offset_of!(EngineRange, start) == offset_of!(FrameRange, start));
    assert!(offset_of!(EngineRange, end) == offset_of!(FrameRange, end));
};

/// Below how many free frames a zone serves whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum WatermarkRule {
    /// The Linux formulae over all zones.
    Kernel = 0,
    /// The numbers of frames given.
    Frames = 1,
    /// Nothing is held back.
    None = 2,
}

/// A zone: memory of one node with its own watermarks. All zero but for its memory is a
/// zone of node 0 with the Linux watermarks and no room for more memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Zone {
    /// Where its memory may lie, now and later. Both ends pageblock-aligned (512 frames); zones
    /// must not overlap. Both zero: just what its memory needs.
    pub span: FrameRange,
    /// The memory there is at first: pieces within the span, apart, of any alignment.
    pub memory: *const FrameRange,
    /// How many pieces.
    pub memory_count: usize,
    /// Which of it is CMA: pageblock-aligned pieces.
    pub cma: *const FrameRange,
    /// How many pieces.
    pub cma_count: usize,
    /// The watermarks in frames, for `FREEHOLD_WATERMARK_RULE_FRAMES`: ordinary requests may not
    /// take the zone's own free frames below this.
    pub min: u64,
    /// CPUs may not take whole blocks below this; the first pressure level.
    pub low: u64,
    /// Pressure is over above this.
    pub high: u64,
    /// A `freehold_watermark_rule`.
    pub watermarks: u32,
    /// How many sections of 128 MiB that `memory` does not touch may get memory at run time.
    pub spare_sections: u32,
    /// The node.
    pub node: u8,
}

/// The machine to manage. Read by `freehold_metadata_size` and `freehold_new` only; nothing of
/// it is kept.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// The zones, 1 to 64. On each node, those with higher frame numbers are used first.
    pub zones: *const Zone,
    /// How many zones.
    pub zone_count: usize,
    /// The node of each CPU; those behind the end of the array are on node 0.
    pub cpu_nodes: *const u8,
    /// How many entries that has.
    pub cpu_node_count: usize,
    /// How many CPUs there can be, 1 to 32,766, numbered from 0.
    pub cpus: u16,
    /// How many of them, from CPU 0 on, are online at once.
    pub online: u16,
    /// How many pieces of memory may be added at run time, over all zones.
    pub extra_ranges: u16,
}

unsafe fn ranges<'a>(
    pointer: *const FrameRange,
    count: usize,
    name: &'static str,
) -> Result<&'a [EngineRange], Failure> {
    // SAFETY: the two types are laid out alike, which is checked above; the rest is the caller's
    // promise.
    unsafe { arguments::array(pointer.cast(), count, name) }
}

impl Zone {
    unsafe fn engine<'a>(&self) -> Result<ZoneConfig<'a>, Failure> {
        // SAFETY: the caller's promise.
        let (memory, cma) = unsafe {
            (
                ranges(self.memory, self.memory_count, "memory")?,
                ranges(self.cma, self.cma_count, "cma")?,
            )
        };
        let watermarks = match self.watermarks {
            0 => Watermarks::Kernel,
            1 => Watermarks::Frames { min: self.min, low: self.low, high: self.high },
            2 => Watermarks::None,
            value => {
                let allowed = "a freehold_watermark_rule";
                return Err(Failure::Argument { what: "watermarks", value: value.into(), allowed });
            }
        };
        let default = ZoneConfig::new(memory);
        let span = if self.span == FrameRange::default() {
            default.span
        } else {
            EngineRange { start: Pfn::new(self.span.start), end: Pfn::new(self.span.end) }
        };
        Ok(ZoneConfig {
            node: NodeId::new(self.node),
            span,
            cma,
            spare_sections: self.spare_sections,
            watermarks,
            ..default
        })
    }
}

impl Config {
    /// Runs `f` with the allocator's form of it.
    ///
    /// That needs room for its zones, of which most machines have a few and some have 64, which
    /// is 7 KiB: more than a kernel likes to see on its stack for nothing.
    pub(crate) unsafe fn with_engine<T>(
        &self,
        f: impl FnOnce(&EngineConfig<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // SAFETY: the caller's promise, in each case.
        unsafe {
            match self.zone_count {
                0..=4 => self.with_zones::<4, _>(f),
                5..=16 => self.with_zones::<16, _>(f),
                17..=64 => self.with_zones::<64, _>(f),
                zones => Err(freehold::ConfigError::Zones { zones }.into()),
            }
        }
    }

    /// `N` is at least the number of zones.
    #[inline(never)]
    unsafe fn with_zones<const N: usize, T>(
        &self,
        f: impl FnOnce(&EngineConfig<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // SAFETY: the caller's promise. A NodeId is a u8 (`repr(transparent)`).
        let (zones, cpu_nodes) = unsafe {
            (
                arguments::array(self.zones, self.zone_count, "zones")?,
                arguments::array(
                    self.cpu_nodes.cast::<NodeId>(),
                    self.cpu_node_count,
                    "cpu_nodes",
                )?,
            )
        };
        let mut room = [ZoneConfig::new(&[]); N];
        for (to, from) in room.iter_mut().zip(zones) {
            // SAFETY: the caller's promise.
            *to = unsafe { from.engine()? };
        }
        f(&EngineConfig {
            cpus: self.cpus,
            online: self.online,
            cpu_nodes,
            zones: &room[..self.zone_count],
            extra_ranges: self.extra_ranges,
        })
    }
}
