//! `cma-range`: 16,384 frames in a row are allocated by their numbers and released, while every CPU
//! holds some of them.
//!
//! The second benchmark of the contiguous-free proposal (CMA's debugfs files, 16,384 pages: 1,406
//! us before, 402 us after). A range can be had only when every frame of it has come back from the
//! lists of the CPUs, so each allocation has to call in what they hold.
//!
//! ```text
//!    CPUs 0 to 15 hold free frames of the range on their lists
//!    allocate range ── isolate, drain all CPUs, take ──> release range ── by the call for ranges ──> and again
//! ```

use std::time::Duration;

use freehold::{CpuId, FrameRange, Order, Pfn};

use super::Run;
use crate::bench::calls::{Calls, Machine, Refused, START};
use crate::bench::clock::timed;
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::per;
use crate::bench::metric::{About, ns, with_locks};

pub const CPUS: u16 = 16;
/// Frames of the machine: the range is half of it, so that the CPUs are sure to get some of it.
pub const FRAMES: u64 = 1 << 15;
/// Frames of the range: 64 MiB.
const RANGE: u64 = 1 << 14;
const COUNTED: u64 = 4;

pub const ABOUT: About = About {
    what: "A range of 16,384 frames (64 MiB) is allocated by its numbers and released by the call for ranges, while \
           sixteen CPUs, played by one thread, hold free frames of it on their lists. buddy_system_allocator, which \
           cannot be asked for given frames, gives any 16,384 in a row.",
    source: "the contiguous-free proposal's CMA test (16,384 pages through CMA's debugfs files: 1,406 us an iteration \
             before its change, 402 us after)",
    metrics: with_locks![
        ns("ns_per_alloc", "the allocation of the range: what CPUs hold of it is called in"),
        ns("ns_per_release", "the release of the range"),
    ],
    ..About::ONE_THREAD
};

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let (alloc, release) = repeat(machine, run.scale.ranges, &mut Meter::default())?;
    let each = |time| per(time, run.scale.ranges);
    Ok(Figures::default().with("ns_per_alloc", each(alloc)).with("ns_per_release", each(release)))
}

/// Counted: the frames are those of the ranges.
pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    let mut meter = Meter::default();
    repeat(machine, COUNTED, &mut meter)?;
    Ok(Figures::default().with_zone_lock(&meter))
}

fn repeat<M: Machine>(
    machine: &M,
    times: u64,
    meter: &mut Meter,
) -> Result<(Duration, Duration), Refused> {
    let start = START.get() + FRAMES - RANGE;
    let range = FrameRange { start: Pfn::new(start), end: Pfn::new(start + RANGE) };
    let mut cpus =
        (0..CPUS).map(|cpu| machine.cpu(CpuId::new(cpu))).collect::<Result<Vec<_>, _>>()?;
    let (mut alloc, mut release) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..times {
        spread_over(&mut cpus, range)?;
        let cpu = &mut cpus[0];
        meter.part(machine, RANGE, || {
            let mut taken = range;
            alloc += timed(|| cpu.alloc_contig(range).map(|range| taken = range))?;
            release += timed(|| cpu.free_range(taken))?;
            Ok::<_, Refused>(())
        })?;
    }
    Ok((alloc, release))
}

/// Has every CPU use some of the range and give it back, last of all that it gives back: on its
/// lists if anywhere.
fn spread_over<C: Calls>(cpus: &mut [C], range: FrameRange) -> Result<(), Refused> {
    // Most of the memory, so that it does not matter with which frames an engine begins; in turns,
    // so that every CPU gets some of everywhere.
    const TURN: usize = 64;
    let turns = FRAMES as usize * 3 / 4 / (cpus.len() * TURN);
    let mut held = vec![Vec::new(); cpus.len()];
    for _ in 0..turns {
        for (cpu, held) in cpus.iter_mut().zip(&mut held) {
            for _ in 0..TURN {
                held.push(cpu.alloc(Order::ZERO)?);
            }
        }
    }
    for inside in [false, true] {
        for (cpu, held) in cpus.iter_mut().zip(&held) {
            let mut now = held.iter().filter(|&&pfn| range.contains(pfn) == inside);
            now.try_for_each(|&pfn| cpu.free(pfn, Order::ZERO))?;
        }
    }
    Ok(())
}
