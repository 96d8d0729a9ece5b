//! Freeing: one chunk, a batch of folios, an array of pages; to the owner, to this CPU's own lists,
//! or to the zone.
//!
//! ```text
//!   put the reference ─ not the last ──> kept
//!      │ last
//!   order kept on PCPs? ── no ─────────────────────────────────────────────────> zone lock
//!   pageblock isolated? ── yes ────────────────────────────────────────────────> zone lock
//!      │
//!   whose PCP?  own ── lock busy ──────────────────────────────────────────────> zone lock
//!               owner of the block (pcp-buddy): spin for its lock, or leave it on its list (fixed)
//!      │
//!   commit: onto the head of its list; too many? drain
//! ```

mod batch;
#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering::Relaxed;

use freehold::{CpuId, FreeError, Migratetype, Order, Pfn};

use crate::Classic;
use crate::page::{Kind, Put, State};
use crate::pcp::Held;
use crate::switches::Switch;
use crate::watermark::Mark;
use crate::zone::Zone;

/// A chunk whose last reference is gone and which is on its way to a list.
#[derive(Clone, Copy)]
pub(crate) struct Loose {
    pub(crate) frame: u32,
    pub(crate) order: u8,
}

/// The most folios freed in one batch (`PAGEVEC_SIZE`, 6.9 and later).
pub const FOLIO_BATCH: usize = 31;

