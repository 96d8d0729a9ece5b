//! Giving memory back to the OS: wholly free blocks and free runs of others, in batches, with one
//! system call for each run of neighbours or for many.
//!
//! ```text
//! for each block that the OS backs, the highest first:
//!     take it out of the allocator, if it is wholly free   (a request limited to that very block)
//!     or else what is free in it, in chunks of 4 frames or more (a knob); of 16 in a row all
//! 32 blocks' worth taken:
//!     one madvise for each run of neighbours, or one process_madvise for all of them
//!     note the blocks and chunks as released, free them again
//! ```
//!
//! - A block that is being released is *allocated*, so nobody else can get it; an allocation that
//!   fails meanwhile waits for the batch, ends the pass (memory is wanted, so this is no time to
//!   give it away) and tries again.
//! - A glance at the block decides whether it is tried at all: blocks in use cost some 200 ns and
//!   disturb nobody. The allocator's `alloc_contig_range` would do as well but isolates first,
//!   pulling blocks in use out of threads' hands.
//! - The highest first, because the allocator takes the lowest whole block it has for frames that
//!   can be moved, as all are here: what stays is what is used next.
//! - A decaying pass takes a block twice: the first time it notes that the block was found free,
//!   and gives it back as it is; the second time it finds that nothing was handed out in between,
//!   so it was free all the time. Of a block in use it gives back what is free where nothing was
//!   handed out in between.
//! - A chunk of which the OS backs nothing is not given back a second time. The notes tell where
//!   that may be, and the kernel decides: it makes huge pages of what is left of a block without
//!   telling anybody. Of a block that has nothing to give back nothing is taken.

use std::sync::atomic::Ordering;

use freehold::{
    AllocFlags, CpuId, FRAME_SIZE, FrameRange, Migratetype, On, Order, PAGEBLOCK_FRAMES, Pfn,
    Request,
};

use crate::Error;
use crate::arena::Inner;
use crate::host::Host;

/// Which blocks a pass gives back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All that are wholly free.
    All,
    /// Those that were so all the time since the last pass, up to the budget.
    Decayed,
}

/// What a pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Released {
    /// Blocks given back.
    pub blocks: u64,
    /// Frames given back out of blocks in use.
    pub frames: u64,
    /// Bytes given back.
    pub bytes: u64,
    /// System calls that took.
    pub calls: u64,
    /// Blocks found free for the first time: they go in the next pass, unless they are used.
    pub seen: u64,
    /// Blocks that the kernel has put into one huge page again.
    pub collapsed: u64,
    /// The pass ended early because an allocation failed meanwhile, or did not begin: another one
    /// runs, and this thread is in a mover, which waits for none.
    pub cut_short: bool,
}

/// Adds the next range of rising ones to runs of neighbours.
fn join(runs: &mut Vec<FrameRange>, range: FrameRange) {
    match runs.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => runs.push(range),
    }
}

/// The most blocks that a decaying pass gives back (1 GiB), which takes about 65 ms in 4 KiB pages:
/// so a program that makes one each 10 s uses less than 1 % of a core for it.
const BUDGET: u64 = 512;

/// Blocks that are out of the allocator's hands at a time: 64 MiB, about 4 ms. More would mean
/// fewer system calls where free blocks are not neighbours; but an allocation that fails meanwhile
/// waits.
const BATCH: u64 = 32;

const WORDS: usize = (PAGEBLOCK_FRAMES / 64) as usize;

/// Which frames of a block the kernel has in memory.
struct Backed([u64; WORDS]);

impl Backed {
    fn set(&mut self, frame: u64) {
        self.0[(frame / 64) as usize] |= 1 << (frame % 64);
    }

    fn meets(&self, range: FrameRange) -> bool {
        let at = |pfn: u64| pfn % PAGEBLOCK_FRAMES;
        (range.start.get()..range.end.get())
            .any(|pfn| self.0[(at(pfn) / 64) as usize] >> (at(pfn) % 64) & 1 != 0)
    }
}

/// Of these frames of a block the runs of four times `least` frames, and the aligned chunks of
/// `least` in others.
fn long_runs(free: &[u64; WORDS], least: u64) -> [u64; WORDS] {
    let mut long = Backed([0; WORDS]);
    let is_free = |at: u64| free[(at / 64) as usize] >> (at % 64) & 1 != 0;
    let mut at = 0;
    while at < PAGEBLOCK_FRAMES {
        let end = (at..PAGEBLOCK_FRAMES).find(|&at| !is_free(at)).unwrap_or(PAGEBLOCK_FRAMES);
        let whole = end - at >= 4 * least;
        let aligned = at.next_multiple_of(least)..end / least * least;
        (if whole { at..end } else { aligned }).for_each(|frame| long.set(frame));
        at = end + 1;
    }
    long.0
}

