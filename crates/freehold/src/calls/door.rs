//! The doors: how a handle gets into its CPU's state, and out again.
//!
//! | door | who may use it | cost of getting in |
//! |---|---|---|
//! | [`Anybody`] | every thread, at any time: tests, replays, a host that pins now and then | one compare-exchange, and a heavy barrier where the CPU is owned |
//! | [`Owner`] | the one holder of the CPU: a thread, or a kernel's CPU | a store and a load where the platform has a heavy barrier; one compare-exchange where it has none |
//!
//! Behind either door lies one lock, [`cpu::door`](crate::cpu::door), which says why the two
//! exclude each other. What is done inside does not depend on the door.
//!
//! A call that may wait enters with [`get_in`](Way::get_in). A free enters only where that
//! takes neither waiting nor a barrier; otherwise it goes straight into the block's word.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::cpu::inside::Inside;
use crate::cpu::state::CpuState;
use crate::primitive::Relaxed;
use crate::{AllocError, CpuId, Freehold, Platform};

/// How a [`Handle`](crate::Handle) gets into its CPU's state: [`Anybody`] or [`Owner`].
///
/// Sealed: what is behind a door is the allocator's own. Code that works by either takes
/// [`Frames`](crate::Frames), or a `Handle` of any door.
#[expect(private_bounds, reason = "sealed")]
pub trait Door<'m>: Way<'m> {}

/// What a door does. Only this crate can name it, so that nobody else can make a door.
pub(crate) trait Way<'m> {
    /// The CPU's state, if the CPU may be used.
    fn state<P: Platform>(
        &self,
        fh: &Freehold<'m, P>,
        cpu: CpuId,
    ) -> Result<&'m CpuState<'m>, AllocError>;

    /// Whether the lock is biased to a thread that comes through here.
    fn biased(&self) -> bool;

    /// Gets in if that takes neither waiting nor a heavy barrier, by the cheaper way first; out
    /// again by [`get_out`](Self::get_out).
    fn get_in_at_once(&self, state: &CpuState<'m>) -> bool;

    /// Gets in, waiting.
    #[inline(always)]
    fn get_in<P: Platform>(&self, fh: &Freehold<'m, P>, state: &CpuState<'m>) {
        if !self.get_in_at_once(state) {
            wait_to_get_in(fh, state, self.biased());
        }
    }

    /// Gets out.
    #[inline(always)]
    fn get_out<P: Platform>(&self, _: &Freehold<'m, P>, state: &CpuState<'m>) {
        Inside::<P>::get_out(state, self.biased());
    }
}

/// The way in for a call that has to wait.
#[cold]
#[inline(never)]
fn wait_to_get_in<'m, P: Platform>(fh: &Freehold<'m, P>, state: &CpuState<'m>, biased: bool) {
    Inside::get_in(fh, state, biased);
}

/// The door that everybody may take at any time. Nobody is inside for longer than a bounded number
/// of steps.
#[derive(Clone, Copy, Debug)]
pub struct Anybody {
    _private: (),
}

impl Anybody {
    pub(crate) const fn new() -> Self {
        Self { _private: () }
    }
}

impl Door<'_> for Anybody {}

impl<'m> Way<'m> for Anybody {
    #[inline(always)]
    fn state<P: Platform>(
        &self,
        fh: &Freehold<'m, P>,
        cpu: CpuId,
    ) -> Result<&'m CpuState<'m>, AllocError> {
        match fh.cpu_state(cpu) {
            Some(state) if state.online.get() => Ok(state),
            _ => Err(AllocError::CpuOffline { cpu }),
        }
    }

    #[inline(always)]
    fn biased(&self) -> bool {
        false
    }

    #[inline(always)]
    fn get_in_at_once(&self, state: &CpuState<'m>) -> bool {
        state.door.try_enter_unowned()
    }
}

/// The door of a CPU's owner, and the ownership itself: while it lives nobody else can own the CPU.
/// Dropping it gives the CPU back, for which it waits until nobody is inside.
pub struct Owner<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    pub(crate) state: &'m CpuState<'m>,
    id: CpuId,
    /// The CPU's lock is biased to this owner.
    pub(crate) biased: bool,
    /// Not to be used by two threads at once: `Cell` is Send but not Sync.
    not_sync: PhantomData<Cell<()>>,
}

impl<'a, 'm, P: Platform> Owner<'a, 'm, P> {
    /// Takes the CPU.
    pub(crate) fn take(fh: &'a Freehold<'m, P>, cpu: CpuId) -> Result<Self, AllocError> {
        let state = Way::state(&Anybody::new(), fh, cpu)?;
        let _inside = Inside::enter(fh, state, cpu, false);
        // It may have gone offline since it was looked at.
        if !state.online.get() {
            return Err(AllocError::CpuOffline { cpu });
        }
        if state.owned.get() {
            return Err(AllocError::CpuOwned { cpu });
        }
        state.owned.set(true);
        state.door.set_biased(fh.asymmetric);
        Ok(Self { fh, state, id: cpu, biased: fh.asymmetric, not_sync: PhantomData })
    }
}

impl<P: Platform> Drop for Owner<'_, '_, P> {
    fn drop(&mut self) {
        let inside = Inside::enter(self.fh, self.state, self.id, false);
        self.state.door.set_biased(false);
        self.state.owned.set(false);
        drop(inside);
    }
}

impl<'m, P: Platform> Door<'m> for Owner<'_, 'm, P> {}

impl<'m, O: Platform> Way<'m> for Owner<'_, 'm, O> {
    #[inline(always)]
    fn state<P: Platform>(
        &self,
        _: &Freehold<'m, P>,
        _: CpuId,
    ) -> Result<&'m CpuState<'m>, AllocError> {
        Ok(self.state)
    }

    #[inline(always)]
    fn biased(&self) -> bool {
        self.biased
    }

    /// The owner's way first, which is refused where the lock is not biased to it.
    #[inline(always)]
    fn get_in_at_once(&self, state: &CpuState<'m>) -> bool {
        state.door.try_enter_owner() || !self.biased && state.door.try_enter_unowned()
    }
}
