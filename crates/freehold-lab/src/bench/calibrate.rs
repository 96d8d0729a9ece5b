//! Measuring the model's constants on this machine: `freehold calibrate`.
//!
//! | constant | measured by |
//! |---|---|
//! | `rmw_ns`, `hold_ns` | a chain of read-modify-writes; locking and unlocking a mutex that nobody else wants |
//! | `transfer_ns` | two threads that pass a line to and fro |
//! | `line_ns` | the same with 512 lines that each thread writes in its turn: how much a line adds |
//! | `chain_ns` | the same where each line says which is the next, in random order |
//! | `bounce_ns` | the same with a pair of order 4, which vanilla serves under the zone lock, in each turn: how much that takes longer than on one CPU |
//! | `barrier_ns` | `membarrier` while another thread of the process is busy on another CPU |
//! | `message_ns`, `caller_ns` | programs on an engine that does nothing |
//! | `zero_frame_ns` | zeroing frames of 1 MiB |
//! | `alloc_ns`, `free_ns`, `batch_free_ns` | 256 frames allocated, then freed, on one CPU: what it holds is enough |
//! | `refill_step_ns`, `drain_step_ns`, `pcp_step_ns`, `merge_step_ns` | 524,288 frames (2 GiB) allocated, then freed: what that takes longer, by the steps that the engine counted |
//! | `remote_free_ns`; freehold's `pcp_step_ns` | 4,096 frames allocated as one CPU and freed as another, by one thread: no line moves; what the allocations take longer than where the same CPU had freed them |
//!
//! All by one thread or two in turns; none is a workload of [`crate::bench::validate`] on the CPUs
//! that it is compared on. Costs of calls are less what the same loop takes with an engine that
//! does nothing. Medians throughout.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use freehold::{AllocFlags, Migratetype, Order, Pfn, Platform};

use crate::bench::clock::{Cpus, thread_time};
use crate::bench::engines::HostThreads;
use crate::bench::loops::shuffle;
use crate::bench::real::{Frames, RealCpu, RealMachine, throughput, with_nothing, with_real};
use crate::bench::yardstick::{rmw_ns, turns};
use crate::engine::{Count, Request};
use crate::engines::EngineSpec;
use crate::model::Family;
use crate::simulate::model::{EngineCosts, Model};
use crate::simulate::workloads::{BATCH, Kind, MESSAGE, Setting, programs};
use crate::trials::simulated::Marks;

/// Memory of the engines: 8 GiB.
const FRAMES: u64 = 2 << 20;
/// Frames in a burst that stays within what a CPU holds, in one that does not, and in one freed
/// elsewhere.
const SMALL: usize = 256;
const LARGE: usize = 1 << 19;
const REMOTE: usize = 4096;

/// Steps of a calibration, for a progress bar.
pub(crate) const STEPS: usize = 10 + 4;

/// Measures. `progress` is told what comes next.
pub(crate) fn calibrate(
    machine: String,
    cpus: &Cpus,
    mut progress: impl FnMut(&str),
) -> Result<Model, String> {
    let standard = Model::standard();
    cpus.pin(0);
    progress("read-modify-writes");
    let rmw = median(9, || rmw_ns(200_000));
    progress("locks");
    let hold = median(9, mutex_ns);
    progress("lines");
    let two = cpus.count() >= 2;
    let transfer =
        if two { median(7, || turns(cpus, 20_000, || (), || ())) } else { standard.transfer_ns };
    progress("runs of lines");
    let line = if two { median(5, || run_of_lines(cpus, transfer)) } else { standard.line_ns };
    progress("lists of lines");
    let chain = if two { median(5, || chain_of_lines(cpus, transfer)) } else { standard.chain_ns };
    progress("zeroing");
    let zero = median(9, zero_ns);
    progress("programs");
    let caller = median(5, || nothing(cpus, Kind::Pair, 1)) / 2.0;
    progress("messages");
    let message = if two {
        let per_frame = median(5, || nothing(cpus, Kind::ProducerConsumer, 2));
        (per_frame * MESSAGE as f64 - caller * (MESSAGE + 1) as f64).max(0.0)
    } else {
        standard.message_ns
    };
    progress("lock hand-over");
    let bounce = if two { bounce_ns(cpus, transfer)? } else { standard.bounce_ns };
    progress("barriers");
    let barrier = if two { barrier_ns(cpus) } else { None };
    let shared = Shared { hold, null: with_nothing(bursts) };
    let mut engines = BTreeMap::new();
    for family in Family::ALL {
        progress(family.measured_on());
        let lists = engines.get(&Family::Lists).copied();
        engines.insert(family, costs(family, &shared, lists)?);
    }
    Ok(Model {
        machine,
        measured_cpus: cpus.count().min(usize::from(u16::MAX)) as u16,
        rmw_ns: round(rmw),
        transfer_ns: round(transfer),
        line_ns: round(line),
        chain_ns: round(chain),
        socket_factor: standard.socket_factor,
        cores_per_socket: standard.cores_per_socket,
        hold_ns: round(hold),
        bounce_ns: round(bounce),
        barrier_ns: round(barrier.unwrap_or(standard.barrier_ns)),
        message_ns: round(message),
        zero_frame_ns: round(zero),
        caller_ns: round(caller),
        engines,
        validated: Vec::new(),
    })
}

