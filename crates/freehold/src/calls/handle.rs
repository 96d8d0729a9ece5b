//! A handle: the calls of one CPU.
//!
//! ```text
//! Handle = the allocator + a CPU + a door
//!
//! freehold.on(cpu)   -> On     Handle<.., Anybody>   any CPU, from anywhere
//! freehold.here()    -> On     Handle<.., Anybody>   the CPU that the platform names
//! freehold.own(cpu)  -> Owned  Handle<.., Owner>     that CPU, for this holder alone
//! ```
//!
//! Each call is written once, for every [door](super::door); the compiler makes one of each. A
//! single chunk's calls are in [`alloc::fast`](crate::alloc::fast) and
//! [`free::fast`](crate::free::fast), those of many frames and of ranges here. Code that cares for
//! none of this takes [`Frames`](crate::Frames).

use super::door::{Anybody, Door, Owner};
use crate::cpu::inside::Inside;
use crate::primitive::Relaxed;
use crate::{
    AllocError, AllocFlags, BulkFreeError, CpuId, FrameRange, FreeError, Freehold, Pfn, Platform,
    Request,
};

/// The calls of one CPU, through a [`Door`]: see [`On`] and [`Owned`] for the two there are.
pub struct Handle<'a, 'm, P: Platform, D: Door<'m>> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) id: CpuId,
    pub(crate) door: D,
}

/// Calls on one CPU that anybody may make at any time. Made by [`Freehold::on`] and
/// [`Freehold::here`].
pub type On<'a, 'm, P> = Handle<'a, 'm, P, Anybody>;

/// A CPU that the holder of this handle has for itself: until it is dropped nobody else can own it.
/// Made by [`Freehold::own`]. May be sent to another thread but not used by two at once.
pub type Owned<'a, 'm, P> = Handle<'a, 'm, P, Owner<'a, 'm, P>>;

impl<'m, P: Platform> Freehold<'m, P> {
    /// Calls made on that CPU, by any thread. Whether it is online is checked by
    /// each call.
    #[inline]
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> On<'_, 'm, P> {
        Handle { fh: self, id: cpu, door: Anybody::new() }
    }

    /// Calls made on the current CPU, which the platform is asked for once, now: a handle that is
    /// kept stays with that CPU wherever its thread goes. A thread that wants the platform asked at
    /// each call uses the allocator itself as [`Frames`](crate::Frames).
    #[inline]
    #[must_use]
    pub fn here(&self) -> On<'_, 'm, P> {
        self.on(self.platform.current_cpu())
    }

    /// Takes a CPU for the handle's lifetime, so that its own calls need no read-modify-write on
    /// the way in, where the platform has a heavy barrier.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`], and [`AllocError::CpuOwned`] where another handle has it.
    pub fn own(&self, cpu: CpuId) -> Result<Owned<'_, 'm, P>, AllocError> {
        Ok(Handle { fh: self, id: cpu, door: Owner::take(self, cpu)? })
    }
}

impl<'a, 'm, P: Platform, D: Door<'m>> Handle<'a, 'm, P, D> {
    /// Enters for a call that may wait, unless the request forbids it.
    #[inline(always)]
    pub(crate) fn enter(&self, flags: AllocFlags) -> Result<Inside<'a, 'm, P>, AllocError> {
        let state = self.door.state(self.fh, self.id)?;
        let biased = self.door.biased();
        if flags.contains(AllocFlags::NO_LOCK) {
            return Inside::try_enter(self.fh, state, self.id, biased)
                .ok_or(AllocError::WouldBlock);
        }
        Ok(Inside::enter(self.fh, state, self.id, biased))
    }

    /// Enters for a free, where that takes no waiting.
    #[inline(always)]
    pub(crate) fn enter_to_free(&self) -> Result<Option<Inside<'a, 'm, P>>, FreeError> {
        match self.door.state(self.fh, self.id) {
            // It may have gone offline since it was looked at: it must not have anything in hand
            // then.
            Ok(state) => Ok(Inside::try_enter(self.fh, state, self.id, self.door.biased())
                .filter(|inside| inside.cpu.online.get())),
            Err(_) => Err(FreeError::CpuOffline { cpu: self.id }),
        }
    }

    /// Frees any range of frames that were allocated, whatever the allocations were. Never waits.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then, but where another call frees some of the same
    /// frames at the same moment.
    pub fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        let inside = self.enter_to_free()?;
        self.fh.freeing(inside.as_ref()).range(range)
    }

    /// Frees those frames of a range for which `last_reference` says so, in maximal runs; returns
    /// how many were kept. Each frame is asked about once, in rising order.
    ///
    /// # Errors
    ///
    /// See [`FreeError`], for the first run that cannot be freed; runs before it have been freed.
    pub fn free_range_with(
        &self,
        range: FrameRange,
        last_reference: impl FnMut(Pfn) -> bool,
    ) -> Result<u64, FreeError> {
        free_runs(range, last_reference, |run| self.free_range(run))
    }

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    ///
    /// Takes whole words of 64 frames from a block at a time. `request` must be of order 0.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; only where not a single frame was allocated.
    #[inline]
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        match self.enter(request.flags) {
            Ok(inside) => inside.alloc_bulk(&request, out),
            // Somebody else is inside, whom this caller may have interrupted.
            Err(AllocError::WouldBlock) => self.fh.outside().alloc_bulk(self.id, &request, out),
            Err(error) => Err(error),
        }
    }

    /// Frees single frames, in any order, each run that shares a word with one step. Never waits.
    ///
    /// # Errors
    ///
    /// The first frame that cannot be freed, and how many before it in the slice have been freed;
    /// those behind it have not.
    #[inline]
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        match self.enter_to_free() {
            Ok(inside) => self.fh.freeing(inside.as_ref()).frames(frames),
            Err(error) => Err(BulkFreeError { freed: 0, error }),
        }
    }

    /// The periodic work of this CPU, about once a second: leases that were not used go back, and
    /// a CPU that allocated nothing since the last tick gives back everything.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`].
    pub fn tick(&self) -> Result<(), AllocError> {
        let inside = self.enter(AllocFlags::empty())?;
        inside.tick();
        drop(inside);
        self.fh.tell_pressure();
        Ok(())
    }

    /// Ends this CPU's leases: for a CPU about to go idle. What it has freed is visible to others
    /// without this.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`].
    pub fn flush(&self) -> Result<(), AllocError> {
        self.enter(AllocFlags::empty())?.give_back_all();
        Ok(())
    }

    /// Which CPU this is.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.id
    }
}

/// Frees the maximal runs of frames for which `last_reference` says so, lowest first; returns how
/// many frames were kept.
pub(crate) fn free_runs(
    range: FrameRange,
    mut last_reference: impl FnMut(Pfn) -> bool,
    free: impl Fn(FrameRange) -> Result<(), FreeError>,
) -> Result<u64, FreeError> {
    if range.is_empty() {
        return Err(FreeError::ZeroLength);
    }
    let mut kept = 0;
    let mut start = range.start;
    for pfn in range.start.get()..range.end.get() {
        if last_reference(Pfn::new(pfn)) {
            continue;
        }
        kept += 1;
        if start.get() < pfn {
            free(FrameRange { start, end: Pfn::new(pfn) })?;
        }
        start = Pfn::new(pfn + 1);
    }
    if start < range.end {
        free(FrameRange { start, end: range.end })?;
    }
    Ok(kept)
}
