//! A holder is told of a block, and takes it out of its inbox.

use super::Making;
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    pub(super) fn announce(&mut self, d: Do) {
        let tag = self.s.b(d.b).tag;
        match d.kind {
            // Whether a run is complete that is larger than the lists know of.
            Tell => {
                let class = self.s.b(d.b).class;
                if d.bits != 0 && class != QUEUED && (class == 0 || d.bits == FULL) {
                    self.next(&[Do::block(Queue, d.b)]);
                }
            }
            Queue => {
                if std::mem::replace(&mut self.s.b(d.b).class, QUEUED) != QUEUED {
                    self.next(&[Do::block(Route, d.b)]);
                }
            }
            Route if tag.1 != HAND && matches!(tag.0, State::Split | State::Whole) => {
                self.next(&[Do { h: tag.1, ..d.then(Push) }]);
            }
            Route => self.next(&[Do { h: tag.1, n: tag.0 as u8, ..d.then(Unqueue) }]),
            Push => {
                let in_one = self.s.b(d.b).inbox != NONE;
                self.s.must(!in_one, "a block is in two inboxes");
                self.s.b(d.b).inbox = d.h;
            }
            Unqueue => {
                self.s.b(d.b).class = 0;
                self.next(&[d.then(Again)]);
            }
            _ => {
                if !self.has(Defect::AnnounceLooksOnce) && (tag.0 as u8, tag.1) != (d.n, d.h) {
                    self.next(&[Do::block(Queue, d.b)]);
                }
            }
        }
    }

    /// Under the lock of holder `d.h`.
    pub(super) fn collect(&mut self, d: Do) {
        if d.kind == Collect {
            let announced = self.s.blocks.iter().position(|block| block.inbox == d.h);
            if let Some(b) = announced.map(|b| b as u8) {
                self.s.b(b).inbox = NONE;
                self.next(&[Do { b, ..d.then(Accept) }, d]);
            }
            return;
        }
        let Block { tag, listed, .. } = *self.s.b(d.b);
        match (d.kind, tag.0) {
            (Accept, State::Split | State::Whole | State::Taken)
                if tag.1 != HAND && tag.1 != d.h =>
            {
                self.next(&[Do { h: tag.1, ..d.then(Push) }]);
            }
            (Accept, _) => self.next(&[d.then(Relist)]),
            // From here on it may be announced again.
            (Relist, _) => {
                self.s.b(d.b).class = 0;
                self.next(&[d.then(Accept2)]);
            }
            (_, State::Split) if tag.1 == d.h => self.next(&[d.then(File)]),
            (_, State::Whole) if tag.1 == d.h && !listed => self.s.b(d.b).listed = true,
            (_, State::Split | State::Whole) if tag.1 != HAND && tag.1 != d.h => {
                self.next(&[d.then(Queue)])
            }
            _ => {}
        }
    }
}
