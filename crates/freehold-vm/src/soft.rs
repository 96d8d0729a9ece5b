//! An [`Mmu`] of nothing but software: it counts, and it models what a CPU's TLB does.
//!
//! ```text
//!   CPU 0: TLB of 64 translations - miss, or a write through a clean one -> walk of the software
//!   CPU 1: TLB of 64 translations -              ...                        entries
//! ```
//!
//! An access ([`SoftMmu::access`]) uses what its CPU's TLB holds, **even where the entry has
//! changed since**, unless it is a write and the cached translation is not dirty: then hardware has
//! to set the entry's dirty bit and walks. So a flush that is forgotten shows: somebody reads or
//! writes a frame that is not theirs any more. A flush waits for an access that is under way on
//! another CPU, as the answer to an inter-processor interrupt does.

use freehold::{FrameRange, Order, Pfn};

use crate::lock::Spin;
use crate::primitive::relax;
use crate::stats::{count, counters};
use crate::{Access, Entry, Fault, Flush, MapError, Mmu, Slots, Space, SpaceId, Vpn, VpnRange};

/// Translations in a modelled TLB. Each page has one place in it.
const TLB: usize = 64;

#[derive(Clone, Copy)]
struct Cached {
    space: SpaceId,
    vpn: Vpn,
    entry: Entry,
}

counters! {
    /// What a [`SoftMmu`] has been asked to do.
    SoftStats, Counters {
        /// Calls of [`Mmu::map`].
        maps,
        /// Calls of [`Mmu::unmap`].
        unmaps,
        /// Calls of [`Mmu::flush`].
        flushes,
        /// Ranges they were given.
        ranges_flushed,
        /// Pages in those.
        pages_flushed,
        /// Calls of [`Mmu::map_entries`].
        entry_maps,
        /// Calls of [`Mmu::get_and_clear`].
        clears,
        /// Entries that they cleared; a PMD is one.
        entries_cleared,
    }
}

/// The machine in software, with so many CPUs.
pub struct SoftMmu<const CPUS: usize = 1> {
    tlbs: [Spin<[Option<Cached>; TLB]>; CPUS],
    counters: Counters,
    relax: fn(),
}

impl<const CPUS: usize> SoftMmu<CPUS> {
    /// Empty TLBs, nothing counted.
    #[must_use]
    pub fn new() -> Self {
        Self::with_relax(relax)
    }

    /// As [`SoftMmu::new`]; `relax` is called in every turn of a wait: for threads, something that
    /// yields.
    #[must_use]
    pub fn with_relax(relax: fn()) -> Self {
        Self {
            tlbs: core::array::from_fn(|_| Spin::new([None; TLB])),
            counters: Counters::default(),
            relax,
        }
    }

    /// What has been counted so far. Takes no lock.
    #[must_use]
    pub fn stats(&self) -> SoftStats {
        self.counters.read()
    }

    /// Whether any CPU has a translation to one of these frames: none may when they are freed.
    #[must_use]
    pub fn caches(&self, frames: FrameRange) -> bool {
        let holds = |cached: &Option<Cached>| {
            cached.is_some_and(|cached| frames.contains(cached.entry.pfn()))
        };
        self.tlbs.iter().any(|tlb| tlb.with(self.relax, |tlb| tlb.iter().any(holds)))
    }

    /// What CPU `cpu` does to use a page: `f` runs with the frame that the CPU believes the page
    /// shows, and no flush of the page returns meanwhile. `f` must not call anything that flushes.
    ///
    /// # Errors
    ///
    /// See [`Fault`]; `f` has not run then. What the entry says at this moment may be half of what
    /// reclaim is doing: [`Vm::touch`](crate::Vm::touch) waits for the other half; then try again.
    ///
    /// # Panics
    ///
    /// Where there is no such CPU.
    pub fn access<R>(
        &self,
        cpu: usize,
        space: &Space<'_>,
        vpn: Vpn,
        write: bool,
        f: impl FnOnce(Pfn) -> R,
    ) -> Result<R, Fault> {
        self.tlbs[cpu].with(self.relax, |tlb| {
            let place = &mut tlb[(vpn.get() as usize).wrapping_add(space.id().index() * 7) % TLB];
            let hit = place.filter(|cached| {
                let usable = !write || (cached.entry.is_writable() && cached.entry.is_dirty());
                cached.space == space.id() && cached.vpn == vpn && usable
            });
            if let Some(cached) = hit {
                return Ok(f(cached.entry.pfn()));
            }
            let (pfn, entry) = space.walk(vpn, write)?;
            *place = Some(Cached { space: space.id(), vpn, entry });
            Ok(f(pfn))
        })
    }
}

impl<const CPUS: usize> Mmu for SoftMmu<CPUS> {
    // Nobody walks what vmalloc maps: there are no software entries for it.
    fn map(&self, _: SpaceId, _: Vpn, _: FrameRange, _: Access, _: Order) -> Result<(), MapError> {
        count(&self.counters.maps, 1);
        Ok(())
    }

    fn unmap(&self, _: SpaceId, _: VpnRange) {
        count(&self.counters.unmaps, 1);
    }

    fn flush(&self, batch: &[Flush]) {
        count(&self.counters.flushes, 1);
        count(&self.counters.ranges_flushed, batch.len() as u64);
        count(&self.counters.pages_flushed, batch.iter().map(|flush| flush.range.len()).sum());
        for tlb in &self.tlbs {
            tlb.with(self.relax, |tlb| {
                for place in tlb.iter_mut() {
                    let old = |cached: &Cached| {
                        batch.iter().any(|flush| {
                            flush.space == cached.space && flush.range.contains(cached.vpn)
                        })
                    };
                    if place.as_ref().is_some_and(old) {
                        *place = None;
                    }
                }
            });
        }
    }

    fn relax(&self) {
        (self.relax)();
    }

    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        count(&self.counters.entry_maps, 1);
        slots.store(first);
        Ok(())
    }

    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        count(&self.counters.clears, 1);
        let (merged, entries) = slots.take();
        count(&self.counters.entries_cleared, entries);
        merged
    }
}
