//! Virtual areas of real memory for [`freehold_vm::Vmalloc`]: runs of an arena's frames, shown a
//! second time where they are neighbours.
//!
//! ```text
//!   reserved   | area          |guard| area |guard|      no access where nothing is mapped
//!                 |      \               |
//!   memfd      ..[run]....[run]........[run]..           the arena's frames
//! ```
//!
//! Mapping a run is one `mmap(MAP_FIXED)` of the arena's memfd, whatever its length. Taking pages
//! away is one call for each range, too: a mapping without access in their place, which is their
//! flush as well.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, FrameRange, Order, PAGEBLOCK_FRAMES};
use freehold_vm::{Access, Flush, FlushKind, MapError, Mmu, SpaceId, Vpn, VpnRange};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::mapping::Mapping;
use crate::memory::Backing;
use crate::{Arena, Error};

/// What a [`HostAreas`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AreaStats {
    /// System calls that mapped a run.
    pub maps: u64,
    /// Pages that they mapped.
    pub pages_mapped: u64,
    /// Runs that were to have huge entries, and for which the kernel was asked for them.
    pub huge_maps: u64,
    /// Runs that were to have huge entries, but the kernel has none for such memory: they have
    /// ordinary ones.
    pub huge_refused: u64,
    /// System calls that took pages away.
    pub unmaps: u64,
}

#[derive(Default)]
struct Counters {
    maps: AtomicU64,
    pages_mapped: AtomicU64,
    huge_maps: AtomicU64,
    huge_refused: AtomicU64,
    unmaps: AtomicU64,
}

/// Reserved addresses at which an arena's frames are shown; an [`Mmu`] for a
/// [`Vmalloc`](freehold_vm::Vmalloc).
///
/// A [`Vpn`] here is an address divided by 4096, so what `vmalloc` returns can be used as it is.
/// Addresses at which nothing is mapped, guard pages among them, are there but without access.
///
/// A child of `fork` has nothing at the addresses of areas, as it has none of the frames: see
/// [`OnFork`](crate::OnFork). There nothing can be mapped, nor taken away.
pub struct HostAreas {
    arena: Arc<Arena>,
    reserved: ManuallyDrop<Mapping>,
    counters: Counters,
}

impl HostAreas {
    /// Reserves `pages` pages of addresses for areas of that arena's frames.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where there is no address space; [`Error::Knob`] where the arena is not of
    /// [`Backing::Memfd`], whose frames alone can be shown a second time.
    pub fn new(arena: Arc<Arena>, pages: u64) -> Result<Self, Error> {
        if arena.backing() != Backing::Memfd {
            return Err(Error::Knob {
                knob: "backing",
                value: pages,
                allowed: "an arena of Backing::Memfd",
            });
        }
        let bytes = pages.checked_mul(FRAME_SIZE).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(Error::Knob {
            knob: "pages",
            value: pages,
            allowed: "within the address space",
        })?;
        // Aligned, so that huge entries can be used.
        let align = (PAGEBLOCK_FRAMES * FRAME_SIZE) as usize;
        let reserved =
            Mapping::aligned(bytes.max(1), align, ProtFlags::empty(), MapFlags::NORESERVE)?;
        Ok(Self { arena, reserved: ManuallyDrop::new(reserved), counters: Counters::default() })
    }

    /// The reserved pages: the range for [`Vmalloc::new`](freehold_vm::Vmalloc::new).
    #[must_use]
    pub fn range(&self) -> VpnRange {
        let start = Vpn::new(self.reserved.base().addr().get() as u64 / FRAME_SIZE);
        VpnRange::new(start, self.reserved.len() as u64 / FRAME_SIZE).unwrap_or_default()
    }

    /// Where a page is; `None` outside the reserved range. What may be done there is what was
    /// mapped there.
    #[must_use]
    pub fn pointer(&self, vpn: Vpn) -> Option<NonNull<u8>> {
        let offset = (vpn.get().checked_sub(self.range().start.get())?) * FRAME_SIZE;
        let inside = offset < self.reserved.len() as u64;
        inside
            .then(|| NonNull::new(self.reserved.base().as_ptr().wrapping_add(offset as usize)))
            .flatten()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> AreaStats {
        // Relaxed: statistics.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        AreaStats {
            maps: get(&c.maps),
            pages_mapped: get(&c.pages_mapped),
            huge_maps: get(&c.huge_maps),
            huge_refused: get(&c.huge_refused),
            unmaps: get(&c.unmaps),
        }
    }

    /// A range of reserved pages as memory.
    fn bytes(&self, range: VpnRange) -> Result<(NonNull<u8>, usize), MapError> {
        let all = self.range();
        let inside = all.start <= range.start && range.end <= all.end && !range.is_empty();
        let start = self.pointer(range.start).filter(|_| inside);
        start.map(|start| (start, (range.len() * FRAME_SIZE) as usize)).ok_or(refused(Errno::INVAL))
    }

