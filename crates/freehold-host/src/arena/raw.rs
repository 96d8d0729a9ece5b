//! Frames by number: allocating and freeing them. The short way of handles is in `quick.rs`.

use freehold::{
    AllocError, AllocFlags, BulkFreeError, FRAME_SIZE, FrameRange, FreeError, Migratetype, Order,
    PAGEBLOCK_FRAMES, Pfn, Request,
};

use super::Arena;
use crate::arena::Inner;
use crate::guard::Guard;
use crate::pass::{Which, pass};
use crate::stops::Stopped;
use crate::{Error, thread};

/// The frames of a chunk.
#[inline]
pub(super) fn chunk(first: Pfn, order: Order) -> FrameRange {
    FrameRange { start: first, end: Pfn::new(first.get() + order.frames()) }
}

fn single(pfn: Pfn) -> FrameRange {
    chunk(pfn, Order::ZERO)
}

/// An attempt would have passed the limit on resident memory.
fn is_limit(error: &Error) -> bool {
    matches!(error, Error::Limit { .. })
}

/// Whether that is cut from a run of several blocks, which are the zones' and not a thread's.
#[inline(always)]
fn is_large(request: &Request) -> bool {
    request.alignment() > Order::PAGEBLOCK
}

impl Arena {
    /// Allocates `2^order` frames, naturally aligned.
    ///
    /// For a thread with a slot of its own: [`Owned::alloc`](freehold::Owned::alloc), after one
    /// comparison that finds the slot, and before one that finds nothing to note about the block.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`], [`Error::Limit`], [`Error::Forked`]; nothing has changed then.
    #[inline(always)]
    pub fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, Error> {
        self.request(Request::new(order, migratetype))
    }

    /// Allocates what the request says. Movable is what nobody holds a physical address of: in user
    /// space, everything; other types keep frames of different lifetimes apart. Nodes are counted
    /// from 0 in the order of [`Topology::nodes`](crate::Topology::nodes).
    ///
    /// # Errors
    ///
    /// As [`Self::alloc`].
    #[inline(always)]
    pub fn request(&self, request: Request) -> Result<Pfn, Error> {
        let mut failed = None;
        let fast = if is_large(&request) { None } else { thread::fast(&self.key) };
        if let Some(tried) = fast.map(|cpu| cpu.alloc(request)) {
            match tried {
                Ok(pfn) => {
                    if self.inner.notes.is_news(pfn, request.order().frames()) {
                        return self.noted(pfn, request);
                    }
                    return Ok(pfn);
                }
                Err(error) => failed = Some(error),
            }
        }
        self.request_far(request, failed)
    }

    /// [`request`](Self::request) where the thread's CPU is not at hand, or has nothing: `failed`.
    #[cold]
    #[inline(never)]
    fn request_far(&self, request: Request, failed: Option<AllocError>) -> Result<Pfn, Error> {
        // Another arena may have taken the place in the thread's cache.
        if failed.is_none() && !is_large(&request) && thread::cache_again(&self.key) {
            return self.request(request);
        }
        let mut failed = failed;
        self.kept_helps(None, is_limit, || self.request_once(request, failed.take()))
    }

    /// One attempt the long way.
    fn request_once(&self, request: Request, mut failed: Option<AllocError>) -> Result<Pfn, Error> {
        let frames = request.order().frames();
        let pfn = self.persist(frames, || self.request_slow(request, failed.take()))?;
        self.note(pfn, request.order())?;
        Ok(pfn)
    }

    /// A chunk of a block with a note, which the thread's CPU had at hand.
    #[cold]
    #[inline(never)]
    fn noted(&self, pfn: Pfn, request: Request) -> Result<Pfn, Error> {
        match self.note(pfn, request.order()) {
            Ok(()) => Ok(pfn),
            error => self.kept_helps(error.err(), is_limit, || self.request_once(request, None)),
        }
    }

    /// An attempt fails for lack of memory, or would pass the limit on resident memory: what
    /// threads keep may be what it `lacks`. That is freed, and then comes another attempt. The
    /// first one may have `failed` already.
    fn kept_helps<T>(
        &self,
        failed: Option<Error>,
        lacks: impl Fn(&Error) -> bool,
        attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.after_kept(failed, lacks, attempt).0
    }

