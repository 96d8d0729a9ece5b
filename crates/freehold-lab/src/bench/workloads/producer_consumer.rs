//! `producer-consumer`: one CPU allocates, another frees, through a ring.
//!
//! What depends on the ring's depth is how many frames are in use at once, and so whether the
//! frames that come back are still in a cache. The 2022 series looked at it by counting how often
//! the same frames are handed out again; an engine that lets freed frames wait on the consumer's
//! CPU uses more different ones than are in flight.
//!
//! ```text
//!   CPU 0: allocate 64 ──> [ ring of 1 to 4,096 messages ] ──> CPU 1: free 64
//! ```

use freehold::Order;

use super::Run;
use super::counting::{Reuse, ring_in_turn};
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::BULK;
use crate::bench::metric::{About, Metric, ZONE_LOCKS, metric, ns, with_locks};
use crate::bench::threads;

/// Depths of the ring, in messages, and the metrics of each: nanoseconds a frame (that of 64 is
/// `ns_per_frame`), and different frames handed out.
const DEPTHS: [(usize, Option<&str>, &str); 6] = [
    (1, Some("ns_per_frame_depth_1"), "distinct_frames_depth_1"),
    (16, Some("ns_per_frame_depth_16"), "distinct_frames_depth_16"),
    (64, None, "distinct_frames_depth_64"),
    (256, Some("ns_per_frame_depth_256"), "distinct_frames_depth_256"),
    (1024, Some("ns_per_frame_depth_1024"), "distinct_frames_depth_1024"),
    (4096, Some("ns_per_frame_depth_4096"), "distinct_frames_depth_4096"),
];

/// Chunks of order 3 in flight one by one, and their metrics: different chunks handed out, and how
/// often the one used most was.
const CHUNKS: [(usize, &str, &str); 2] = [
    (1, "distinct_chunks_depth_1", "most_reused_depth_1"),
    (16, "distinct_chunks_depth_16", "most_reused_depth_16"),
];
/// What netperf's socket buffers are.
const CHUNK: Order = Order::new(3).unwrap();
pub const CHUNK_LOCKS: &str = "zone_lock_acquisitions_per_1000_frames_of_chunks";
/// Chunks handed out at each depth.
const COUNTED: usize = 40_000;

const fn distinct(name: &'static str, what: &'static str) -> Metric {
    metric(name, "frames", what)
}

pub const ABOUT: About = About {
    what: "A thread allocates single frames, a thread on another CPU frees them; messages of 64 \
           frames go through a \
           ring of 1 to 4,096 messages with one producer and one consumer. The different frames \
           handed out, and work \
           under zone locks, are counted on one thread that plays both CPUs with the ring always \
           full; so is the reuse \
           of unmovable chunks of order 3, one a message, 40,000 in all.",
    source: "network receive paths, and the frees on another CPU in the recorded traces; reuse of \
             frames as metric in \
             \"Follow-up on high-order PCP caching\" (2022); xmalloc-test of malloc families",
    threads: 2,
    fewest_threads: 2,
    metrics: with_locks![
        ns(
            "ns_per_frame",
            "a frame, from its allocation to its free, by single calls; ring of 64 messages \
             included"
        ),
        ns("ns_per_frame_bulk", "the same by bulk calls of 64"),
        ns("ns_per_frame_depth_1", "by single calls with a ring of 1 message: 64 frames in flight"),
        ns("ns_per_frame_depth_16", "with a ring of 16 messages: 1,024 frames in flight"),
        ns("ns_per_frame_depth_256", "with a ring of 256 messages: 16,384 frames in flight"),
        ns("ns_per_frame_depth_1024", "with a ring of 1,024 messages: 65,536 frames in flight"),
        ns(
            "ns_per_frame_depth_4096",
            "with a ring of 4,096 messages: 262,144 frames (1 GiB) in flight"
        ),
        distinct("distinct_frames_depth_1", "different frames handed out, 64 in flight"),
        distinct("distinct_frames_depth_16", "different frames handed out, 1,024 in flight"),
        distinct("distinct_frames_depth_64", "different frames handed out, 4,096 in flight"),
        distinct("distinct_frames_depth_256", "different frames handed out, 16,384 in flight"),
        distinct("distinct_frames_depth_1024", "different frames handed out, 65,536 in flight"),
        distinct("distinct_frames_depth_4096", "different frames handed out, 262,144 in flight"),
        metric("distinct_chunks_depth_1", "chunks", "different chunks of order 3, 1 in flight"),
        metric("distinct_chunks_depth_16", "chunks", "different chunks of order 3, 16 in flight"),
        metric("most_reused_depth_1", "uses", "of the chunk of order 3 used most, 1 in flight"),
        metric("most_reused_depth_16", "uses", "of the chunk of order 3 used most, 16 in flight"),
        metric(
            CHUNK_LOCKS,
            "acquisitions",
            "zone-lock acquisitions for each 1,000 frames of these chunks; engines that count them"
        ),
    ],
};

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let through = |messages, depth, bulk| {
        threads::through_ring(run.drained(machine), run.cpus, messages, depth, bulk)
    };
    let messages = run.scale.messages;
    let mut figures = Figures::default()
        .with("ns_per_frame", through(messages, threads::RING, false)?)
        .with("ns_per_frame_bulk", through(messages, threads::RING, true)?);
    for (depth, metric, _) in DEPTHS {
        let Some(metric) = metric else { continue };
        // A deep ring has to fill before its depth means anything.
        figures =
            figures.with(metric, through((messages / 4).max(2 * depth as u64), depth, false)?);
    }
    Ok(figures)
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let mut figures = Figures::default();
    let mut meter = Meter::default();
    for (depth, _, metric) in DEPTHS {
        machine.drain();
        let messages = 2 * depth + 1024;
        let handed_out = meter.part(machine, (messages * BULK) as u64, || {
            let alloc = |cpu: &mut M::Cpu<'_>| cpu.alloc(Order::ZERO);
            ring_in_turn(machine, depth, messages, BULK, alloc, |cpu, pfn| {
                cpu.free(pfn, Order::ZERO)
            })
        })?;
        figures = figures.with(metric, Reuse::of(handed_out).distinct as f64);
    }
    figures = figures.with_zone_lock(&meter);
    let mut meter = Meter::default();
    for (depth, distinct, most) in CHUNKS {
        machine.drain();
        let handed_out = meter.part(machine, COUNTED as u64 * CHUNK.frames(), || {
            let alloc = |cpu: &mut M::Cpu<'_>| cpu.alloc_unmovable(CHUNK);
            ring_in_turn(machine, depth, COUNTED, 1, alloc, |cpu, pfn| cpu.free(pfn, CHUNK))
        })?;
        let reuse = Reuse::of(handed_out);
        figures = figures.with(distinct, reuse.distinct as f64).with(most, reuse.most as f64);
    }
    match Figures::default().with_zone_lock(&meter).get(ZONE_LOCKS) {
        Some(locks) => Ok(figures.with(CHUNK_LOCKS, locks)),
        None => Ok(figures),
    }
}
