//! A thread that makes every call there is on one machine, by chance, and judges the answers.
//!
//! Alone it compares each answer with a table of all frames. Beside others a ledger says whether
//! the frames that it was given were anybody's; what else is free is not sure then.
//!
//! ```text
//! books.rs    who has each frame: the table, or the ledger
//! calls.rs    allocations, of chunks and of runs
//! frees.rs    frees, in every way there is
//! memory.rs   ranges, isolation, memory and CPUs that come and go, looks
//! table.rs    which frames are there, free, isolated, CMA, and of which zone
//! ```

mod books;
mod calls;
mod frees;
mod memory;
mod table;

use freehold::{AllocError, CpuId, FrameRange, Migratetype};

use crate::exact::bounds::{Caller, Most, door};
use crate::exact::handle::Handle;
use crate::exact::machine::Machine;
use crate::exact::platform::{self, Core};
use crate::exact::random::Random;
pub(crate) use books::Books;
// Of `torture`, which has several threads.
#[allow(unused_imports)]
pub(crate) use books::Share;

/// What was done.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    /// Calls whose cost was held to its bound.
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    /// Failures that were searched for in the table.
    pub(crate) searched: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.calls += other.calls;
        self.failures += other.failures;
        self.searched += other.searched;
    }
}

/// The thread, and what it has.
pub(crate) struct Case {
    pub(crate) fh: &'static Core,
    pub(crate) books: Books,
    pub(crate) random: Random,
    pub(crate) held: Vec<FrameRange>,
    pub(crate) counts: Counts,
    /// Bounds are taken for half of what they are.
    pub(crate) halved: bool,
    handle: Handle,
    spans: Vec<FrameRange>,
    span: FrameRange,
    /// Where nobody else plugs CPUs.
    online: Vec<bool>,
    /// Large orders are common, and many of them at once.
    dense: bool,
}

impl Case {
    pub(crate) fn new(machine: &Machine, books: Books, mut random: Random) -> Self {
        let dense = random.percent(50);
        Self {
            fh: machine.fh,
            books,
            random,
            held: Vec::new(),
            counts: Counts::default(),
            halved: false,
            handle: Handle::On(machine.fh.on(CpuId::new(0))),
            spans: machine.zones.iter().map(|zone| zone.span).collect(),
            span: machine.span(),
            online: vec![true; machine.fh.cpu_count()],
            dense,
        }
    }

    /// Whether this thread's CPU may refuse its calls.
    fn may_be_offline(&self) -> bool {
        match &self.books {
            Books::Table(_) => !self.online[self.handle.cpu().index()],
            Books::Share(_) => self.handle.cpu().get() != 0 && self.handle.owned().is_none(),
        }
    }

    /// Makes a call on this thread's CPU.
    ///
    /// # Errors
    ///
    /// It has cost more than it may.
    pub(crate) fn call<T>(
        &mut self,
        most: Most,
        f: impl FnOnce(&Handle) -> T,
    ) -> Result<T, String> {
        let (waits, barriers) = platform::counts();
        let result = f(&self.handle);
        let now = platform::counts();
        self.counts.calls += 1;
        let by = Caller {
            owns: self.handle.owned().is_some(),
            is_alone: matches!(self.books, Books::Table(_)),
            halved: self.halved,
        };
        most.check(by, (now.0 - waits, now.1 - barriers)).map(|()| result)
    }

    /// The frames were handed out: they must have been free.
    fn keep(&mut self, what: &str, range: FrameRange) -> Result<(), String> {
        if !self.books.take(range) {
            return Err(format!("{what} handed out {range}, which is not all free"));
        }
        self.held.push(range);
        Ok(())
    }

