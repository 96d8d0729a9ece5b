//! Counting on one thread that plays all CPUs: exact, and the same on every machine.

use freehold::{CpuId, Pfn};

use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::{Figures, Meter};
use crate::bench::kind::Kind;
use crate::bench::loops;

/// How often frames were handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reuse {
    pub distinct: u64,
    /// Times that the one used most was.
    pub most: u64,
}

impl Reuse {
    /// Of the frames in the order in which they were handed out.
    pub fn of(mut handed_out: Vec<Pfn>) -> Self {
        handed_out.sort_unstable();
        let runs = || handed_out.chunk_by(|a, b| a == b).map(<[Pfn]>::len);
        Self { distinct: runs().count() as u64, most: runs().max().unwrap_or(0) as u64 }
    }
}

/// CPU 0 allocates messages of `size` chunks and CPU 1 frees them, `depth` messages later: a ring
/// that is always full. Returns all chunks in the order in which they were handed out.
pub fn ring_in_turn<'m, M: Machine>(
    machine: &'m M,
    depth: usize,
    messages: usize,
    size: usize,
    alloc: impl Fn(&mut M::Cpu<'m>) -> Result<Pfn, Refused>,
    free: impl Fn(&mut M::Cpu<'m>, Pfn) -> Result<(), Refused>,
) -> Result<Vec<Pfn>, Refused> {
    let mut producer = machine.cpu(CpuId::new(0))?;
    let mut consumer = machine.cpu(CpuId::new(1))?;
    let mut all: Vec<Pfn> = Vec::with_capacity(messages * size);
    let mut freed = 0;
    for n in 0..messages {
        if n >= depth {
            all[freed..freed + size].iter().try_for_each(|&pfn| free(&mut consumer, pfn))?;
            freed += size;
        }
        for _ in 0..size {
            all.push(alloc(&mut producer)?);
        }
    }
    all[freed..].iter().try_for_each(|&pfn| free(&mut consumer, pfn))?;
    Ok(all)
}

/// Zone-lock acquisitions and work of the benchmarks of single threads. Drains between their parts
/// count: what a CPU holds is worth nothing until it has come back.
pub fn one_thread<M: Machine>(machine: &M, kind: Kind) -> Result<Figures, Refused> {
    const PAIRS: u64 = 100_000;
    const FRAMES: usize = 262_144;
    let mut meter = Meter::default();
    match kind {
        Kind::Pair => {
            meter.part(machine, PAIRS, || {
                loops::pairs::<_, 0>(&mut machine.cpu(CpuId::new(0))?, PAIRS)
            })?;
        }
        Kind::Bulk => {
            meter.part(machine, 3 * FRAMES as u64, || loops::bulk(machine, FRAMES).map(drop))?;
        }
        _ => {
            meter.part(machine, FRAMES as u64, || {
                loops::random_free(machine, FRAMES, 1).map(drop)
            })?;
        }
    }
    machine.drain();
    Ok(Figures::default().with_zone_lock(&meter))
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
