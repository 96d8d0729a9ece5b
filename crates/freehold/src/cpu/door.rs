//! The door to a CPU's state: nearly free for its owner, costly for the rare intruder.
//!
//! ```text
//! owner                            intruder (recall, drain, isolation, validation)
//!   busy = 1                         take the intruders' own lock word
//!   -- light barrier --              -- heavy barrier: one for all CPUs that are asked --
//!   intruder == 0 ?  in : back off   wait until busy == 0; in
//! ```
//!
//! Either the owner's load sees the intruder, or the heavy barrier makes the owner's store visible
//! to the intruder: both missing each other is what the pair of barriers excludes. The heavy
//! barrier is the host's (`membarrier`, an inter-processor interrupt). Where there is none, or
//! nobody owns the CPU for good, the intruders' word alone is an ordinary spin lock and everyone
//! takes that.

use crate::Platform;
use crate::platform::PlatformExt;
use crate::primitive::{AtomicU32, Ordering, Relaxed, light_barrier, rarely};

/// In the intruders' word: one of them is inside.
const LOCKED: u32 = 1;
/// In the intruders' word: there is no owner that uses `busy`. One load tells an owner both that it
/// is one and that nobody else is inside.
const OWNERLESS: u32 = 2;

/// What `work` comes to inside a door, by the owner's way or that of anybody; `None` where the owner
/// would have to wait. Each way in knows its way out. A closure that is called in two places would
/// not be compiled into its caller, where the order is known: that doubles a pair of calls.
macro_rules! at_once {
    ($door:expr, $biased:expr, $work:expr) => {
        if $door.try_enter_owner() {
            let result = $work;
            $door.leave_owner();
            Some(result)
        } else if $biased || !$door.try_enter_unowned() {
            None
        } else {
            let result = $work;
            $door.leave_intruder();
            Some(result)
        }
    };
}
pub(crate) use at_once;

/// See the module's documentation.
pub(crate) struct Door {
    busy: AtomicU32,
    /// [`LOCKED`] and [`OWNERLESS`]; a thread that locked it writes it.
    intruder: AtomicU32,
}

impl Door {
    pub(crate) fn new() -> Self {
        Self { busy: AtomicU32::new(0), intruder: AtomicU32::new(OWNERLESS) }
    }

    /// The owner's entry; `false` where an intruder is inside or the lock is not biased. There is
    /// one owner, which cannot be inside already: its handle is not to be shared, and an interrupt
    /// of its path comes as an intruder.
    #[inline(always)]
    pub(crate) fn try_enter_owner(&self) -> bool {
        debug_assert_eq!(self.busy.get(), 0, "the owner of a CPU is inside already");
        self.busy.set(1);
        light_barrier();
        // Acquire: pairs with the intruder's release: the owner sees what it did.
        if self.intruder.load(Ordering::Acquire) == 0 {
            return true;
        }
        rarely();
        self.leave_owner();
        false
    }

    #[inline(always)]
    pub(crate) fn leave_owner(&self) {
        // Release: an intruder that sees 0 must see all the owner did.
        self.busy.store(0, Ordering::Release);
    }

    /// An intruder's first step: waits for other intruders, and keeps them and the owner out from
    /// then on. Whether the owner may still be inside, for which a heavy barrier and
    /// [`await_owner`](Self::await_owner) must follow.
    pub(crate) fn knock(&self, host: &impl Platform) -> bool {
        loop {
            // Relaxed: a guess, which the exchange checks.
            let free = self.intruder.get() & !LOCKED;
            // Acquire: pairs with the last intruder's release. Relaxed on failure: nothing was
            // learnt.
            let taken = self.intruder.compare_exchange(
                free,
                free | LOCKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return free & OWNERLESS == 0;
            }
            host.relax();
        }
    }

    /// Whether somebody is inside, as far as can be seen without a barrier. What they have
    /// done to others' memory before an acquire fence of the caller's is not missed: they
    /// were inside then, or have left and show what they have.
    pub(crate) fn is_occupied(&self) -> bool {
        // Acquire: pairs with `leave_owner` and `leave_intruder`.
        self.busy.load(Ordering::Acquire) != 0
            || self.intruder.load(Ordering::Acquire) & LOCKED != 0
    }

    /// Whether the owner is inside; after the heavy barrier.
    pub(crate) fn has_owner_inside(&self) -> bool {
        // Acquire: pairs with `leave_owner`.
        self.busy.load(Ordering::Acquire) != 0
    }

    /// Waits until the owner has left; after the heavy barrier.
    pub(crate) fn await_owner(&self, host: &impl Platform) {
        while self.has_owner_inside() {
            host.relax();
        }
    }

    /// The entry of its owner or of anybody, waiting for whoever is inside, each of whom leaves
    /// within a bounded number of steps. Not where the owner may have been interrupted inside.
    #[inline]
    pub(crate) fn enter(&self, owner: bool, host: &impl Platform) {
        if owner {
            while !self.try_enter_owner() {
                host.relax();
            }
        } else if self.knock(host) {
            host.barrier();
            self.await_owner(host);
        }
    }

    /// The entry of its owner or of anybody, if that takes neither waiting nor a heavy barrier.
    #[inline(always)]
    pub(crate) fn try_enter(&self, owner: bool) -> bool {
        if owner { self.try_enter_owner() } else { self.try_enter_unowned() }
    }

    /// The way out.
    #[inline(always)]
    pub(crate) fn leave(&self, owner: bool) {
        if owner {
            self.leave_owner();
        } else {
            rarely();
            self.leave_intruder();
        }
    }

    /// The entry of a call that may not wait: only where nobody owns the CPU and nobody is inside.
    /// An owned CPU is not even asked, which would take a heavy barrier.
    #[inline]
    pub(crate) fn try_enter_unowned(&self) -> bool {
        // Acquire: pairs with the last intruder's release. Relaxed on failure: nothing was learnt.
        self.intruder
            .compare_exchange(OWNERLESS, OWNERLESS | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    pub(crate) fn leave_intruder(&self) {
        // Release: the next one in, owner or intruder, must see what was done.
        self.intruder.store(self.intruder.get() & !LOCKED, Ordering::Release);
    }

    /// Sets whether there is an owner. The caller is inside as an intruder.
    pub(crate) fn set_biased(&self, biased: bool) {
        debug_assert_ne!(
            self.intruder.get() & LOCKED,
            0,
            "the bias changes under the intruders' lock"
        );
        self.intruder.set(if biased { LOCKED } else { LOCKED | OWNERLESS });
    }
}
