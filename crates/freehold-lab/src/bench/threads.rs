//! The loops that several threads run, each on a CPU of its own.
//!
//! ```text
//!  producer-consumer    CPU 0: allocate 64 ──> ring of 64 messages ──> CPU 1: free 64
//!  remote-free          CPU 0: allocate all, then CPU 1: free all
//!  two-threads          CPU 0: pairs │ CPU 1: pairs
//!                       CPU 0: churn │ CPU 1: churn
//!  sixteen-threads      CPU 0: pairs │ CPU 1: pairs │ ... │ CPU 15: pairs
//!                       CPU 0: allocate 64 ──> a ring for each, in turn ──> CPUs 1 to 15: free 64
//! ```

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::calls::{Calls, Machine, Refused};
use super::clock::Cpus;
use super::loops::{BULK, alloc_all, each_part, free_all, pairs, per, shuffle};
use super::ring::Ring;
use super::sampler::Sampled;
use super::steady::Churn;
use super::yardstick::wait_until;

const FIRST: CpuId = CpuId::new(0);
const SECOND: CpuId = CpuId::new(1);

/// Messages that the rings hold unless said otherwise.
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

/// Fills `count` messages, each ring's in turn.
#[inline(never)]
fn produce<C: Calls>(
    rings: &[Ring<BULK>],
    cpu: &mut C,
    count: u64,
    bulk: bool,
) -> Result<(), Refused> {
    let mut turns = rings.iter().cycle();
    // Messages so far in each ring, and how many rings are one ahead.
    let (mut n, mut ahead) = (0, 0);
    for _ in 0..count {
        let Some(ring) = turns.next() else { return Ok(()) };
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
        ahead += 1;
        if ahead == rings.len() {
            (n, ahead) = (n + 1, 0);
        }
    }
    Ok(())
}

/// Nanoseconds a frame from the start of the first message to the end of the last free, rings
/// included: one CPU allocates and so many others free, each with a ring of `depth` messages; the
/// messages go to them in turn.
pub fn through_rings<M: Machine>(
    machine: &M,
    cpus: &Cpus,
    messages: u64,
    (freers, depth): (u16, usize),
    bulk: bool,
) -> Result<f64, Refused> {
    let rings: Vec<Ring<BULK>> = (0..freers).map(|_| Ring::new(depth)).collect();
    let start = Rendezvous::new(freers + 1);
    let work = |index: u16| {
        let cpu = machine.cpu(CpuId::new(index));
        start.wait();
        let began = Instant::now();
        let Some(freer) = index.checked_sub(1) else {
            produce(&rings, &mut cpu?, messages, bulk)?;
            return Ok(began);
        };
        let count = messages / u64::from(freers)
            + u64::from(u64::from(freer) < messages % u64::from(freers));
        consume(&rings[usize::from(freer)], &mut cpu?, count, bulk)?;
        Ok(Instant::now())
    };
    let times = on_cpus(cpus, freers + 1, || rings.iter().for_each(Ring::abandon), work)?;
    Ok(per(from_first_to_last(&times), messages * BULK as u64))
}

/// From when the first thread began to when the last of the others ended.
pub(super) fn from_first_to_last(times: &[Instant]) -> Duration {
    let ended = times[1..].iter().max().unwrap_or(&times[0]);
    ended.saturating_duration_since(times[0])
}

/// Nanoseconds a free, of the thread that frees, in order of addresses or scattered by a seed,
/// [`BULK`] a call where that is wanted: `n` frames that the other CPU allocated.
pub fn remote_free<M: Machine>(
    machine: &M,
    cpus: &Cpus,
    n: usize,
    scattered: Option<u64>,
    bulk: bool,
) -> Result<Sampled, Refused> {
    cpus.pin(0);
    let mut frames = vec![Pfn::default(); n];
    // Kept to the end: the holder is there while others free into its blocks.
    let mut holder = machine.cpu(FIRST)?;
    alloc_all(&mut holder, &mut frames)?;
    match scattered {
        Some(seed) => shuffle(&mut frames, seed),
        None => frames.sort_unstable(),
    }
    let found = on_cpus(
        cpus,
        2,
        || {},
        |index| {
            if index == 0 {
                return Ok(None);
            }
            let mut cpu = machine.cpu(SECOND)?;
            let freed = if bulk {
                each_part(n, BULK, &mut |part| {
                    frames[part].chunks(BULK).try_for_each(|chunk| cpu.free_bulk(black_box(chunk)))
                })
            } else {
                each_part(n, 1, &mut |part| free_all(&mut cpu, frames[part].iter()))
            };
            freed.map(Some)
        },
    )?;
    drop(holder);
    found.into_iter().flatten().next().ok_or(Refused::Abandoned)
}

