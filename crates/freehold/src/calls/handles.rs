//! On which CPU a call works, and how it gets at that CPU's state: three doors to the same code.
//!
//! | | who | cost of getting in |
//! |---|---|---|
//! | [`Owned`] | a thread, or a kernel's CPU, that has taken the CPU for good | a store and a load, with a heavy barrier on the platform; one compare-exchange without |
//! | [`On`] | anyone: tests, replays, a host that pins now and then | one compare-exchange, and a heavy barrier where the CPU is owned |
//! | the methods of [`Freehold`] | the CPU that the platform names | as [`On`] |
//!
//! A free enters only where that takes neither waiting nor a barrier; otherwise it goes straight
//! into the block's word.

use core::cell::Cell;
use core::marker::PhantomData;

use super::short::InHand;
use crate::block::bits;
use crate::cpu::inside::Inside;
use crate::cpu::state::CpuState;
use crate::primitive::Plain;
use crate::{
    AllocError, AllocFlags, BulkFreeError, CpuId, FrameRange, FreeError, Freehold, Migratetype,
    Order, Pfn, Platform, Request,
};

/// Calls on one CPU that anybody may make at any time. Made by [`Freehold::on`].
pub struct On<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    id: CpuId,
}

/// A CPU that the holder of this handle has for itself: until it is dropped nobody else can own it.
/// Made by
/// [`Freehold::own`]. May be sent to another thread but not used by two at once.
pub struct Owned<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    state: &'m CpuState<'m>,
    id: CpuId,
    /// The CPU's door is biased to this handle.
    biased: bool,
    /// Not to be used by two threads at once: `Cell` is Send but not Sync.
    not_sync: PhantomData<Cell<()>>,
}

