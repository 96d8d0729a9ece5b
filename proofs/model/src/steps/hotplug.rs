//! CPUs come and go; what a group without CPUs has becomes the zone's.

use super::{Making, hold};
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    /// `d.h` is the group.
    pub(super) fn hotplug(&mut self, d: Do) {
        let g = d.h;
        match d.kind {
            SetOnline => self.s.cpu(d.c).online = d.n == 1,
            GroupGone => {
                if (0..).zip(self.s.cpus.iter()).all(|(c, cpu)| World::group(c) != g || !cpu.online)
                {
                    self.next(&[Do::held(Unlock, g)]);
                    self.next(&hold(g));
                    (0..self.s.blocks.len() as u8)
                        .for_each(|b| self.next(&[Do { b, ..d.then(LeaveToZone) }]));
                    self.next(&[d.then(GiveAll)]);
                }
            }
            GiveAll => {
                self.next(&[d.then(Give)]);
                self.next(&hold(g));
            }
            Give => self.give(d),
            LeaveToZone => {
                if self.left_over(d) {
                    self.next(&[Do::held(Lock, g), d.then(LeaveToZone2)]);
                }
            }
            _ => {
                self.next(&[Do::held(Unlock, g)]);
                if self.left_over(d) {
                    self.s.b(d.b).listed = false;
                    self.s.b(d.b).tag.1 = ZONE;
                    self.next_after(&[Do::block(Queue, d.b)]);
                }
            }
        }
    }

    /// A listed block goes to the zone, and then the next one.
    fn give(&mut self, d: Do) {
        let listed = [self.listed(d.h, State::Whole), self.listed(d.h, State::Split)].concat();
        let Some(&b) = listed.first() else { return self.next(&[Do::held(Unlock, d.h)]) };
        if d.n == 0 {
            // Groups before the zone: the order of locks everywhere.
            return self.next(&[Do::held(Lock, ZONE), d.n(1)]);
        }
        self.next(&[Do::held(Unlock, ZONE), Do::held(Unlock, d.h), d.then(GiveAll).n(0)]);
        self.s.b(b).tag.1 = ZONE;
        if self.s.b(b).tag.0 == State::Split {
            self.next(&[Do { h: ZONE, ..Do::block(File, b) }]);
        }
    }

    /// Whether a block with nothing to list is the group's still.
    fn left_over(&mut self, d: Do) -> bool {
        let tag = self.s.b(d.b).tag;
        tag.1 == d.h && matches!(tag.0, State::Split | State::Taken)
    }
}
