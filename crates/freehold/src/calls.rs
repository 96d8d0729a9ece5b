//! The calls of the interface: of one CPU, by a handle, and as a trait.
//!
//! ```text
//! Handle = the allocator + a CPU + a door
//!
//! freehold.on(cpu)   -> On     Handle<.., Anybody>   any CPU, from anywhere
//! freehold.here()    -> On     Handle<.., Anybody>   the CPU that the platform names
//! freehold.own(cpu)  -> Owned  Handle<.., Owner>     that CPU, for this holder alone
//! ```
//!
//! Each call is written once, for every door; the compiler makes one of each. A
//! single chunk's calls are in [`alloc::fast`](crate::alloc::fast) and
//! [`free::fast`](crate::free::fast), those of many frames and of ranges here. Code that cares for
//! none of this takes [`Frames`].
//!
//! The doors are how a handle gets into its CPU's state, and out again:
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
//!
//! [`Frames`] has the calls of a page allocator, for code that does not care whose they are.
//!
//! ```text
//!            Frames
//!     /        |        \
//! Handle<D>  Freehold   a wrapper that counts, checks or fails on purpose; another allocator
//! ```
//!
//! A handle's own methods are the fastest and have more to say; this is what adapters, the virtual
//! memory of `freehold-vm`, hosts and tests ask for. `&dyn Frames` is `Frames` too.

use crate::cpu::{CpuState, Inside};
use crate::free::slow::Freeing;
use crate::primitive::Relaxed;
use crate::{
    AllocError, AllocFlags, BulkFreeError, CpuId, FrameRange, FreeError, Freehold, Order, Pfn,
    Platform, Request,
};
use core::cell::Cell;
use core::marker::PhantomData;

/// The calls of one CPU, through a [`Door`]: see [`On`] and [`Owned`] for the two there are.
pub struct Handle<'a, 'm, P: Platform, D: Door<'m>> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) id: CpuId,
    pub(crate) door: D,
}

/// Calls on one CPU that anybody may make. Made by [`Freehold::on`] and [`Freehold::here`].
pub type On<'a, 'm, P> = Handle<'a, 'm, P, Anybody>;

/// A CPU that the holder of this handle has for itself: until it is dropped nobody else can own it.
/// Made by [`Freehold::own`]. May be sent to another thread but not used by two at once.
pub type Owned<'a, 'm, P> = Handle<'a, 'm, P, Owner<'a, 'm, P>>;

/// Single frames, one after the other.
pub(crate) fn one_by_one(
    request: Request,
    out: &mut [Pfn],
    alloc: impl Fn(Request) -> Result<Pfn, AllocError>,
) -> Result<usize, AllocError> {
    if request.order != Order::ZERO {
        return Err(AllocError::OrderTooLarge { order: request.order, max: Order::ZERO });
    }
    for (done, frame) in out.iter_mut().enumerate() {
        *frame = match alloc(request) {
            Ok(pfn) => pfn,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        };
    }
    Ok(out.len())
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Calls made on that CPU, by any thread. Whether it is online is checked by each call.
    #[inline]
    #[must_use]
    pub fn on(&self, cpu: CpuId) -> On<'_, 'm, P> {
        Handle { fh: self, id: cpu, door: Anybody::new() }
    }

    /// Calls made on the current CPU, which the platform is asked for once, now: a handle that is
    /// kept stays with that CPU wherever its thread goes. A thread that wants the platform asked at
    /// each call uses the allocator itself as [`Frames`].
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
        let inside = if flags.contains(AllocFlags::NO_LOCK) {
            Inside::try_enter(self.fh, state, biased).ok_or(AllocError::WouldBlock)?
        } else {
            Inside::enter(self.fh, state, biased)
        };
        inside.end_freed_chunk();
        Ok(inside)
    }

    /// Enters for a free, where that takes no waiting.
    #[inline(always)]
    pub(crate) fn enter_to_free(&self) -> Result<Option<Inside<'a, 'm, P>>, FreeError> {
        match self.door.state(self.fh, self.id) {
            // It may have gone offline since that look: it must have nothing in hand then.
            Ok(state) => Ok(Inside::try_enter(self.fh, state, self.door.biased())
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
        Freeing::of(self.fh, inside.as_ref()).range(range)
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
            Err(AllocError::WouldBlock) => {
                one_by_one(request, out, |request| self.fh.outside().alloc(self.id, &request))
            }
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
            Ok(inside) => Freeing::of(self.fh, inside.as_ref()).frames(frames),
            Err(error) => Err(BulkFreeError { freed: 0, error }),
        }
    }

    /// The periodic work of this CPU, about once a second: leases that were not used go back, and
    /// a CPU that allocated nothing since the last tick gives back everything. Where its zone has
    /// come near the min mark, and no request has done so, all CPUs' hands are emptied.
    ///
    /// # Errors
    ///
    /// [`AllocError::CpuOffline`].
    pub fn tick(&self) -> Result<(), AllocError> {
        let inside = self.enter(AllocFlags::empty())?;
        inside.tick();
        inside.leave_and_tell(AllocFlags::empty());
        Ok(())
    }

    /// Ends this CPU's leases: for one about to go idle. What it has freed others see without this.
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

/// How a [`Handle`] gets into its CPU's state: [`Anybody`] or [`Owner`].
///
/// Sealed: what is behind a door is the allocator's own. Code that works by either takes
/// [`Frames`], or a `Handle` of any door.
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

    /// Gets in, by the cheaper way first, which takes neither waiting nor a heavy barrier; out again
    /// by [`get_out`](Self::get_out).
    fn get_in<P: Platform>(&self, fh: &Freehold<'m, P>, state: &CpuState<'m>);

    /// Gets out.
    #[inline(always)]
    fn get_out(&self, state: &CpuState<'m>) {
        state.door.leave(self.biased());
    }
}

