//! Runs a number of operations of one kind and nothing else, for tools that count instructions.
//!
//! ```text
//! operation-instructions ROW N [ENGINE]  N operations of that row, of Freehold or of another
//!                                        engine
//! operation-instructions --list          every row, with the two numbers to count it with
//! ```
//!
//! Whatever a run costs before its operations is the same for every N, so the difference of two
//! runs is what the operations cost, loop included. `scripts/count-operations` does that under
//! callgrind. The process has one thread, which plays both CPUs of the remote frees; nobody else
//! runs, so their owners need no `membarrier(2)`, which callgrind may not know.

use std::hint::black_box;
use std::process::ExitCode;

use freehold::{CpuId, FrameRange, Order, Pfn, SingleCpu};
use freehold_lab::bench::calls::{Calls, Machine, Refused};
use freehold_lab::bench::engines::{
    BenchEngine, BuddySystem, ClassicMachine, FREEHOLD, FreeholdMachine, InitialThread, Peer,
};
use freehold_lab::bench::loops::{BULK, alloc_all, free_all, pairs, shuffle};
use freehold_lab::bench::steady::{Churn, Depth, Freed, HELD, Mixed, USED, half_used};

/// Frames of a GiB.
const GIB: u64 = 1 << 18;
/// As in the benchmarks: 4 GiB, of which one is filled.
const LARGE: u64 = 4 * GIB;
/// 256 MiB.
const SMALL: u64 = 1 << 16;
/// Steps near the mark before those that count, and how many these are.
const NEAR_MARK: u64 = 10_000;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// What can be counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    /// An allocation and its free, owned.
    Pair(u8),
    /// A pair of order 0, where the compiler does not know that it is.
    PairAnyOrder,
    PairOn,
    /// A pair on an owned CPU where the platform has no heavy barrier.
    PairNoBarrier,
    /// A pair, so many held at a time, freed in that order.
    Depth(u16, Freed),
    /// Of so many CPUs, 100 chunks of that order held: one at random is freed, another allocated.
    Held(u16, u8),
    /// As `Held`, where half of the frames around them is in use.
    Used(u16, u8),
    /// Of so many CPUs, so many thousandths in use, all of them in chunks of that order: one at
    /// random is freed, another allocated.
    NearMark(u16, u64, u8),
    /// A frame of a GiB, by single calls.
    Fill,
    /// A frame of a GiB, freed in the order of allocation.
    FreeInOrder,
    /// A frame of a GiB, freed at random.
    FreeAtRandom,
    /// A frame, allocated 64 at a time.
    BulkAlloc,
    /// A frame, freed 64 at a time.
    BulkFree,
    /// A block of 512 frames, freed by its range.
    RangeFree,
    /// A free and an allocation with so many percent of a GiB held, order 0.
    Churn(u64),
    /// A free and an allocation with so many percent of a GiB held, orders 0 to 9.
    Mixed(u64),
    /// A free on another CPU, in rising order.
    RemoteInSequence,
    /// A free on another CPU, at random.
    RemoteScattered,
    /// Frees on another CPU, at random, 64 at a time.
    RemoteScatteredBulk,
    /// A request of that order that fails, of so many CPUs, the zone being down to its min mark.
    Fail(u16, u8),
}

