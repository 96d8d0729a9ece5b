//! Every frame in use, and its type. Kept beside the engine, so that what is found
//! does not depend on what an engine says of itself.

use std::collections::HashMap;

use freehold::{AllocFlags, CpuId, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

use super::figure::{ByOrder, Figures};
use crate::engine::{Counters, Request};
use crate::engines::MachineConfig;
use crate::trials::random::Random;
use crate::trials::simulated::{Simulated, accounted};

pub(super) type Chunk = (Pfn, Order);

/// Orders that a workload asks for, and those above up to the kernel's largest.
const ORDERS: usize = Order::LINUX_MAX.get() as usize + 1;

/// Chunks in use and who has allocated each, to be freed in random order.
#[derive(Default)]
pub(super) struct Held {
    chunks: Vec<(u16, Chunk)>,
    pub(super) frames: u64,
}

impl Held {
    pub(super) fn push(&mut self, cpu: u16, chunk: Chunk) {
        self.frames += chunk.1.frames();
        self.chunks.push((cpu, chunk));
    }

    /// Any of them; `None` where there is none.
    pub(super) fn draw(&mut self, random: &mut Random) -> Option<(u16, Chunk)> {
        let last = self.chunks.len().checked_sub(1)? as u64;
        let drawn = self.chunks.swap_remove(random.scaled(last + 1) as usize);
        self.frames -= drawn.1.1.frames();
        Some(drawn)
    }

    /// Frees any of them; whether there was one.
    pub(super) fn free_one(&mut self, books: &mut Books<'_>) -> bool {
        let Some((owner, chunk)) = self.draw(&mut books.random) else { return false };
        let freer = books.freer(owner);
        books.free(freer, chunk);
        true
    }
}

/// Chunks that can be moved, and where each is.
pub(super) struct Chunks {
    /// Each with the number of the one that it was at first, or was a part of.
    all: Vec<(usize, Chunk)>,
    places: HashMap<Pfn, usize>,
}

impl Chunks {
    pub(super) fn new(all: impl Iterator<Item = Chunk>) -> Self {
        let all: Vec<_> = all.enumerate().collect();
        let places = all.iter().enumerate().map(|(n, (_, chunk))| (chunk.0, n)).collect();
        Self { all, places }
    }

    /// The chunk that starts at a frame.
    pub(super) fn at(&self, pfn: Pfn) -> Option<Chunk> {
        self.places.get(&pfn).map(|&n| self.all[n].1)
    }

    /// Where they are, in the order in which they came; parts have the number of the whole.
    pub(super) fn now(mut self) -> Vec<(usize, Chunk)> {
        self.all.sort_by_key(|&(number, _)| number);
        self.all
    }

    pub(super) fn moved(&mut self, from: Pfn, to: Pfn) {
        if let Some(n) = self.places.remove(&from) {
            self.places.insert(to, n);
            self.all[n].1.0 = to;
        }
    }

    pub(super) fn split(&mut self, (start, order): Chunk) {
        let Some(&n) = self.places.get(&start) else { return };
        self.all[n].1.1 = Order::ZERO;
        for frame in start.get() + 1..start.get() + order.frames() {
            let frame = Pfn::new(frame);
            self.places.insert(frame, self.all.len());
            self.all.push((self.all[n].0, (frame, Order::ZERO)));
        }
    }
}

pub(super) struct Books<'e> {
    pub(super) engine: &'e dyn Simulated,
    pub(super) cpus: u16,
    /// What a workload draws its numbers from.
    pub(super) random: Random,
    /// The first frame.
    pub(super) start: u64,
    /// For each frame in use its chunk's type and 1; 0 for one that is free.
    frames: Vec<u8>,
    /// Frames that the engine has moved by itself, where it does.
    pub(super) migrated: Option<u64>,
    /// Frames in use, and allocated so far.
    pub(super) live: u64,
    pub(super) allocated: u64,
    /// Allocations that failed since the stretch that is measured began, by order.
    failed: [u64; ORDERS],
    /// What there was then: locks and barriers, and frames allocated.
    begun: (Counters, u64, u64),
    /// The first thing that the engine did wrong.
    wrong: Option<String>,
}