    /// An error in a forked child: it has holes where runs were mapped, and something else may be
    /// there by now.
    fn check_fork(&self) -> Result<(), MapError> {
        if self.arena.inner.core.stamp.is_forked() { Err(refused(Errno::PERM)) } else { Ok(()) }
    }

    /// No access to a range from its return on, in one call.
    ///
    /// A process that has as many mappings as it may have is refused new ones, also in place of
    /// others: see `at_the_limit`.
    fn take_away(&self, range: VpnRange) -> Result<(), Errno> {
        let Ok((start, len)) = self.bytes(range) else { return Err(Errno::INVAL) };
        let (start, flags) =
            (start.as_ptr().cast(), MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
        count(&self.counters.unmaps, 1);
        // SAFETY: within the reserved range; whoever has unmapped these pages does not use them any
        // more.
        unsafe { rustix::mm::mmap_anonymous(start, len, ProtFlags::empty(), flags) }
            .map(drop)
            .or_else(|_| Self::at_the_limit(start.cast(), len))
    }

    /// Takes pages away without a mapping to spare: of whole mappings the access can be taken. A
    /// part of one stays as it is, and the call fails.
    fn at_the_limit(start: *mut u8, len: usize) -> Result<(), Errno> {
        // SAFETY: as in `take_away`. The frames are the file's, and stay.
        unsafe { rustix::mm::mprotect(start.cast(), len, MprotectFlags::empty()) }
    }
}

/// The kernel says "no memory" also where a process has too many mappings, which is nearly always
/// what it means.
pub(crate) fn refused(errno: Errno) -> MapError {
    match errno {
        Errno::NOMEM => MapError::Limit {
            limit: "vm.max_map_count (mappings of this process), or memory for page tables",
        },
        errno => MapError::Host(errno.raw_os_error()),
    }
}

impl Drop for HostAreas {
    fn drop(&mut self) {
        if self.check_fork().is_ok() {
            // SAFETY: dropped here and nowhere else, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.reserved) };
        }
    }
}

fn count(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics.
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Mmu for HostAreas {
    fn map(
        &self,
        _: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        leaf: Order,
    ) -> Result<(), MapError> {
        self.check_fork()?;
        let range = VpnRange::new(at, frames.len()).ok_or(refused(Errno::INVAL))?;
        let (start, len) = self.bytes(range)?;
        let last = freehold::Pfn::new(frames.end.get().wrapping_sub(1));
        let offset = self.arena.offset(frames.start).filter(|_| self.arena.offset(last).is_some());
        let (Some(offset), Some(file)) = (offset, self.arena.memory().file()) else {
            return Err(refused(Errno::INVAL));
        };
        let prot = match access {
            Access::None => ProtFlags::empty(),
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: within the reserved range, where nothing is mapped, as the caller says; the
        // frames are inside the file.
        unsafe { rustix::mm::mmap(start.as_ptr().cast(), len, prot, flags, file, offset) }
            .map_err(refused)?;
        // The frames are shared memory: a forked child that wrote there would write into the
        // parent's. SAFETY: our own mapping; the advice changes nothing in it.
        let kept =
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork) };
        if let Err(errno) = kept {
            let _ = self.take_away(range);
            return Err(refused(errno));
        }
        count(&self.counters.maps, 1);
        count(&self.counters.pages_mapped, frames.len());
        if leaf >= Order::PAGEBLOCK {
            // SAFETY: our own mapping; the advice changes nothing in it.
            let huge =
                unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
            count(
                if huge.is_ok() { &self.counters.huge_maps } else { &self.counters.huge_refused },
                1,
            );
        }
        Ok(())
    }

    /// Nothing yet: [`flush`](Mmu::flush) takes the pages away, as these two are one call to this
    /// host.
    fn unmap(&self, _: SpaceId, _: VpnRange) {}

    /// # Panics
    ///
    /// Where [`try_flush`](Mmu::try_flush) fails, which [`Vmalloc`](freehold_vm::Vmalloc) calls
    /// instead: to go on would leave freed frames within reach.
    fn flush(&self, batch: &[Flush]) {
        if let Err(error) = self.try_flush(batch) {
            panic!("pages cannot be taken away: {error}");
        }
    }

    fn try_flush(&self, batch: &[Flush]) -> Result<(), MapError> {
        self.check_fork()?;
        let mut unmapped = batch.iter().filter(|flush| flush.kind == FlushKind::Unmapped);
        unmapped.try_for_each(|flush| self.take_away(flush.range).map_err(refused))
    }

    fn relax(&self) {
        std::thread::yield_now();
    }
}
