//! `many-alloc-few-free` and `few-alloc-many-free`: threads that allocate hand batches to threads
//! that free.
//!
//! What the pcp-buddy proposal argues about: frames whose blocks many CPUs own come home from a few
//! purgers (jemalloc's background threads are the example given), and its reverse, the worst case
//! of ownership, in which one CPU owns everything that all others free.
//!
//! ```text
//!   many allocate:   CPU 0..N-k: allocate, write a line each ──> batches of 1,024 ──> k purgers: free, 31 a call
//!   few allocate:    CPU 0:      allocate, write a line each ──> batches of 1,024 ──> CPUs 1..N: free, 31 a call
//! ```
//!
//! One frame of 64 stays until the end, as some of what a program allocates does: how many
//! pageblocks those few keep from being whole tells how well the rest was put together again.

use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::Run;
use crate::bench::backing::Memory;
use crate::bench::calls::{Calls, FOLIOS, Machine, Refused};
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::per;
use crate::bench::metric::{About, Metric, THREADS, THREADS_METRIC, metric, ns, with_locks};
use crate::bench::threads::{Rendezvous, on_cpus};

const BATCH: usize = 1024;
/// Batches that wait for a thread that frees.
const QUEUE: usize = 8;
/// One frame of so many stays.
const STAYS: usize = 64;
const LINE: usize = 64;

const BLOCKS_LEFT: &str = "blocks_not_whole";
const BLOCKS_LEFT_METRIC: Metric = metric(
    BLOCKS_LEFT,
    "blocks",
    "pageblocks that are not wholly free when all but one frame of 64 has been freed and the CPUs are drained",
);

pub const MANY: About = About {
    what: "Threads on all CPUs but one (two, four) allocate single frames, write a line of each and hand them in batches \
           of 1,024 to one purger (two, four), which frees them, 31 a call. One frame of 64 stays to the end. Each \
           number of purgers is measured where it leaves at least as many allocating threads.",
    source: "the synthetic many-alloc/few-free case of the pcp-buddy proposal (2026), whose code was not published; batches \
             and purgers as jemalloc's background purging",
    threads: 16,
    fewest_threads: 2,
    metrics: with_locks![
        ns("ns_per_frame", "a frame, from its allocation to its free by the only purger, over all threads"),
        ns("ns_per_frame_two_purgers", "the same with two purgers; 4 CPUs and more"),
        ns("ns_per_frame_four_purgers", "the same with four purgers; 8 CPUs and more"),
        BLOCKS_LEFT_METRIC;
        THREADS_METRIC
    ],
};

pub const FEW: About = About {
    what: "One thread allocates single frames, writes a line of each and hands them in batches of 1,024 to the threads \
           on all other CPUs in turn, which free them, 31 a call. One frame of 64 stays to the end.",
    source: "the worst case of ownership as discussed in the pcp-buddy proposal (2026): one CPU allocates for everybody",
    threads: 16,
    fewest_threads: 2,
    metrics: with_locks![
        ns("ns_per_frame", "a frame, from its allocation to its free, over all threads"),
        BLOCKS_LEFT_METRIC;
        THREADS_METRIC
    ],
};

pub fn many_alloc_few_free<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let mut figures = Figures::default();
    let metrics =
        [(1, "ns_per_frame"), (2, "ns_per_frame_two_purgers"), (4, "ns_per_frame_four_purgers")];
    for (purgers, metric) in metrics {
        if run.threads < 2 * purgers {
            break;
        }
        let shape = Shape {
            allocators: run.threads - purgers,
            freers: purgers,
            batches: run.scale.batches_handed,
        };
        let found = hand_off(run.drained(machine), run, shape, metric)?.values.into_iter();
        // What is counted is counted with one purger.
        figures.values.extend(found.filter(|(name, _)| purgers == 1 || *name == metric));
    }
    Ok(figures.with(THREADS, f64::from(run.threads)))
}

pub fn few_alloc_many_free<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let shape = Shape { allocators: 1, freers: run.threads - 1, batches: run.scale.batches_handed };
    Ok(hand_off(machine, run, shape, "ns_per_frame")?.with(THREADS, f64::from(run.threads)))
}

#[derive(Clone, Copy)]
struct Shape {
    allocators: u16,
    freers: u16,
    /// Over all threads.
    batches: u64,
}