/// What all engines' costs are computed with.
struct Shared {
    hold: f64,
    null: Bursts,
}

/// To hundredths of a nanosecond: more is noise.
fn round(ns: f64) -> f64 {
    (ns.max(0.0) * 100.0).round() / 100.0
}

fn median(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..runs).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[runs / 2]
}

fn mutex_ns() -> f64 {
    const N: u64 = 200_000;
    let mutex = Mutex::new(0u64);
    let start = thread_time();
    for _ in 0..N {
        if let Ok(mut value) = black_box(&mutex).lock() {
            *value += 1;
        }
    }
    thread_time().saturating_sub(start).as_nanos() as f64 / N as f64
}

fn zero_ns() -> f64 {
    const N: u64 = 20_000;
    let mut frames = Frames::default();
    (0..256).for_each(|_| frames.zero());
    let start = thread_time();
    (0..N).for_each(|_| frames.zero());
    thread_time().saturating_sub(start).as_nanos() as f64 / N as f64
}

/// Nanoseconds a frame of a workload on an engine that does nothing.
fn nothing(cpus: &Cpus, kind: Kind, n: u16) -> f64 {
    let setting = Setting { kind, cpus: n, frames: FRAMES, seed: 1, think_ns: 0.0, trace: None };
    1e9 / with_nothing(|machine| throughput(machine, cpus, programs(&setting))).max(1.0)
}

/// A word on a line of its own.
#[repr(align(64))]
struct Word(AtomicU64);

const N: usize = 512;

/// Nanoseconds a line, where `write` writes all [`N`] lines and two threads do so in turns.
fn written_in_turns(cpus: &Cpus, transfer: f64, write: impl Fn() + Sync) -> f64 {
    let alone = {
        let start = Instant::now();
        (0..200).for_each(|_| write());
        start.elapsed().as_nanos() as f64 / 200.0
    };
    let turn = turns(cpus, 400, &write, &write);
    ((turn - transfer - alone) / N as f64).max(0.0)
}

fn chain_of_lines(cpus: &Cpus, transfer: f64) -> f64 {
    let mut order: Vec<usize> = (1..N).collect();
    shuffle(&mut order, 7);
    order.push(0);
    let words: Vec<Word> = (0..N).map(|_| Word(AtomicU64::new(0))).collect();
    let mut at = 0;
    for next in order {
        // Relaxed: no other thread is there yet.
        words[at].0.store(next as u64, Ordering::Relaxed);
        at = next;
    }
    written_in_turns(cpus, transfer, || {
        let mut at = 0;
        loop {
            // Relaxed: the turn orders them. Written back, as a list's links are.
            let next = words[at].0.load(Ordering::Relaxed);
            words[at].0.store(next, Ordering::Relaxed);
            at = next as usize;
            if at == 0 {
                return;
            }
        }
    })
}

