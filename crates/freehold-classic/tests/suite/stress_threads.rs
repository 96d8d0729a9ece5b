//! Real threads on every design: each plays a CPU, frees what others allocated, and CPUs come and
//! go meanwhile.
//!
//! Every frame that is in use carries the number of the allocation it belongs to in a shared array.
//! Whoever receives a chunk writes its number over a 0, whoever frees it writes 0 over its number;
//! any other value found there means that two had the same frame at once. Work is bounded by
//! counts, not by time.
//!
//! ```text
//!   4 workers    alloc, stamp, hand to a random worker's queue    free what is in the own queue
//!   hotplug      asks a worker to pause, CPU dead, a few other things happen, CPU online, goes on
//!   drainer      drain_all, ticks
//! ```

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use crate::stress_support::{Ledger, Pause, Queues};
use fastrand::Rng;
use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn,
};
use freehold_classic::{Classic, Config, Context, Design, Put, Request, presets};

const CPUS: u16 = 4;
const BLOCKS: u64 = 48;
struct Machine {
    classic: Classic,
    ledger: Ledger,
    queues: Queues,
    pause: Pause,
    done: AtomicBool,
    start: Pfn,
}

impl Machine {
    fn new(design: &str, blocks: u64) -> Self {
        let mut config =
            Config::single_zone(Design::parse(design).unwrap(), CPUS, blocks * PAGEBLOCK_FRAMES);
        let range = config.zones[0].range;
        config.zones[0].cma = vec![FrameRange::new(range.start, 2 * PAGEBLOCK_FRAMES).unwrap()];
        Self {
            classic: Classic::new(config).unwrap(),
            ledger: Ledger::new(range),
            queues: Queues::new(CPUS),
            pause: Pause::new(CPUS),
            done: AtomicBool::new(false),
            start: range.start,
        }
    }

    /// Everything back, and whole.
    fn finish(&self, name: &str) {
        for chunk in self.queues.take_all() {
            self.ledger.lift(chunk);
            assert_eq!(self.classic.free(CpuId::new(0), chunk.pfn, chunk.order), Ok(Put::Freed));
        }
        self.ledger.check_empty();
        self.classic.drain_all();
        self.classic.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
        let map = self.classic.memory_map();
        assert_eq!((map.free, map.on_pcp), (map.managed, 0), "{name}: frames were lost");
        assert_eq!(
            map.zone_chunks[9] + 2 * map.zone_chunks[10],
            map.managed / PAGEBLOCK_FRAMES,
            "{name}: not whole"
        );
    }
}

/// Frees up to `most` chunks at once, as reclaim does.
fn free_batch(machine: &Machine, cpu: u16, most: usize) {
    let chunks: Vec<_> = (0..most).map_while(|_| machine.queues.pop(cpu)).collect();
    chunks.iter().for_each(|chunk| machine.ledger.lift(*chunk));
    let folios: Vec<_> = chunks.iter().map(|chunk| (chunk.pfn, chunk.order)).collect();
    assert_eq!(machine.classic.free_folios(CpuId::new(cpu), &folios), Ok(folios.len()));
}

fn work(machine: &Machine, cpu: u16, steps: u32) {
    let (classic, ledger) = (&machine.classic, &machine.ledger);
    let id = CpuId::new(cpu);
    let _leaving = machine.pause.until_left(cpu);
    let mut random = Rng::with_seed(u64::from(cpu));
    for _ in 0..steps {
        machine.pause.pass(cpu);
        if random.u64(..16) == 0 {
            // With fewer processors than threads each would otherwise run for thousands of steps
            // undisturbed.
            thread::yield_now();
        }
        match random.u64(..10) {
            0..4 => {
                let order =
                    Order::new([0, 0, 0, 0, 1, 2, 3, 5, 9, 10][random.u64(..10) as usize]).unwrap();
                let flags = [
                    AllocFlags::empty(),
                    AllocFlags::empty(),
                    AllocFlags::NO_LOCK,
                    AllocFlags::NON_BLOCK | AllocFlags::HIGH_ATOMIC,
                ][random.u64(..4) as usize];
                let migratetype = Migratetype::PCP[random.u64(..3) as usize];
                match classic.alloc(id, Request::new(order, migratetype).with(flags)) {
                    Ok(pfn) => {
                        let to = random.u64(..u64::from(CPUS)) as u16;
                        machine.queues.push(to, ledger.stamp(pfn, order));
                    }
                    Err(error) => {
                        assert_eq!(error, AllocError::NoMemory { order });
                        // Full: make room, or from now on nothing but this would be tried.
                        free_batch(machine, cpu, 80);
                    }
                }
            }
            4 => {
                let mut slots = [None; 20];
                let filled = classic
                    .alloc_bulk(id, Migratetype::Movable, AllocFlags::empty(), &mut slots)
                    .unwrap();
                for pfn in slots[..filled].iter().flatten() {
                    let to = random.u64(..u64::from(CPUS)) as u16;
                    machine.queues.push(to, ledger.stamp(*pfn, Order::ZERO));
                }
            }
            5 => {
                free_batch(machine, cpu, random.u64(..40) as usize);
            }
            6 => {
                // A chunk split and freed as a range, with an extra reference for a while.
                let Some(chunk) = machine.queues.pop(cpu) else { continue };
                ledger.lift(chunk);
                classic.split(chunk.pfn, chunk.order, Order::ZERO).unwrap();
                let range = FrameRange::new(chunk.pfn, chunk.order.frames()).unwrap();
                classic.get(chunk.pfn).unwrap();
                assert_eq!(classic.free_contig_range(id, range), Ok(1));
                assert_eq!(classic.free_array(id, &[chunk.pfn]), Ok(0));
            }
            _ => {
                let Some(chunk) = machine.queues.pop(cpu) else { continue };
                let context =
                    [Context::Task, Context::Interrupt, Context::Nmi][random.u64(..3) as usize];
                ledger.lift(chunk);
                assert_eq!(classic.free_in(context, id, chunk.pfn, chunk.order), Ok(Put::Freed));
            }
        }
    }
}

