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

use freehold::{CpuId, Order, Pfn};

use super::Run;
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::loops::{alloc_all, free_all};
use crate::bench::metric::{About, metric, ns};
use crate::bench::threads;

/// Depths of the ring, in messages, and the metric of each but 64, which is `ns_per_frame`:
/// nanoseconds a frame.
const DEPTHS: [(usize, &str); 5] = [
    (1, "ns_per_frame_depth_1"),
    (16, "ns_per_frame_depth_16"),
    (256, "ns_per_frame_depth_256"),
    (1024, "ns_per_frame_depth_1024"),
    (4096, "ns_per_frame_depth_4096"),
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
/// Single frames that one CPU has allocated and another one freed before: 1 GiB.
const USED: usize = 1 << 18;
/// Chunks handed out at each depth.
const COUNTED: usize = 40_000;

pub const ABOUT: About = About {
    what: "A thread allocates single frames, a thread on another CPU frees them; messages of 64 \
           frames go through a \
           ring of 1 to 4,096 messages with one producer and one consumer. The reuse of unmovable \
           chunks of order 3, one a message, 40,000 in all, is counted on one thread that plays \
           both CPUs with the ring always full.",
    source: "network receive paths, and the frees on another CPU in the recorded traces; reuse of \
             frames as metric in \
             \"Follow-up on high-order PCP caching\" (2022); xmalloc-test of malloc families",
    threads: 2,
    fewest_threads: 2,
    metrics: &[
        ns(
            "ns_per_frame",
            "a frame, from its allocation to its free, by single calls; ring of 64 messages \
             included",
        ),
        ns("ns_per_frame_bulk", "the same by bulk calls of 64"),
        ns("ns_per_frame_depth_1", "by single calls with a ring of 1 message: 64 frames in flight"),
        ns("ns_per_frame_depth_16", "with a ring of 16 messages: 1,024 frames in flight"),
        ns("ns_per_frame_depth_256", "with a ring of 256 messages: 16,384 frames in flight"),
        ns("ns_per_frame_depth_1024", "with a ring of 1,024 messages: 65,536 frames in flight"),
        ns(
            "ns_per_frame_depth_4096",
            "with a ring of 4,096 messages: 262,144 frames (1 GiB) in flight",
        ),
        metric("distinct_chunks_depth_1", "chunks", "different chunks of order 3, 1 in flight"),
        metric("distinct_chunks_depth_16", "chunks", "different chunks of order 3, 16 in flight"),
        metric("most_reused_depth_1", "uses", "of the chunk of order 3 used most, 1 in flight"),
        metric("most_reused_depth_16", "uses", "of the chunk of order 3 used most, 16 in flight"),
        metric(
            CHUNK_LOCKS,
            "acquisitions",
            "zone-lock acquisitions for each 1,000 frames of these chunks; engines that count them",
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
    for (depth, metric) in DEPTHS {
        // A deep ring has to fill before its depth means anything.
        figures =
            figures.with(metric, through((messages / 4).max(2 * depth as u64), depth, false)?);
    }
    Ok(figures)
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    // So that lists and blocks are those of a machine that has run for a while.
    let mut frames = vec![Pfn::default(); USED];
    alloc_all(&mut machine.cpu(CpuId::new(0))?, &mut frames)?;
    free_all(&mut machine.cpu(CpuId::new(1))?, frames.iter())?;
    let (mut figures, mut locks) = (Figures::default(), Some(0));
    for (depth, distinct, most) in CHUNKS {
        machine.drain();
        let before = machine.zone_locks();
        let handed_out = ring_in_turn(machine, depth, COUNTED)?;
        let taken = machine.zone_locks().zip(before).map(|(after, before)| after - before);
        locks = locks.zip(taken).map(|(sum, more)| sum + more);
        let reuse = Reuse::of(handed_out);
        figures = figures.with(distinct, reuse.distinct as f64).with(most, reuse.most as f64);
    }
    let frames = (CHUNKS.len() * COUNTED) as u64 * CHUNK.frames();
    match locks {
        Some(locks) => Ok(figures.with(CHUNK_LOCKS, locks as f64 * 1000.0 / frames as f64)),
        None => Ok(figures),
    }
}

/// How often chunks were handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reuse {
    distinct: u64,
    /// Times that the one used most was.
    most: u64,
}

impl Reuse {
    /// Of the chunks in the order in which they were handed out.
    fn of(mut handed_out: Vec<Pfn>) -> Self {
        handed_out.sort_unstable();
        let runs = || handed_out.chunk_by(|a, b| a == b).map(<[Pfn]>::len);
        Self { distinct: runs().count() as u64, most: runs().max().unwrap_or(0) as u64 }
    }
}

/// CPU 0 allocates so many chunks and CPU 1 frees each, `depth` chunks later: a ring that is always
/// full. Returns them in the order in which they were handed out.
fn ring_in_turn<M: Machine>(machine: &M, depth: usize, chunks: usize) -> Result<Vec<Pfn>, Refused> {
    let mut producer = machine.cpu(CpuId::new(0))?;
    let mut consumer = machine.cpu(CpuId::new(1))?;
    let mut all: Vec<Pfn> = Vec::with_capacity(chunks);
    for n in 0..chunks {
        if n >= depth {
            consumer.free(all[n - depth], CHUNK)?;
        }
        all.push(producer.alloc_unmovable(CHUNK)?);
    }
    all[chunks - depth..].iter().try_for_each(|&pfn| consumer.free(pfn, CHUNK))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse() {
        let handed_out = [5, 7, 5, 5, 9].map(Pfn::new).to_vec();
        assert_eq!(Reuse::of(handed_out), Reuse { distinct: 3, most: 3 });
        assert_eq!(Reuse::of(Vec::new()), Reuse { distinct: 0, most: 0 });
    }
}
