//! On which CPU a call works, and how it gets at that CPU's state.
//!
//! | | who | cost of getting in |
//! |---|---|---|
//! | [`Owned`] | a thread, or a kernel's CPU, that has taken the CPU for good | a store and a load, with a heavy barrier on the platform; an ordinary lock without |
//! | [`On`] | anyone: tests, replays, a host that pins now and then | an ordinary lock, and a heavy barrier where the CPU is owned |
//! | the methods of [`Freehold`] | the CPU that the platform names | as [`On`] |

use core::cell::Cell;
use core::marker::PhantomData;

use crate::block::Tag;
use crate::fast::{Fast, Known};
use crate::freehold::Freehold;
use crate::holder::Holder;
use crate::percpu::{CpuState, Pcp};
use crate::primitive::Plain;
use crate::{
    AllocError, AllocFlags, BulkFreeError, CpuId, FrameRange, FreeError, Migratetype, Order, Pfn, Platform, Request,
};

/// A CPU's state, entered. Left when dropped; may be left and entered again in between, to reach into another CPU.
pub(crate) struct CpuGuard<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) state: &'a CpuState,
    pub(crate) id: CpuId,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> CpuGuard<'a, 'm, P> {
    /// Enters, waiting. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline(always)]
    pub(crate) fn enter(fh: &'a Freehold<'m, P>, state: &'a CpuState, id: CpuId, owner: bool) -> Self {
        if owner {
            state.lock.enter_owner(&fh.barrier());
        } else {
            state.lock.enter_intruder(&fh.barrier());
        }
        Self { fh, state, id, owner, inside: Cell::new(true) }.settled()
    }

    fn pcp(&self) -> &'m Pcp {
        &self.fh.pcps[self.state.first_pcp.get() as usize]
    }

    fn settled(self) -> Self {
        self.settle();
        self
    }

    fn settle(&self) {
        self.state.owner.settle(self.pcp(), &self.state.counters, self.fh.map.blocks);
    }

    /// Enters if that takes no waiting.
    #[inline(always)]
    pub(crate) fn try_enter(fh: &'a Freehold<'m, P>, state: &'a CpuState, id: CpuId, owner: bool) -> Option<Self> {
        let entered =
            if owner { state.lock.try_enter_owner() } else { state.lock.try_enter_intruder(&fh.barrier(), false) };
        entered.then(|| Self { fh, state, id, owner, inside: Cell::new(true) }.settled())
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.leave();
        let result = f();
        if self.owner {
            self.state.lock.enter_owner(&self.fh.barrier());
        } else {
            self.state.lock.enter_intruder(&self.fh.barrier());
        }
        self.inside.set(true);
        self.settle();
        result
    }

    #[inline(always)]
    fn leave(&self) {
        self.state.owner.set_budget(self.pcp().budget());
        self.inside.set(false);
        if self.owner {
            self.state.lock.leave_owner();
        } else {
            self.state.lock.leave_intruder();
        }
    }
}

impl<P: Platform> Drop for CpuGuard<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inside.get() {
            self.leave();
        }
    }
}

/// Calls on one CPU that anybody may make at any time. Made by [`Freehold::on`].
pub struct On<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    id: CpuId,
}

/// A CPU that the holder of this handle has for itself: until it is dropped nobody else can own it. Made by
/// [`Freehold::own`]. May be sent to another thread but not used by two at once.
pub struct Owned<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) state: &'m CpuState,
    pub(crate) pcp: &'m Pcp,
    /// Where the fast paths left off: see [`crate::fast`].
    pub(crate) known: Known<'m>,
    id: CpuId,
    /// The CPU's lock is biased to this handle.
    biased: bool,
    /// What the tag of a block that this CPU can free into at once looks like.
    pub(crate) mine: u32,
    /// Not to be used by two threads at once: `Cell` is Send but not Sync.
    not_sync: PhantomData<Cell<()>>,
}

