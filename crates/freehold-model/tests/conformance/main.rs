//! Real runs of the real allocator are histories that the protocol has; with one step altered they
//! are not.

#![allow(unreachable_pub)]

mod alter;
mod court;
#[cfg(feature = "recordings")]
mod recordings;
mod work;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use court::{Court, i_am};
use freehold::conformance::Shape;
use freehold::{Config, CpuId, Freehold, Migratetype, Order, Request, Watermarks, ZoneConfig};
use freehold_model::judge::{Call, Event, Task, What};
use work::{Host, Random, Worker, World, range};

/// Threads, each with a CPU; one CPU more comes and goes.
const THREADS: u16 = 4;

/// A zone of 41 blocks, the last one not all there; a piece that may go and come; two blocks of
/// CMA.
fn machine(group: u16, watermarks: Watermarks) -> Freehold<'static, Host> {
    let memory = [range(512, 40 * 512 + 100), range(64 * 512, 3 * 512 + 70)];
    let cma = [range(10 * 512, 1024)];
    let zones = [ZoneConfig {
        span: range(512, 127 * 512),
        cma: &cma,
        watermarks,
        ..ZoneConfig::new(&memory)
    }];
    let config = Config { group: Some(group), extra_ranges: 2, ..Config::new(THREADS + 1, &zones) };
    Freehold::leaked(&config, Host).unwrap()
}

fn world<'a>(fh: &'a Freehold<'static, Host>, court: &'a Court) -> World<'a> {
    let (memory, extra) = ((512, 41 * 512 + 100), range(64 * 512, 3 * 512 + 70));
    World { fh, court, memory, extra, visitor: CpuId::new(THREADS), pool: Mutex::new(Vec::new()) }
}

/// A round of random calls on all threads, and one of frees of the same frames by two of them each.
fn round(world: &World<'_>, seed: u64, threads: u16, calls: u64) {
    std::thread::scope(|scope| {
        for t in 0..threads {
            let seed = seed * 64 + u64::from(t) + 1;
            scope.spawn(move || Worker::new(world, t, seed).run(calls));
        }
    });
    i_am(0);
    let mut random = Random(seed | 1);
    let mut chunks: Vec<(u64, u64)> = std::mem::take(&mut *world.pool.lock().unwrap());
    for _ in 0..20 {
        let order = Order::new([0, 0, 2, 6, 9][random.below(5) as usize]).unwrap();
        let request = Request::new(order, Migratetype::Movable);
        let call = || world.fh.on(CpuId::new(random.below(THREADS.into()) as u16)).alloc(request);
        let got = |result: &Result<freehold::Pfn, _>| {
            (result.is_ok(), result.iter().map(|pfn| (pfn.get(), order.frames())).collect())
        };
        let result = world.court.call(Task::Alloc, &[], call, got);
        chunks.extend(result.iter().map(|pfn| (pfn.get(), order.frames())));
    }
    // Now and then one of the two frees each chunk in parts: then neither may get all of it, and
    // what is left is freed frame by frame.
    let parts = if random.below(4) == 0 { 3 } else { 1 };
    std::thread::scope(|scope| {
        for t in 0..threads.min(2) {
            let chunks = &chunks;
            scope.spawn(move || {
                Worker::new(world, t, seed).race(chunks, if t == 1 { parts } else { 1 })
            });
        }
    });
    if parts != 1 && threads > 1 {
        let left: Vec<(u64, u64)> = chunks
            .iter()
            .flat_map(|&(pfn, frames)| (pfn..pfn + frames).map(|pfn| (pfn, 1)))
            .collect();
        Worker::new(world, 0, seed).race(&left, 1);
        i_am(0);
    }
    world.court.quiet();
}

/// Rounds until so many steps have been judged.
fn rounds(threads: u16, group: u16, watermarks: Watermarks, seed: u64, steps: u64) -> u64 {
    let fh = machine(group, watermarks);
    i_am(0);
    let (court, witnessed) = Court::new(&fh, false);
    court.quiet();
    let world = world(&fh, &court);
    let mut n = 0;
    while court.steps() < steps && !court.has_refused() {
        round(&world, seed + n, threads, 300);
        n += 1;
        // A frame that two have freed at once may be in its word and in a hand until somebody comes
        // by.
        if n % 4 == 0 && !court.has_refused() {
            fh.drain_all();
            fh.validate().unwrap();
        }
    }
    court.accepted();
    println!("groups of {group}, {watermarks:?}: {}", court.summary());
    fh.drain_all();
    court.quiet();
    court.accepted();
    let (all, stats) = (court.steps(), fh.zone_stats(0).unwrap());
    assert_eq!(stats.free, stats.managed, "frames are lost");
    drop(witnessed);
    all
}

/// `FREEHOLD_STEPS`, or so many.
fn wanted(steps: u64) -> u64 {
    std::env::var("FREEHOLD_STEPS")
        .map_or(steps, |n| n.parse().expect("FREEHOLD_STEPS is a number"))
}

const MARKS: Watermarks = Watermarks::Frames { min: 256, low: 1500, high: 3000 };

/// `FREEHOLD_SEED`, or 1.
fn seed() -> u64 {
    std::env::var("FREEHOLD_SEED").map_or(1, |n| n.parse().expect("FREEHOLD_SEED is a number"))
}

