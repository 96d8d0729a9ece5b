//! Who is inside what a thread keeps: the thread, or whoever has stopped all threads.
//!
//! | the thread | somebody else |
//! |---|---|
//! | says that it is busy | says that all are to stop |
//! | *a barrier for the compiler* | *a barrier on every core*, or a fence on each side |
//! | nobody stops it: it goes in | waits until it is not busy: then goes in |
//!
//! So of the two one sees the other, and a thread that finds itself stopped keeps nothing. A number
//! tells failing requests whether anything was kept since they began.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Added to how many stop all threads, where these make no barrier on every core.
const NO_BARRIER: u32 = 1 << 31;

/// Loom knows no barrier of the compiler's: there both sides make a fence.
#[inline(always)]
fn light_barrier() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Of an arena. See the module's documentation.
pub(crate) struct Stops {
    /// How many want all threads to stop, and [`NO_BARRIER`].
    stops: AtomicU32,
    /// Odd where some thread may keep something; whoever has freed all of it makes it even. So
    /// where it is what it was, and even, nothing was kept meanwhile.
    keeps: AtomicU64,
}

impl Stops {
    pub(crate) fn new(barrier: bool) -> Self {
        let stops = AtomicU32::new(if barrier { 0 } else { NO_BARRIER });
        Self { stops, keeps: AtomicU64::new(0) }
    }

    /// A thread, inside its own, keeps something from now on.
    pub(crate) fn is_keeping(&self) {
        // Relaxed: who frees and who asks later are ordered by what tells of it. A look first: it
        // is odd nearly always, and other threads read it.
        if self.keeps.load(Ordering::Relaxed) % 2 == 0 {
            self.keeps.fetch_or(1, Ordering::Relaxed);
        }
    }

    /// The number. For a request that begins, to be told again where it fails.
    pub(crate) fn keeps(&self) -> u64 {
        // Acquire, with the Release of `gathered`: the request finds what was freed.
        self.keeps.load(Ordering::Acquire)
    }

    /// Whether something may have been kept since the number was `seen`, or is.
    pub(crate) fn kept_since(&self, seen: u64) -> bool {
        let now = self.keeps();
        now != seen || now % 2 != 0
    }

    /// All threads are to stop until what is returned is dropped. `barrier` is made when that is
    /// said: on every core, or a fence.
    pub(crate) fn stop(&self, barrier: impl FnOnce()) -> Stopped<'_> {
        // SeqCst, with the barrier and `Door::inside`: a thread that does not see it is seen to be
        // busy.
        self.stops.fetch_add(1, Ordering::SeqCst);
        let stopped = Stopped(self);
        barrier();
        stopped
    }

    #[cfg(test)]
    pub(crate) fn any(&self) -> bool {
        self.stops.load(Ordering::SeqCst) & !NO_BARRIER != 0
    }
}

/// All threads are stopped while this is about.
pub(crate) struct Stopped<'a>(&'a Stops);

impl Stopped<'_> {
    /// All that threads kept is freed. No thread says otherwise meanwhile.
    pub(crate) fn gathered(&self) {
        // Release: with the Acquire of `keeps`. Relaxed: where it is even, somebody else has freed
        // all of it at the same moment.
        let even = |keeps: u64| (keeps % 2 != 0).then_some(keeps + 1);
        let _ = self.0.keeps.fetch_update(Ordering::Release, Ordering::Relaxed, even);
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // Release, with the load of `Door::inside`: what was done with a thread's own.
        self.0.stops.fetch_sub(1, Ordering::Release);
    }
}

/// The way to what one thread keeps.
pub(crate) struct Door<T> {
    busy: AtomicBool,
    of: T,
}

/// A thread is inside, until this is dropped: also where it panics.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: what was done is seen by whoever waits for it.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Door<T> {
    pub(crate) fn new(of: T) -> Self {
        Self { busy: AtomicBool::new(false), of }
    }

    /// [`inside`](Self::inside) where others make the barrier, and nothing else: so that no
    /// register is saved for what comes after it.
    #[inline(always)]
    pub(crate) fn at_once<R>(&self, stops: &Stops, f: impl FnOnce(&T) -> R) -> Option<R> {
        // Relaxed: with the other side's barrier, which makes the next line one of the processor,
        // of a thread that is busy and somebody who stops it one sees the other.
        self.busy.store(true, Ordering::Relaxed);
        let _busy = Busy(&self.busy);
        light_barrier();
        // SeqCst: as above. It also sees what was done while the thread was stopped.
        if stops.stops.load(Ordering::SeqCst) == 0 { Some(f(&self.of)) } else { None }
    }

    /// The thread's own way: `None` while somebody has stopped it.
    pub(crate) fn inside<R>(&self, stops: &Stops, f: impl FnOnce(&T) -> R) -> Option<R> {
        // Relaxed, with a fence: as in `at_once`, also where each side makes its own barrier. And
        // which it is never changes.
        self.busy.store(true, Ordering::Relaxed);
        let _busy = Busy(&self.busy);
        if stops.stops.load(Ordering::Relaxed) & NO_BARRIER != 0 {
            fence(Ordering::SeqCst);
        } else {
            light_barrier();
        }
        // SeqCst: as in `at_once`.
        let may = stops.stops.load(Ordering::SeqCst) & !NO_BARRIER == 0;
        if may { Some(f(&self.of)) } else { None }
    }

    /// Somebody else's way, once it has [stopped](Stops::stop) all threads.
    pub(crate) fn stopped(&self, _: &Stopped<'_>, wait: impl Fn()) -> &T {
        // Acquire: with the Release of `inside`.
        while self.busy.load(Ordering::Acquire) {
            wait();
        }
        &self.of
    }

    /// For its thread at its end, and whoever comes after it.
    pub(crate) fn ended(&mut self) -> &T {
        &self.of
    }
}

