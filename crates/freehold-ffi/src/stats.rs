//! The counters, as structures. They only grow at the end, and only with a new soname.

use freehold::{CpuId, Order};

use crate::allocator::Allocator;
use crate::arguments::{put, shared, wanted};
use crate::error::{Error, Failure, answer};
use crate::status::Status;

/// Orders that there are: 0 to 18.
pub const FREEHOLD_ORDERS: usize = 19;
/// Migratetypes that there are.
pub const FREEHOLD_MIGRATETYPES: usize = 6;
/// Buckets of the histogram of work per hold of a zone lock.
pub const FREEHOLD_WORK_BUCKETS: usize = 20;

const _: () = {
    assert!(FREEHOLD_ORDERS == freehold::ORDERS);
    assert!(FREEHOLD_MIGRATETYPES == freehold::Migratetype::ALL.len());
    assert!(FREEHOLD_WORK_BUCKETS == freehold::WORK_BUCKETS);
};

/// What one CPU has done since the allocator was made, or all of them together.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CpuStats {
    /// Allocations by requested migratetype (unmovable, movable, reclaimable), then by order; each frame of a bulk
    /// allocation counts as one of order 0.
    pub allocs: [[u64; FREEHOLD_ORDERS]; 3],
    /// Frees (calls, or frames of bulk calls) of frames whose block this CPU held.
    pub local_frees: u64,
    /// Frees of frames whose block somebody else held.
    pub remote_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that needed more than what the CPU held.
    pub slow: u64,
    /// Times it went to a zone for more.
    pub refills: u64,
    /// Refills that gave something, by phase: recover, claim, fragment, fallback.
    pub refills_by_phase: [u64; 4],
    /// Free frames that zones handed over.
    pub refilled_frames: u64,
    /// Times it gave blocks back to a zone.
    pub drains: u64,
    /// Free frames given back.
    pub drained_frames: u64,
    /// Times it asked all other CPUs for what they had in hand.
    pub recalls: u64,
}

/// The state and the history of one zone.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ZoneStats {
    /// Frames there are.
    pub managed: u64,
    /// Frames free, wherever they are held.
    pub free: u64,
    /// Of these, in blocks that no group holds.
    pub free_in_zone: u64,
    /// Of these, in groups' blocks.
    pub free_in_groups: u64,
    /// Of these, in CPUs' hands.
    pub free_in_cpus: u64,
    /// Free frames in CMA blocks.
    pub free_cma: u64,
    /// Free frames in HIGHATOMIC blocks.
    pub free_high_atomic: u64,
    /// Watermarks now, in frames: min, low, high.
    pub watermarks: [u64; 3],
    /// Blocks by migratetype.
    pub blocks_by_type: [u64; FREEHOLD_MIGRATETYPES],
    /// Blocks of the zone itself, isolations included.
    pub blocks_in_zone: u64,
    /// Blocks of groups.
    pub blocks_in_groups: u64,
    /// Whole blocks that CPUs keep.
    pub blocks_in_cpus: u64,
    /// Blocks of which no frame is in use, wherever they are held.
    pub free_blocks: u64,
    /// Blocks by largest free order: index 0 = nothing free, k = order k - 1.
    pub blocks_by_largest_order: [u64; 11],
    /// The fewest naturally aligned chunks that the free frames form, by order.
    pub free_chunks: [u64; FREEHOLD_ORDERS],
    /// Times the zone lock was taken.
    pub lock_acquisitions: u64,
    /// Times the locks of its groups were taken.
    pub group_lock_acquisitions: u64,
    /// Steps of work done under it.
    pub lock_work: u64,
    /// The most steps in one hold.
    pub lock_work_max: u64,
    /// Holds by steps: bucket b counts holds of `2^(b-1)` to `2^b - 1` steps, bucket 0 those of none.
    pub lock_work_histogram: [u64; FREEHOLD_WORK_BUCKETS],
    /// Allocations that fell back to another migratetype.
    pub fallbacks: u64,
    /// Of these, allocations placed inside a block that kept its other type.
    pub mixed: u64,
    /// Chunks taken out of larger free runs under the lock.
    pub splits: u64,
}

/// Sums over all CPUs and zones.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Totals {
    /// Sums over all CPUs.
    pub cpus: CpuStats,
    /// Frees made while the CPU's own state was in use by somebody else; no CPU counts them.
    pub unattributed_frees: u64,
    /// Double frees that no call could see.
    pub late_double_frees: u64,
    /// Zone-lock acquisitions over all zones.
    pub lock_acquisitions: u64,
    /// Acquisitions of groups' locks.
    pub group_lock_acquisitions: u64,
    /// Steps of work under zone locks.
    pub lock_work: u64,
    /// The most steps in one hold.
    pub lock_work_max: u64,
}

/// Copies the fields of that name.
macro_rules! copied {
    ($to:ident, $from:ident: $($field:ident),*) => {
        $to { $($field: $from.$field),* }
    };
}

impl From<freehold::CpuStats> for CpuStats {
    fn from(s: freehold::CpuStats) -> Self {
        copied!(Self, s: allocs, local_frees, remote_frees, failed, slow, refills, refills_by_phase, refilled_frames,
            drains, drained_frames, recalls)
    }
}

