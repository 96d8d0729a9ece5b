//! Allocations, and what each may answer.

use freehold::{AllocError, AllocFlags, FrameRange, Migratetype, NodeId, Order, Pfn, Request};

use super::Case;
use super::table::Wanted;
use crate::exact::bounds::{Most, door, free};
use crate::exact::machine::range;

/// Frames of the largest bulk call.
pub(super) const BULK: usize = 300;

fn order(n: u64) -> Order {
    Order::new(n as u8).unwrap_or(Order::ZERO)
}

/// Any single frame that a request without flags may have.
const ANY: Wanted = Wanted {
    order: Order::ZERO,
    align: Order::ZERO,
    within: FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) },
    cma: false,
    flags: AllocFlags::empty(),
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
        let span = self.span;
        let place = |random: &mut crate::exact::random::Random| {
            Pfn::new(span.start.get() + random.below(span.len() + 600))
        };
        if random.percent(15) {
            wanted.align = Order::new(random.below(12) as u8).unwrap_or(Order::ZERO);
            request = request.align(wanted.align);
        }
        if random.percent(12) {
            wanted.within.end = place(random);
            request = request.below(wanted.within.end);
        }
        if random.percent(12) {
            wanted.within.start = place(random);
            request = request.from(wanted.within.start);
        }
        if random.percent(10) {
            request = request.node(NodeId::new(random.below(3) as u8));
        }
        wanted.cma = flags.contains(AllocFlags::CMA) && kind == Migratetype::Movable;
        (request, flags, wanted)
    }

    /// What a request may cost. Near the mark it asks for allowances, and empties hands once it has
    /// left; before it fails it asks all CPUs twice. Each time it is outside, and takes a barrier
    /// to get in again where it is not the owner.
    fn most(flags: AllocFlags, wanted: Wanted) -> Most {
        let is_limited = wanted.within != ANY.within;
        if flags.contains(AllocFlags::NO_LOCK) {
            free("alloc, NO_LOCK")
        } else if wanted.align > wanted.order {
            // Within its limits, without allowances, once all that failed.
            door("alloc, aligned further", 6, 12)
        } else if is_limited || wanted.order > Order::PAGEBLOCK {
            door("alloc, within limits or above a block", 3, 6)
        } else {
            door("alloc", 4, 8)
        }
    }

    pub(super) fn alloc(&mut self) -> Result<(), String> {
        let (request, flags, wanted) = self.request();
        let many =
            if self.dense && self.random.percent(30) { 1 + self.random.below(700) } else { 1 };
        for _ in 0..many {
            match self.call(Self::most(flags, wanted), |cpu| cpu.alloc(request))? {
                Ok(pfn) => self.check_chunk(pfn, request, wanted)?,
                Err(AllocError::CpuOffline { .. }) if self.may_be_offline() => return Ok(()),
                Err(error) => {
                    self.counts.failures += 1;
                    if flags.contains(AllocFlags::NO_LOCK) {
                        return Ok(());
                    }
                    return self.must_fail(error, Wanted { flags, ..wanted });
                }
            }
        }
        Ok(())
    }

    fn check_chunk(&mut self, pfn: Pfn, request: Request, wanted: Wanted) -> Result<(), String> {
        let chunk = range(pfn.get(), wanted.order.frames());
        let align = wanted.order.max(wanted.align);
        self.keep("alloc", chunk)?;
        let table = self.books.table_ref();
        let wrong = !pfn.is_aligned(align)
            || chunk.start < wanted.within.start
            || chunk.end > wanted.within.end
            || table.is_some_and(|table| table.has_isolated(chunk))
            || table.is_some_and(|table| table.has_cma(chunk) && !wanted.cma);
        if wrong { Err(format!("{request:?} may not have {chunk}")) } else { Ok(()) }
    }

    /// A request has failed: no such chunk may be free, if that is sure.
    fn must_fail(&mut self, error: AllocError, wanted: Wanted) -> Result<(), String> {
        let Some(table) = self.books.table_ref() else {
            let is_right = matches!(error, AllocError::NoMemory { .. });
            return if is_right { Ok(()) } else { Err(format!("{wanted:?}: {error}")) };
        };
        self.counts.searched += 1;
        let left: Vec<[Option<u64>; 2]> =
            (0..self.spans.len()).map(|zone| self.left_by(zone, wanted)).collect();
        let type_of = |pfn| self.fh.pageblock(Pfn::new(pfn)).map(|block| block.migratetype);
        let kept = |start: u64| match (type_of(start), table.zone_of(start)) {
            (Some(Migratetype::HighAtomic), _) => !wanted.flags.contains(AllocFlags::HIGH_ATOMIC),
            (Some(kind), Some(zone)) => {
                let is_cma = kind == Migratetype::Cma;
                // Of more than a block all are CMA, or none.
                let mut more = (start + 512..start + wanted.order.frames()).step_by(512);
                left[zone][usize::from(is_cma)].is_none()
                    || more.any(|pfn| {
                        let kind = type_of(pfn);
                        kind == Some(Migratetype::HighAtomic)
                            || (kind == Some(Migratetype::Cma)) != is_cma
                    })
            }
            _ => true,
        };
        match table.chunk(wanted, kept) {
            None => Ok(()),
            Some(start) => Err(format!("{error}, and {start:#x} is free, for {wanted:?}")),
        }
    }

    /// What a request would leave a zone beside its min mark, of ordinary frames and with CMA:
    /// `None` where it may not take that much. All free frames count, in whichever hand they are,
    /// but for those of blocks that are kept for atomic requests.
    fn left_by(&self, zone: usize, wanted: Wanted) -> [Option<u64>; 2] {
        let min = self.fh.zone_stats(zone).map_or(0, |stats| stats.watermarks[0]);
        let parts =
            [(AllocFlags::MIN_RESERVE, 2), (AllocFlags::NON_BLOCK, 4), (AllocFlags::OOM, 2)];
        let asked = parts.iter().filter(|(flag, _)| wanted.flags.contains(*flag));
        let mark = asked.fold(min, |mark, (_, part)| mark - mark / part);
        let mark = if wanted.flags.contains(AllocFlags::NO_WATERMARKS) { 0 } else { mark };
        [false, wanted.cma].map(|cma| {
            let counts = |kind| Migratetype::PCP.contains(&kind) || kind == Migratetype::Cma && cma;
            let blocks = self.fh.pageblocks(zone).filter(|block| counts(block.migratetype));
            let free: u64 = blocks.map(|block| u64::from(block.free)).sum();
            free.checked_sub(wanted.order.frames() + mark)
        })
    }

    pub(super) fn alloc_bulk(&mut self) -> Result<(), String> {
        let mut out = [Pfn::default(); BULK];
        let count = 1 + self.random.below(BULK as u64) as usize;
        let request = Request::new(Order::ZERO, self.random.pick(&Migratetype::PCP));
        let n = count as u64;
        // Each frame may be one that takes all that a failing call takes.
        let most = door("alloc_bulk", 3 * n + 1, 2 + 6 * n);
        match self.call(most, |cpu| cpu.alloc_bulk(request, &mut out[..count]))? {
            Ok(got) => {
                for pfn in &out[..got] {
                    self.keep("alloc_bulk", range(pfn.get(), 1))?;
                }
                let error = AllocError::NoMemory { order: Order::ZERO };
                if got < count { self.must_fail(error, ANY) } else { Ok(()) }
            }
            Err(AllocError::CpuOffline { .. }) if self.may_be_offline() => Ok(()),
            Err(error) => self.must_fail(error, ANY),
        }
    }

    pub(super) fn alloc_run(&mut self) -> Result<(), String> {
        let most = self.random.pick(&[3, 70, 600, 2000]);
        let count = 1 + self.random.below(most);
        match self.call(door("alloc_run", 0, 1), |cpu| cpu.alloc_run(count))? {
            Ok(run) if run.len() == count => self.keep("alloc_run", run),
            Ok(run) => Err(format!("alloc_run of {count} is {run}")),
            Err(AllocError::CpuOffline { .. }) if self.may_be_offline() => Ok(()),
            // Fewer places are looked at than there are.
            Err(AllocError::NoMemory { .. }) => Ok(()),
            Err(error) => Err(format!("alloc_run of {count}: {error}")),
        }
    }

    /// A chunk that the owner has in hand.
    pub(super) fn alloc_in_hand(&mut self) -> Result<(), String> {
        let (order, kind) = (order(self.random.below(6)), self.random.pick(&Migratetype::PCP));
        let found = self.call(free("alloc_in_hand"), |cpu| {
            cpu.owned().and_then(|owned| owned.alloc_in_hand(order, kind))
        })?;
        found.map_or(Ok(()), |pfn| self.keep("alloc_in_hand", range(pfn.get(), order.frames())))
    }
}
