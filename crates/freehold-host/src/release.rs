//! Who may give memory back, and when: one pass of an arena at a time, which ends early for whoever
//! waits for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::Order;

thread_local! {
    /// This thread is making a pass or changes the arena's size, for whose end it must not wait:
    /// the program's own allocator may be the arena, and a pass keeps lists.
    static IN_PASS: Cell<bool> = const { Cell::new(false) };
}

/// Says so while it lives.
pub(crate) struct Passing;

impl Passing {
    pub(crate) fn new() -> Self {
        IN_PASS.set(true);
        Self
    }

    /// Whether this thread has one.
    pub(crate) fn is_here() -> bool {
        IN_PASS.get()
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        IN_PASS.set(false);
    }
}

/// State and counters of all passes of an arena.
pub(crate) struct Release {
    /// One pass at a time.
    pass: Mutex<()>,
    /// The smallest chunk that is given back out of a block in use.
    pub(crate) least: Order,
    /// How many wait for the pass that runs to end. Counted, as several passes may be in the queue
    /// before one who waits.
    wanted: AtomicU64,
    /// Somebody else than a pass has had free frames in hand.
    in_hand: AtomicBool,
    pub(crate) passes: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) calls: AtomicU64,
    /// Runs that the kernel would not take.
    pub(crate) refused: AtomicU64,
    /// The kernel makes huge pages when it is asked to, as far as is known.
    pub(crate) collapses: AtomicBool,
    pub(crate) collapsed: AtomicU64,
}

impl Release {
    pub(crate) fn new(least: Order) -> Self {
        Self {
            pass: Mutex::new(()),
            least,
            wanted: AtomicU64::new(0),
            in_hand: AtomicBool::new(false),
            passes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            collapses: AtomicBool::new(true),
            collapsed: AtomicU64::new(0),
        }
    }

    /// A pass begins: the only one while the guard lives.
    pub(crate) fn begin(&self) -> (Passing, MutexGuard<'_, ()>) {
        let one = self.lock();
        let passing = Passing::new();
        // Release: see `hold_off`.
        self.passes.fetch_add(1, Ordering::Release);
        (passing, one)
    }

    /// Whether somebody waits for the pass that runs, which is to end.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: whoever wants the lock gets it a block later at worst.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// No pass runs while the guard lives, and allocations that fail meanwhile wait for it: for
    /// whoever has frames in hand that are free. The pass that runs ends early.
    pub(crate) fn alone(&self) -> (Passing, MutexGuard<'_, ()>) {
        let alone = self.interrupt();
        let passing = Passing::new();
        // Release: as at the start of a pass, see `hold_off`.
        self.in_hand.store(true, Ordering::Release);
        (passing, alone)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, from whoever makes a pass and is to end it.
    fn interrupt(&self) -> MutexGuard<'_, ()> {
        // Relaxed, both: a hint that saves waiting for the rest of the pass.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let alone = self.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        alone
    }

    /// An allocation has failed. Waits for the pass that runs, if any, and keeps the next one from
    /// starting while the guard lives; `None` where there never was a pass, so that trying again
    /// cannot help.
    pub(crate) fn hold_off(&self) -> Option<MutexGuard<'_, ()>> {
        // Acquire: pairs with the release at the start of a pass. Who found a block missing because
        // a pass has it came to the allocator after that pass took it, and so sees the pass
        // counted.
        let ever = self.passes.load(Ordering::Acquire) != 0 || self.in_hand.load(Ordering::Acquire);
        if !ever || IN_PASS.get() {
            return None;
        }
        Some(self.interrupt())
    }
}
