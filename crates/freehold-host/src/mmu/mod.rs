//! Address spaces of real memory for [`freehold_vm::Vm`]: private anonymous pages, given back by
//! the batch, and writes seen by the kernel.
//!
//! ```text
//!   Vm        folios, reverse map, reclaim              decides
//!   HostMmu   one entry a page, beside the memory    frame, rights, young, dirty; or being dropped
//!   kernel    |page|page|page|page| ...                 plain loads and stores by any thread
//!
//!   flush(Unmapped)   process_madvise(DONTNEED), one vector a range, one TLB flush for all
//!                                                                     pages are gone, read as zero
//!   flush(Changed)    UFFDIO_WRITEPROTECT, one call a range           the next write faults
//!   write fault       a thread reads it from the userfaultfd: entry dirty, protection off
//!                                                                     the writer goes on
//! ```
//!
//! # Whose memory
//!
//! A page's memory is its own: frames of any allocator may be mapped at it, and are only counted.
//! A folio is mapped once: pages that are moved or shared do not take their contents along.
//!
//! # How writes are seen
//!
//! One rule: **a page that can be written to without a fault has a dirty entry.** Fresh pages come
//! dirty. `madvise_free` makes entries clean and then, before it returns, protects their pages. The
//! first write to such a page stops its thread; the handler sets the entry's dirty bit by
//! compare-and-swap, and only where that worked takes the protection away. Reclaim clears entries
//! by atomic exchange. So either the writer is first, and reclaim finds the bit; or reclaim is, the
//! handler finds the entry taken, and the writer waits until it is restored or the page is gone.
//! Nothing can be written in between. The handler's two steps and the protecting of a range exclude
//! each other, or an old "take it off" could undo a newer "put it on".
//!
//! Other ways ask the whole program to play along, or miss writes. With a signal in the writer
//! (`SIGBUS` of a `userfaultfd`, `SIGSEGV` of `mprotect`) `read(2)` into a protected page fails with
//! `EFAULT`, and with `mprotect` each written page is a mapping, of which a process has 65,530. With
//! asynchronous protection (`PAGEMAP_SCAN`) nothing stops a write between the scan and the dropping.
//!
//! # What a page is while it goes away
//!
//! ```text
//!   mapped --get_and_clear--> taken --flush--> dropping --> nothing
//!      ^                        |
//!      +--------- restore ------+
//! ```
//!
//! A flush drops only what is still taken. That matters where [`Vm::unmap`](freehold_vm::Vm::unmap)
//! has cleared a page and somebody maps another folio there before the flush: a TLB may be flushed
//! once too often, memory may not.
//!
//! # Limits
//!
//! - Rights are in the entries only: memory of a page that is mapped read-only, or may not be used
//!   at all, can be read and written to like any other, and what is written there is kept. When an
//!   entry goes that allows nothing its memory stays until the page is used again.
//! - A forked child has a copy of the pages, but nothing that sees its writes. There no page is
//!   reclaimed.
//! - Without the right to see faults of the kernel itself (`CAP_SYS_PTRACE`, or
//!   `vm.unprivileged_userfaultfd = 1`), a system call that writes to a protected page fails with
//!   `EFAULT`.

mod faults;
mod pages;
mod stats;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use freehold::{FrameRange, Order, PAGEBLOCK_FRAMES};
use freehold_vm::{Access, Entry, Flush, FlushKind, MapError, Mmu, Slots, SpaceId, Vpn, VpnRange};
use rustix::io::Errno;

use self::faults::Handler;
use self::pages::{DROPPING, Pages, RUNS, Runs, TAKEN};
use self::stats::Counters;
pub use self::stats::HostStats;
use crate::Error;
use crate::memory::{Backing, Memory, OnFork};
use crate::userfault::Userfault;

/// What became of a plain store. See [`HostMmu::stored`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// It stays until the page is unmapped or advised again.
    Kept,
    /// It happened while the page was being advised, and may be dropped: store again.
    Again,
    /// The page is not mapped; it was reclaimed before the store.
    Gone,
}

/// Real pages for a [`Vm`](freehold_vm::Vm). See the [module's story](crate#virtual-memory).
///
/// Its entries are its own: those of the [`PageTable`](freehold_vm::PageTable)s stay empty, so
/// [`Vm::touch`](freehold_vm::Vm::touch) finds nothing. Pages are used through
/// [`words`](Self::words) or [`pointer`](Self::pointer), by plain loads and stores.
pub struct HostMmu {
    // Before the pages: the handler's thread ends first.
    _handler: Handler,
    pages: Arc<Pages>,
}

