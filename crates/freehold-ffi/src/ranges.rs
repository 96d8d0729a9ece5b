//! Frames that the caller names, and pageblocks: memory that comes, is emptied, isolated, looked
//! at, and kept back (HIGHATOMIC). For those who walk memory, as a kernel's compaction, contiguous
//! allocation and hotplug do.

use core::ffi::c_void;
use core::{array, mem};

use freehold::{FrameRange, Migratetype, Pfn, SparseBlock};

use crate::allocator::Allocator;
use crate::arguments::{array_of_frames_mut, frames, migratetype, shared};
use crate::error::{Error, Failure, ask, tell};
use crate::stats::of_zone;
use crate::status::Status;

/// Frames of one pageblock, a bit for each: bit 0 of the first word is the block's first frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BlockFrames {
    /// The bits, by rising address.
    pub words: [u64; 8],
}

/// The state of one pageblock.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pageblock {
    /// Its free frames, wherever they are.
    pub free_frames: BlockFrames,
    /// How many these are.
    pub free: u32,
    /// Frames that exist, at most 512.
    pub frames: u32,
    /// The first CPU that leases words of it; -1 where there is none.
    pub holder: i32,
    /// Its migratetype; `FREEHOLD_MIGRATETYPE_ISOLATE` while it is isolated.
    pub migratetype: u32,
}

/// What a zone keeps for requests that may not wait.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reserve {
    /// HIGHATOMIC pageblocks.
    pub blocks: u64,
    /// Their free frames.
    pub free: u64,
}

/// Sees a pageblock that could be emptied, by its first frame, and how many of its frames are in
/// use; says whether to go on. Called without any lock held. Must not throw or longjmp.
pub type Visit = Option<unsafe extern "C" fn(user: *mut c_void, start: u64, used: u32) -> bool>;

/// Whether a pageblock is one to be emptied, by its first frame. Called without any lock held. Must
/// not throw or longjmp.
pub type Wanted = Option<unsafe extern "C" fn(user: *mut c_void, start: u64) -> bool>;

/// Moves the contents of the frames from `start` to `end` (not included) elsewhere and frees the
/// frames; says whether trying was of use. Called without any lock held, so it may call the
/// allocator. Must not throw or longjmp.
pub type Migrate = Option<unsafe extern "C" fn(user: *mut c_void, start: u64, end: u64) -> bool>;

/// Allocates exactly the frames from `start` to `end` (not included), having `migrate` move their
/// users away. Takes time proportional to the range, times the rounds of migration (5 at most). On
/// failure every block is as it was, but for what `migrate` has moved; one never used counts as
/// used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_contig_range(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    migrate: Migrate,
    user: *mut c_void,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        // Null moves nothing.
        let moves = |used: FrameRange| {
            migrate.is_some_and(|migrate| migrate(user, used.start.get(), used.end.get()))
        };
        ask(allocator, error, |engine| engine.alloc_contig_range(frames(start, end), moves))
    }
}

/// Adds the frames from `start` to `end` (not included) to the zone whose span covers them, all of
/// them free. Watermarks that follow the Linux formulae are computed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_add_memory(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.add_memory(frames(start, end))) }
}

/// `freehold_add_memory` of whole pageblocks, all of them in use: they become free as somebody
/// frees them, in chunks of any order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_add_memory_in_use(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.add_memory_in_use(frames(start, end))) }
}

/// Writes to `block` what the pageblock is that a frame lies in. Takes no lock; exact while nothing
/// runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_pageblock(
    allocator: *const Allocator,
    pfn: u64,
    block: *mut Pageblock,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(block, "block", error, || {
            let this = shared(allocator, "allocator")?;
            let pfn = Pfn::new(pfn);
            let found = this.engine.pageblock(pfn).ok_or(freehold::AllocError::BadRange { pfn })?;
            Ok(Pageblock {
                free_frames: BlockFrames { words: found.free_frames },
                free: found.free.into(),
                frames: found.frames.into(),
                holder: found.holder.map_or(-1, |cpu| cpu.index() as i32),
                migratetype: found.migratetype as u32,
            })
        })
    }
}

/// Takes those frames from `start` to `end` (not included), all of one pageblock, that are free, as
/// if each had been allocated by itself; writes which these were to `taken`. Waits for nobody.
///
/// Left are frames that a CPU has in hand, and a block that is free as a whole; of an isolated
/// block nothing is left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_take_free(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    taken: *mut BlockFrames,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(taken, "taken", error, || {
            let this = shared(allocator, "allocator")?;
            let words = this.engine.take_free(frames(start, end))?;
            Ok(BlockFrames { words })
        })
    }
}

