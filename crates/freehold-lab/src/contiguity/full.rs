//! The loads that fill memory: page cache takes what is free, and reclaim makes room.
//!
//! ```text
//!  of each 98 steps  cache 50: four folios of page cache    anonymous 30: a process faults 8 pages
//!  (another mix for  slab 10: unmovable, orders 0 to 3      network 0: a burst of order-3 buffers
//!  each load)        dentries 8: reclaimable, orders 0 to 3
//! ```
//!
//! A request that would leave less free than the scenario says reclaims first: the oldest page
//! cache, one in three with a second chance, and one in eight of what goes from dentries. Orders up
//! to 3 reclaim and try again when they fail, as the kernel's do. Slab lives by a Pareto law.
//! Processes grow to a size drawn at random and exit in one go. When the load is over, the page
//! cache is dropped, then all dentries and processes go.
//!
//! Page cache, slab, bursts and days are what a machine does for weeks. That is why their figures
//! are means over the second half of a load, and why each moment is in the JSON.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use freehold::{Migratetype, Order, Pfn};

use super::books::{Books, Chunk, Chunks};
use super::figure::{
    About, DROPPED, DROPPED9, FAILURES9, Figures, GONE, LOCKS, MOVABLE, Moment, ORDER9,
    SHARED_WRITES, UNUSABLE3, UNUSABLE4,
};
use super::moment::moment;
use super::moving::{self, Movements};

const fn about(name: &'static str, what: &'static str) -> About {
    About {
        name,
        what,
        levels: &[Some(97)],
        figures: &[
            ORDER9,
            UNUSABLE3,
            UNUSABLE4,
            DROPPED9,
            MOVABLE,
            LOCKS,
            SHARED_WRITES,
            FAILURES9,
        ],
    }
}

pub(super) const CACHE: About = about(
    "cache",
    "Page cache fills memory and is reclaimed; processes, slab and dentries beside.",
);
pub(super) const SLAB: About = about("slab", "As cache, with two and a half times as much slab.");
pub(super) const NET: About = about(
    "net",
    "As cache, with bursts of order-3 network buffers for a third of the time, 40 times over.",
);
pub(super) const DAY: About = about(
    "day",
    "Six days: processes with huge pages by day, a walk through all files in the evening, little \
     by night.",
);
pub(super) const THP: About =
    about("thp", "Large processes that ask for huge pages first, and little page cache.");
pub(super) const BIG: About =
    about("big", "As cache, with more slab and dentries: large machines.");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    Cache,
    Slab,
    Net,
    Day,
    Thp,
    Big,
}

/// How often a step is which, and what processes are like.
#[derive(Clone, Copy)]
struct Mix {
    cache: u64,
    slab: u64,
    dentries: u64,
    anonymous: u64,
    network: u64,
    /// Whether processes ask for huge pages.
    huge: bool,
    /// Allocations that slab lives for, in the mean or so.
    slab_life: u64,
    processes: u64,
    /// Frames of the largest processes, or so.
    largest: u64,
}

impl Load {
    /// The mix when such a share of the load is done.
    fn mix(self, done: f64, cpus: u64, frames: u64, allocations: u64) -> Mix {
        let processes = cpus * 3;
        let base = Mix {
            cache: 50,
            slab: 10,
            dentries: 8,
            anonymous: 30,
            network: 0,
            huge: false,
            slab_life: allocations / 12,
            processes,
            largest: frames / 4 / processes,
        };
        match self {
            Self::Cache => base,
            Self::Slab => Mix { slab: 25, slab_life: allocations / 8, ..base },
            Self::Net if (done * 40.0).fract() < 0.35 => Mix { network: 40, anonymous: 10, ..base },
            Self::Net => Mix { network: 1, ..base },
            Self::Day => match (done * 6.0).fract() {
                ..0.6 => Mix { anonymous: 50, network: 3, cache: 25, huge: true, ..base },
                ..0.7 => Mix { dentries: 60, cache: 60, anonymous: 3, ..base },
                _ => Mix { anonymous: 6, cache: 8, slab: 3, dentries: 2, ..base },
            },
            Self::Thp => Mix {
                cache: 12,
                slab: 4,
                dentries: 3,
                anonymous: 60,
                huge: true,
                processes: cpus * 2,
                largest: frames / 2 / cpus,
                ..base
            },
            Self::Big => Mix { slab: 12, dentries: 10, slab_life: allocations / 6, ..base },
        }
    }

    /// Moments to look at while it runs.
    fn moments(self) -> u64 {
        if self == Self::Day { 24 } else { 12 }
    }
}

/// A process: what it has, in the order in which it took it.
#[derive(Default)]
struct Process {
    cpu: u16,
    /// Frames to grow to; 0 before it has begun.
    wanted: u64,
    has: u64,
    chunks: Vec<Chunk>,
    tables: Vec<Chunk>,
}

