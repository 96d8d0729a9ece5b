//! Allocations and frees, and what each may answer.

use freehold::{
    AllocError, AllocFlags, FrameRange, FreeError, Migratetype, NodeId, Order, Pfn, Request,
};

use super::Case;
use super::table::{State, Wanted};
use crate::machine::range;

/// Frames of the largest bulk call.
const BULK: usize = 300;

fn order(n: u64) -> Order {
    Order::new(n as u8).unwrap_or(Order::ZERO)
}

/// Any single frame that a request without flags may have.
const ANY: Wanted = Wanted {
    order: Order::ZERO,
    align: Order::ZERO,
    within: FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) },
    cma: false,
};

impl Case {
    /// A request, and what it may have.
    fn request(&mut self) -> (Request, AllocFlags, Wanted) {
        let random = &mut self.random;
        let order = if self.dense {
            order(random.pick(&[0, 0, 3, 5, 6, 7, 8, 9, 9, 10]))
        } else {
            order(random.below(13))
        };
        let kind = random.pick(&Migratetype::PCP);
        let mut request = Request::new(order, kind);
        let mut flags = AllocFlags::empty();
        if random.percent(40) {
            let bits = random.below(256) & random.below(256);
            flags = AllocFlags::from_bits_truncate(bits as u16);
            request = request.flags(flags);
        }
        let mut wanted = Wanted { order, ..ANY };
        let place = |random: &mut crate::random::Random, case: &super::Table| {
            Pfn::new(case.first() + random.below(case.len() + 600))
        };
        if random.percent(15) {
            wanted.align = Order::new(random.below(12) as u8).unwrap_or(Order::ZERO);
            request = request.align(wanted.align);
        }
        if random.percent(12) {
            wanted.within.end = place(random, &self.table);
            request = request.below(wanted.within.end);
        }
        if random.percent(12) {
            wanted.within.start = place(random, &self.table);
            request = request.from(wanted.within.start);
        }
        if random.percent(10) {
            request = request.node(NodeId::new(random.below(3) as u8));
        }
        wanted.cma = flags.contains(AllocFlags::CMA) && kind == Migratetype::Movable;
        (request, flags, wanted)
    }

    pub(super) fn alloc(&mut self) -> Result<(), String> {
        let (request, flags, wanted) = self.request();
        let many =
            if self.dense && self.random.percent(30) { 1 + self.random.below(700) } else { 1 };
        for _ in 0..many {
            match self.on().alloc(request) {
                Ok(pfn) => self.check_chunk(pfn, request, wanted)?,
                Err(AllocError::CpuOffline { .. }) if !self.is_online() => return Ok(()),
                Err(error) => {
                    self.counts.failures += 1;
                    if flags.contains(AllocFlags::NO_LOCK) {
                        return Ok(());
                    }
                    // Above a pageblock CMA is not looked at.
                    let cma = wanted.cma && wanted.order <= Order::PAGEBLOCK;
                    return self.must_fail(error, Wanted { cma, ..wanted });
                }
            }
        }
        Ok(())
    }

    fn check_chunk(&mut self, pfn: Pfn, request: Request, wanted: Wanted) -> Result<(), String> {
        let chunk = range(pfn.get(), wanted.order.frames());
        let align = wanted.order.max(wanted.align);
        self.keep("alloc", chunk)?;
        let wrong = !pfn.is_aligned(align)
            || chunk.start < wanted.within.start
            || chunk.end > wanted.within.end
            || self.table.has_isolated(chunk)
            || self.table.has_cma(chunk) && !wanted.cma;
        if wrong { Err(format!("{request:?} may not have {chunk}")) } else { Ok(()) }
    }

    /// A request has failed: no such chunk may be free.
    fn must_fail(&mut self, error: AllocError, wanted: Wanted) -> Result<(), String> {
        self.counts.searched += 1;
        match self.table.chunk(wanted) {
            None => Ok(()),
            Some(start) => Err(format!("{error}, and {start:#x} is free, for {wanted:?}")),
        }
    }

    pub(super) fn alloc_bulk(&mut self) -> Result<(), String> {
        let mut out = [Pfn::default(); BULK];
        let count = 1 + self.random.below(BULK as u64) as usize;
        let request = Request::new(Order::ZERO, self.random.pick(&Migratetype::PCP));
        match self.on().alloc_bulk(request, &mut out[..count]) {
            Ok(got) => {
                for pfn in &out[..got] {
                    self.keep("alloc_bulk", range(pfn.get(), 1))?;
                }
                let error = AllocError::NoMemory { order: Order::ZERO };
                if got < count { self.must_fail(error, ANY) } else { Ok(()) }
            }
            Err(AllocError::CpuOffline { .. }) => Ok(()),
            Err(error) => self.must_fail(error, ANY),
        }
    }

    pub(super) fn alloc_run(&mut self) -> Result<(), String> {
        let most = self.random.pick(&[3, 70, 600, 2000]);
        let count = 1 + self.random.below(most);
        let Ok(run) = self.on().alloc_run(count) else { return Ok(()) };
        if run.len() != count {
            return Err(format!("alloc_run of {count} is {run}"));
        }
        self.keep("alloc_run", run)
    }

    /// Some of what it has, whole or in two parts, as chunks or as ranges.
    pub(super) fn free_some(&mut self) -> Result<(), String> {
        let many = if self.random.percent(20) { 1 + self.random.below(400) } else { 1 };
        for _ in 0..many {
            if self.held.is_empty() {
                return Ok(());
            }
            let n = self.random.below(self.held.len() as u64) as usize;
            let all = self.held.swap_remove(n);
            let (start, len) = (all.start.get(), all.len());
            let first = if len > 1 && self.random.percent(40) {
                1 + self.random.below(len - 1)
            } else {
                len
            };
            for part in [range(start, first), range(start + first, len - first)] {
                if !part.is_empty() {
                    self.free(part)?;
                }
            }
        }
        Ok(())
    }

    fn free(&mut self, part: FrameRange) -> Result<(), String> {
        let chunk = Order::fitting(part.len())
            .filter(|order| order.frames() == part.len() && part.start.is_aligned(*order));
        let result = match chunk.filter(|_| self.random.percent(70)) {
            Some(order) => self.on().free(part.start, order),
            None => self.on().free_range(part),
        };
        match result {
            Ok(()) => self.table.set(part, State::Free),
            Err(FreeError::CpuOffline { .. }) if !self.is_online() => self.held.push(part),
            Err(error) => return Err(format!("a right free of {part}: {error}")),
        }
        Ok(())
    }

    /// A range that is not all in use.
    pub(super) fn free_wrongly(&mut self) -> Result<(), String> {
        let start = self.table.first() + self.random.below(self.table.len() + 100);
        let part = range(start, self.random.pick(&[1, 1, 8, 64, 512, 700]));
        let is_right = self.table.all(part, State::Used);
        if !is_right && self.is_online() && self.on().free_range(part).is_ok() {
            return Err(format!("a wrong free of {part} was accepted"));
        }
        Ok(())
    }
}
