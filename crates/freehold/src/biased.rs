//! The lock of a CPU's state: nearly free for its owner, dear for the rare intruder.
//!
//! ```text
//! owner                            intruder (robber, drain, isolation, validation)
//!   busy = 1                         take the intruders' own lock word
//!   -- light barrier --              -- heavy barrier on every CPU --
//!   intruder == 0 ?  in : back off   wait until busy == 0; in
//! ```
//!
//! Either the owner's load sees the intruder, or the heavy barrier makes the owner's store visible to the intruder:
//! both missing each other is what the pair of barriers excludes. The heavy barrier is the host's (`membarrier`, an
//! inter-processor interrupt). Where there is none, or nobody owns the CPU for good, the intruders' word alone is an
//! ordinary spin lock and everyone takes that.

use crate::primitive::{AtomicU32, Ordering, Plain, light_barrier, rarely};

/// In the intruders' word: one of them is inside.
const LOCKED: u32 = 1;
/// In the intruders' word: there is no owner that uses `busy`. One load tells an owner both that it is one and that
/// nobody else is inside.
const OWNERLESS: u32 = 2;

/// See the module's documentation.
pub(crate) struct BiasedLock {
    busy: AtomicU32,
    /// [`LOCKED`] and [`OWNERLESS`]; whoever locked it writes it.
    intruder: AtomicU32,
}

/// What a lock needs of the host.
pub(crate) trait Barrier {
    /// Makes every CPU pass a full memory barrier.
    fn heavy_barrier(&self);
    /// Called in every turn of a wait.
    fn relax(&self);
}

impl BiasedLock {
    pub(crate) fn new() -> Self {
        Self { busy: AtomicU32::new(0), intruder: AtomicU32::new(OWNERLESS) }
    }

    /// The owner's entry; `false` where an intruder is inside or the lock is not biased. There is one owner, which cannot be inside already: its
    /// handle is not to be shared, and an interrupt of its path comes as an intruder.
    #[inline(always)]
    pub(crate) fn try_enter_owner(&self) -> bool {
        debug_assert_eq!(self.busy.get(), 0, "the owner of a CPU is inside already");
        self.busy.set(1);
        light_barrier();
        // Acquire: pairs with the intruder's release on leaving, so that the owner sees what it did.
        if self.intruder.load(Ordering::Acquire) == 0 {
            return true;
        }
        rarely();
        self.leave_owner();
        false
    }

    /// The owner's entry, waiting for intruders. Must not be called where the owner may have been interrupted inside.
    #[inline(always)]
    pub(crate) fn enter_owner(&self, barrier: &impl Barrier) {
        if !self.try_enter_owner() {
            self.enter_owner_slow(barrier);
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_owner_slow(&self, barrier: &impl Barrier) {
        while !self.try_enter_owner() {
            barrier.relax();
        }
    }

    #[inline(always)]
    pub(crate) fn leave_owner(&self) {
        // Release: an intruder that sees 0 must see all the owner did.
        self.busy.store(0, Ordering::Release);
    }

    /// An intruder's entry without waiting for another intruder; it still waits for the owner to leave, which takes a
    /// bounded number of steps, unless `patient` is false.
    pub(crate) fn try_enter_intruder(&self, barrier: &impl Barrier, patient: bool) -> bool {
        // Relaxed: a guess, which the exchange checks.
        let free = self.intruder.get() & !LOCKED;
        // Acquire: pairs with the last intruder's release. Relaxed on failure: nothing was learnt.
        if self.intruder.compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        if free & OWNERLESS == 0 {
            barrier.heavy_barrier();
            // Acquire: pairs with `leave_owner`.
            while self.busy.load(Ordering::Acquire) != 0 {
                if !patient {
                    self.leave_intruder();
                    return false;
                }
                barrier.relax();
            }
        }
        true
    }

    /// An intruder's entry.
    pub(crate) fn enter_intruder(&self, barrier: &impl Barrier) {
        while !self.try_enter_intruder(barrier, true) {
            barrier.relax();
        }
    }

    #[inline(always)]
    pub(crate) fn leave_intruder(&self) {
        // Release: the next one in, owner or intruder, must see what was done.
        self.intruder.store(self.intruder.get() & !LOCKED, Ordering::Release);
    }

    /// Sets whether there is an owner. The caller is inside as an intruder.
    pub(crate) fn set_biased(&self, biased: bool) {
        debug_assert_ne!(self.intruder.get() & LOCKED, 0, "the bias changes under the intruders' lock");
        self.intruder.set(if biased { LOCKED } else { LOCKED | OWNERLESS });
    }
}
