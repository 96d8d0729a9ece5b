//! The calls of a single chunk: what the CPU has in hand first, and out at once.
//!
//! | step of an allocation | where it is |
//! |---|---|
//! | a request that the fast way may serve, or one that needs a look | here |
//! | in, and a chunk of what is in hand, or was freed last | [`short`](super::short) |
//! | the slow way | [`ladder`](super::ladder) |
//! | somebody else is inside and the caller may not wait | [`outside`](super::outside) |
//!
//! | step of a free | where it is |
//! |---|---|
//! | in, if that takes no waiting; into the hand, or straight into the word | [`short`](super::short) |
//! | anything else: wrong frees, blocks with holes, words let go | [`free`](super::free), [`range`](super::range) |
//!
//! A pair of calls is some 60 instructions: each branch that is saved here is a fifteenth of it.

use super::door::{Door, Owner};
use super::handle::Handle;
use super::short::InHand;
use crate::block::bits;
use crate::cpu::inside::Inside;
use crate::cpu::state::CpuState;
use crate::primitive::Plain;
use crate::{AllocError, FreeError, Freehold, Migratetype, Order, Pfn, Platform, Request};

impl<'m, P: Platform, D: Door<'m>> Handle<'_, 'm, P, D> {
    /// Allocates one chunk.
    ///
    /// From what the CPU has in hand in some 25 instructions, for orders up to 5, and some 55
    /// for order 9; otherwise the next word or block, by the zone's board; before failing, every CPU
    /// that could help is asked.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        if request.way == Request::SLOW {
            return self.alloc_slow(request);
        }
        let state = self.door.state(self.fh, self.id)?;
        self.door.get_in(self.fh, state);
        let (kind, order) = (request.migratetype as usize, u32::from(request.order.get()));
        let fast = request.way & Request::OR_CMA == 0 || !state.cma_matters(self.fh, request.flags);
        // From the hand first, and out at once.
        if fast && order < 6 {
            if let Some(pfn) = state.chunk_in_hand(request.order, kind) {
                return Ok(self.left_with(state, pfn, request));
            }
        }
        let fails = || {
            let (order, migratetype) = (request.order, request.migratetype);
            state.fails_again(self.fh, order, migratetype, request.flags)
        };
        // What was freed last is looked up in two places for runs: the look at a failure first.
        let is_run = fast && (1..6).contains(&order);
        let run_fails = is_run && fails();
        let found = match request.way & !Request::OR_CMA {
            _ if !fast || run_fails => None,
            Request::FRAME => state.recent_frame_first(self.fh, kind),
            Request::RUN => match order {
                6 => state.recent_words::<1>(self.fh, kind),
                7 => state.recent_words::<2>(self.fh, kind),
                8 => state.recent_words::<4>(self.fh, kind),
                1 => state.recent_run::<1>(self.fh, kind),
                2 => state.recent_run::<2>(self.fh, kind),
                3 => state.recent_run::<3>(self.fh, kind),
                4 => state.recent_run::<4>(self.fh, kind),
                _ => state.recent_run::<5>(self.fh, kind),
            },
            _ => state.kept_block(self.fh, kind),
        };
        match found {
            Some(pfn) => Ok(self.left_with(state, pfn, request)),
            None if run_fails || !is_run && fails() => {
                self.door.get_out(self.fh, state);
                Err(AllocError::NoMemory { order: request.order })
            }
            None => Inside::already(self.fh, state, self.id, self.door.biased()).alloc_slow(
                request.order,
                request.migratetype,
                request.flags,
            ),
        }
    }

    /// Out of the CPU with what was found there.
    #[inline(always)]
    fn left_with(&self, state: &CpuState<'m>, pfn: Pfn, request: Request) -> Pfn {
        state.count_alloc(request.migratetype as usize, request.order);
        self.door.get_out(self.fh, state);
        self.fh.handed_out(pfn, request.order);
        pfn
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, request: Request) -> Result<Pfn, AllocError> {
        match self.enter(request.flags) {
            Ok(inside) => inside.alloc_any(&request),
            // Somebody else is inside, whom this caller may have interrupted.
            Err(AllocError::WouldBlock) => self.fh.outside().alloc(self.id, &request),
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
        let Ok(state) = self.door.state(self.fh, self.id) else {
            return Err(FreeError::CpuOffline { cpu: self.id });
        };
        if !Inside::<P>::try_get_in(state, self.door.biased()) {
            return free_outside(self.fh, pfn, order);
        }
        let frames = bits::of_chunk(pfn.get(), u32::from(order.get()));
        let in_hand =
            if frames == 0 { InHand::No } else { state.free_in_hand(pfn.get() / 64, frames) };
        if in_hand == InHand::Yes {
            self.door.get_out(self.fh, state);
            return Ok(());
        }
        let done = match order.get() {
            ..6 if in_hand == InHand::No => false,
            0 => state.chunk_to_word::<0>(self.fh, pfn.get()),
            1 => state.chunk_to_word::<1>(self.fh, pfn.get()),
            2 => state.chunk_to_word::<2>(self.fh, pfn.get()),
            3 => state.chunk_to_word::<3>(self.fh, pfn.get()),
            4 => state.chunk_to_word::<4>(self.fh, pfn.get()),
            5 => state.chunk_to_word::<5>(self.fh, pfn.get()),
            6 => state.words_to_block::<1>(self.fh, pfn.get(), 1),
            7 => state.words_to_block::<2>(self.fh, pfn.get(), 1),
            8 => state.words_to_block::<4>(self.fh, pfn.get(), 1),
            9 => state.block_to_hand(self.fh, pfn.get()),
            _ => false,
        };
        if done {
            self.door.get_out(self.fh, state);
            return Ok(());
        }
        Inside::already(self.fh, state, self.id, self.door.biased()).free_slow(pfn, order)
    }
}

