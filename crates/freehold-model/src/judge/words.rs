//! Words, leases and hands: frames move from one to the other, and only those that somebody has.

use freehold::conformance::{EMPTY, NO_KEY, Op, Step};

use super::shadow::{Carried, From, Place, TAKEN, WHOLE, WORDS};
use super::{Judge, Refusal, Task, Verdict, Who};
use crate::Kind::*;

/// Nobody takes a look at what is put where it need not be.
type Check<'a> = &'a dyn Fn(&Carried) -> Result<(), Refusal>;

impl Judge {
    /// A block in use that a thread frees as a whole, from now on word by word.
    pub(super) fn explode(&mut self, a: Who, b: u32, number: u64) {
        let actor = self.actor(a);
        let from = if actor.now().call.task == Task::Free { From::Freed } else { From::Hand };
        if let Some(at) = actor.now().blocks.iter().position(|&block| block == number) {
            actor.now().blocks.swap_remove(at);
            (0..WORDS).for_each(|w| actor.carry(b, w, !0, from));
        }
    }

    /// Takes frames of a word out of what a thread carries; those that it had.
    pub(super) fn take_carried(
        &mut self,
        a: Who,
        b: u32,
        w: usize,
        bits: u64,
        check: impl Fn(&Carried) -> Result<(), Refusal>,
    ) -> Result<u64, Refusal> {
        let number = self.b(b).number.unwrap_or_default();
        if self.actor(a).now().blocks.contains(&number) && self.b(b).tag().state != TAKEN {
            self.explode(a, b, number);
            // Its tag was looked at: it is no longer in use as a whole.
            let fresh = self.actor(a).now().carried.iter_mut();
            fresh.filter(|carried| carried.b == b).for_each(|carried| carried.tag = true);
        }
        let mut found = 0;
        let carried = &mut self.actor(a).now().carried;
        for one in carried.iter_mut().filter(|one| (one.b, one.w) == (b, w) && one.bits & bits != 0) {
            check(one)?;
            found |= one.bits & bits;
            one.bits &= !bits;
        }
        carried.retain(|one| one.bits != 0);
        Ok(found)
    }

    /// The same with frames that the thread frees wrongly: of two who free the same frames at the same moment the first one is
    /// right, whoever began first; frames that are free otherwise are owed from now on.
    fn take_wrong(&mut self, a: Who, b: u32, w: usize, bits: u64) -> u64 {
        let number = self.b(b).number.unwrap_or_default();
        let mut taken = 0;
        for wrong in self.actor(a).now().wrong.iter_mut().filter(|wrong| (wrong.0, wrong.1) == (b, w)) {
            taken |= wrong.2 & bits;
            wrong.2 &= !bits;
        }
        let mut rest = taken;
        for actor in self.actors.iter_mut() {
            for frame in actor.calls.iter_mut().filter(|frame| frame.call.task == Task::Free) {
                if let Some(at) = frame.blocks.iter().position(|&block| block == number && rest != 0) {
                    frame.blocks.swap_remove(at);
                    let carried =
                        |w| Carried { b, w, bits: !0, from: From::Freed, tag: true, lease: false, hand: None };
                    frame.carried.extend((0..WORDS).map(carried));
                }
                let mut theirs = 0;
                for one in frame.carried.iter_mut() {
                    if (one.b, one.w, one.from) == (b, w, From::Freed) {
                        theirs |= one.bits & rest;
                        one.bits &= !rest;
                    }
                }
                frame.carried.retain(|one| one.bits != 0);
                if theirs != 0 {
                    frame.wrong.push((b, w, theirs));
                    frame.wronged = true;
                    rest &= !theirs;
                }
            }
        }
        self.b(b).owed[w] |= rest;
        taken
    }

    /// Frames that a thread has and that are in their word, or hand, as well: one of the two goes, if that is how it is.
    fn twice(&mut self, b: u32, w: usize, bits: u64) -> Result<(), Refusal> {
        let owed = &mut self.b(b).owed[w];
        if bits & !*owed != 0 {
            return Err("a frame is in two places");
        }
        *owed &= !bits;
        Ok(())
    }

