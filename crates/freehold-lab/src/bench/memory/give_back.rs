//! `bench give-back`: an arena's free blocks go back to the system, beside one `madvise` over as much.

use std::time::Duration;

use freehold_host::{Arena, Backing, Error, Frames};

use super::figures::Figures;
use super::raw::{Mapping, Pages, Unneeded};
use super::{FREEHOLD, LINUX, Run};
use crate::bench::clock::thread_time;
use crate::bench::engines::BenchEngine;
use crate::bench::runner::Plan;

const BYTES: u64 = 1 << 30;
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = BYTES / BLOCK;

struct Metrics {
    /// Every second block only.
    scattered: bool,
    ns: &'static str,
    ratio: &'static str,
    syscalls: &'static str,
}

struct Memory {
    backing: Backing,
    what: &'static str,
    metrics: [Metrics; 2],
}

macro_rules! metrics {
    ($scattered:literal, $suffix:literal) => {
        Metrics {
            scattered: $scattered,
            ns: concat!("ns_per_block", $suffix),
            ratio: concat!("ratio_to_one_madvise", $suffix),
            syscalls: concat!("syscalls_per_block", $suffix),
        }
    };
}

const MEMORIES: [Memory; 2] = [
    Memory {
        backing: Backing::Private,
        what: "4 KiB pages",
        metrics: [metrics!(false, ""), metrics!(true, "_scattered")],
    },
    Memory {
        backing: Backing::HugePages,
        what: "huge pages",
        metrics: [metrics!(false, "_huge"), metrics!(true, "_scattered_huge")],
    },
];

pub(super) fn steps(plan: &Plan) -> usize {
    plan.runs * MEMORIES.len() * 2
}

struct Both {
    arena: Arena,
    plain: Mapping,
}

fn build(backing: Backing) -> Result<Both, String> {
    let arena = Arena::builder(BYTES).backing(backing).build().map_err(|error| error.to_string())?;
    let plain =
        Mapping::aligned(BYTES as usize, BLOCK as usize).map_err(|errno| format!("mmap of {BYTES} bytes: {errno}"))?;
    if backing == Backing::HugePages {
        plain.pages(Pages::Large).map_err(|errno| format!("madvise(MADV_HUGEPAGE): {errno}"))?;
    }
    Ok(Both { arena, plain })
}

impl Both {
    /// The arena's time for how many blocks, and its system calls.
    fn ours(&self, scattered: bool) -> Result<(Duration, u64, u64), Error> {
        let mut all: Vec<_> = (0..BLOCKS).map(|_| Frames::new(&self.arena, 512)).collect::<Result<_, _>>()?;
        for frames in &mut all {
            frames.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        }
        all.sort_by_key(Frames::pfn);
        // No two free blocks are neighbours, or all are.
        let mut at = 0;
        all.retain(|_| {
            at += 1;
            scattered && at % 2 == 0
        });
        let start = thread_time();
        let released = self.arena.trim()?;
        let time = thread_time().saturating_sub(start);
        drop(all);
        self.arena.trim()?;
        Ok((time, released.blocks, released.calls))
    }

    fn theirs(&self, blocks: u64) -> Result<Duration, String> {
        let len = (blocks * BLOCK) as usize;
        self.plain.touch(len);
        let start = thread_time();
        self.plain.give_up(len, Unneeded::Now).map_err(|errno| format!("madvise(MADV_DONTNEED): {errno}"))?;
        Ok(thread_time().saturating_sub(start))
    }
}

pub(super) fn run(run: &mut Run<'_>, figures: &mut Figures) -> Result<(), (String, String)> {
    let ours = run.plan.engines.contains(&BenchEngine::Freehold);
    for (part, memory) in (0..).zip(&MEMORIES) {
        let turns = run.turns.part(part, MEMORIES.len() as u32);
        let both = match build(memory.backing) {
            Ok(both) => both,
            Err(reason) => {
                figures.unavailable(format!("{} left out: {reason}", memory.what));
                continue;
            }
        };
        for _ in turns {
            for metrics in &memory.metrics {
                if (run.stopped)() {
                    return Ok(());
                }
                (run.progress)(memory.what);
                run.cpus.pin(0);
                let expected = if metrics.scattered { BLOCKS / 2 } else { BLOCKS };
                let ns = |time: Duration| time.as_nanos() as f64 / expected as f64;
                let theirs = both.theirs(expected).map_err(|reason| (LINUX.to_owned(), reason))?;
                figures.add(LINUX, metrics.ns, ns(theirs));
                figures.add(LINUX, metrics.syscalls, 1.0 / expected as f64);
                if !ours {
                    continue;
                }
                let fail = |reason: String| (FREEHOLD.to_owned(), reason);
                let (time, blocks, calls) = both.ours(metrics.scattered).map_err(|error| fail(error.to_string()))?;
                if blocks != expected {
                    return Err(fail(format!("{blocks} blocks were given back, of {expected} that were free")));
                }
                figures.add(FREEHOLD, metrics.ns, ns(time));
                figures.add(FREEHOLD, metrics.ratio, ns(time) / ns(theirs));
                figures.add(FREEHOLD, metrics.syscalls, calls as f64 / blocks as f64);
            }
        }
        both.arena.validate().map_err(|error| (FREEHOLD.to_owned(), format!("not whole afterwards: {error}")))?;
    }
    Ok(())
}
