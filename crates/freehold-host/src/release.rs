//! Who may give memory back, and when: one pass of an arena at a time, which ends early for whoever
//! waits for it.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use freehold::Order;

thread_local! {
    /// Arenas of which the thread moves frames: the program's code runs with their locks held.
    static MOVES: Cell<usize> = const { Cell::new(0) };
}

/// A number of the calling thread, which no other has while it lives; never 0.
fn me() -> usize {
    MOVES.with(|moves| ptr::from_ref(moves).addr())
}

/// Nobody else makes a pass of the arena, or changes its size, while it lives.
pub(crate) struct Alone<'a> {
    release: &'a Release,
    _one: MutexGuard<'a, ()>,
    /// 1 where it is counted in [`MOVES`].
    moves: usize,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Relaxed: see `lock`.
        self.release.owner.store(0, Ordering::Relaxed);
        MOVES.set(MOVES.get() - self.moves);
    }
}

/// State and counters of all passes of an arena.
#[derive(Default)]
pub(crate) struct Release {
    /// One pass at a time.
    pass: Mutex<()>,
    /// The thread that has it, or 0. It must not wait for its own end: the program's allocator may
    /// be the arena, and a pass keeps lists.
    owner: AtomicUsize,
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
    /// The kernel makes no huge pages when it is asked to.
    pub(crate) keeps_parts: AtomicBool,
    pub(crate) collapsed: AtomicU64,
}

impl Release {
    pub(crate) fn new(least: Order) -> Self {
        Self { least, ..Self::default() }
    }

    /// A pass begins, unless this thread may not [wait](Self::lock): the only one while the guard
    /// lives.
    pub(crate) fn begin(&self) -> Option<Alone<'_>> {
        let one = self.lock()?;
        // Release: see `hold_off`.
        self.passes.fetch_add(1, Ordering::Release);
        Some(one)
    }

    /// Whether somebody waits for the pass that runs, which is to end.
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: whoever wants the lock gets it a block later at worst.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// No pass runs while the guard lives, and allocations that fail meanwhile wait for it: for
    /// whoever has frames in hand that are free. The pass that runs ends early.
    pub(crate) fn alone(&self) -> Option<Alone<'_>> {
        let alone = self.interrupt()?;
        // Release: as at the start of a pass, see `hold_off`.
        self.in_hand.store(true, Ordering::Release);
        Some(alone)
    }

    /// [`alone`](Self::alone), for whoever runs the program's code meanwhile.
    pub(crate) fn to_move(&self) -> Option<Alone<'_>> {
        let mut alone = self.alone()?;
        alone.moves = 1;
        MOVES.set(MOVES.get() + 1);
        Some(alone)
    }

    /// The lock. Nobody waits for it who has it, nor who moves frames of any arena: two threads
    /// that move could wait for each other.
    pub(crate) fn lock(&self) -> Option<Alone<'_>> {
        // Relaxed: what another thread writes is never this one's number.
        let one = if MOVES.get() == 0 && self.owner.load(Ordering::Relaxed) != me() {
            self.pass.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            match self.pass.try_lock() {
                Err(TryLockError::WouldBlock) => return None,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Ok(one) => one,
            }
        };
        self.owner.store(me(), Ordering::Relaxed);
        Some(Alone { release: self, _one: one, moves: 0 })
    }

    /// The lock, from whoever makes a pass and is to end it.
    fn interrupt(&self) -> Option<Alone<'_>> {
        // Relaxed, both: a hint that saves waiting for the rest of the pass.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let alone = self.lock();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        alone
    }

    /// An allocation has failed. Waits for the pass that runs, if any, and keeps the next one from
    /// starting while the guard lives; `None` where there never was a pass, so that trying again
    /// cannot help, or this thread may not wait.
    pub(crate) fn hold_off(&self) -> Option<Alone<'_>> {
        // Acquire: pairs with the release at the start of a pass. Who found a block missing because
        // a pass has it came to the allocator after that pass took it, and so sees the pass
        // counted.
        let ever = self.passes.load(Ordering::Acquire) != 0 || self.in_hand.load(Ordering::Acquire);
        if ever { self.interrupt() } else { None }
    }
}
