//! The loops that two threads run, each on a CPU of its own.
//!
//! ```text
//!  producer-consumer    CPU 0: allocate 64 ──> ring of 64 messages ──> CPU 1: free 64
//!  remote-free          CPU 0: allocate all, then CPU 1: free all
//!  two-threads          CPU 0: pairs │ CPU 1: pairs
//! ```

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::calls::{Calls, Machine, Refused};
use super::clock::{Cpus, timed};
use super::loops::{BULK, alloc_all, free_all, pairs, per, shuffle};
use super::yardstick::{Line, wait_until};

const FIRST: CpuId = CpuId::new(0);
const SECOND: CpuId = CpuId::new(1);

/// Messages that the ring holds.
const RING: usize = 64;

/// One producer, one consumer. Each index has its line; a slot is written before `head` passes it and read before
/// `tail` does.
///
/// ```text
///   tail ──> oldest message not yet freed        head ──> next to be filled
/// ```
struct Ring {
    head: Line,
    tail: Line,
    messages: Vec<Message>,
    /// One of the threads has given up.
    abandoned: AtomicBool,
}

#[repr(align(64))]
struct Message([AtomicU64; BULK]);

impl Ring {
    fn new() -> Self {
        Self {
            head: Line::default(),
            tail: Line::default(),
            messages: (0..RING).map(|_| Message(std::array::from_fn(|_| AtomicU64::new(0)))).collect(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Tells the other thread where this one failed.
    fn or_abandon<T>(&self, result: Result<T, Refused>) -> Result<T, Refused> {
        if result.is_err() {
            self.abandon();
        }
        result
    }

    fn abandon(&self) {
        // Relaxed: a flag that carries nothing.
        self.abandoned.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn wait(&self, done: impl Fn() -> bool) -> Result<(), Refused> {
        if done() {
            return Ok(());
        }
        // Relaxed: as in `abandon`.
        wait_until(|| done() || self.abandoned.load(Ordering::Relaxed));
        if done() { Ok(()) } else { Err(Refused::Abandoned) }
    }

    #[inline(never)]
    fn produce<C: Calls>(&self, cpu: &mut C, count: u64, bulk: bool) -> Result<(), Refused> {
        for n in 0..count {
            // Acquire: the consumer has read the slots that are filled again.
            self.wait(|| n - self.tail.0.load(Ordering::Acquire) < RING as u64)?;
            let message = &self.messages[n as usize % RING].0;
            // Relaxed slots: `head` orders them.
            if bulk {
                let mut frames = [Pfn::default(); BULK];
                cpu.alloc_bulk(&mut frames)?;
                message.iter().zip(frames).for_each(|(slot, pfn)| slot.store(pfn.get(), Ordering::Relaxed));
            } else {
                for slot in message {
                    slot.store(cpu.alloc(Order::ZERO)?.get(), Ordering::Relaxed);
                }
            }
            // Release: the slots are filled.
            self.head.0.store(n + 1, Ordering::Release);
        }
        Ok(())
    }

    #[inline(never)]
    fn consume<C: Calls>(&self, cpu: &mut C, count: u64, bulk: bool) -> Result<(), Refused> {
        for n in 0..count {
            // Acquire: the slots are filled.
            self.wait(|| self.head.0.load(Ordering::Acquire) > n)?;
            let message = &self.messages[n as usize % RING].0;
            // Relaxed slots: `head` orders them. Release of `tail`: the slots have been read.
            if bulk {
                let frames: [Pfn; BULK] = std::array::from_fn(|i| Pfn::new(message[i].load(Ordering::Relaxed)));
                self.tail.0.store(n + 1, Ordering::Release);
                cpu.free_bulk(&frames)?;
            } else {
                for slot in message {
                    cpu.free(Pfn::new(slot.load(Ordering::Relaxed)), Order::ZERO)?;
                }
                self.tail.0.store(n + 1, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// Nanoseconds a frame from the start of the first message to the end of the last free, ring included.
///
/// # Errors
///
/// Where the engine refuses.
pub fn producer_consumer<M: Machine>(machine: &M, cpus: &Cpus, messages: u64, bulk: bool) -> Result<f64, Refused> {
    let ring = Ring::new();
    let start = Rendezvous::new(2);
    let (produced, consumed) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            cpus.pin(1);
            let _guard = OnPanic(|| ring.abandon());
            let cpu = machine.cpu(SECOND);
            start.wait();
            ring.or_abandon(cpu.and_then(|mut cpu| {
                ring.consume(&mut cpu, messages, bulk)?;
                Ok(Instant::now())
            }))
        });
        let _guard = OnPanic(|| ring.abandon());
        cpus.pin(0);
        let cpu = machine.cpu(FIRST);
        start.wait();
        let began = Instant::now();
        let produced = ring.or_abandon(cpu.and_then(|mut cpu| ring.produce(&mut cpu, messages, bulk)));
        (produced.map(|()| began), joined(consumer))
    });
    match (produced, consumed) {
        // What made one give up is what to report, not that the other noticed.
        (Err(Refused::Abandoned), Err(error)) | (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(began), Ok(ended)) => Ok(per(ended.saturating_duration_since(began), messages * BULK as u64)),
    }
}

/// Nanoseconds a free, of the thread that frees: `n` frames that the other CPU allocated, in rising order or
/// scattered.
///
/// # Errors
///
/// Where the engine refuses.
pub fn remote_free<M: Machine>(machine: &M, cpus: &Cpus, n: usize, scattered: Option<u64>) -> Result<f64, Refused> {
    cpus.pin(0);
    let mut frames = vec![Pfn::default(); n];
    // Kept to the end: the holder is there while others free into its blocks.
    let mut holder = machine.cpu(FIRST)?;
    alloc_all(&mut holder, &mut frames)?;
    match scattered {
        Some(seed) => shuffle(&mut frames, seed),
        None => frames.sort_unstable(),
    }
    let time = thread::scope(|scope| {
        joined(scope.spawn(|| {
            cpus.pin(1);
            let mut cpu = machine.cpu(SECOND)?;
            timed(|| free_all(&mut cpu, frames.iter()))
        }))
    })?;
    drop(holder);
    Ok(per(time, n as u64))
}

/// Nanoseconds a pair: of one thread alone, and of the slower of two that run at the same time.
///
/// # Errors
///
/// Where the engine refuses.
pub fn two_threads<M: Machine>(machine: &M, cpus: &Cpus, n: u64) -> Result<(f64, f64), Refused> {
    let alone = {
        cpus.pin(0);
        let mut cpu = machine.cpu(FIRST)?;
        pairs::<_, 0>(&mut cpu, n / 16 + 1)?;
        pairs_by_the_wall(&mut cpu, n)?
    };
    let start = Rendezvous::new(2);
    // Each goes on until both have been timed, so that neither is timed beside an idle core.
    let still = AtomicU32::new(2);
    let one = |index: usize, id: CpuId| {
        let _guard = OnPanic(|| still.store(0, Ordering::Relaxed));
        cpus.pin(index);
        let cpu = machine.cpu(id);
        start.wait();
        let time = cpu.and_then(|mut cpu| {
            pairs::<_, 0>(&mut cpu, n / 16 + 1)?;
            let time = pairs_by_the_wall(&mut cpu, n);
            // Relaxed: a count that carries nothing.
            still.fetch_sub(1, Ordering::Relaxed);
            while time.is_ok() && still.load(Ordering::Relaxed) > 0 {
                pairs::<_, 0>(&mut cpu, 64)?;
            }
            time
        });
        if time.is_err() {
            still.store(0, Ordering::Relaxed);
        }
        time
    };
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| one(1, SECOND));
        (one(0, FIRST), joined(other))
    });
    let slower = first?.max(second?);
    Ok((per(alone, n), per(slower, n)))
}

fn pairs_by_the_wall<C: Calls>(cpu: &mut C, n: u64) -> Result<Duration, Refused> {
    let start = Instant::now();
    pairs::<_, 0>(black_box(cpu), n)?;
    Ok(start.elapsed())
}

/// Threads that begin together: unlike a `Barrier` nobody sleeps in it, so that nobody has to be woken while the other
/// already runs.
struct Rendezvous {
    missing: AtomicU32,
}

impl Rendezvous {
    fn new(threads: u32) -> Self {
        Self { missing: AtomicU32::new(threads) }
    }

    fn wait(&self) {
        // AcqRel and Acquire: what each did before is seen by all after.
        self.missing.fetch_sub(1, Ordering::AcqRel);
        wait_until(|| self.missing.load(Ordering::Acquire) == 0);
    }
}

/// Lets the other thread go on, so that it can be joined, where this one panics.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

/// A panic of the thread goes on in this one.
fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
