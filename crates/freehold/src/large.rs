//! Orders 10 to 18: runs of wholly free blocks, and allocations within limits.

use crate::block::{CLASS_FULL, FRAMES};
use crate::drain::{Give, Wait};
use crate::handle::CpuGuard;
use crate::primitive::{Count, Plain};
use crate::wholes::Search;
use crate::{AllocError, CpuId, Freehold, Pfn, Platform, Request};

/// Words of the map looked at in one hold.
const SEARCH_WORDS: u32 = 12;
/// Blocks finished in one hold.
const FINISH: u64 = 32;

impl<'m, P: Platform> Freehold<'m, P> {
    /// A run of `2^(order - 9)` whole blocks: from the zones; after fetching home all that is free if need be.
    pub(crate) fn alloc_run(&self, guard: &CpuGuard<'_, 'm, P>, request: &Request) -> Result<Pfn, AllocError> {
        let zones = self.zonelist(guard.id.index(), request.node);
        for round in 0..2 {
            for z in zones.clone() {
                let zone = &self.zones[z];
                if let Some(pfn) = self.take_run_of_blocks(z, request, 0, u64::MAX) {
                    return Ok(pfn);
                }
                if !zone.inbox.is_empty() {
                    self.collect_zone(z);
                    if let Some(pfn) = self.take_run_of_blocks(z, request, 0, u64::MAX) {
                        return Ok(pfn);
                    }
                }
            }
            if round == 0 {
                self.flush_combining(guard);
                guard.outside(|| self.fetch_wholes());
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }

    /// Brings every wholly free block that a CPU holds to its zone. The caller is inside no CPU's state.
    pub(crate) fn fetch_wholes(&self) {
        self.bring_home();
        for cpu in 0..self.cpus.len() {
            self.with_cpu(CpuId::new(cpu as u16), |guard| {
                while self.collect_some(guard, 64) {}
                for z in 0..self.zones.len() {
                    self.give_back(guard, z, Give::Wholes, Wait::Yes);
                }
            });
        }
    }

    /// Takes a run of whole blocks of one zone whose frames lie in `from..below`.
    pub(crate) fn take_run_of_blocks(&self, z: usize, request: &Request, from: u64, below: u64) -> Option<Pfn> {
        let zone = &self.zones[z];
        let order = u32::from(request.order.get()) - 9;
        let (len, frames) = (1u64 << order, request.order.frames());
        let mut at = from.div_ceil(FRAMES as u64).saturating_sub(zone.first_block);
        let to = (below / FRAMES as u64).saturating_sub(zone.first_block);
        let first = loop {
            let lock = self.lock_zone(zone);
            if !lock.allows(frames, zone.min_mark(request.flags), request.flags, false) {
                return None;
            }
            match lock.find_wholes(order, at, to, SEARCH_WORDS) {
                Search::None => return None,
                Search::More(next) => at = next,
                Search::Found(bit) => {
                    // All at once, by whole words: nobody else can find these blocks any more.
                    for (w, m) in crate::bits::spans(bit as usize, len as usize) {
                        lock.step(zone.wholes.remove(w, m));
                    }
                    zone.whole_blocks.sub(len);
                    zone.free.sub(frames);
                    break bit;
                }
            }
        };
        let number = zone.first_block + first;
        for i in 0..len {
            if let Some(index) = self.map.locate_block(number + i) {
                let block = &self.map.blocks[index as usize];
                block.take_run(0, FRAMES);
                block.count.set(0);
            }
        }
        // Their class says "whole" while the map says otherwise until now; see `Zone::in_transit`.
        for start in (0..len).step_by(FINISH as usize) {
            let lock = self.lock_zone(zone);
            for i in start..(start + FINISH).min(len) {
                if let Some(index) = self.map.locate_block(number + i) {
                    let block = &self.map.blocks[index as usize];
                    block.set_migratetype(request.migratetype as u8);
                    block.set_class(CLASS_FULL);
                    lock.step(1);
                }
            }
        }
        Some(Pfn::new(number * FRAMES as u64))
    }
}
