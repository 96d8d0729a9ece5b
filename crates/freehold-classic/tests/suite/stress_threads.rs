//! Real threads on every design: each plays a CPU and frees what others allocated, while further
//! CPUs come and go and everybody is drained.
//!
//! Every frame in use carries the number of its allocation. Whoever receives a chunk writes that
//! number over a 0, and whoever frees it writes 0 over the number; another value there means that
//! two had the same frame at once. Work is bounded by counts, not by time.
//!
//! ```text
//!   4 workers    alloc, stamp, hand to a random worker's queue    free what is in the own queue
//!   hotplug      CPU online, alloc on it, hand to the workers, CPU dead
//!   drainer      drain_all, ticks
//! ```

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use fastrand::Rng;
use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn,
};
use freehold_classic::{Classic, Config, Context, Design, Put, Request, presets};

const WORKERS: u16 = 4;
/// The CPU that comes and goes.
const GUEST: CpuId = CpuId::new(WORKERS);
const BLOCKS: u64 = 48;

/// A chunk in use, with the number its frames are stamped with.
type Stamped = (Pfn, Order, u32);

struct Machine {
    classic: Classic,
    start: Pfn,
    /// For each frame the number of the allocation that has it, or 0. Relaxed throughout: the
    /// allocator alone must make a frame's former user visible to its next one.
    frames: Box<[AtomicU32]>,
    stamps: AtomicU32,
    queues: [Mutex<VecDeque<Stamped>>; WORKERS as usize],
    done: AtomicBool,
}

impl Machine {
    fn new(design: &str) -> Self {
        let design = Design::parse(design).unwrap();
        let mut config = Config::single_zone(design, WORKERS + 1, BLOCKS * PAGEBLOCK_FRAMES);
        let range = config.zones[0].range;
        config.zones[0].cma = vec![FrameRange::new(range.start, 2 * PAGEBLOCK_FRAMES).unwrap()];
        Self {
            classic: Classic::new(config).unwrap(),
            start: range.start,
            frames: (0..range.len()).map(|_| AtomicU32::new(0)).collect(),
            stamps: AtomicU32::new(1),
            queues: Default::default(),
            done: AtomicBool::new(false),
        }
    }

    fn write(&self, (pfn, order, stamp): Stamped, old: u32, new: u32) {
        let first = (pfn.get() - self.start.get()) as usize;
        for record in &self.frames[first..first + order.frames() as usize] {
            let found = record.swap(new, Relaxed);
            assert_eq!(found, old, "{pfn}, {order}, of allocation {stamp}, is also {found}'s");
        }
    }

    /// Stamps a chunk that was just handed out, and hands it to some worker.
    fn hand_over(&self, random: &mut Rng, pfn: Pfn, order: Order) {
        let stamp = self.stamps.fetch_add(1, Relaxed);
        self.write((pfn, order, stamp), 0, stamp);
        let to = random.usize(..self.queues.len());
        self.queues[to].lock().unwrap().push_back((pfn, order, stamp));
    }

    /// The next chunk of the worker's queue, its stamp lifted; of another's when that is empty, so
    /// that what a worker leaves behind at its end does not stay out of circulation.
    fn pop(&self, of: u16) -> Option<(Pfn, Order)> {
        let all = self.queues.len();
        let chunk = (0..all)
            .find_map(|i| self.queues[(usize::from(of) + i) % all].lock().unwrap().pop_front())?;
        self.write(chunk, chunk.2, 0);
        Some((chunk.0, chunk.1))
    }

    /// Everything back, and whole.
    fn finish(&self, name: &str) {
        while let Some((pfn, order)) = self.pop(0) {
            assert_eq!(self.classic.free(CpuId::new(0), pfn, order), Ok(Put::Freed));
        }
        self.classic.drain_all();
        self.classic.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
        let map = self.classic.memory_map();
        assert_eq!((map.free, map.on_pcp), (map.managed, 0), "{name}: frames were lost");
        let whole = map.zone_chunks[9] + 2 * map.zone_chunks[10];
        assert_eq!(whole, map.managed / PAGEBLOCK_FRAMES, "{name}: not whole");
    }
}

/// Frees up to `most` chunks at once, as reclaim does.
fn free_batch(machine: &Machine, cpu: u16, most: usize) {
    let folios: Vec<_> = (0..most).map_while(|_| machine.pop(cpu)).collect();
    assert_eq!(machine.classic.free_folios(CpuId::new(cpu), &folios), Ok(folios.len()));
}

