//! Random histories on every design, right calls and wrong ones: one thread plays all CPUs of
//! machines of every odd shape, and four threads play a CPU each beside drains.
//!
//! Every frame in use carries the number of its allocation. Whoever receives a chunk writes that
//! number over a 0, and whoever frees it writes 0 over the number; another value there means that
//! two had the same frame at once. Work is bounded by counts, not by time.
//!
//! ```text
//!   4 workers    alloc, stamp, hand to a random worker's queue    free what is in the own queue
//!   drainer      drain_all, ticks
//! ```
//!
//! `FREEHOLD_SECONDS=1`, as in CI, plays five times as many histories, and so on.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use fastrand::Rng;
use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES as BLOCK, Pfn,
};
use freehold_classic::{
    Classic, Config, Design, Put, Request, Switch, Watermarks, ZoneConfig, presets,
};

const WORKERS: u16 = 4;

/// A chunk in use, with the number its frames are stamped with.
type Stamped = (Pfn, Order, u32);

struct Machine {
    classic: Classic,
    range: FrameRange,
    /// For each frame the number of the allocation that has it, or 0. Relaxed throughout: the
    /// allocator alone must make a frame's former user visible to its next one.
    frames: Box<[AtomicU32]>,
    stamps: AtomicU32,
    queues: [Mutex<VecDeque<Stamped>>; WORKERS as usize],
    done: AtomicBool,
}

impl Machine {
    fn new(design: &str, shape: Shape) -> Self {
        let design = Design::parse(design).unwrap();
        let zone = zone(shape);
        let (range, huge_pages) = (zone.range, shape != Shape::FromZero);
        let config = Config::single_zone(design, WORKERS, BLOCK);
        Self {
            classic: Classic::new(Config { zone, huge_pages, ..config }).unwrap(),
            range,
            frames: (0..range.len()).map(|_| AtomicU32::new(0)).collect(),
            stamps: AtomicU32::new(1),
            queues: Default::default(),
            done: AtomicBool::new(false),
        }
    }

    fn stamps_of(&self, range: FrameRange) -> &[AtomicU32] {
        let first = (range.start.get() - self.range.start.get()) as usize;
        &self.frames[first..first + range.len() as usize]
    }

    fn write(&self, (pfn, order, stamp): Stamped, old: u32, new: u32) {
        for record in self.stamps_of(FrameRange::new(pfn, order.frames()).unwrap()) {
            let found = record.swap(new, Relaxed);
            assert_eq!(found, old, "{pfn}, {order}, of allocation {stamp}, is also {found}'s");
        }
    }

    /// Stamps a chunk that was just handed out, and hands it to some worker.
    fn hand_over(&self, random: &mut Rng, pfn: Pfn, order: Order) {
        let stamp = self.stamps.fetch_add(1, Relaxed);
        assert!(pfn.is_aligned(order), "{pfn} is not aligned to {order}");
        let range = FrameRange::new(pfn, order.frames()).unwrap();
        assert!(self.range.start <= range.start && range.end <= self.range.end, "{range}");
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

    /// Frames that are stamped. Exact while one thread plays.
    fn in_use(&self) -> u64 {
        self.frames.iter().filter(|stamp| stamp.load(Relaxed) != 0).count() as u64
    }

    /// The allocator agrees with itself, and nothing is lost or there twice.
    fn check(&self) {
        self.classic.validate().unwrap();
        let map = self.classic.memory_map();
        assert_eq!(map.managed - map.free, self.in_use(), "frames were lost or doubled");
    }

    /// Everything back, and whole.
    fn finish(&self) {
        while let Some((pfn, order)) = self.pop(0) {
            assert_eq!(self.classic.free(CpuId::new(0), pfn, order), Ok(Put::Freed));
        }
        self.classic.drain_all();
        self.check();
        let map = self.classic.memory_map();
        assert_eq!((map.free, map.on_pcp), (map.managed, 0), "frames were lost");
        let (start, end) = (self.range.start.get().next_multiple_of(BLOCK), self.range.end.get());
        let whole = (end - end % BLOCK).saturating_sub(start) / BLOCK;
        assert_eq!(map.free_blocks, whole);
        assert_eq!(map.zone_chunks[9] + 2 * map.zone_chunks[10], whole, "a block is in pieces");
    }
}

/// The shape of a machine's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    /// Whole blocks, two of them CMA.
    Plain,
    /// Starts and ends inside a block.
    Ragged,
    /// 100 frames, over the edge of a block.
    Tiny,
    /// Large enough for a HIGHATOMIC reserve.
    Large,
    /// From frame 0 on, no huge pages, watermarks of 0.
    FromZero,
}

