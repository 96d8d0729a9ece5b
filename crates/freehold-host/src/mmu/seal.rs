//! Pages that somebody has tried to write to without the right to: made read-only for the kernel
//! too, so that the write ends as it does on ordinary memory.
//!
//! ```text
//!   a store           SIGSEGV with the address, by the kernel itself: blocked or ignored, the process ends
//!   read(2) and such  EFAULT
//! ```
//!
//! A signal sent by the handler cannot do that: a thread inside a system call does not take it
//! before the call is over, and the call waits for the page; and a thread that blocks the signal
//! would wait for ever.
//!
//! The price is a mapping of its own for each run of such pages, until they are mapped anew, may be
//! written to, or go away. It is paid for mistakes only. A process at `vm.max_map_count` has none
//! to spare, so room for one is kept from the start. Where that is used up, another page is opened
//! again: it is still write-protected, so the next write there comes back here.

use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use super::pages::Pages;
use super::stats::count;

/// How often a page is tried to be sealed before its writer is sent a signal instead.
const RETRIES: u32 = 100;

impl Pages {
    /// Makes a page read-only if its entry still is `bits`, and lets whoever waits for it run into
    /// that; `None` where the entry has changed. The handler's thread only.
    pub(super) fn seal(&self, page: usize, bits: u64) -> Option<Result<(), Errno>> {
        let _one = self.lock();
        if self.seals.is_sealed(page) {
            self.refused(page);
            return Some(Ok(()));
        }
        // SeqCst fence, with the one in `unseal`: either this sees the entry that has come
        // meanwhile, or who has made it sees the count, and waits for the lock.
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

    /// Takes that back for a range, after its entries have been changed. Costs a load where nothing
    /// is sealed.
    pub(super) fn unseal(&self, first: usize, pages: usize) -> Result<(), Errno> {
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
                // Whole runs: a part would be another mapping, of which there may be too many. Who
                // writes to the rest of it is heard of again.
                let start = (0..page)
                    .rev()
                    .take_while(|&page| self.seals.is_sealed(page))
                    .last()
                    .unwrap_or(page);
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

    fn set_protection(
        &self,
        page: usize,
        pages: usize,
        protection: MprotectFlags,
    ) -> Result<(), Errno> {
        let (start, len) = self.bytes(page, pages);
        // SAFETY: these pages' own memory, in which nothing changes; who is kept from writing to it
        // has no right to.
        unsafe { rustix::mm::mprotect(start.as_ptr().cast(), len, protection) }
    }
}