/// Every row with its name.
fn rows() -> Vec<(String, Row)> {
    let mut rows: Vec<(String, Row)> =
        (0..=9).map(|order| (format!("pair-order{order}"), Row::Pair(order))).collect();
    let mut add = |name: &str, row| rows.push((name.to_owned(), row));
    (0..=9).for_each(|order| add(&format!("held-order{order}"), Row::Held(2, order)));
    add("pair-any-order", Row::PairAnyOrder);
    add("pair-on", Row::PairOn);
    add("pair-owned-no-barrier", Row::PairNoBarrier);
    for depth in [8, 64, 512] {
        add(&format!("depth-{depth}-lifo"), Row::Depth(depth, Freed::Lifo));
        add(&format!("depth-{depth}-fifo"), Row::Depth(depth, Freed::Fifo));
        add(&format!("depth-{depth}-random"), Row::Depth(depth, Freed::Random));
    }
    add("fill", Row::Fill);
    add("free-in-order", Row::FreeInOrder);
    add("free-at-random", Row::FreeAtRandom);
    add("bulk-alloc", Row::BulkAlloc);
    add("bulk-free", Row::BulkFree);
    add("range-free", Row::RangeFree);
    add("churn-50", Row::Churn(50));
    add("churn-90", Row::Churn(90));
    add("mixed-50", Row::Mixed(50));
    add("mixed-90", Row::Mixed(90));
    add("remote-in-sequence", Row::RemoteInSequence);
    add("remote-scattered", Row::RemoteScattered);
    add("remote-scattered-bulk", Row::RemoteScatteredBulk);
    (0..=8).for_each(|order| add(&format!("used-order{order}"), Row::Used(2, order)));
    for order in [0, 3, 6] {
        for cpus in [64, 1024] {
            add(&format!("held-order{order}-cpus{cpus}"), Row::Held(cpus, order));
            add(&format!("used-order{order}-cpus{cpus}"), Row::Used(cpus, order));
        }
        for cpus in [2, 64, 1024] {
            for permille in [950, 980, 995] {
                let name = format!("near-mark-{permille}-order{order}-cpus{cpus}");
                add(&name, Row::NearMark(cpus, permille, order));
            }
        }
    }
    for cpus in [2, 1024] {
        for order in [0, 3] {
            add(&format!("fail-order{order}-cpus{cpus}"), Row::Fail(cpus, order));
        }
    }
    rows
}

impl Row {
    /// The fewer and the more operations of the two runs to compare.
    fn numbers(self) -> (u64, u64) {
        match self {
            // All of the GiB, from the first frame on.
            Self::Fill
            | Self::FreeInOrder
            | Self::FreeAtRandom
            | Self::BulkAlloc
            | Self::BulkFree
            | Self::RemoteInSequence
            | Self::RemoteScattered
            | Self::RemoteScatteredBulk => (0, GIB),
            Self::RangeFree => (0, 512),
            // Whole rounds of every depth.
            Self::Depth(..) => (1 << 16, 1 << 17),
            Self::Pair(_) | Self::PairAnyOrder | Self::PairOn | Self::PairNoBarrier => {
                (50_000, 100_000)
            }
            Self::Fail(..) => (1_000, 2_000),
            Self::NearMark(..) => (NEAR_MARK, 2 * NEAR_MARK),
            Self::Used(..) | Self::Held(..) | Self::Churn(_) | Self::Mixed(_) => (100_000, 200_000),
        }
    }

    /// CPUs and frames of the machine.
    fn machine(self) -> (u16, u64) {
        match self {
            Self::Churn(_) | Self::Mixed(_) | Self::PairNoBarrier | Self::PairOn => (1, GIB),
            Self::Fail(cpus, _) => (cpus, SMALL),
            Self::Held(cpus, _) => (cpus, LARGE),
            Self::Used(2, _) => (2, GIB / 2),
            Self::NearMark(2, ..) => (2, GIB),
            Self::Used(cpus, _) | Self::NearMark(cpus, ..) => (cpus, 2 * GIB),
            _ => (2, LARGE),
        }
    }

    fn run(self, n: u64) -> Result<(), String> {
        let (cpus, frames) = self.machine();
        match self {
            Self::PairNoBarrier => self.run_on(&FreeholdMachine::new(cpus, frames, SingleCpu)?, n),
            Self::PairOn => {
                let machine = FreeholdMachine::new(cpus, frames, InitialThread)?;
                let mut cpu = machine.on(CpuId::new(0));
                used(&mut cpu)?;
                Ok(pairs::<_, 0>(&mut cpu, n)?)
            }
            _ => self.run_on(&FreeholdMachine::new(cpus, frames, InitialThread)?, n),
        }
    }

