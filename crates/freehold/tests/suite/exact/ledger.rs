//! Who has each frame, kept beside the allocator and never asked of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use freehold::FrameRange;

const NOBODY: u32 = 0;
/// Owns what is left for any thread to free.
pub(crate) const POOL: u32 = u32::MAX;
/// What is wrong is told this often.
const TOLD: usize = 20;

pub(crate) struct Ledger {
    first: u64,
    owners: Box<[AtomicU32]>,
    /// Frames that somebody has.
    owned: AtomicU64,
    troubles: Mutex<Vec<String>>,
    trouble: AtomicBool,
}

impl Ledger {
    /// Of the frames `first..end`.
    pub(crate) fn new(first: u64, end: u64) -> Self {
        Self {
            first,
            owners: (first..end).map(|_| AtomicU32::new(NOBODY)).collect(),
            owned: AtomicU64::new(0),
            troubles: Mutex::new(Vec::new()),
            trouble: AtomicBool::new(false),
        }
    }

    /// Frames that somebody has; exact while nobody calls.
    pub(crate) fn owned(&self) -> u64 {
        self.owned.load(Ordering::Relaxed)
    }

    /// `who` was given these frames: nobody may have had one of them.
    pub(crate) fn take(&self, range: FrameRange, who: u32) {
        self.change(range, NOBODY, who);
        self.owned.fetch_add(range.len(), Ordering::Relaxed);
    }

    /// `who` is about to free these frames: all must be its own.
    pub(crate) fn give(&self, range: FrameRange, who: u32) {
        self.change(range, who, NOBODY);
        self.owned.fetch_sub(range.len(), Ordering::Relaxed);
    }

    /// `from` hands these frames to `to`.
    pub(crate) fn pass(&self, range: FrameRange, from: u32, to: u32) {
        self.change(range, from, to);
    }

    fn change(&self, range: FrameRange, from: u32, to: u32) {
        for pfn in range.start.get()..range.end.get() {
            let Some(owner) = self.owner(pfn) else {
                return self.tell(format!("pfn {pfn:#x} is no memory of this machine"));
            };
            // AcqRel: who has the frame next sees the entry that was made before it was freed.
            let was = owner.swap(to, Ordering::AcqRel);
            if was != from {
                let [was, from, to] = [was, from, to].map(name);
                self.tell(format!(
                    "pfn {pfn:#x}, of {range}, passes from {from} to {to}; {was} has it"
                ));
            }
        }
    }

    /// The entry of a frame of the machine.
    fn owner(&self, pfn: u64) -> Option<&AtomicU32> {
        self.owners.get(pfn.checked_sub(self.first)? as usize)
    }

    pub(crate) fn tell(&self, what: String) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TOLD {
            troubles.push(what);
        }
        self.trouble.store(true, Ordering::Release);
    }

    pub(crate) fn is_trouble(&self) -> bool {
        self.trouble.load(Ordering::Acquire)
    }

    pub(crate) fn troubles(&self) -> Vec<String> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An owner as a reader knows it.
fn name(owner: u32) -> String {
    match owner {
        NOBODY => "nobody".to_owned(),
        POOL => "the pool".to_owned(),
        n => format!("thread {}", n - 1),
    }
}