    /// A word as it was read.
    fn word_seen(&mut self, a: Who, b: u32, w: usize, value: u64) {
        let inside = self.cpus.iter().any(|cpu| cpu.inside == Some(a));
        let actor = self.actor(a);
        if value == 0 {
            actor.tells.retain(|tell| *tell != (b, Some(w)));
        }
        if let Some(view) = actor.view.as_mut().filter(|view| view.b == b) {
            view.words[w].get_or_insert(value);
        }
        if inside {
            if actor.seen.len() > 256 {
                actor.seen.drain(..128);
            }
            match actor.seen.last_mut() {
                Some(last) if (last.0, last.1) == (b, w) => last.2 = value,
                _ => actor.seen.push((b, w, value)),
            }
        }
    }

    pub(super) fn word(&mut self, a: Who, b: u32, w: usize, step: &Step) -> Verdict {
        if step.op == Op::Load {
            self.word_seen(a, b, w, step.new);
            return Ok(None);
        }
        if self.b(b).number.is_none() {
            return Err("a block that is not set up");
        }
        if step.op == Op::Swap && step.new == !0 {
            return self.fill(a, b, w, step.old);
        }
        let lost = step.old & !step.new;
        let come = step.new & !step.old;
        let mut kind = None;
        if lost != 0 {
            let lease = self.b(b).leases[w];
            let leased = lease != 0 && lease & u64::from(EMPTY) == 0;
            let ours = leased && self.cpus.get(lease as usize - 1).is_some_and(|cpu| cpu.inside == Some(a));
            self.actor(a).carry(b, w, lost, if ours { From::Lease } else { From::Past });
            kind = Some(if ours { TakeWord } else { Hint });
        }
        if come != 0 {
            kind = Some(self.frames_come(a, b, w, come)?);
        }
        let there = if step.op == Op::Or { step.with & step.old } else { 0 };
        if there != 0 {
            self.frames_are_there(a, b, w, there)?;
        }
        if step.op != Op::Exchange || lost != 0 {
            self.word_seen(a, b, w, if step.op == Op::Swap { step.old } else { step.new });
        }
        Ok(kind)
    }

