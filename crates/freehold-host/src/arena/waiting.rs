//! Runs that wait where a thread has freed them: see [`runs`](crate::runs).

use freehold::{Fit, FrameRange, Pfn};

use super::Arena;
use crate::key::Own;
use crate::runs::{Found, LONGEST, Places, Run};
use crate::thread;

/// Kept runs freed where a request finds none of its length.
const LET_GO: usize = 16;

impl Arena {
    /// A run of so many frames that the calling thread keeps. Where that is not known at once, what
    /// comes `otherwise`, as a jump: no register is saved for it.
    #[inline(always)]
    pub(super) fn kept_or(
        &self,
        own: &Own,
        count: u64,
        otherwise: impl FnOnce() -> Option<Pfn>,
    ) -> Option<Pfn> {
        let kept = own.runs.door.at_once(&self.core.stops, |places| places.pop_kept(count));
        let Some(Some(first)) = kept else {
            if kept.is_some() {
                own.runs.has(count, false);
            }
            return otherwise();
        };
        // SAFETY: the arena's marks said that it was out when it was freed.
        match unsafe { self.marks.one_kept((first, count)) } {
            Some((word, mask)) => word.give_out(mask),
            None => return self.give_out(first, count),
        }
        Some(Pfn::new(self.first() + first))
    }

    #[inline(never)]
    fn give_out(&self, first: u64, count: u64) -> Option<Pfn> {
        self.marks.give_out((first, count));
        Some(Pfn::new(self.first() + first))
    }

    /// So many frames of a run that the calling thread has freed.
    #[inline(never)]
    pub(super) fn waiting(&self, count: u64) -> Option<Pfn> {
        if !(1..=LONGEST).contains(&count) {
            return None;
        }
        let own = thread::fast(&self.key)?;
        let found = own.runs.door.inside(&self.core.stops, |places| {
            self.next_cut(own, places, places.pop(count)?, count)
        })??;
        self.cut_waiting(own, found, count)
    }