/// Isolates every pageblock that the frames from `start` to `end` (not included) touch, or none,
/// where one is isolated already: nothing is allocated from them until `freehold_restore`. What is
/// freed into them stays there. Takes one heavy barrier where CPUs have owners, and one more where
/// CPUs keep whole blocks of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_isolate(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.isolate(frames(start, end))) }
}

/// Ends the isolation of every pageblock that the frames from `start` to `end` (not included)
/// touch, by the party that has isolated them. Waits for nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_restore(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        ask(allocator, error, |engine| {
            engine.restore(frames(start, end));
            Ok::<_, Failure>(())
        })
    }
}

/// Calls `visit` with the movable pageblocks of a zone that have free and used frames, the one with
/// least in use first; not with isolated ones, nor those with holes, nor where `wanted` is false;
/// null wants all. At most `looks` are looked at: returns how many are left of these, where 0 may
/// mean that there are others. Takes no lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_emptiest(
    allocator: *const Allocator,
    zone: usize,
    looks: u32,
    wanted: Wanted,
    visit: Visit,
    user: *mut c_void,
) -> u32 {
    // SAFETY: the caller's promise.
    let this = unsafe { allocator.as_ref() };
    let Some((this, visit)) = this.zip(visit) else { return looks };
    let mut emptiest = this.engine.emptiest(zone, looks, |start| {
        // SAFETY: the caller's promise.
        wanted.is_none_or(|wanted| unsafe { wanted(user, start.get()) })
    });
    // SAFETY: the caller's promise.
    let more = |block: SparseBlock| unsafe { visit(user, block.start.get(), block.used.into()) };
    emptiest.by_ref().map(more).take_while(|&more| more).for_each(drop);
    emptiest.looks_left()
}

/// Blocks that are emptied with one heavy barrier.
const AT_ONCE: usize = 8;

/// Begins to empty the pageblocks that `count` frames lie in, those which are movable ones with free
/// and used frames: `freehold_isolate` of each, with one heavy barrier for every eight. `pfns` has
/// their first frames first then, of which it returns how many, and the others behind them.
/// `freehold_restore` ends it: a block is whole then, or in use as before. Of null it is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_evacuate(
    allocator: *const Allocator,
    pfns: *mut u64,
    count: usize,
) -> usize {
    // SAFETY: the caller's promise, for each pointer.
    let given =
        unsafe { (shared(allocator, "allocator"), array_of_frames_mut(pfns, count, "pfns")) };
    let (Ok(this), Ok(pfns)) = given else { return 0 };
    let mut begun = 0;
    for at in (0..count).step_by(AT_ONCE) {
        // One that is there twice is emptied once.
        let some: [Pfn; AT_ONCE] = array::from_fn(|n| *pfns.get(at + n).unwrap_or(&pfns[at]));
        let each = this.engine.evacuate_each(some).into_iter().take(count - at);
        for (n, evacuation) in each.enumerate() {
            let Ok(evacuation) = evacuation else { continue };
            pfns.swap(at + n, begun);
            pfns[begun] = evacuation.start();
            begun += 1;
            // It lasts until `freehold_restore`.
            mem::forget(evacuation);
        }
    }
    begun
}

/// A HIGHATOMIC pageblock of a zone that has free frames becomes an ordinary one of that
/// `freehold_migratetype`. False where there is none, no such zone or type. Takes no lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_give_up_reserve(
    allocator: *const Allocator,
    zone: usize,
    migratetype: u8,
) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { allocator.as_ref() };
    this.zip(self::migratetype(migratetype, Migratetype::Isolate).ok())
        .is_some_and(|(this, migratetype)| this.engine.give_up_reserve(zone, migratetype))
}

/// Writes to `reserve` what a zone keeps: for a watermark that its free frames do not count for.
/// Takes no lock. Exact while nothing runs; looks at a line of each CPU where anything is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_reserve(
    allocator: *const Allocator,
    zone: usize,
    reserve: *mut Reserve,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(reserve, "reserve", error, || {
            let found = of_zone(allocator, zone, |engine, zone| engine.reserve(zone))?;
            Ok(Reserve { blocks: found.blocks, free: found.free })
        })
    }
}