    /// Frames appear in their word.
    fn frames_come(&mut self, a: Who, b: u32, w: usize, come: u64) -> Result<crate::Kind, Refusal> {
        self.actor(a).owes(b, Some(w));
        let looked: Check<'_> = &|one| match one.from {
            From::Freed if !one.tag => Err("frames are freed into a word without a look at the tag"),
            From::Freed if !one.lease => Err("frames are freed into a word without a look into the leaseholder's hand"),
            _ => Ok(()),
        };
        let freed = self.actor(a).now().carried.iter().any(|one| (one.b, one.w, one.from) == (b, w, From::Freed));
        let mut rest = come & !self.take_carried(a, b, w, come, looked)?;
        if rest != 0 {
            if let Some(slot) = self.slot_inside(a, b, w) {
                let back = slot.hand() & rest;
                slot.stale |= back;
                rest &= !back;
            }
        }
        if rest != 0 {
            rest &= !self.take_wrong(a, b, w, rest);
        }
        if rest != 0 && self.actor(a).now().call.task == Task::Add {
            let number = self.b(b).number.unwrap_or_default();
            let call = self.actor(a).now().call.clone();
            let added = super::shadow::words_of(&call.frames).filter(|added| (added.0, added.1) == (number, w));
            let added = added.fold(0, |all, added| all | added.2);
            let present = &mut self.spot_of(b)?.present[w];
            let new = rest & added & !*present;
            *present |= new;
            rest &= !new;
        }
        match rest {
            0 => Ok(if freed { FreePut } else { PutBack }),
            _ => Err("frames are put that nobody there has"),
        }
    }

    /// Frames were put that were in the word already.
    fn frames_are_there(&mut self, a: Who, b: u32, w: usize, there: u64) -> Result<(), Refusal> {
        let mut rest = there;
        if let Some(slot) = self.slot_inside(a, b, w) {
            let back = slot.hand() & rest;
            slot.stale |= back;
            rest &= !back;
            self.twice(b, w, back)?;
        }
        // A free is told so, and its end judges that.
        let freed = self.actor(a).now().carried.iter().filter(|one| one.from == From::Freed);
        let freed = freed.filter(|one| (one.b, one.w) == (b, w)).fold(0, |all, one| all | one.bits);
        let gone = self.take_carried(a, b, w, rest & !freed, |_| Ok(()))?;
        self.twice(b, w, gone)
    }

    /// A word of a whole block that is being split is full.
    fn fill(&mut self, a: Who, b: u32, w: usize, strays: u64) -> Verdict {
        let place = self.spot_of(b)?.place;
        let holds = self.holds_block(a, b);
        let mine = place == Place::Carried(a) || place == Place::Loose && holds;
        if self.b(b).tag().state != WHOLE || !mine {
            return Err("frames are put that nobody there has");
        }
        self.twice(b, w, strays)?;
        self.b(b).filled |= 1 << w;
        Ok(Some(Fill))
    }

    pub(super) fn lease(&mut self, a: Who, b: u32, w: usize, step: &Step) -> Verdict {
        let empty = u64::from(EMPTY);
        let leased = |lease: u64| lease != 0 && lease & empty == 0;
        if step.op == Op::Load {
            self.lease_seen(a, b, w, step.new);
            return Ok(None);
        }
        let inside = |this: &Self, lease: u64| {
            this.cpus.get((lease & !empty).wrapping_sub(1) as usize).filter(|cpu| cpu.inside == Some(a)).is_some()
        };
        let hand = self.slot_inside(a, b, w).map_or(0, |slot| slot.hand());
        let (old, new) = (step.old, step.new);
        match (old, new) {
            // Taken by a CPU: its own that is empty, anybody's that is empty, nobody's.
            _ if leased(new) && !leased(old) => {
                if !inside(self, new) || step.op != Op::Exchange {
                    return Err("a word is leased by somebody who is not inside the CPU's state");
                }
                if self.cpus[new as usize - 1].online == 0 {
                    return Err("an offline CPU leases a word");
                }
                Ok(Some(if old == new | empty { Revive } else { LeaseCas }))
            }
            _ if leased(new) => Err("a word is leased that is leased"),
            _ if leased(old) && inside(self, old) => {
                if hand != 0 {
                    return Err("a lease ends before its frames are back");
                }
                if new != 0 && new != old | empty {
                    return Err("a lease is marked with another CPU's name");
                }
                self.actor(a).owes(b, Some(w));
                Ok(Some(if new == 0 { Unname } else { SetEmpty }))
            }
            _ if leased(old) => Err("a lease is ended by somebody else"),
            (old, 0) if old != 0 && inside(self, old) && self.slot_inside(a, b, w).is_none() => Ok(Some(Unname)),
            (old, 0) if old != 0 && self.holds_block(a, b) => Ok(Some(RetireLease)),
            // Its hand was shown as empty, and is closed.
            (old, 0) if old != 0 && inside(self, old) => Ok(Some(Unname)),
            _ => Err("a lease does not become that"),
        }
    }

    fn lease_seen(&mut self, a: Who, b: u32, w: usize, lease: u64) {
        let leased = lease != 0 && lease & u64::from(EMPTY) == 0;
        let actor = self.actor(a);
        if let Some(view) = actor.view.as_mut().filter(|view| view.b == b) {
            view.leases |= 1 << w;
            if leased {
                view.words[w].get_or_insert(0);
            }
        }
        let open = |one: &Carried| one.from == From::Past && one.tag && one.lease;
        for one in actor.now().carried.iter_mut().filter(|one| (one.b, one.w) == (b, w) && !open(one)) {
            one.lease = !leased;
            one.hand = leased.then(|| lease as u16 - 1);
        }
    }

    pub(super) fn key(&mut self, a: Who, c: u16, slot: usize, step: &Step) -> Verdict {
        if step.op == Op::Load {
            let other = |one: &Carried, this: &Self| this.blocks[one.b as usize].number.map(|n| n * 8 + one.w as u64);
            self.hand_seen(a, c, slot, |one, this| other(one, this) != Some(step.new));
            return Ok(None);
        }
        self.may_change(a, c, step)?;
        let cpu = &self.cpus[usize::from(c)];
        let mask = cpu.slots[slot].mask;
        if mask != 0 {
            return Err("a slot changes that has frames");
        }
        if step.new == NO_KEY {
            return Ok(Some(Close));
        }
        if step.old != NO_KEY {
            return Err("a slot is opened twice");
        }
        if cpu.online == 0 {
            return Err("an offline CPU has a slot");
        }
        let (b, w) = cpu.slots[slot].place();
        self.there(b)?;
        if self.b(b).number.map(|n| n * 8 + w as u64) != Some(step.new) || step.new % 16 != slot as u64 {
            return Err("a slot names another word");
        }
        if self.b(b).leases[w] != u64::from(c) + 1 {
            return Err("a slot is opened for a word that its CPU does not lease");
        }
        let taken = self.actor(a).now().carried.iter().find(|one| (one.b, one.w, one.from) == (b, w, From::Lease));
        if taken.is_some_and(|one| !one.tag) {
            return Err("frames come into a hand without a look at the tag");
        }
        Ok(Some(Look))
    }

    /// A look at another CPU's slot, on whose account `clear` says that the frames are not there.
    fn hand_seen(&mut self, a: Who, c: u16, slot: usize, clear: impl Fn(&Carried, &Self) -> bool) {
        let waiting = |one: &Carried, this: &Self| {
            let key = this.blocks[one.b as usize].number.map(|n| n * 8 + one.w as u64);
            one.hand == Some(c) && key.is_some_and(|key| (key % 16) as usize == slot) && clear(one, this)
        };
        let carried = std::mem::take(&mut self.actor(a).now().carried);
        let seen = |one: Carried| Carried { lease: one.lease || waiting(&one, self), ..one };
        let carried: Vec<Carried> = carried.into_iter().map(seen).collect();
        self.actor(a).now().carried = carried;
    }

    pub(super) fn mask(&mut self, a: Who, c: u16, s: usize, step: &Step) -> Verdict {
        if step.op == Op::Load {
            if self.actor(a).now().carried.iter().any(|one| one.hand == Some(c)) {
                self.hand_seen(a, c, s, |one, _| one.bits & step.new == 0);
            }
            return Ok(None);
        }
        self.may_change(a, c, step)?;
        let (gone, come) = (step.old & !step.new, step.new & !step.old);
        if gone | come == 0 {
            return Ok(None);
        }
        let slot = &mut self.cpus[usize::from(c)].slots[s];
        if slot.key == NO_KEY {
            return Err("frames in a slot that is not in use");
        }
        let (b, w) = slot.place();
        let stale = gone & slot.stale;
        slot.stale &= !gone;
        let real = step.new & !slot.stale;
        self.there(b)?;
        if real != 0 && self.b(b).leases[w] != u64::from(c) + 1 {
            return Err("a CPU has frames in hand without the lease");
        }
        let out = gone & !stale;
        let twice = out & self.b(b).words[w];
        self.twice(b, w, twice)?;
        let out = out & !twice;
        let saw = self.actor(a).saw(b, w);
        if out != 0 {
            match saw {
                None => return Err("frames leave a hand without a look at their word"),
                Some(word) if word & out != 0 => return Err("frames leave a hand that were seen in their word"),
                _ => self.actor(a).carry(b, w, out, From::Hand),
            }
        }
        if come != 0 {
            let looked: Check<'_> = &|one| match one.from {
                From::Freed if saw.is_none_or(|word| word & come & one.bits != 0) => {
                    Err("frames are freed into a hand without a look at their word")
                }
                _ => Ok(()),
            };
            let rest = come & !self.take_carried(a, b, w, come, looked)?;
            if rest & !self.take_wrong(a, b, w, rest) != 0 {
                return Err("frames come into a hand from nowhere");
            }
        }
        Ok(Some(if out != 0 {
            Alloc
        } else if come != 0 {
            FreeHand
        } else {
            Close
        }))
    }
}