/// CPUs 1 to 3 come and go; CPU 0 stays.
/// Returns how often.
fn hotplug(machine: &Machine) -> u32 {
    let mut rounds = 0;
    let mut random = Rng::with_seed(77);
    while !machine.done.load(Relaxed) {
        let cpu = 1 + random.u64(..u64::from(CPUS) - 1) as u16;
        machine.pause.stop(cpu);
        let id = CpuId::new(cpu);
        machine.classic.cpu_dead(id).unwrap();
        for _ in 0..random.u64(..200) {
            thread::yield_now();
        }
        machine.classic.cpu_online(id).unwrap();
        machine.pause.go(cpu);
        rounds += 1;
        thread::yield_now();
    }
    rounds
}

fn drainer(machine: &Machine) {
    let mut random = Rng::with_seed(99);
    while !machine.done.load(Relaxed) {
        match random.u64(..8) {
            0 => machine.classic.drain_all(),
            1 => machine.classic.set_reclaim(random.u64(..2) == 0),
            2 => machine.classic.tick_remote_node(CpuId::new(random.u64(..4) as u16)),
            3 => {
                // What a monitor does: totals of a moving target, of which nothing is asked but
                // that they come back.
                let _ = (machine.classic.memory_map(), machine.classic.stats());
            }
            _ => machine.classic.tick(CpuId::new(random.u64(..4) as u16)),
        }
        thread::yield_now();
    }
    machine.classic.set_reclaim(false);
}

/// Every preset, and the switches that none has.
fn designs() -> impl Iterator<Item = &'static str> {
    let more = [
        "7.2,-high-order-pcp,+merge-unowned",
        "pcp-buddy,+peer-blocks,+merge-unowned,+targeted-drain",
        "pcp-buddy-fixed,+peer-blocks,+merge-unowned,+targeted-drain",
    ];
    presets().iter().map(|preset| preset.name).chain(more)
}

/// Each worker takes so many steps: 40,000 are some 100,000 chunks each.
fn survives(steps: u32) {
    for name in designs() {
        let machine = Machine::new(name, BLOCKS);
        let rounds = thread::scope(|scope| {
            let machine = &machine;
            let workers: Vec<_> =
                (0..CPUS).map(|cpu| scope.spawn(move || work(machine, cpu, steps))).collect();
            let plugger = scope.spawn(|| hotplug(machine));
            let drainer = scope.spawn(|| drainer(machine));
            // Set in any case, or a failed worker would leave the others waiting for ever.
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            machine.done.store(true, Relaxed);
            drainer.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
            plugger.join().unwrap()
        });
        let stats = machine.classic.stats();
        // Most of the work went through, and what it was meant to meet has happened.
        let allocs = stats.pcp.allocs + stats.zone.allocs;
        assert!(
            allocs > u64::from(steps) && allocs > stats.failed && stats.drain_all > 0 && rounds > 0,
            "{}: {stats:?}",
            name
        );
        machine.finish(name);
    }
}

#[test]
fn every_preset_survives_four_cpus_hotplug_and_drains() {
    survives(6_000);
}

