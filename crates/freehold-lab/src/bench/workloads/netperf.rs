//! `netperf-like`: the sender's CPU allocates order-3 chunks and writes them, the receiver's reads
//! and frees them.
//!
//! The pattern of netperf's TCP_STREAM over the loopback device, which the 2022 series measured:
//! allocation and free on different CPUs, few pages in flight, unmovable order 3. Freed chunks that
//! wait on the receiver's lists are cold when they are handed out again; the series' last patch
//! gives them back at once and shows by the frames used most often what that does.
//!
//! ```text
//!   CPU 0: allocate 32 KiB, write it ──> [ ring ] ──> CPU 1: read it, free it
//! ```

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::Run;
use super::counting::{Reuse, ring_in_turn};
use crate::bench::backing::{FRAME, Memory};
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::per;
use crate::bench::metric::{About, Metric, metric, ns, with_locks};
use crate::bench::ring::Ring;
use crate::bench::threads::{Rendezvous, from_first_to_last, on_cpus};

/// Chunks in flight. The metrics are nanoseconds of each depth, then different chunks, then uses of
/// the one used most.
const DEPTHS: [usize; 4] = [1, 16, 256, 4096];

const COUNTED: usize = 40_000;

const fn reused(name: &'static str, what: &'static str) -> Metric {
    metric(name, "uses", what)
}

pub const ABOUT: About = About {
    what: "A thread allocates unmovable chunks of 32 KiB (order 3) and writes them, a thread on another CPU reads and \
           frees them; 1 to 4,096 in flight. The different chunks handed out are counted over 40,000 allocations on \
           one thread that plays both CPUs with the ring always full, and how often the chunk used most was.",
    source: "netperf-tcp on localhost as measured in \"Follow-up on high-order PCP caching\" (2022), with its count of \
             the frames used most",
    threads: 2,
    fewest_threads: 2,
    metrics: with_locks![
        ns("ns_per_chunk_depth_1", "a chunk, allocated, written, read and freed; 1 in flight"),
        ns("ns_per_chunk_depth_16", "the same with 16 in flight (512 KiB)"),
        ns("ns_per_chunk_depth_256", "the same with 256 in flight (8 MiB)"),
        ns("ns_per_chunk_depth_4096", "the same with 4,096 in flight (128 MiB)"),
        metric("distinct_chunks_depth_1", "chunks", "different chunks handed out, 1 in flight"),
        metric("distinct_chunks_depth_16", "chunks", "different chunks handed out, 16 in flight"),
        metric("distinct_chunks_depth_256", "chunks", "different chunks handed out, 256 in flight"),
        metric(
            "distinct_chunks_depth_4096",
            "chunks",
            "different chunks handed out, 4,096 in flight"
        ),
        reused("most_reused_depth_1", "times the chunk used most was handed out, 1 in flight"),
        reused("most_reused_depth_16", "times the chunk used most was handed out, 16 in flight"),
        reused("most_reused_depth_256", "times the chunk used most was handed out, 256 in flight"),
        reused(
            "most_reused_depth_4096",
            "times the chunk used most was handed out, 4,096 in flight"
        ),
    ],
};

const ORDER: Order = Order::new(3).unwrap();

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let each = DEPTHS.into_iter().map(|depth| {
        let chunks = (run.scale.chunks).max(2 * depth as u64);
        Ok(per(stream(run.drained(machine), run, memory, depth, chunks)?, chunks))
    });
    Ok(Figures::default().with_all(ABOUT.metrics, each.collect::<Result<Vec<_>, Refused>>()?))
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
    let send = |mut cpu: M::Cpu<'_>| {
        for n in 0..chunks {
            let slot = &ring.empty(n)?[0];
            let pfn = cpu.alloc_unmovable(ORDER)?;
            memory.fill(pfn, n as u8, ORDER.frames() as usize * FRAME);
            // Relaxed: the ring's indexes order it.
            slot.store(pfn.get(), Ordering::Relaxed);
            ring.produced(n);
        }
        Ok(())
    };
    let receive = |mut cpu: M::Cpu<'_>| {
        for n in 0..chunks {
            // Relaxed: as above.
            let pfn = Pfn::new(ring.filled(n)?[0].load(Ordering::Relaxed));
            black_box(memory.sum(pfn, ORDER));
            cpu.free(pfn, ORDER)?;
            ring.consumed(n);
        }
        Ok(())
    };
    let times = on_cpus(
        run.cpus,
        2,
        || ring.abandon(),
        |index| {
            let cpu = machine.cpu(CpuId::new(index));
            start.wait();
            let began = Instant::now();
            if index == 0 {
                send(cpu?).map(|()| began)
            } else {
                receive(cpu?).map(|()| Instant::now())
            }
        },
    )?;
    Ok(from_first_to_last(&times))
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let (mut distinct, mut most, mut meter) = (Vec::new(), Vec::new(), Meter::default());
    for depth in DEPTHS {
        machine.drain();
        let handed_out = meter.part(machine, COUNTED as u64 * ORDER.frames(), || {
            let alloc = |cpu: &mut M::Cpu<'_>| cpu.alloc_unmovable(ORDER);
            ring_in_turn(machine, depth, COUNTED, 1, alloc, |cpu, pfn| cpu.free(pfn, ORDER))
        })?;
        let reuse = Reuse::of(handed_out);
        distinct.push(reuse.distinct as f64);
        most.push(reuse.most as f64);
    }
    let figures = Figures::default()
        .with_all(&ABOUT.metrics[DEPTHS.len()..], distinct.into_iter().chain(most));
    Ok(figures.with_zone_lock(&meter))
}