impl<'e> Books<'e> {
    pub(super) fn new(engine: &'e dyn Simulated, machine: &MachineConfig, seed: u64) -> Self {
        let frames = machine.memory_frames;
        Self {
            engine,
            cpus: machine.cpus,
            random: Random::split(seed, 1),
            start: machine.start_pfn.get(),
            frames: vec![0; frames as usize],
            migrated: None,
            live: 0,
            allocated: 0,
            failed: [0; ORDERS],
            begun: Default::default(),
            wrong: None,
        }
    }

    /// Frames in use of the block that a frame lies in.
    pub(super) fn used_in_block(&self, pfn: Pfn) -> u64 {
        let block = (pfn.get() - self.start) / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        let frames = &self.frames[block as usize..][..PAGEBLOCK_FRAMES as usize];
        frames.iter().filter(|&&used| used != 0).count() as u64
    }

    pub(super) fn managed(&self) -> u64 {
        self.frames.len() as u64
    }

    pub(super) fn used_percent(&self) -> f64 {
        self.live as f64 * 100.0 / self.managed() as f64
    }

    fn blame(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    pub(super) fn alloc(
        &mut self,
        cpu: u16,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Chunk> {
        let chunk = self.attempt(cpu, order, migratetype);
        if chunk.is_none() {
            self.fail(order);
        }
        chunk
    }

    /// Counts a request as one that failed.
    pub(super) fn fail(&mut self, order: Order) {
        self.failed[order.index()] += 1;
    }

    /// A request that may be made again: it does not count as one that failed.
    pub(super) fn attempt(
        &mut self,
        cpu: u16,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Chunk> {
        self.attempt_at(migratetype, cpu, order, migratetype)
    }

    /// A request of one type for a place among blocks of another.
    pub(super) fn attempt_at(
        &mut self,
        place: Migratetype,
        cpu: u16,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<Chunk> {
        let request = Request { order, migratetype: place, flags: AllocFlags::empty() };
        let pfn = self.engine.alloc(CpuId::new(cpu), request).ok()?;
        let place = pfn.get().wrapping_sub(self.start) as usize;
        let chunk = self.frames.get_mut(place..place.saturating_add(order.frames() as usize));
        match chunk {
            Some(frames) if frames.iter().all(|&used| used == 0) => {
                frames.fill(migratetype as u8 + 1);
            }
            _ => self.blame(|| {
                format!("{pfn} was handed out and is in use, or is no frame of the machine")
            }),
        }
        self.live += order.frames();
        self.allocated += order.frames();
        Some((pfn, order))
    }

    /// Lets an engine move by itself; where each chunk, or part of one, is that has moved.
    pub(super) fn rebalance(&mut self) -> HashMap<Pfn, Chunk> {
        let Some(moves) = self.engine.rebalance() else { return HashMap::new() };
        for &(from, to, order) in &moves {
            let [from, to] = [from, to].map(|pfn| (pfn.get() - self.start) as usize);
            let len = order.frames() as usize;
            if self.frames[from..from + len].contains(&0)
                || self.frames[to..to + len] != *vec![0; len]
            {
                self.blame(|| format!("frame {to} was moved to, or {from} moved, and must not be"));
            }
            self.frames.copy_within(from..from + len, to);
            self.frames[from..from + len].fill(0);
        }
        let frames: u64 = moves.iter().map(|of| of.2.frames()).sum();
        *self.migrated.get_or_insert(0) += frames;
        moves.into_iter().map(|(from, to, order)| (from, (to, order))).collect()
    }

    /// Strikes a chunk out; whether it was in use.
    fn strike(&mut self, (pfn, order): Chunk) {
        let place = pfn.get().wrapping_sub(self.start) as usize;
        match self.frames.get_mut(place..place.saturating_add(order.frames() as usize)) {
            Some(frames) if !frames.contains(&0) => frames.fill(0),
            _ => return self.blame(|| format!("the workload frees {pfn}, which is not in use")),
        }
        self.live -= order.frames();
    }

    /// Has the frames of a chunk freed one by one from now on.
    pub(super) fn split(&mut self, (pfn, order): Chunk) {
        if let Err(error) = self.engine.split(pfn, order, Order::ZERO) {
            self.blame(|| format!("a split was refused: {error}"));
        }
    }

    pub(super) fn free(&mut self, cpu: u16, chunk: Chunk) {
        self.strike(chunk);
        if let Err(error) = self.engine.free(CpuId::new(cpu), chunk.0, chunk.1) {
            self.blame(|| format!("a free was refused: {error}"));
        }
    }

    /// Frees chunks by one call, as exit does.
    pub(super) fn free_batch(&mut self, cpu: u16, chunks: &[Chunk]) {
        if let [chunk] = chunks {
            return self.free(cpu, *chunk);
        }
        chunks.iter().for_each(|&chunk| self.strike(chunk));
        if let Err(error) = self.engine.free_batch(CpuId::new(cpu), chunks) {
            self.blame(|| format!("a batch was refused: {error}"));
        }
    }

    pub(super) fn tick(&mut self, cpu: u16) {
        self.engine.tick(CpuId::new(cpu));
    }

    pub(super) fn tick_all(&mut self) {
        (0..self.cpus).for_each(|cpu| self.tick(cpu));
    }

    pub(super) fn any_cpu(&mut self) -> u16 {
        self.random.scaled(self.cpus.into()) as u16
    }

    /// Who frees what a CPU has allocated: that CPU or, one in five, any.
    pub(super) fn freer(&mut self, owner: u16) -> u16 {
        if self.random.scaled(5) == 0 { self.any_cpu() } else { owner }
    }

    /// Begins the stretch that is measured.
    pub(super) fn begin(&mut self) {
        self.failed = [0; ORDERS];
        self.begun = (self.engine.counters(), self.engine.heavy_barriers(), self.allocated);
    }

    /// Each block: a byte for each frame, 0 where it is free, else its type and 1.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.chunks(PAGEBLOCK_FRAMES as usize)
    }

    /// Blocks in which chunks of more than one type are in use.
    fn mixed(&self) -> u64 {
        let has = |block: &[u8], migratetype: Migratetype| block.contains(&(migratetype as u8 + 1));
        let is_mixed = |block: &&[u8]| {
            Migratetype::PCP.iter().filter(|&&migratetype| has(block, migratetype)).count() > 1
        };
        self.blocks().filter(is_mixed).count() as u64
    }

    /// What every workload has: since [`begin`](Self::begin), and of memory as it is.
    pub(super) fn figures(&self) -> Figures {
        let memory = self.engine.memory();
        let (before, barriers, allocated) = &self.begun;
        let (now, frames) = (self.engine.counters(), self.allocated - allocated);
        let zone_locks = now.zone_lock_acquisitions - before.zone_lock_acquisitions;
        let shared_writes = now.shared_writes - before.shared_writes;
        let per_1000 = |count: u64| (frames > 0).then(|| count as f64 * 1000.0 / frames as f64);
        Figures {
            unusable: Some(ByOrder::by(|order| memory.unusable_index(order))),
            unusable_lists: Some(ByOrder::by(|order| memory.unusable_index_of_lists(order))),
            zone_lock_acquisitions: Some(zone_locks),
            shared_writes: Some(shared_writes),
            zone_locks_per_1000: per_1000(zone_locks),
            shared_writes_per_1000: per_1000(shared_writes),
            order9_share: Some(1.0 - memory.unusable_index(Order::PAGEBLOCK)),
            order9_failures: Some(self.failed[Order::PAGEBLOCK.index()]),
            mixed_blocks: Some(self.mixed()),
            idle_share: None,
            free_blocks: Some(memory.free_blocks),
            failures: Some(self.failed.iter().sum()),
            heavy_barriers: Some(self.engine.heavy_barriers() - barriers),
            migrated: self.migrated,
        }
    }

    /// The end: no frame is lost, and the engine whole where that is asked; an error says what is
    /// wrong.
    pub(super) fn close(self, validate: bool) -> Result<(), String> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        accounted(self.engine, self.live)?;
        if validate { self.engine.validate() } else { Ok(()) }
    }
}