struct Full<'b, 'e> {
    books: &'b mut Books<'e>,
    n: u64,
    /// Free frames that reclaim keeps.
    low: u64,
    reclaiming: bool,
    reclaimed: u64,
    /// Something was reclaimed since the last step.
    is_woken: bool,
    /// The oldest first.
    cache: VecDeque<Chunk>,
    dentries: Vec<Chunk>,
    /// By when it dies.
    slab: BinaryHeap<Reverse<(u64, Chunk)>>,
    processes: Vec<Process>,
    /// A queue a CPU.
    sockets: Vec<VecDeque<Chunk>>,
}

/// Allocations between two ticks of all CPUs.
const TICK: u64 = 20_000;
/// Tries of a small request after its first, with reclaim before each.
pub(super) const TRIES: u32 = 16;
/// Chunks that an exit or reclaim frees by one call: the kernel's folio batch.
const BATCH: usize = 31;

/// Runs it; the figures are those of the load, before anything is moved or dropped.
pub(super) fn run(
    books: &mut Books<'_>,
    load: Load,
    used_percent: u8,
    allocations: u64,
    moves: bool,
) -> (Figures, Vec<Moment>, Option<Movements>) {
    let (cpus, frames) = (u64::from(books.cpus), books.managed());
    let mut full = Full {
        low: frames * u64::from(100 - used_percent.min(99)) / 100,
        sockets: vec![VecDeque::new(); cpus as usize],
        n: 0,
        reclaiming: false,
        reclaimed: 0,
        is_woken: false,
        cache: VecDeque::new(),
        dentries: Vec::new(),
        slab: BinaryHeap::new(),
        processes: Vec::new(),
        books,
    };
    full.books.begin();
    let mut moments = Vec::new();
    let mut next_tick = 0;
    while full.n < allocations {
        let done = full.n as f64 / allocations as f64;
        full.step(&load.mix(done, cpus, frames, allocations));
        if full.n >= next_tick {
            next_tick += TICK;
            full.books.tick_all();
        }
        if full.n * load.moments() >= allocations * (moments.len() as u64 + 1) {
            moments.push(moment(full.books, done, full.reclaimed));
        }
    }
    let pressed = |figure: &dyn Fn(&Moment) -> f64| Moment::under_pressure(&moments, figure);
    let contiguity = |order: u8| pressed(&|moment| moment.contiguity.at(order)).unwrap_or(0.0);
    let unusable = super::figure::ByOrder::by(|order| 1.0 - contiguity(order.get()));
    let figures = Figures {
        unusable: Some(unusable),
        unusable_lists: None,
        order9_share: Some(1.0 - unusable.order9),
        ..full.books.figures()
    };
    let movement = moves.then(|| full.movement());
    full.end(&mut moments);
    (figures, moments, movement)
}

impl Full<'_, '_> {
    fn step(&mut self, mix: &Mix) {
        while let Some(&Reverse((dies, chunk))) = self.slab.peek()
            && dies <= self.n
        {
            self.slab.pop();
            let cpu = self.books.any_cpu();
            self.books.free(cpu, chunk);
        }
        if std::mem::take(&mut self.is_woken) {
            self.follow();
        }
        let kinds = [mix.cache, mix.slab, mix.dentries, mix.anonymous, mix.network];
        let drawn = self.books.random.scaled(kinds.iter().sum());
        let cpu = self.books.any_cpu();
        let mut upto = 0;
        let kind = kinds.iter().position(|&kind| {
            upto += kind;
            drawn < upto
        });
        match kind {
            Some(0) => (0..4).for_each(|_| self.cache(cpu)),
            Some(1) => {
                let cpu = self.books.any_cpu();
                if let Some(chunk) = self.small(cpu, Migratetype::Unmovable) {
                    self.keep_in_slab(chunk, mix.slab_life);
                }
            }
            Some(2) => {
                let cpu = self.books.any_cpu();
                let chunk = self.small(cpu, Migratetype::Reclaimable);
                self.dentries.extend(chunk);
            }
            Some(3) => self.process(cpu, mix),
            _ => self.burst(cpu, mix.slab_life),
        }
    }

    fn free_frames(&self) -> u64 {
        self.books.managed() - self.books.live
    }

    /// A request, with reclaim before it where little is free, and after it where it fails and is
    /// small, as kswapd and direct reclaim do.
    fn alloc(&mut self, cpu: u16, order: Order, migratetype: Migratetype) -> Option<Chunk> {
        self.n += 1;
        let free = self.free_frames();
        if free < self.low + order.frames() {
            self.set_reclaim(true);
            self.reclaim(cpu, self.low / 4 + 64);
        } else if free > self.low * 3 / 2 {
            self.set_reclaim(false);
        }
        let tries = if order <= Order::new(3).unwrap_or(Order::ZERO) { TRIES } else { 0 };
        let mut chunk = self.books.attempt(cpu, order, migratetype);
        for _ in 0..tries {
            if chunk.is_some() {
                break;
            }
            self.reclaim(cpu, 64);
            chunk = self.books.attempt(cpu, order, migratetype);
        }
        if chunk.is_none() {
            self.books.fail(order);
        }
        chunk
    }