    /// [`waiting`](Self::waiting) of what came to nothing at first, or of a longer run.
    #[inline(never)]
    pub(super) fn waiting_or_cut(&self, count: u64) -> Option<Pfn> {
        if !(1..=LONGEST).contains(&count) {
            return None;
        }
        let own = thread::fast(&self.key)?;
        if self.core.is_thrifty() {
            // Short runs that are in memory make longer ones where they lie side by side: before
            // memory is used that was given back.
            own.runs.door.inside(&self.core.stops, |places| {
                let oldest = std::iter::from_fn(|| places.let_go());
                oldest.take(LET_GO).for_each(|run| {
                    self.let_go(own, run);
                    let around = self.run_of(own.free_around(self.range_of(run)));
                    if run.1 < around.1 && around.1 <= LONGEST {
                        places.push(around);
                    }
                });
            });
        }
        // What may not be cut waits on for its own length.
        let may_cut = own.may_cut_runs();
        let next = |places: &Places| {
            let longer = || if may_cut { places.pop_longer(count) } else { None };
            self.next_cut(own, places, places.pop(count).or_else(longer)?, count)
        };
        while let Some(Some(found)) = own.runs.door.inside(&self.core.stops, next) {
            let found = self.cut_waiting(own, found, count);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    #[inline(always)]
    fn first(&self) -> u64 {
        self.marks.first()
    }

    /// Not inlined where time does not matter.
    #[inline(never)]
    fn take_at_hand(own: &Own, first: u64, count: u64, fit: Fit) -> bool {
        own.alloc_run_at(Pfn::new(first), count, fit)
    }

    /// A run of the allocator's is handed out: the thread that frees it may keep it.
    #[inline(always)]
    pub(super) fn may_be_kept(&self, start: Pfn, count: u64) -> Pfn {
        if count <= LONGEST.min(self.core.most_kept()) {
            self.marks.keep(start.get(), count);
        }
        start
    }

    /// Where so many frames are cut from a run, and what is left of it.
    fn cut((first, frames): Run, count: u64) -> (u64, impl Iterator<Item = Run>) {
        // The arena's first frame is a multiple of each length.
        let start = if count.is_power_of_two() { first.next_multiple_of(count) } else { first };
        let (behind, end) = (start + count, first + frames);
        let rests = [(first, start - first), (behind, end - behind)];
        (start, rests.into_iter().filter(|rest| rest.1 > 0))
    }

    /// A run of which so many frames are to be had: what is left of a kept one waits on, before
    /// anybody could look for it.
    #[inline(never)]
    fn next_cut(&self, own: &Own, places: &Places, found: Found, count: u64) -> Option<Found> {
        if found.kept {
            places.count(count);
            Self::cut(found.run, count).1.for_each(|rest| self.keep_inside(own, places, rest));
        }
        Some(found)
    }

    /// The first frames of a run that may be longer; the rest waits on.
    fn cut_waiting(&self, own: &Own, Found { run, kept }: Found, count: u64) -> Option<Pfn> {
        let (start, rests) = Self::cut(run, count);
        let start = Pfn::new(self.first() + start);
        if kept {
            #[cfg(test)]
            crate::meanwhile::happens();
            return self.give_out(start.get() - self.first(), count);
        }
        let (end, fit) = (start.get() + count, if run.1 == count { Fit::All } else { Fit::Part });
        let range = FrameRange { start, end: Pfn::new(end) };
        // What was given back since is no use, and neither is what is left of it: there may be
        // others that the OS backs.
        if !self.inner.notes.are_in_memory(range)
            || !Self::take_at_hand(own, start.get(), count, fit)
        {
            return None;
        }
        rests.for_each(|rest| self.name(own, rest));
        if self.inner.notes.is_noted(start) {
            self.hand_out(range, |_| {}).ok()?;
        }
        Some(self.may_be_kept(start, count))
    }

    /// A run that may be kept, and is the caller's, waits.
    #[inline(always)]
    pub(super) fn keep(&self, own: &Own, run: Run) {
        if own.runs.door.at_once(&self.core.stops, |places| places.keep(run)) != Some(true) {
            return self.keep_after_others(own, run);
        }
        own.runs.has(run.1, true);
    }

    /// [`keep`](Self::keep) where those kept longest are to go first, or it is not to be kept:
    /// then it waits by name.
    #[cold]
    #[inline(never)]
    fn keep_after_others(&self, own: &Own, run: Run) {
        let inside = |places: &Places| self.keep_inside(own, places, run);
        if own.runs.door.inside(&self.core.stops, inside).is_none() {
            self.let_go(own, run);
        }
    }

    /// [`keep_after_others`](Self::keep_after_others), by the thread inside its places.
    fn keep_inside(&self, own: &Own, places: &Places, run: Run) {
        own.runs.has(run.1, true);
        places.move_on();
        if places.keep(run) {
            return;
        }
        if !places.may_keep(run) {
            self.let_go(own, run);
            return places.push(run);
        }
        self.core.stops.is_keeping();
        places.may_fill();
        while !places.keep(run) {
            let Some(oldest) = places.let_go() else { return self.let_go(own, run) };
            self.let_go(own, oldest);
        }
    }

    #[inline(never)]
    fn let_go(&self, own: &Own, run: Run) {
        self.core.free_one(
            run,
            |range| own.free_run_at_hand(range.start, range.len()),
            |word| own.free_range(word).is_ok(),
        );
    }

    /// A run that is free waits by name.
    #[inline(never)]
    fn name(&self, own: &Own, run: Run) {
        own.runs.door.inside(&self.core.stops, |places| places.push(run));
    }

    /// So many frames, no power of two, from the gap that a search has found last for such runs.
    pub(super) fn cut_of_gap(&self, count: u64) -> Option<FrameRange> {
        if count.is_power_of_two() {
            return None;
        }
        let own = thread::fast(&self.key)?;
        let range = self.range_of((own.runs.gaps.first(count)?, count));
        // It may have been given back since.
        let is_here = !self.core.is_thrifty() || self.inner.notes.are_in_memory(range);
        if !is_here || !Self::take_at_hand(own, range.start.get(), count, Fit::Gap) {
            return None;
        }
        own.runs.gaps.cut(count);
        Some(range)
    }

    /// A search has found a run, behind which so many frames of its block are free.
    pub(super) fn note_gap(&self, run: FrameRange, rest: u64) {
        let first = run.end.get() - self.first();
        if let Some(own) = thread::fast(&self.key).filter(|_| first >> u32::BITS == 0) {
            own.runs.gaps.set(run.len(), (first, rest));
        }
    }

    /// Frees a run of one word that may be kept: the usual case, and nothing else.
    #[inline(always)]
    pub(super) fn keep_at_hand(&self, run: Run) -> bool {
        let Some(own) = thread::fast(&self.key) else { return false };
        let one = if run.1.wrapping_sub(1) < 64 { self.marks.one(run) } else { None };
        let kept = one.is_some_and(|(word, mask)| word.take_back(mask));
        if kept {
            self.keep(own, run);
        }
        kept
    }

    /// A range by the arena's frames, and back: exact also where it is none of the arena's.
    #[inline(always)]
    pub(super) fn run_of(&self, FrameRange { start, end }: FrameRange) -> Run {
        (start.get().wrapping_sub(self.first()), end.get().wrapping_sub(start.get()))
    }

    #[inline(always)]
    pub(super) fn range_of(&self, (first, frames): Run) -> FrameRange {
        let start = first.wrapping_add(self.first());
        FrameRange { start: Pfn::new(start), end: Pfn::new(start.wrapping_add(frames)) }
    }

    /// Frees a short run at hand, and has it wait; `false` where that does not go.
    #[inline(never)]
    pub(super) fn give_to_wait(&self, run: Run) -> bool {
        let Some(own) = thread::fast(&self.key) else { return self.give_to_wait_again(run) };
        if run.1.wrapping_sub(1) >= LONGEST {
            return false;
        }
        if self.marks.take_back(run) {
            self.keep(own, run);
            return true;
        }
        self.free_to_wait(own, run)
    }

    /// Another arena may have taken the place in the thread's cache.
    #[cold]
    #[inline(never)]
    fn give_to_wait_again(&self, run: Run) -> bool {
        thread::cache_again(&self.key) && self.give_to_wait(run)
    }

    /// Of what is the allocator's, the run is to be of one block.
    #[inline(never)]
    fn free_to_wait(&self, own: &Own, run: Run) -> bool {
        let start = self.range_of(run).start;
        let freed = !self.marks.any(start.get(), run.1) && own.free_run_at_hand(start, run.1);
        if freed {
            self.name(own, run);
        }
        freed
    }

    /// A run that was freed waits by name, if it is short enough.
    #[inline(always)]
    pub(super) fn wait(&self, own: &Own, range: FrameRange) {
        let run = self.run_of(range);
        if run.1 <= LONGEST {
            self.name(own, run);
        }
    }
}
