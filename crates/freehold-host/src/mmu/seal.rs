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
//! away. It is paid for mistakes only. A process at `vm.max_map_count` has none to spare, so room for one is kept from the
//! start. Where that is used up, another page is opened again: it is still write-protected, so the next write there comes
//! back here.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use crate::Error;
use crate::mmu::{Pages, count};
use crate::spare::Spare;

/// How often a page is tried to be sealed before its writer is sent a signal instead.
const RETRIES: u32 = 100;

/// One bit a page, and how many are set or about to be. Changed under the protection lock.
pub(crate) struct Seals {
    bits: Box<[AtomicU64]>,
    count: AtomicUsize,
    spare: Spare,
}

impl Seals {
    /// For so many pages.
    pub(crate) fn new(pages: usize) -> Result<Self, Error> {
        let (mut bits, words) = (Vec::new(), pages.div_ceil(64));
        let no_memory = |_| Error::os("malloc", Errno::NOMEM, words as u64 * 8, "fewer pages, or raise RLIMIT_AS");
        bits.try_reserve_exact(words).map_err(no_memory)?;
        bits.resize_with(words, AtomicU64::default);
        Ok(Self { bits: bits.into_boxed_slice(), count: AtomicUsize::new(0), spare: Spare::new()? })
    }

    /// The first sealed page, and how many follow without a gap.
    fn first_run(&self) -> Option<(usize, usize)> {
        // Relaxed: read and written under the lock.
        let (word, bits) =
            self.bits.iter().map(|bits| bits.load(Ordering::Relaxed)).enumerate().find(|&(_, w)| w != 0)?;
        let first = word * 64 + bits.trailing_zeros() as usize;
        Some((first, self.run(first)))
    }

    fn run(&self, first: usize) -> usize {
        (first..self.bits.len() * 64).take_while(|&page| self.is_sealed(page)).count()
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
            // Too many mappings, or the kernel lacks the memory for a moment.
            (1..RETRIES).fold(tried(), |sealed, _| {
                sealed.or_else(|_| {
                    if !self.seals.spare.give_up() {
                        if let Some((first, pages)) = self.seals.first_run() {
                            self.open(first, pages)?;
                        }
                    }
                    tried()
                })
            })
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
            if self.seals.is_sealed(page) {
                // Whole runs: a part would be another mapping, of which there may be too many. Who writes to the rest of it
                // is heard of again.
                let start = (0..page).rev().take_while(|&page| self.seals.is_sealed(page)).last().unwrap_or(page);
                let run = self.seals.run(start);
                self.open(start, run)?;
                page = start + run;
            }
            page += 1;
        }
        self.seals.spare.keep();
        Ok(())
    }

    /// Takes the seal off a whole run.
    fn open(&self, first: usize, pages: usize) -> Result<(), Errno> {
        self.set_protection(first, pages, MprotectFlags::READ | MprotectFlags::WRITE)?;
        (first..first + pages).for_each(|page| self.seals.set(page, false));
        self.seals.count.fetch_sub(pages, Ordering::SeqCst);
        Ok(())
    }

    fn set_protection(&self, page: usize, pages: usize, protection: MprotectFlags) -> Result<(), Errno> {
        let (start, len) = self.bytes(page, pages);
        // SAFETY: these pages' own memory, in which nothing changes; who is kept from writing to it has no right to.
        unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, protection) }
    }
}