impl<'a, 'm, P: Platform> Handle<'a, 'm, P, Owner<'a, 'm, P>> {
    /// A chunk of order 0 to 5 that the CPU has in hand, and nothing else: for doors that keep all
    /// the rest out of line, so that nothing has to be saved for it. `None` says only that
    /// [`alloc`](Self::alloc) must be asked. Of the three types that requests may name.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_in_hand(&self, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        debug_assert!(Migratetype::PCP.contains(&migratetype));
        let (state, kind) = (self.door.state, migratetype as usize);
        // Each way in knows its way out.
        let found = if state.door.try_enter_owner() {
            let found = state.chunk_in_hand(order, kind);
            if found.is_some() {
                state.count_alloc(kind, order);
            }
            state.door.leave_owner();
            found?
        } else {
            if self.door.biased || !state.door.try_enter_unowned() {
                return None;
            }
            let found = state.chunk_in_hand(order, kind);
            if found.is_some() {
                state.count_alloc(kind, order);
            }
            state.door.leave_intruder();
            found?
        };
        self.fh.handed_out(found, order);
        Some(found)
    }

    /// Frees a chunk into a word that the CPU leases, and does nothing else: the counterpart of
    /// [`alloc_in_hand`](Self::alloc_in_hand). The frames are still the caller's where it says no.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_in_hand(&self, pfn: Pfn, order: Order) -> bool {
        let (state, key, frames) =
            (self.door.state, pfn.get() / 64, bits::of_chunk(pfn.get(), u32::from(order.get())));
        if frames == 0 {
            return false;
        }
        if state.door.try_enter_owner() {
            let done = state.free_in_hand(key, frames) == InHand::Yes;
            state.door.leave_owner();
            return done;
        }
        if self.door.biased || !state.door.try_enter_unowned() {
            return false;
        }
        let done = state.free_in_hand(key, frames) == InHand::Yes;
        state.door.leave_intruder();
        done
    }
}

impl<P: Platform> Inside<'_, '_, P> {
    /// Any free that no short way will do. Leaves the CPU.
    #[cold]
    #[inline(never)]
    fn free_slow(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // A CPU that has gone offline since it was looked at must not have anything in hand.
        let inside = Some(&self).filter(|inside| inside.cpu.online.get());
        self.fh.freeing(inside).chunk(pfn, order)
    }
}

/// A free while somebody else is inside the CPU's state.
#[cold]
#[inline(never)]
fn free_outside<P: Platform>(
    fh: &Freehold<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), FreeError> {
    fh.freeing(None).chunk(pfn, order)
}
