//! What each call does to the shared cells: the protocol, one access after the other.
//!
//! The functions have the names of those of `crates/freehold` (`transfer/class.rs`,
//! `transfer/lease.rs`, `transfer/refill.rs`, `transfer/whole.rs`, `transfer/isolate.rs`,
//! `transfer/recall.rs`), which say why each step is right. Each place where a [`Bug`] is asked for
//! is a rule that the protocol cannot do without.

use crate::machine::{
    BUSY, Cell, Cells, EMPTY, FULL, ISOLATED, Machine, NONE, SPLIT, STATE, TAKEN, TYPE, WHOLE,
    WHOLE_CLASS, WORDS, World, class_of, frames,
};

/// A call that a thread may begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// A frame, from the hand, by leasing a word, of a block of another type, or after a recall.
    Frame,
    /// The same for the other type.
    Unmovable,
    /// A frame past the leases.
    Straight,
    /// A whole block.
    Block,
    /// Two neighbouring whole blocks.
    Run,
    /// A frame in use is freed: the lowest or the highest.
    Free,
    /// A block of which all is in use is freed at once.
    FreeBlock,
    /// The CPU's lease ends.
    Flush,
    /// A block is isolated, looked at, and ordinary again.
    Isolate,
}

/// A rule of the protocol that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "each is said where it is asked for in this file, and in docs/model.md"
)]
pub enum Bug {
    NoSecondLook,
    LookBeforeLowering,
    StaleBitWithoutLook,
    SummaryWithoutLook,
    BitBeforeClass,
    TwoMayRetire,
    RetireIgnoresLeases,
    RetireKeepsPart,
    LeaseWithoutTagCheck,
    StraightWithoutTagCheck,
    RetriesTheSameBlock,
    WaitsForBusy,
    TwoMayTakeWhole,
    RunWithoutUndo,
    EndLeaseWithoutRaise,
    EmptyWithoutLook,
    RecallDoesNotAwait,
    IsolationWithoutRecall,
    IsolationByTagOnly,
    RestoreWithoutPublishing,
    PutBackUncounted,
    MarkWithoutDeltas,
}

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

type Run<T> = Result<T, Stop>;

impl Call {
    /// With what it may begin.
    pub(crate) fn choices(self, world: &World) -> Vec<(Self, u8)> {
        let held = world.held;
        let blocks = || (0..2).filter(|b| held >> (4 * b) & 0xf == 0xf);
        let arguments: Vec<u8> = match self {
            Self::Free if held == 0 => vec![],
            Self::Free => {
                let (low, high) = (held.trailing_zeros(), 15 - held.leading_zeros());
                if low == high { vec![low as u8] } else { vec![low as u8, high as u8] }
            }
            Self::FreeBlock => blocks().collect(),
            _ => vec![0],
        };
        arguments.into_iter().map(|argument| (self, argument)).collect()
    }

    /// The frames that it takes from whoever uses them.
    pub(crate) fn gives(self, argument: u8) -> u16 {
        match self {
            Self::Free => 1 << argument,
            Self::FreeBlock => 0xf << (4 * argument),
            _ => 0,
        }
    }
}

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

struct Access<'a> {
    machine: &'a Machine,
    cells: &'a mut Cells,
    log: &'a mut Vec<u8>,
    at: usize,
    budget: u32,
    me: usize,
}