/// Whether there was memory for it.
fn alloc(machine: &Machine, cpu: CpuId, random: &mut Rng) -> bool {
    let orders = [0, 0, 0, 0, 1, 2, 3, 5, 9, 10];
    let order = Order::new(orders[random.usize(..10)]).unwrap();
    let high = AllocFlags::NON_BLOCK | AllocFlags::HIGH_ATOMIC;
    let flags = [AllocFlags::empty(), AllocFlags::empty(), AllocFlags::NO_LOCK, high];
    let migratetype = Migratetype::PCP[random.usize(..3)];
    let request = Request::new(order, migratetype).with(flags[random.usize(..4)]);
    let got = machine.classic.alloc(cpu, request);
    match got {
        Ok(pfn) => machine.hand_over(random, pfn, order),
        Err(error) => assert_eq!(error, AllocError::NoMemory { order }),
    }
    got.is_ok()
}

fn work(machine: &Machine, cpu: u16, steps: u32) {
    let classic = &machine.classic;
    let id = CpuId::new(cpu);
    let mut random = Rng::with_seed(u64::from(cpu));
    for _ in 0..steps {
        if random.u64(..16) == 0 {
            // With fewer processors than threads each would otherwise run for thousands of steps
            // undisturbed.
            thread::yield_now();
        }
        match random.u64(..10) {
            // Full: make room, or from now on nothing but this would be tried.
            0..4 if !alloc(machine, id, &mut random) => free_batch(machine, cpu, 80),
            0..4 => {}
            4 => {
                let mut slots = [None; 20];
                let (movable, none) = (Migratetype::Movable, AllocFlags::empty());
                let filled = classic.alloc_bulk(id, movable, none, &mut slots).unwrap();
                for pfn in slots[..filled].iter().flatten() {
                    machine.hand_over(&mut random, *pfn, Order::ZERO);
                }
            }
            5 => free_batch(machine, cpu, random.usize(..40)),
            6 => {
                // A chunk split and freed as a range, with an extra reference for a while.
                let Some((pfn, order)) = machine.pop(cpu) else { continue };
                classic.split(pfn, order, Order::ZERO).unwrap();
                let range = FrameRange::new(pfn, order.frames()).unwrap();
                classic.get(pfn).unwrap();
                assert_eq!(classic.free_contig_range(id, range), Ok(1));
                assert_eq!(classic.free_array(id, &[pfn]), Ok(0));
            }
            _ => {
                let Some((pfn, order)) = machine.pop(cpu) else { continue };
                let context = [Context::Task, Context::Interrupt][random.usize(..2)];
                assert_eq!(classic.free_in(context, id, pfn, order), Ok(Put::Freed));
            }
        }
    }
}

/// A CPU that comes, allocates and goes, while others still free what it has handed out.
/// Returns how often.
fn hotplug(machine: &Machine) -> u32 {
    let mut rounds = 0;
    let mut random = Rng::with_seed(77);
    while !machine.done.load(Relaxed) {
        machine.classic.cpu_dead(GUEST).unwrap();
        thread::yield_now();
        machine.classic.cpu_online(GUEST).unwrap();
        for _ in 0..random.u32(..200) {
            // Where the machine is full it goes at once: it has nothing to free, and would do
            // nothing but fail for as long as the workers wait for a processor.
            if !alloc(machine, GUEST, &mut random) {
                break;
            }
        }
        rounds += 1;
        thread::yield_now();
    }
    rounds
}

fn drainer(machine: &Machine) {
    let mut random = Rng::with_seed(99);
    while !machine.done.load(Relaxed) {
        let cpu = CpuId::new(random.u16(..WORKERS));
        match random.u64(..8) {
            0 => machine.classic.drain_all(),
            1 => machine.classic.set_reclaim(random.bool()),
            2 => machine.classic.tick_remote_node(cpu),
            // What a monitor does: of totals of a moving target nothing is asked but that they
            // come back.
            3 => _ = (machine.classic.memory_map(), machine.classic.stats()),
            _ => machine.classic.tick(cpu),
        }
        thread::yield_now();
    }
    machine.classic.set_reclaim(false);
}

#[test]
fn every_design_survives_four_cpus_hotplug_and_drains() {
    let steps = 6_000;
    let more = [
        "7.2,-high-order-pcp,+merge-unowned",
        "pcp-buddy,+peer-blocks,+merge-unowned,+targeted-drain",
        "pcp-buddy-fixed,+peer-blocks,+merge-unowned,+targeted-drain",
    ];
    for name in presets().iter().map(|preset| preset.name).chain(more) {
        let machine = Machine::new(name);
        let rounds = thread::scope(|scope| {
            let machine = &machine;
            let workers: Vec<_> =
                (0..WORKERS).map(|cpu| scope.spawn(move || work(machine, cpu, steps))).collect();
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
        // Work went through, and what it was meant to meet has happened. How often a request failed
        // depends on which thread had a processor.
        let allocs = stats.pcp.allocs + stats.zone.allocs;
        assert!(
            allocs > u64::from(steps) && stats.drain_all > 0 && rounds > 0,
            "{name}: {stats:?}"
        );
        machine.finish(name);
    }
}
