//! Who has each frame, kept beside the allocator and never asked of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use freehold::{FrameRange, Order, Pfn};

const NOBODY: u32 = 0;
/// Frames of a page of the ledger, which is there once one of them was in use.
const PAGE: u64 = 1 << 15;
/// What is wrong is told this often; the rest is counted.
const TOLD: usize = 20;

/// Neighbouring frames that somebody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) frames: u64,
}

impl Chunk {
    pub(super) fn new(start: Pfn, frames: u64) -> Self {
        Self { start: start.get(), frames }
    }

    pub(super) fn range(self) -> FrameRange {
        FrameRange { start: Pfn::new(self.start), end: Pfn::new(self.start + self.frames) }
    }

    pub(super) fn order(self) -> Option<Order> {
        let start = Pfn::new(self.start);
        Order::fitting(self.frames)
            .filter(|order| order.frames() == self.frames && start.is_aligned(*order))
    }
}

pub(super) struct Ledger {
    first: u64,
    end: u64,
    pages: Box<[OnceLock<Box<[AtomicU32]>>]>,
    /// Frames that somebody has.
    owned: AtomicU64,
    troubles: Mutex<Vec<String>>,
    trouble: AtomicBool,
    untold: AtomicU64,
}

impl Ledger {
    /// Of the frames `first..end`.
    pub(super) fn new(first: u64, end: u64) -> Self {
        Self {
            first,
            end,
            pages: (first..end).step_by(PAGE as usize).map(|_| OnceLock::new()).collect(),
            owned: AtomicU64::new(0),
            troubles: Mutex::new(Vec::new()),
            trouble: AtomicBool::new(false),
            untold: AtomicU64::new(0),
        }
    }

    /// Frames that somebody has; exact while nobody calls.
    pub(super) fn owned(&self) -> u64 {
        self.owned.load(Ordering::Relaxed)
    }

    /// `who` was given these frames: nobody may have had one of them.
    pub(super) fn take(&self, chunk: Chunk, who: u32) {
        self.change(chunk, NOBODY, who);
        self.owned.fetch_add(chunk.frames, Ordering::Relaxed);
    }

    /// `who` is about to free these frames: all must be its own.
    pub(super) fn give(&self, chunk: Chunk, who: u32) {
        self.change(chunk, who, NOBODY);
        self.owned.fetch_sub(chunk.frames, Ordering::Relaxed);
    }

    /// `from` hands these frames to `to`.
    pub(super) fn pass(&self, chunk: Chunk, from: u32, to: u32) {
        self.change(chunk, from, to);
    }

    fn change(&self, chunk: Chunk, from: u32, to: u32) {
        for pfn in chunk.start..chunk.start + chunk.frames {
            let Some(owner) = self.owner(pfn) else {
                return self.tell(format!("pfn {pfn:#x} is no memory of this machine"));
            };
            // AcqRel: who has the frame next sees the entry that was made before it was freed.
            let was = owner.swap(to, Ordering::AcqRel);
            if was != from {
                let [was, from, to] = [was, from, to].map(name);
                self.tell(format!(
                    "pfn {pfn:#x}, of {} from {:#x} on, passes from {from} to {to}; {was} has it",
                    chunk.frames, chunk.start
                ));
            }
        }
    }

    /// The entry of a frame of the machine.
    fn owner(&self, pfn: u64) -> Option<&AtomicU32> {
        let n = pfn.checked_sub(self.first).filter(|_| pfn < self.end)?;
        let nobodys = || (0..PAGE).map(|_| AtomicU32::new(NOBODY)).collect();
        let page = self.pages.get((n / PAGE) as usize)?.get_or_init(nobodys);
        page.get((n % PAGE) as usize)
    }

    pub(super) fn tell(&self, what: String) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TOLD {
            troubles.push(what);
        } else {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
        self.trouble.store(true, Ordering::Release);
    }

    pub(super) fn is_trouble(&self) -> bool {
        self.trouble.load(Ordering::Acquire)
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let untold = self.untold.load(Ordering::Relaxed);
        if untold > 0 {
            troubles.push(format!("and {untold} more"));
        }
        troubles
    }
}

/// An owner as a reader knows it.
fn name(owner: u32) -> String {
    match owner {
        NOBODY => "nobody".to_owned(),
        n => format!("thread {}", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_in_two_hands_or_freed_by_another_is_told() {
        let ledger = Ledger::new(512, 1536);
        let chunk = Chunk { start: 600, frames: 8 };
        ledger.take(chunk, 1);
        ledger.pass(chunk, 1, 2);
        assert!(!ledger.is_trouble() && ledger.owned() == 8);
        ledger.take(Chunk { start: 607, frames: 2 }, 3);
        assert_eq!(ledger.troubles().len(), 1);
        assert!(
            ledger.troubles()[0].contains("0x25f")
                && ledger.troubles()[0].contains("thread 1 has it")
        );
        ledger.give(Chunk { start: 600, frames: 1 }, 1);
        assert_eq!(ledger.troubles().len(), 2);
        ledger.give(Chunk { start: 2000, frames: 1 }, 1);
        assert!(ledger.troubles()[2].contains("no memory"));
    }
}