/// The calls of a handle, which knows how to find its CPU's state: `self.state()`.
macro_rules! calls {
    () => {
        /// Enters for a call that may wait, unless the request forbids it.
        #[inline(always)]
        fn enter(&self, flags: AllocFlags) -> Result<Inside<'_, 'm, P>, AllocError> {
            let (state, owner) = self.state()?;
            if flags.contains(AllocFlags::NO_LOCK) {
                return Inside::try_enter(self.fh, state, self.id, owner)
                    .ok_or(AllocError::WouldBlock);
            }
            Ok(Inside::enter(self.fh, state, self.id, owner))
        }

        /// Enters for a free, where that takes no waiting.
        #[inline(always)]
        pub(crate) fn enter_to_free(&self) -> Result<Option<Inside<'_, 'm, P>>, FreeError> {
            match self.state() {
                // It may have gone offline since it was looked at: it must not have anything in
                // hand then.
                Ok((state, owner)) => Ok(Inside::try_enter(self.fh, state, self.id, owner)
                    .filter(|inside| inside.cpu.online.get())),
                Err(_) => Err(FreeError::CpuOffline { cpu: self.id }),
            }
        }

        /// Allocates one chunk.
        ///
        /// From what the CPU has in hand in some 25 instructions, for orders up to 5, and some 55
        /// for order 9; otherwise the next word or block, which takes its group's lock for a
        /// bounded amount of work; before failing, every CPU is asked.
        ///
        /// # Errors
        ///
        /// See [`AllocError`]; nothing has changed then.
        #[inline(always)]
        pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
            if request.plain == Request::SPECIAL {
                return self.alloc_special(request);
            }
            let (state, owner) = self.state()?;
            self.get_in(state);
            let (kind, order) = (request.migratetype as usize, u32::from(request.order.get()));
            let short =
                request.plain & Request::OR_CMA == 0 || !self.fh.cma_matters(state, request.flags);
            let way = request.plain & !Request::OR_CMA;
            // From the hand first, and out at once: each branch that is saved here is a fifteenth
            // of the call.
            if short && order < 6 {
                if let Some(pfn) = state.chunk_in_hand(request.order, kind) {
                    return Ok(self.left_with(state, pfn, request.order));
                }
            }
            let found = match way {
                _ if !short => None,
                Request::PLAIN_FRAME => self.fh.frame_freed_lately(state, kind),
                Request::PLAIN_RUN if order < 6 => None,
                Request::PLAIN_RUN => self.fh.words_at_hand(state, self.id, kind, order),
                _ => self.fh.block_in_hand(state, kind),
            };
            match found {
                Some(pfn) => Ok(self.left_with(state, pfn, request.order)),
                None => Inside::already(self.fh, state, self.id, owner).alloc_plain(
                    request.order,
                    request.migratetype,
                    request.flags,
                ),
            }
        }

        /// Out of the CPU with what was found there.
        #[inline(always)]
        fn left_with(&self, state: &CpuState<'m>, pfn: Pfn, order: Order) -> Pfn {
            self.get_out(state);
            self.fh.handed_out(pfn, order);
            pfn
        }

        #[cold]
        #[inline(never)]
        fn alloc_special(&self, request: Request) -> Result<Pfn, AllocError> {
            match self.enter(request.flags) {
                Ok(inside) => inside.alloc_slow(&request),
                // Somebody else is inside, whom this caller may have interrupted.
                Err(AllocError::WouldBlock) => self.fh.alloc_unseen(self.id, &request),
                Err(error) => Err(error),
            }
        }

        /// Frees `2^order` frames: any aligned part of what was allocated. Never waits.
        ///
        /// # Errors
        ///
        /// See [`FreeError`]; nothing has changed then.
        #[inline(always)]
        pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
            let Ok((state, owner)) = self.state() else {
                return Err(FreeError::CpuOffline { cpu: self.id });
            };
            if !Inside::<P>::try_get_in(state, owner) {
                return free_unseen(self.fh, pfn, order);
            }
            let frames = bits::of_chunk(pfn.get(), u32::from(order.get()));
            let in_hand =
                if frames == 0 { InHand::No } else { state.free_in_hand(pfn.get() / 64, frames) };
            if in_hand == InHand::Yes {
                self.get_out(state);
                return Ok(());
            }
            let done = match order.get() {
                0 if in_hand == InHand::Elsewhere => self.fh.frame_to_word(state, pfn.get()),
                order @ 1..6 if in_hand == InHand::Elsewhere => {
                    self.fh.run_to_word(state, pfn.get(), u32::from(order), frames)
                }
                order @ 6..9 => self.fh.run_of_words_to_block(state, pfn.get(), u32::from(order)),
                9 => self.fh.block_to_hand(state, pfn.get()),
                _ => false,
            };
            if done {
                self.get_out(state);
                return Ok(());
            }
            Inside::already(self.fh, state, self.id, owner).free_slow(pfn, order)
        }

        /// Frees any range of frames that were allocated, whatever the allocations were. Never
        /// waits.
        ///
        /// # Errors
        ///
        /// See [`FreeError`]; nothing has changed then, but where another call frees some of the
        /// same frames at the same moment.
        pub fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
            let inside = self.enter_to_free()?;
            self.fh.free_checked_range(inside.as_ref(), range)
        }

        /// Frees those frames of a range for which `last_reference` says so, in maximal runs;
        /// returns how many were kept. Each frame is asked about once, in rising order.
        ///
        /// # Errors
        ///
        /// See [`FreeError`], for the first run that cannot be freed; runs before it have been
        /// freed.
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

        /// Allocates single frames until `out` is full or memory is not; returns how many there
        /// are.
        ///
        /// Takes whole words of 64 frames from a block at a time. `request` must be of order 0.
        ///
        /// # Errors
        ///
        /// See [`AllocError`]; only where not a single frame was allocated.
        #[inline]
        pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
            self.enter(request.flags)?.alloc_bulk(&request, out)
        }

        /// Frees single frames, in any order, each run that shares a word with one step. Never
        /// waits.
        ///
        /// # Errors
        ///
        /// The first frame that cannot be freed, and how many before it in the slice have been
        /// freed; those behind it have not.
        #[inline]
        pub fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
            match self.enter_to_free() {
                Ok(inside) => self.fh.free_frames(inside.as_ref(), frames),
                Err(error) => Err(BulkFreeError { freed: 0, error }),
            }
        }

        /// The periodic work of this CPU, about once a second: leases that were not used go back,
        /// what frees have announced is looked at, and a CPU or group that allocated nothing since
        /// the last tick gives back everything.
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

        /// Ends this CPU's leases: for a CPU about to go idle. What it has freed is visible to
        /// others without this.
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
    };
}

impl<P: Platform> Inside<'_, '_, P> {
    /// Any free that no short way will do. Leaves the CPU.
    #[cold]
    #[inline(never)]
    fn free_slow(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // A CPU that has gone offline since it was looked at must not have anything in hand.
        let inside = Some(&self).filter(|inside| inside.cpu.online.get());
        self.fh.free_chunk(inside, pfn, order)
    }
}

/// The way in for who has to wait.
#[cold]
#[inline(never)]
fn get_in_slow<'m, P: Platform>(fh: &Freehold<'m, P>, state: &CpuState<'m>, owner: bool) {
    Inside::get_in(fh, state, owner);
}

/// A free while somebody else is inside the CPU's state.
#[cold]
#[inline(never)]
fn free_unseen<P: Platform>(fh: &Freehold<'_, P>, pfn: Pfn, order: Order) -> Result<(), FreeError> {
    fh.free_chunk(None, pfn, order)
}

impl<'m, P: Platform> On<'_, 'm, P> {
    #[inline(always)]
    fn state(&self) -> Result<(&'m CpuState<'m>, bool), AllocError> {
        match self.fh.cpu_state(self.id) {
            Some(state) if state.online.get() => Ok((state, false)),
            _ => Err(AllocError::CpuOffline { cpu: self.id }),
        }
    }

    #[inline(always)]
    fn get_in(&self, state: &CpuState<'m>) {
        if !state.door.try_enter_unowned() {
            get_in_slow(self.fh, state, false);
        }
    }

    #[inline(always)]
    fn get_out(&self, state: &CpuState<'m>) {
        Inside::<P>::get_out(state, false);
    }

    calls!();
}