#[test]
#[ignore = "long: cargo test -p freehold-classic --test suite -- --ignored"]
fn every_preset_survives_four_cpus_hotplug_and_drains_for_longer() {
    survives(40_000);
}

/// Waits until both of two threads have arrived for the `i`-th time, so that they go on together as
/// far as two can.
fn meet(turn: &AtomicU32, i: usize) {
    turn.fetch_add(1, Relaxed);
    while turn.load(Relaxed) < 2 * (i as u32 + 1) {
        // Not for long, but the other may be waiting for this processor.
        thread::yield_now();
    }
}

/// Two threads free the same chunks at the same time: one of them gets each.
#[test]
fn of_two_concurrent_frees_exactly_one_succeeds() {
    for name in designs() {
        let machine = Machine::new(name, 16);
        let classic = &machine.classic;
        let mut random = Rng::with_seed(5);
        for _round in 0..10 {
            let mut chunks = Vec::new();
            for _ in 0..200 {
                let order = Order::new([0, 0, 0, 1, 3, 6][random.u64(..6) as usize]).unwrap();
                let request = Request::new(order, Migratetype::Movable);
                chunks.push((classic.alloc(CpuId::new(0), request).unwrap(), order));
            }
            let turn = AtomicU32::new(0);
            let free_all = |cpu: u16| {
                // Judged at the end: who panics here leaves the other waiting.
                let (mut freed, mut wrong) = (0, Vec::new());
                for (i, &(pfn, order)) in chunks.iter().enumerate() {
                    meet(&turn, i);
                    match classic.free(CpuId::new(cpu), pfn, order) {
                        Ok(put) => freed += u32::from(put == Put::Freed),
                        // What the other one freed may have been joined to something larger by now.
                        Err(freehold::FreeError::DoubleFree { pfn: of }) if of == pfn => {}
                        Err(error) => wrong.push(error),
                    }
                }
                (freed, wrong)
            };
            let (one, two) = thread::scope(|scope| {
                let other = scope.spawn(|| free_all(1));
                (free_all(0), other.join().unwrap())
            });
            assert!(one.1.is_empty() && two.1.is_empty(), "{}: {one:?} and {two:?}", name);
            assert_eq!(one.0 + two.0, chunks.len() as u32, "{}", name);
        }
        machine.finish(name);
    }
}

/// A range is freed while others take and drop references of its frames; whoever is last frees.
/// Then batches with a wrong element at their end, which must leave every reference where it was.
#[test]
fn ranges_and_references_race_and_every_frame_is_freed_once() {
    for name in designs() {
        let machine = Machine::new(name, 16);
        let classic = &machine.classic;
        for _round in 0..40 {
            let order = Order::new(6).unwrap();
            let pfn =
                classic.alloc(CpuId::new(0), Request::new(order, Migratetype::Movable)).unwrap();
            classic.split(pfn, order, Order::ZERO).unwrap();
            let frames: Vec<Pfn> =
                (0..order.frames()).map(|i| pfn.checked_add(i).unwrap()).collect();
            // Each of the three threads has a reference of every frame.
            for &frame in &frames {
                classic.get(frame).unwrap();
                classic.get(frame).unwrap();
            }
            let wrong: Vec<Pfn> = frames.iter().copied().chain([Pfn::new(1)]).collect();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..5 {
                        classic.free_array(CpuId::new(1), &wrong).unwrap_err();
                    }
                    let _ = classic.free_array(CpuId::new(1), &frames).unwrap();
                });
                scope.spawn(|| {
                    for &frame in &frames {
                        classic.get(frame).unwrap();
                        assert_eq!(classic.free(CpuId::new(2), frame, Order::ZERO), Ok(Put::Kept));
                        let _ = classic.free(CpuId::new(2), frame, Order::ZERO).unwrap();
                    }
                });
                let range = FrameRange::new(pfn, order.frames()).unwrap();
                let _ = classic.free_contig_range(CpuId::new(0), range).unwrap();
            });
            for &frame in &frames {
                assert_eq!(classic.get(frame), Err(freehold::FreeError::DoubleFree { pfn: frame }));
            }
        }
        machine.finish(name);
    }
}

