//! Steps that are made together with the one before or after them, since nobody else can tell:
//! fewer worlds to search.
//!
//! Whoever takes a lock, or enters its own CPU's state, could as well have done so just before its
//! next step: until then others only wait for it. Whoever gives one back could as well have done so
//! right after its last step. A step that looks only at what nobody else may change now can be made
//! at any time. (Reduction, after Lipton.) A CPU that is entered by another is different: a free
//! there goes past its state, which it would not have done a moment before.
//!
//! And where no preemption is left and a thread does not wait, nobody else may make a step: its
//! steps are made to where it waits, or its call ends. Each world on the way is checked, and not
//! kept.

use crate::Kind::*;
use crate::protocol::*;
use crate::search::PREEMPTIONS;
use crate::steps::{INSIDE, SECOND};
use crate::{Defect, Settings};

/// More steps than any call makes with nobody else at work.
const ENDLESS: usize = 500;

impl Settings {
    /// Adds the worlds after the next step of thread `t`, which is made if it does not wait, with
    /// what can be made together with it.
    pub(crate) fn ahead(&self, s: World, t: u8, out: &mut Vec<World>) {
        self.on(s, t, true, 0, out);
    }

    /// `joins` says that the next step is made with the one before, whatever it is.
    fn on(&self, mut s: World, t: u8, mut joins: bool, mut steps: usize, out: &mut Vec<World>) {
        let alone = s.left[PREEMPTIONS] == 0;
        let mut others = Vec::new();
        while let Some(&d) = s.todo[usize::from(t)].last() {
            if !(joins || alone || self.unseen(&s, t, d)) || s.beyond {
                break;
            }
            if alone && steps > 0 {
                s.broken = s.check().err().unwrap_or("");
            }
            if steps == ENDLESS {
                // It asks again and again for what somebody else is about to do, who may do it now;
                // or nobody is.
                let others = (0..s.todo.len() as u8).any(|other| other != t && !s.rests(other));
                s.must(others, "a call never ends");
                s.last = NONE;
                break;
            }
            if !s.broken.is_empty() || !s.step(t, self, &mut others) {
                break;
            }
            joins = d.kind == Lock || d.kind == Enter && d.c == t;
            steps += 1;
            std::mem::take(&mut others)
                .into_iter()
                .for_each(|other| self.on(other, t, joins, steps, out));
        }
        out.push(s);
    }

    /// Whether it makes no difference when thread `t` makes step `d`, as long as it comes next.
    fn unseen(&self, s: &World, t: u8, d: Do) -> bool {
        let cpu = s.cpus.get(usize::from(d.c));
        // What a CPU has in hand is looked at, and here changed, by who is inside its state only.
        let hand = |word: usize| cpu.map_or(NONE, |cpu| cpu.hand[usize::from(d.b)][word]);
        let no_slot = || d.n != INSIDE || hand(usize::from(d.w)) == NONE;
        let kept = cpu.is_some_and(|cpu| cpu.kept != NONE);
        match d.kind {
            Unlock | FreeEnd => true,
            Leave => d.c == t,
            // Nobody is asked yet.
            Source => matches!(d.n % SECOND, 0 | 4 | 6),
            Recall => usize::from(d.w) == s.cpus.len(),
            CollectAll => d.n >= 2 * (s.groups() + 1),
            FreeHand => {
                no_slot()
                    || hand(usize::from(d.w)) == 0
                        && s.blocks[usize::from(d.b)].leases[usize::from(d.w)] != d.c
            }
            FreeEmpty => no_slot(),
            Lease => hand(usize::from(d.w)) != NONE,
            Alloc => {
                self.defect != Some(Defect::OfflineWithoutLook)
                    && !self.hints
                    && s.slots(t).is_empty()
            }
            AllocBlock | GiveBack => !kept,
            Tell => d.bits == 0,
            GroupGone | GiveAll | EndIsolatedLeases => true,
            _ => false,
        }
    }
}
