//! Frees that engines have not been told of: each traced CPU's queue, and the batches that they are
//! committed in.

use std::collections::VecDeque;

use freehold::{CpuId, Order, Pfn};

use super::super::op::{FREE_BATCH_MAX, Op};
use super::Mapper;

/// A pending free whose allocation is not known.
pub(super) const NO_SLOT: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct PendingFree {
    pub(super) pfn: Pfn,
    pub(super) slot: u32,
    pub(super) order: Order,
}

/// The frees of one traced CPU that engines have not been told of.
#[derive(Default)]
pub(super) struct CpuQueue {
    pub(super) seen: bool,
    pending: VecDeque<PendingFree>,
    batch: Vec<(u32, Order)>,
}

impl Mapper {
    pub(super) fn queue(&mut self, cpu: CpuId, free: PendingFree, ops: &mut Vec<Op>) {
        let queue = &mut self.cpus[cpu.index()];
        queue.pending.push_back(free);
        if queue.pending.len() > FREE_BATCH_MAX {
            let single = queue.pending.pop_front();
            if let Some(single) = single {
                self.emit_free(cpu, single.slot, single.order, ops);
            }
        }
    }

    /// A `free_batched` row: the pending free of that frame joins the CPU's batch; those before it
    /// were single frees.
    pub(super) fn commit(&mut self, cpu: CpuId, pfn: Pfn, ops: &mut Vec<Op>) {
        let Some(at) = self.cpus[cpu.index()].pending.iter().position(|free| free.pfn == pfn)
        else {
            return;
        };
        for _ in 0..at {
            if let Some(single) = self.cpus[cpu.index()].pending.pop_front() {
                self.emit_free(cpu, single.slot, single.order, ops);
            }
        }
        let queue = &mut self.cpus[cpu.index()];
        if let Some(free) = queue.pending.pop_front().filter(|free| free.slot != NO_SLOT) {
            queue.batch.push((free.slot, free.order));
        }
        if self.cpus[cpu.index()].batch.len() == FREE_BATCH_MAX {
            self.flush_batch(cpu, ops);
        }
    }

    pub(super) fn flush_cpu(&mut self, cpu: CpuId, ops: &mut Vec<Op>) {
        self.flush_batch(cpu, ops);
        while let Some(single) = self.cpus[cpu.index()].pending.pop_front() {
            self.emit_free(cpu, single.slot, single.order, ops);
        }
    }

    pub(super) fn flush_batch(&mut self, cpu: CpuId, ops: &mut Vec<Op>) {
        let folded = self.fold(cpu.get());
        let queue = &mut self.cpus[cpu.index()];
        if queue.batch.is_empty() {
            return;
        }
        let members = queue.batch.len();
        ops.push(Op::FreeBatch { cpu: folded, members: members as u8 });
        self.replayed += members as u64;
        for (slot, order) in queue.batch.drain(..) {
            ops.push(Op::Member { slot, order });
            self.free_slots.push(slot);
        }
    }

    pub(super) fn emit_free(&mut self, cpu: CpuId, slot: u32, order: Order, ops: &mut Vec<Op>) {
        if slot == NO_SLOT {
            return;
        }
        self.replayed += 1;
        ops.push(Op::Free { slot, cpu: self.fold(cpu.get()), order });
        self.free_slots.push(slot);
    }
}
