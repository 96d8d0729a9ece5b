//! What is not used goes back: leases to their words, blocks to their zone.
//!
//! | when | what |
//! |---|---|
//! | a CPU's tick | leases not in use; all it has, if it has allocated nothing since the last one |
//! | a CPU goes offline, is drained or recalled | all it has |

use crate::block::tag::IN_HAND;
use crate::cpu::inside::Inside;
use crate::cpu::lease::SLOTS;
use crate::primitive::Plain;
use crate::{Freehold, Platform};

impl<P: Platform> Inside<'_, '_, P> {
    /// Puts everything in hand back: leases, whole blocks, the places where the next words would
    /// come from.
    pub(crate) fn give_back_all(&self) {
        self.end_leases(0);
        self.give_back_kept();
        self.cpu.hints.clear();
        self.cpu.gaps.clear();
        for z in 0..self.fh.zones.len() {
            for place in self.cursors(z).places() {
                let Some(index) = place.block() else { continue };
                place.clear();
                self.leave_block(index);
            }
        }
        self.fh.fold_counts(self.cpu, true);
        if self.cpu.holds.get() {
            self.fh.begin_look(self.cpu);
        }
        self.fh.holds_nothing(self.cpu);
    }

    /// Whole blocks in hand are anybody's.
    fn give_back_kept(&self) {
        for kept in &self.cpu.kept {
            let Some(index) = kept.block() else { continue };
            kept.clear();
            self.fh.release_whole(self.by(), index);
        }
    }

    /// The periodic work; see [`On::tick`](crate::On::tick).
    pub(crate) fn tick(&self) {
        let cpu = self.cpu;
        let allocs =
            cpu.counters.allocs.iter().flatten().fold(0, |sum: u64, n| sum.wrapping_add(n.get()));
        let idle = allocs == cpu.allocs_at_tick.get();
        cpu.allocs_at_tick.set(allocs);
        if idle {
            self.give_back_all();
        } else {
            // What single frames and runs come from now stays.
            let in_use =
                |keep: u32, slot: u32| if slot < SLOTS as u32 { keep | 1 << slot } else { keep };
            self.end_leases(cpu.leases.currents().fold(0, in_use));
            self.fh.fold_counts(cpu, true);
        }
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// A whole block that this thread has, or a CPU has kept, is anybody's from now on.
    pub(crate) fn release_whole(
        &self,
        by: crate::cpu::by::By<'_>,
        index: crate::block::layout::Index,
    ) {
        let head = self.map.head(index);
        let tag = head.tag.get();
        // In the bitmap a type means nothing.
        let movable = crate::Migratetype::Movable as usize;
        if tag.migratetype() != movable {
            self.note_type(index, tag.migratetype(), movable);
        }
        head.tag.set(tag.with_flag(IN_HAND, false).with_type(movable));
        self.insert_whole(by, index);
    }

    /// Gives everything free that CPUs have to the zones.
    ///
    /// Each CPU's state is entered in turn.
    pub fn drain_all(&self) {
        self.recall_where(None, |_| true);
        self.tell_pressure();
    }
}
