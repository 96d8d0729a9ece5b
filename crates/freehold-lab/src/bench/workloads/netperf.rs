//! `netperf-like`: the sender's CPU allocates order-3 chunks and writes them, the receiver's reads and frees them.
//!
//! The pattern of netperf's TCP_STREAM over the loopback device, which the 2022 thread measured: allocation and free on
//! different CPUs, few pages in flight, unmovable order 3. Freed chunks that wait on the receiver's lists are cold when
//! they are handed out again; the thread's last patch gives them back at once and shows by the frames used most often
//! what that does.
//!
//! ```text
//!   CPU 0: allocate 32 KiB, write it ──> [ ring ] ──> CPU 1: read it, free it
//! ```

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::Run;
use super::counting::{Reuse, ring_in_turn};
use crate::bench::backing::{FRAME, Memory};
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::catalogue::{About, GROUP_LOCKS_METRIC, Metric, ZONE_LOCKS_METRIC, ZONE_WORK_METRIC, counted, ns};
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::per;
use crate::bench::ring::Ring;
use crate::bench::threads::{OnPanic, Rendezvous, first_refusal, joined};

/// Chunks in flight, and the metrics of each depth: nanoseconds, different chunks, uses of the one used most.
const DEPTHS: [(usize, [&str; 3]); 4] = [
    (1, ["ns_per_chunk_depth_1", "distinct_chunks_depth_1", "most_reused_depth_1"]),
    (16, ["ns_per_chunk_depth_16", "distinct_chunks_depth_16", "most_reused_depth_16"]),
    (256, ["ns_per_chunk_depth_256", "distinct_chunks_depth_256", "most_reused_depth_256"]),
    (4096, ["ns_per_chunk_depth_4096", "distinct_chunks_depth_4096", "most_reused_depth_4096"]),
];

/// Chunks in a counting pass of each depth.
const COUNTED: usize = 40_000;

const fn reused(name: &'static str, what: &'static str) -> Metric {
    counted(name, "uses", what)
}

pub const ABOUT: About = About {
    name: "netperf-like",
    what: "A thread allocates unmovable chunks of 32 KiB (order 3) and writes them, a thread on another CPU reads and \
           frees them; 1 to 4,096 in flight. The different chunks handed out are counted over 40,000 allocations on \
           one thread that plays both CPUs with the ring always full, and how often the chunk used most was.",
    source: "netperf-tcp on localhost as measured in \"Follow-up on high-order PCP caching\" (2022), with its count of \
             the frames used most",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns("ns_per_chunk_depth_1", "a chunk, allocated, written, read and freed; 1 in flight"),
        ns("ns_per_chunk_depth_16", "the same with 16 in flight (512 KiB)"),
        ns("ns_per_chunk_depth_256", "the same with 256 in flight (8 MiB)"),
        ns("ns_per_chunk_depth_4096", "the same with 4,096 in flight (128 MiB)"),
        counted("distinct_chunks_depth_1", "chunks", "different chunks handed out, 1 in flight"),
        counted("distinct_chunks_depth_16", "chunks", "different chunks handed out, 16 in flight"),
        counted("distinct_chunks_depth_256", "chunks", "different chunks handed out, 256 in flight"),
        counted("distinct_chunks_depth_4096", "chunks", "different chunks handed out, 4,096 in flight"),
        reused("most_reused_depth_1", "times the chunk used most was handed out, 1 in flight"),
        reused("most_reused_depth_16", "times the chunk used most was handed out, 16 in flight"),
        reused("most_reused_depth_256", "times the chunk used most was handed out, 256 in flight"),
        reused("most_reused_depth_4096", "times the chunk used most was handed out, 4,096 in flight"),
        ZONE_LOCKS_METRIC,
        GROUP_LOCKS_METRIC,
        ZONE_WORK_METRIC,
    ],
};

const ORDER: Order = Order::new(3).unwrap();

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let mut figures = Figures::default();
    for (depth, [metric, ..]) in DEPTHS {
        run.cpus.pin(0);
        machine.drain();
        let chunks = (run.scale.chunks).max(2 * depth as u64);
        figures = figures.with(metric, per(stream(machine, run, memory, depth, chunks)?, chunks));
    }
    Ok(figures)
}

fn stream<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    memory: Memory,
    depth: usize,
    chunks: u64,
) -> Result<Duration, Refused> {
    let ring: Ring<1> = Ring::new(depth);
    let start = Rendezvous::new(2);
    let receive = || {
        run.cpus.pin(1);
        let _guard = OnPanic(|| ring.abandon());
        let cpu = machine.cpu(CpuId::new(1));
        start.wait();
        let received = cpu.and_then(|mut cpu| {
            for n in 0..chunks {
                // Relaxed: the ring's indexes order it.
                let pfn = Pfn::new(ring.filled(n)?[0].load(Ordering::Relaxed));
                black_box(memory.sum(pfn, ORDER));
                cpu.free(pfn, ORDER)?;
                ring.consumed(n);
            }
            Ok(Instant::now())
        });
        received.inspect_err(|_| ring.abandon())
    };
    let (sent, received) = thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        run.cpus.pin(0);
        let _guard = OnPanic(|| ring.abandon());
        let cpu = machine.cpu(CpuId::new(0));
        start.wait();
        let began = Instant::now();
        let sent = cpu.and_then(|mut cpu| {
            for n in 0..chunks {
                let slot = &ring.empty(n)?[0];
                let pfn = cpu.alloc_unmovable(ORDER)?;
                memory.fill(pfn, n as u8, ORDER.frames() as usize * FRAME);
                // Relaxed: as above.
                slot.store(pfn.get(), Ordering::Relaxed);
                ring.produced(n);
            }
            Ok(began)
        });
        (sent.inspect_err(|_| ring.abandon()), joined(receiver))
    });
    first_refusal(sent.as_ref().err().into_iter().chain(received.as_ref().err()))?;
    Ok(received?.saturating_duration_since(sent?))
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let mut figures = Figures::default();
    let mut meter = Meter::default();
    for (depth, [_, distinct, most]) in DEPTHS {
        machine.drain();
        let handed_out = meter.part(machine, COUNTED as u64 * ORDER.frames(), || {
            let alloc = |cpu: &mut M::Cpu<'_>| cpu.alloc_unmovable(ORDER);
            ring_in_turn(machine, depth, COUNTED, 1, alloc, |cpu, pfn| cpu.free(pfn, ORDER))
        })?;
        let reuse = Reuse::of(handed_out);
        figures = figures.with(distinct, reuse.distinct as f64).with(most, reuse.most as f64);
    }
    Ok(figures.with_zone_lock(&meter))
}
