//! Runs that wait where a thread has freed them: see [`runs`](crate::runs).

use freehold::{Fit, FrameRange, PAGEBLOCK_FRAMES, Pfn};

use super::Arena;
use crate::own::Own;
use crate::runs::{LONGEST, Run};
use crate::thread;

impl Arena {
    /// So many frames of a run that the calling thread has freed, which are in memory.
    #[inline(always)]
    pub(super) fn waiting(&self, count: u64) -> Option<Pfn> {
        if !(1..=LONGEST).contains(&count) {
            return None;
        }
        let own = thread::fast(&self.key)?;
        let run = own.runs.pop(count)?;
        if run.1 != count {
            return self.cut_waiting(own, run, count);
        }
        let start = Pfn::new(self.first() + run.0);
        if !own.alloc_run_at(start, count, Fit::All) {
            return None;
        }
        if self.inner.notes.is_noted(start) {
            return self.noted_run(start, count);
        }
        Some(start)
    }

    /// [`waiting`](Self::waiting) of what came to nothing at first, or of a longer run.
    #[inline(never)]
    pub(super) fn waiting_or_cut(&self, count: u64) -> Option<Pfn> {
        if !(1..=LONGEST).contains(&count) {
            return None;
        }
        let own = thread::fast(&self.key)?;
        // What may not be cut waits on for its own length.
        let longer = || if own.may_cut_runs() { own.runs.pop_longer(count) } else { None };
        while let Some(run) = own.runs.pop(count).or_else(longer) {
            let found = self.cut_waiting(own, run, count);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn first(&self) -> u64 {
        self.inner.memory.first().get()
    }

    /// Not inlined where time does not matter.
    #[inline(never)]
    fn take_at_hand(own: &Own, first: u64, count: u64, fit: Fit) -> bool {
        own.alloc_run_at(Pfn::new(first), count, fit)
    }

    /// The first frames of a run that may be longer; the rest waits on.
    fn cut_waiting(&self, own: &Own, (first, frames): Run, count: u64) -> Option<Pfn> {
        let (first, end) = (self.first() + first, self.first() + first + frames);
        let start = if count.is_power_of_two() { first.next_multiple_of(count) } else { first };
        let fit = if frames == count { Fit::All } else { Fit::Part };
        if !Self::take_at_hand(own, start, count, fit) {
            return None;
        }
        for (start, end) in [(first, start), (start + count, end)] {
            if start < end {
                own.runs.push((start - self.first(), end - start));
            }
        }
        if self.inner.notes.is_noted(Pfn::new(start)) {
            return self.noted_run(Pfn::new(start), count);
        }
        Some(Pfn::new(start))
    }

    /// Frames of a block with a note have been taken: they go home where the OS would have to back
    /// some of them anew, since there may be others that it backs.
    #[cold]
    #[inline(never)]
    fn noted_run(&self, start: Pfn, count: u64) -> Option<Pfn> {
        let range = FrameRange { start, end: Pfn::new(start.get() + count) };
        if self.inner.notes.are_in_memory(range) {
            self.hand_out(range, |_| {}).ok()?;
            return Some(start);
        }
        // They are the caller's own: it cannot fail.
        let _ = thread::enter_to_free(&self.core, |cpu| cpu.free_range(range));
        None
    }

    /// So many frames, no power of two, from the gap that a search has found last for such runs.
    pub(super) fn cut_of_gap(&self, count: u64) -> Option<FrameRange> {
        if count.is_power_of_two() {
            return None;
        }
        let own = thread::fast(&self.key)?;
        let start = self.first() + own.runs.gaps.first(count)?;
        if !Self::take_at_hand(own, start, count, Fit::Gap) {
            return None;
        }
        own.runs.gaps.cut(count);
        let start = Pfn::new(start);
        Some(FrameRange { start, end: Pfn::new(start.get() + count) })
    }

    /// A search has found a run, behind which so many frames of its block are free.
    pub(super) fn note_gap(&self, run: FrameRange, rest: u64) {
        let first = run.end.get() - self.first();
        if let Some(own) = thread::fast(&self.key).filter(|_| first >> u32::BITS == 0) {
            own.runs.gaps.set(run.len(), (first, rest));
        }
    }

    /// Frees a run of one block the short way, and has it wait; `false` where that does not go.
    #[inline(never)]
    pub(super) fn give_to_wait(&self, range: FrameRange) -> bool {
        let Some(own) = thread::fast(&self.key) else { return false };
        let count = range.end.get().wrapping_sub(range.start.get());
        if count > LONGEST || !own.free_run_at_hand(range.start, count) {
            return false;
        }
        own.runs.push((range.start.get() - self.first(), count));
        true
    }

    /// A run that was freed waits, if it is short enough and in one block.
    #[inline(always)]
    pub(super) fn wait(&self, own: &Own, range: FrameRange) {
        let (first, frames) = (range.start.get(), range.end.get() - range.start.get());
        if frames <= LONGEST && first % PAGEBLOCK_FRAMES + frames <= PAGEBLOCK_FRAMES {
            own.runs.push((first - self.first(), frames));
        }
    }
}