fn run_of_lines(cpus: &Cpus, transfer: f64) -> f64 {
    let words: Vec<Word> = (0..N).map(|_| Word(AtomicU64::new(0))).collect();
    let write = || {
        for word in &words {
            // Relaxed: the turn orders them. A load and a store, as of a record.
            word.0.store(word.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    };
    written_in_turns(cpus, transfer, write)
}

const MOVABLE: Request =
    Request { order: Order::ZERO, migratetype: Migratetype::Movable, flags: AllocFlags::empty() };
/// Not kept by CPUs of vanilla: each call is a hold of the zone lock.
const ORDER4: Order = Order::new(4).expect("below the largest");

fn bounce_ns(cpus: &Cpus, transfer: f64) -> Result<f64, String> {
    let vanilla: EngineSpec = spec(Family::Lists)?;
    with_real(&vanilla, 2, FRAMES, |machine| {
        let request = Request { order: ORDER4, ..MOVABLE };
        let pair = |cpu: &mut dyn RealCpu| {
            if let Some(pfn) = cpu.alloc(request) {
                cpu.free(&[(pfn, ORDER4)]);
            }
        };
        let alone = median(5, || {
            let mut cpu = machine.cpu(0);
            let start = Instant::now();
            (0..20_000).for_each(|_| pair(&mut *cpu));
            start.elapsed().as_nanos() as f64 / 20_000.0
        });
        let turn = median(5, || {
            let mut first = machine.cpu(0);
            // The kernel's designs name the CPU with each call: becoming one costs an allocation of
            // the host's.
            turns(cpus, 20_000, || pair(&mut *first), || pair(&mut *machine.cpu(1)))
        });
        (turn - transfer - alone).max(0.0)
    })
}

/// `None` where the kernel has none.
fn barrier_ns(cpus: &Cpus) -> Option<f64> {
    const N: u32 = 1000;
    let (platform, runs, stop) =
        (HostThreads::new(), AtomicBool::new(false), AtomicBool::new(false));
    platform.has_heavy_barrier().then(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cpus.pin(1);
                // Relaxed, as below: flags that carry nothing.
                runs.store(true, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // A barrier costs next to nothing while no other CPU runs a thread of this process.
            while !runs.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let one = || {
                let start = Instant::now();
                (0..N).for_each(|_| platform.heavy_barrier());
                start.elapsed().as_nanos() as f64 / f64::from(N)
            };
            let taken = median(9, one);
            stop.store(true, Ordering::Relaxed);
            taken
        })
    })
}

fn spec(family: Family) -> Result<EngineSpec, String> {
    family.measured_on().parse().map_err(|error| format!("{error}"))
}

/// What bursts take, nanoseconds a frame, and what was done in them.
#[derive(Clone, Copy, Default)]
struct Bursts {
    alloc: f64,
    free: f64,
    batch_free: f64,
    large_alloc: Phase,
    large_free: Phase,
    local_alloc: Phase,
    remote_alloc: Phase,
    remote_free: Phase,
}

/// A phase of a burst: nanoseconds of all of it, and what was done.
#[derive(Clone, Copy, Default)]
struct Phase {
    ns: f64,
    done: Marks,
}

fn phase(machine: &dyn RealMachine, run: impl FnOnce()) -> Phase {
    let before = [machine.marks(0), machine.marks(1)];
    let start = thread_time();
    run();
    let ns = thread_time().saturating_sub(start).as_nanos() as f64;
    // The zone's is the same seen from either CPU; their own work adds up.
    let [done, other] = [machine.marks(0).since(&before[0]), machine.marks(1).since(&before[1])];
    let (changes, merge_steps) =
        (done.changes + other.changes, done.merge_steps + other.merge_steps);
    Phase { ns, done: Marks { changes, merge_steps, ..done } }
}

/// The phase with the median time.
fn middle(mut phases: Vec<Phase>) -> Phase {
    phases.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    phases[phases.len() / 2]
}

fn fill(cpu: &mut dyn RealCpu, frames: &mut Vec<(Pfn, Order)>, n: usize) {
    frames.clear();
    for _ in 0..n {
        if let Some(pfn) = cpu.alloc(MOVABLE) {
            frames.push((pfn, Order::ZERO));
        }
    }
}

fn free_singly(cpu: &mut dyn RealCpu, frames: &[(Pfn, Order)]) {
    frames.chunks(1).for_each(|chunk| cpu.free(chunk));
}

