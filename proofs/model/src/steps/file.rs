//! Under its lock a holder puts a block where it belongs, makes it whole, or splits it.

use super::Making;
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    /// `d.c` says whether the class is ours to set, `d.n` what the words so far amount to.
    pub(super) fn file(&mut self, d: Do) {
        let late = self.has(Defect::ClassAfterWords);
        let block = self.s.b(d.b);
        match d.kind {
            FileIfOurs if (block.tag.0, block.tag.1) == (State::Split, d.h) => {
                self.next(&[d.then(File)])
            }
            FileIfOurs => {}
            File => {
                (block.listed, block.known) = (false, 0);
                if block.tag.2 {
                    return;
                }
                let listing = block.class != QUEUED;
                if listing && !late {
                    block.class = 0;
                }
                self.next(&[Do { c: listing.into(), w: 0, ..d.then(FileWord) }]);
            }
            FileWord => {
                let word = self.open_words(d.b)[usize::from(d.w)];
                let n = d.n | word << (2 * d.w);
                if usize::from(d.w) + 1 < WORDS {
                    return self.next(&[Do { w: d.w + 1, ..d.n(n) }]);
                }
                match class_of([n & FULL, n >> 2]) {
                    CLASS_WHOLE => self.next(&[Do { w: 0, ..d.then(RetireLease).n(0) }]),
                    class => self.next(&[d.then(FileEnd).n(class)]),
                }
            }
            _ => {
                block.listed = d.n != 0;
                if d.c == 1 && (block.class == 0 || late && block.class != QUEUED) {
                    block.tell(d.n);
                }
            }
        }
    }

    /// The block becomes whole if nobody leases a word of it and all are full: word after word,
    /// `d.w`, is taken.
    pub(super) fn retire(&mut self, d: Do) {
        match d.kind {
            RetireLease if leased(*self.s.lease(d)) => self.not_whole(d),
            RetireLease => {
                *self.s.lease(d) = NONE;
                self.next(&[d.then(RetireTake)]);
            }
            RetireTake if *self.s.word(d) != FULL => self.not_whole(d),
            RetireTake => {
                *self.s.word(d) = 0;
                let last = usize::from(d.w) + 1 == WORDS;
                self.next(&[if last {
                    d.then(RetireEnd)
                } else {
                    Do { w: d.w + 1, ..d.then(RetireLease) }
                }]);
            }
            _ => {
                self.s.b(d.b).tag.0 = State::Whole;
                self.s.b(d.b).listed = true;
            }
        }
    }

    fn not_whole(&mut self, d: Do) {
        self.next(&[d.then(FileEnd).n(2)]);
        (0..d.w).for_each(|w| self.next(&[Do::at(PutBack, d.b, w).with(FULL)]));
    }

    /// A whole block becomes a split one of holder `h`.
    pub(super) fn begin_split(&mut self, b: u8, h: u8) {
        self.next(&[Do { h, w: 0, ..Do::block(Fill, b) }, Do { h, ..Do::block(List, b) }]);
    }

    pub(super) fn split(&mut self, d: Do) {
        let block = self.s.b(d.b);
        match d.kind {
            // The words first: until they are full a free would be accepted that is none. Whoever
            // takes a frame past the leases now puts it back if the tag still says whole.
            Fill => {
                let strays = std::mem::replace(self.s.word(d), FULL);
                self.s.late(d, strays);
                let last = usize::from(d.w) + 1 == WORDS;
                self.next(&[if last { d.then(SetSplit) } else { Do { w: d.w + 1, ..d } }]);
            }
            SetSplit => block.tag = (State::Split, d.h, false),
            _ => {
                block.listed = true;
                if block.class != QUEUED {
                    block.tell(2);
                }
            }
        }
    }
}
