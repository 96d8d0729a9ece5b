//! The arena: frames by number. See [`Frames`](crate::Frames) for frames that free themselves.

mod quick;

use std::fmt;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{AllocError, CpuId, FRAME_SIZE, FrameRange, FreeError, Migratetype, Order, Pfn, Totals, ZoneStats};

use crate::Error;
use crate::background::Background;
use crate::builder::Builder;
use crate::core::Core;
use crate::frames::Frames;
use crate::memory::{Backing, Memory};
use crate::notes::Notes;
use crate::release::{self, Release, Released, Which};
use crate::request::FrameRequest;
use crate::stats::Stats;
use crate::thread::{self, Key};

/// What an arena and its background thread share.
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) notes: Notes,
    pub(crate) memory: Memory,
    pub(crate) release: Release,
}

/// An arena of real page frames. See the [crate's documentation](crate).
///
/// All calls take `&self` and may be made from any thread. They are not for signal handlers: a thread that is interrupted
/// inside its own CPU's state must not enter it again.
///
/// The calls by frame number are the raw ones: nothing frees such frames but a free, and whoever frees must be right
/// about who uses them. [`frames`](Self::frames) and its kin return handles that do it by themselves.
pub struct Arena {
    /// What a thread finds its CPU by: a copy of `core.key`, two loads less on every call.
    key: Key,
    /// The same as `inner.core`: one load less on every call.
    core: Arc<Core>,
    inner: Arc<Inner>,
    background: Option<Background>,
    refused_drops: AtomicU64,
}

impl Arena {
    pub(crate) fn new(inner: Arc<Inner>, background: Option<Background>) -> Self {
        Self {
            key: inner.core.key(),
            core: Arc::clone(&inner.core),
            inner,
            background,
            refused_drops: AtomicU64::new(0),
        }
    }

