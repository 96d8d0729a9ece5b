// What registries show, with its example compiled and run.
#![doc = include_str!("../README.md")]
//!
//! # Where to read
//!
//! The path of a frame, and in parentheses the file of each step:
//!
//! ```text
//!   alloc ──> PCP list (pcp) ── empty ──> refill (refill) ──> zone lists (zone, buddy)
//!     ^            ^                                              │ none of that type
//!     │            │ tune: how much, how high                     v
//!     │            │                                other types (fallback), reserves (highatomic)
//!     v            │
//!   in use ── free (free, range) ──> own PCP, owner's PCP, or zone
//!                  │ too much
//!                  v
//!               drain (drain) ──> zone lists
//!
//!   contig: a range, wherever it is   cpus: visits all of them   check: is all of it consistent?
//!   peer: a block from another CPU          unowned: merging without owners
//!   setup: a machine whose memory is partly in use at the beginning
//! ```

#![forbid(unsafe_code)]

mod alloc;
mod buddy;
mod check;
mod config;
mod contig;
mod cpus;
mod drain;
mod fallback;
mod free;
mod highatomic;
mod inspect;
mod kernel;
mod list;
mod page;
mod pageblock;
mod pcp;
mod peer;
mod presets;
mod range;
mod refill;
mod setup;
mod stats;
mod switches;
mod tune;
mod unowned;
mod watermark;
mod zone;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use freehold::{CpuId, FreeError, Pfn};

pub use config::{Config, ConfigError, Request, ZoneConfig};
pub use contig::InUse;
pub use free::FOLIO_BATCH;
pub use inspect::PageblockState;
pub use kernel::{Kernel, KernelOutside};
pub use page::Put;
pub use presets::{Design, DesignError, Preset, presets};
pub use stats::{ListFlow, MemoryMap, PcpCounters, Stats, Work, WorkHistogram, ZoneCounters};
pub use switches::{Proposal, Switch, Switches};
pub use tune::{Pressure, SCALE_MAX, Tuning, batch_size, high_range};
pub use watermark::Watermarks;

use crate::pcp::Layout;
use crate::zone::Zone;

/// Counters of what happens under no lock.
#[derive(Default)]
struct Counts {
    failed: AtomicU64,
    kept: AtomicU64,
    pcp_busy: AtomicU64,
    remote_pcp_waits: AtomicU64,
    remote_queued: AtomicU64,
    drain_all: AtomicU64,
    range_visits: AtomicU64,
    cpus_asked: AtomicU64,
}

/// A machine's page allocator. All methods take `&self` and may be called from any thread.
pub struct Classic {
    zone: Zone,
    on: Switches,
    layout: Layout,
    cache_slice: u64,
    counts: Counts,
}

impl Classic {
    /// Builds the machine, all memory free.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let on = config.design.switches;
        let marks = config.zone.watermarks.unwrap_or_else(|| {
            Watermarks::kernel_default(config.zone.range.len(), config.huge_pages)
        });
        let classic = Self {
            zone: Zone::new(&config.zone, on, config.cpus, marks),
            on,
            layout: Layout::new(on, config.huge_pages),
            cache_slice: config.cache_slice,
            counts: Counts::default(),
        };
        classic.retune();
        Ok(classic)
    }

    /// The tuning state of one CPU.
    #[must_use]
    pub fn tuning(&self, cpu: CpuId) -> Option<Tuning> {
        Some(self.zone.pcps.get(cpu.index())?.look().tuning)
    }

    /// Frames on a CPU's lists.
    #[must_use]
    pub fn pcp_count(&self, cpu: CpuId) -> u32 {
        self.zone.pcps.get(cpu.index()).map_or(0, |pcp| pcp.look().count)
    }

    /// What has been done under the zone's lock and under one CPU's, so far: a few numbers, to be
    /// compared before and after a call. `None` where there is no such CPU. Constant time, and
    /// counts as no hold.
    #[must_use]
    pub fn work(&self, cpu: CpuId) -> Option<Work> {
        let (zone_holds, zone_steps) = {
            let zone = self.zone.look();
            (zone.histogram.holds(), zone.histogram.total())
        };
        let pcp = self.zone.pcps.get(cpu.index())?.look().counters;
        Some(Work {
            zone_holds,
            zone_steps,
            pcp_merge_steps: pcp.merge_steps,
            pcp_changes: pcp.merges + pcp.splits + pcp.absorbed,
            refilled_frames: pcp.refilled_frames,
        })
    }

    /// The CPU that owns the pageblock of a frame (pcp-buddy): where a free of that frame goes.
    #[must_use]
    pub fn owner(&self, pfn: Pfn) -> Option<CpuId> {
        let owner = self.zone.blocks.owner(self.zone.block_of(self.find(pfn).ok()?))?;
        Some(CpuId::new(owner as u16))
    }

    /// The switches of the design.
    #[must_use]
    pub fn switches(&self) -> Switches {
        self.on
    }

    /// Says that memory is being reclaimed, or no longer (`ZONE_RECLAIM_ACTIVE`): CPUs keep less
    /// while it is, and a boost of the watermarks ends with it (`balance_pgdat`).
    pub fn set_reclaim(&self, active: bool) {
        self.zone.reclaim.store(active, SeqCst);
        if !active {
            self.zone.boost.store(0, Relaxed);
        }
    }

    /// Says that what kswapd frees comes as calls of its own, as in a recording: no request that
    /// may wait fails for a boost of the watermarks, which only asks kswapd for more.
    pub fn set_kswapd_elsewhere(&self) {
        self.zone.kswapd_elsewhere.store(true, Relaxed);
    }

    fn check_cpu(&self, cpu: CpuId) -> Result<(), CpuId> {
        if cpu.index() < self.zone.pcps.len() { Ok(()) } else { Err(cpu) }
    }

    /// The index of a frame.
    fn find(&self, pfn: Pfn) -> Result<u32, FreeError> {
        self.zone.frame(pfn).ok_or(FreeError::OutOfZone { pfn })
    }
}
