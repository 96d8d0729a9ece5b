//! Freeing from where nothing may be waited for: an interrupt, or a caller that holds a lock.
//!
//! ```text
//!   vfree_atomic     one exchange: the area's address goes into a free slot; no lock, no Mmu, no page allocator
//!     ...            its mapping, its addresses and its frames stay as they are
//!   vfree_deferred   takes what is in the slots, and frees it as `vfree_many` does: one flush for BATCH areas
//! ```
//!
//! Linux's `vfree_atomic` links the area into a list of its CPU, whose links lie in the first page of
//! the area itself. Here memory is the host's, so the links are slots that the caller hands over, as
//! it does all other bookkeeping ([`Vmalloc::with_deferred`]); how many are enough is how many frees
//! may come between two calls of [`Vmalloc::vfree_deferred`].

use crate::primitive::{AtomicU64, Ordering};
use crate::stats::count;
use crate::{BATCH, Frames, Mmu, Vmalloc, VmallocError, Vpn};

/// A place for one area between [`Vmalloc::vfree_atomic`] and [`Vmalloc::vfree_deferred`].
pub struct DeferredSlot {
    /// The area's first page, plus 1; 0 is empty.
    area: AtomicU64,
}

impl DeferredSlot {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { area: AtomicU64::new(0) }
    }

    /// Puts an area in; whether there was room.
    fn put(&self, start: Vpn) -> bool {
        // Release: whoever takes it out sees what the caller has done to the area before. Relaxed on
        // failure: nothing is read.
        let put = self.area.compare_exchange(
            0,
            start.get().wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
        put.is_ok()
    }

    fn take(&self) -> Option<Vpn> {
        // Relaxed: a look that spares an exchange; what is missed is taken next time.
        if self.area.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire: pairs with `put`. Another call may have been faster.
        match self.area.swap(0, Ordering::Acquire) {
            0 => None,
            area => Some(Vpn::new(area.wrapping_sub(1))),
        }
    }
}

impl Default for DeferredSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// Hands over slots for [`Vmalloc::vfree_atomic`], which has none at first.
    #[must_use]
    pub fn with_deferred(mut self, slots: &'m [DeferredSlot]) -> Self {
        self.deferred = slots;
        self
    }

    /// Leaves an area to the next [`Vmalloc::vfree_deferred`]: for callers that must not wait. Takes no
    /// lock and calls neither machine nor page allocator, so that it may be called in the middle of
    /// any other call.
    ///
    /// O(slots) at worst, one exchange where the first that is looked at is empty.
    ///
    /// # Errors
    ///
    /// [`VmallocError::NoNodes`], where every slot is taken; nothing has changed then, and the area is
    /// still the caller's. That no area of [`Vmalloc::vmalloc`] starts there is found out later.
    pub fn vfree_atomic(&self, start: Vpn) -> Result<(), VmallocError> {
        let slots = self.deferred.len() as u64;
        for _ in 0..slots {
            // Behind where the last one went in. Relaxed: a hint.
            let at = self.deferred_at.fetch_add(1, Ordering::Relaxed) % slots;
            if self.deferred[at as usize].put(start) {
                return Ok(());
            }
        }
        Err(VmallocError::NoNodes)
    }

    /// Frees the areas that [`Vmalloc::vfree_atomic`] has left so far; returns how many. Whoever runs
    /// out of something in [`Vmalloc::vmalloc`] or [`Vmalloc::unmap_part`] does that first.
    ///
    /// One flush for every [`BATCH`] areas, besides what [`Vmalloc::vfree_many`] costs.
    ///
    /// # Errors
    ///
    /// The first, as of [`Vmalloc::vfree_many`]; all other areas have been freed nevertheless. Where
    /// the host could not take pages away ([`VmallocError::Unmap`]) an area waits for the next call.
    pub fn vfree_deferred(&self, frames: &impl Frames) -> Result<u64, VmallocError> {
        let (mut freed, mut result) = (0, Ok(()));
        let mut slots = self.deferred.iter();
        loop {
            let mut starts = [Vpn::new(0); BATCH];
            let mut n = 0;
            for area in slots.by_ref().filter_map(DeferredSlot::take).take(BATCH) {
                starts[n] = area;
                n += 1;
            }
            if n == 0 {
                count(&self.counters.deferred, freed);
                return result.map(|()| freed);
            }
            let (some, outcome) = self.vfree_batch(frames, &starts[..n], |start| {
                // Its own slot, at least, has just become empty; if others were faster, the area is
                // mapped and owned as before, and its owner may free it again.
                let _ = self.vfree_atomic(start);
            });
            freed += some;
            result = result.and(outcome);
        }
    }

    /// Whether an area waits.
    pub(crate) fn is_deferred(&self) -> bool {
        // Relaxed: who asks is about to try again, and tries whatever comes of it.
        self.deferred.iter().any(|slot| slot.area.load(Ordering::Relaxed) != 0)
    }
}
