//! What is not used goes back: leases to their words, blocks to their zone.
//!
//! | when | what |
//! |---|---|
//! | a CPU's tick | leases not in use; all it has, if it has allocated nothing since the last one |
//! | its zone comes near the min mark | leases and whole blocks, of all CPUs |
//! | a CPU goes offline, is drained or recalled | all it has |

use crate::block::Block;
use crate::block::tag::IN_HAND;
use crate::cpu::by::{By, Inside};
use crate::cpu::lease::SLOTS;
use crate::cpu::recall::Recall;
use crate::primitive::Relaxed;
use crate::{Freehold, Platform};

impl<P: Platform> Inside<'_, '_, P> {
    /// Puts everything in hand back: leases, whole blocks, where the next words would come from.
    pub(crate) fn give_back_all(&self) {
        self.empty_hand();
        self.cpu.recent.clear();
        self.cpu.runs_from.clear();
        for z in 0..self.fh.zones.len() {
            for place in self.cursors(z).places() {
                let Some(block) = place.block(&self.fh.map.blocks) else { continue };
                place.clear();
                block.leave(self.by());
            }
        }
        self.tell_all();
        self.holds_nothing();
    }

    /// Puts leases and whole blocks back. Where the next frames come from stays.
    pub(crate) fn empty_hand(&self) {
        self.end_leases(0);
        self.give_up_share();
        for kept in &self.cpu.kept {
            let Some(block) = kept.block(&self.fh.map.blocks) else { continue };
            kept.clear();
            block.release_whole(self.by());
        }
        self.cpu.keeps.set(false);
    }

    /// The periodic work; see [`On::tick`](crate::On::tick).
    pub(crate) fn tick(&self) {
        let allocs =
            self.counters.allocs.iter().flatten().fold(0, |sum: u64, n| sum.wrapping_add(n.get()));
        let idle = allocs == self.allocs_at_tick.get();
        self.allocs_at_tick.set(allocs);
        if idle {
            self.give_back_all();
        } else {
            // What single frames and runs come from now stays.
            let in_use =
                |keep: u32, slot: u32| if slot < SLOTS as u32 { keep | 1 << slot } else { keep };
            self.end_leases(self.leases.currents().fold(0, in_use));
            self.give_up_unused_share();
            self.tell_all();
        }
    }
}

impl<'m> Block<'m> {
    /// A whole block that this thread has, or a CPU has kept, is anybody's from now on.
    pub(crate) fn release_whole(self, by: By<'_, 'm, impl Platform>) {
        let head = self.head;
        let tag = head.tag.get();
        // In the bitmap a type means nothing.
        let movable = crate::Migratetype::Movable as usize;
        head.tag.set(tag.with_flag(IN_HAND, false).with_type(movable));
        self.free_whole(by);
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Gives everything free that CPUs have to the zones.
    ///
    /// Each CPU's state is entered in turn.
    pub fn drain_all(&self) {
        Recall::of_all(self).of(|_| true);
        self.outside().tell_pressure();
    }
}
