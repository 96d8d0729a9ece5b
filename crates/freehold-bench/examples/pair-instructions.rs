//! Runs a number of order-0 pairs and nothing else, for tools that count instructions.
//!
//! ```text
//! pair-instructions N [ENGINE]
//! ```
//!
//! Whatever a run costs before its loop is the same for every N, so the difference of two runs is
//! what the pairs cost. `scripts/count-instructions` does that under callgrind. This process has
//! one thread and its engine one CPU, whose owner therefore needs no `membarrier(2)`, which
//! callgrind may not know; the owner's path is the same.

use std::process::ExitCode;

use freehold::{CpuId, Order, Pfn};
use freehold_bench::calls::{Calls, Machine, Refused};
use freehold_bench::engines::{
    BuddySystem, ClassicMachine, FreeholdCpu, FreeholdMachine, InitialThread,
};
use freehold_bench::loops::{alloc_all, free_all, pairs_inlined};

/// 1 GiB.
const FRAMES: u64 = 1 << 18;

/// By this name the loop is found in the program: `scripts/count-instructions` looks for locked
/// instructions in it.
#[inline(never)]
fn freehold_pairs(cpu: &mut FreeholdCpu<'_, InitialThread>, n: u64) -> Result<(), Refused> {
    pairs_inlined::<_, 0>(cpu, n)
}

#[inline(never)]
fn other_pairs<C: Calls>(cpu: &mut C, n: u64) -> Result<(), Refused> {
    pairs_inlined::<_, 0>(cpu, n)
}

fn run<'m, M: Machine>(
    machine: &'m M,
    n: u64,
    pairs: impl Fn(&mut M::Cpu<'m>, u64) -> Result<(), Refused>,
) -> Result<(), String> {
    let said = |refused: Refused| refused.to_string();
    let mut cpu = machine.cpu(CpuId::new(0)).map_err(said)?;
    // So that no frame is handed out for the first time in the loop.
    let mut frames = vec![Pfn::default(); 8 * Order::PAGEBLOCK.frames() as usize];
    alloc_all(&mut cpu, &mut frames).map_err(said)?;
    free_all(&mut cpu, frames.iter()).map_err(said)?;
    pairs(&mut cpu, n).map_err(said)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let n = arguments.next().and_then(|n| n.parse::<u64>().ok());
    let engine = arguments.next().unwrap_or_else(|| "freehold".to_owned());
    let (Some(n), None) = (n, arguments.next()) else {
        eprintln!("usage: pair-instructions N [ENGINE]");
        return ExitCode::from(2);
    };
    let done = match engine.as_str() {
        "freehold" => FreeholdMachine::new(1, FRAMES, InitialThread)
            .and_then(|machine| run(&machine, n, freehold_pairs)),
        "buddy_system_allocator" => run(&BuddySystem::new(FRAMES), n, other_pairs),
        name => {
            ClassicMachine::new(name, 1, FRAMES).and_then(|machine| run(&machine, n, other_pairs))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pair-instructions: {error}");
            ExitCode::from(2)
        }
    }
}