    /// To any CPU: as its owner for some steps, or as anybody for one.
    fn change_handle(&mut self) -> Result<(), String> {
        if self.handle.owned().is_some() && !self.random.percent(12) {
            return Ok(());
        }
        let (fh, cpu) = (self.fh, CpuId::new(self.random.below(self.online.len() as u64) as u16));
        // Who owns it lets it go first.
        self.handle = Handle::On(fh.on(cpu));
        if !self.random.percent(10) {
            return Ok(());
        }
        match self.call(door("own", 1, 1), |_| fh.own(cpu))? {
            Ok(owned) => self.handle = Handle::Owned(owned),
            Err(AllocError::CpuOffline { .. }) if self.may_be_offline() => {}
            Err(AllocError::CpuOwned { .. }) if self.books.table_ref().is_none() => {}
            Err(error) => return Err(format!("own: {error}")),
        }
        Ok(())
    }

    /// A call, drawn.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.counts.steps += 1;
        self.change_handle()?;
        match self.random.below(45) {
            0..16 => self.alloc(),
            16..18 => self.alloc_bulk(),
            18..20 => self.alloc_run(),
            20..31 => self.free_some(),
            31..33 => self.free_wrongly(),
            33 => self.alloc_contig_range(),
            34 => self.alloc_contig(),
            35 => self.isolate_or_restore(),
            36 => self.change_memory(),
            37 => self.tick_or_flush(),
            38 => self.change_cpu(),
            39 => self.free_bulk(),
            40..43 => self.alloc_in_hand(),
            43 => self.look(),
            _ => {
                if self.books.table_ref().is_some() && self.random.percent(20) {
                    self.set_watermarks()?;
                }
                if self.random.percent(20) {
                    let fh = self.fh;
                    self.call(door("drain_all", 1, 1), |_| fh.drain_all())?;
                }
                for zone in 0..self.spans.len() {
                    let _ = self.fh.give_up_reserve(zone, Migratetype::Movable);
                }
                Ok(())
            }
        }
    }

    fn tick_or_flush(&mut self) -> Result<(), String> {
        let result = match self.random.percent(50) {
            true => self.call(door("tick", 1, 2), Handle::tick)?,
            false => self.call(door("flush", 0, 1), Handle::flush)?,
        };
        match result {
            Err(AllocError::CpuOffline { .. }) if self.may_be_offline() => Ok(()),
            result => result.map_err(|error| format!("tick or flush: {error}")),
        }
    }

    /// The allocator's invariants, and what it says of zones and blocks, if known.
    pub(crate) fn compare(&self) -> Result<(), String> {
        self.fh.validate().map_err(|broken| broken.to_string())?;
        let Some(table) = self.books.table_ref() else { return Ok(()) };
        for zone in 0..self.spans.len() {
            let stats = self.fh.zone_stats(zone).ok_or("no statistics of a zone")?;
            let blocks = self.fh.zone_blocks(zone).ok_or("no statistics of a zone's blocks")?;
            let (mut sum, mut by_type) = ((0, 0), [0; 6]);
            for block in self.fh.pageblocks(zone) {
                let said = (u64::from(block.frames), u64::from(block.free));
                let truth = table.count(block.start.get());
                if said != truth {
                    return Err(format!("{block:?}, and in truth {truth:?} frames and free"));
                }
                sum = (sum.0 + said.0, sum.1 + said.1);
                by_type[block.migratetype.index()] += 1;
            }
            let chunks = blocks.free_chunks.iter().enumerate().map(|(order, n)| n << order);
            let said = (stats.managed, stats.free, blocks.blocks_by_type, chunks.sum::<u64>());
            if said != (sum.0, sum.1, by_type, sum.1) {
                return Err(format!("zone {zone} is said to be {said:?}, its blocks {sum:?}"));
            }
        }
        Ok(())
    }

    /// Ends what lasts, and frees everything on a CPU that stays.
    pub(crate) fn free_all(&mut self) -> Result<(), String> {
        self.handle = Handle::On(self.fh.on(CpuId::new(0)));
        self.restore_all();
        for range in std::mem::take(&mut self.held) {
            self.books.give(range);
            let freed =
                self.call(crate::exact::bounds::free("free_range"), |cpu| cpu.free_range(range))?;
            freed.map_err(|error| format!("a right free of {range}: {error}"))?;
        }
        Ok(())
    }
}
