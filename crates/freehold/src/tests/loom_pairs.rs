//! Every pair of calls, run by loom at the same time on two CPUs: nothing
//! is handed out twice, and nothing is lost.
//!
//! The tests in [`loom_tests`](super::loom_tests) each have a history in mind. These have none: a
//! new kind of call is one more line in [`CALLS`]. One preemption unless `LOOM_PAIRS` says more; a
//! pair is named where it fails, and `LOOM_PAIR="FIRST SECOND"` runs that one alone.

use super::loom_tests::*;
use std::string::String;

/// Five blocks, and a piece that comes and goes: small, since removal looks at each frame of it.
const FRAMES: u64 = 5 * 512 + 64;
const START: u64 = 1024;

/// What a thread has: runs of frames.
type Runs = Vec<FrameRange>;

/// A call, made by thread `t` on the CPU of that number.
struct Call {
    name: &'static str,
    /// What the thread has before.
    before: fn(Small, u16) -> Runs,
    /// The call; what the thread has after.
    run: fn(Small, u16, Runs) -> Runs,
}

fn run_of(pfn: Pfn, frames: u64) -> FrameRange {
    FrameRange::new(pfn, frames).unwrap()
}

/// The last piece.
fn piece() -> FrameRange {
    run_of(Pfn::new(START + 5 * 512), 64)
}

/// A chunk, taken through the thread's own CPU or the other one.
fn chunk(fh: Small, c: u16, order: u8) -> Runs {
    [run_of(take(fh, c, order), 1 << order)].into()
}

fn alloc(fh: Small, t: u16, order: u8) -> Runs {
    fh.on(cpu(t)).alloc(request(order)).map(|pfn| run_of(pfn, 1 << order)).into_iter().collect()
}

/// What is left after a free that may be refused only since its CPU has gone.
fn unless_gone(freed: Result<(), FreeError>, runs: Runs) -> Runs {
    match freed {
        Ok(()) => Runs::new(),
        Err(FreeError::CpuOffline { .. }) => runs,
        Err(error) => panic!("a right free was refused: {error}"),
    }
}

fn free(fh: Small, t: u16, runs: Runs) -> Runs {
    let order = Order::fitting(runs[0].len()).unwrap();
    unless_gone(fh.on(cpu(t)).free(runs[0].start, order), runs)
}

fn free_range(fh: Small, t: u16, runs: Runs) -> Runs {
    unless_gone(fh.on(cpu(t)).free_range(runs[0]), runs)
}

fn free_bulk(fh: Small, t: u16, runs: Runs) -> Runs {
    let frames: Vec<Pfn> = runs.iter().map(|run| run.start).collect();
    unless_gone(fh.on(cpu(t)).free_bulk(&frames).map_err(|error| error.error), runs)
}

fn contig(fh: Small, range: FrameRange) -> Runs {
    fh.alloc_contig_range(range, |_| false).map(|()| range).into_iter().collect()
}

fn bulk(fh: Small, t: u16) -> Runs {
    let mut out = [Pfn::default(); 3];
    let got = fh.on(cpu(t)).alloc_bulk(request(0), &mut out).unwrap_or(0);
    out[..got].iter().map(|&pfn| run_of(pfn, 1)).collect()
}

/// A CPU goes, unless it has an owner, and comes back.
fn replug(fh: Small, c: u16) -> Runs {
    let _ = fh.on(cpu(c)).offline();
    fh.on(cpu(c)).online().unwrap();
    Runs::new()
}

fn none(_: Small, _: u16) -> Runs {
    Runs::new()
}

