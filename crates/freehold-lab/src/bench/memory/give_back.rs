//! `bench give-back`: an arena's free blocks go back to the system, beside one `madvise` over as
//! much.

use std::time::Duration;

use freehold_host::{Arena, Backing, Error, Frames};
use rustix::mm::Advice;

use super::about::GIVEN_BACK;
use super::{FREEHOLD, LINUX};
use crate::bench::clock::{thread_time, timed};
use crate::bench::gathered::Gathered;
use crate::bench::mapping::Mapping;
use crate::bench::metric::Metric;
use crate::bench::plan::Plan;
use crate::bench::side::Side;

const BYTES: u64 = 1 << 30;
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = BYTES / BLOCK;

const MEMORIES: [(Backing, &str); 2] =
    [(Backing::Private, "4 KiB pages"), (Backing::HugePages, "huge pages")];

struct Both {
    arena: Arena,
    plain: Mapping,
}

impl Both {
    fn new(backing: Backing) -> Result<Self, String> {
        let arena =
            Arena::builder(BYTES).backing(backing).build().map_err(|error| error.to_string())?;
        let plain = Mapping::aligned(BYTES as usize, BLOCK as usize)
            .map_err(|errno| format!("mmap of {BYTES} bytes: {errno}"))?;
        if backing == Backing::HugePages {
            let done = plain.advise(BYTES as usize, Advice::LinuxHugepage);
            done.map_err(|errno| format!("madvise(MADV_HUGEPAGE): {errno}"))?;
        }
        Ok(Self { arena, plain })
    }

    /// The arena's time for how many blocks, and its system calls.
    fn ours(&self, scattered: bool) -> Result<(Duration, u64, u64), Error> {
        let mut all: Vec<_> =
            (0..BLOCKS).map(|_| Frames::new(&self.arena, 512)).collect::<Result<_, _>>()?;
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
        let time = timed(|| self.plain.advise(len, Advice::LinuxDontNeed));
        time.map_err(|errno| format!("madvise(MADV_DONTNEED): {errno}"))
    }

    /// Of all blocks or of every second one: the system's way, and the arena's where it is wanted.
    fn turn(
        &self,
        ours: bool,
        scattered: bool,
        metrics: &[Metric; 3],
        found: &mut Gathered,
    ) -> Result<(), String> {
        let [each, ratio, syscalls] = metrics;
        let expected = if scattered { BLOCKS / 2 } else { BLOCKS };
        let ns = |time: Duration| time.as_nanos() as f64 / expected as f64;
        let theirs = self.theirs(expected)?;
        found.add(LINUX, each.name, ns(theirs));
        found.add(LINUX, syscalls.name, 1.0 / expected as f64);
        if !ours {
            return Ok(());
        }
        let (time, blocks, calls) = self.ours(scattered).map_err(|error| error.to_string())?;
        if blocks != expected {
            return Err(format!("{blocks} blocks were given back, of {expected} that were free"));
        }
        found.add(FREEHOLD, each.name, ns(time));
        found.add(FREEHOLD, ratio.name, ns(time) / ns(theirs));
        found.add(FREEHOLD, syscalls.name, calls as f64 / blocks as f64);
        self.arena.validate().map_err(|error| format!("not whole afterwards: {error}"))
    }
}

pub(super) fn sides(plan: &Plan, found: &mut Gathered) -> Vec<Side<'static>> {
    let ours = plan.has(FREEHOLD);
    let mut sides = Vec::new();
    for (part, (backing, what)) in MEMORIES.into_iter().enumerate() {
        match Both::new(backing) {
            Err(reason) => found.unavailable(format!("{what} left out: {reason}")),
            Ok(both) => sides.push(Side::new(what, move |_, found| {
                both.turn(ours, false, &GIVEN_BACK[part], found)?;
                both.turn(ours, true, &GIVEN_BACK[MEMORIES.len() + part], found)
            })),
        }
    }
    sides
}