/// A slice on the heap. An allocation that fails otherwise would end the process.
pub(crate) fn boxed<T>(len: usize, make: impl FnMut() -> T) -> Result<Box<[T]>, Error> {
    let mut all = Vec::new();
    let bytes = (len * size_of::<T>()) as u64;
    let no_memory = |_| Error::os("malloc", Errno::NOMEM, bytes, "fewer bytes, or raise RLIMIT_AS");
    all.try_reserve_exact(len).map_err(no_memory)?;
    all.resize_with(len, make);
    Ok(all.into_boxed_slice())
}

impl HostMmu {
    /// Address spaces 0, 1, ... `spaces - 1`, each with pages of its own at `range`. Costs address
    /// space, and 8 bytes a page; memory comes with the first touch of a page.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where there is no address space or no `userfaultfd`, [`Error::PageSize`];
    /// [`Error::Knob`] for no spaces or no pages.
    pub fn new(spaces: u16, range: VpnRange) -> Result<Self, Error> {
        crate::sys::has_large_pages()?;
        let pages = u64::from(spaces)
            .checked_mul(range.len())
            .filter(|&pages| pages > 0 && pages < 1 << 36);
        let pages = pages.ok_or(Error::Knob {
            knob: "pages",
            value: range.len(),
            allowed: "between 1 and 2^36 in all",
        })?;
        let memory =
            Memory::reserve(pages.div_ceil(PAGEBLOCK_FRAMES), Backing::Private, OnFork::Copy)?;
        let count = u64::from(spaces) * range.len();
        let pages = Arc::new(Pages {
            memory,
            spaces: spaces.into(),
            range,
            entries: boxed(count as usize, AtomicU64::default)?,
            userfault: Userfault::new()?,
            protection: Mutex::new(()),
            counters: Counters::default(),
        });
        // A huge page could be given back only as a whole.
        let all = pages.memory.bytes(pages.memory.range());
        // SAFETY: nothing changes in it. Where there are none, that is refused.
        let _ = unsafe { crate::sys::advise(all, crate::sys::Advice::LinuxNoHugepage) };
        pages.userfault.register(all)?;
        Ok(Self { _handler: Handler::start(Arc::clone(&pages))?, pages })
    }

    /// The pages of each address space.
    #[must_use]
    pub fn range(&self) -> VpnRange {
        self.pages.range
    }

    /// Where a page is; `None` for pages that are not here. Reading there is always allowed; where
    /// nothing is mapped it finds whatever.
    #[must_use]
    pub fn pointer(&self, space: SpaceId, vpn: Vpn) -> Option<NonNull<u8>> {
        let index = self.pages.index(space, vpn)?;
        NonNull::new(self.pages.memory.pointer(self.pages.addresses(index, 1).start))
    }

    /// A page's memory; relaxed loads and stores of these words are plain ones. `None` for pages
    /// that are not here.
    #[must_use]
    pub fn words(&self, space: SpaceId, vpn: Vpn) -> Option<&[AtomicU64; 512]> {
        // SAFETY: the page is mapped as long as this lives, and is used by atomic accesses only:
        // safe code has no other way to it.
        self.pointer(space, vpn).map(|page| unsafe { page.cast::<[AtomicU64; 512]>().as_ref() })
    }

    /// The entry of a page at this moment.
    ///
    /// A load that is followed by this and finds the page mapped has read what the page holds,
    /// unless the page was unmapped and mapped anew meanwhile.
    #[must_use]
    pub fn entry(&self, space: SpaceId, vpn: Vpn) -> Entry {
        // SeqCst fence: what the caller loaded or stored comes before the look at the entry.
        fence(Ordering::SeqCst);
        // Acquire: as `AtomicEntry::load`.
        let bits = self
            .pages
            .index(space, vpn)
            .map_or(0, |index| self.pages.entries[index].load(Ordering::Acquire));
        visible(bits)
    }

    /// What became of a store that this thread has just made: for threads that write to pages which
    /// somebody else may reclaim. Waits while reclaim is deciding about the page.
    ///
    /// It says [`Stored::Kept`] where the entry is dirty: then no reclaim that begins later drops
    /// the page, and none that came before the store has.
    #[must_use]
    pub fn stored(&self, space: SpaceId, vpn: Vpn) -> Stored {
        let Some(index) = self.pages.index(space, vpn) else { return Stored::Gone };
        // There is nobody in a child whom waiting for would help, and what it writes stays.
        let forked = self.pages.userfault.is_forked();
        loop {
            // SeqCst fence: as in `entry`.
            fence(Ordering::SeqCst);
            // Acquire: as `AtomicEntry::load`.
            let bits = self.pages.entries[index].load(Ordering::Acquire);
            let entry = Entry::from_bits(bits);
            return match entry.is_mapped() {
                true if entry.is_dirty() || forked => Stored::Kept,
                true => Stored::Again,
                false if bits & (TAKEN | DROPPING) != 0 && !forked => {
                    std::thread::yield_now();
                    continue;
                }
                false => Stored::Gone,
            };
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        // Relaxed: statistics.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.pages.counters;
        HostStats {
            release_calls: get(&c.release_calls),
            pages_released: get(&c.pages_released),
            release_refused: get(&c.release_refused),
            write_faults: get(&c.write_faults),
            waits: get(&c.waits),
            late_writes: get(&c.late_writes),
        }
    }
}

/// What the mechanisms see of an entry: nothing where it is on its way out.
fn visible(bits: u64) -> Entry {
    let entry = Entry::from_bits(bits);
    if entry.is_mapped() { entry } else { Entry::NONE }
}

impl Mmu for HostMmu {
    /// Not here: this machine has no virtual areas.
    fn map(&self, _: SpaceId, _: Vpn, _: FrameRange, _: Access, _: Order) -> Result<(), MapError> {
        Err(MapError::Host(Errno::OPNOTSUPP.raw_os_error()))
    }