/// Splitting against freeing the same chunk: either all of it is freed, or all of it is split,
/// never both.
#[test]
fn a_split_and_a_free_of_the_same_chunk_exclude_each_other() {
    let order = Order::new(7).unwrap();
    for name in designs() {
        let machine = Machine::new(name, 16);
        let classic = &machine.classic;
        for round in 0..20u32 {
            let request = Request::new(order, Migratetype::Movable);
            let chunks: Vec<Pfn> =
                (0..30).map(|_| classic.alloc(CpuId::new(0), request).unwrap()).collect();
            let turn = AtomicU32::new(0);
            let (split, freed) = thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let free = |(i, &pfn)| {
                        meet(&turn, i);
                        // A little later each time: somewhere in there is the moment when the split
                        // is half done.
                        (0..(i as u32 + round) % 16 * 8).for_each(|_| core::hint::spin_loop());
                        classic.free(CpuId::new(1), pfn, order)
                    };
                    chunks.iter().enumerate().map(free).collect::<Vec<_>>()
                });
                let split = |(i, &pfn)| {
                    meet(&turn, i);
                    classic.split(pfn, order, Order::ZERO)
                };
                (chunks.iter().enumerate().map(split).collect::<Vec<_>>(), other.join().unwrap())
            });
            for ((&pfn, split), freed) in chunks.iter().zip(split).zip(freed) {
                assert_ne!(split.is_ok(), freed.is_ok(), "{}: {split:?} and {freed:?}", name);
                if split.is_ok() {
                    let range = FrameRange::new(pfn, order.frames()).unwrap();
                    assert_eq!(classic.free_contig_range(CpuId::new(0), range), Ok(0));
                }
            }
        }
        machine.finish(name);
    }
}

/// Ranges are taken out of memory that others are busy allocating and freeing. Whether it succeeds
/// is a matter of luck; that nobody else has a frame of it afterwards is not.
#[test]
fn ranges_taken_from_running_allocators_are_nobody_elses() {
    for name in designs() {
        let machine = Machine::new(name, 16);
        let (classic, ledger) = (&machine.classic, &machine.ledger);
        let mut taken = 0;
        thread::scope(|scope| {
            for cpu in 0..2u16 {
                let machine = &machine;
                scope.spawn(move || {
                    let mut random = Rng::with_seed(u64::from(cpu) + 40);
                    let mut mine = Vec::new();
                    while !machine.done.load(Relaxed) {
                        if mine.len() < 60 && random.u64(..2) == 0 {
                            let order = Order::new([0, 0, 1, 4][random.u64(..4) as usize]).unwrap();
                            let request =
                                Request::new(order, Migratetype::PCP[random.u64(..3) as usize]);
                            if let Ok(pfn) = classic.alloc(CpuId::new(cpu), request) {
                                mine.push(ledger.stamp(pfn, order));
                            }
                        } else if !mine.is_empty() {
                            let chunk = mine.swap_remove(random.u64(..mine.len() as u64) as usize);
                            ledger.lift(chunk);
                            assert_eq!(
                                classic.free(CpuId::new(cpu), chunk.pfn, chunk.order),
                                Ok(Put::Freed)
                            );
                        }
                    }
                    mine.into_iter().for_each(|chunk| machine.queues.push(cpu, chunk));
                });
            }
            let taker = scope.spawn(|| {
                let mut random = Rng::with_seed(9);
                let mut taken = 0;
                for _ in 0..300 {
                    let offset = random.u64(..15 * PAGEBLOCK_FRAMES);
                    let range = FrameRange::new(
                        machine.start.checked_add(offset).unwrap(),
                        1 + random.u64(..500),
                    )
                    .unwrap();
                    // Nothing of the others' can be moved: they have no idea of it.
                    match classic.alloc_contig_range(CpuId::new(2), range, &mut |_| false) {
                        Ok(()) => {
                            taken += 1;
                            let chunks: Vec<_> = (range.start.get()..range.end.get())
                                .map(|pfn| ledger.stamp(Pfn::new(pfn), Order::ZERO))
                                .collect();
                            chunks.into_iter().for_each(|chunk| ledger.lift(chunk));
                            assert_eq!(classic.free_contig_range(CpuId::new(2), range), Ok(0));
                        }
                        Err(error) => assert!(matches!(error, AllocError::Busy { .. }), "{error}"),
                    }
                }
                taken
            });
            let result = taker.join();
            machine.done.store(true, Relaxed);
            taken = result.unwrap();
        });
        // With the others gone it is no matter of luck any more.
        machine.queues.take_all().into_iter().for_each(|chunk| {
            ledger.lift(chunk);
            assert_eq!(classic.free(CpuId::new(0), chunk.pfn, chunk.order), Ok(Put::Freed));
        });
        let all = FrameRange::new(machine.start, 16 * PAGEBLOCK_FRAMES).unwrap();
        classic.alloc_contig_range(CpuId::new(2), all, &mut |_| false).unwrap_or_else(|error| {
            panic!("{}, after {taken} ranges taken: {error}", name);
        });
        assert_eq!(classic.free_contig_range(CpuId::new(2), all), Ok(0));
        machine.finish(name);
    }
}