/// What has been taken out of the allocator, and what became of it.
struct Pass<'a> {
    inner: &'a Inner,
    cpu: On<'a, 'static, Host>,
    /// Whole blocks, and chunks of others. From the highest block down.
    taken: Vec<FrameRange>,
    frames: u64,
    /// Blocks in use that may be huge pages: broken up when all else has been looked at.
    huge: Vec<u64>,
    released: Released,
    result: Result<(), Error>,
}

/// One pass.
pub(crate) fn pass(inner: &Inner, which: Which) -> Result<Released, Error> {
    inner.core.check_fork()?;
    if inner.pinned {
        return Ok(Released::default());
    }
    let (release, engine) = (&inner.release, &inner.core.engine);
    let Some(_one) = release.begin() else {
        return Ok(Released { cut_short: true, ..Released::default() });
    };
    inner.core.gather();
    if which == Which::Decayed {
        inner.core.collect_ended();
        // The periodic work of every thread's CPU, for those that are idle: what they freed goes
        // home.
        for cpu in (0..engine.cpu_count())
            .map(|cpu| CpuId::new(cpu as u16))
            .filter(|&cpu| engine.on(cpu).is_online())
        {
            // It may have gone offline since.
            let _ = engine.on(cpu).tick();
        }
    }
    let mut pass = Pass {
        inner,
        cpu: inner.core.keeper(),
        taken: Vec::new(),
        frames: 0,
        huge: Vec::new(),
        released: Released::default(),
        result: Ok(()),
    };
    pass.run(which);
    let Pass { released, result, .. } = pass;
    // Relaxed: statistics.
    release.blocks.fetch_add(released.blocks, Ordering::Relaxed);
    release.frames.fetch_add(released.frames, Ordering::Relaxed);
    release.calls.fetch_add(released.calls, Ordering::Relaxed);
    result.map(|()| released)
}