    /// [`kept_helps`](Self::kept_helps); where it was freed, nothing is kept as long as the second
    /// one lives.
    fn after_kept<T>(
        &self,
        failed: Option<Error>,
        lacks: impl Fn(&Error) -> bool,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> (Result<T, Error>, Option<Stopped<'_>>) {
        let (before, seen) = (failed.is_some(), self.core.stops.keeps());
        let mut result = failed.map_or_else(&mut attempt, Err);
        // What has failed before may have missed what somebody has freed by now.
        if before && seen != 0 && seen % 2 == 0 && result.as_ref().is_err_and(&lacks) {
            result = attempt();
        }
        let lacks = result.as_ref().is_err_and(&lacks);
        let stopped = if lacks { self.core.hold_kept(seen) } else { None };
        (if stopped.is_some() { attempt() } else { result }, stopped)
    }

    /// So many neighbouring frames, any number, the long way, after [`quick`](Self::quick) had
    /// none; returns the first.
    #[inline(never)]
    pub(crate) fn several(&self, count: u64) -> Result<Pfn, Error> {
        if let Some(start) = self.waiting_or_cut(count) {
            return Ok(start);
        }
        if let Some(range) = self.cut_of_gap(count) {
            self.hand_out(range, |_| {})?;
            return Ok(self.may_be_kept(range.start, count));
        }
        // Where there is a limit, that may be what was in the way.
        let said = thread::fast(&self.key).is_some() && self.inner.watch.limit.is_none();
        let order = Self::quick_order(count).filter(|_| said);
        let failed = order.map(|order| AllocError::NoMemory { order });
        let range = self.take_after(failed, count, |_| {})?;
        Ok(self.may_be_kept(range.start, count))
    }

    /// The long way, for a caller that looks at the notes itself. `failed` is what the thread's own
    /// CPU has said already: that it has nothing takes it a look at everything, which is not to be
    /// had twice.
    #[cold]
    #[inline(never)]
    fn request_slow(&self, request: Request, failed: Option<AllocError>) -> Result<Pfn, Error> {
        if is_large(&request)
            && !request.allowed().contains(AllocFlags::NO_LOCK)
            && !self.core.stamp.is_forked()
        {
            // What was freed into such runs, whole or part by part: it waits for somebody to
            // collect it, and until then the allocator takes a run that was never touched.
            self.core.owe(request.alignment().frames() / PAGEBLOCK_FRAMES);
            self.core.collect_owed();
        }
        let mut attempt = || Ok(thread::enter(&self.core, |cpu| cpu.alloc(request))??);
        if request.allowed().contains(AllocFlags::NO_LOCK) {
            return failed.map_or_else(attempt, |error| Err(error.into()));
        }
        self.retried(failed.map(Error::Alloc), &mut attempt)
    }

    /// What threads keep is free, and what a pass has in hand, and both look as if they were in
    /// use: an allocation that fails for lack of them tries again.
    pub(super) fn retried<T>(
        &self,
        failed: Option<Error>,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Nothing is kept meanwhile, and the pass waits for nobody who keeps.
        let (result, _kept) = self.after_kept(failed, Error::is_out_of_memory, &mut attempt);
        if !result.as_ref().is_err_and(Error::is_out_of_memory) {
            return result;
        }
        match self.inner.release.hold_off() {
            Some(_no_pass) => attempt(),
            None => result,
        }
    }

    /// [`retried`](Self::retried) for an attempt that isolates blocks. What is isolated looks as if
    /// it were in use, and what a pass has in hand is busy to it: so only one at a time of these,
    /// and allocations that fail meanwhile wait for it. Who may not wait goes without.
    fn isolating<T>(&self, attempt: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let _no_pass = self.inner.release.alone();
        attempt()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn note(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        if self.inner.notes.is_released(pfn) {
            // Before more memory is touched that was not: what has been freed and is not in
            // anybody's hands.
            self.core.collect_owed();
        }
        self.hand_out(chunk(pfn, order), |_| {})
    }

    /// Frames that have been allocated go to whoever asked, unless the OS would have to back more
    /// than the arena may have: then they go home. Calls `dirty` with those that may be other than
    /// zero.
    #[inline]
    pub(super) fn hand_out(
        &self,
        range: FrameRange,
        dirty: impl FnMut(FrameRange),
    ) -> Result<(), Error> {
        if let Some(guard) = &self.inner.guard {
            guard.open(&self.inner.memory, range);
        }
        if let Some(limit) = self.inner.watch.limit {
            self.admit(range, limit)?;
        }
        self.inner.notes.handed_out(range, dirty);
        Ok(())
    }

    /// Frames go home that the OS may not back too, where it backs `limit` blocks at most.
    #[cold]
    fn admit(&self, range: FrameRange, limit: u64) -> Result<(), Error> {
        self.make_room(range, limit).or_else(|error| self.give_range(range).and(Err(error)))
    }

    /// Whether the OS may back these frames too, whoever has them; gives others back for that.
    pub(super) fn make_room(&self, range: FrameRange, limit: u64) -> Result<(), Error> {
        let Inner { notes, memory, watch, .. } = &*self.inner;
        let first = memory.first().get() / PAGEBLOCK_FRAMES;
        let blocks = range.start.get() / PAGEBLOCK_FRAMES - first
            ..range.end.get().div_ceil(PAGEBLOCK_FRAMES) - first;
        let fits = || {
            let new = blocks.clone().filter(|&block| !notes.is_resident(block)).count() as u64;
            new == 0 || notes.resident() + new <= limit
        };
        if fits() {
            return Ok(());
        }
        // No memory given back makes room for more than the limit.
        if blocks.end - blocks.start <= limit {
            watch.press(notes.resident(), limit);
            // What the kernel refuses is counted; whether it was enough is asked again.
            let _ = pass(&self.inner, Which::All);
            if fits() {
                return Ok(());
            }
        }
        Err(Error::Limit { bytes: limit * PAGEBLOCK_FRAMES * FRAME_SIZE })
    }

    /// Tries again as often as the program says that it has freed something.
    fn persist<T>(
        &self,
        frames: u64,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = 0;
        // Nothing that is freed makes room for more than there is, or may be.
        let limit = self.inner.watch.limit.map_or(u64::MAX, |blocks| blocks * PAGEBLOCK_FRAMES);
        let may_help = frames <= self.range().len().min(limit);
        loop {
            let result = attempt();
            if !(may_help && result.as_ref().is_err_and(Error::is_out_of_memory)) {
                return result;
            }
            if self.waiting_is_freed()? {
                continue;
            }
            attempts += 1;
            if !self.inner.watch.try_again(frames, attempts) {
                return result;
            }
        }
    }

    /// Any number of neighbouring frames; calls `dirty` with those that may be other than zero.
    pub(crate) fn take_range(
        &self,
        count: u64,
        dirty: impl FnMut(FrameRange),
    ) -> Result<FrameRange, Error> {
        self.take_after(None, count, dirty)
    }

    /// [`take_range`](Self::take_range), where the thread's own CPU has `failed` already.
    fn take_after(
        &self,
        failed: Option<AllocError>,
        count: u64,
        mut dirty: impl FnMut(FrameRange),
    ) -> Result<FrameRange, Error> {
        let mut once = |mut failed: Option<AllocError>| {
            let range = self.persist(count, || self.find_range(count, failed.take()))?;
            self.hand_out(range, &mut dirty)?;
            Ok(range)
        };
        let mut failed = failed;
        self.kept_helps(None, is_limit, || once(failed.take()))
    }

    /// Takes just these frames, if they are all free; calls `dirty` with those that may be other
    /// than zero.
    pub(crate) fn take_at(
        &self,
        range: FrameRange,
        mut dirty: impl FnMut(FrameRange),
    ) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        let seen = self.core.stops.keeps();
        self.isolating(|| {
            let take = || self.core.engine.alloc_contig_range(range, |_| false);
            let waits = self.marks.waits(range.start.get(), range.len());
            let first = if waits { None } else { Some(take()) };
            if let Some(Ok(())) = first {
                return Ok(());
            }
            // It may be kept, or on its way home, without a mark any more.
            match (first, self.core.hold_kept(seen)) {
                (Some(first), None) => Ok(first?),
                _ => Ok(take()?),
            }
        })?;
        self.hand_out(range, &mut dirty)
    }

    fn find_range(&self, count: u64, failed: Option<AllocError>) -> Result<FrameRange, Error> {
        if let Some(guard) = self.inner.guard.as_ref().filter(|_| count > 0) {
            if let Ok(all) = self.find(Guard::with_red_zone(count), None) {
                return Ok(guard.keep_red_zone(&self.inner.memory, all, count));
            }
        }
        self.find(count, failed)
    }

    fn find(&self, count: u64, failed: Option<AllocError>) -> Result<FrameRange, Error> {
        if count == 0 {
            return Err(AllocError::ZeroLength.into());
        }
        if let Some(order) = Order::fitting(count).filter(|order| order.frames() == count) {
            let start = self.request_slow(Request::new(order, Migratetype::Movable), failed)?;
            return Ok(FrameRange { start, end: Pfn::new(start.get() + count) });
        }
        if count > PAGEBLOCK_FRAMES && !self.core.stamp.is_forked() {
            // As in `request_slow`.
            self.core.owe(count / PAGEBLOCK_FRAMES);
            self.core.collect_owed();
        }
        let attempt = || Ok(thread::enter(&self.core, |cpu| cpu.alloc_run(count))??);
        match self.retried(None, attempt) {
            Ok((range, rest)) => {
                self.note_gap(range, rest);
                Ok(range)
            }
            // There may be a gap over several blocks in use, or in somebody's hand.
            Err(error) if error.is_out_of_memory() => self.find_contiguous(count),
            Err(error) => Err(error),
        }
    }

    fn find_contiguous(&self, count: u64) -> Result<FrameRange, Error> {
        self.core.check_fork()?;
        let all = self.range();
        let found = self.isolating(|| {
            // So that the whole of it is not looked through twice.
            let _kept = self.core.hold_kept(self.core.stops.keeps());
            let find = || Ok(self.core.engine.alloc_contig_free(count, Order::ZERO, all)?);
            self.kept_helps(None, Error::is_out_of_memory, find)
        });
        // The allocator speaks of orders, of which there may be none that is as large.
        found.map_err(
            |error| {
                if error.is_out_of_memory() { Error::NoRun { frames: count } } else { error }
            },
        )
    }

    /// Frees `2^order` frames: any aligned part of what was allocated, from any thread. Never waits
    /// for a lock, nor for another thread, whatever that is doing: neither does any other free, nor
    /// dropping [`Frames`](crate::Frames) (but for the last handle of an `Arc<Arena>`, which ends
    /// the arena).
    ///
    /// Frames that are free already, were never handed out or are not of this arena are refused,
    /// and so is a misaligned chunk: passing them is a mistake but does no harm. Of two frees of
    /// one frame at the same moment both may return [`Ok`]; the second then counts in
    /// [`late_double_frees`](crate::Stats::late_double_frees).
    ///
    /// # Safety
    ///
    /// No [`Frames`](crate::Frames) has these frames (but for those taken out by
    /// [`into_raw`](crate::Frames::into_raw)), and nobody uses them any more.
    ///
    /// # Errors
    ///
    /// [`Error::Free`], [`Error::Forked`]. Nothing has changed then.
    #[inline(always)]
    pub unsafe fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.give(pfn, order)
    }

