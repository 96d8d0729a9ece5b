//! Pages that somebody has tried to write to without the right to: made read-only for the kernel too, so that the write
//! ends as it does on ordinary memory.
//!
//! ```text
//!   a store           SIGSEGV with the address, by the kernel itself: blocked or ignored, the process ends
//!   read(2) and such  EFAULT
//! ```
//!
//! A signal sent by the handler cannot do that: a thread inside a system call does not take it before the call is over,
//! and the call waits for the page; and a thread that blocks the signal would wait for ever.
//!
//! The price is a mapping of its own for each run of such pages, until they are mapped anew, may be written to, or go
//! away. It is paid for mistakes only.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use crate::mmu::{Pages, count};

/// How often a page is tried to be sealed before its writer is sent a signal instead.
const RETRIES: u32 = 100;

/// One bit a page, and how many are set or about to be. Changed under the protection lock.
pub(crate) struct Seals {
    bits: Box<[AtomicU64]>,
    count: AtomicUsize,
}

impl Seals {
    /// For so many pages; `None` where there is no memory for it.
    pub(crate) fn new(pages: usize) -> Option<Self> {
        let mut bits = Vec::new();
        bits.try_reserve_exact(pages.div_ceil(64)).ok()?;
        bits.resize_with(pages.div_ceil(64), AtomicU64::default);
        Some(Self { bits: bits.into_boxed_slice(), count: AtomicUsize::new(0) })
    }

    fn is_sealed(&self, page: usize) -> bool {
        // Relaxed: read and written under the lock.
        self.bits[page / 64].load(Ordering::Relaxed) & 1 << (page % 64) != 0
    }

    fn set(&self, page: usize, sealed: bool) {
        let (word, bit) = (&self.bits[page / 64], 1 << (page % 64));
        // Relaxed: as above.
        if sealed {
            word.fetch_or(bit, Ordering::Relaxed)
        } else {
            word.fetch_and(!bit, Ordering::Relaxed)
        };
    }
}

impl Pages {
    /// Makes a page read-only if its entry still is `bits`, and lets whoever waits for it run into that; `None` where the
    /// entry has changed. The handler's thread only.
    pub(crate) fn seal(&self, page: usize, bits: u64) -> Option<Result<(), Errno>> {
        let _one = self.lock();
        if self.seals.is_sealed(page) {
            self.refused(page);
            return Some(Ok(()));
        }
        // SeqCst fence, with the one in `unseal`: either this sees the entry that has come meanwhile, or who has made it
        // sees the count, and waits for the lock.
        self.seals.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let unchanged = self.entries[page].load(Ordering::SeqCst) == bits;
        let sealed = unchanged.then(|| {
            let tried = || self.set_protection(page, 1, MprotectFlags::READ);
            // The kernel may lack the memory for a moment.
            (1..RETRIES).fold(tried(), |sealed, _| sealed.or_else(|_| tried()))
        });
        if sealed == Some(Ok(())) {
            self.seals.set(page, true);
        } else {
            self.seals.count.fetch_sub(1, Ordering::SeqCst);
        }
        if unchanged {
            self.refused(page);
        }
        sealed
    }

    /// Counted before the writer goes on, which may look.
    fn refused(&self, page: usize) {
        count(&self.counters.refused_writes, 1);
        self.wake(page);
    }

    /// Takes that back for a range, after its entries have been changed. Costs a load where nothing is sealed.
    pub(crate) fn unseal(&self, first: usize, pages: usize) -> Result<(), Errno> {
        fence(Ordering::SeqCst);
        if self.seals.count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let Some(_one) = self.lock() else {
            // A forked child, alone with its copy, in which some of these pages may be read-only.
            return self.set_protection(first, pages, MprotectFlags::READ | MprotectFlags::WRITE);
        };
        let mut page = first;
        while page < first + pages {
            let run = (page..first + pages).take_while(|&page| self.seals.is_sealed(page)).count();
            if run > 0 {
                self.set_protection(page, run, MprotectFlags::READ | MprotectFlags::WRITE)?;
                (page..page + run).for_each(|page| self.seals.set(page, false));
                self.seals.count.fetch_sub(run, Ordering::SeqCst);
            }
            page += run.max(1);
        }
        Ok(())
    }

    fn set_protection(&self, page: usize, pages: usize, protection: MprotectFlags) -> Result<(), Errno> {
        let (start, len) = self.bytes(page, pages);
        // SAFETY: these pages' own memory, in which nothing changes; who is kept from writing to it has no right to.
        unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, protection) }
    }
}
