//! How a call gets at the cells: one access at a time, and again from its beginning.
//!
//! ```text
//! log     what the call has read so far       read again where the call runs again
//! budget  how many accesses more it may make  1 for a step of the search, many to see whether it
//!                                             ends
//! ```

use crate::calls::Bug;
use crate::machine::{Cell, Cells, Machine, World};

/// Why a run of a call has stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// As many accesses as were allowed are made.
    Budget,
    /// A door is shut.
    Blocked,
    /// Something happened that must not.
    Wrong(String),
}

pub(crate) type Run<T> = Result<T, Stop>;

/// Runs thread `t`'s call from its beginning, what is in its log as it was, and `budget` accesses
/// more.
pub(crate) fn run(machine: &Machine, world: &mut World, t: usize, budget: u32) -> Run<()> {
    let Some((call, argument)) = world.threads[t].call else { return Ok(()) };
    let mut log = std::mem::take(&mut world.threads[t].log);
    let mut access =
        Access { machine, cells: &mut world.cells, log: &mut log, at: 0, budget, me: t };
    let result = access.call(call, argument);
    let result = match result {
        // One access was asked for, and made.
        Err(Stop::Budget) if budget == 1 => Ok(None),
        result => result.map(Some),
    }?;
    let Some(got) = result else {
        world.threads[t].log = log;
        return Ok(());
    };
    world.threads[t].call = None;
    for b in 0..machine.blocks {
        let settled = world.get(Cell::Settled(b));
        if settled != 0 && u16::from(settled & 0xf) << (4 * b) & got != 0 {
            return Err(Stop::Wrong(format!("{got:#b} come out of an isolated block")));
        }
    }
    if world.held & got != 0 {
        return Err(Stop::Wrong(format!("{got:#b} are handed out twice")));
    }
    world.held |= got;
    Ok(())
}

/// A thread in a call.
pub(crate) struct Access<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) cells: &'a mut Cells,
    pub(crate) log: &'a mut Vec<u8>,
    pub(crate) at: usize,
    pub(crate) budget: u32,
    pub(crate) me: usize,
}

/// The accesses.
impl Access<'_> {
    pub(crate) fn access(
        &mut self,
        cost: u32,
        f: impl FnOnce(&mut Cells) -> Option<u8>,
    ) -> Run<u8> {
        if self.at == self.log.len() {
            self.budget = self.budget.checked_sub(cost).ok_or(Stop::Budget)?;
            self.log.push(f(self.cells).ok_or(Stop::Blocked)?);
        }
        self.at += 1;
        Ok(self.log[self.at - 1])
    }

    /// Replaces a cell by what `f` makes of it; what it was.
    pub(crate) fn change(&mut self, cell: Cell, f: impl FnOnce(u8) -> u8) -> Run<u8> {
        self.access(1, |cells| {
            let old = cells[cell.at()];
            cells[cell.at()] = f(old);
            Some(old)
        })
    }

    pub(crate) fn load(&mut self, cell: Cell) -> Run<u8> {
        self.change(cell, |old| old)
    }

    pub(crate) fn store(&mut self, cell: Cell, value: u8) -> Run<u8> {
        self.change(cell, |_| value)
    }

    pub(crate) fn cas(&mut self, cell: Cell, from: u8, to: u8) -> Run<bool> {
        Ok(self.change(cell, |old| if old == from { to } else { old })? == from)
    }

    /// A cell that only who is inside the CPU's state may touch: nobody can come in between.
    pub(crate) fn own(&mut self, cell: Cell, f: impl FnOnce(u8) -> u8) -> Run<u8> {
        self.access(0, |cells| {
            let old = cells[cell.at()];
            cells[cell.at()] = f(old);
            Some(old)
        })
    }

    /// Waits until a cell is 0: a door.
    pub(crate) fn wait(&mut self, cell: Cell) -> Run<u8> {
        self.access(1, |cells| (cells[cell.at()] == 0).then_some(0))
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.machine.bug == Some(bug)
    }
}