    #[inline(always)]
    pub(crate) fn give(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        // What is misaligned the allocator refuses.
        if self.marks.any(pfn.get(), order.frames()) && pfn.is_aligned(order) {
            return self.give_range(chunk(pfn, order));
        }
        match thread::fast(&self.key) {
            Some(cpu) => Ok(cpu.free(pfn, order)?),
            None => self.give_slow(pfn, order),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_slow(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        if thread::cache_again(&self.key) {
            return self.give(pfn, order);
        }
        if let Some(guard) = &self.inner.guard {
            if !pfn.is_aligned(order) {
                return Err(FreeError::Misaligned { pfn, order }.into());
            }
            return self.give_guarded(guard, chunk(pfn, order));
        }
        Ok(thread::enter_to_free(&self.core, |cpu| cpu.free(pfn, order))??)
    }

    /// Frees any range of frames that were allocated, whatever the allocations were. Never waits
    /// for a lock.
    ///
    /// # Safety
    ///
    /// As [`Self::free`].
    ///
    /// # Errors
    ///
    /// As [`Self::free`].
    pub unsafe fn free_range(&self, range: FrameRange) -> Result<(), Error> {
        self.give_range(range)
    }

    #[inline]
    pub(crate) fn give_range(&self, range: FrameRange) -> Result<(), Error> {
        if self.keep_at_hand(self.run_of(range)) { Ok(()) } else { self.give_range_far(range) }
    }

    #[inline(never)]
    fn give_range_far(&self, range: FrameRange) -> Result<(), Error> {
        // The allocator has no range of which the end could not be told from a hole's.
        if range.end < range.start {
            return Err(FreeError::ZeroLength.into());
        }
        if let Some(guard) = &self.inner.guard {
            return self.give_guarded(guard, range);
        }
        self.core.check_fork()?;
        if self.give_to_wait(self.run_of(range)) {
            return Ok(());
        }
        self.give_up(range)?;
        let core = &self.core;
        let chunk = Self::quick_order(range.len()).filter(|&order| range.start.is_aligned(order));
        thread::enter_to_free(core, |cpu| match chunk {
            Some(order) => cpu.free(range.start, order),
            None => cpu.free_range(range),
        })??;
        if let Some(own) = thread::fast(&self.key) {
            self.wait(own, range);
        }
        if range.len() > freehold::PAGEBLOCK_FRAMES {
            core.owe(range.len() / freehold::PAGEBLOCK_FRAMES);
        }
        Ok(())
    }

    /// What has been handed out to be kept is the allocator's to judge from now on, but for what
    /// waits, which was freed.
    pub(super) fn give_up(&self, range: FrameRange) -> Result<(), Error> {
        let refused = |pfn| FreeError::DoubleFree { pfn }.into();
        self.marks.give_up(range).map_err(refused)
    }

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    ///
    /// # Errors
    ///
    /// As [`Self::alloc`]; only where not a single frame was allocated.
    pub fn alloc_bulk(&self, migratetype: Migratetype, out: &mut [Pfn]) -> Result<usize, Error> {
        self.bulk(Request::new(Order::ZERO, migratetype), out)
    }

    /// As [`Self::alloc_bulk`], of whatever single frames the request allows.
    pub(crate) fn bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, Error> {
        let seen = self.core.stops.keeps();
        let mut got = self.persist(1, || {
            self.retried(None, || {
                Ok(thread::enter(&self.core, |cpu| cpu.alloc_bulk(request, out))??)
            })
        })?;
        if got < out.len() {
            let freed = self.waiting_is_freed()?;
            // What is missing may be kept, or in a pass's hands: see `retried`.
            let (kept, no_pass) = (self.core.hold_kept(seen), self.inner.release.hold_off());
            if freed || kept.is_some() || no_pass.is_some() {
                got += thread::enter(&self.core, |cpu| cpu.alloc_bulk(request, &mut out[got..]))?
                    .unwrap_or(0);
            }
        }
        if let Some(guard) = &self.inner.guard {
            out[..got].iter().for_each(|&pfn| guard.open(&self.inner.memory, single(pfn)));
        }
        for (done, &pfn) in out[..got].iter().enumerate() {
            if !self.inner.notes.is_news(pfn, 1) {
                continue;
            }
            if let Err(error) = self.note(pfn, Order::ZERO) {
                // At the limit: this frame has gone home, and those behind it do.
                self.give_bulk(&out[done + 1..got])?;
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
        Ok(got)
    }

    /// Frees single frames, in any order. Never waits for a lock.
    ///
    /// # Safety
    ///
    /// As [`Self::free`].
    ///
    /// # Errors
    ///
    /// [`Error::BulkFree`] with the first frame that is refused and how many before it have been
    /// freed.
    pub unsafe fn free_bulk(&self, frames: &[Pfn]) -> Result<(), Error> {
        self.give_bulk(frames)
    }

    pub(super) fn give_bulk(&self, frames: &[Pfn]) -> Result<(), Error> {
        if let Some(guard) = &self.inner.guard {
            return frames.iter().try_for_each(|&pfn| self.give_guarded(guard, single(pfn)));
        }
        self.core.check_fork()?;
        let refused = frames.iter().enumerate().find_map(|(freed, &pfn)| {
            let error = FreeError::DoubleFree { pfn: self.marks.give_up(single(pfn)).err()? };
            Some(BulkFreeError { freed, error })
        });
        let frames = refused.map_or(frames, |refused| &frames[..refused.freed]);
        thread::enter_to_free(&self.core, |cpu| cpu.free_bulk(frames))??;
        refused.map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// Frees frames of a guarded arena: in truth those that have waited long enough.
    #[cold]
    fn give_guarded(&self, guard: &Guard, range: FrameRange) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        self.give_waiting(guard.shut(&self.inner.memory, range)?)
    }

    fn give_waiting(&self, waiting: Vec<FrameRange>) -> Result<(), Error> {
        for range in waiting {
            thread::enter_to_free(&self.core, |cpu| cpu.free_range(range))??;
            self.core.owe(range.len().div_ceil(PAGEBLOCK_FRAMES));
        }
        Ok(())
    }

    /// Frees what waits in a guarded arena, since memory is short; whether anything did.
    fn waiting_is_freed(&self) -> Result<bool, Error> {
        let waiting = self.inner.guard.as_ref().map_or_else(Vec::new, Guard::all_waiting);
        let some = !waiting.is_empty();
        self.give_waiting(waiting)?;
        Ok(some)
    }
}