/// Interleavings, up to three preemptions, of a thread that keeps and takes, others that gather,
/// and the thread's end, run by loom: `RUSTFLAGS="--cfg loom" cargo test -p freehold-host --lib
/// --release loom_`.
///
/// What is kept is a number in a cell that loom watches: two who are inside and not ordered fail.
#[cfg(all(test, loom))]
mod loom_tests {
    use std::io::Write as _;

    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    type Kept = UnsafeCell<u32>;

    struct World {
        stops: Stops,
        /// Whether the thread has not ended: what the table of slots knows.
        table: Mutex<bool>,
        door: Door<Kept>,
        /// What the allocator has.
        free: AtomicU32,
    }

    fn take(kept: &Kept) -> u32 {
        // SAFETY: loom fails where somebody else is there.
        kept.with_mut(|kept| unsafe { std::mem::take(&mut *kept) })
    }

    impl World {
        fn new(barrier: bool) -> Arc<Self> {
            Arc::new(Self {
                stops: Stops::new(barrier),
                table: Mutex::new(true),
                door: Door::new(UnsafeCell::new(0)),
                free: AtomicU32::new(0),
            })
        }

        fn free(&self, frames: u32) {
            // Relaxed: the allocator orders by itself what somebody finds in it.
            self.free.fetch_add(frames, Ordering::Relaxed);
        }

        /// The thread frees a frame, which it keeps unless it is stopped.
        fn push(&self) {
            let kept = self.door.inside(&self.stops, |kept| {
                self.stops.is_keeping();
                // SAFETY: as in `take`.
                kept.with_mut(|kept| unsafe { *kept += 1 });
            });
            if kept.is_none() {
                self.free(1);
            }
        }

        /// It takes what it keeps.
        fn pop(&self) -> u32 {
            self.door.at_once(&self.stops, take).unwrap_or(0)
        }

        fn end(&self) {
            let mut table = self.table.lock().unwrap();
            // SAFETY: as in `take`; whoever else looks has the table.
            self.free(self.door.of.with_mut(|kept| unsafe { std::mem::take(&mut *kept) }));
            *table = false;
        }

        fn gather(&self, barrier: impl FnOnce()) -> Stopped<'_> {
            let stopped = self.stops.stop(barrier);
            let table = self.table.lock().unwrap();
            if *table {
                self.free(take(self.door.stopped(&stopped, thread::yield_now)));
            }
            drop(table);
            stopped.gathered();
            stopped
        }

        /// Somebody who wants a frame that was free when it began.
        fn request(&self) {
            let seen = self.stops.keeps();
            // Relaxed: as in `free`.
            if self.free.load(Ordering::Relaxed) == 0 {
                assert!(self.stops.kept_since(seen), "refused, though a frame was kept");
                let _stopped = self.gather(full);
                assert_eq!(self.free.load(Ordering::Relaxed), 1);
            }
        }
    }

    fn full() {
        fence(Ordering::SeqCst);
    }

    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3));
        let begun = std::time::Instant::now();
        builder.check(f);
        if builder.max_duration.is_some_and(|most| begun.elapsed() >= most) {
            // Past the harness, which keeps what passing tests print; on a line of its own.
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "\nSKIPPED: {name} beyond LOOM_MAX_DURATION");
        }
    }

    fn exchange_and_gather(barrier: bool, other: fn()) {
        model(move || {
            let world = World::new(barrier);
            let gatherer = {
                let world = Arc::clone(&world);
                thread::spawn(move || drop(world.gather(other)))
            };
            world.push();
            let held = world.pop();
            world.push();
            world.end();
            gatherer.join().unwrap();
            assert_eq!(world.free.load(Ordering::Relaxed) + held, 2);
        });
    }

    #[test]
    fn loom_nothing_is_lost_while_another_gathers_and_the_thread_ends() {
        // Also where each side makes its own fence.
        [true, false].into_iter().for_each(|barrier| exchange_and_gather(barrier, full));
    }

    /// Found: the other side makes no barrier.
    #[test]
    #[should_panic = "Causality violation"]
    fn loom_a_barrier_that_is_not_made_is_found() {
        exchange_and_gather(true, || ());
    }

    /// A frame is kept when two want it, each of whom may have the other gather it.
    #[test]
    fn loom_a_request_that_fails_is_told_what_was_kept_since_it_began() {
        model(|| {
            let world = World::new(true);
            world.push();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.request())
            };
            world.request();
            other.join().unwrap();
        });
    }
}