    /// An arena of at least that many bytes of private memory, with every knob at its default.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn with_size(bytes: u64) -> Result<Self, Error> {
        Self::builder(bytes).build()
    }

    /// The knobs.
    pub fn builder(bytes: u64) -> Builder {
        Builder::new(bytes)
    }

    /// Keeps the arena for the rest of the program, so that its [`Frames`] have no lifetime to look after.
    #[must_use]
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    // ---- Handles ----

    /// So many neighbouring frames (any number), which go home when the handle is dropped. What is in them is whatever
    /// their last user left.
    ///
    /// Takes constant time up to a block; beyond that time proportional to the number of blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] where there is no such run of free frames, [`Error::Forked`].
    #[inline(always)]
    pub fn frames(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::new(self, count)
    }

    /// The same, all zero. Frames that come fresh from the OS are zero already and are not touched.
    ///
    /// # Errors
    ///
    /// As [`Self::frames`].
    pub fn zeroed(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::zeroed(self, count)
    }

    // ---- Raw frames ----

    /// Allocates `2^order` frames, naturally aligned.
    ///
    /// For a thread with a slot of its own: [`Owned::alloc`](freehold::Owned::alloc), after one comparison that finds the
    /// slot, and before one that finds nothing to note about the block.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`], [`Error::Forked`]; nothing has changed then.
    #[inline(always)]
    pub fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, Error> {
        self.request(FrameRequest::new(order).migratetype(migratetype))
    }

    /// Allocates what the request says.
    ///
    /// # Errors
    ///
    /// As [`Self::alloc`].
    #[inline(always)]
    pub fn request(&self, request: FrameRequest) -> Result<Pfn, Error> {
        if let Some(cpu) = thread::fast(&self.key) {
            if let Ok(pfn) = cpu.alloc(request.request()) {
                if self.inner.notes.is_news(pfn, request.order().frames()) {
                    self.note(pfn, request.order());
                }
                return Ok(pfn);
            }
        }
        let pfn = self.request_slow(request)?;
        self.note(pfn, request.order());
        Ok(pfn)
    }

    /// So many neighbouring frames, any number, the long way; returns the first.
    #[inline(never)]
    pub(crate) fn several(&self, count: u64) -> Result<Pfn, Error> {
        self.take_range(count, |_| {}).map(|range| range.start)
    }

    /// The same for a caller that looks at the notes itself.
    pub(crate) fn request_unnoted(&self, request: FrameRequest) -> Result<Pfn, Error> {
        if let Some(cpu) = thread::fast(&self.key) {
            if let Ok(pfn) = cpu.alloc(request.request()) {
                return Ok(pfn);
            }
        }
        self.request_slow(request)
    }

    #[cold]
    #[inline(never)]
    fn request_slow(&self, request: FrameRequest) -> Result<Pfn, Error> {
        self.retried(|| Ok(thread::enter(&self.core, |cpu| cpu.alloc(request.request()))??))
    }

    /// Blocks that a pass has in hand look as if they were in use: an allocation that fails for lack of them tries again.
    fn retried<T>(&self, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match attempt() {
            Err(error) if error.is_out_of_memory() => match self.inner.release.hold_off() {
                Some(_no_pass) => attempt(),
                None => Err(error),
            },
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self, pfn: Pfn, order: Order) {
        if self.inner.notes.is_released(pfn) {
            // Before more memory is touched that was not: what has been freed and is not in anybody's hands.
            self.core.collect_owed();
        }
        let range = FrameRange { start: pfn, end: Pfn::new(pfn.get() + order.frames()) };
        self.inner.notes.handed_out(range, |_| {});
    }

    /// Any number of neighbouring frames; calls `dirty` with those that may be other than zero.
    pub(crate) fn take_range(&self, count: u64, mut dirty: impl FnMut(FrameRange)) -> Result<FrameRange, Error> {
        let range = self.find_range(count)?;
        self.inner.notes.handed_out(range, &mut dirty);
        Ok(range)
    }

    /// Takes just these frames, if they are all free; calls `dirty` with those that may be other than zero.
    pub(crate) fn take_at(&self, range: FrameRange, mut dirty: impl FnMut(FrameRange)) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        self.retried(|| Ok(self.core.engine.alloc_contig_range(range, |_| false)?))?;
        self.inner.notes.handed_out(range, &mut dirty);
        Ok(())
    }

    fn find_range(&self, count: u64) -> Result<FrameRange, Error> {
        let whole = count.checked_next_power_of_two().filter(|_| count > 0).and_then(Order::fitting);
        let Some(order) = whole.filter(|order| order.frames() >= count) else {
            if count == 0 {
                return Err(AllocError::ZeroLength.into());
            }
            return self.find_contiguous(count);
        };
        if order > Order::PAGEBLOCK && !self.core.stamp.is_forked() {
            // Parts of such runs that were freed one by one.
            self.core.owe(1);
            self.core.collect_owed();
        }
        let start = match self.request_unnoted(FrameRequest::new(order)) {
            Ok(start) => start,
            // There may be a run that is long enough, if not a whole chunk of that order.
            Err(error) if error.is_out_of_memory() && !count.is_power_of_two() => return self.find_contiguous(count),
            Err(error) => return Err(error),
        };
        let range = FrameRange { start, end: Pfn::new(start.get() + count) };
        let rest = FrameRange { start: range.end, end: Pfn::new(start.get() + order.frames()) };
        if !rest.is_empty() {
            // Ours, and nobody knows of it, so it cannot be refused.
            let _ = thread::enter(&self.core, |cpu| cpu.free_range(rest))?;
        }
        Ok(range)
    }

    fn find_contiguous(&self, count: u64) -> Result<FrameRange, Error> {
        self.core.check_fork()?;
        let all = self.range();
        let found = self.retried(|| Ok(self.core.engine.alloc_contig(count, Order::ZERO, all, |_| false)?));
        // The allocator speaks of orders, of which there may be none that is as large.
        found.map_err(|error| if error.is_out_of_memory() { Error::NoRun { frames: count } } else { error })
    }

    /// Frees `2^order` frames: any aligned part of what was allocated, from any thread. Never waits for a lock, nor for
    /// another thread, whatever that is doing: neither does any other free, nor dropping [`Frames`] (but for the last handle
    /// of an `Arc<Arena>`, which ends the arena).
    ///
    /// Frames that are free already, were never handed out or are not of this arena are refused, and so is a misaligned
    /// chunk: passing them is a mistake but does no harm.
    ///
    /// # Safety
    ///
    /// No [`Frames`] has these frames (but for those taken out by [`Frames::into_raw`]), and nobody uses them any more.
    ///
    /// # Errors
    ///
    /// [`Error::Free`], [`Error::Forked`]; nothing has changed then.
    #[inline(always)]
    pub unsafe fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.give(pfn, order)
    }

    #[inline(always)]
    pub(crate) fn give(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        match thread::fast(&self.key) {
            Some(cpu) => cpu.free(pfn, order).map_err(Error::Free),
            None => self.give_slow(pfn, order),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_slow(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        Ok(thread::enter_to_free(&self.core, |cpu| cpu.free(pfn, order))??)
    }

    /// Frees any range of frames that were allocated, whatever the allocations were. Never waits for a lock.
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

    pub(crate) fn give_range(&self, range: FrameRange) -> Result<(), Error> {
        // The allocator has no range of which the end could not be told from a hole's.
        if range.end < range.start {
            return Err(FreeError::ZeroLength.into());
        }
        let core = &self.core;
        thread::enter_to_free(core, |cpu| cpu.free_range(range))??;
        if range.len() > freehold::PAGEBLOCK_FRAMES {
            core.owe(range.len() / freehold::PAGEBLOCK_FRAMES);
        }
        Ok(())
    }

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    ///
    /// # Errors
    ///
    /// As [`Self::alloc`]; only where not a single frame was allocated.
    pub fn alloc_bulk(&self, migratetype: Migratetype, out: &mut [Pfn]) -> Result<usize, Error> {
        let request = FrameRequest::new(Order::ZERO).migratetype(migratetype).request();
        let mut got = self.retried(|| Ok(thread::enter(&self.core, |cpu| cpu.alloc_bulk(request, out))??))?;
        if got < out.len() {
            // As in `retried`: what is missing may be in a pass's hands.
            if let Some(_no_pass) = self.inner.release.hold_off() {
                got += thread::enter(&self.core, |cpu| cpu.alloc_bulk(request, &mut out[got..]))?.unwrap_or(0);
            }
        }
        for &pfn in &out[..got] {
            if self.inner.notes.is_news(pfn, 1) {
                self.note(pfn, Order::ZERO);
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
    /// [`Error::BulkFree`] with the first frame that is refused and how many before it have been freed.
    pub unsafe fn free_bulk(&self, frames: &[Pfn]) -> Result<(), Error> {
        Ok(thread::enter_to_free(&self.core, |cpu| cpu.free_bulk(frames))??)
    }

    // ---- Frames as memory ----

    /// Where a frame is; `None` for frames of other arenas. Reading and writing there is for who has the frame.
    #[inline]
    #[must_use]
    pub fn pointer(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        if !self.range().contains(pfn) {
            return None;
        }
        NonNull::new(self.inner.memory.pointer(pfn))
    }

    /// Which frame a byte is in; `None` outside the arena.
    #[inline]
    #[must_use]
    pub fn pfn_of(&self, pointer: *const u8) -> Option<Pfn> {
        let pfn = Pfn::new(pointer.addr() as u64 / FRAME_SIZE);
        self.range().contains(pfn).then_some(pfn)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    /// All frames there are.
    #[inline]
    #[must_use]
    pub fn range(&self) -> FrameRange {
        self.inner.memory.range()
    }

    /// The memfd behind the frames, for a second mapping: frame `pfn` is at [`offset`](Self::offset). `None` for other
    /// kinds of memory.
    ///
    /// # Safety
    ///
    /// Whoever reads or writes frames through the file, or through another mapping of it, must have those frames: a handle's
    /// slice relies on nobody else writing there. The file's size must stay as it is: a byte behind the end of a file
    /// cannot be touched.
    #[must_use]
    pub unsafe fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.memory.file()
    }

    /// Where a frame is in the [`memfd`](Self::memfd), in bytes; `None` for frames of other arenas.
    #[must_use]
    pub fn offset(&self, pfn: Pfn) -> Option<u64> {
        let range = self.range();
        range.contains(pfn).then(|| (pfn.get() - range.start.get()) * FRAME_SIZE)
    }

    /// What the frames are made of.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.inner.memory.backing()
    }

    /// What a forked child finds at the frames' addresses.
    #[must_use]
    pub fn on_fork(&self) -> crate::OnFork {
        self.inner.memory.on_fork()
    }

    /// Has the kernel back these frames now (`MADV_POPULATE_WRITE`), so that it says here if it cannot, instead of by a
    /// signal at the first touch. What is in them does not change.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where memory, the huge pages or the file do not suffice, [`Error::OutsideArena`], [`Error::Forked`].
    /// Frames before the one that failed may be backed. Frames that are free are backed from then on too, and given back
    /// only after their block has been used.
    pub fn populate(&self, range: FrameRange) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        self.inner.memory.populate(range)
    }

    /// How many of these frames the kernel has in memory at this moment. Takes time proportional to the range.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideArena`], [`Error::Os`].
    pub fn frames_in_memory(&self, range: FrameRange) -> Result<u64, Error> {
        self.check_inside(range)?;
        self.inner.memory.in_memory(range)
    }

    fn check_inside(&self, range: FrameRange) -> Result<(), Error> {
        let all = self.range();
        if range.start < all.start || range.start >= all.end {
            return Err(Error::OutsideArena { pfn: range.start });
        }
        if range.end > all.end {
            return Err(Error::OutsideArena { pfn: all.end });
        }
        if range.is_empty() {
            return Err(AllocError::ZeroLength.into());
        }
        Ok(())
    }

    // ---- Giving memory back ----

    /// Gives free memory back to the OS, now: every wholly free block, and of blocks in use the aligned runs of 8 free frames
    /// or more that it backs (but for [`Backing::Hugetlb`], whose pages are blocks).
    ///
    /// Takes the kernel's time for as much memory, and a microsecond or a few for each block that the OS backs. Others work on
    /// meanwhile; an allocation that fails ends the call early.
    ///
    /// # Errors
    ///
    /// [`Error::Os`], for the first run of blocks that the kernel refused; all others were given back and all are free.
    /// [`Error::Forked`].
    pub fn trim(&self) -> Result<Released, Error> {
        release::pass(&self.inner, Which::All)
    }

    /// Gives back the blocks that have been wholly free, and untouched, since the last call, and free runs of those of which
    /// nothing was handed out since, up to the [budget](Builder::budget); does the periodic work of the threads' CPUs. To be called once each
    /// [decay](Builder::decay) time; the [background thread](Builder::background) does just that.
    ///
    /// # Errors
    ///
    /// As [`Self::trim`].
    pub fn pass(&self) -> Result<Released, Error> {
        release::pass(&self.inner, Which::Decayed)
    }

    // ---- Looking ----

    /// Counters, and what is resident. Takes no time to speak of.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Inner { core, notes, release, memory } = &*self.inner;
        // Relaxed: statistics.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let forked = core.stamp.is_forked();
        Stats {
            frames: memory.range().len(),
            blocks: notes.blocks(),
            blocks_resident: notes.resident(),
            blocks_released: read(&release.blocks),
            frames_released: read(&release.frames),
            bytes_released: (read(&release.blocks) * freehold::PAGEBLOCK_FRAMES + read(&release.frames)) * FRAME_SIZE,
            release_calls: read(&release.calls),
            release_refused: read(&release.refused),
            passes: read(&release.passes),
            slots: core.slots.exclusive().into(),
            slots_taken: core.slots.taken().into(),
            // Behind a lock, which a forked child must not wait for.
            threads_sharing: if forked { 0 } else { core.slots.sharing().into() },
            biased: core.biased(),
            metadata_bytes: core.metadata_bytes() + notes.bytes(),
            refused_drops: read(&self.refused_drops),
            late_double_frees: core.engine.platform().late_double_frees(),
        }
    }

    /// How many frames are free, wherever they are held. Looks at every block; exact while nothing runs.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        let engine = &self.core.engine;
        (0..engine.zone_count()).filter_map(|zone| engine.zone_stats(zone)).map(|zone| zone.free).sum()
    }

    /// The allocator's view of one zone: one for each memory node.
    #[must_use]
    pub fn zone_stats(&self, zone: usize) -> Option<ZoneStats> {
        self.core.engine.zone_stats(zone)
    }

    /// The allocator's counters, over all threads.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.core.engine.totals()
    }

    /// The CPU that the calling thread works on: its own, or one that it shares.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn current_cpu(&self) -> Result<CpuId, Error> {
        thread::enter(&self.core, |cpu| cpu.id())
    }

    /// Publishes what the calling thread has freed into blocks of others and not sent home yet: for a thread about to
    /// sleep for long. A thread that ends does so by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn flush(&self) -> Result<(), Error> {
        Ok(thread::enter(&self.core, |cpu| cpu.flush())??)
    }

    /// Gathers all free frames that threads hold in the zones' hands: for tests, and before looking for very large runs.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn drain(&self) -> Result<(), Error> {
        self.core.check_fork()?;
        self.core.engine.drain_all();
        Ok(())
    }

    /// Checks every invariant of the allocator, and the count of resident blocks. Everybody else waits meanwhile; only
    /// to be relied on while nobody frees.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] with the first violation, [`Error::Forked`].
    pub fn validate(&self) -> Result<(), Error> {
        let Inner { core, notes, memory, .. } = &*self.inner;
        core.check_fork()?;
        core.engine.validate().map_err(Error::Broken)?;
        let (found, expected) = (notes.resident(), notes.count_resident());
        if found != expected {
            let what = "the count of resident blocks is not the number of blocks noted so";
            return Err(Error::Broken(freehold::Violation { pfn: memory.first(), what, found, expected }));
        }
        Ok(())
    }

    pub(crate) fn pointer_unchecked(&self, pfn: Pfn) -> *mut u8 {
        self.inner.memory.pointer(pfn)
    }

    /// A handle's frames could not be freed.
    pub(crate) fn refuse_drop(&self, error: Error) {
        // A child's copy of a handle frees nothing: the frames are the parent's.
        if error != Error::Forked {
            // Relaxed: a statistic.
            self.refused_drops.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let core = &self.core;
        let forked = core.stamp.is_forked();
        if let Some(background) = self.background.take() {
            background.stop(forked);
        }
        if forked {
            self.inner.memory.forked();
            return;
        }
        core.close();
        thread::forget(core);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("range", &self.range()).field("backing", &self.backing()).finish_non_exhaustive()
    }
}

/// How a [`Frames`] refers to its arena: by reference, or by a counted one.
///
/// | | costs | for |
/// |---|---|---|
/// | `&'a Arena` | nothing | frames that live within a scope; the compiler sees to it that the arena outlives them |
/// | `&'static Arena` | nothing | frames in structures of any kind, of an arena that was [leaked](Arena::leak) |
/// | `Arc<Arena>` | two atomic operations a handle | frames in structures, of an arena that goes when the last of them does |
///
/// So there is no way to drop an arena before its frames, and nothing to check when they are used.
pub trait Handle: Deref<Target = Arena> + Clone + sealed::Sealed {}

impl Handle for &Arena {}
impl Handle for Arc<Arena> {}

mod sealed {
    /// Only references that always lead to the same arena.
    pub trait Sealed {}
    impl Sealed for &super::Arena {}
    impl Sealed for std::sync::Arc<super::Arena> {}
}