fn random_calls(threads: u16, steps: u64) {
    let (seed, each) = (seed(), wanted(steps) / 3);
    for (group, watermarks) in [(2, Watermarks::None), (1, Watermarks::None), (2, MARKS)] {
        rounds(threads, group, watermarks, seed, each);
    }
}

/// The same history each time.
#[test]
fn random_calls_of_one_thread_are_accepted() {
    random_calls(1, 1_000_000);
}

/// Another history each time: the schedules are the machine's.
#[test]
fn random_calls_on_threads_are_accepted() {
    random_calls(THREADS, 6_000_000);
}

/// The same for long: `FREEHOLD_STEPS`, or 100,000,000.
#[test]
#[ignore = "takes minutes"]
fn many_random_calls_on_threads_are_accepted() {
    let (began, steps) = (std::time::Instant::now(), wanted(100_000_000));
    let seed = AtomicU64::new(seed() << 20);
    let kinds = [(2, Watermarks::None), (1, Watermarks::None), (2, MARKS), (4, Watermarks::None)];
    let each = steps / kinds.len() as u64;
    let all: u64 = kinds
        .into_iter()
        .map(|(g, w)| rounds(THREADS, g, w, seed.fetch_add(1 << 20, Ordering::Relaxed), each))
        .sum();
    println!("{all} steps accepted in {:.0} s", began.elapsed().as_secs_f64());
}

/// Two free the same run: the one that began first loses its first half and is refused, the other
/// one frees all of it. Nothing of it is in use then, whoever began first.
#[test]
fn of_two_who_free_the_same_frames_each_step_decides() {
    for order in [10, 7] {
        let fh = machine(2, Watermarks::None);
        let (court, witnessed) = Court::new(&fh, false);
        let order = Order::new(order).unwrap();
        let (frames, first) = (order.frames(), fh.on(CpuId::new(1)));
        i_am(1);
        let got = |pfn: &freehold::Pfn| (true, vec![(pfn.get(), frames)]);
        let alloc = || first.alloc(Request::new(order, Migratetype::Movable)).unwrap();
        let start = court.call(Task::Alloc, &[], alloc, got).get();
        let mine = [(start, frames)];
        let begin = What::Begin(Call { task: Task::Free, frames: mine.to_vec() });
        court.hear(begin.clone());
        i_am(2);
        let second = fh.on(CpuId::new(2));
        court.hear(begin);
        second.free_range(range(start, frames / 2)).unwrap();
        i_am(1);
        first.free_range(range(start, frames)).unwrap_err();
        court.hear(What::End(false, vec![]));
        i_am(2);
        second.free_range(range(start + frames / 2, frames / 2)).unwrap();
        court.hear(What::End(true, vec![]));
        court.quiet();
        fh.drain_all();
        court.quiet();
        drop(witnessed);
        court.accepted();
    }
}

/// Two CPUs have a slot for a word, since one took over what the other had emptied; a recall is
/// inside both when it ends their leases.
#[test]
fn two_cpus_with_a_slot_for_one_word_are_recalled() {
    // Of 2 GiB, so that a CPU may have five slots.
    let memory = [range(512, 1000 * 512)];
    let zones = [ZoneConfig::new(&memory)];
    let fh = Freehold::leaked(&Config::new(2, &zones), Host).unwrap();
    let (court, witnessed) = Court::new(&fh, false);
    i_am(0);
    let request = Request::new(Order::ZERO, Migratetype::Movable);
    let alloc = |cpu: u16| {
        let got = |pfn: &freehold::Pfn| (true, vec![(pfn.get(), 1)]);
        court.call(Task::Alloc, &[], || fh.on(CpuId::new(cpu)).alloc(request).unwrap(), got).get()
    };
    let free = |cpu: u16, pfn: u64| {
        let call = || fh.on(CpuId::new(cpu)).free(freehold::Pfn::new(pfn), Order::ZERO).unwrap();
        court.call(Task::Free, &[(pfn, 1)], call, |()| (true, vec![]));
    };
    // All of a word, and one more, so that the word is let go: two frames of it freed in a row go
    // to who frees them.
    let word: Vec<u64> = (0..64).map(|_| alloc(0)).collect();
    alloc(0);
    for (cpu, some) in [(1, &word[..2]), (0, &word[2..5])] {
        some.iter().for_each(|&pfn| free(cpu, pfn));
        // All that is in hand is handed out, and some more.
        (0..70).for_each(|_| _ = alloc(cpu));
    }
    court.call(Task::Other, &[], || fh.drain_all(), |()| (true, vec![]));
    court.quiet();
    drop(witnessed);
    court.accepted();
}

/// A short history, to be judged again.
fn recorded(threads: u16, calls: u64, seed: u64) -> (Shape, Vec<Event>) {
    let fh = machine(2, Watermarks::None);
    i_am(0);
    let (court, witnessed) = Court::new(&fh, true);
    let shape = fh.shape();
    round(&world(&fh, &court), seed, threads, calls);
    drop(witnessed);
    court.accepted();
    // What the witness was told first is of no thread.
    (shape, court.history())
}
