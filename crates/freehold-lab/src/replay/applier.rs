//! Makes an engine's calls and keeps the books on them.

use freehold::{AllocError, CpuId, Order, Pfn};

use super::errors::Errors;
use crate::engine::{CmaBook, Engine, Request};

/// What was carried out, to compare with what was asked for and with what the engine says.
#[derive(Clone, Copy, Default)]
pub struct Made {
    pub allocs: u64,
    pub frees: u64,
    pub failed: u64,
    /// Frees of what could not be allocated.
    pub skipped: u64,
}

pub struct Applier<'a> {
    pub engine: &'a dyn Engine,
    pub made: Made,
    /// What CMA serves, where the machine has any.
    pub cma: Option<CmaBook>,
    pub errors: Errors,
}

impl<'a> Applier<'a> {
    /// Nothing made yet.
    pub fn new(engine: &'a dyn Engine, cma: Option<CmaBook>) -> Self {
        Self { engine, made: Made::default(), cma, errors: Errors::default() }
    }

    #[inline(always)]
    pub fn alloc(&mut self, cpu: CpuId, request: Request) -> Option<Pfn> {
        let order = request.order;
        match self.engine.alloc(cpu, request) {
            Ok(pfn) => {
                self.made.allocs += 1;
                self.cma.iter_mut().for_each(|book| book.served(request, pfn));
                if !pfn.is_aligned(order) {
                    self.errors
                        .add(format!("{order} allocated at {pfn}, which is not aligned to it"));
                }
                Some(pfn)
            }
            Err(error) => {
                self.made.failed += 1;
                self.cma.iter_mut().for_each(|book| book.failed(request));
                if !matches!(error, AllocError::NoMemory { .. } | AllocError::WouldBlock) {
                    self.errors.add(format!("allocating {order} on CPU {}: {error}", cpu.get()));
                }
                None
            }
        }
    }

    /// Frees a chunk; skips it where its allocation failed.
    pub fn free(&mut self, cpu: CpuId, chunk: Option<Pfn>, order: Order) {
        let Some(pfn) = chunk else {
            self.made.skipped += 1;
            return;
        };
        self.cma.iter_mut().for_each(|book| book.freed(pfn, order));
        match self.engine.free(cpu, pfn, order) {
            Ok(()) => self.made.frees += 1,
            Err(error) => {
                self.errors.add(format!("freeing {order} at {pfn} on CPU {}: {error}", cpu.get()))
            }
        }
    }

    pub fn free_batch(&mut self, cpu: CpuId, chunks: &[(Pfn, Order)]) {
        if chunks.is_empty() {
            return;
        }
        self.cma
            .iter_mut()
            .for_each(|book| chunks.iter().for_each(|&(pfn, order)| book.freed(pfn, order)));
        let len = chunks.len();
        match self.engine.free_batch(cpu, chunks) {
            Ok(()) => self.made.frees += len as u64,
            Err(error) => {
                self.errors.add(format!("freeing a batch of {len} on CPU {}: {error}", cpu.get()))
            }
        }
    }

    pub fn split(&mut self, chunk: Option<Pfn>, from: Order, to: Order) {
        if let Some(pfn) = chunk
            && let Err(error) = self.engine.split(pfn, from, to)
        {
            self.errors.add(format!("splitting {from} into {to} at {pfn}: {error}"));
        }
    }

    /// What was wrong, in words: calls that must not fail, and what contradicts the account of CMA.
    pub fn findings(&self) -> Vec<String> {
        let cma = self.cma.iter().flat_map(|book| book.findings(self.engine.free_cma()));
        self.errors.finding().into_iter().chain(cma).collect()
    }
}
