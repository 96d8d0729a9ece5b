//! Bounds to put beside the engines: policies over all of memory at once, with no stock in CPUs.
//!
//! ```text
//!  best-fit        a block is listed by its largest free run, as Freehold's board lists it
//!  best-fit-runs   a block is listed by each length of free run that it has
//!  superpageblocks a block is listed so, in its region of 1 GiB: see `regions`
//!  contiguitas     or in one of two regions: see `contiguitas`
//! ```
//!
//! Blocks have one migratetype each while any frame of them is in use. By best fit a request takes
//! the first block of its type with the smallest run that fits, then a whole block, then another
//! type's block with the largest run; that block changes its type if half of it is free. No CPU
//! could share this with another: it says what contiguity is to be had, not at what cost.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

use super::contiguitas::Border;
use super::moment::REGION;
use super::runs::{self, Block, ORDERS};
use crate::engine::{Counters, Engine, Memory, Request};
use crate::engines::MachineConfig;
use crate::model::Family;
use crate::trials::kinds::names;
use crate::trials::simulated::Simulated;

names! {
    /// By what a block is listed.
    Bound, ("bound", "contiguity --help"):
    BestFit: "best-fit",
    BestFitRuns: "best-fit-runs",
    Superpageblocks: "superpageblocks",
    Contiguitas: "contiguitas",
}

impl Bound {
    /// What is a guess in it, since what is published does not say.
    pub const fn guesses(self) -> Option<&'static str> {
        match self {
            Self::Superpageblocks => Some(super::regions::GUESSES),
            Self::Contiguitas => Some(super::contiguitas::GUESSES),
            _ => None,
        }
    }
}

const TYPES: usize = Migratetype::PCP.len();
/// The order of a block: no list of a type has whole ones.
const BLOCK: usize = ORDERS - 1;

/// A policy, all calls behind one lock.
pub(super) struct Bounding {
    start: u64,
    state: Mutex<State>,
}

pub(super) struct State {
    bound: Bound,
    region: usize,
    pub(super) blocks: Vec<Block>,
    /// The type that a block's frames are of; of a whole block it says nothing.
    types: Vec<usize>,
    /// The lists that a block is on, a bit for each order.
    listed: Vec<u16>,
    /// All of memory as one, or its regions of 1 GiB.
    pub(super) regions: Vec<Region>,
    /// Where the second of two regions begins.
    pub(super) border: Border,
    /// Requests refused in a row for a region's sake.
    pub(super) refused: u32,
    counters: Counters,
}

/// The blocks of a region by what is free in them.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Region {
    pub(super) lists: [[BTreeSet<u32>; BLOCK]; TYPES],
    pub(super) whole: BTreeSet<u32>,
    /// Whether the highest block comes first, not the lowest.
    downwards: bool,
    pub(super) frames: u64,
    /// Free frames, and blocks in use for what cannot move.
    pub(super) free: u64,
    pub(super) unmovable: u64,
}

impl Bounding {
    pub(super) fn new(bound: Bound, machine: &MachineConfig) -> Self {
        let blocks = (machine.memory_frames / PAGEBLOCK_FRAMES) as usize;
        let region = if bound == Bound::Superpageblocks { REGION } else { blocks.max(1) };
        let mut regions: Vec<Region> = (0..blocks)
            .step_by(region)
            .map(|at| Region {
                frames: region.min(blocks - at) as u64 * PAGEBLOCK_FRAMES,
                ..Region::default()
            })
            .collect();
        let mut border = Border::default();
        if bound == Bound::Contiguitas {
            border = Border::new(blocks as u32);
            regions.push(Region { downwards: true, ..Region::default() });
        }
        let mut state = State {
            bound,
            region,
            blocks: vec![[u64::MAX; 8]; blocks],
            types: vec![0; blocks],
            listed: vec![0; blocks],
            regions,
            border,
            refused: 0,
            counters: Counters::default(),
        };
        (0..blocks as u32).for_each(|block| state.relist(block));
        Self { start: machine.start_pfn.get(), state: Mutex::new(state) }
    }

