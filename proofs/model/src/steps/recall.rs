//! Everything in hand goes back: before a request fails, before memory goes, before a CPU does.

use super::{Making, SECOND, hold};
use crate::Kind::{self, *};
use crate::protocol::*;

impl Making<'_> {
    pub(super) fn recall(&mut self, d: Do) {
        match d.kind {
            Recall if usize::from(d.w) == self.s.cpus.len() => {
                for c in (0..d.w).rev().filter(|c| d.n >> c & 1 == 1) {
                    self.next(&[Do::cpu(GiveBack, c), Do::cpu(Leave, c)]);
                }
            }
            Recall => self.knock(d),
            GiveBack => {
                let kept = std::mem::replace(&mut self.s.cpu(d.c).kept, NONE);
                if kept != NONE {
                    self.s.b(kept).tag.1 = World::group(d.c);
                    self.next(&[Do::block(Queue, kept)]);
                }
                let slots = self.s.slots(d.c);
                slots.iter().for_each(|&end| self.next(&[end]));
            }
            // Every holder looks at what was announced to it, twice: `d.n` counts.
            _ => {
                let holders = self.s.groups() + 1;
                let h = d.n % holders;
                if d.n < 2 * holders {
                    self.next(&[d.n(d.n + 1)]);
                    if self.s.blocks.iter().any(|block| block.inbox == h) {
                        self.next(&[hold(h)[0], hold(h)[1], Do::held(Unlock, h)]);
                    }
                }
            }
        }
    }

    /// At CPU after CPU that has something of block `d.b`, or anything; `d.w` is the next one,
    /// `d.n` those that are entered, `d.c` one to leave out. With `d.h` at every CPU.
    fn knock(&mut self, d: Do) {
        let (c, slots) = (d.w, self.s.slots(d.w));
        let has = match d.b {
            NONE => !slots.is_empty() || self.s.cpu(c).kept != NONE,
            b => slots.iter().any(|slot| slot.b == b),
        };
        let on = Do { w: c + 1, ..d };
        if d.h != NONE || has && c != d.c {
            self.next(&[Do::cpu(Enter, c), on.n(d.n | 1 << c)]);
        } else {
            self.next(&[on]);
        }
    }

    /// Everything in hand goes back, here and elsewhere, and every holder looks at what was
    /// announced to it.
    pub(super) fn recalled(c: u8, then: Kind) -> [Do; 6] {
        let others = Do { c, w: 0, ..just(Recall) };
        let again = Do::cpu(then, c).n(SECOND);
        [
            Do::cpu(GiveBack, c),
            Do::cpu(Leave, c),
            others,
            just(CollectAll),
            Do::cpu(Enter, c),
            again,
        ]
    }
}
