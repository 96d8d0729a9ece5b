//! Huge pages of an arena that has them: which a pass breaks up, and which blocks it has the kernel
//! make whole again.
//!
//! ```text
//! huge      free frames in it   0 ........ 63 | 64 .................. 512
//! pass                          it stays      | what is free is given back: the block is in parts
//!
//! in parts  free frames in it   0 .... 51 | 52 ...................... 512
//! pass                          whole again   | it stays in parts
//! ```
//!
//! A block that was given back in part is backed page by page from then on, whoever uses it: the
//! kernel's own daemon (khugepaged) looks at 16 MiB each 10 s. So a cache that shrinks at night
//! would have no huge pages by day. The two numbers are apart, or one exchange of frames would
//! break a block up and the next one make it whole.
//!
//! What the kernel adds to make a block whole is zero, as the notes of its frames say already.

use std::sync::atomic::Ordering;

use freehold::PAGEBLOCK_FRAMES;
use rustix::io::Errno;

use crate::arena::Inner;
use crate::memory::Backing;
use crate::pass::Released;

/// Free frames from which on a decaying pass gives back parts of a huge page.
const BROKEN: u16 = 64;
/// Of a block to be made whole at most so many frames are free, a tenth, and as many not in memory.
const MISSING: u64 = 51;
/// Blocks that a pass makes whole at most: each is copied, which takes .7 ms.
const MOST: u64 = 128;

impl Inner {
    /// Whether a decaying pass leaves a block in use as it is: a huge page that is mostly used.
    pub(crate) fn stays_huge(&self, block: u64) -> bool {
        let first = freehold::Pfn::new(self.memory.first().get() + block * PAGEBLOCK_FRAMES);
        self.may_be_huge(block)
            && self.core.engine.pageblock(first).is_some_and(|state| state.free < BROKEN)
    }

    /// Whether the kernel may back a block as one huge page.
    pub(crate) fn may_be_huge(&self, block: u64) -> bool {
        self.memory.backing() == Backing::HugePages && !self.notes.is_parted(block)
    }

    /// Has the kernel make blocks whole again that are in parts and nine tenths of which are in
    /// use, the lowest first. Ends where it refuses, and for whoever waits for the pass.
    pub(crate) fn make_whole(&self, released: &mut Released) {
        let Self { notes, memory, release, .. } = self;
        // Relaxed: whoever reads an old value is refused once more.
        if memory.backing() != Backing::HugePages || release.keeps_parts.load(Ordering::Relaxed) {
            return;
        }
        let first = memory.first().get();
        for block in 0..notes.top() {
            if release.is_wanted() || released.collapsed == MOST {
                break;
            }
            if !notes.is_in_parts_and_used(block, PAGEBLOCK_FRAMES - MISSING) {
                continue;
            }
            let start = freehold::Pfn::new(first + block * PAGEBLOCK_FRAMES);
            let Some(range) = freehold::FrameRange::new(start, PAGEBLOCK_FRAMES) else { break };
            // Used once is not in use, and handed out is not touched.
            let state = self.core.engine.pageblock(start);
            let in_use = state.is_some_and(|state| u64::from(state.free) <= MISSING);
            let there = || memory.in_memory(range).unwrap_or(0);
            if !in_use || there() < PAGEBLOCK_FRAMES - MISSING {
                continue;
            }
            match crate::sys::collapse(memory.bytes(range)) {
                Ok(()) => {
                    notes.made_whole(block);
                    released.collapsed += 1;
                }
                // A page of it is pinned, or the kernel has it in hand itself.
                Err(Errno::AGAIN | Errno::BUSY) => {}
                Err(Errno::INVAL) => {
                    // Before Linux 6.1, or where huge pages are forbidden to the process.
                    release.keeps_parts.store(true, Ordering::Relaxed);
                    break;
                }
                // No huge page is to be had at this moment.
                Err(_) => break,
            }
        }
        // Relaxed: a statistic.
        release.collapsed.fetch_add(released.collapsed, Ordering::Relaxed);
    }
}