    fn set_reclaim(&mut self, active: bool) {
        if std::mem::replace(&mut self.reclaiming, active) != active {
            self.books.engine.set_reclaim(active);
        }
    }

    fn reclaim(&mut self, cpu: u16, frames: u64) {
        let (mut got, mut batch) = (0, Vec::new());
        // Second chances must not go round for ever.
        for _ in 0..4 * frames + 64 {
            if got >= frames {
                break;
            }
            let dentry = self.books.random.scaled(8) == 0 && !self.dentries.is_empty();
            let chunk = if dentry {
                let at = self.books.random.scaled(self.dentries.len() as u64) as usize;
                self.dentries.swap_remove(at)
            } else if let Some(oldest) = self.cache.pop_front() {
                if self.books.random.scaled(3) == 0 {
                    self.cache.push_back(oldest);
                    continue;
                }
                oldest
            } else if self.dentries.is_empty() {
                break;
            } else {
                continue;
            };
            got += chunk.1.frames();
            batch.push(chunk);
        }
        self.reclaimed += got;
        self.free_all(cpu, &batch);
        self.is_woken = true;
    }

    /// What reclaim has woken moves what is in use, by an engine that does; it is found again.
    fn follow(&mut self) {
        let moves = self.books.rebalance();
        if moves.is_empty() {
            return;
        }
        let now = |chunk: Chunk| {
            let moved = |pfn: u64| moves.get(&Pfn::new(pfn)).copied();
            // One that has come apart: its first frame has moved first.
            let order = moved(chunk.0.get()).map_or(chunk.1, |to| to.1);
            let frames = chunk.0.get()..chunk.0.get() + chunk.1.frames();
            let parts = frames.step_by(order.frames() as usize);
            parts.map(move |pfn| moved(pfn).unwrap_or((Pfn::new(pfn), order)))
        };
        self.cache = std::mem::take(&mut self.cache).into_iter().flat_map(now).collect();
        for process in &mut self.processes {
            process.chunks =
                std::mem::take(&mut process.chunks).into_iter().flat_map(now).collect();
        }
    }

    fn free_all(&mut self, cpu: u16, chunks: &[Chunk]) {
        chunks.chunks(BATCH).for_each(|batch| self.books.free_batch(cpu, batch));
    }

    fn cache(&mut self, cpu: u16) {
        let order = match self.books.random.scaled(100) {
            0..70 => 0,
            70..90 => 2,
            90..98 => 4,
            _ => 5,
        };
        let chunk = self.of_order(cpu, order, Migratetype::Movable);
        self.cache.extend(chunk);
    }

    /// What slab caches ask for.
    fn small(&mut self, cpu: u16, migratetype: Migratetype) -> Option<Chunk> {
        let drawn = self.books.random.scaled(100);
        let order = [45, 65, 80].iter().filter(|&&from| drawn >= from).count() as u8;
        self.of_order(cpu, order, migratetype)
    }

    fn of_order(&mut self, cpu: u16, order: u8, migratetype: Migratetype) -> Option<Chunk> {
        self.alloc(cpu, Order::new(order)?, migratetype)
    }

    /// For a time drawn from a Pareto law of exponent 1.1: most die soon, some outlive all others.
    fn keep_in_slab(&mut self, chunk: Chunk, life: u64) {
        const DRAWN: u64 = 1 << 30;
        let share = (self.books.random.scaled(DRAWN) + 1) as f64 / DRAWN as f64;
        let lives = (life as f64 / 5.0 * share.powf(-1.0 / 1.1)).min(1e12) as u64;
        self.slab.push(Reverse((self.n + lives, chunk)));
    }

    /// One of the processes grows by eight pages or as many huge ones, or exits if it has all it
    /// wants.
    fn process(&mut self, cpu: u16, mix: &Mix) {
        let at = self.books.random.scaled(mix.processes) as usize;
        if self.processes.len() <= at {
            self.processes.resize_with(at + 1, Process::default);
        }
        let mut process = std::mem::take(&mut self.processes[at]);
        if process.wanted == 0 {
            let base = (mix.largest / 64).max(8) << self.books.random.scaled(6);
            let wanted = base + self.books.random.scaled(base);
            process = Process { cpu, wanted, ..process };
        }
        if process.has >= process.wanted {
            let freer = self.books.random.scaled(4) == 0;
            let freer = if freer { self.books.any_cpu() } else { process.cpu };
            return self.exit(freer, process, true);
        }
        for _ in 0..8 {
            if process.has >= process.wanted {
                break;
            }
            self.fault(&mut process, mix.huge);
        }
        self.processes[at] = process;
    }