macro_rules! calls {
    ($enter:ident) => {
        #[inline(never)]
        fn alloc_any(&self, request: Request) -> Result<Pfn, AllocError> {
            let (state, pcp, owner) = self.$enter()?;
            if request.flags.contains(crate::AllocFlags::NO_LOCK) {
                return self.fh.alloc_no_lock(state, self.id, owner, &request);
            }
            let guard = CpuGuard::enter(self.fh, state, self.id, owner);
            self.fh.alloc_entered(guard, pcp, &request)
        }

        #[inline(never)]
        fn alloc_bulk_any(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
            let (state, _, owner) = self.$enter()?;
            let guard = CpuGuard::enter(self.fh, state, self.id, owner);
            self.fh.alloc_bulk_entered(guard, &request, out)
        }

        #[inline(never)]
        fn free_any(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
            let Ok((state, _, owner)) = self.$enter() else { return Err(FreeError::CpuOffline { cpu: self.id }) };
            let guard = CpuGuard::try_enter(self.fh, state, self.id, owner);
            if order == Order::ZERO {
                return self.fh.free_one(guard, pfn);
            }
            self.fh.free_chunk(guard, pfn, order)
        }

        fn free_range_any(&self, range: FrameRange) -> Result<(), FreeError> {
            let Ok((state, _, owner)) = self.$enter() else { return Err(FreeError::CpuOffline { cpu: self.id }) };
            let guard = CpuGuard::try_enter(self.fh, state, self.id, owner);
            self.fh.free_range_entered(guard, range)
        }

        /// Frees those frames of a range for which `last_reference` says so, in maximal runs; returns how many were
        /// kept. Each frame is asked about once, in rising order.
        ///
        /// # Errors
        ///
        /// See [`FreeError`], for the first run that cannot be freed; runs before it have been freed.
        pub fn free_range_with(
            &self,
            range: FrameRange,
            mut last_reference: impl FnMut(Pfn) -> bool,
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
                    self.free_range(FrameRange { start, end: Pfn::new(pfn) })?;
                }
                start = Pfn::new(pfn + 1);
            }
            if start < range.end {
                self.free_range(FrameRange { start, end: range.end })?;
            }
            Ok(kept)
        }

        #[inline(never)]
        fn free_bulk_any(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
            let Ok((state, _, owner)) = self.$enter() else {
                return Err(BulkFreeError { freed: 0, error: FreeError::CpuOffline { cpu: self.id } });
            };
            let guard = CpuGuard::try_enter(self.fh, state, self.id, owner);
            self.fh.free_bulk_entered(guard, frames)
        }

        /// The periodic work of this CPU, about once a second: publishes what waits in its combining buffer, collects
        /// what others freed, lets its high mark decay and gives back what is above it.
        ///
        /// # Errors
        ///
        /// [`AllocError::CpuOffline`].
        pub fn tick(&self) -> Result<(), AllocError> {
            let (state, _, owner) = self.$enter()?;
            let guard = CpuGuard::enter(self.fh, state, self.id, owner);
            self.fh.tick(&guard);
            drop(guard);
            self.fh.tell_pressure();
            Ok(())
        }

        /// Publishes what waits in this CPU's combining buffer: for a CPU about to go idle.
        ///
        /// # Errors
        ///
        /// [`AllocError::CpuOffline`].
        pub fn flush(&self) -> Result<(), AllocError> {
            let (state, _, owner) = self.$enter()?;
            let guard = CpuGuard::enter(self.fh, state, self.id, owner);
            self.fh.flush_combining(&guard);
            Ok(())
        }

        /// Which CPU this is.
        #[must_use]
        pub fn cpu(&self) -> CpuId {
            self.id
        }
    };
}

impl<'a, 'm, P: Platform> On<'a, 'm, P> {
    #[inline(always)]
    fn state(&self) -> Result<(&'m CpuState, &'m Pcp, bool), AllocError> {
        match self.fh.cpu_state(self.id) {
            Some(state) if state.online.get() => {
                Ok((state, self.fh.pcp(self.id.index(), self.fh.first_zone(self.id.index())), false))
            }
            _ => Err(AllocError::CpuOffline { cpu: self.id }),
        }
    }

    /// Allocates one chunk.
    ///
    /// Constant time from what the CPU holds; otherwise a refill, which does a bounded amount of work under the zone
    /// lock; before failing, every CPU is asked.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.alloc_any(request)
    }

    /// Frees `2^order` frames: any aligned part of what was allocated. Never waits for a lock.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_any(pfn, order)
    }

    /// Frees any range of frames that were allocated, whatever the allocations were. Never waits for a lock.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.free_range_any(range)
    }

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    ///
    /// Takes whole words of 64 frames from a block at a time. `request` must be of order 0.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; only where not a single frame was allocated.
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.alloc_bulk_any(request, out)
    }

    /// Frees single frames, in any order, each run that shares a word with one step. Never waits for a lock.
    ///
    /// # Errors
    ///
    /// The first frame that cannot be freed, and how many before it in the slice have been freed; those behind it
    /// have not.
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        self.free_bulk_any(frames)
    }

    calls!(state);
}