impl Classic {
    /// Drops a reference of the chunk of `order` at `pfn`, and frees it if it was the last.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<Put, FreeError> {
        self.check_cpu(cpu).map_err(|cpu| FreeError::CpuOffline { cpu })?;
        let loose = self.locate(pfn, order)?;
        let put = self.zone.frames.put(loose.frame, loose.order)?;
        if let Some(loose) = self.prepare(put, loose) {
            self.free_one(cpu, loose);
        }
        Ok(put)
    }

    /// Puts a prepared chunk where it belongs. A batch of one chunk would do as well, at a fifth
    /// more instructions.
    pub(crate) fn free_one(&self, cpu: CpuId, loose: Loose) {
        let Some(target) = self.target(cpu, loose) else {
            return self.free_to_zone(loose);
        };
        if self.leave_to_owner(cpu, target, loose) {
            return;
        }
        match self.lock_for(cpu, target) {
            Some(inner) => drop(self.commit(cpu, target, inner, loose)),
            None => self.free_to_zone(loose),
        }
    }

    /// Where a chunk is, if there can be one of that order there.
    pub(crate) fn locate(&self, pfn: Pfn, order: Order) -> Result<Loose, FreeError> {
        if order > Order::LINUX_MAX {
            return Err(FreeError::OrderTooLarge { order, max: Order::LINUX_MAX });
        }
        let frame = self.find(pfn)?;
        if !pfn.is_aligned(order) {
            return Err(FreeError::Misaligned { pfn, order });
        }
        Ok(Loose { frame, order: order.get() })
    }

    /// The chunk, if it is to go on to a list.
    pub(crate) fn prepare(&self, put: Put, loose: Loose) -> Option<Loose> {
        if put == Put::Kept {
            self.counts.kept.fetch_add(1, Relaxed);
            return None;
        }
        Some(loose)
    }

    /// The PCP that a chunk goes to, where that is free; an owner's is waited for, and counted where
    /// it is another CPU's.
    fn lock_for(&self, cpu: CpuId, target: Target) -> Option<Held<'_>> {
        let pcp = &self.zone.pcps[target.cpu as usize];
        let held = pcp.try_lock();
        if held.is_some() {
            return held;
        }
        if !self.on.has(Switch::Ownership) || self.on.has(Switch::RemoteList) {
            self.counts.pcp_busy.fetch_add(1, Relaxed);
            return None;
        }
        let remote = target.cpu != u32::from(cpu.get());
        self.counts.remote_pcp_waits.fetch_add(u64::from(remote), Relaxed);
        Some(pcp.lock())
    }

    /// The PCP a chunk goes to; `None` for the zone.
    fn target(&self, cpu: CpuId, loose: Loose) -> Option<Target> {
        if !self.layout.keeps(loose.order) {
            return None;
        }
        let zone = &self.zone;
        let block = zone.block_of(loose.frame);
        let block_type = zone.blocks.migratetype(block);
        if block_type == Migratetype::Isolate {
            return None;
        }
        let owner = if self.on.has(Switch::Ownership) { zone.blocks.owner(block) } else { None };
        let own = u32::from(cpu.get());
        let target = if self.on.has(Switch::Route) { owner.unwrap_or(own) } else { own };
        Some(Target {
            cpu: target,
            owned: owner == Some(target),
            index: self.layout.index(loose.order, block_type),
        })
    }

    /// `remote-list`: leaves a chunk to its block's owner without taking the owner's lock. Returns
    /// whether it did.
    fn leave_to_owner(&self, cpu: CpuId, target: Target, loose: Loose) -> bool {
        if target.cpu == u32::from(cpu.get()) || !self.on.has(Switch::RemoteList) {
            return false;
        }
        let zone = &self.zone;
        let pcp = &zone.pcps[target.cpu as usize];
        let queued = State::new(Kind::Queued, loose.order, zone.type_of(loose.frame));
        zone.frames.set(loose.frame, queued);
        pcp.remote().push(loose.frame);
        self.counts.remote_queued.fetch_add(1, Relaxed);
        true
    }

    /// Frees straight to the zone.
    fn free_to_zone(&self, loose: Loose) {
        let mut locked = self.zone.lock();
        locked.counters.frees += 1;
        locked.free_split(loose.frame, loose.order, false);
    }

    /// Puts a chunk on a PCP and drains what is too much. Returns the lock if it is still held.
    ///
    /// Source: Linux, `free_frozen_page_commit` and its forerunners; the order of the steps matters
    /// for the counts.
    fn commit<'a>(
        &'a self,
        cpu: CpuId,
        target: Target,
        mut inner: Held<'a>,
        loose: Loose,
    ) -> Option<Held<'a>> {
        let zone = &self.zone;
        let pcp = &zone.pcps[target.cpu as usize];
        inner.counters.frees += 1;
        inner.counters.remote_frees += u64::from(target.cpu != u32::from(cpu.get()));
        // Nobody disowns a block that has a frame outstanding.
        let kind = if target.owned { Kind::PcpBuddy } else { Kind::Pcp };
        let list_type = self.list_type(zone, target.index, loose.frame);
        let state = State::new(kind, loose.order, list_type);
        inner.push(&zone.frames, target.index, loose.frame, state);
        let count = inner.count;
        let free_high = inner.tuning.note_free(self.on, loose.order, count);
        inner.counters.free_high += u64::from(free_high);
        let high = inner.tuning.high_after_free(self.on, count, free_high, zone.pressure());
        if count < high {
            return Some(inner);
        }
        let mut left = inner.tuning.drain(self.on, count, high, free_high);
        zone.absorb(target.cpu as usize, &mut inner, self.layout);
        let mut inner = Some(inner);
        let all = left;
        while let Some(held) = &mut inner {
            let chunked = self.on.has(Switch::ChunkedDrain);
            let piece = if chunked { left.min(held.tuning.batch.max(1)) } else { left };
            let before = held.count;
            zone.free_bulk(held, self.layout, piece, target.index, left == all);
            left = left.saturating_sub(zone.given(piece, before - held.count));
            if left == 0 || held.count == 0 {
                break;
            }
            // Between chunks others get a chance at both locks; whoever has taken this one
            // meanwhile is draining too.
            drop(inner.take());
            inner = pcp.try_lock();
        }
        if zone.below_high.load(Relaxed)
            && zone.mark_ok(Mark::High, Order::ZERO, freehold::AllocFlags::empty(), false)
        {
            zone.below_high.store(false, Relaxed);
        }
        inner
    }

    /// The type under which a chunk lies on a PCP: for a design that remembers it, the pageblock's
    /// type of now.
    fn list_type(&self, zone: &Zone, index: usize, frame: u32) -> Migratetype {
        // The order-9 lists are shared by several types.
        let shared = self.layout.order(index) == crate::page::PAGEBLOCK_ORDER;
        let remembers = shared && !self.on.has(Switch::Ownership);
        if remembers { zone.type_of(frame) } else { Migratetype::PCP[index % 3] }
    }
}

/// Where a chunk goes.
#[derive(Clone, Copy)]
struct Target {
    cpu: u32,
    owned: bool,
    index: usize,
}