/// The way in for a call that has to wait.
#[cold]
#[inline(never)]
fn wait_to_get_in<'m, P: Platform>(fh: &Freehold<'m, P>, state: &CpuState<'m>, biased: bool) {
    state.door.enter(biased, &fh.platform);
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
        match fh.cpus.get(cpu.index()) {
            Some(state) if state.online.get() => Ok(state),
            _ => Err(AllocError::CpuOffline { cpu }),
        }
    }

    #[inline(always)]
    fn biased(&self) -> bool {
        false
    }

    #[inline(always)]
    fn get_in<P: Platform>(&self, fh: &Freehold<'m, P>, state: &CpuState<'m>) {
        if !state.door.try_enter_unowned() {
            wait_to_get_in(fh, state, false);
        }
    }
}

/// The door of a CPU's owner, and the ownership itself: while it lives nobody else can own the CPU.
/// Dropping it gives the CPU back, for which it waits until nobody is inside.
pub struct Owner<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    pub(crate) state: &'m CpuState<'m>,
    /// The CPU's lock is biased to this owner.
    pub(crate) biased: bool,
    /// Not to be used by two threads at once: `Cell` is Send but not Sync.
    not_sync: PhantomData<Cell<()>>,
}

impl<'a, 'm, P: Platform> Owner<'a, 'm, P> {
    /// Takes the CPU.
    pub(crate) fn take(fh: &'a Freehold<'m, P>, cpu: CpuId) -> Result<Self, AllocError> {
        let state = Way::state(&Anybody::new(), fh, cpu)?;
        let _inside = Inside::enter(fh, state, false);
        // It may have gone offline since it was looked at.
        if !state.online.get() {
            return Err(AllocError::CpuOffline { cpu });
        }
        if state.owned.get() {
            return Err(AllocError::CpuOwned { cpu });
        }
        state.owned.set(true);
        state.door.set_biased(fh.asymmetric);
        Ok(Self { fh, state, biased: fh.asymmetric, not_sync: PhantomData })
    }
}

impl<P: Platform> Drop for Owner<'_, '_, P> {
    fn drop(&mut self) {
        let inside = Inside::enter(self.fh, self.state, false);
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
    fn get_in<P: Platform>(&self, fh: &Freehold<'m, P>, state: &CpuState<'m>) {
        if !(state.door.try_enter_owner() || !self.biased && state.door.try_enter_unowned()) {
            wait_to_get_in(fh, state, self.biased);
        }
    }
}

/// Where frames come from and go to: a CPU of a [`Freehold`], or the allocator itself, which asks
/// the platform for the current CPU at each call.
///
/// What was allocated in one piece must be freeable in parts, without being split first.
pub trait Frames {
    /// Allocates `2^order` neighbouring, naturally aligned frames.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError>;

    /// Frees `2^order` frames: any aligned part of what was allocated.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError>;

    /// Frees any range of frames that were allocated, whatever the allocations were.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError>;

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    /// Here one after the other; allocators that know better do it at once.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; only where not a single frame was allocated. A request that is not of
    /// order 0 is [`AllocError::OrderTooLarge`].
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        one_by_one(request, out, |request| self.alloc(request))
    }

    /// Frees single frames, in any order. Here one after the other; allocators that know better
    /// free neighbours together.
    ///
    /// # Errors
    ///
    /// The first frame that cannot be freed, and how many before it in the slice have been freed;
    /// those behind it have not.
    fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        for (freed, &pfn) in frames.iter().enumerate() {
            self.free(pfn, Order::ZERO).map_err(|error| BulkFreeError { freed, error })?;
        }
        Ok(())
    }
}

/// The calls of [`Frames`] are those of something else. Always inlined, as what they call: a request
/// is known at compile time then, and a pair of calls takes less than half the instructions.
macro_rules! calls_of {
    ($self:ident => $other:expr) => {
        #[inline(always)]
        fn alloc(&$self, request: Request) -> Result<Pfn, AllocError> {
            $other.alloc(request)
        }

        #[inline(always)]
        fn free(&$self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
            $other.free(pfn, order)
        }

        #[inline]
        fn free_range(&$self, range: FrameRange) -> Result<(), FreeError> {
            $other.free_range(range)
        }

        #[inline]
        fn alloc_bulk(&$self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
            $other.alloc_bulk(request, out)
        }

        #[inline]
        fn free_bulk(&$self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
            $other.free_bulk(frames)
        }
    };
}

impl<'m, P: Platform, D: Door<'m>> Frames for Handle<'_, 'm, P, D> {
    calls_of!(self => self);
}

/// On the CPU that the platform names at each call.
impl<P: Platform> Frames for Freehold<'_, P> {
    calls_of!(self => self.here());
}

impl<F: Frames + ?Sized> Frames for &F {
    calls_of!(self => (**self));
}