/// Nanoseconds a pair: of one thread alone, and of the slowest of several that run at the same
/// time.
pub fn independent<M: Machine>(
    machine: &M,
    cpus: &Cpus,
    threads: u16,
    n: u64,
) -> Result<(f64, f64), Refused> {
    let alone = {
        cpus.pin(0);
        let mut cpu = machine.cpu(FIRST)?;
        pairs::<_, 0>(&mut cpu, n / 16 + 1)?;
        // By the wall, as of several.
        let start = Instant::now();
        pairs::<_, 0>(black_box(&mut cpu), n)?;
        start.elapsed()
    };
    let warm_up = |cpu: &mut M::Cpu<'_>, _| pairs::<_, 0>(cpu, n / 16 + 1);
    let work = |cpu: &mut M::Cpu<'_>, (): &mut (), n| pairs::<_, 0>(cpu, n);
    let slowest = side_by_side(machine, cpus, (threads, n), warm_up, work, |_, ()| Ok(()))?;
    Ok((per(alone, n), per(slowest, n)))
}

/// Nanoseconds a step of the slower of two threads that churn at the same time, each with so many
/// frames of its own.
pub fn churning<M: Machine>(
    machine: &M,
    cpus: &Cpus,
    frames: u64,
    steps: u64,
) -> Result<f64, Refused> {
    let start = |cpu: &mut M::Cpu<'_>, index| {
        let mut churn = Churn::<0>::start(cpu, frames, 1 + u64::from(index))?;
        churn.steps(cpu, frames)?;
        Ok(churn)
    };
    let work = |cpu: &mut M::Cpu<'_>, churn: &mut Churn<0>, n| churn.steps(cpu, n);
    let slower = side_by_side(machine, cpus, (2, steps), start, work, |cpu, churn| churn.end(cpu))?;
    Ok(per(slower, steps))
}

/// What the slowest of several threads takes for `n` steps of the same work, each on a CPU and with
/// a state of its own. Each goes on until all have been timed, so that none is timed beside an idle
/// core.
fn side_by_side<'m, M: Machine, S>(
    machine: &'m M,
    cpus: &Cpus,
    (threads, n): (u16, u64),
    prepare: impl Fn(&mut M::Cpu<'m>, u16) -> Result<S, Refused> + Sync,
    work: impl Fn(&mut M::Cpu<'m>, &mut S, u64) -> Result<(), Refused> + Sync,
    end: impl Fn(&mut M::Cpu<'m>, S) -> Result<(), Refused> + Sync,
) -> Result<Duration, Refused> {
    let start = Rendezvous::new(threads);
    // Relaxed throughout: a count that carries nothing. Whoever fails counts as all.
    let (finished, all) = (AtomicU32::new(0), u32::from(threads));
    let give_up = || _ = finished.fetch_add(all, Ordering::Relaxed);
    let times = on_cpus(cpus, threads, give_up, |index| {
        let ready = machine.cpu(CpuId::new(index)).and_then(|mut cpu| {
            let state = prepare(&mut cpu, index)?;
            Ok((cpu, state))
        });
        start.wait();
        let (mut cpu, mut state) = ready?;
        let began = Instant::now();
        work(black_box(&mut cpu), &mut state, n)?;
        let time = began.elapsed();
        finished.fetch_add(1, Ordering::Relaxed);
        while finished.load(Ordering::Relaxed) < all {
            work(&mut cpu, &mut state, 64)?;
        }
        end(&mut cpu, state)?;
        Ok(time)
    })?;
    Ok(times.into_iter().max().unwrap_or_default())
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