    /// The frame that a request is given, as a number in memory.
    #[cfg(test)]
    pub(super) fn place(&self, order: u8, migratetype: Migratetype) -> Option<u64> {
        self.state().alloc(Order::new(order)?, migratetype as usize)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn region(&mut self, block: u32) -> &mut Region {
        let above = self.border.at > 0 && block >= self.border.at;
        &mut self.regions[block as usize / self.region + usize::from(above)]
    }

    fn list(&mut self, block: u32, order: usize) -> &mut BTreeSet<u32> {
        let migratetype = self.types[block as usize];
        let region = self.region(block);
        if order == BLOCK { &mut region.whole } else { &mut region.lists[migratetype][order] }
    }

    /// The free frames of a block, and whether it is in use for what cannot move.
    fn counts(&self, block: u32) -> (u64, u64) {
        let free = runs::free(&self.blocks[block as usize]);
        let movable = self.types[block as usize] == Migratetype::Movable as usize;
        (free, u64::from(free < PAGEBLOCK_FRAMES && !movable))
    }

    /// Takes a block off all lists that it is on, and out of its region's counts.
    pub(super) fn unlist(&mut self, block: u32) {
        let (free, unmovable) = self.counts(block);
        let region = self.region(block);
        (region.free, region.unmovable) = (region.free - free, region.unmovable - unmovable);
        let listed = std::mem::take(&mut self.listed[block as usize]);
        for order in (0..ORDERS).filter(|order| listed >> order & 1 == 1) {
            self.list(block, order).remove(&block);
        }
    }

    /// Puts a block on the lists that its runs ask for.
    pub(super) fn relist(&mut self, block: u32) {
        let (free, unmovable) = self.counts(block);
        let region = self.region(block);
        (region.free, region.unmovable) = (region.free + free, region.unmovable + unmovable);
        let has = |&order: &usize| runs::of_order(&self.blocks[block as usize], order).1.is_some();
        let most = if self.bound == Bound::BestFit { 1 } else { ORDERS };
        let orders: Vec<usize> = (0..ORDERS).rev().filter(has).take(most).collect();
        for order in orders {
            self.listed[block as usize] |= 1 << order;
            self.list(block, order).insert(block);
        }
    }

    /// Takes a run out of the smallest one of a block that has room for it.
    pub(super) fn take(&mut self, block: u32, order: Order, migratetype: usize) -> Option<u64> {
        self.unlist(block);
        let bits = &mut self.blocks[block as usize];
        let at = (order.index()..ORDERS).find_map(|k| runs::of_order(bits, k).1);
        if let Some(at) = at {
            runs::covered(at, order).for_each(|(word, mask)| bits[word] &= !mask);
            self.types[block as usize] = migratetype;
        }
        self.relist(block);
        let place = u64::from(block) * PAGEBLOCK_FRAMES + u64::from(at?);
        self.border.begins(place, order);
        Some(place)
    }

    fn alloc(&mut self, order: Order, migratetype: usize) -> Option<u64> {
        match self.bound {
            Bound::Superpageblocks => self.steered(order, migratetype),
            Bound::Contiguitas => self.confined(order, migratetype),
            _ => self.best_fit(0, order, migratetype),
        }
    }

    /// A request in one region.
    pub(super) fn best_fit(&mut self, at: usize, order: Order, migratetype: usize) -> Option<u64> {
        let region = &self.regions[at];
        let found = region.own(order, migratetype).or_else(|| region.whole(order));
        match found {
            Some(block) => self.take(block, order, migratetype),
            None => self.fall_back(at, order, migratetype),
        }
    }

    /// Out of another type's block with the largest run; it changes its type if half of it is free.
    pub(super) fn fall_back(&mut self, at: usize, order: Order, migratetype: usize) -> Option<u64> {
        let block = self.regions[at].others(order, migratetype)?;
        self.counters.fallbacks += 1;
        let half = runs::free(&self.blocks[block as usize]) >= PAGEBLOCK_FRAMES / 2;
        let taken = if half { migratetype } else { self.types[block as usize] };
        self.take(block, order, taken)
    }
}

impl Region {
    fn first(&self, list: &BTreeSet<u32>) -> Option<u32> {
        if self.downwards { list.last().copied() } else { list.first().copied() }
    }

