//! Pages that somebody has tried to write to without the right to: made read-only for the kernel
//! too, so that the write ends as it does on ordinary memory.
//!
//! ```text
//!   a store           SIGSEGV with the address, by the kernel itself, which ends the process also
//!                     where the signal is blocked or ignored
//!   read(2) and such  EFAULT
//! ```
//!
//! A signal sent by the handler cannot do that: a thread inside a system call does not take it
//! before the call is over, and the call waits for the page; and a thread that blocks the signal
//! would wait for ever.
//!
//! The price is a mapping of its own for each run of such pages, until they are mapped anew, may be
//! written to, or go away. It is paid for mistakes only. A process at `vm.max_map_count` has none
//! to spare: there the writer is sent the signal.

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
        // SeqCst fence, with the one in `unseal`: either this sees the entry that has come
        // meanwhile, or who has made it sees that there are seals, and waits for the lock.
        self.sealed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.entries[page].load(Ordering::SeqCst) != bits {
            return None;
        }
        let tried = || self.set_protection(page, 1, MprotectFlags::READ);
        // The kernel may lack the memory for a moment.
        let sealed = (1..RETRIES).fold(tried(), |sealed, _| sealed.or_else(|_| tried()));
        // Counted before the writer goes on, which may look.
        count(&self.counters.refused_writes, 1);
        self.wake(page);
        Some(sealed)
    }

    /// Takes that back for a range, after its entries have been changed. Costs a load where nothing
    /// was ever sealed.
    pub(super) fn unseal(&self, first: usize, pages: usize) -> Result<(), Errno> {
        fence(Ordering::SeqCst);
        if !self.sealed.load(Ordering::SeqCst) {
            return Ok(());
        }
        // `None` in a forked child, alone with its copy, in which some of these pages may be
        // read-only.
        let _one = self.lock();
        self.set_protection(first, pages, MprotectFlags::READ | MprotectFlags::WRITE)
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