/// The accesses.
impl Access<'_> {
    fn access(&mut self, cost: u32, f: impl FnOnce(&mut Cells) -> Option<u8>) -> Run<u8> {
        if self.at == self.log.len() {
            self.budget = self.budget.checked_sub(cost).ok_or(Stop::Budget)?;
            self.log.push(f(self.cells).ok_or(Stop::Blocked)?);
        }
        self.at += 1;
        Ok(self.log[self.at - 1])
    }

    /// Replaces a cell by what `f` makes of it; what it was.
    fn change(&mut self, cell: Cell, f: impl FnOnce(u8) -> u8) -> Run<u8> {
        self.access(1, |cells| {
            let old = cells[cell.at()];
            cells[cell.at()] = f(old);
            Some(old)
        })
    }

    fn load(&mut self, cell: Cell) -> Run<u8> {
        self.change(cell, |old| old)
    }

    fn store(&mut self, cell: Cell, value: u8) -> Run<u8> {
        self.change(cell, |_| value)
    }

    fn cas(&mut self, cell: Cell, from: u8, to: u8) -> Run<bool> {
        Ok(self.change(cell, |old| if old == from { to } else { old })? == from)
    }

    /// A cell that only who is inside the CPU's state may touch: nobody can come in between.
    fn own(&mut self, cell: Cell, f: impl FnOnce(u8) -> u8) -> Run<u8> {
        self.access(0, |cells| {
            let old = cells[cell.at()];
            cells[cell.at()] = f(old);
            Some(old)
        })
    }

    /// Waits until a cell is 0: a door.
    fn wait(&mut self, cell: Cell) -> Run<u8> {
        self.access(1, |cells| (cells[cell.at()] == 0).then_some(0))
    }

    fn has(&self, bug: Bug) -> bool {
        self.machine.bug == Some(bug)
    }
}

fn row_of(tag: u8, class: u8) -> Cell {
    Cell::Row(u8::from(tag & TYPE != 0), class.clamp(1, 2))
}

fn any_of(row: Cell) -> u8 {
    1 << (row.at() - Cell::Row(0, 1).at())
}

fn is_open(tag: u8) -> bool {
    tag & STATE == SPLIT && tag & ISOLATED == 0
}

fn is_leased(lease: u8) -> bool {
    lease != 0 && lease & EMPTY == 0
}

