//! Frees that engines have not been told of: those that go in batches. The survey finds out which
//! do, since only a row behind them says so.

use std::collections::HashMap;

use freehold::{CpuId, Order, Pfn};

use super::super::op::{FREE_BATCH_MAX, Op};
use super::Mapper;

/// An allocation that is freed: its slot, and its order.
pub(super) type Freed = (u32, Order);

/// The frees of one traced CPU that have been committed and of which engines were not told.
#[derive(Default)]
pub(super) struct CpuQueue {
    pub(super) seen: bool,
    batch: Vec<Freed>,
}

/// Which `free` rows of a trace a `free_batched` row belongs to, a bit for each.
#[derive(Clone, Debug, Default)]
pub struct Batched(Vec<u64>);

impl Batched {
    pub(super) fn has(&self, row: u64) -> bool {
        self.0.get((row / 64) as usize).is_some_and(|word| word >> (row % 64) & 1 != 0)
    }

    fn add(&mut self, row: u64) {
        let word = (row / 64) as usize;
        self.0.resize(self.0.len().max(word + 1), 0);
        self.0[word] |= 1 << (row % 64);
    }
}

#[derive(Default)]
pub(in crate::replay) struct FindBatched {
    /// The last `free` row of each frame.
    rows: HashMap<Pfn, u64>,
    pub(in crate::replay) found: Batched,
}

impl FindBatched {
    pub(super) fn freed(&mut self, pfn: Pfn, row: u64) {
        self.rows.insert(pfn, row);
    }

    /// What is allocated again is in no batch. Until 4.14 a batch's row comes before its frees.
    pub(super) fn allocated(&mut self, pfn: Pfn) {
        self.rows.remove(&pfn);
    }

    pub(super) fn committed(&mut self, pfn: Pfn) {
        self.rows.remove(&pfn).into_iter().for_each(|row| self.found.add(row));
    }
}

impl Mapper {
    /// Frees what lived at `pfn`: at once, or when the batch of that row is committed.
    pub(super) fn queue(&mut self, cpu: CpuId, pfn: Pfn, freed: Freed, ops: &mut Vec<Op>) {
        if self.options.batched.has(self.facts.frees - 1) {
            self.prepared.push_back((pfn, freed));
        } else {
            self.emit_free(cpu, freed, ops);
        }
    }

    /// A `free_batched` row: what was freed at that frame joins the CPU's batch.
    pub(super) fn commit(&mut self, cpu: CpuId, pfn: Pfn, ops: &mut Vec<Op>) {
        while let Some(at) = self.prepared.iter().position(|of| of.0 == pfn) {
            let freed = self.prepared.remove(at).map(|of| of.1);
            let batch = &mut self.cpus[cpu.index()].batch;
            batch.extend(freed);
            if batch.len() == FREE_BATCH_MAX {
                self.flush_batch(cpu, ops);
            }
        }
    }

    pub(super) fn flush_batch(&mut self, cpu: CpuId, ops: &mut Vec<Op>) {
        let folded = self.fold(cpu.get());
        let batch = &mut self.cpus[cpu.index()].batch;
        if batch.is_empty() {
            return;
        }
        ops.push(Op::FreeBatch { cpu: folded, members: batch.len() as u8 });
        self.replayed += batch.len() as u64;
        for (slot, order) in batch.drain(..) {
            ops.push(Op::Member { slot, order });
            self.free_slots.push(slot);
        }
    }

    pub(super) fn emit_free(&mut self, cpu: CpuId, (slot, order): Freed, ops: &mut Vec<Op>) {
        self.replayed += 1;
        ops.push(Op::Free { slot, cpu: self.fold(cpu.get()), order });
        self.free_slots.push(slot);
    }
}
