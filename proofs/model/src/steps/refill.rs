//! A CPU chooses the next block to lease words of.

use super::{Making, SECOND, hold};
use crate::Defect;
use crate::Kind::{self, *};
use crate::protocol::*;

impl Making<'_> {
    /// `d.n` counts the places looked at, from [`SECOND`] on in the round after a recall.
    pub(super) fn refill(&mut self, d: Do) {
        let g = World::group(self.t);
        match d.kind {
            Source => self.source(d, g),
            Pick => match self.listed(d.h, State::Split) {
                none if none.is_empty() => self.not_here(d),
                found => self.one_of(found, |making, b| making.picked(d, b, g)),
            },
            TakeOf => {
                let tag = self.s.b(d.b).tag;
                let words =
                    if tag.0 == State::Split && !tag.2 { self.open_words(d.b) } else { [0; WORDS] };
                let again = Do::cpu(Alloc, d.c).n(d.n / SECOND * SECOND);
                if words == [0; WORDS] {
                    return self.next(&[again]);
                }
                let fits = (0..WORDS as u8).filter(|&w| words[usize::from(w)] != 0);
                let lease = |w: u8| Do { c: d.c, h: tag.1, ..Do::at(Lease, d.b, w) };
                self.one_of(fits, |making, w| making.next(&[lease(w), again]));
            }
            _ => match self.listed(d.h, State::Whole).first() {
                None => self.not_here(d),
                Some(&b) => self.take_whole(d, b, g),
            },
        }
    }

    fn source(&mut self, d: Do, g: u8) {
        let other = 3 - g;
        let whole = |making: &Self, h: u8| !making.listed(h, State::Whole).is_empty();
        let (from, kind) = match d.n % SECOND {
            0 => (g, Pick),
            1 if self.glance(ZONE) => (ZONE, Pick),
            2 if self.glance(other) => (other, Pick),
            3 if whole(self, g) => (g, TakeWhole),
            4 => (ZONE, TakeWhole),
            5 if whole(self, other) && !self.has(Defect::OthersKeepWholeBlocks) => {
                (other, TakeWhole)
            }
            6 if d.n < SECOND && !self.has(Defect::FailWithoutRecall) => {
                return self.next(&Self::recalled(d.c, Alloc));
            }
            6 => return,
            _ => return self.next(&[d.n(d.n + 1)]),
        };
        self.look(d, from, kind);
    }

    fn look(&mut self, d: Do, h: u8, kind: Kind) {
        self.next(&[Do { h, ..d.then(kind) }]);
        self.next(&hold(h));
    }

    fn not_here(&mut self, d: Do) {
        self.next(&[Do::held(Unlock, d.h), Do::cpu(Source, d.c).n(d.n + 1)]);
    }

    /// Whether a holder has frames to give, by a glance.
    fn glance(&self, h: u8) -> bool {
        self.s
            .blocks
            .iter()
            .any(|b| b.inbox == h || b.listed && b.tag.1 == h && b.tag.0 == State::Split)
    }

    /// A listed block of holder `d.h` was chosen: it may be of use, as it is or after it has become
    /// this group's.
    fn picked(&mut self, d: Do, b: u8, g: u8) {
        let words = self.open_words(b);
        let take = Do { b, ..d.then(TakeOf) };
        if words == [0; WORDS] || words == [FULL; WORDS] {
            self.next(&[Do { h: d.h, ..Do::block(File, b) }, d]);
        } else if d.h == g {
            self.next(&[Do::held(Unlock, d.h), take]);
        } else {
            self.s.b(b).listed = false;
            self.s.b(b).tag.1 = g;
            let file = Do { h: g, ..Do::block(FileIfOurs, b) };
            self.next(&[Do::held(Unlock, d.h), Do::held(Lock, g), file, Do::held(Unlock, g), take]);
        }
    }

    /// A whole block of holder `d.h` becomes a split one of this group.
    fn take_whole(&mut self, d: Do, b: u8, g: u8) {
        self.s.b(b).listed = false;
        self.next(&[Do::held(Unlock, g), Do { c: d.c, b, ..just(TakeOf).n(d.n) }]);
        self.begin_split(b, g);
        if d.h != g {
            // On its way it is in this CPU's hand: the group would take it for one that was freed
            // just now.
            self.s.b(b).tag.1 = if self.has(Defect::TransitUnmarked) { g } else { HAND };
            self.next(&[Do::held(Unlock, d.h), Do::held(Lock, g)]);
        }
    }
}