/// One of each thing that a call may do.
#[rustfmt::skip]
const CALLS: &[Call] = &[
    Call { name: "frame", before: none, run: |fh, t, _| alloc(fh, t, 0) },
    Call { name: "frame-in-hand", before: |fh, t| chunk(fh, t, 0), run: |fh, t, mut had| { had.extend(alloc(fh, t, 0)); had } },
    Call { name: "run", before: none, run: |fh, t, _| alloc(fh, t, 2) },
    Call { name: "words", before: none, run: |fh, t, _| alloc(fh, t, 7) },
    Call { name: "block", before: none, run: |fh, t, _| alloc(fh, t, 9) },
    Call { name: "blocks", before: none, run: |fh, t, _| alloc(fh, t, 10) },
    Call { name: "limited", before: none, run: |fh, t, _| {
        let limited = request(7).from(Pfn::new(START + 128)).below(Pfn::new(START + 384));
        fh.on(cpu(t)).alloc(limited).map(|pfn| run_of(pfn, 128)).into_iter().collect()
    } },
    Call { name: "no-lock", before: none, run: |fh, t, _| {
        fh.on(cpu(t)).alloc(request(0).flags(AllocFlags::NO_LOCK)).map(|pfn| run_of(pfn, 1)).into_iter().collect()
    } },
    Call { name: "bulk", before: none, run: |fh, t, _| bulk(fh, t) },
    Call { name: "free", before: |fh, t| chunk(fh, t, 0), run: free },
    Call { name: "free-of-other", before: |fh, t| chunk(fh, 1 - t, 0), run: free },
    Call { name: "free-words", before: |fh, t| chunk(fh, 1 - t, 7), run: free },
    Call { name: "free-block", before: |fh, t| chunk(fh, t, 9), run: free },
    Call { name: "free-block-of-other", before: |fh, t| chunk(fh, 1 - t, 9), run: free },
    Call { name: "free-part-of-block", before: |fh, t| chunk(fh, t, 9), run: |fh, t, had| {
        let rest = run_of(had[0].start, 500);
        let part = run_of(Pfn::new(had[0].start.get() + 500), 12);
        let mut left = free_range(fh, t, [part].into());
        left.push(rest);
        left
    } },
    Call { name: "free-bulk", before: |fh, t| [chunk(fh, t, 0), chunk(fh, 1 - t, 0)].concat(), run: free_bulk },
    Call { name: "flush", before: |fh, t| chunk(fh, t, 0), run: |fh, t, had| { let _ = fh.on(cpu(t)).flush(); had } },
    Call { name: "tick", before: |fh, t| chunk(fh, t, 0), run: |fh, t, had| { let _ = fh.on(cpu(t)).tick(); had } },
    Call { name: "drain", before: |fh, t| chunk(fh, t, 0), run: |fh, _, had| { fh.drain_all(); had } },
    Call { name: "owner", before: none, run: |fh, t, _| {
        fh.own(cpu(t)).and_then(|owned| owned.alloc(request(0))).map(|pfn| run_of(pfn, 1)).into_iter().collect()
    } },
    Call { name: "unplug", before: none, run: |fh, t, _| replug(fh, 1 - t) },
    Call { name: "unplug-own", before: none, run: |fh, t, _| replug(fh, t) },
    Call { name: "range-in-use", before: none, run: |fh, _, _| contig(fh, run_of(Pfn::new(START), 100)) },
    Call { name: "range", before: none, run: |fh, _, _| contig(fh, run_of(Pfn::new(START + 4 * 512 - 8), 16)) },
    Call { name: "memory", before: none, run: |fh, _, _| {
        if fh.remove_memory(piece()).is_ok() {
            fh.add_memory(piece()).unwrap();
        }
        Runs::new()
    } },
];

/// Runs a pair in every schedule.
fn pair(first: &'static Call, second: &'static Call, preemptions: usize) {
    model_within(preemptions, move || {
        let fh = machine(false, FRAMES);
        // A block that is split, of which one frame stays in use.
        let kept = chunk(fh, 0, 0);
        let had = [(first.before)(fh, 0), (second.before)(fh, 1)];
        let [first_had, second_had] = had;
        let roles: Vec<Box<dyn FnOnce() -> Runs>> = std::vec![
            Box::new(move || (first.run)(fh, 0, first_had)),
            Box::new(move || (second.run)(fh, 1, second_had)),
        ];
        let mut all: Runs = together(roles).concat();
        all.extend(kept);
        all.sort_by_key(|run| run.start);
        assert!(
            all.windows(2).all(|two| two[0].end <= two[1].start),
            "frames were handed out twice: {all:?}"
        );
        settled_of(fh, FRAMES, all.iter().map(FrameRange::len).sum());
    });
}

/// All pairs, or the one that is asked for, one after the other.
#[test]
fn loom_pairs_of_all_calls() {
    let preemptions = std::env::var("LOOM_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let wanted = std::env::var("LOOM_PAIR").unwrap_or_default();
    let mut run = 0;
    for (n, first) in CALLS.iter().enumerate() {
        for second in &CALLS[n..] {
            let name: String = [first.name, second.name].join(" ");
            if wanted.is_empty() || wanted == name {
                // Before, since a schedule that fails may end the process.
                std::eprint!("{name}: ");
                pair(first, second, preemptions);
                run += 1;
            }
        }
    }
    assert!(run > 0, "there is no pair '{wanted}'");
}
