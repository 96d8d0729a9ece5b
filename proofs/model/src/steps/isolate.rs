//! Nothing more is allocated from a block; it is emptied, and is no memory, or it is restored.

use super::Making;
use crate::Defect;
use crate::Kind::*;
use crate::protocol::*;

impl Making<'_> {
    /// `false` where it has to wait.
    pub(super) fn isolate(&mut self, d: Do) -> bool {
        let Block { tag, listed, leases, class, .. } = *self.s.b(d.b);
        let waits = self.has(Defect::IsolationWaitsForALook);
        let reach = |c: u8| [Do::cpu(Enter, c), Do::cpu(GiveBack, c), Do::cpu(Leave, c), d];
        match d.kind {
            Isolate if tag.1 == HAND => {
                match (0..).zip(self.s.cpus.iter()).find(|(_, cpu)| cpu.kept == d.b) {
                    Some((c, _)) => self.next(&reach(c)),
                    None => return false,
                }
            }
            Isolate => self.next(&[Do::held(Lock, tag.1), Do { h: tag.1, ..d.then(Isolate2) }]),
            Isolate2 if tag.1 != d.h => self.next(&[Do::held(Unlock, d.h), d.then(Isolate)]),
            // An announced block may still have to be looked at by its holder before: nobody waits for
            // that look.
            Isolate2 if tag.0 == State::Whole && (listed || class == QUEUED && !waits) => {
                self.s.b(d.b).listed = false;
                self.next(&[d]);
                self.begin_split(d.b, d.h);
            }
            Isolate2 if tag.0 == State::Whole && waits => {
                self.next(&[Do::held(Collect, d.h), Do::held(Unlock, d.h), d.then(Isolate)]);
            }
            Isolate2 if tag.0 == State::Whole => {
                self.next(&[Do::held(Unlock, d.h), d.then(Isolate)])
            }
            Isolate2 => {
                if tag.0 == State::Taken {
                    self.strays(d.b, 0);
                }
                self.s.b(d.b).listed = false;
                self.s.b(d.b).tag = (State::Split, ZONE, true);
                self.next(&[Do::held(Unlock, d.h), d.then(EndIsolatedLeases)]);
            }
            EndIsolatedLeases => {
                self.next(&[Do { w: 0, ..Do::block(Recall, d.b) }, d.then(AwaitLeases)])
            }
            _ => match leases.iter().find(|&&lease| leased(lease)) {
                Some(&c) => self.next(&reach(c)),
                // Whoever takes a frame past the leases is inside its door for a few more steps.
                None if self.has(Defect::NoPassThroughTheDoors) => self.next(&[d.then(Empty)]),
                None => self.next(&[Do { w: 0, h: 0, ..just(Recall) }, d.then(Empty)]),
            },
        }
        true
    }

    /// The block is isolated, and nobody leases anything of it.
    pub(super) fn empty(&mut self, d: Do) {
        let block = self.s.b(d.b);
        match d.kind {
            Empty => {
                let zones = Do::held(Lock, ZONE);
                let done = [Do::held(Unlock, ZONE), Do::held(Unlock, HOTPLUG)];
                if block.words == [FULL; WORDS] {
                    self.or(&[
                        zones,
                        d.then(Remove),
                        done[0],
                        zones,
                        d.then(Add),
                        done[0],
                        done[1],
                    ]);
                }
                self.next(&[zones, Do { h: ZONE, ..d.then(Restore) }, done[0], done[1]]);
            }
            Remove => {
                block.tag = (State::Absent, ZONE, false);
                let unused = block.used == [0; WORDS];
                self.s.must(unused, "memory goes that is in use");
                d.words().rev().for_each(|at| self.next(&[at.then(RemoveWord)]));
            }
            RemoveWord => {
                *self.s.word(d) = 0;
                self.s.b(d.b).owed[usize::from(d.w)] = 0;
            }
            Add => {
                block.tag = (State::Whole, ZONE, false);
                block.listed = true;
            }
            _ => {
                block.tag.2 = false;
                self.next(&[d.then(File)]);
            }
        }
    }
}
