//! What each step does: the programs of all calls, as the code in `crates/freehold` makes them.
//!
//! | room | what |
//! |---|---|
//! | `alloc` | a frame or a block is asked for |
//! | `refill` | the next block to lease words of is chosen |
//! | `lease` | words go to a CPU and come back |
//! | `recall` | everything in hand goes back before a request fails |
//! | `free` | frames go into the hand or into their word |
//! | `announce` | a holder is told, and takes what it was told of |
//! | `file` | a holder lists a block, makes it whole, splits it |
//! | `hotplug` | CPUs and their groups come and go |
//! | `isolate` | memory is emptied, goes, and comes back |

mod alloc;
mod announce;
mod file;
mod free;
mod hotplug;
mod isolate;
mod lease;
mod recall;
mod refill;

pub(crate) use free::INSIDE;

use crate::Kind::*;
use crate::protocol::*;
use crate::{Defect, Settings};

/// Rounds of an allocation: the first one, and the one after all leases were recalled.
pub(crate) const SECOND: u8 = 10;

/// A step in the making: the world after it, and the thread that makes it.
struct Making<'a> {
    s: &'a mut World,
    t: u8,
    settings: &'a Settings,
    others: &'a mut Vec<World>,
}

impl World {
    /// Makes the next step of thread `t`; `false` where it waits. What else may come of it is added
    /// to `others`.
    pub fn step(&mut self, t: u8, settings: &Settings, others: &mut Vec<World>) -> bool {
        let Some(d) = self.of(t).pop() else { return false };
        let done = Making { s: self, t, settings, others }.run(d);
        if !done {
            self.of(t).push(d);
        }
        done
    }

    /// Whether thread `t` has something to do and has to wait.
    pub fn waits(&self, t: u8, settings: &Settings) -> bool {
        let next = self.todo[usize::from(t)].last();
        // Nothing else waits.
        let may = next.is_some_and(|d| matches!(d.kind, Enter | Lock | Isolate));
        may && !{ *self }.step(t, settings, &mut Vec::new())
    }

    /// This world, where thread `t` has begun a call.
    pub fn begin(&self, t: u8, steps: &[Do]) -> World {
        let mut s = *self;
        s.of(t).extend(steps.iter().rev().copied());
        s
    }
}

/// The lock of a holder is taken, and what was announced to it looked at.
fn hold(h: u8) -> [Do; 2] {
    [Do::held(Lock, h), Do::held(Collect, h)]
}

/// Enters where nobody is; `false` where somebody is.
fn enter(place: &mut u8, t: u8) -> bool {
    let free = *place == NONE;
    *place = if free { t } else { *place };
    free
}

impl Making<'_> {
    fn has(&self, defect: Defect) -> bool {
        self.settings.defect == Some(defect)
    }
    /// These come next, the first one first.
    fn next(&mut self, steps: &[Do]) {
        self.s.of(self.t).extend(steps.iter().rev().copied());
    }
    /// These come after the one step that comes next.
    fn next_after(&mut self, steps: &[Do]) {
        let first = self.s.of(self.t).pop();
        self.next(steps);
        self.next(first.as_slice());
    }
    /// It may also go on like this.
    fn or(&mut self, steps: &[Do]) {
        let other = self.s.begin(self.t, steps);
        self.others.push(other);
    }
    /// It goes on with any of these, of which there is at least one.
    fn one_of(&mut self, choices: impl IntoIterator<Item = u8>, with: impl Fn(&mut Self, u8)) {
        let before = *self.s;
        for choice in choices {
            *self.s = before;
            with(self, choice);
            self.others.push(*self.s);
        }
        *self.s = self.others.pop().unwrap_or(before);
    }
    /// Blocks on a list of that holder.
    fn listed(&self, h: u8, state: State) -> Vec<u8> {
        let fits = |b: &Block| b.listed && b.tag == (state, h, false);
        (0..).zip(self.s.blocks.iter()).filter(|(_, b)| fits(b)).map(|(b, _)| b).collect()
    }
    /// The words of a block but for those that somebody leases.
    fn open_words(&mut self, b: u8) -> [u8; WORDS] {
        let block = *self.s.b(b);
        std::array::from_fn(|w| if leased(block.leases[w]) { 0 } else { block.words[w] })
    }
    /// Replaces what is in a block's words: frees that went wrong unseen.
    fn strays(&mut self, b: u8, by: u8) {
        for at in Do::block(Fill, b).words() {
            let strays = std::mem::replace(self.s.word(at), by);
            self.s.late(at, strays);
        }
    }

    /// Makes a step; `false` where it has to wait.
    fn run(&mut self, d: Do) -> bool {
        match d.kind {
            Enter => return enter(&mut self.s.cpu(d.c).door, self.t),
            Leave => self.s.cpu(d.c).door = NONE,
            Lock => return enter(&mut self.s.locks[usize::from(d.h)], self.t),
            Unlock => self.s.locks[usize::from(d.h)] = NONE,
            Alloc | Hint | HintLook | AllocBlock | BlockFrom => self.alloc(d),
            Source | Pick | TakeOf | TakeWhole => self.refill(d),
            Lease | LeaseCas | TakeWord | Look | LeaseBack => self.lease(d),
            Replenish | SetEmpty | Revive | Revive2 => self.replenish(d),
            EndLease | Close | Unname | EndTell | PutBack => self.end_lease(d),
            Recall | GiveBack | CollectAll => self.recall(d),
            Tell | Queue | Route | Push | Unqueue | Again => self.announce(d),
            Collect | Accept | Relist | Accept2 => self.collect(d),
            File | FileWord | FileEnd | FileIfOurs => self.file(d),
            RetireLease | RetireTake | RetireEnd => self.retire(d),
            Fill | SetSplit | List => self.split(d),
            FreeEnter | FreeTag | FreeSplit | FreeBlock | FreeEnd => self.free(d),
            FreeHand | FreeEmpty | FreeOpen | FreeChoose => self.free_into_hand(d),
            FreeLook | FreePut => self.free_into_word(d),
            SetOnline | GroupGone | GiveAll | Give | LeaveToZone | LeaveToZone2 => self.hotplug(d),
            Isolate | Isolate2 | EndIsolatedLeases | AwaitLeases => return self.isolate(d),
            Empty | Remove | RemoveWord | Add | Restore => self.empty(d),
        }
        true
    }
}
