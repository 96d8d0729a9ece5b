//! Words go to a CPU and come back, and frames are taken past the leases: `alloc/lease.rs`,
//! `block/words.rs`.

use crate::access::{Access, Run, Stop};
use crate::board::{is_leased, is_open};
use crate::calls::Bug;
use crate::machine::{BUSY, Cell, EMPTY, NONE, TYPE, WORDS, frames};

/// Leases, and frames past them.
impl Access<'_> {
    /// Frames came into a word, or, as a number that wraps, left it.
    pub(crate) fn count(&mut self, cpu: Option<usize>, n: u8) -> Run<()> {
        match cpu {
            Some(cpu) => self.own(Cell::Delta(cpu), |count| count.wrapping_add(n)),
            None => self.change(Cell::Outside, |count| count.wrapping_add(n)),
        }
        .map(drop)
    }

    /// Whether so many frames may go and the mark be kept.
    pub(crate) fn allows(&mut self, n: u8) -> Run<bool> {
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

    pub(crate) fn put(&mut self, cpu: Option<usize>, b: usize, w: usize, bits: u8) -> Run<u8> {
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
    pub(crate) fn lease(&mut self, b: usize, kind: u8) -> Run<bool> {
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
            self.own(Cell::Hand(me), |_| got)?;
            // A step of its own: who isolates the block glances at it.
            self.store(Cell::Key(me), ((b * 2 + w) as u8 + 1) | (kind << 4))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The lease of a CPU ends, by whoever is inside its state.
    pub(crate) fn end_lease(&mut self, c: usize) -> Run<()> {
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
    pub(crate) fn replenish(&mut self, b: usize, w: usize) -> Run<()> {
        let (me, name) = (self.me, self.me as u8 + 1);
        if self.load(Cell::Word(b, w))? == 0 {
            if self.load(Cell::Lease(b, w))? == name {
                self.store(Cell::Lease(b, w), name | EMPTY)?;
                let now = self.load(Cell::Word(b, w))?;
                self.raise_by(b, now)?;
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
    pub(crate) fn take(&mut self, kind: u8) -> Run<u16> {
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
    pub(crate) fn straight_of(&mut self, b: usize) -> Run<u16> {
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
    pub(crate) fn claim_fallback(&mut self, kind: u8) -> Run<Option<usize>> {
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
    pub(crate) fn publish(&mut self, b: usize) -> Run<()> {
        let class = self.load(Cell::Class(b))?;
        if class == NONE || class == BUSY { Ok(()) } else { self.list(b, class) }
    }
}
