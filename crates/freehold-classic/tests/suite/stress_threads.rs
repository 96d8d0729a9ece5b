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

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
                let context = [Context::Task, Context::Interrupt][random.u64(..2) as usize];
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