impl<'m, P: Platform> Owned<'_, 'm, P> {
    #[inline(always)]
    fn state(&self) -> Result<(&'m CpuState<'m>, bool), AllocError> {
        Ok((self.state, self.biased))
    }

    /// The owner's way in first, which is refused where the door is not biased to it.
    #[inline(always)]
    fn get_in(&self, state: &CpuState<'m>) {
        if !state.door.try_enter_owner() && (self.biased || !state.door.try_enter_unowned()) {
            get_in_slow(self.fh, state, self.biased);
        }
    }

    #[inline(always)]
    fn get_out(&self, state: &CpuState<'m>) {
        Inside::<P>::get_out(state, self.biased);
    }

    /// A chunk of order 0 to 5 that the CPU has in hand, and nothing else: for doors that keep all
    /// the rest out of line, so that nothing has to be saved for it. `None` says only that
    /// [`alloc`](Self::alloc) must be asked. Of the three types that requests may name.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_in_hand(&self, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        debug_assert!(Migratetype::PCP.contains(&migratetype));
        let (state, kind) = (self.state, migratetype as usize);
        // Each way in knows its way out.
        let found = if state.door.try_enter_owner() {
            let found = state.chunk_in_hand(order, kind);
            state.door.leave_owner();
            found?
        } else {
            if self.biased || !state.door.try_enter_unowned() {
                return None;
            }
            let found = state.chunk_in_hand(order, kind);
            state.door.leave_intruder();
            found?
        };
        self.fh.handed_out(found, order);
        Some(found)
    }

    /// The same of a free, into a word that the CPU leases; the frames are still the caller's where
    /// it says no.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_in_hand(&self, pfn: Pfn, order: Order) -> bool {
        let (state, key, frames) =
            (self.state, pfn.get() / 64, bits::of_chunk(pfn.get(), u32::from(order.get())));
        if frames == 0 {
            return false;
        }
        if state.door.try_enter_owner() {
            let done = state.free_in_hand(key, frames) == InHand::Yes;
            state.door.leave_owner();
            return done;
        }
        if self.biased || !state.door.try_enter_unowned() {
            return false;
        }
        let done = state.free_in_hand(key, frames) == InHand::Yes;
        state.door.leave_intruder();
        done
    }

    calls!();
}

impl<P: Platform> Drop for Owned<'_, '_, P> {
    fn drop(&mut self) {
        let inside = Inside::enter(self.fh, self.state, self.id, false);
        self.state.door.set_biased(false);
        self.state.owned.set(false);
        drop(inside);
    }
}

/// The calls that name no CPU, each that of [`On`] of the same name.
macro_rules! on_current_cpu {
    ($($call:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("[`On::", stringify!($call), "`] on the current CPU.")]
        ///
        /// # Errors
        ///
        /// As there.
        pub fn $call(&self, $($argument: $of),*) -> $result {
            self.here().$call($($argument),*)
        }
    )*};
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Calls made on that CPU, by whoever and from wherever. Whether it is online is checked by
    /// each call.
    #[inline]
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> On<'_, 'm, P> {
        On { fh: self, id: cpu }
    }

    /// Takes a CPU for the handle's lifetime, so that its own calls need no read-modify-write on
    /// the way in, where the platform has a heavy barrier.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`], and [`AllocError::CpuOwned`] where another handle has it.
    pub fn own(&self, cpu: CpuId) -> Result<Owned<'_, 'm, P>, AllocError> {
        let Some(state) = self.cpu_state(cpu).filter(|c| c.online.get()) else {
            return Err(AllocError::CpuOffline { cpu });
        };
        let _inside = Inside::enter(self, state, cpu, false);
        if !state.online.get() {
            return Err(AllocError::CpuOffline { cpu });
        }
        if state.owned.get() {
            return Err(AllocError::CpuOwned { cpu });
        }
        state.owned.set(true);
        state.door.set_biased(self.asymmetric);
        Ok(Owned { fh: self, state, id: cpu, biased: self.asymmetric, not_sync: PhantomData })
    }

    fn here(&self) -> On<'_, 'm, P> {
        self.on(self.platform.current_cpu())
    }

    on_current_cpu! {
        alloc(request: Request) -> Result<Pfn, AllocError>;
        alloc_bulk(request: Request, out: &mut [Pfn]) -> Result<usize, AllocError>;
        free(pfn: Pfn, order: Order) -> Result<(), FreeError>;
        free_range(range: FrameRange) -> Result<(), FreeError>;
        free_range_with(range: FrameRange, last_reference: impl FnMut(Pfn) -> bool) -> Result<u64, FreeError>;
        free_bulk(frames: &[Pfn]) -> Result<(), BulkFreeError>;
    }
}
