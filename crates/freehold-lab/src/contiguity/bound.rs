//! Bounds to put beside the engines: best fit over all of memory at once, with no stock in CPUs.
//!
//! ```text
//!  best-fit        a block is listed by its largest free run, as Freehold's board lists it
//!  best-fit-runs   a block is listed by each length of free run that it has
//! ```
//!
//! Blocks have one migratetype each while any frame of them is in use. A request takes the first
//! block of its type with the smallest run that fits, then a whole block, then another type's block
//! with the largest run; that block changes its type if half of it is free. No CPU could share this
//! with another: it says what contiguity is to be had, not at what cost.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

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
}

const TYPES: usize = Migratetype::PCP.len();
/// The order of a block: no list of a type has whole ones.
const BLOCK: usize = ORDERS - 1;

/// Best fit, all calls behind one lock.
pub(super) struct BestFit {
    start: u64,
    state: Mutex<State>,
}

struct State {
    bound: Bound,
    blocks: Vec<Block>,
    /// The type that a block's frames are of; of a whole block it says nothing.
    types: Vec<usize>,
    /// The lists that a block is on, a bit for each order.
    listed: Vec<u16>,
    /// By type and order.
    lists: [[BTreeSet<u32>; BLOCK]; TYPES],
    whole: BTreeSet<u32>,
    counters: Counters,
}

impl BestFit {
    pub(super) fn new(bound: Bound, machine: &MachineConfig) -> Self {
        let blocks = (machine.memory_frames / PAGEBLOCK_FRAMES) as usize;
        let state = State {
            bound,
            blocks: vec![[u64::MAX; 8]; blocks],
            types: vec![0; blocks],
            listed: vec![1 << BLOCK; blocks],
            lists: Default::default(),
            whole: (0..blocks as u32).collect(),
            counters: Counters::default(),
        };
        Self { start: machine.start_pfn.get(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn list(&mut self, block: u32, order: usize) -> &mut BTreeSet<u32> {
        if order == BLOCK {
            &mut self.whole
        } else {
            &mut self.lists[self.types[block as usize]][order]
        }
    }

    /// Takes a block off all lists that it is on.
    fn unlist(&mut self, block: u32) {
        let listed = std::mem::take(&mut self.listed[block as usize]);
        for order in (0..ORDERS).filter(|order| listed >> order & 1 == 1) {
            self.list(block, order).remove(&block);
        }
    }

    /// Puts a block on the lists that its runs ask for.
    fn relist(&mut self, block: u32) {
        let has = |&order: &usize| runs::of_order(&self.blocks[block as usize], order).1.is_some();
        let most = match self.bound {
            Bound::BestFit => 1,
            Bound::BestFitRuns => ORDERS,
        };
        let orders: Vec<usize> = (0..ORDERS).rev().filter(has).take(most).collect();
        for order in orders {
            self.listed[block as usize] |= 1 << order;
            self.list(block, order).insert(block);
        }
    }

    /// Takes a run out of the smallest one of a block that has room for it.
    fn take(&mut self, block: u32, order: Order, migratetype: usize) -> Option<u64> {
        self.unlist(block);
        let bits = &mut self.blocks[block as usize];
        let at = (order.index()..ORDERS).find_map(|k| runs::of_order(bits, k).1);
        if let Some(at) = at {
            runs::covered(at, order).for_each(|(word, mask)| bits[word] &= !mask);
            self.types[block as usize] = migratetype;
        }
        self.relist(block);
        at.map(|at| u64::from(block) * PAGEBLOCK_FRAMES + u64::from(at))
    }

    fn alloc(&mut self, order: Order, migratetype: usize) -> Option<u64> {
        let first = |lists: &[BTreeSet<u32>; BLOCK], k: usize| lists[k].first().copied();
        let own = (order.index()..BLOCK).find_map(|k| first(&self.lists[migratetype], k));
        if let Some(block) = own {
            return self.take(block, order, migratetype);
        }
        if let (Some(&block), true) = (self.whole.first(), order <= Order::PAGEBLOCK) {
            return self.take(block, order, migratetype);
        }
        let others = Migratetype::PCP[migratetype].fallbacks();
        let largest = |k| others.iter().find_map(|&other| first(&self.lists[other as usize], k));
        let block = (order.index()..BLOCK).rev().find_map(largest)?;
        self.counters.fallbacks += 1;
        let half = runs::free(&self.blocks[block as usize]) >= PAGEBLOCK_FRAMES / 2;
        let taken = if half { migratetype } else { self.types[block as usize] };
        self.take(block, order, taken)
    }
}

impl Engine for BestFit {
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
        state.counters.frees += 1;
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
        let lists = (state.lists.clone(), state.whole.clone());
        for block in 0..state.blocks.len() as u32 {
            state.unlist(block);
            state.relist(block);
        }
        let same = lists == (state.lists.clone(), state.whole.clone());
        same.then_some(()).ok_or_else(|| "a block is on a wrong list".to_owned())
    }
}

impl Simulated for BestFit {
    fn family(&self) -> Family {
        Family::Lists
    }
}