/// The time under that metric's name, then what was counted.
fn hand_off<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    shape: Shape,
    metric: &'static str,
) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let mut meter = Meter::default();
    let frames = shape.batches * BATCH as u64;
    let (time, staying) =
        meter.part(machine, frames, || on_threads(machine, run, memory, shape))?;
    let whole = run.drained(machine).free_blocks();
    let blocks_left = whole.map(|whole| (run.frames / 512).saturating_sub(whole) as f64);
    let mut cpu = machine.cpu(CpuId::new(0))?;
    staying.iter().try_for_each(|&pfn| cpu.free(pfn, Order::ZERO))?;
    Ok(Figures::default()
        .with(metric, per(time, frames))
        .with_any(BLOCKS_LEFT, blocks_left)
        .with_zone_lock(&meter))
}

/// What a thread has of the queues.
enum End {
    /// One that allocates: all of them.
    Senders(Vec<SyncSender<Vec<Pfn>>>),
    /// One that frees: its own.
    Receiver(Receiver<Vec<Pfn>>),
}

/// Returns what it took and the frames that stay.
fn on_threads<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    memory: Memory,
    shape: Shape,
) -> Result<(Duration, Vec<Pfn>), Refused> {
    let threads = shape.allocators + shape.freers;
    let start = Rendezvous::new(threads);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..shape.freers).map(|_| sync_channel(QUEUE)).unzip();
    let ends = std::iter::repeat_n(senders, usize::from(shape.allocators)).map(End::Senders);
    let ends: Vec<_> = ends
        .chain(receivers.into_iter().map(End::Receiver))
        .map(|end| Mutex::new(Some(end)))
        .collect();
    // When each thread began, or ended where it frees, and what stays of its frames.
    let work = |index: u16| {
        // Dropped with the thread, whatever ends it: what tells the others that no more will come.
        let end = ends[usize::from(index)].lock().unwrap_or_else(PoisonError::into_inner).take();
        let cpu = machine.cpu(CpuId::new(index));
        start.wait();
        let (began, mut staying) = (Instant::now(), Vec::new());
        let mut cpu = cpu?;
        match end.ok_or(Refused::Abandoned)? {
            End::Senders(senders) => {
                let (allocators, index) = (u64::from(shape.allocators), u64::from(index));
                for n in
                    0..shape.batches / allocators + u64::from(index < shape.batches % allocators)
                {
                    let batch = fill(&mut cpu, memory, &mut staying)?;
                    // Each allocator begins with another purger.
                    send(&senders[(n + index) as usize % senders.len()], batch)?;
                }
                Ok((began, staying))
            }
            End::Receiver(batches) => {
                while let Some(batch) = receive(&batches) {
                    batch.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))?;
                }
                Ok((Instant::now(), staying))
            }
        }
    };
    let (times, staying): (Vec<_>, Vec<_>) =
        on_cpus(run.cpus, threads, || {}, work)?.into_iter().unzip();
    let (began, ended) = times.split_at(usize::from(shape.allocators));
    let time = began.iter().min().zip(ended.iter().max());
    Ok((
        time.map_or(Duration::ZERO, |(began, ended)| ended.saturating_duration_since(*began)),
        staying.concat(),
    ))
}

/// Allocates a batch; a frame of each [`STAYS`] stays, so that a batch is a little less than
/// [`BATCH`].
fn fill<C: Calls>(
    cpu: &mut C,
    memory: Memory,
    staying: &mut Vec<Pfn>,
) -> Result<Vec<Pfn>, Refused> {
    let mut batch = Vec::with_capacity(BATCH);
    for n in 0..BATCH {
        let pfn = cpu.alloc(Order::ZERO)?;
        memory.fill(pfn, n as u8, LINE);
        if n % STAYS == 0 { staying.push(pfn) } else { batch.push(pfn) }
    }
    Ok(batch)
}

/// Sends, spinning: a thread that slept would have to be woken, which takes longer than what is
/// measured.
fn send(to: &SyncSender<Vec<Pfn>>, mut batch: Vec<Pfn>) -> Result<(), Refused> {
    loop {
        batch = match to.try_send(batch) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(batch)) => batch,
            Err(TrySendError::Disconnected(_)) => return Err(Refused::Abandoned),
        };
        give_way();
    }
}

/// The next batch; `None` when all who send have ended.
fn receive(from: &Receiver<Vec<Pfn>>) -> Option<Vec<Pfn>> {
    loop {
        match from.try_recv() {
            Ok(batch) => return Some(batch),
            Err(TryRecvError::Empty) => give_way(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// Leaves the queue's line alone for a moment; the core too, for a machine on which the other
/// thread has lost its own.
fn give_way() {
    (0..64).for_each(|_| spin_loop());
    thread::yield_now();
}
