//! The pages themselves, their entries and their protection: what the handler of write faults
//! needs, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{FRAME_SIZE, FrameRange, Pfn};
use freehold_vm::{Entry, Slots, SpaceId, Vpn, VpnRange};
use rustix::io::Errno;

use super::stats::{Counters, count};
use crate::memory::Memory;
use crate::userfault::Userfault;

/// Taken by `get_and_clear`; its memory is there and protected as before. A bit that no entry has.
pub(super) const TAKEN: u64 = 1 << 9;
/// A flush is giving its memory back.
pub(super) const DROPPING: u64 = 1 << 10;

/// Runs of pages given back with one call at most.
pub(super) const RUNS: usize = 256;

/// What the handler of write faults needs, too.
pub(super) struct Pages {
    pub(super) memory: Memory,
    pub(super) spaces: u64,
    pub(super) range: VpnRange,
    /// One for each page of each space, as [`Entry`], or [`TAKEN`], or [`DROPPING`].
    pub(super) entries: Box<[AtomicU64]>,
    pub(super) userfault: Userfault,
    pub(super) protection: Mutex<()>,
    pub(super) counters: Counters,
}

impl Pages {
    /// The place of a page among all; `None` for pages that are not here.
    pub(super) fn index(&self, space: SpaceId, vpn: Vpn) -> Option<usize> {
        let here = u64::from(space.get()) < self.spaces && self.range.contains(vpn);
        here.then(|| {
            (u64::from(space.get()) * self.range.len() + vpn.get() - self.range.start.get())
                as usize
        })
    }

    /// The place of a byte's page.
    pub(super) fn index_of(&self, address: u64) -> Option<usize> {
        let index = (address / FRAME_SIZE).checked_sub(self.memory.first().get())? as usize;
        (index < self.entries.len()).then_some(index)
    }

    /// The pages as the memory knows them: address divided by 4096.
    pub(super) fn addresses(&self, index: usize, pages: u64) -> FrameRange {
        let start = self.memory.first().get() + index as u64;
        FrameRange { start: Pfn::new(start), end: Pfn::new(start + pages) }
    }

    /// Protection is changed by one thread at a time; see the module's documentation. In a forked
    /// child by none, and the lock may be held for ever.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        let here = !self.userfault.is_forked();
        here.then(|| self.protection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn protect(&self, index: usize, pages: u64, on: bool) -> Result<(), Errno> {
        self.userfault.protect(self.memory.bytes(self.addresses(index, pages)), on)
    }

    pub(super) fn wake(&self, index: usize) {
        self.userfault.wake(self.memory.bytes(self.addresses(index, 1)));
    }

    pub(super) fn slots(&self, slots: Slots<'_>) -> (usize, &[AtomicU64]) {
        let index = self.index(slots.space(), slots.first());
        let end = self.index(slots.space(), Vpn::new(slots.first().get() + slots.len() - 1));
        match (index, end) {
            (Some(index), Some(end)) => (index, &self.entries[index..=end]),
            _ => panic!("{} of {} is not among this machine's pages", slots.range(), slots.space()),
        }
    }

    /// Write-protects entries that have lost their dirty bit or a right.
    pub(super) fn protect_changed(&self, index: usize, pages: u64) {
        // A forked child's pages are not watched: its calls would change the parent's. And its copy
        // of the lock may be held by a thread that it does not have.
        if !self.userfault.is_forked() {
            let _one = self.lock();
            if self.protect(index, pages, true).is_ok() {
                return;
            }
        }
        // No memory for the kernel's own tables. What cannot be watched counts as written to: that
        // loses nothing.
        for entry in &self.entries[index..index + pages as usize] {
            let dirty = |bits| {
                Entry::from_bits(bits)
                    .is_mapped()
                    .then(|| Entry::from_bits(bits).with(Entry::DIRTY).bits())
            };
            // AcqRel, Acquire: as `AtomicEntry::replace`.
            let _ = entry.fetch_update(Ordering::AcqRel, Ordering::Acquire, dirty);
        }
    }

    /// Gives back those of the pages that are still taken.
    pub(super) fn drop_taken(&self, index: usize, pages: usize, runs: &mut Runs) {
        let mut start = None;
        for i in index..index + pages {
            // AcqRel: the page's contents are given up after whoever took it has decided; and
            // whoever maps it anew finds either this, and waits, or comes first, and keeps its
            // page. Acquire where it failed: as `load`.
            let mine = self.entries[i]
                .compare_exchange(TAKEN, DROPPING, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
            match (mine, start) {
                (true, None) => start = Some(i),
                (false, Some(first)) => {
                    self.add_run(runs, first, i - first);
                    start = None;
                }
                _ => {}
            }
        }
        if let Some(first) = start {
            self.add_run(runs, first, index + pages - first);
        }
    }

    fn add_run(&self, runs: &mut Runs, index: usize, pages: usize) {
        let run = self.addresses(index, pages as u64);
        if let Some(last) = runs.ranges[..runs.len].last_mut().filter(|last| last.end == run.start)
        {
            last.end = run.end;
            return;
        }
        if runs.len == RUNS {
            self.release(runs);
        }
        runs.ranges[runs.len] = run;
        runs.len += 1;
    }

    /// One call, then nothing is there any more.
    pub(super) fn release(&self, runs: &mut Runs) {
        let ranges = &runs.ranges[..runs.len];
        runs.len = 0;
        if ranges.is_empty() {
            return;
        }
        let (mut calls, mut done) = (0, 0);
        // SAFETY: these pages' entries have been cleared, and their owners want them no more; the
        // entries keep anybody from mapping something there before this returns.
        let released =
            unsafe { self.memory.release(ranges, &mut calls, |run| done += ranges[run].len()) };
        count(&self.counters.release_calls, calls);
        count(&self.counters.pages_released, done);
        count(&self.counters.release_refused, u64::from(released.is_err()));
        let first = self.memory.first().get();
        for range in ranges {
            for entry in &self.entries
                [(range.start.get() - first) as usize..(range.end.get() - first) as usize]
            {
                // Release: pairs with the Acquire of whoever maps here next.
                entry.store(0, Ordering::Release);
            }
        }
    }
}

/// Runs of pages to be given back.
pub(super) struct Runs {
    pub(super) ranges: [FrameRange; RUNS],
    pub(super) len: usize,
}
