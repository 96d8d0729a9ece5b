//! Frames go into the hand, or into their word for everybody to see. No step waits.

use super::Making;
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

/// In a step's `n`: the CPU's state is entered, and may have leases; entered, but the CPU is
/// offline; not entered.
pub(crate) const INSIDE: u8 = 1;
const OFFLINE: u8 = 2;
const OUTSIDE: u8 = 0;

impl Making<'_> {
    /// How a free begins and ends, and what the tag has it do.
    pub(super) fn free(&mut self, d: Do) {
        match d.kind {
            FreeEnter => self.free_enter(d),
            FreeEnd if d.n == OUTSIDE => {}
            FreeEnd => self.s.cpu(self.t).door = NONE,
            FreeBlock => self.free_block(d),
            FreeTag => {
                let block = self.s.b(d.b);
                let closer = Do { h: block.tag.1, ..d };
                match block.tag.0 {
                    State::Absent | State::Whole => self.s.refuse(d, d.freed),
                    State::Split => self.next(&[closer.then(FreeEmpty)]),
                    State::Taken => {
                        block.class = if block.class == QUEUED { QUEUED } else { 0 };
                        self.next(&[closer.then(FreeSplit)]);
                    }
                }
            }
            _ if self.s.b(d.b).tag != (State::Taken, d.h, false) => self.next(&[d.then(FreeTag)]),
            _ => {
                self.s.b(d.b).tag.0 = State::Split;
                self.strays(d.b, 0);
                self.next(&[d.then(FreeEmpty)]);
            }
        }
    }

    fn free_enter(&mut self, d: Do) {
        let look = !self.has(Defect::OfflineWithoutLook);
        let t = self.t;
        let cpu = self.s.cpu(t);
        let n = match cpu.door {
            NONE if cpu.online || !look => INSIDE,
            NONE => OFFLINE,
            _ => OUTSIDE,
        };
        if n != OUTSIDE {
            cpu.door = t;
        }
        let first = if d.w == NONE { FreeBlock } else { FreeHand };
        self.next(&[Do { c: t, ..d.then(first).n(n) }, just(FreeEnd).n(n)]);
    }

    fn free_block(&mut self, d: Do) {
        match self.s.b(d.b).tag.0 {
            State::Taken => {
                d.words().for_each(|at| self.s.accept(at, FULL));
                self.s.b(d.b).tag.0 = State::Whole;
                let cpu = self.s.cpu(d.c);
                if d.n == INSIDE && cpu.kept == NONE {
                    cpu.kept = d.b;
                    self.s.b(d.b).tag.1 = HAND;
                } else {
                    self.next(&[Do::block(Queue, d.b)]);
                }
            }
            State::Split => {
                d.words().rev().for_each(|at| self.next(&[Do { freed: FULL, ..at.then(FreeTag) }]))
            }
            _ => d.words().for_each(|at| self.s.refuse(at, FULL)),
        }
    }

    pub(super) fn free_into_hand(&mut self, d: Do) {
        let hand = if d.n == INSIDE { *self.s.hand(d) } else { NONE };
        let there = *self.s.word(d) & d.freed != 0;
        match d.kind {
            // Nothing in hand: it takes frees still, as long as nobody may take the word over.
            FreeHand
                if hand == NONE || hand == 0 && (*self.s.lease(d) != d.c || d.freed == FULL) =>
            {
                self.next(&[d.then(FreeTag)]);
            }
            FreeHand if there || hand & d.freed != 0 => self.s.refuse(d, d.freed),
            FreeHand | FreeOpen => {
                *self.s.hand(d) |= d.freed;
                self.s.accept(d, d.freed);
            }
            FreeEmpty if hand == NONE => self.next(&[d.then(FreeChoose)]),
            FreeEmpty if there => self.s.refuse(d, d.freed),
            FreeEmpty if d.freed == FULL || d.h == ZONE => {
                self.next(&[d.then(EndLease), d.then(FreeLook)])
            }
            FreeEmpty if self.claim_slot(d) => self.next(&[d.then(FreeOpen)]),
            FreeEmpty => self.next(&[d.then(FreeChoose)]),
            _ => {
                let isolated = self.s.b(d.b).tag.2;
                if d.n == INSIDE
                    && !isolated
                    && d.h != ZONE
                    && d.freed != FULL
                    && !there
                    && !leased(*self.s.lease(d))
                {
                    self.or(&[d.then(Lease)]);
                }
                self.next(&[d.then(FreeLook)]);
            }
        }
    }

    pub(super) fn free_into_word(&mut self, d: Do) {
        let lease = *self.s.lease(d);
        let shown = if leased(lease) { *self.s.hand(Do { c: lease, ..d }) } else { NONE };
        let shown = if shown == NONE { 0 } else { shown };
        let old = *self.s.word(d);
        let (late, early) = (self.has(Defect::LookAfterPut), self.has(Defect::AnnounceBeforePut));
        let tell = Do::at(Tell, d.b, d.w).with(old | d.freed);
        match d.kind {
            FreeLook if d.freed == 0 => {
                self.s.must(shown & d.bits == 0 || self.s.wronged, "a right free is refused")
            }
            FreeLook if shown & d.freed != 0 && !late => self.s.refuse(d, d.freed),
            FreeLook if early => self.next(&[tell, d.then(FreePut)]),
            FreeLook => self.next(&[d.then(FreePut)]),
            _ if old & d.freed != 0 => self.s.refuse(d, d.freed),
            _ => {
                *self.s.word(d) |= d.freed;
                self.s.accept(d, d.freed);
                if !early {
                    self.next(&[tell]);
                }
                if late {
                    self.next(&[Do { bits: d.freed, freed: 0, ..d.then(FreeLook) }]);
                }
            }
        }
    }
}
