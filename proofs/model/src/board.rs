//! The board, and whole blocks: `block/class.rs`, `alloc/pick.rs` and `zone/whole.rs`.

use crate::access::{Access, Run};
use crate::calls::Bug;
use crate::machine::{
    BUSY, Cell, EMPTY, FULL, ISOLATED, NONE, SPLIT, STATE, TYPE, WHOLE, WHOLE_CLASS, WORDS,
    class_of,
};

pub(crate) fn row_of(tag: u8, class: u8) -> Cell {
    Cell::Row(u8::from(tag & TYPE != 0), class.clamp(1, 2))
}

pub(crate) fn any_of(row: Cell) -> u8 {
    1 << (row.at() - Cell::Row(0, 1).at())
}

pub(crate) fn is_open(tag: u8) -> bool {
    tag & STATE == SPLIT && tag & ISOLATED == 0
}

pub(crate) fn is_leased(lease: u8) -> bool {
    lease != 0 && lease & EMPTY == 0
}

/// The board.
impl Access<'_> {
    /// A word is `now`, after frames came into it.
    pub(crate) fn raise_by(&mut self, b: usize, now: u8) -> Run<()> {
        if now == FULL {
            return self.raise(b);
        }
        let mut known = self.load(Cell::Class(b))?;
        while now != 0 && known == NONE {
            if self.raise_to(b, known, 1)? {
                return Ok(());
            }
            known = self.load(Cell::Class(b))?;
        }
        Ok(())
    }

    pub(crate) fn raise_to(&mut self, b: usize, known: u8, class: u8) -> Run<bool> {
        if self.has(Bug::BitBeforeClass) {
            self.list(b, class)?;
            return self.cas(Cell::Class(b), known, class);
        }
        let raised = self.cas(Cell::Class(b), known, class)?;
        if raised {
            self.list(b, class)?;
        }
        Ok(raised)
    }

    /// Brings the class up to what the words have; what is wholly free becomes whole.
    pub(crate) fn raise(&mut self, b: usize) -> Run<()> {
        loop {
            let known = self.load(Cell::Class(b))?;
            if known == BUSY {
                if self.has(Bug::WaitsForBusy) {
                    continue;
                }
                return Ok(());
            }
            let mut class = class_of(self.words(b)?);
            if class == WHOLE_CLASS {
                if is_open(self.load(Cell::Tag(b))?) {
                    let alone =
                        self.has(Bug::TwoMayRetire) || self.cas(Cell::Class(b), known, BUSY)?;
                    if alone && self.retire(b)? {
                        return Ok(());
                    }
                    continue;
                }
                class -= 1;
            }
            if class <= known || self.raise_to(b, known, class)? {
                return Ok(());
            }
        }
    }

    pub(crate) fn words(&mut self, b: usize) -> Run<[u8; WORDS]> {
        let mut words = [0; WORDS];
        for (w, word) in words.iter_mut().enumerate() {
            if !is_leased(self.load(Cell::Lease(b, w))?) {
                *word = self.load(Cell::Word(b, w))?;
            }
        }
        Ok(words)
    }

    pub(crate) fn retire(&mut self, b: usize) -> Run<bool> {
        let whole = self.take_all_words(b)? && self.become_whole(b)?;
        self.store(Cell::Class(b), NONE)?;
        if whole {
            self.insert_whole(b)?;
        }
        Ok(whole)
    }

    pub(crate) fn take_all_words(&mut self, b: usize) -> Run<bool> {
        for w in 0..WORDS {
            let lease = self.load(Cell::Lease(b, w))?;
            let free = self.has(Bug::RetireIgnoresLeases)
                || lease == 0
                || lease & EMPTY != 0 && self.cas(Cell::Lease(b, w), lease, 0)?;
            if !free || !self.cas(Cell::Word(b, w), FULL, 0)? {
                for w in 0..if self.has(Bug::RetireKeepsPart) { 0 } else { w } {
                    self.change(Cell::Word(b, w), |old| old | FULL)?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn become_whole(&mut self, b: usize) -> Run<bool> {
        loop {
            let tag = self.load(Cell::Tag(b))?;
            if !is_open(tag) {
                for w in 0..WORDS {
                    self.change(Cell::Word(b, w), |old| old | FULL)?;
                }
                return Ok(false);
            }
            if self.cas(Cell::Tag(b), tag, WHOLE)? {
                self.change(Cell::SplitFree, |n| n.wrapping_sub(4))?;
                return Ok(true);
            }
        }
    }

    /// A search has found less than the class says.
    pub(crate) fn lower(&mut self, b: usize, known: u8, tag: u8) -> Run<()> {
        let before = self.has(Bug::LookBeforeLowering).then(|| self.words(b)).transpose()?;
        if !self.cas(Cell::Class(b), known, NONE)? {
            return Ok(());
        }
        self.unlist(b, row_of(tag, known))?;
        match before.map(class_of) {
            Some(NONE) => Ok(()),
            Some(class) => self.raise_to(b, NONE, class.min(2)).map(drop),
            None if self.has(Bug::NoSecondLook) => Ok(()),
            None => self.raise(b),
        }
    }

    pub(crate) fn list(&mut self, b: usize, class: u8) -> Run<()> {
        let tag = self.load(Cell::Tag(b))?;
        self.set(b, row_of(tag, class))
    }

    pub(crate) fn set(&mut self, b: usize, row: Cell) -> Run<()> {
        for (cell, bit) in [(row, 1 << b), (Cell::Any, any_of(row))] {
            if self.load(cell)? & bit == 0 {
                self.change(cell, |old| old | bit)?;
            }
        }
        Ok(())
    }

    /// Clears a bit that is not right, and looks once more.
    pub(crate) fn unlist(&mut self, b: usize, row: Cell) -> Run<()> {
        self.change(row, |old| old & !(1 << b))?;
        if self.has(Bug::StaleBitWithoutLook) {
            return Ok(());
        }
        let (tag, class) = (self.load(Cell::Tag(b))?, self.load(Cell::Class(b))?);
        let has_class = class != NONE && class != BUSY;
        if is_open(tag) && has_class && row_of(tag, class).at() == row.at() {
            self.set(b, row)?;
        }
        Ok(())
    }

    /// A row was seen to be empty.
    pub(crate) fn forget(&mut self, row: Cell) -> Run<()> {
        self.change(Cell::Any, |old| old & !any_of(row))?;
        if !self.has(Bug::SummaryWithoutLook) && self.load(row)? != 0 {
            self.change(Cell::Any, |old| old | any_of(row))?;
        }
        Ok(())
    }

    /// The block of the smallest class of that type, and of those the lowest.
    pub(crate) fn pick(&mut self, kind: u8, smallest_first: bool) -> Run<Option<usize>> {
        for class in if smallest_first { [1, 2] } else { [2, 1] } {
            let row = Cell::Row(kind, class);
            if self.load(Cell::Any)? & any_of(row) == 0 {
                continue;
            }
            let bits = self.load(row)?;
            if bits == 0 {
                self.forget(row)?;
            }
            for b in (0..self.machine.blocks).filter(|b| bits >> b & 1 == 1) {
                let (tag, known) = (self.load(Cell::Tag(b))?, self.load(Cell::Class(b))?);
                if known == BUSY {
                    continue;
                }
                if !is_open(tag) || known == NONE || row_of(tag, known).at() != row.at() {
                    self.unlist(b, row)?;
                } else if self.words(b)? == [0, 0] {
                    self.lower(b, known, tag)?;
                } else {
                    return Ok(Some(b));
                }
            }
        }
        Ok(None)
    }
}

/// Whole blocks.
impl Access<'_> {
    pub(crate) fn insert_whole(&mut self, b: usize) -> Run<()> {
        self.change(Cell::Whole(b), |_| 1)?;
        self.change(Cell::Count, |n| n + 1).map(drop)
    }

    /// Claims so many of the count.
    pub(crate) fn claim_wholes(&mut self, n: u8, in_use: bool) -> Run<bool> {
        loop {
            let count = self.load(Cell::Count)?;
            if count < n || in_use && !self.allows(4 * n)? {
                return Ok(false);
            }
            if self.cas(Cell::Count, count, count - n)? {
                return Ok(true);
            }
        }
    }

    pub(crate) fn take_bit(&mut self, b: usize) -> Run<bool> {
        if self.has(Bug::TwoMayTakeWhole) {
            return Ok(self.load(Cell::Whole(b))? == 1 && self.store(Cell::Whole(b), 0)? < 2);
        }
        self.cas(Cell::Whole(b), 1, 0)
    }

    pub(crate) fn take_whole(&mut self, in_use: bool) -> Run<Option<usize>> {
        if self.claim_wholes(1, in_use)? {
            for b in 0..self.machine.blocks {
                if self.take_bit(b)? {
                    return Ok(Some(b));
                }
            }
            self.change(Cell::Count, |n| n + 1)?;
        }
        Ok(None)
    }

    /// Both blocks, or none.
    pub(crate) fn take_run(&mut self) -> Run<bool> {
        if !self.claim_wholes(2, true)? {
            return Ok(false);
        }
        if !self.take_bit(0)? {
            self.change(Cell::Count, |n| n + 2)?;
            return Ok(false);
        }
        if !self.take_bit(1)? {
            if !self.has(Bug::RunWithoutUndo) {
                self.change(Cell::Whole(0), |_| 1)?;
            }
            self.change(Cell::Count, |n| n + 2)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The words of a whole block that this thread has are full; then the tag says what it is.
    pub(crate) fn fill(&mut self, b: usize, tag: u8) -> Run<()> {
        for w in 0..WORDS {
            self.store(Cell::Word(b, w), FULL)?;
        }
        self.change(Cell::SplitFree, |n| n.wrapping_add(4))?;
        self.store(Cell::Tag(b), tag).map(drop)
    }

    pub(crate) fn split_whole(&mut self, kind: u8) -> Run<Option<usize>> {
        let Some(b) = self.take_whole(false)? else { return Ok(None) };
        self.fill(b, SPLIT | if kind == 0 { 0 } else { TYPE })?;
        let mut known = self.load(Cell::Class(b))?;
        while known != BUSY {
            if self.cas(Cell::Class(b), known, 2)? {
                self.list(b, 2)?;
                break;
            }
            known = self.load(Cell::Class(b))?;
        }
        Ok(Some(b))
    }
}