fn bursts(machine: &dyn RealMachine) -> Bursts {
    let mut frames = Vec::with_capacity(LARGE);
    let mut result = Bursts::default();
    {
        let mut cpu = machine.cpu(0);
        // Small ones: many, since the clock takes as long as several calls.
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..900 {
            let start = Instant::now();
            fill(&mut *cpu, &mut frames, SMALL);
            let filled = start.elapsed();
            let start = Instant::now();
            if round % 2 == 0 {
                free_singly(&mut *cpu, &frames);
                times[1].push(start.elapsed().as_nanos() as f64 / SMALL as f64);
            } else {
                frames.chunks(BATCH).for_each(|batch| cpu.free(batch));
                times[2].push(start.elapsed().as_nanos() as f64 / SMALL as f64);
            }
            if round > 100 {
                times[0].push(filled.as_nanos() as f64 / SMALL as f64);
            }
        }
        let [alloc, free, batch_free] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        (result.alloc, result.free, result.batch_free) = (alloc, free, batch_free);
        let (mut allocs, mut frees) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            allocs.push(phase(machine, || fill(&mut *cpu, &mut frames, LARGE)));
            frees.push(phase(machine, || free_singly(&mut *cpu, &frames)));
        }
        (result.large_alloc, result.large_free) = (middle(allocs), middle(frees));
    }
    machine.drain();
    let (mut one, mut other) = (machine.cpu(0), machine.cpu(1));
    let mut allocs = Vec::new();
    for _ in 0..101 {
        allocs.push(phase(machine, || fill(&mut *one, &mut frames, REMOTE)));
        free_singly(&mut *one, &frames);
    }
    result.local_alloc = middle(allocs);
    let (mut allocs, mut frees) = (Vec::new(), Vec::new());
    for _ in 0..101 {
        allocs.push(phase(machine, || fill(&mut *one, &mut frames, REMOTE)));
        frees.push(phase(machine, || free_singly(&mut *other, &frames)));
    }
    (result.remote_alloc, result.remote_free) = (middle(allocs), middle(frees));
    result
}

/// A step's share of a time.
fn per(ns: f64, steps: u64) -> f64 {
    if steps == 0 { 0.0 } else { ns / steps as f64 }
}

/// What it adds to the allocations that follow to collect what the other CPU freed, for each change
/// of the CPU's own state, beside allocations of frames that the CPU freed itself. For freehold.
fn collect_ns(bursts: &Bursts, refill_step_ns: f64) -> f64 {
    let (there, here) = (bursts.remote_alloc, bursts.local_alloc);
    let steps = refill_step_ns * (there.done.steps as f64 - here.done.steps as f64);
    per((there.ns - here.ns - steps).max(0.0), there.done.changes.saturating_sub(here.done.changes))
}

fn costs(
    family: Family,
    shared: &Shared,
    lists: Option<EngineCosts>,
) -> Result<EngineCosts, String> {
    let b = with_real(&spec(family)?, 2, FRAMES, bursts)?;
    let null = &shared.null;
    let alloc_ns = b.alloc - null.alloc;
    let free_ns = b.free - null.free;
    let batch_free_ns = b.batch_free - null.batch_free;
    // What a phase took longer than its calls and the locks themselves.
    let rest = |phase: Phase, null: Phase, n: usize, each: f64| {
        (phase.ns - null.ns - each * n as f64 - shared.hold * phase.done.holds as f64).max(0.0)
    };
    let (large_alloc, large_free) = (
        rest(b.large_alloc, null.large_alloc, LARGE, alloc_ns),
        rest(b.large_free, null.large_free, LARGE, free_ns),
    );
    let owners = matches!(family, Family::Owners | Family::OwnersRemoteList);
    let (refill_step_ns, drain_step_ns, pcp_step_ns, merge_step_ns) = match lists.filter(|_| owners)
    {
        // The zone's lists are the same code as vanilla's: a step costs the same. What is left is
        // the CPU's own work.
        Some(lists) => {
            let split =
                (large_alloc - lists.refill_step_ns * b.large_alloc.done.steps as f64).max(0.0);
            let pcp = per(split, b.large_alloc.done.changes);
            let merge = large_free
                - lists.drain_step_ns * b.large_free.done.steps as f64
                - pcp * b.large_free.done.changes as f64;
            (
                lists.refill_step_ns,
                lists.drain_step_ns,
                pcp,
                per(merge.max(0.0), b.large_free.done.merge_steps),
            )
        }
        None => (
            per(large_alloc, b.large_alloc.done.steps),
            per(large_free, b.large_free.done.steps),
            0.0,
            0.0,
        ),
    };
    let remote = rest(b.remote_free, null.remote_free, 0, 0.0)
        - drain_step_ns * b.remote_free.done.steps as f64
        - pcp_step_ns * b.remote_free.done.changes as f64
        - merge_step_ns * b.remote_free.done.merge_steps as f64;
    let pcp_step_ns =
        if family == Family::Freehold { collect_ns(&b, refill_step_ns) } else { pcp_step_ns };
    Ok(EngineCosts {
        alloc_ns: round(alloc_ns),
        free_ns: round(free_ns),
        batch_free_ns: round(batch_free_ns),
        remote_free_ns: round(if family == Family::Lists {
            free_ns
        } else {
            remote / REMOTE as f64
        }),
        refill_step_ns: round(refill_step_ns),
        drain_step_ns: round(drain_step_ns),
        pcp_step_ns: round(pcp_step_ns),
        merge_step_ns: round(merge_step_ns),
    })
}