impl<'a, 'm, P: Platform> Owned<'a, 'm, P> {
    /// Allocates one chunk.
    ///
    /// A single frame takes about 15 instructions where it is the one freed last and 20 where it comes from the block in use,
    /// and no atomic read-modify-write, where the platform has a heavy barrier. See [`On::alloc`] for the rest.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        if request.plain == Request::SPECIAL {
            return self.alloc_any(request);
        }
        let fast = match request.plain {
            Request::PLAIN_BLOCK => self.alloc_block(request.migratetype as usize),
            Request::PLAIN_CHUNK => None,
            migratetype => self.alloc_frame(migratetype as usize),
        };
        match fast {
            Some(pfn) => Ok(pfn),
            None => self.alloc_plain(request.order, request.migratetype, request.flags),
        }
    }

    /// A plain request that the fast path could not serve. The request is put together here, so that callers need not
    /// keep it in memory.
    #[cold]
    #[inline(never)]
    fn alloc_plain(&self, order: Order, migratetype: Migratetype, flags: AllocFlags) -> Result<Pfn, AllocError> {
        self.alloc_any(Request::new(order, migratetype).flags(flags))
    }

    /// Frees `2^order` frames: any aligned part of what was allocated. Takes no lock; where it
    /// brings the CPU above its high mark it may wait for whoever is inside the CPU's state just then.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if order == Order::ZERO {
            match self.free_frame(pfn) {
                Fast::Done => return Ok(()),
                Fast::OverHigh => {
                    self.over_high();
                    return Ok(());
                }
                Fast::No => {}
            }
        } else if order == Order::PAGEBLOCK && self.free_one_block(pfn) {
            return Ok(());
        }
        self.free_any(pfn, order)
    }

    /// Frees any range of frames that were allocated, whatever the allocations were. Takes no lock; where it
    /// brings the CPU above its high mark it may wait for whoever is inside the CPU's state just then.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline]
    pub fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        let whole = range.len() == Order::PAGEBLOCK.frames() && self.free_one_block(range.start);
        if whole || self.free_part_of_word(range) {
            return Ok(());
        }
        self.free_range_any(range)
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
        let plain = request.is_plain_frame();
        let done = if plain { self.alloc_frames(request.plain as usize, out) } else { 0 };
        if done > 0 && done == out.len() {
            return Ok(done);
        }
        match self.alloc_bulk_any(request, &mut out[done..]) {
            Err(_) if done > 0 => Ok(done),
            rest => rest.map(|more| done + more),
        }
    }

    /// Frees single frames, in any order, each run that shares a word with one step. Takes no lock; where it
    /// brings the CPU above its high mark it may wait for whoever is inside the CPU's state just then.
    ///
    /// # Errors
    ///
    /// The first frame that cannot be freed, and how many before it in the slice have been freed; those behind it
    /// have not.
    #[inline]
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        let freed = self.free_frames(frames);
        if freed == frames.len() {
            return Ok(());
        }
        self.free_bulk_any(&frames[freed..])
            .map_err(|BulkFreeError { freed: more, error }| BulkFreeError { freed: freed + more, error })
    }

    /// A whole block of this CPU's own, all of it in use; `false` where it is anything else.
    #[inline(always)]
    fn free_one_block(&self, pfn: Pfn) -> bool {
        match self.free_block(pfn) {
            Fast::Done => true,
            Fast::OverHigh => {
                self.over_high();
                true
            }
            Fast::No => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn over_high(&self) {
        if self.renew_budget() {
            return;
        }
        let guard = CpuGuard::enter(self.fh, self.state, self.id, self.biased);
        self.fh.drain_over_high(&guard, self.fh.first_zone(self.id.index()));
    }

    #[inline(always)]
    fn state(&self) -> Result<(&'m CpuState, &'m Pcp, bool), AllocError> {
        Ok((self.state, self.pcp, self.biased))
    }

    calls!(state);
}

impl<P: Platform> Drop for Owned<'_, '_, P> {
    fn drop(&mut self) {
        let guard = CpuGuard::enter(self.fh, self.state, self.id, false);
        self.state.lock.set_biased(false);
        self.state.owned.set(false);
        drop(guard);
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Calls made on that CPU, by whoever and from wherever. Whether it is online is checked by each call.
    #[inline]
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> On<'_, 'm, P> {
        On { fh: self, id: cpu }
    }

    /// Takes a CPU for the handle's lifetime, so that its own calls need no read-modify-write on the way in, where the
    /// platform has a heavy barrier.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`], and [`AllocError::CpuOwned`] where another handle has it.
    pub fn own(&self, cpu: CpuId) -> Result<Owned<'_, 'm, P>, AllocError> {
        let Some(state) = self.cpu_state(cpu).filter(|c| c.online.get()) else {
            return Err(AllocError::CpuOffline { cpu });
        };
        let _guard = CpuGuard::enter(self, state, cpu, false);
        if !state.online.get() {
            return Err(AllocError::CpuOffline { cpu });
        }
        if state.owned.get() {
            return Err(AllocError::CpuOwned { cpu });
        }
        state.owned.set(true);
        state.lock.set_biased(self.asymmetric);
        Ok(Owned {
            fh: self,
            state,
            pcp: self.pcp(cpu.index(), self.first_zone(cpu.index())),
            known: Known::nothing(state),
            id: cpu,
            biased: self.asymmetric,
            mine: Tag::expected(Holder::cpu(cpu), self.first_zone(cpu.index()) as u8),
            not_sync: PhantomData,
        })
    }

    fn here(&self) -> On<'_, 'm, P> {
        self.on(self.platform.current_cpu())
    }

    /// [`On::alloc`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.here().alloc(request)
    }

    /// [`On::alloc_bulk`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.here().alloc_bulk(request, out)
    }

    /// [`On::free`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.here().free(pfn, order)
    }

    /// [`On::free_range`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.here().free_range(range)
    }

    /// [`On::free_range_with`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn free_range_with(
        &self,
        range: FrameRange,
        last_reference: impl FnMut(Pfn) -> bool,
    ) -> Result<u64, FreeError> {
        self.here().free_range_with(range, last_reference)
    }

    /// [`On::free_bulk`] on the current CPU.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        self.here().free_bulk(frames)
    }
}