    fn unmap(&self, _: SpaceId, _: VpnRange) {}

    fn flush(&self, batch: &[Flush]) {
        let mut runs = Runs { ranges: [FrameRange::default(); RUNS], len: 0 };
        for flush in batch {
            let Some(index) = self.pages.index(flush.space, flush.range.start) else { continue };
            match flush.kind {
                FlushKind::Unmapped => {
                    self.pages.drop_taken(index, flush.range.len() as usize, &mut runs)
                }
                FlushKind::Changed => self.pages.protect_changed(index, flush.range.len()),
            }
        }
        self.pages.release(&mut runs);
    }

    fn relax(&self) {
        std::thread::yield_now();
    }

    fn load(&self, slots: Slots<'_>) -> Entry {
        // Acquire: as `AtomicEntry::load`.
        visible(self.pages.slots(slots).1[0].load(Ordering::Acquire))
    }

    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        for entry in self.pages.slots(slots).1 {
            // AcqRel, Acquire: as in `drop_taken`, whose flush this one keeps from dropping what is
            // mapped here now.
            while let Err(DROPPING) =
                entry.compare_exchange(TAKEN, 0, Ordering::AcqRel, Ordering::Acquire)
            {
                if self.pages.userfault.is_forked() {
                    // Who was dropping it is not here to end it. Relaxed: a child of a fork begins
                    // alone.
                    entry.store(0, Ordering::Relaxed);
                }
                self.relax();
            }
        }
        self.restore(slots, first.with(Entry::HARDWARE));
        Ok(())
    }

    fn restore(&self, slots: Slots<'_>, first: Entry) {
        for (i, entry) in self.pages.slots(slots).1.iter().enumerate() {
            // Release: as `AtomicEntry::store`.
            entry.store(first.advance(i as u64).bits(), Ordering::Release);
        }
    }

    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        let mut merged = Entry::NONE;
        for (i, entry) in self.pages.slots(slots).1.iter().enumerate() {
            // Acquire: as `AtomicEntry::load`. Where a present entry goes, its memory is to be
            // dropped or restored; the rights of the entries that are cleared together agree, and
            // the table's lock keeps them as they are.
            let present = Entry::from_bits(entry.load(Ordering::Acquire)).is_present();
            // AcqRel: as `AtomicEntry::take`.
            let old = visible(entry.swap(if present { TAKEN } else { 0 }, Ordering::AcqRel));
            merged = if i == 0 { old } else { merged.with(old.only(Entry::HARDWARE)) };
        }
        // A forked child's writes are not seen: whatever it has counts as written to.
        if merged.is_mapped() && self.pages.userfault.is_forked() {
            merged.with(Entry::DIRTY)
        } else {
            merged
        }
    }

    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        let mut merged = Entry::NONE;
        for entry in self.pages.slots(slots).1 {
            // Acquire, AcqRel: as `AtomicEntry`'s. The read first, as the default does.
            let now = visible(entry.load(Ordering::Acquire));
            if now.only(bits) != Entry::NONE {
                let old = Entry::from_bits(entry.fetch_and(!bits.bits(), Ordering::AcqRel));
                merged = merged.with(old.only(bits));
            }
        }
        merged
    }

    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        let entry = &self.pages.slots(slots).1[0];
        // AcqRel, Acquire: as `AtomicEntry::replace`.
        entry
            .compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(visible)
    }
}

impl Drop for HostMmu {
    fn drop(&mut self) {
        // In a forked child that would end the parent's watch, and what is written there after
        // `madvise_free` be lost.
        if self.pages.userfault.is_forked() {
            return;
        }
        // The handler ends after this; nobody can be waiting for it, since whoever writes has a
        // reference to this.
        self.pages.userfault.unregister(self.pages.memory.bytes(self.pages.memory.range()));
    }
}
