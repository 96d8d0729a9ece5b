//! The benchmarks of the page allocator: what each asks of the allocator, then how long it took.
//!
//! Counts are exact and mean the same everywhere. Nanoseconds mean something on real hardware only:
//! an emulator translates each instruction, and an atomic one costs it little more than another.

use core::fmt;
use core::hint::black_box;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use freehold::{Migratetype, Order, Pfn, Request};

use super::{Failure, Frames, Machine, Team, succeeds};

const PAIRS: u64 = 100_000;
const BULK: usize = 64;
const RING: usize = 256;

/// What happened while something ran.
struct Counts {
    writes: u64,
    refills: u64,
    recalls: u64,
    remote: u64,
    slow: u64,
    barriers: u64,
}

impl Counts {
    fn now(machine: &impl Machine) -> Self {
        let totals = machine.freehold().totals();
        Self {
            writes: totals.shared_writes,
            refills: totals.cpus.refills,
            recalls: totals.cpus.recalls,
            remote: totals.cpus.remote_frees + totals.unattributed_frees,
            slow: totals.cpus.slow,
            barriers: machine.heavy_barriers(),
        }
    }
}

/// Prints the table's head.
pub fn heading(machine: &impl Machine) {
    row(
        machine,
        "benchmark",
        &["number", "writes", "refills", "recalls", "remote", "slow", "barriers", "ns each"],
    );
}

fn row(machine: &impl Machine, name: &str, cells: &[impl fmt::Display; 8]) {
    let [a, b, c, d, e, f, g, h] = cells;
    machine
        .print(format_args!("{name:<34} {a:>8} {b:>7} {c:>7} {d:>7} {e:>8} {f:>8} {g:>8} {h:>8}"));
}

/// Runs `f` on those CPUs, and takes the time that the slowest of them needed: getting the work to
/// them is not part of it.
fn measured<M: Machine>(
    machine: &M,
    name: &str,
    number: u64,
    cpus: Range<usize>,
    f: impl Fn(usize, &Frames<M::Platform>) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    machine.freehold().drain_all();
    let before = Counts::now(machine);
    let longest = AtomicU64::new(0);
    Team::run(machine, |member| {
        member.meet()?;
        if !cpus.contains(&member.cpu) {
            return Ok(());
        }
        let start = machine.nanoseconds();
        let result = f(member.cpu, member.frames);
        // Relaxed: read after all are through.
        longest.fetch_max(machine.nanoseconds() - start, Ordering::Relaxed);
        result
    })?;
    let now = Counts::now(machine);
    let cells = [
        number,
        now.writes - before.writes,
        now.refills - before.refills,
        now.recalls - before.recalls,
        now.remote - before.remote,
        now.slow - before.slow,
        now.barriers - before.barriers,
        longest.into_inner() / number.max(1),
    ];
    row(machine, name, &cells);
    Ok(())
}

fn pairs<M: Machine>(
    machine: &M,
    frames: &Frames<M::Platform>,
    order: Order,
    n: u64,
) -> Result<(), Failure> {
    let request = Request::new(order, Migratetype::Movable);
    for _ in 0..n {
        let pfn = succeeds(machine, "no chunk", frames.alloc(black_box(request)))?;
        succeeds(machine, "cannot be freed", frames.free(black_box(pfn), order))?;
    }
    Ok(())
}

/// Runs them all.
///
/// # Errors
///
/// A call of the allocator's that failed.
pub fn run<M: Machine>(machine: &M) -> Result<(), Failure> {
    heading(machine);
    for (name, order) in [("pair, order 0", 0), ("pair, order 3", 3), ("pair, order 9", 9)] {
        let order = Order::new(order).unwrap_or(Order::ZERO);
        measured(machine, name, PAIRS, 0..1, |_, frames| pairs(machine, frames, order, PAIRS))?;
    }
    let cpus = machine.cpus();
    measured(
        machine,
        "pair, order 0, on all CPUs at once",
        PAIRS * cpus as u64,
        0..cpus,
        |_, frames| pairs(machine, frames, Order::ZERO, PAIRS),
    )?;
    let whole = PAIRS / BULK as u64 * BULK as u64;
    measured(machine, "bulk of 64, a frame", whole, 0..1, |_, frames| bulk(machine, frames))?;
    let many = (super::Home::now(machine).frames / 2).min(1 << 15);
    measured(machine, "many frames taken, then freed", many, 0..1, |_, frames| {
        fill(machine, frames, many)
    })?;
    if cpus > 1 {
        let ring = [const { AtomicU64::new(0) }; RING];
        let (put, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        measured(machine, "one allocates, another frees", PAIRS, 0..2, |cpu, frames| {
            producer_consumer(machine, cpu, frames, &ring, (&put, &taken))
        })?;
    }
    Ok(())
}

fn bulk<M: Machine>(machine: &M, frames: &Frames<M::Platform>) -> Result<(), Failure> {
    let mut some = [Pfn::new(0); BULK];
    for _ in 0..PAIRS / BULK as u64 {
        let request = Request::new(Order::ZERO, Migratetype::Movable);
        let got = succeeds(machine, "no frames", frames.alloc_bulk(request, &mut some))?;
        succeeds(machine, "cannot be freed", frames.free_bulk(&some[..got]))?;
    }
    Ok(())
}

/// The frames are chained through their memory, as there is nowhere else to note them.
fn fill<M: Machine>(machine: &M, frames: &Frames<M::Platform>, many: u64) -> Result<(), Failure> {
    let mut last = 0;
    for _ in 0..many {
        let pfn = frames.alloc(Request::new(Order::ZERO, Migratetype::Movable));
        let pfn = succeeds(machine, "no frame", pfn)?;
        // Relaxed, here and below: this CPU's own.
        machine.words(pfn)[0].store(last, Ordering::Relaxed);
        last = pfn.get();
    }
    while last != 0 {
        let pfn = Pfn::new(last);
        last = machine.words(pfn)[0].load(Ordering::Relaxed);
        succeeds(machine, "cannot be freed", frames.free(pfn, Order::ZERO))?;
    }
    Ok(())
}

/// CPU 0 allocates, CPU 1 frees, through a ring of 256 places.
fn producer_consumer<M: Machine>(
    machine: &M,
    cpu: usize,
    frames: &Frames<M::Platform>,
    ring: &[AtomicU64; RING],
    (put, taken): (&AtomicUsize, &AtomicUsize),
) -> Result<(), Failure> {
    for i in 0..PAIRS as usize {
        // Acquire and Release, here and below: each sees what the other has done with a place.
        if cpu == 0 {
            machine.wait(&|| i - taken.load(Ordering::Acquire) < RING);
            let pfn = frames.alloc(Request::new(Order::ZERO, Migratetype::Movable));
            let pfn = succeeds(machine, "no frame", pfn)?;
            ring[i % RING].store(pfn.get(), Ordering::Relaxed);
            put.store(i + 1, Ordering::Release);
        } else {
            machine.wait(&|| put.load(Ordering::Acquire) > i);
            let pfn = Pfn::new(ring[i % RING].load(Ordering::Relaxed));
            taken.store(i + 1, Ordering::Release);
            succeeds(machine, "cannot be freed", frames.free(pfn, Order::ZERO))?;
        }
    }
    Ok(())
}