    /// On any engine, of the machine's size that Freehold has in that row.
    fn run_beside(self, engine: &BenchEngine, n: u64) -> Result<(), String> {
        if engine.name() == FREEHOLD {
            return self.run(n);
        }
        if matches!(self, Self::PairOn | Self::PairNoBarrier | Self::Fail(..)) {
            return Err("that row is of Freehold's own calls".to_owned());
        }
        let (cpus, frames) = self.machine();
        match engine {
            BenchEngine::Design(spec) => {
                self.run_on(&ClassicMachine::new(spec.name(), cpus, frames)?, n)
            }
            BenchEngine::Peer(Peer::BuddySystem) => self.run_on(&BuddySystem::new(frames), n),
            #[cfg(feature = "llfree")]
            BenchEngine::Peer(Peer::Llfree) => {
                self.run_on(&freehold_lab::bench::engines::LlfreeMachine::new(cpus, frames)?, n)
            }
            BenchEngine::Peer(peer) => {
                Err(peer.needs().unwrap_or_else(|| format!("{} is not counted", peer.name())))
            }
        }
    }

    fn run_on<M: Machine>(self, machine: &M, n: u64) -> Result<(), String> {
        let mut cpu = machine.cpu(CpuId::new(0))?;
        let other = || machine.cpu(CpuId::new(1));
        let (_, frames) = self.machine();
        let done = match self {
            Self::Pair(order) => used(&mut cpu).and_then(|()| pairs_of(&mut cpu, order, n)),
            Self::PairAnyOrder => used(&mut cpu)
                .and_then(|()| pairs_of_any_order(&mut cpu, black_box(Order::ZERO), n)),
            Self::PairOn | Self::PairNoBarrier => {
                used(&mut cpu).and_then(|()| pairs::<_, 0>(&mut cpu, n))
            }
            Self::Depth(depth, freed) => {
                let mut held = Depth::new(depth, freed, SEED);
                used(&mut cpu).and_then(|()| held.rounds(&mut cpu, n / u64::from(depth)))
            }
            Self::Fill => {
                alloc_all(&mut cpu, &mut vec![Pfn::default(); GIB as usize][..n as usize])
            }
            Self::BulkAlloc => {
                let mut frames = vec![Pfn::default(); GIB as usize];
                frames[..n as usize].chunks_mut(BULK).try_for_each(|chunk| cpu.alloc_bulk(chunk))
            }
            Self::FreeInOrder | Self::FreeAtRandom => filled(&mut cpu, self == Self::FreeAtRandom)
                .and_then(|f| free_all(&mut cpu, f[..n as usize].iter())),
            Self::BulkFree => {
                filled(&mut cpu, false).and_then(|f| free_in_bulk(&mut cpu, &f[..n as usize]))
            }
            Self::RangeFree => free_ranges(&mut cpu, n as usize),
            Self::Held(_, order) => used(&mut cpu).and_then(|()| steps_of(&mut cpu, order, n)),
            Self::Used(_, order) => half_used(&mut cpu, USED * frames / (GIB / 2), SEED)
                .and_then(|_| steps_of(&mut cpu, order, n)),
            Self::NearMark(_, permille, order) => {
                let held = (frames * permille / 1000) >> order;
                match order {
                    0 => steps::<_, 0>(&mut cpu, (held, NEAR_MARK), n),
                    3 => steps::<_, 3>(&mut cpu, (held, NEAR_MARK), n),
                    _ => steps::<_, 6>(&mut cpu, (held, NEAR_MARK), n),
                }
            }
            Self::Churn(percent) => {
                let held = GIB * percent / 100;
                steps::<_, 0>(&mut cpu, (held, held), n)
            }
            Self::Mixed(percent) => Mixed::new(GIB * percent / 100, SEED).steps(&mut cpu, n),
            Self::Fail(_, order) => {
                while cpu.alloc(Order::ZERO).is_ok() {}
                failures(&mut cpu, black_box(Order::new(order).expect("an order")), n);
                Ok(())
            }
            Self::RemoteInSequence => filled(&mut cpu, false).and_then(|mut f| {
                f.sort_unstable();
                free_all(&mut other()?, f[..n as usize].iter())
            }),
            Self::RemoteScattered => {
                filled(&mut cpu, true).and_then(|f| free_all(&mut other()?, f[..n as usize].iter()))
            }
            Self::RemoteScatteredBulk => {
                filled(&mut cpu, true).and_then(|f| free_in_bulk(&mut other()?, &f[..n as usize]))
            }
        };
        Ok(done?)
    }
}

