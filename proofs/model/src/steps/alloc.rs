//! A frame, or a whole block, is asked for.

use super::{Making, SECOND, hold};
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    /// `d.n`: see [`Making::refill`].
    pub(super) fn alloc(&mut self, d: Do) {
        let (c, g) = (self.t, World::group(self.t));
        let again = Do::cpu(Alloc, c).n(d.n);
        let online = self.s.cpu(c).online;
        match d.kind {
            Alloc if online || self.has(Defect::OfflineWithoutLook) => self.frame(d),
            Hint if *self.s.word(d) & d.bits == 0 => self.next(&[again]),
            Hint => {
                *self.s.word(d) &= !d.bits;
                self.next(&[d.then(HintLook)]);
            }
            HintLook => {
                let open = self.s.b(d.b).tag.0 == State::Split && !leased(*self.s.lease(d));
                if open || self.has(Defect::HintWithoutLook) {
                    return self.s.hand_out(d, d.bits);
                }
                self.next(&[d.then(PutBack), again]);
            }
            AllocBlock if online => match std::mem::replace(&mut self.s.cpu(c).kept, NONE) {
                NONE => {
                    self.next(&[Do { h: g, ..d.then(BlockFrom) }]);
                    self.next(&hold(g));
                }
                kept => self.take_block(kept, g),
            },
            BlockFrom => self.block_from(d, g),
            _ => {}
        }
    }

    fn frame(&mut self, d: Do) {
        // A frame of the hand, if it is not in the word as well.
        for &at in self.s.slots(self.t).iter() {
            let (hand, word) = (*self.s.hand(at), *self.s.word(at));
            if hand & word != 0 && !self.has(Defect::NoLookAtTheWord) {
                *self.s.hand(at) &= !word;
                self.s.late(at, hand & word);
                return self.next(&[d]);
            }
            if hand != 0 {
                let frame = hand & hand.wrapping_neg();
                *self.s.hand(at) ^= frame;
                return self.s.hand_out(at, frame);
            }
            if *self.s.lease(at) == self.t {
                return self.next(&[at.then(Replenish), d]);
            }
        }
        // A hint: any frame that was freed lately, which is any.
        for b in (0..self.s.blocks.len() as u8).filter(|_| self.settings.hints) {
            let tag = self.s.b(b).tag;
            for (at, word) in Do::block(Hint, b).words().zip(self.open_words(b)) {
                if tag.0 == State::Split && !tag.2 && word != 0 {
                    self.or(&[at.with(word & word.wrapping_neg()).n(d.n)]);
                }
            }
        }
        self.next(&[d.then(Source)]);
    }

    fn take_block(&mut self, b: u8, g: u8) {
        self.strays(b, 0);
        Do::block(Alloc, b).words().for_each(|at| self.s.hand_out(at, FULL));
        self.s.b(b).tag = (State::Taken, g, false);
    }

    /// A block of holder `d.h`, whose lock is taken; or of the next holder, or after a recall.
    fn block_from(&mut self, d: Do, g: u8) {
        self.next(&[Do::held(Unlock, d.h)]);
        if let Some(&b) = self.listed(d.h, State::Whole).first() {
            self.s.b(b).listed = false;
            return self.take_block(b, g);
        }
        let order = [g, ZONE, 3 - g, NONE];
        let at = order.iter().position(|&h| h == d.h).map_or(NONE, |at| order[at + 1]);
        if at <= self.s.groups() {
            self.next_after(&[hold(at)[0], hold(at)[1], Do { h: at, ..d }]);
        } else if d.n < SECOND {
            let again = Self::recalled(d.c, AllocBlock);
            self.next_after(&again);
        }
    }
}
