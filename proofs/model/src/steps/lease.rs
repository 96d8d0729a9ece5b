//! Words go to a CPU and come back.

use super::Making;
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    /// `d.freed` are frames that this CPU is freeing: they go into the hand, or on to the word
    /// where the lease fails.
    pub(super) fn lease(&mut self, d: Do) {
        let failed: &[Do] = if d.freed != 0 { &[Do { bits: 0, ..d.then(FreeLook) }] } else { &[] };
        let lease = *self.s.lease(d);
        match d.kind {
            Lease if *self.s.hand(d) != NONE => self.next(&[d.then(Revive)]),
            Lease if leased(lease) => self.next(failed),
            Lease => {
                self.next(&[d.then(LeaseCas).n(lease)]);
                let slots = self.s.slots(d.c);
                if slots.len() >= usize::from(self.settings.leases) {
                    self.next(&slots[..1]);
                }
            }
            LeaseCas if lease != d.n => self.next(failed),
            LeaseCas => {
                if d.n == NONE || !self.has(Defect::ThiefKeepsTheLease) {
                    *self.s.lease(d) = d.c;
                }
                self.next(&[d.then(TakeWord).n(0)]);
            }
            TakeWord => {
                let got = std::mem::take(self.s.word(d));
                self.next(&[d.then(Look).with(got)]);
            }
            Look => {
                let same = self.s.b(d.b).tag == (State::Split, d.h, false)
                    || self.has(Defect::LeaseWithoutLook);
                if same && d.bits | d.freed != 0 && d.bits & d.freed == 0 {
                    *self.s.hand(d) = d.bits | d.freed;
                    return self.s.accept(d, d.freed);
                }
                self.next(&[d.then(LeaseBack)]);
            }
            _ => {
                self.put_back(d, d.bits);
                self.next(failed);
                self.next(&[Do { freed: 0, ..d.then(Unname) }]);
            }
        }
    }

    /// A slot has nothing in hand.
    pub(super) fn replenish(&mut self, d: Do) {
        match d.kind {
            Replenish if *self.s.word(d) != 0 => self.next(&[d.then(Revive)]),
            Replenish => self.next(&[d.then(SetEmpty)]),
            SetEmpty => {
                *self.s.lease(d) = d.c | EMPTY;
                self.next(&[d.then(EndTell)]);
            }
            Revive if self.claim_slot(d) => self.next(&[d.then(Revive2)]),
            Revive => {}
            _ => {
                let got = std::mem::take(self.s.word(d));
                let hand = *self.s.hand(d);
                self.s.late(d, hand & got);
                *self.s.hand(d) = hand | got;
            }
        }
    }

    /// Makes sure that the lease of a slot's word names this CPU; otherwise the slot is free.
    pub(super) fn claim_slot(&mut self, d: Do) -> bool {
        let ours = [d.c, d.c | EMPTY].contains(self.s.lease(d));
        *(if ours { self.s.lease(d) } else { self.s.hand(d) }) = if ours { d.c } else { NONE };
        ours
    }

    pub(super) fn end_lease(&mut self, d: Do) {
        match d.kind {
            EndLease if self.has(Defect::UnnamedBeforePutBack) => {
                self.next(&[d.then(Unname), d.then(Close)])
            }
            EndLease => {
                let hand = *self.s.hand(d);
                self.put_back(d, hand);
                self.next(&[d.then(Close), d.then(Unname)]);
            }
            Close => {
                let hand = std::mem::replace(self.s.hand(d), NONE);
                if self.has(Defect::UnnamedBeforePutBack) {
                    *self.s.word(d) |= hand;
                }
            }
            Unname => {
                if [d.c, d.c | EMPTY].contains(self.s.lease(d)) {
                    *self.s.lease(d) = NONE;
                }
                self.next(&[d.then(EndTell)]);
            }
            kind => {
                if kind == PutBack {
                    self.put_back(d, d.bits);
                }
                let now = *self.s.word(d);
                self.next(&[Do::at(Tell, d.b, d.w).with(now)]);
            }
        }
    }

    fn put_back(&mut self, d: Do, bits: u8) {
        let old = *self.s.word(d);
        *self.s.word(d) |= bits;
        self.s.late(d, old & bits);
    }
}