const SHAPES: [Shape; 5] =
    [Shape::Plain, Shape::Ragged, Shape::Tiny, Shape::Large, Shape::FromZero];

fn zone(shape: Shape) -> ZoneConfig {
    let base = 0x10_0000;
    let zone = |start, frames| ZoneConfig::new(Pfn::new(start), frames);
    match shape {
        Shape::Plain => {
            let cma = vec![FrameRange::new(Pfn::new(base), 2 * BLOCK).unwrap()];
            ZoneConfig { cma, ..zone(base, 48 * BLOCK) }
        }
        Shape::Ragged => zone(base + 0x123, 12 * BLOCK + 77),
        Shape::Tiny => zone(0x1000 - 33, 100),
        Shape::Large => zone(base, 104 * BLOCK),
        Shape::FromZero => {
            let watermarks = Some(Watermarks::default());
            ZoneConfig { watermarks, ..zone(0, 9 * BLOCK + 1) }
        }
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
    let flags = [AllocFlags::empty(), AllocFlags::NO_WATERMARKS, AllocFlags::NO_LOCK, high];
    let migratetype = Migratetype::PCP[random.usize(..3)];
    let request = Request::new(order, migratetype).with(flags[random.usize(..4)]);
    let got = machine.classic.alloc(cpu, request);
    match got {
        Ok(pfn) => machine.hand_over(random, pfn, order),
        Err(error) => assert_eq!(error, AllocError::NoMemory { order }),
    }
    got.is_ok()
}

/// A step of the CPU `cpu`.
fn step(machine: &Machine, cpu: u16, random: &mut Rng) {
    let classic = &machine.classic;
    let id = CpuId::new(cpu);
    match random.u64(..10) {
        // Full: make room, or from now on nothing but this would be tried.
        0..4 if !alloc(machine, id, random) => free_batch(machine, cpu, 80),
        0..4 => {}
        4 => {
            let mut slots = [None; 20];
            let (movable, none) = (Migratetype::Movable, AllocFlags::empty());
            let filled = classic.alloc_bulk(id, movable, none, &mut slots).unwrap();
            for pfn in slots[..filled].iter().flatten() {
                machine.hand_over(random, *pfn, Order::ZERO);
            }
        }
        5 => free_batch(machine, cpu, random.usize(..40)),
        6 => {
            // A chunk split and freed as a range, with an extra reference for a while.
            let Some((pfn, order)) = machine.pop(cpu) else { return };
            classic.split(pfn, order, Order::ZERO).unwrap();
            let range = FrameRange::new(pfn, order.frames()).unwrap();
            classic.get(pfn).unwrap();
            assert_eq!(classic.free_contig_range(id, range), Ok(1));
            assert_eq!(classic.free_array(id, &[pfn]), Ok(0));
        }
        _ => {
            let Some((pfn, order)) = machine.pop(cpu) else { return };
            assert_eq!(classic.free(id, pfn, order), Ok(Put::Freed));
        }
    }
}

/// A step that only the only thread may make: what it must answer is sure.
fn step_alone(machine: &Machine, random: &mut Rng) {
    let classic = &machine.classic;
    let cpu = CpuId::new(random.u16(..WORKERS));
    let all = machine.range;
    let pfn = Pfn::new(all.start.get() + random.u64(..all.len()));
    match random.u64(..10) {
        // Any frame with any order: right where a chunk is just that.
        0..4 => {
            let order = Order::new(random.u8(..12)).unwrap();
            let before = format!("{:?}", classic.memory_map());
            let queues = machine.queues.each_ref().map(|queue| queue.lock().unwrap());
            if queues.iter().flat_map(|of| of.iter()).any(|it| (it.0, it.1) == (pfn, order)) {
                return;
            }
            assert!(classic.free(cpu, pfn, order).is_err(), "{pfn}, {order} is nobody's");
            assert!(classic.free_folios(cpu, &[(pfn, order)]).is_err());
            assert_eq!(format!("{:?}", classic.memory_map()), before, "{pfn}, {order}");
        }
        // A range is to be had where nothing of it is in use, and only there.
        4..6 => {
            let most = all.end.get() - pfn.get();
            let range = FrameRange::new(pfn, 1 + random.u64(..most.min(1500))).unwrap();
            let is_free = machine.stamps_of(range).iter().all(|stamp| stamp.load(Relaxed) == 0);
            let got = classic.alloc_contig_range(cpu, range, &mut |_| false);
            assert_eq!(got.is_ok(), is_free, "{range}: {got:?}");
            if got.is_ok() {
                (range.start.get()..range.end.get())
                    .for_each(|pfn| machine.hand_over(random, Pfn::new(pfn), Order::ZERO));
            }
        }
        6 => {
            classic.drain_all();
            assert_eq!(classic.memory_map().on_pcp, 0);
        }
        7 => classic.set_reclaim(random.bool()),
        8 => classic.tick_remote_node(cpu),
        _ => classic.tick(cpu),
    }
}

/// The presets, and their reviewers' questions.
fn designs() -> impl Iterator<Item = &'static str> {
    let more = [
        "6.18,+least-drain,+defrag-mode",
        "pcp-buddy-fixed,+least-drain,+defrag-mode",
        "7.2,-high-order-pcp,+merge-unowned",
        "pcp-buddy,+peer-blocks,+merge-unowned,+targeted-drain",
        "pcp-buddy-fixed,+peer-blocks,+merge-unowned,+targeted-drain",
    ];
    presets().iter().map(|preset| preset.name).chain(more)
}

