//! `producer-consumer`: one CPU allocates, another frees what it is handed.
//!
//! The 2022 series looked at whether frames that come back are still in a cache by counting how
//! often the same frames are handed out again; an engine that lets freed frames wait on the
//! consumer's CPU uses more different ones than are in flight.

use freehold::{CpuId, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::loops::{alloc_all, free_all};
use crate::bench::metric::{About, metric};

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
    what: "Unmovable chunks of order 3, allocated on one CPU and freed on another, 1 or 16 in \
           flight, 40,000 in all: how often the same come back. Counted on one thread that plays \
           both CPUs.",
    metrics: &[
        metric("distinct_chunks_depth_1", "chunks"),
        metric("distinct_chunks_depth_16", "chunks"),
        metric("most_reused_depth_1", "uses"),
        metric("most_reused_depth_16", "uses"),
        metric(CHUNK_LOCKS, "acquisitions"),
    ],
    ..About::ONE_THREAD
};

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
