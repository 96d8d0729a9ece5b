//! Isolation that lasts from one call to another, and pageblocks looked at and emptied one by one:
//! for those who walk memory, as a kernel's compaction, contiguous allocation and offlining do.

use freehold::Pfn;

use crate::allocator::Allocator;
use crate::arguments::{frames, put, shared};
use crate::error::{Error, answer, tell};
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
        answer(error, || {
            let this = shared(allocator, "allocator")?;
            let pfn = Pfn::new(pfn);
            let found = this.engine.pageblock(pfn).ok_or(freehold::AllocError::BadRange { pfn })?;
            let state = Pageblock {
                free_frames: BlockFrames { words: found.free_frames },
                free: found.free.into(),
                frames: found.frames.into(),
                holder: found.holder.map_or(-1, |cpu| cpu.index() as i32),
                migratetype: found.migratetype as u32,
            };
            put(block, "block", state)
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
/// freed into them stays there. Takes one heavy barrier where CPUs have some of it in hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_isolate(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || Ok(shared(allocator, "allocator")?.engine.isolate(frames(start, end))?))
    }
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
        answer(error, || {
            shared(allocator, "allocator")?.engine.restore(frames(start, end));
            Ok(())
        })
    }
}
