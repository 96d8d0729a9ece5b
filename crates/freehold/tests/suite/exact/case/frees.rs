//! Frees of what the thread has, in every way there is, and wrong ones.

use freehold::{FrameRange, FreeError, Order, Pfn};

use super::calls::BULK;
use super::table::{State, Table};
use super::{Books, Case};
use crate::exact::bounds::free;
use crate::exact::handle::Handle;
use crate::exact::machine::range;

impl Case {
    fn draw(&mut self) -> Option<FrameRange> {
        let n = self.random.below(self.held.len() as u64) as usize;
        (!self.held.is_empty()).then(|| self.held.swap_remove(n))
    }

    /// Some of what it has, whole or in two parts, as chunks or as ranges.
    pub(super) fn free_some(&mut self) -> Result<(), String> {
        let many = if self.random.percent(20) { 1 + self.random.below(400) } else { 1 };
        for _ in 0..many {
            let Some(all) = self.draw() else { return Ok(()) };
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

    /// The order of a range that is a chunk.
    fn chunk(part: FrameRange) -> Option<Order> {
        Order::fitting(part.len())
            .filter(|order| order.frames() == part.len() && part.start.is_aligned(*order))
    }

    /// Frees a range in a way that suits it.
    pub(super) fn free(&mut self, part: FrameRange) -> Result<(), String> {
        let chunk = Self::chunk(part);
        self.books.give(part);
        if let Some(order) = chunk.filter(|_| self.random.percent(30)) {
            let in_hand = self.call(free("free_in_hand"), |cpu| {
                cpu.owned().is_some_and(|owned| owned.free_in_hand(part.start, order))
            })?;
            if in_hand {
                return Ok(());
            }
        }
        let result = match chunk.filter(|_| self.random.percent(70)) {
            Some(order) => self.call(free("free"), |cpu| cpu.free(part.start, order))?,
            None => self.call(free("free_range"), |cpu| cpu.free_range(part))?,
        };
        let is_done = result.is_ok();
        self.freed(result, part)?;
        // The second free sees the first, wherever the frames went.
        if is_done && self.books.table_ref().is_some() && self.random.percent(5) {
            self.change_handle()?;
            if !self.may_be_offline() {
                return self.refused(part);
            }
        }
        Ok(())
    }

    /// What could not be freed since the CPU was offline stays.
    fn freed(&mut self, result: Result<(), FreeError>, part: FrameRange) -> Result<(), String> {
        match result {
            Err(FreeError::CpuOffline { .. }) if self.may_be_offline() => {
                self.keep("an offline CPU's free", part)
            }
            result => result.map_err(|error| format!("a right free of {part}: {error}")),
        }
    }

    /// Single frames and small chunks together.
    pub(super) fn free_bulk(&mut self) -> Result<(), String> {
        let mut frames = Vec::new();
        while let Some(chunk) = self.draw() {
            if frames.len() as u64 + chunk.len() > BULK as u64 {
                self.held.push(chunk);
                break;
            }
            self.books.give(chunk);
            frames.extend((chunk.start.get()..chunk.end.get()).map(Pfn::new));
        }
        let result = self.call(free("free_bulk"), |cpu| cpu.free_bulk(&frames))?;
        let Err(refused) = result else { return Ok(()) };
        let left = frames.drain(refused.freed..).map(|pfn| range(pfn.get(), 1));
        left.into_iter().try_for_each(|frame| self.freed(Err(refused.error), frame))
    }

    /// A range that is not all in use, a chunk every other time; beside others, what another thread
    /// has allocated. Half of them are near something in use: there hands have frames.
    pub(super) fn free_wrongly(&mut self) -> Result<(), String> {
        let at = self.random.below(self.span.len() + 100);
        let len = self.random.pick(&[1, 1, 8, 64, 128, 256, 512, 700]);
        let near = self.held.get(at as usize % self.held.len().max(1)).filter(|_| at % 4 < 2);
        let start = near.map_or(self.span.start.get() + at, |near| near.start.get() ^ (at % 256));
        let part = range(if at & 1 == 0 { start } else { start & !(len - 1) }, len);
        let table = match &self.books {
            Books::Table(table) => table,
            Books::Share(_) => return self.share(),
        };
        if table.all(part, State::Used) || self.may_be_offline() {
            return Ok(());
        }
        self.refused(part)
    }

    /// Makes a wrong free, as anybody and as the CPU's owner.
    fn refused(&self, part: FrameRange) -> Result<(), String> {
        let Books::Table(table) = &self.books else { return Ok(()) };
        Self::refused_by(&self.handle, table, part)?;
        match self.fh.own(self.handle.cpu()) {
            Ok(owned) => Self::refused_by(&Handle::Owned(owned), table, part),
            Err(_) => Ok(()),
        }
    }

    /// Each call that suits these frames must refuse them, for a reason that is so.
    fn refused_by(door: &Handle, table: &Table, part: FrameRange) -> Result<(), String> {
        let right = |error: Option<FreeError>| match error {
            Some(error) if table.explains(error, part) => Ok(()),
            Some(error) => Err(format!("a wrong free of {part}: {error}, which is not so")),
            None => Err(format!("a wrong free of {part} was accepted")),
        };
        // The call that a CPU makes most comes first: it goes another way after such a free.
        if let Some(order) = Self::chunk(part) {
            let in_hand = door.owned().is_some_and(|cpu| cpu.free_in_hand(part.start, order));
            right(door.free(part.start, order).err().filter(|_| !in_hand))?;
        }
        if part.len() == 1 {
            right(door.free_bulk(&[part.start]).err().map(|refused| refused.error))?;
        }
        right(door.free_range(part).err())
    }

    /// Leaves something for another thread to free, or frees what was left.
    pub(super) fn share(&mut self) -> Result<(), String> {
        let leaves = self.random.percent(50);
        let left = if leaves { self.draw() } else { None };
        let Books::Share(share) = &self.books else { return Ok(()) };
        if let Some(range) = left {
            share.leave(range);
        } else if let Some(range) = share.take_over() {
            return self.free(range);
        }
        Ok(())
    }
}
