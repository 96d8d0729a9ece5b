//! The knobs of an arena.
//!
//! An object with a function for each knob rather than a structure: a new knob is no new ABI, and
//! the defaults are in one place only.

use core::ffi::{CStr, c_char};
use std::path::Path;
use std::time::Duration;

use freehold::Watermarks;
use freehold_host::{
    Arena as HostArena, Backing as HostBacking, Builder, Lock, Numa as HostNuma, OnFork, Topology,
};

use crate::arguments::{array, wanted};
use crate::config::watermark_rule;
use crate::error::{Error, Failure, answer, tell};
use crate::host::arena::Arena;
use crate::status::Status;

/// What the frames of an arena are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Backing {
    /// Private anonymous memory. The default.
    Private = 0,
    /// A memfd, so that a frame can be mapped a second time.
    Memfd = 1,
    /// Private anonymous memory that the kernel may back with huge pages.
    HugePages = 2,
    /// Huge pages set aside by the administrator (vm.nr_hugepages).
    Hugetlb = 3,
    /// Huge pages of 1 GiB set aside by the administrator, in whole ones; nothing is given back.
    Hugetlb1G = 4,
}

impl Backing {
    /// Each with what it is to the arena.
    const ALL: [(Self, HostBacking); 5] = [
        (Self::Private, HostBacking::Private),
        (Self::Memfd, HostBacking::Memfd),
        (Self::HugePages, HostBacking::HugePages),
        (Self::Hugetlb, HostBacking::Hugetlb),
        (Self::Hugetlb1G, HostBacking::Hugetlb1G),
    ];

    /// The number of an arena's kind of memory; -1 for one that has none.
    pub(crate) fn number_of(backing: HostBacking) -> i32 {
        Self::ALL.iter().find(|&&(_, known)| known == backing).map_or(-1, |&(it, _)| it as i32)
    }
}

/// What a forked child finds at the arena's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum ForkRule {
    /// Its own copy (private memory only). The default.
    Copy = 0,
    /// Nothing: touching a frame is a segmentation fault.
    Unmapped = 1,
}

/// How a thread gets at the state of the CPU it has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum LockRule {
    /// With plain stores and loads, where the kernel has membarrier(2). The default.
    Biased = 0,
    /// With an ordinary lock.
    Ordinary = 1,
}

/// What to do where there is more than one memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum NumaRule {
    /// A zone for each node, whose pages come from that node while it has memory. The default.
    Prefer = 0,
    /// A zone for each node, whose pages come from that node or not at all.
    Bind = 1,
    /// A zone for each node, without telling the kernel.
    ZonesOnly = 2,
    /// One zone, whatever the machine looks like.
    Ignore = 3,
}

/// The knobs of an arena to be made. Opaque.
pub struct ArenaBuilder(Builder);

/// # Safety
///
/// `builder` is null or comes from [`freehold_arena_builder_new`], is not destroyed and nobody
/// else's meanwhile.
pub(crate) unsafe fn turn(
    builder: *mut ArenaBuilder,
    error: *mut Error,
    knob: impl FnOnce(Builder) -> Result<Builder, Failure>,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let this = builder.as_mut().ok_or(Failure::Null("builder"))?;
            this.0 = knob(this.0.clone())?;
            Ok(())
        })
    }
}

fn choice(what: &'static str, value: u32, allowed: &'static str) -> Failure {
    Failure::Argument { what, value: value.into(), allowed }
}

/// The knobs, at their defaults, of an arena of at least that many bytes, in whole blocks of 2 MiB.
/// It may be larger than the machine's memory: only what is used counts. To be given to
/// `freehold_arena_builder_destroy`. Never null.
///
/// In a process that has called mlockall(MCL_FUTURE) the kernel backs and locks all of an arena at
/// once: make it before that call, or as small as it has to be.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_arena_builder_new(bytes: u64) -> *mut ArenaBuilder {
    Box::into_raw(Box::new(ArenaBuilder(HostArena::builder(bytes))))
}

/// Ends a builder. Arenas made with it go on. A null pointer is fine and does nothing.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_destroy(builder: *mut ArenaBuilder) {
    if !builder.is_null() {
        // SAFETY: the caller's promise; it was made by `Box::into_raw`.
        drop(unsafe { Box::from_raw(builder) });
    }
}

/// Sets addresses aside for so many bytes in all, so that the arena can grow; by default as many as
/// it has. Not for huge pages set aside by the administrator.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_reserve(
    builder: *mut ArenaBuilder,
    bytes: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.reserve(bytes))) }
}

/// What the frames are made of: a `freehold_backing`.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_backing(
    builder: *mut ArenaBuilder,
    backing: u32,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            let known = Backing::ALL.into_iter().find(|&(number, _)| number as u32 == backing);
            let (_, backing) =
                known.ok_or_else(|| choice("backing", backing, "a freehold_backing"))?;
            Ok(builder.backing(backing))
        })
    }
}

/// What a forked child finds: a `freehold_fork_rule`. Memfd and hugetlb arenas are always unmapped
/// there.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_on_fork(
    builder: *mut ArenaBuilder,
    rule: u32,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            Ok(builder.on_fork(match rule {
                0 => OnFork::Copy,
                1 => OnFork::Unmapped,
                value => return Err(choice("on_fork", value, "a freehold_fork_rule")),
            }))
        })
    }
}