/// The board.
impl Access<'_> {
    /// A word is `now`, after frames came into it.
    fn raise_by(&mut self, b: usize, now: u8) -> Run<()> {
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

    fn raise_to(&mut self, b: usize, known: u8, class: u8) -> Run<bool> {
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
    fn raise(&mut self, b: usize) -> Run<()> {
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

    fn words(&mut self, b: usize) -> Run<[u8; WORDS]> {
        let mut words = [0; WORDS];
        for (w, word) in words.iter_mut().enumerate() {
            if !is_leased(self.load(Cell::Lease(b, w))?) {
                *word = self.load(Cell::Word(b, w))?;
            }
        }
        Ok(words)
    }

    fn retire(&mut self, b: usize) -> Run<bool> {
        let whole = self.take_all_words(b)? && self.become_whole(b)?;
        self.store(Cell::Class(b), NONE)?;
        if whole {
            self.insert_whole(b)?;
        }
        Ok(whole)
    }

    fn take_all_words(&mut self, b: usize) -> Run<bool> {
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

    fn become_whole(&mut self, b: usize) -> Run<bool> {
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
    fn lower(&mut self, b: usize, known: u8, tag: u8) -> Run<()> {
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

    fn list(&mut self, b: usize, class: u8) -> Run<()> {
        let tag = self.load(Cell::Tag(b))?;
        self.set(b, row_of(tag, class))
    }

    fn set(&mut self, b: usize, row: Cell) -> Run<()> {
        for (cell, bit) in [(row, 1 << b), (Cell::Any, any_of(row))] {
            if self.load(cell)? & bit == 0 {
                self.change(cell, |old| old | bit)?;
            }
        }
        Ok(())
    }

    /// Clears a bit that is not right, and looks once more.
    fn unlist(&mut self, b: usize, row: Cell) -> Run<()> {
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
    fn forget(&mut self, row: Cell) -> Run<()> {
        self.change(Cell::Any, |old| old & !any_of(row))?;
        if !self.has(Bug::SummaryWithoutLook) && self.load(row)? != 0 {
            self.change(Cell::Any, |old| old | any_of(row))?;
        }
        Ok(())
    }

    /// The block of the smallest class of that type, and of those the lowest.
    fn pick(&mut self, kind: u8, smallest_first: bool) -> Run<Option<usize>> {
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
    fn insert_whole(&mut self, b: usize) -> Run<()> {
        self.change(Cell::Whole(b), |_| 1)?;
        self.change(Cell::Count, |n| n + 1).map(drop)
    }

    /// Claims so many of the count.
    fn claim_wholes(&mut self, n: u8, in_use: bool) -> Run<bool> {
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

    fn take_bit(&mut self, b: usize) -> Run<bool> {
        if self.has(Bug::TwoMayTakeWhole) {
            return Ok(self.load(Cell::Whole(b))? == 1 && self.store(Cell::Whole(b), 0)? < 2);
        }
        self.cas(Cell::Whole(b), 1, 0)
    }

    fn take_whole(&mut self, in_use: bool) -> Run<Option<usize>> {
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
    fn take_run(&mut self) -> Run<bool> {
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
    fn fill(&mut self, b: usize, tag: u8) -> Run<()> {
        for w in 0..WORDS {
            self.store(Cell::Word(b, w), FULL)?;
        }
        self.change(Cell::SplitFree, |n| n.wrapping_add(4))?;
        self.store(Cell::Tag(b), tag).map(drop)
    }

    fn split_whole(&mut self, kind: u8) -> Run<Option<usize>> {
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

/// Leases, and frames past them.
impl Access<'_> {
    /// Frames came into a word, or, as a number that wraps, left it.
    fn count(&mut self, cpu: Option<usize>, n: u8) -> Run<()> {
        match cpu {
            Some(cpu) => self.own(Cell::Delta(cpu), |count| count.wrapping_add(n)),
            None => self.change(Cell::Outside, |count| count.wrapping_add(n)),
        }
        .map(drop)
    }

    /// Whether so many frames may go and the mark be kept.
    fn allows(&mut self, n: u8) -> Run<bool> {
        let mark = self.machine.mark;
        if mark == 0 {
            return Ok(true);
        }
        let wholes = 4 * self.load(Cell::Count)?;
        if wholes >= n + mark {
            return Ok(true);
        }
        let mut split = self.load(Cell::SplitFree)?.wrapping_add(self.load(Cell::Outside)?);
        for c in 0..if self.has(Bug::MarkWithoutDeltas) { 0 } else { self.machine.cpus } {
            split = split.wrapping_add(self.load(Cell::Delta(c))?);
        }
        Ok(wholes + if split > 127 { 0 } else { split } >= n + mark)
    }

    fn put(&mut self, cpu: Option<usize>, b: usize, w: usize, bits: u8) -> Run<u8> {
        let old = self.change(Cell::Word(b, w), |old| old | bits)?;
        if old & bits != 0 {
            return Err(Stop::Wrong(format!(
                "{bits:#b} are free already in word {w} of block {b}"
            )));
        }
        self.count(cpu, bits.count_ones() as u8)?;
        Ok(old | bits)
    }

    /// Leases a word of a block whose tag was `tag`; whether there is something in hand.
    fn lease(&mut self, b: usize, kind: u8) -> Run<bool> {
        let (me, name) = (self.me, self.me as u8 + 1);
        let tag = self.load(Cell::Tag(b))?;
        if !is_open(tag) {
            return Ok(false);
        }
        for w in 0..WORDS {
            if self.load(Cell::Word(b, w))? == 0 || is_leased(self.load(Cell::Lease(b, w))?) {
                continue;
            }
            self.end_lease(me)?;
            let lease = self.load(Cell::Lease(b, w))?;
            if is_leased(lease) || !self.cas(Cell::Lease(b, w), lease, name)? {
                continue;
            }
            let got = self.change(Cell::Word(b, w), |_| 0)?;
            let right = self.has(Bug::LeaseWithoutTagCheck) || self.load(Cell::Tag(b))? == tag;
            if got == 0 || !right {
                self.change(Cell::Word(b, w), |old| old | got)?;
                self.store(Cell::Lease(b, w), 0)?;
                let now = self.load(Cell::Word(b, w))?;
                self.raise_by(b, now)?;
                continue;
            }
            self.count(Some(me), (got.count_ones() as u8).wrapping_neg())?;
            self.own(Cell::Key(me), |_| (b * 2 + w) as u8 + 1 | kind << 4)?;
            self.own(Cell::Hand(me), |_| got)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The lease of a CPU ends, by who is inside its state.
    fn end_lease(&mut self, c: usize) -> Run<()> {
        let key = self.own(Cell::Key(c), |_| 0)?;
        let hand = self.own(Cell::Hand(c), |_| 0)?;
        let Some(key) = usize::from(key & 0xf).checked_sub(1) else { return Ok(()) };
        let (b, w, name) = (key / 2, key % 2, c as u8 + 1);
        if hand != 0 {
            self.put(Some(c), b, w, hand)?;
        }
        if self.load(Cell::Lease(b, w))? == name {
            self.store(Cell::Lease(b, w), 0)?;
        } else {
            self.cas(Cell::Lease(b, w), name | EMPTY, 0)?;
        }
        if self.has(Bug::EndLeaseWithoutRaise) {
            return Ok(());
        }
        let now = self.load(Cell::Word(b, w))?;
        self.raise_by(b, now)
    }

    /// Nothing is in hand: takes what others have freed into the word, or lets the word go.
    fn replenish(&mut self, b: usize, w: usize) -> Run<()> {
        let (me, name) = (self.me, self.me as u8 + 1);
        if self.load(Cell::Word(b, w))? == 0 {
            if self.load(Cell::Lease(b, w))? == name {
                self.store(Cell::Lease(b, w), name | EMPTY)?;
                if !self.has(Bug::EmptyWithoutLook) {
                    let now = self.load(Cell::Word(b, w))?;
                    self.raise_by(b, now)?;
                }
            }
            return Ok(());
        }
        let ours = self.load(Cell::Lease(b, w))? == name
            || self.cas(Cell::Lease(b, w), name | EMPTY, name)?;
        if !ours {
            return self.own(Cell::Key(me), |_| 0).map(drop);
        }
        let got = self.change(Cell::Word(b, w), |_| 0)?;
        self.count(Some(me), (got.count_ones() as u8).wrapping_neg())?;
        self.own(Cell::Hand(me), |_| got).map(drop)
    }

    /// The lowest frame in hand, for a request of that type.
    fn take(&mut self, kind: u8) -> Run<u16> {
        let me = self.me;
        let (key, hand) =
            (self.own(Cell::Key(me), |key| key)?, self.own(Cell::Hand(me), |hand| hand)?);
        let Some(place) = usize::from(key & 0xf).checked_sub(1) else { return Ok(0) };
        if key >> 4 != kind || hand == 0 {
            return Ok(0);
        }
        self.own(Cell::Hand(me), |hand| hand & (hand - 1))?;
        Ok(frames(place / 2, place % 2, hand & hand.wrapping_neg()))
    }

    /// A frame of a block past the leases, if it still may be had once it is taken.
    fn straight_of(&mut self, b: usize) -> Run<u16> {
        loop {
            let mut again = false;
            for w in 0..WORDS {
                let word = self.load(Cell::Word(b, w))?;
                if word == 0 || is_leased(self.load(Cell::Lease(b, w))?) {
                    continue;
                }
                let bit = word & word.wrapping_neg();
                if !self.cas(Cell::Word(b, w), word, word & !bit)? {
                    continue;
                }
                self.count(Some(self.me), 1u8.wrapping_neg())?;
                if self.has(Bug::StraightWithoutTagCheck)
                    || is_open(self.load(Cell::Tag(b))?)
                        && !is_leased(self.load(Cell::Lease(b, w))?)
                {
                    return Ok(frames(b, w, bit));
                }
                let (old, cpu) = (self.change(Cell::Word(b, w), |old| old | bit)?, self.me);
                if !self.has(Bug::PutBackUncounted) {
                    self.count(Some(cpu), 1)?;
                }
                self.raise_by(b, old | bit)?;
                again = self.has(Bug::RetriesTheSameBlock);
            }
            if !again {
                return Ok(0);
            }
        }
    }

    /// A block of the other type that is at least half free becomes one of this type.
    fn claim_fallback(&mut self, kind: u8) -> Run<Option<usize>> {
        let Some(b) = self.pick(1 - kind, false)? else { return Ok(None) };
        let tag = self.load(Cell::Tag(b))?;
        let half = self.words(b)?.iter().map(|word| word.count_ones()).sum::<u32>() >= 2;
        if !half || !is_open(tag) || !self.cas(Cell::Tag(b), tag, tag ^ TYPE)? {
            return Ok(None);
        }
        self.publish(b)?;
        Ok(Some(b))
    }

    /// Says the class on the board after the tag has changed.
    fn publish(&mut self, b: usize) -> Run<()> {
        let class = self.load(Cell::Class(b))?;
        if class == NONE || class == BUSY { Ok(()) } else { self.list(b, class) }
    }
}

/// Doors and calls.
impl Access<'_> {
    fn try_enter(&mut self) -> Run<bool> {
        self.store(Cell::Busy(self.me), 1)?;
        let alone = self.load(Cell::Intruder(self.me))? == 0;
        if !alone {
            self.leave()?;
        }
        Ok(alone)
    }

    fn enter(&mut self) -> Run<()> {
        while !self.try_enter()? {
            self.wait(Cell::Intruder(self.me))?;
        }
        Ok(())
    }

    fn leave(&mut self) -> Run<()> {
        self.store(Cell::Busy(self.me), 0).map(drop)
    }

    /// Ends a CPU's lease from outside: the one call, beside the owner's door, that waits.
    fn recall(&mut self, c: usize) -> Run<()> {
        while !self.cas(Cell::Intruder(c), 0, 1)? {
            self.wait(Cell::Intruder(c))?;
        }
        if !self.has(Bug::RecallDoesNotAwait) {
            self.wait(Cell::Busy(c))?;
        }
        self.end_lease(c)?;
        self.store(Cell::Intruder(c), 0).map(drop)
    }

    fn call(&mut self, call: Call, argument: u8) -> Run<u16> {
        match call {
            Call::Frame => self.frame(0),
            Call::Unmovable => self.frame(1),
            Call::Straight => {
                self.enter()?;
                let block = match self.pick(0, true)? {
                    None => self.split_whole(0)?,
                    found => found,
                };
                let got = block.map_or(Ok(0), |b| self.straight_of(b))?;
                self.leave()?;
                Ok(got)
            }
            Call::Block => {
                let Some(b) = self.take_whole(true)? else { return Ok(0) };
                self.store(Cell::Tag(b), TAKEN)?;
                Ok(frames(b, 0, 0xf))
            }
            Call::Run if !self.take_run()? => Ok(0),
            Call::Run => {
                self.store(Cell::Tag(0), TAKEN)?;
                self.store(Cell::Tag(1), TAKEN)?;
                Ok(0xff)
            }
            Call::Free => self.free(usize::from(argument)),
            Call::FreeBlock => self.free_block(usize::from(argument)),
            Call::Flush => {
                self.enter()?;
                self.end_lease(self.me)?;
                self.leave()?;
                Ok(0)
            }
            Call::Isolate => self.isolate(0),
        }
    }

    fn frame(&mut self, kind: u8) -> Run<u16> {
        self.enter()?;
        let mut got = self.frame_inside(kind)?;
        if got == 0 {
            self.end_lease(self.me)?;
            self.leave()?;
            for c in 0..self.machine.cpus {
                if c == self.me {
                    continue;
                }
                if self.load(Cell::Busy(c))? != 0 || self.load(Cell::Key(c))? != 0 {
                    self.recall(c)?;
                }
            }
            self.enter()?;
            got = self.frame_inside(kind)?;
        }
        self.leave()?;
        Ok(got)
    }

    fn frame_inside(&mut self, kind: u8) -> Run<u16> {
        let key = self.own(Cell::Key(self.me), |key| key)?;
        if let Some(place) = usize::from(key & 0xf).checked_sub(1) {
            if key >> 4 == kind && self.own(Cell::Hand(self.me), |hand| hand)? == 0 {
                self.replenish(place / 2, place % 2)?;
            }
        }
        let got = self.take(kind)?;
        if got != 0 || !self.allows(2)? {
            return Ok(got);
        }
        for _ in 0..WORDS {
            let block = match self.pick(kind, true)? {
                None => self.split_whole(kind)?,
                found => found,
            };
            let Some(b) = block else { break };
            if self.lease(b, kind)? {
                return self.take(kind);
            }
        }
        if let Some(b) = self.claim_fallback(kind)? {
            if self.lease(b, kind)? {
                return self.take(kind);
            }
        }
        // Of a block of the other type, which keeps its type.
        self.pick(1 - kind, true)?.map_or(Ok(0), |b| self.straight_of(b))
    }

    /// A right free: into the hand, or into the word. Never waits.
    fn free(&mut self, frame: usize) -> Run<u16> {
        let (b, w, bit) = (frame / 4, frame / 2 % 2, 1 << (frame % 2));
        let inside = self.try_enter()?;
        if inside {
            let key = self.own(Cell::Key(self.me), |key| key)?;
            let hand = self.own(Cell::Hand(self.me), |hand| hand)?;
            if usize::from(key & 0xf) == b * 2 + w + 1 && hand != 0 {
                self.own(Cell::Hand(self.me), |hand| hand | bit)?;
                self.leave()?;
                return Ok(0);
            }
        }
        self.free_word(inside.then_some(self.me), b, w, bit)?;
        if inside {
            self.leave()?;
        }
        Ok(0)
    }

    fn free_word(&mut self, cpu: Option<usize>, b: usize, w: usize, bits: u8) -> Run<()> {
        // A block that was handed out whole becomes a split one.
        let mut tag = self.load(Cell::Tag(b))?;
        while tag & STATE == TAKEN && !self.cas(Cell::Tag(b), tag, tag & !STATE | SPLIT)? {
            tag = self.load(Cell::Tag(b))?;
        }
        let now = self.put(cpu, b, w, bits)?;
        self.raise_by(b, now)
    }

    fn free_block(&mut self, b: usize) -> Run<u16> {
        let tag = self.load(Cell::Tag(b))?;
        if tag & STATE == TAKEN && self.cas(Cell::Tag(b), tag, WHOLE)? {
            self.insert_whole(b)?;
        } else {
            (0..WORDS).try_for_each(|w| self.free_word(None, b, w, FULL))?;
        }
        Ok(0)
    }

    /// Isolates a block, looks at it, and makes it ordinary again.
    fn isolate(&mut self, b: usize) -> Run<u16> {
        if self.load(Cell::Whole(b))? == 1 {
            if !self.claim_wholes(1, false)? {
                return Ok(0);
            }
            if !self.take_bit(b)? {
                self.change(Cell::Count, |n| n + 1)?;
                return Ok(0);
            }
            self.fill(b, SPLIT | ISOLATED)?;
        } else {
            let tag = self.load(Cell::Tag(b))?;
            // Of a whole block that is in no bitmap somebody is on the way with.
            let to = tag & !STATE | SPLIT | ISOLATED;
            if tag & ISOLATED != 0 || tag & STATE == WHOLE || !self.cas(Cell::Tag(b), tag, to)? {
                return Ok(0);
            }
        }
        for c in 0..self.machine.cpus {
            let key = usize::from(self.load(Cell::Key(c))? & 0xf);
            if !self.has(Bug::IsolationWithoutRecall) && key != 0 && (key - 1) / 2 == b {
                self.recall(c)?;
            }
        }
        // Whoever has leased a word and opened no slot yet is inside its door.
        let ends = !self.has(Bug::IsolationWithoutRecall) && !self.has(Bug::IsolationByTagOnly);
        for w in 0..if ends { WORDS } else { 0 } {
            loop {
                let lease = self.load(Cell::Lease(b, w))? & !EMPTY;
                let Some(c) = usize::from(lease).checked_sub(1) else { break };
                self.recall(c)?;
            }
        }
        // Not the protocol's: what lies in the words now must stay there.
        self.access(0, |cells| {
            let words = cells[Cell::Word(b, 0).at()] | cells[Cell::Word(b, 1).at()] << 2;
            cells[Cell::Settled(b).at()] = 0x10 | words;
            Some(0)
        })?;
        self.words(b)?;
        self.own(Cell::Settled(b), |_| 0)?;
        loop {
            let tag = self.load(Cell::Tag(b))?;
            if self.cas(Cell::Tag(b), tag, tag & !ISOLATED)? {
                break;
            }
        }
        if !self.has(Bug::RestoreWithoutPublishing) {
            self.publish(b)?;
            self.raise(b)?;
        }
        Ok(0)
    }
}
