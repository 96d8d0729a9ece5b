//! The bare allocator: made in the caller's memory, and what can be asked of it.
//!
//! There is no heap, so everything lives in the region that the caller hands over:
//!
//! ```text
//! metadata                                                                      metadata + size
//! |pad| Allocator | CPU handles: owners', anybody's, the current one's | the engine's metadata |
//!     ^
//!     freehold_allocator *
//! ```

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::{ptr, slice};

use freehold::{AllocFlags, CpuId, Freehold, Order, Pfn};

use crate::arguments::{put_if_wanted, shared, wanted};
use crate::config::Config;
use crate::error::{Error, Failure, answer, ask, tell};
use crate::handle::{Cpu, Way};
use crate::platform::{Host, Platform};
use crate::status::Status;

pub(crate) type Engine = Freehold<'static, Host>;

/// A page-frame allocator over the caller's metadata memory. Opaque.
pub struct Allocator {
    pub(crate) engine: Engine,
    /// Of each CPU its owner's handle; then of each CPU anybody's; then that of the current CPU.
    cpus: &'static [Cpu],
}

impl Allocator {
    /// Where each CPU's handle lives while somebody owns the CPU.
    pub(crate) fn owned_cpus(&self) -> &'static [Cpu] {
        &self.cpus[..self.engine.cpu_count()]
    }

    /// The handle of a CPU that anybody may use.
    pub(crate) fn any_cpu(&self, cpu: u16) -> Option<&'static Cpu> {
        let count = self.engine.cpu_count();
        self.cpus[count..2 * count].get(usize::from(cpu))
    }

    /// The handle of the current CPU.
    pub(crate) fn current_cpu(&self) -> &'static Cpu {
        &self.cpus[2 * self.engine.cpu_count()]
    }
}

const ALIGN: usize = if align_of::<Allocator>() > align_of::<Cpu>() {
    align_of::<Allocator>()
} else {
    align_of::<Cpu>()
};

/// Two of each CPU, and that of the current one.
fn handle_count(config: &freehold::Config<'_>) -> usize {
    2 * usize::from(config.cpus) + 1
}

/// Where the handles start, in bytes behind the pad; and the engine's metadata.
const HANDLES: usize = size_of::<Allocator>().next_multiple_of(ALIGN);

fn engine_at(config: &freehold::Config<'_>) -> usize {
    HANDLES + handle_count(config) * size_of::<Cpu>()
}

fn needed(config: &freehold::Config<'_>) -> Result<usize, Failure> {
    Ok(engine_at(config) + ALIGN + config.metadata_size()?)
}

/// Fills in a configuration of these zones with `cpus` CPUs, all online, on node 0. Everything else
/// is zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_config_init(
    config: *mut Config,
    cpus: u16,
    zones: *const crate::config::Zone,
    zone_count: usize,
) {
    let value = Config {
        zones,
        zone_count,
        cpu_nodes: ptr::null(),
        cpu_node_count: 0,
        cpus,
        online: cpus,
        extra_ranges: 0,
    };
    // A null pointer is the caller's mistake; the next call that gets it says so.
    // SAFETY: the caller's promise.
    unsafe { put_if_wanted(config, value) };
}

/// How many bytes of metadata `freehold_new` needs, whatever the alignment of the region: 100 for
/// each 2 MiB of memory (0.0048 %), in whole sections of 128 MiB, and a few KiB for each CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_metadata_size(
    config: *const Config,
    size: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { tell(size, "size", error, || shared(config, "config")?.with_engine(needed)) }
}

/// Makes an allocator inside `metadata`, with all memory of the configuration free. Takes time
/// proportional to that memory: one bit is written for each 2 MiB, and what CPUs need; a
/// pageblock's own metadata only when its section of 128 MiB is first used. The memory managed is
/// never touched.
///
/// Requires: `metadata` points to `metadata_size` bytes that are the allocator's alone until
/// `freehold_destroy`. Other threads get the pointer by a release and an acquire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_new(
    config: *const Config,
    metadata: *mut c_void,
    metadata_size: usize,
    platform: *const Platform,
    allocator: *mut *mut Allocator,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(allocator, "allocator", error, || {
            wanted(metadata, "metadata")?;
            let config = shared(config, "config")?;
            let host = Host::new(platform);
            let region =
                slice::from_raw_parts_mut(metadata.cast(), metadata_size.min(isize::MAX as usize));
            config.with_engine(|config| make(config, region, host))
        })
    }
}