impl From<freehold::ZoneStats> for ZoneStats {
    fn from(s: freehold::ZoneStats) -> Self {
        copied!(Self, s: managed, free, free_in_zone, free_in_groups, free_in_cpus, free_cma, free_high_atomic,
            watermarks, blocks_by_type, blocks_in_zone, blocks_in_groups, blocks_in_cpus, free_blocks, blocks_by_largest_order,
            free_chunks, lock_acquisitions, group_lock_acquisitions, lock_work, lock_work_max, lock_work_histogram, fallbacks, mixed, splits)
    }
}

impl From<freehold::Totals> for Totals {
    fn from(s: freehold::Totals) -> Self {
        Self {
            cpus: s.cpus.into(),
            unattributed_frees: s.unattributed_frees,
            late_double_frees: s.late_double_frees,
            lock_acquisitions: s.lock_acquisitions,
            group_lock_acquisitions: s.group_lock_acquisitions,
            lock_work: s.lock_work,
            lock_work_max: s.lock_work_max,
        }
    }
}

impl ZoneStats {
    /// What the derived figures are computed from, as the allocator has it.
    fn engine(&self) -> freehold::ZoneStats {
        let mut stats = freehold::ZoneStats::default();
        stats.free = self.free;
        stats.free_chunks = self.free_chunks;
        stats.lock_acquisitions = self.lock_acquisitions;
        stats.lock_work_max = self.lock_work_max;
        stats.lock_work_histogram = self.lock_work_histogram;
        stats
    }
}

/// What a CPU has done. Takes no lock.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `allocator` is null or comes from `freehold_new` and is not destroyed; `stats` and `error` are null or can be written
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_cpu_stats(
    allocator: *const Allocator,
    cpu: u16,
    stats: *mut CpuStats,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let found = shared(allocator, "allocator")?.engine.cpu_stats(CpuId::new(cpu));
            put(stats, "stats", found.ok_or(Failure::NoCpu { cpu })?.into())
        })
    }
}

/// The state and history of a zone. Takes no lock; walks all of its blocks. Exact while nothing runs.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `allocator` is null or comes from `freehold_new` and is not destroyed; `stats` and `error` are null or can be written
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_zone_stats(
    allocator: *const Allocator,
    zone: usize,
    stats: *mut ZoneStats,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            wanted(stats, "stats")?;
            let found = shared(allocator, "allocator")?.engine.zone_stats(zone);
            put(stats, "stats", found.ok_or_else(|| no_zone(zone))?.into())
        })
    }
}

pub(crate) fn no_zone(zone: usize) -> Failure {
    freehold::ConfigError::Zones { zones: zone }.into()
}

/// Sums over all CPUs and zones. Takes no lock; does not walk.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `allocator` is null or comes from `freehold_new` and is not destroyed; `totals` and `error` are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_totals(
    allocator: *const Allocator,
    totals: *mut Totals,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { answer(error, || put(totals, "totals", shared(allocator, "allocator")?.engine.totals().into())) }
}

/// Free frames that a CPU has in hand, over all zones, and the sum of its present high marks. Takes no lock.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `allocator` is null or comes from `freehold_new` and is not destroyed; `frames`, `high` and `error` are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_cpu_holdings(
    allocator: *const Allocator,
    cpu: u16,
    frames: *mut u64,
    high: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let found = shared(allocator, "allocator")?.engine.cpu_holdings(CpuId::new(cpu));
            let (count, mark) = found.ok_or(Failure::NoCpu { cpu })?;
            put(frames, "frames", count)?;
            put(high, "high", mark)
        })
    }
}

/// How many blocks a CPU holds; the zones where `cpu` is negative. Takes no lock; walks all blocks.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `allocator` is null (0 then) or comes from `freehold_new` and is not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_blocks_held(allocator: *const Allocator, cpu: i32) -> u64 {
    let holder = u16::try_from(cpu).ok().map(CpuId::new);
    // A number that no CPU can have.
    if cpu >= 0 && holder.is_none() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { allocator.as_ref() }.map_or(0, |this| this.engine.blocks_held(holder))
}

/// The share of free memory that cannot serve a request of `order`, in thousandths: the unusable-free-space index
/// (Gorman and Whitcroft, 2006). 0 when all of it can, when nothing is free, and for a null pointer.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `stats` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_zone_stats_unusable_permille(stats: *const ZoneStats, order: u8) -> u64 {
    // SAFETY: the caller's promise.
    let stats = unsafe { stats.as_ref() };
    stats.map_or(0, |stats| stats.engine().unusable_permille(Order::new(order).unwrap_or(Order::MAX)))
}

/// The largest order of which a chunk is free, wherever it is held; -1 where nothing is.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `stats` is null (-1 then) or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_zone_stats_largest_free_order(stats: *const ZoneStats) -> i32 {
    // SAFETY: the caller's promise.
    let order = unsafe { stats.as_ref() }.and_then(|stats| stats.engine().largest_free_order());
    order.map_or(-1, |order| order.get().into())
}

/// An upper bound of the steps that 99 % of the holds of the zone lock stayed within.
///
/// Thread safety: any thread, at any time.
///
/// # Safety
///
/// `stats` is null (0 then) or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_zone_stats_lock_work_p99(stats: *const ZoneStats) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { stats.as_ref() }.map_or(0, |stats| stats.engine().lock_work_p99())
}