fn play(design: &str, shape: Shape, seed: u64, steps: u32) {
    let machine = Machine::new(design, shape);
    let mut random = Rng::with_seed(seed);
    for n in 0..steps {
        if random.u64(..5) == 0 {
            step_alone(&machine, &mut random);
        } else {
            step(&machine, random.u16(..WORKERS), &mut random);
        }
        if n % 8 == 0 {
            machine.check();
        }
    }
    machine.finish();
}

/// Histories of a design on a shape. Each is named before it is played, for the one that panics.
fn histories() -> u64 {
    let seconds = std::env::var("FREEHOLD_SECONDS").ok().and_then(|text| text.parse().ok());
    1 + 4 * seconds.unwrap_or(0)
}

#[test]
fn every_design_holds_on_machines_of_every_shape() {
    for (design, shape) in designs().flat_map(|design| SHAPES.map(|shape| (design, shape))) {
        for seed in 0..histories() {
            println!("{design}, {shape:?}, seed {seed}");
            play(design, shape, seed, 200);
        }
    }
}

#[test]
fn any_mixture_of_switches_holds() {
    let mut random = Rng::with_seed(1);
    for seed in 0..100 * histories() {
        let preset = &presets()[random.usize(..presets().len())];
        let mut design = preset.name.to_owned();
        for _ in 0..random.usize(1..8) {
            let switch = Switch::ALL[random.usize(..Switch::ALL.len())];
            design += &format!(",{}{switch}", if preset.switches.has(switch) { '-' } else { '+' });
        }
        let shape = SHAPES[random.usize(..SHAPES.len())];
        println!("{design}, {shape:?}, seed {seed}");
        play(&design, shape, seed, 200);
    }
}

fn work(machine: &Machine, cpu: u16, steps: u32) {
    let mut random = Rng::with_seed(u64::from(cpu));
    for _ in 0..steps {
        if random.u64(..16) == 0 {
            // With fewer processors than threads each would otherwise run for thousands of steps
            // undisturbed.
            thread::yield_now();
        }
        step(machine, cpu, &mut random);
    }
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
fn every_design_survives_four_cpus_and_drains() {
    let steps = 6_000;
    for name in designs() {
        println!("{name}");
        let machine = Machine::new(name, Shape::Plain);
        thread::scope(|scope| {
            let machine = &machine;
            let workers: Vec<_> =
                (0..WORKERS).map(|cpu| scope.spawn(move || work(machine, cpu, steps))).collect();
            let drainer = scope.spawn(|| drainer(machine));
            // Set in any case, or a failed worker would leave the others waiting for ever.
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            machine.done.store(true, Relaxed);
            drainer.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
        });
        let stats = machine.classic.stats();
        // Work went through, and what it was meant to meet has happened. How often a request failed
        // depends on which thread had a processor.
        let allocs = stats.pcp.allocs + stats.zone.allocs;
        assert!(allocs > u64::from(steps) && stats.drain_all > 0, "{name}: {stats:?}");
        machine.finish();
    }
}
