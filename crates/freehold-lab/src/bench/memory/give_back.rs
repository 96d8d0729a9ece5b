//! `bench give-back`: an arena's free blocks go back to the system, beside one `madvise` over as much.

use std::time::Duration;

use freehold_host::{Arena, Backing, Error, Frames};

use super::about::GIVEN_BACK;
use super::raw::{Mapping, Pages, Unneeded};
use super::{FREEHOLD, LINUX, Run};
use crate::bench::clock::thread_time;
use crate::bench::engines::BenchEngine;
use crate::bench::gathered::Gathered;
use crate::bench::plan::Plan;

const BYTES: u64 = 1 << 30;
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = BYTES / BLOCK;

/// What the arena is made of.
const MEMORIES: [(Backing, &str); 2] = [(Backing::Private, "4 KiB pages"), (Backing::HugePages, "huge pages")];

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

pub(super) fn run(run: &mut Run<'_>, figures: &mut Gathered) -> Result<(), (String, String)> {
    let ours = run.plan.engines.contains(&BenchEngine::Freehold);
    for (part, (backing, what)) in MEMORIES.into_iter().enumerate() {
        let turns = run.turns.part(part as u32, MEMORIES.len() as u32);
        let both = match build(backing) {
            Ok(both) => both,
            Err(reason) => {
                figures.unavailable(format!("{what} left out: {reason}"));
                continue;
            }
        };
        for _ in turns {
            for (scattered, [each, ratio, syscalls]) in [(false, &GIVEN_BACK[part]), (true, &GIVEN_BACK[2 + part])] {
                if (run.stopped)() {
                    return Ok(());
                }
                (run.progress)(what);
                run.cpus.pin(0);
                let expected = if scattered { BLOCKS / 2 } else { BLOCKS };
                let ns = |time: Duration| time.as_nanos() as f64 / expected as f64;
                let theirs = both.theirs(expected).map_err(|reason| (LINUX.to_owned(), reason))?;
                figures.add(LINUX, each.name, ns(theirs));
                figures.add(LINUX, syscalls.name, 1.0 / expected as f64);
                if !ours {
                    continue;
                }
                let fail = |reason: String| (FREEHOLD.to_owned(), reason);
                let (time, blocks, calls) = both.ours(scattered).map_err(|error| fail(error.to_string()))?;
                if blocks != expected {
                    return Err(fail(format!("{blocks} blocks were given back, of {expected} that were free")));
                }
                figures.add(FREEHOLD, each.name, ns(time));
                figures.add(FREEHOLD, ratio.name, ns(time) / ns(theirs));
                figures.add(FREEHOLD, syscalls.name, calls as f64 / blocks as f64);
            }
        }
        both.arena.validate().map_err(|error| (FREEHOLD.to_owned(), format!("not whole afterwards: {error}")))?;
    }
    Ok(())
}
