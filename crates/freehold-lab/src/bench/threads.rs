//! The loops that several threads run, each on a CPU of its own.
//!
//! ```text
//!  producer-consumer    CPU 0: allocate 64 ──> ring of 64 messages ──> CPU 1: free 64
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use freehold::{CpuId, Order, Pfn};

use super::calls::{Calls, Machine, Refused};
use super::clock::Cpus;
use super::loops::{BULK, per};
use super::ring::Ring;
use super::yardstick::wait_until;

/// Messages that the ring holds unless said otherwise.
pub(super) const RING: usize = 64;

#[inline(never)]
fn consume<C: Calls>(
    ring: &Ring<BULK>,
    cpu: &mut C,
    count: u64,
    bulk: bool,
) -> Result<(), Refused> {
    for n in 0..count {
        let message = ring.filled(n)?;
        // Relaxed slots: the ring's indexes order them.
        if bulk {
            let frames: [Pfn; BULK] =
                std::array::from_fn(|i| Pfn::new(message[i].load(Ordering::Relaxed)));
            ring.consumed(n);
            cpu.free_bulk(&frames)?;
        } else {
            for slot in message {
                cpu.free(Pfn::new(slot.load(Ordering::Relaxed)), Order::ZERO)?;
            }
            ring.consumed(n);
        }
    }
    Ok(())
}

#[inline(never)]
fn produce<C: Calls>(
    ring: &Ring<BULK>,
    cpu: &mut C,
    count: u64,
    bulk: bool,
) -> Result<(), Refused> {
    for n in 0..count {
        let message = ring.empty(n)?;
        // Relaxed slots: the ring's indexes order them.
        if bulk {
            let mut frames = [Pfn::default(); BULK];
            cpu.alloc_bulk(&mut frames)?;
            message
                .iter()
                .zip(frames)
                .for_each(|(slot, pfn)| slot.store(pfn.get(), Ordering::Relaxed));
        } else {
            for slot in message {
                slot.store(cpu.alloc(Order::ZERO)?.get(), Ordering::Relaxed);
            }
        }
        ring.produced(n);
    }
    Ok(())
}

/// Nanoseconds a frame from the start of the first message to the end of the last free, the ring of
/// `depth` messages included: one CPU allocates, another frees.
pub fn through_ring<M: Machine>(
    machine: &M,
    cpus: &Cpus,
    messages: u64,
    depth: usize,
    bulk: bool,
) -> Result<f64, Refused> {
    let ring: Ring<BULK> = Ring::new(depth);
    let start = Rendezvous::new(2);
    let work = |index: u16| {
        let cpu = machine.cpu(CpuId::new(index));
        start.wait();
        let began = Instant::now();
        if index == 0 {
            produce(&ring, &mut cpu?, messages, bulk).map(|()| began)
        } else {
            consume(&ring, &mut cpu?, messages, bulk).map(|()| Instant::now())
        }
    };
    let times = on_cpus(cpus, 2, || ring.abandon(), work)?;
    Ok(per(times[1].saturating_duration_since(times[0]), messages * BULK as u64))
}

/// Does `work` on so many CPUs at once, each by a thread that stays there, the first by this one:
/// what each has found. Where one fails or panics, `give_up` lets the others go on, so that they
/// can be joined.
pub(super) fn on_cpus<T: Send + Sync>(
    cpus: &Cpus,
    threads: u16,
    give_up: impl Fn() + Sync,
    work: impl Fn(u16) -> Result<T, Refused> + Sync,
) -> Result<Vec<T>, Refused> {
    let found: Vec<OnceLock<Result<T, Refused>>> = (0..threads).map(|_| OnceLock::new()).collect();
    beside(threads, &|index| {
        cpus.pin(usize::from(index));
        let _guard = OnPanic(&give_up);
        let result = work(index).inspect_err(|_| give_up());
        assert!(found[usize::from(index)].set(result).is_ok(), "CPU {index} has worked twice");
    });
    let found: Vec<Result<T, Refused>> =
        found.into_iter().filter_map(OnceLock::into_inner).collect();
    // What made a thread give up is what to report, not that the others noticed.
    let refusals = || found.iter().filter_map(|found| found.as_ref().err());
    match refusals().find(|&&refused| refused != Refused::Abandoned) {
        Some(&cause) => Err(cause),
        None => found.into_iter().collect(),
    }
}

/// Does `work` on so many threads at once, the first of them this one. Not generic: threads are
/// much to compile for each of an engine's workloads.
fn beside(threads: u16, work: &(dyn Fn(u16) + Sync)) {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|index| scope.spawn(move || work(index))).collect();
        work(0);
        others.into_iter().for_each(joined);
    });
}

/// Threads that begin together: unlike a `Barrier` nobody sleeps in it, so that nobody has to be
/// woken while the other already runs.
pub(super) struct Rendezvous {
    missing: AtomicU32,
}

impl Rendezvous {
    pub(super) fn new(threads: u16) -> Self {
        Self { missing: AtomicU32::new(threads.into()) }
    }

    pub(super) fn wait(&self) {
        // AcqRel and Acquire: what each did before is seen by all after.
        self.missing.fetch_sub(1, Ordering::AcqRel);
        wait_until(|| self.missing.load(Ordering::Acquire) == 0);
    }
}

/// Lets the other threads go on, so that they can be joined, where this one panics.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

/// A panic of the thread goes on in this one.
pub(super) fn joined<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