/// So that no frame is handed out for the first time in the loop.
fn used<C: Calls>(cpu: &mut C) -> Result<(), Refused> {
    let mut frames = vec![Pfn::default(); 8 * Order::PAGEBLOCK.frames() as usize];
    alloc_all(cpu, &mut frames)?;
    free_all(cpu, frames.iter())
}

/// A GiB of frames, as they came or shuffled.
fn filled<C: Calls>(cpu: &mut C, shuffled: bool) -> Result<Vec<Pfn>, Refused> {
    let mut frames = vec![Pfn::default(); GIB as usize];
    alloc_all(cpu, &mut frames)?;
    if shuffled {
        shuffle(&mut frames, SEED);
    }
    Ok(frames)
}

#[inline(never)]
fn free_in_bulk<C: Calls>(cpu: &mut C, frames: &[Pfn]) -> Result<(), Refused> {
    frames.chunks(BULK).try_for_each(|chunk| cpu.free_bulk(chunk))
}

fn free_ranges<C: Calls>(cpu: &mut C, n: usize) -> Result<(), Refused> {
    let mut blocks = [Pfn::default(); 512];
    for block in &mut blocks {
        *block = cpu.alloc(Order::PAGEBLOCK)?;
        cpu.split(*block, Order::PAGEBLOCK)?;
    }
    let range = |first: Pfn| FrameRange {
        start: first,
        end: Pfn::new(first.get() + Order::PAGEBLOCK.frames()),
    };
    blocks[..n].iter().try_for_each(|&block| cpu.free_range(range(block)))
}

#[inline(never)]
fn pairs_of_any_order<C: Calls>(cpu: &mut C, order: Order, n: u64) -> Result<(), Refused> {
    (0..n).try_for_each(|_| {
        let pfn = cpu.alloc(order)?;
        cpu.free(pfn, order)
    })
}

#[inline(never)]
fn failures<C: Calls>(cpu: &mut C, order: Order, n: u64) {
    for _ in 0..n {
        assert!(cpu.alloc(order).is_err(), "nothing is left");
    }
}

/// That loop for each order from 0 to 9: the order is a constant in each, as it is where kernels
/// call their allocators.
macro_rules! of_orders {
    ($of:ident: $($order:literal),+) => { [$($of::<C, $order>),+] };
}

fn pairs_of<C: Calls>(cpu: &mut C, order: u8, n: u64) -> Result<(), Refused> {
    of_orders!(pairs: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)[usize::from(order)](cpu, n)
}

/// Steps with so many chunks held, after so many that do not count: as many as chunks, so that each
/// has been replaced once, or few near the mark, where what one costs does not depend on that.
fn steps<C: Calls, const ORDER: u8>(
    cpu: &mut C,
    (held, before): (u64, u64),
    n: u64,
) -> Result<(), Refused> {
    let mut churn = Churn::<ORDER>::start(cpu, held, SEED)?;
    churn.steps(cpu, before)?;
    churn.steps(cpu, n)
}

fn steps_of<C: Calls>(cpu: &mut C, order: u8, n: u64) -> Result<(), Refused> {
    of_orders!(steps: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)[usize::from(order)](cpu, (HELD, HELD), n)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows = rows();
    if let [list] = &arguments[..]
        && list == "--list"
    {
        for (name, row) in rows {
            let (few, many) = row.numbers();
            println!("{name} {few} {many}");
        }
        return ExitCode::SUCCESS;
    }
    let named = |name: &str| rows.iter().find(|(known, _)| known == name).map(|&(_, row)| row);
    let wanted = match &arguments[..] {
        [row, n, engine @ ..] if engine.len() < 2 => named(row)
            .zip(n.parse::<u64>().ok())
            .filter(|(row, n)| *n <= row.numbers().1)
            .zip(engine.first().map_or(FREEHOLD, String::as_str).parse().ok()),
        _ => None,
    };
    let Some(((row, n), engine)) = wanted else {
        eprintln!(
            "usage: operation-instructions ROW N [ENGINE], or --list; no more operations than it \
             says"
        );
        return ExitCode::from(2);
    };
    match row.run_beside(&engine, n) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operation-instructions: {error}");
            ExitCode::from(2)
        }
    }
}