    /// A page of a process, or a huge one; with a page table first where there is none.
    fn fault(&mut self, process: &mut Process, huge: bool) {
        let block = Order::PAGEBLOCK.frames();
        if process.has / block >= process.tables.len() as u64 {
            let table = self.alloc(process.cpu, Order::ZERO, Migratetype::Unmovable);
            process.tables.extend(table);
        }
        let room = process.has.is_multiple_of(block) && process.wanted - process.has >= block;
        let large = (huge && room)
            .then(|| self.alloc(process.cpu, Order::PAGEBLOCK, Migratetype::Movable))
            .flatten();
        let page = large.or_else(|| self.alloc(process.cpu, Order::ZERO, Migratetype::Movable));
        match page {
            Some(chunk) => {
                process.has += chunk.1.frames();
                process.chunks.push(chunk);
            }
            // Killed for lack of memory, the next time it runs.
            None => process.wanted = process.has,
        }
    }

    /// One huge page in five has been split meanwhile, where `splits` says so.
    fn exit(&mut self, cpu: u16, process: Process, splits: bool) {
        let mut chunks = Vec::with_capacity(process.chunks.len());
        for chunk in process.chunks {
            let huge = chunk.1 == Order::PAGEBLOCK;
            if splits && huge && self.books.random.scaled(5) == 0 {
                self.books.split(chunk);
                let frames = chunk.0.get()..chunk.0.get() + chunk.1.frames();
                chunks.extend(frames.map(|pfn| (Pfn::new(pfn), Order::ZERO)));
            } else {
                chunks.push(chunk);
            }
        }
        self.free_all(cpu, &chunks);
        self.free_all(cpu, &process.tables);
    }

    /// Network buffers, received on one CPU and consumed mostly on others; one in 300 waits long in
    /// a socket that nobody reads.
    fn burst(&mut self, cpu: u16, slab_life: u64) {
        for _ in 0..4 + self.books.random.scaled(24) {
            let order = if self.books.random.scaled(5) == 0 { 0 } else { 3 };
            let Some(chunk) = self.of_order(cpu, order, Migratetype::Unmovable) else { continue };
            if self.books.random.scaled(300) == 0 {
                self.keep_in_slab(chunk, slab_life * 4);
            } else {
                self.sockets[usize::from(cpu)].push_back(chunk);
            }
        }
        let most = 64 + self.books.random.scaled(64) as usize;
        while self.sockets[usize::from(cpu)].len() > most {
            let Some(chunk) = self.sockets[usize::from(cpu)].pop_front() else { break };
            let own = self.books.random.scaled(3) == 0;
            let freer = if own { cpu } else { self.books.any_cpu() };
            self.books.free(freer, chunk);
        }
    }

    /// Blocks are emptied of what can be moved: page cache, and what processes have.
    fn movement(&mut self) -> Movements {
        let processes = self.processes.iter().flat_map(|process| &process.chunks);
        let mut chunks = Chunks::new(self.cache.iter().chain(processes).copied());
        let movement = moving::run(self.books, &mut chunks);
        let mut now = chunks.now().into_iter().peekable();
        let mut numbers = 0..;
        let mut parts_of = |_: Chunk| -> Vec<Chunk> {
            let number = numbers.next();
            std::iter::from_fn(|| now.next_if(|part| Some(part.0) == number))
                .map(|of| of.1)
                .collect()
        };
        self.cache = std::mem::take(&mut self.cache).into_iter().flat_map(&mut parts_of).collect();
        for process in &mut self.processes {
            let held = std::mem::take(&mut process.chunks);
            process.chunks = held.into_iter().flat_map(&mut parts_of).collect();
        }
        movement
    }

    /// The page cache is dropped, as before a database reserves huge pages; then all dentries and
    /// processes go.
    fn end(mut self, moments: &mut Vec<Moment>) {
        let cache: Vec<Chunk> = std::mem::take(&mut self.cache).into();
        for batch in cache.chunks(BATCH) {
            let cpu = self.books.any_cpu();
            self.books.free_batch(cpu, batch);
        }
        self.books.tick_all();
        moments.push(moment(self.books, DROPPED, self.reclaimed));
        for chunk in std::mem::take(&mut self.dentries) {
            let cpu = self.books.any_cpu();
            self.books.free(cpu, chunk);
        }
        for process in std::mem::take(&mut self.processes) {
            let cpu = self.books.any_cpu();
            self.exit(cpu, process, false);
        }
        self.books.tick_all();
        moments.push(moment(self.books, GONE, self.reclaimed));
    }
}