impl Pass<'_> {
    fn run(&mut self, which: Which) {
        let budget = match which {
            Which::All => u64::MAX,
            Which::Decayed => BUDGET * PAGEBLOCK_FRAMES,
        };
        let blocks = (0..self.inner.notes.top()).rev();
        self.each(blocks, budget, |pass, block| {
            if pass.inner.notes.is_resident(block) {
                pass.visit(block, which);
            }
        });
        let huge = std::mem::take(&mut self.huge);
        self.each(huge, budget, |pass, block| pass.take_parts(pass.range(block)));
        self.flush();
        if which == Which::Decayed {
            self.inner.make_whole(&mut self.released);
        }
        self.inner.core.owe(self.released.seen);
        self.inner.core.collect_owed();
    }

    /// Does something with blocks, one by one, until the budget of frames is used up or somebody
    /// waits for the pass.
    fn each(
        &mut self,
        blocks: impl IntoIterator<Item = u64>,
        budget: u64,
        mut f: impl FnMut(&mut Self, u64),
    ) {
        for block in blocks {
            if self.inner.release.is_wanted() {
                self.released.cut_short = true;
                break;
            }
            if self.released.bytes / FRAME_SIZE + self.frames >= budget {
                break;
            }
            f(self, block);
            if self.frames >= BATCH * PAGEBLOCK_FRAMES {
                self.flush();
            }
        }
    }

    /// One block that the OS backs.
    fn visit(&mut self, block: u64, which: Which) {
        let inner = self.inner;
        let notes = &inner.notes;
        let (range, all) = (self.range(block), which == Which::All);
        if self.take(Order::PAGEBLOCK, range).is_none() {
            if !all && !notes.is_watched(block) {
                notes.watch(block);
            } else if !inner.may_be_huge(block) {
                self.take_parts(range);
            } else if all || !inner.stays_huge(block) {
                self.huge.push(block);
            }
        } else if all || notes.is_seen(block) {
            self.taken.push(range);
            self.frames += PAGEBLOCK_FRAMES;
        } else {
            notes.see(block);
            self.released.seen += 1;
            self.free(range);
        }
    }

    fn range(&self, block: u64) -> FrameRange {
        let start = self.inner.memory.first().get() + block * PAGEBLOCK_FRAMES;
        FrameRange { start: Pfn::new(start), end: Pfn::new(start + PAGEBLOCK_FRAMES) }
    }

    /// Takes a chunk of a block out of the allocator, if there is a free one.
    fn take(&self, order: Order, block: FrameRange) -> Option<FrameRange> {
        let request = Request::new(order, Migratetype::Movable)
            .from(block.start)
            .below(block.end)
            .flags(AllocFlags::NO_WATERMARKS);
        let start = self.cpu.alloc(request).ok()?;
        FrameRange::new(start, order.frames())
    }

    /// Whether some of a block in use may be free, in a run that is long enough, and backed.
    fn is_due(&self, block: FrameRange) -> bool {
        let Inner { core, notes, release, .. } = self.inner;
        let long = long_runs(&core.engine.may_be_free(block.start), release.least.frames());
        let noted = |w| notes.in_memory(Pfn::new(block.start.get() + 64 * w));
        let meets = |there: [u64; WORDS]| (0..WORDS).any(|w| long[w] & there[w] != 0);
        meets([!0; WORDS])
            && (meets(std::array::from_fn(|w| noted(w as u64))) || meets(self.backed(block).0))
    }

    /// Takes what is free in a block in use and is backed.
    fn take_parts(&mut self, block: FrameRange) {
        if !self.is_due(block) {
            return;
        }
        let (first, least) = (self.taken.len(), self.inner.release.least);
        for order in (0..Order::PAGEBLOCK.get()).rev() {
            let Some(size) = Order::new(order) else { continue };
            while let Some(chunk) = self.take(size, block) {
                self.taken.push(chunk);
            }
        }
        self.leave_loose(first, least.frames());
        // Of what is left of a huge page the kernel makes one again by and by (khugepaged,
        // MADV_COLLAPSE), and tells nobody: so what the notes say is absent it is asked about.
        let mut backed = None;
        let mut at = first;
        while at < self.taken.len() {
            let range = self.taken[at];
            let absent = self.inner.notes.is_absent(range);
            if absent && !backed.get_or_insert_with(|| self.backed(block)).meets(range) {
                let absent = self.taken.swap_remove(at);
                self.free(absent);
            } else {
                self.frames += range.len();
                at += 1;
            }
        }
    }

    /// The chunks from there on are all that is free in a block: those that are too short go home,
    /// but for those of runs four times as long as need be. So the allocator finds single frames in
    /// memory beside what is in use, where that lies close together.
    fn leave_loose(&mut self, first: usize, least: u64) {
        let mut chunks = self.taken.split_off(first);
        chunks.sort_unstable_by_key(|chunk| chunk.start);
        for run in chunks.chunk_by(|before, next| before.end == next.start) {
            let long = run.iter().map(FrameRange::len).sum::<u64>() >= 4 * least;
            for &chunk in run {
                if long || chunk.len() >= least { self.taken.push(chunk) } else { self.free(chunk) }
            }
        }
    }

    /// What of a block the kernel has in memory; all of it where it does not say.
    fn backed(&self, block: FrameRange) -> Backed {
        let mut backed = Backed([0; WORDS]);
        let asked = self.inner.memory.each_in_memory(block, |frame| backed.set(frame));
        if asked.is_ok() { backed } else { Backed([!0; WORDS]) }
    }

    fn free(&mut self, range: FrameRange) {
        if let Err(error) = self.cpu.free_range(range) {
            // The frames are this pass's own, so this would be a defect; say so rather than lose
            // them quietly.
            self.result = Err(error.into());
        }
    }

    /// Gives what was taken back, to the OS first and then to the allocator.
    fn flush(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        #[cfg(test)]
        crate::meanwhile::happens();
        self.taken.sort_unstable_by_key(|range| range.start);
        let mut runs: Vec<FrameRange> = Vec::new();
        self.taken.iter().for_each(|&range| join(&mut runs, range));
        let Inner { notes, memory, release, .. } = self.inner;
        let first = memory.first().get();
        let (taken, released, mut done) = (&self.taken, &mut self.released, 0);
        // SAFETY: these frames are allocated to this pass, which has given them to nobody.
        let result = unsafe {
            memory.release(&runs, &mut released.calls, |run| {
                done += 1;
                let run = runs[run];
                released.bytes += run.len() * FRAME_SIZE;
                let at = taken.partition_point(|range| range.start < run.start);
                for &range in taken[at..].iter().take_while(|range| range.end <= run.end) {
                    if range.len() == PAGEBLOCK_FRAMES {
                        notes.released((range.start.get() - first) / PAGEBLOCK_FRAMES);
                        released.blocks += 1;
                    } else {
                        notes.released_part(range);
                        released.frames += range.len();
                        self.inner.core.keep_to_memory();
                    }
                }
            })
        };
        // Relaxed: a statistic.
        release.refused.fetch_add(runs.len() as u64 - done, Ordering::Relaxed);
        if self.result.is_ok() {
            self.result = result;
        }
        runs.into_iter().for_each(|run| self.free(run));
        self.inner.core.owe(self.frames.div_ceil(PAGEBLOCK_FRAMES));
        self.inner.core.collect_owed();
        self.taken.clear();
        self.frames = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::Scope;
    use std::time::Duration;

    use super::*;
    use crate::Arena;
    use crate::meanwhile::MEANWHILE;

    /// Another thread makes a pass, and has blocks in hand when this returns.
    fn wait_for_a_pass<'scope>(scope: &'scope Scope<'scope, '_>, arena: &'scope Arena) {
        let (told, taken) = mpsc::channel();
        scope.spawn(move || {
            MEANWHILE.set(Some(Box::new(move || {
                told.send(()).unwrap();
                // For whoever does not wait for the pass to be done with its call.
                std::thread::sleep(Duration::from_millis(200));
            })));
            arena.trim().unwrap();
        });
        taken.recv().unwrap();
    }

    /// As a program's allocator would, for the lists that a pass keeps.
    #[test]
    fn an_allocation_that_fails_within_a_pass_does_not_wait_for_its_end() {
        let arena: &'static Arena = Arena::with_size(8 << 20).unwrap().leak();
        let used = arena.frames(arena.stats().frames - 512).unwrap();
        drop(arena.frames(512).unwrap());
        let (told, failed) = mpsc::channel();
        std::thread::spawn(move || {
            arena.trim().unwrap();
            MEANWHILE.set(Some(Box::new(move || told.send(arena.frames(600).is_err()).unwrap())));
            drop(arena.frames(512).unwrap());
            arena.trim().unwrap();
        });
        assert_eq!(failed.recv_timeout(Duration::from_secs(20)), Ok(true), "it waits for ever");
        drop(used);
    }

    #[test]
    fn what_a_pass_has_in_hand_is_not_missing_from_a_bulk_allocation() {
        // A pass has half of the blocks in hand at a time.
        let arena = Arena::with_size(128 << 20).unwrap();
        drop(arena.frames(arena.stats().frames).unwrap());
        let mut out = vec![Pfn::new(0); arena.stats().frames as usize];
        std::thread::scope(|scope| {
            wait_for_a_pass(scope, &arena);
            assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut out), Ok(out.len()));
        });
        // SAFETY: allocated just now, and used by nobody.
        unsafe { arena.free_bulk(&out) }.unwrap();
        arena.validate().unwrap();
    }

    /// The next pass is in the queue before an allocation that waits for the one that runs: it is
    /// to end as well.
    #[test]
    fn an_allocation_that_waits_ends_the_next_pass_too() {
        let arena = Arena::with_size(16 << 20).unwrap();
        let release = &arena.inner.release;
        release.passes.store(1, Ordering::Relaxed);
        for _ in 0..20 {
            drop(arena.frames(4096).unwrap());
            let first = release.lock();
            std::thread::scope(|scope| {
                let next = scope.spawn(|| arena.trim().unwrap());
                std::thread::sleep(Duration::from_millis(5));
                let before = release.passes.load(Ordering::Relaxed);
                let waiter = scope.spawn(move || {
                    let _no_pass = release.hold_off();
                    release.passes.load(Ordering::Relaxed) > before
                });
                while !release.is_wanted() {
                    std::thread::yield_now();
                }
                drop(first);
                let waited = waiter.join().unwrap();
                assert_eq!(
                    next.join().unwrap().cut_short,
                    waited,
                    "the pass went on although memory was wanted"
                );
            });
        }
    }

    /// What is missing is in a pass's hands, not in use.
    #[test]
    fn frames_are_extended_over_blocks_that_a_pass_has_in_hand() {
        let arena = Arena::with_size(16 << 20).unwrap();
        let mut frames = arena.frames(512).unwrap();
        frames.try_extend(1024).unwrap();
        let (mut frames, rest) = frames.split(512).unwrap();
        drop(rest);
        std::thread::scope(|scope| {
            wait_for_a_pass(scope, &arena);
            assert_eq!(frames.try_extend(1024), Ok(()));
        });
    }

    /// More than there are blocks may be owed: by frees of runs that somebody takes again without
    /// collecting.
    #[test]
    fn what_is_owed_is_collected_in_bounded_time() {
        let arena: &'static Arena = Arena::with_size(16 << 20).unwrap().leak();
        let (told, done) = mpsc::channel();
        std::thread::spawn(move || {
            arena.inner.core.owe(1 << 60);
            arena.inner.core.collect_owed();
            told.send(()).unwrap();
        });
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(()), "it collects for ever");
    }
}
