//! The counters.

use crate::allocator::{Allocator, Engine};
use crate::arguments::{migratetype, shared};
use crate::error::{Error, Failure, tell};
use crate::status::Status;

/// Orders that there are: 0 to 18.
pub const FREEHOLD_ORDERS: usize = 19;
/// Migratetypes that there are.
pub const FREEHOLD_MIGRATETYPES: usize = 6;

const _: () = {
    assert!(FREEHOLD_ORDERS == freehold::ORDERS);
    assert!(FREEHOLD_MIGRATETYPES == freehold::Migratetype::ALL.len());
};

/// What all CPUs have done since the allocator was made.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CpuStats {
    /// Allocations by requested migratetype (unmovable, movable, reclaimable), then by order;
    /// each frame of a bulk allocation counts as one of order 0.
    pub allocs: [[u64; FREEHOLD_ORDERS]; 3],
    /// Frees (calls, or frames of bulk calls) into words that this CPU leases.
    pub local_frees: u64,
    /// Other frees.
    pub remote_frees: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that needed more than what the CPU held.
    pub slow: u64,
    /// Times it went to a zone for more.
    pub refills: u64,
    /// Refills that gave something: from a partly free block, a whole one, one of another type.
    pub refills_by_phase: [u64; 3],
    /// Free frames that zones handed over.
    pub refilled_frames: u64,
    /// Times it asked all other CPUs for what they had in hand.
    pub recalls: u64,
    /// Writes to memory that all CPUs of a zone write.
    pub shared_writes: u64,
}

/// The state and the history of one zone.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ZoneStats {
    /// Frames there are.
    pub managed: u64,
    /// Frames free, wherever they are held.
    pub free: u64,
    /// Of these, in nobody's hand.
    pub free_in_zone: u64,
    /// Of these, in CPUs' hands.
    pub free_in_cpus: u64,
    /// Free frames in CMA blocks.
    pub free_cma: u64,
    /// Free frames in HIGHATOMIC blocks.
    pub free_high_atomic: u64,
    /// Watermarks now, in frames: min, low, high.
    pub watermarks: [u64; 3],
    /// Whole blocks that nobody has; of CMA and HIGHATOMIC blocks none counts.
    pub whole_blocks: u64,
    /// Whole blocks that CPUs keep.
    pub blocks_in_cpus: u64,
    /// Allocations that fell back to another migratetype.
    pub fallbacks: u64,
    /// Of these, allocations placed inside a block that kept its other type.
    pub mixed: u64,
}

/// What a walk over one zone's blocks finds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ZoneBlocks {
    /// Blocks by migratetype.
    pub blocks_by_type: [u64; FREEHOLD_MIGRATETYPES],
    /// Blocks of which no frame is in use, wherever they are held.
    pub free_blocks: u64,
    /// Blocks by largest free order: index 0 = nothing free, k = order k - 1.
    pub blocks_by_largest_order: [u64; 11],
    /// The fewest naturally aligned chunks that the free frames form, by order.
    pub free_chunks: [u64; FREEHOLD_ORDERS],
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
    /// Writes to memory that all CPUs of a zone write, over all CPUs.
    pub shared_writes: u64,
}

/// Made of those fields of the allocator's own structure.
macro_rules! copied {
    ($to:ty, $from:ty: $($field:ident),*) => {
        impl From<$from> for $to {
            fn from(from: $from) -> Self {
                Self { $($field: from.$field.into()),* }
            }
        }
    };
}
#[cfg(feature = "std")]
pub(crate) use copied;

copied!(CpuStats, freehold::CpuStats: allocs, local_frees, remote_frees, failed, slow, refills,
    refills_by_phase, refilled_frames, recalls, shared_writes);
copied!(ZoneStats, freehold::ZoneStats: managed, free, free_in_zone, free_in_cpus, free_cma,
    free_high_atomic, watermarks, whole_blocks, blocks_in_cpus, fallbacks, mixed);
copied!(ZoneBlocks, freehold::ZoneBlocks: blocks_by_type, free_blocks, blocks_by_largest_order,
    free_chunks);
copied!(Totals, freehold::Totals: cpus, unattributed_frees, late_double_frees, shared_writes);

/// The state and history of a zone. Takes no lock, and time that grows with the number of CPUs, not
/// with the memory. Exact while nothing runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_zone_stats(
    allocator: *const Allocator,
    zone: usize,
    stats: *mut ZoneStats,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(stats, "stats", error, || Ok(of_zone(allocator, zone, Engine::zone_stats)?.into()))
    }
}

/// What each block of a zone is, summed up. Takes no lock; walks all of its blocks. Exact while
/// nothing runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_zone_blocks(
    allocator: *const Allocator,
    zone: usize,
    blocks: *mut ZoneBlocks,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(blocks, "blocks", error, || Ok(of_zone(allocator, zone, Engine::zone_blocks)?.into()))
    }
}

/// About how many free chunks of each order a zone has that no CPU has in hand: `chunks` has room
/// for `FREEHOLD_ORDERS` numbers. Whole blocks are counted exactly; a partly free block counts as
/// its largest run, as far as is known, and all else as single frames, so that all of them are what
/// is free. Takes no lock; looks at 240 bytes for each 128 MiB, and at CMA blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_listed_chunks(
    allocator: *const Allocator,
    zone: usize,
    chunks: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise; an array of numbers is aligned as its first one is.
    unsafe {
        tell(chunks.cast(), "chunks", error, || of_zone(allocator, zone, Engine::listed_chunks))
    }
}

/// The fewest naturally aligned chunks that the free frames of a zone's blocks of one
/// `freehold_migratetype` form, by order: `chunks` has room for `FREEHOLD_ORDERS` numbers. Takes no
/// lock; walks all blocks of the zone. Exact while nothing runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_free_chunks(
    allocator: *const Allocator,
    zone: usize,
    migratetype: u8,
    chunks: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise; an array of numbers is aligned as its first one is.
    unsafe {
        tell(chunks.cast::<[u64; FREEHOLD_ORDERS]>(), "chunks", error, || {
            let migratetype = self::migratetype(migratetype, freehold::Migratetype::Isolate)?;
            of_zone(allocator, zone, |engine, zone| engine.free_chunks(zone, migratetype))
        })
    }
}

/// What the engine says of a zone; an error where there is none of that number.
pub(crate) unsafe fn of_zone<T>(
    allocator: *const Allocator,
    zone: usize,
    ask: impl FnOnce(&Engine, usize) -> Option<T>,
) -> Result<T, Failure> {
    // SAFETY: the caller's promise.
    let this = unsafe { shared(allocator, "allocator")? };
    ask(&this.engine, zone).ok_or(freehold::ConfigError::NoZone { zone }.into())
}

/// Sums over all CPUs and zones. Takes no lock; does not walk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_totals(
    allocator: *const Allocator,
    totals: *mut Totals,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(totals, "totals", error, || Ok(shared(allocator, "allocator")?.engine.totals().into()))
    }
}