fn make(
    config: &freehold::Config<'_>,
    region: &'static mut [MaybeUninit<u8>],
    host: Host,
) -> Result<*mut Allocator, Failure> {
    let needed = needed(config)?;
    if region.len() < needed {
        return Err(freehold::ConfigError::TooSmall { given: region.len(), needed }.into());
    }
    let pad = region.as_ptr().align_offset(ALIGN);
    let (first, metadata) = region[pad..].split_at_mut(engine_at(config));
    let first = first.as_mut_ptr();
    let allocator = first.cast::<Allocator>();
    // SAFETY: `first` has room for the allocator and, from there on, for the handles; both are
    // aligned, because `ALIGN` is enough for either and the allocator's size is rounded up to it.
    // The region is nobody else's.
    let cpus = unsafe {
        let handles = first.add(HANDLES).cast::<Cpu>();
        let engine = &raw const (*allocator).engine;
        let numbers = || (0..config.cpus).map(CpuId::new);
        let ways = numbers().map(Way::Owner).chain(numbers().map(Way::Anybody));
        for (at, way) in ways.chain([Way::Current]).enumerate() {
            handles.add(at).write(Cpu::new(engine, way));
        }
        slice::from_raw_parts(handles.cast_const(), handle_count(config))
    };
    let engine = Freehold::new(config, metadata, host)?;
    // SAFETY: there is room for it at the start, aligned; the region is nobody else's.
    unsafe { allocator.write(Allocator { engine, cpus }) };
    Ok(allocator)
}

/// Ends an allocator: its metadata region is the caller's again. Fails while a CPU is owned. A null
/// pointer is fine and does nothing.
///
/// Thread safety: nobody may be using the allocator, or use it later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_destroy(allocator: *mut Allocator, error: *mut Error) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let Some(this) = allocator.as_ref() else { return Ok(()) };
            if let Some(cpu) = this.owned_cpus().iter().find(|cpu| cpu.is_taken()) {
                return Err(freehold::AllocError::CpuOwned { cpu: cpu.number() }.into());
            }
            ptr::drop_in_place(allocator);
            Ok(())
        })
    }
}

/// The zone that a frame belongs to, as an index into the configuration; -1 where there is no
/// memory. Constant time, but for blocks with holes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_zone_of(allocator: *const Allocator, pfn: u64) -> i32 {
    // SAFETY: the caller's promise.
    let zone = unsafe { allocator.as_ref() }.and_then(|this| this.engine.zone_of(Pfn::new(pfn)));
    zone.map_or(-1, |zone| zone as i32)
}

/// Whether a zone may have a free chunk of that order which no CPU has in hand: for a kernel's
/// watermark check of a high order. Of `flags` `FREEHOLD_ALLOC_CMA` says whether frames of CMA
/// blocks will do, `FREEHOLD_ALLOC_HIGH_ATOMIC` and `FREEHOLD_ALLOC_OOM` whether those of
/// HIGHATOMIC blocks will. False where there is no such zone, order or flag.
///
/// Looks at the board, at CMA and HIGHATOMIC blocks where only those are left, and above order 9 at
/// the bitmap of whole blocks. "No" is exact while nothing runs and no CPU has frames in hand;
/// "yes" may be out of date until a request has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_may_have_free(
    allocator: *const Allocator,
    zone: usize,
    order: u8,
    flags: u16,
) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { allocator.as_ref() };
    this.zip(Order::new(order))
        .zip(AllocFlags::from_bits(flags))
        .is_some_and(|((this, o), flags)| this.engine.may_have_free(zone, o, flags))
}

/// Gives all that CPUs hold free back to the zones. Waits for each CPU's lock in turn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_drain_all(
    allocator: *const Allocator,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        ask(allocator, error, |engine| {
            engine.drain_all();
            Ok::<_, Failure>(())
        })
    }
}

/// Checks every invariant; fails with the first violation. Takes time proportional to the memory
/// managed, while everybody else waits. Only to be relied on while nobody frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_validate(
    allocator: *const Allocator,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.validate()) }
}