/// How threads get at their CPUs: a `freehold_lock_rule`.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_lock(
    builder: *mut ArenaBuilder,
    rule: u32,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            Ok(builder.lock(match rule {
                0 => Lock::Biased,
                1 => Lock::Ordinary,
                value => return Err(choice("lock", value, "a freehold_lock_rule")),
            }))
        })
    }
}

/// What to do where there is more than one memory node: a `freehold_numa_rule`.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_numa(
    builder: *mut ArenaBuilder,
    rule: u32,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            Ok(builder.numa(match rule {
                0 => HostNuma::Prefer,
                1 => HostNuma::Bind,
                2 => HostNuma::ZonesOnly,
                3 => HostNuma::Ignore,
                value => return Err(choice("numa", value, "a freehold_numa_rule")),
            }))
        })
    }
}

/// How many threads can have a CPU for themselves at once, at most 30,000; later ones share.
///
/// Default: four for each of the machine's CPUs, but no more than one for each 16 blocks of the
/// arena.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_slots(
    builder: *mut ArenaBuilder,
    slots: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.slots(slots))) }
}

/// How many CPUs the threads beyond that share, 1 to 30,000. Default: one for each of the machine's
/// CPUs, at most 8.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_shared_slots(
    builder: *mut ArenaBuilder,
    slots: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.shared_slots(slots))) }
}

/// How much each zone holds back for requests that may not fail: a `freehold_watermark_rule`, and
/// for `FREEHOLD_WATERMARK_RULE_FRAMES` the numbers of frames. Default: nothing.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_watermarks(
    builder: *mut ArenaBuilder,
    rule: u32,
    min: u64,
    low: u64,
    high: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            Ok(builder.watermarks(match rule {
                0 => Watermarks::Kernel,
                1 => Watermarks::Frames { min, low, high },
                2 => Watermarks::None,
                value => return Err(watermark_rule(value)),
            }))
        })
    }
}

/// Whether the kernel backs the whole arena while it is built, so that running out of memory is an
/// error there. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_populate(
    builder: *mut ArenaBuilder,
    populate: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.populate(populate))) }
}

/// How many milliseconds a block must have been wholly free before the background thread gives it
/// back. Default: 10,000.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_decay(
    builder: *mut ArenaBuilder,
    milliseconds: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| Ok(builder.decay(Duration::from_millis(milliseconds))))
    }
}

/// The most blocks that one pass gives back. Default: 512 (1 GiB).
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_budget(
    builder: *mut ArenaBuilder,
    blocks: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.budget(blocks))) }
}

/// How many blocks are out of the allocator's hands at a time while they are given back, 1 to
/// 1,048,576. Default: 32.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_batch(
    builder: *mut ArenaBuilder,
    blocks: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.batch(blocks))) }
}

/// Whether to start a thread that makes a pass each decay time. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_background(
    builder: *mut ArenaBuilder,
    background: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.background(background))) }
}

/// Takes the machine's memory nodes from that directory, laid out as `/sys/devices/system/node`,
/// which is the default; one node where it cannot be read.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_topology_path(
    builder: *mut ArenaBuilder,
    directory: *const c_char,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            wanted(directory, "directory")?;
            Ok(builder
                .topology(Topology::read(Path::new(&*CStr::from_ptr(directory).to_string_lossy()))))
        })
    }
}

/// Takes the machine to have these memory nodes. `nodes` is a list as the kernel writes it
/// (`0-1,4`); `cpulists` has as many texts, each the list of the CPUs next to that node.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_topology(
    builder: *mut ArenaBuilder,
    nodes: *const c_char,
    cpulists: *const *const c_char,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        turn(builder, error, |builder| {
            wanted(nodes, "nodes")?;
            let lists = array(cpulists, count, "cpulists")?;
            let mut lists = lists.iter();
            let nodes = CStr::from_ptr(nodes).to_string_lossy();
            let topology = Topology::parse(&nodes, |_| {
                let list = lists.next().filter(|list| !list.is_null())?;
                Some(CStr::from_ptr(*list).to_string_lossy().into_owned())
            });
            let broken = || Failure::Argument {
                what: "cpulists",
                value: count as u64,
                allowed: "one list for each node, as the kernel writes lists",
            };
            Ok(builder.topology(topology.ok_or_else(broken)?))
        })
    }
}

/// Makes an arena with these knobs; the builder can be used again. Takes about a millisecond,
/// whatever the arena's size. To be given to `freehold_arena_destroy`.
///
/// Fails with `FREEHOLD_STATUS_INVALID_ARGUMENT` for a knob out of its range, and with
/// `FREEHOLD_STATUS_OS` where the kernel has no address space, no huge pages or no memory.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_build(
    builder: *const ArenaBuilder,
    arena: *mut *mut Arena,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(arena, "arena", error, || {
            let made = builder.as_ref().ok_or(Failure::Null("builder"))?.0.build()?;
            Ok(Arena::boxed(made))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also for memory that few machines have set aside: what a builder is told an arena says.
    #[test]
    fn every_kind_of_memory_has_its_number() {
        let numbers = [
            (HostBacking::Private, Backing::Private),
            (HostBacking::Memfd, Backing::Memfd),
            (HostBacking::HugePages, Backing::HugePages),
            (HostBacking::Hugetlb, Backing::Hugetlb),
            (HostBacking::Hugetlb1G, Backing::Hugetlb1G),
        ];
        for (backing, number) in numbers {
            assert_eq!(Backing::number_of(backing), number as i32, "{backing:?}");
        }
    }
}