    /// The block of a type with the smallest run that fits.
    pub(super) fn own(&self, order: Order, migratetype: usize) -> Option<u32> {
        let lists = &self.lists[migratetype];
        (order.index()..BLOCK).find_map(|k| self.first(&lists[k]))
    }

    pub(super) fn whole(&self, order: Order) -> Option<u32> {
        self.first(&self.whole).filter(|_| order <= Order::PAGEBLOCK)
    }

    /// The block of another type with the largest run.
    pub(super) fn others(&self, order: Order, migratetype: usize) -> Option<u32> {
        let others = Migratetype::PCP[migratetype].fallbacks();
        let first = |k: usize, &other: &Migratetype| self.first(&self.lists[other as usize][k]);
        (order.index()..BLOCK).rev().find_map(|k| others.iter().find_map(|other| first(k, other)))
    }
}

impl Engine for Bounding {
    fn alloc(&self, _: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let mut state = self.state();
        let place = state.alloc(request.order, request.migratetype as usize % TYPES);
        let outcome =
            if place.is_some() { &mut state.counters.allocs } else { &mut state.counters.failed };
        *outcome += 1;
        let none = AllocError::NoMemory { order: request.order };
        place.map(|place| Pfn::new(self.start + place)).ok_or(none)
    }

    fn free(&self, _: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let mut state = self.state();
        let place = pfn.get().wrapping_sub(self.start);
        let (block, at) = ((place / PAGEBLOCK_FRAMES) as u32, (place % PAGEBLOCK_FRAMES) as u32);
        let outside = FreeError::DoubleFree { pfn };
        let bits = *state.blocks.get(block as usize).ok_or(outside)?;
        if runs::covered(at, order).any(|(word, mask)| bits[word] & mask != 0) {
            return Err(outside);
        }
        state.unlist(block);
        let bits = &mut state.blocks[block as usize];
        runs::covered(at, order).for_each(|(word, mask)| bits[word] |= mask);
        state.relist(block);
        state.border.ends(place);
        state.counters.frees += 1;
        Ok(())
    }

    fn split(&self, pfn: Pfn, from: Order, _: Order) -> Result<(), FreeError> {
        self.state().border.splits(pfn.get() - self.start, from);
        Ok(())
    }

    fn drain_all(&self) {}

    fn counters(&self) -> Counters {
        self.state().counters.clone()
    }

    fn memory(&self) -> Memory {
        let state = self.state();
        let mut free_runs = [0; 11];
        for block in &state.blocks {
            (0..ORDERS).for_each(|k| free_runs[k] += runs::of_order(block, k).0);
        }
        Memory {
            managed_frames: state.blocks.len() as u64 * PAGEBLOCK_FRAMES,
            free_frames: state.blocks.iter().map(runs::free).sum(),
            free_runs,
            free_chunks: free_runs,
            free_blocks: free_runs[BLOCK],
            ..Memory::default()
        }
    }

    /// That each block is on the lists that its runs ask for, and on no other.
    fn validate(&self) -> Result<(), String> {
        let mut state = self.state();
        let regions = state.regions.clone();
        for block in 0..state.blocks.len() as u32 {
            state.unlist(block);
            state.relist(block);
        }
        let same = regions == state.regions;
        same.then_some(()).ok_or_else(|| "a block is on a wrong list".to_owned())
    }
}

impl Simulated for Bounding {
    fn family(&self) -> Family {
        Family::Lists
    }

    fn rebalance(&self) -> Option<Vec<(Pfn, Pfn, Order)>> {
        let mut state = self.state();
        let at = |place| Pfn::new(self.start + place);
        let moves = (state.bound == Bound::Contiguitas).then(|| state.rebalance())?;
        Some(moves.into_iter().map(|(from, to, order)| (at(from), at(to), order)).collect())
    }
}
