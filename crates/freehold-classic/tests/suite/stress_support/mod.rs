//! What the threads share: who has which frame, queues to hand chunks over, and a way to stop a
//! thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};

use freehold::{FrameRange, Order, Pfn};

/// A chunk in use, with the number its frames are stamped with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    pub(crate) pfn: Pfn,
    pub(crate) order: Order,
    stamp: u32,
}

/// For each frame the number of the allocation that has it, or 0.
///
/// Relaxed throughout: that a frame's former user is done with it must be visible to its next user
/// by what the allocator does alone; a 0 that has not arrived yet is reported as an overlap, and
/// rightly so.
pub(crate) struct Ledger {
    start: Pfn,
    frames: Box<[AtomicU32]>,
    next: AtomicU32,
}

impl Ledger {
    pub(crate) fn new(range: FrameRange) -> Self {
        let frames = (0..range.len()).map(|_| AtomicU32::new(0)).collect();
        Self { start: range.start, frames, next: AtomicU32::new(1) }
    }

    fn records(&self, pfn: Pfn, order: Order) -> &[AtomicU32] {
        let first = (pfn.get() - self.start.get()) as usize;
        &self.frames[first..first + order.frames() as usize]
    }

    /// Writes a new number into every frame of a chunk that was just handed out.
    pub(crate) fn stamp(&self, pfn: Pfn, order: Order) -> Stamped {
        let stamp = self.next.fetch_add(1, Relaxed);
        for (i, record) in self.records(pfn, order).iter().enumerate() {
            let found = record.swap(stamp, Relaxed);
            assert_eq!(
                found, 0,
                "frame {i} of {pfn}, {order}, handed out while allocation {found} has it"
            );
        }
        Stamped { pfn, order, stamp }
    }

    /// Takes the number out again, before the chunk is freed.
    pub(crate) fn lift(&self, chunk: Stamped) {
        for (i, record) in self.records(chunk.pfn, chunk.order).iter().enumerate() {
            let found = record.swap(0, Relaxed);
            assert_eq!(
                found, chunk.stamp,
                "frame {i} of {chunk:?} was taken by allocation {found}"
            );
        }
    }

    pub(crate) fn check_empty(&self) {
        assert!(self.frames.iter().all(|record| record.load(Relaxed) == 0));
    }
}

/// A queue for each thread, into which anybody puts chunks.
pub(crate) struct Queues(Vec<Mutex<VecDeque<Stamped>>>);

impl Queues {
    pub(crate) fn new(threads: u16) -> Self {
        Self((0..threads).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn push(&self, to: u16, chunk: Stamped) {
        self.0[usize::from(to)].lock().unwrap().push_back(chunk);
    }

    /// The next chunk of the thread's own queue; of another's when that is empty, so that what a
    /// thread leaves behind at its end does not stay out of circulation.
    pub(crate) fn pop(&self, of: u16) -> Option<Stamped> {
        let threads = self.0.len();
        (0..threads)
            .find_map(|i| self.0[(usize::from(of) + i) % threads].lock().unwrap().pop_front())
    }

    pub(crate) fn take_all(&self) -> Vec<Stamped> {
        self.0.iter().flat_map(|queue| std::mem::take(&mut *queue.lock().unwrap())).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Somebody waits for the thread to stop.
    Asked,
    Stopped,
    /// The thread has come to its end: it will never need its CPU again.
    Left,
}

/// Lets one thread stop another at a point where it makes no call.
pub(crate) struct Pause {
    phases: Mutex<Vec<Phase>>,
    changed: Condvar,
}

impl Pause {
    pub(crate) fn new(threads: u16) -> Self {
        Self {
            phases: Mutex::new(vec![Phase::Running; usize::from(threads)]),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Phase>> {
        self.phases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The thread passes here between two calls, and waits if it is asked to.
    pub(crate) fn pass(&self, thread: u16) {
        let thread = usize::from(thread);
        let mut phases = self.lock();
        if phases[thread] == Phase::Asked {
            phases[thread] = Phase::Stopped;
            self.changed.notify_all();
            while phases[thread] == Phase::Stopped {
                phases = self.changed.wait(phases).unwrap();
            }
        }
    }

    /// Waits until the thread has stopped or is at its end.
    pub(crate) fn stop(&self, thread: u16) {
        let thread = usize::from(thread);
        let mut phases = self.lock();
        if phases[thread] == Phase::Running {
            phases[thread] = Phase::Asked;
        }
        while phases[thread] == Phase::Asked {
            phases = self.changed.wait(phases).unwrap();
        }
    }

    pub(crate) fn go(&self, thread: u16) {
        let thread = usize::from(thread);
        let mut phases = self.lock();
        if phases[thread] == Phase::Stopped {
            phases[thread] = Phase::Running;
        }
        self.changed.notify_all();
    }

    /// The thread is at its end when what this returns is dropped, in a panic too, so that nobody
    /// waits for it without end.
    pub(crate) fn until_left(&self, thread: u16) -> impl Drop + use<'_> {
        Leaving { pause: self, thread: usize::from(thread) }
    }
}

struct Leaving<'a> {
    pause: &'a Pause,
    thread: usize,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.pause.lock()[self.thread] = Phase::Left;
        self.pause.changed.notify_all();
    }
}
