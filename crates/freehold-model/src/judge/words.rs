//! Words, leases and hands: frames move from one to the other, and only those that somebody has.

use freehold::conformance::{EMPTY, NO_KEY, Op, Step};

use super::shadow::{Carried, From, Place, TAKEN, WHOLE, WORDS};
use super::{Judge, Refusal, Task, Verdict, Who};
use crate::Kind::*;

/// What has to have been looked at.
type Check<'a> = &'a dyn Fn(&Carried) -> Result<(), Refusal>;

impl Judge {
    /// A block in use that a thread has as a whole, from now on word by word.
    pub(super) fn explode(&mut self, a: Who, b: u32, number: u64) {
        let actor = self.actor(a);
        if let Some(at) = actor.now().blocks.iter().position(|&block| block == number) {
            actor.now().blocks.swap_remove(at);
            (0..WORDS).for_each(|w| actor.carry(b, w, !0, From::Hand));
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
        }
        let mut found = 0;
        let carried = &mut self.actor(a).now().carried;
        for one in carried.iter_mut().filter(|one| (one.b, one.w) == (b, w) && one.bits & bits != 0)
        {
            check(one)?;
            found |= one.bits & bits;
            one.bits &= !bits;
        }
        carried.retain(|one| one.bits != 0);
        Ok(found)
    }

    /// A step frees frames of a word: those that its call was given to free. Of several calls that
    /// were given the same frame the first to make this step frees it, and each of the others may
    /// be refused; if it is not, the frame is in two places.
    pub(super) fn free(
        &mut self,
        a: Who,
        b: u32,
        w: usize,
        bits: u64,
        check: Check<'_>,
    ) -> Result<u64, Refusal> {
        let (mut freed, frees) = (0, &mut self.actor(a).now().frees);
        for one in frees.iter_mut().filter(|one| (one.b, one.w) == (b, w)) {
            let part = one.bits & bits & !freed;
            if part != 0 {
                check(one)?;
                freed |= part;
                one.bits &= !part;
            }
        }
        frees.retain(|one| one.bits != 0);
        let block = self.b(b);
        let right = freed & block.used[w];
        block.used[w] &= !right;
        block.owed[w] |= freed & !right;
        for frame in self.actors.iter_mut().flat_map(|actor| &mut actor.calls) {
            frame.wronged |=
                frame.frees.iter().any(|one| (one.b, one.w) == (b, w) && one.bits & right != 0);
        }
        Ok(freed)
    }

    /// Frames that a thread has and that are in their word, or hand, as well: one of the two goes,
    /// if that is how it is.
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
            let ours = leased
                && self.cpus.get(lease as usize - 1).is_some_and(|cpu| cpu.inside == Some(a));
            self.actor(a).carry(b, w, lost, if ours { From::Lease } else { From::Past });
            kind = Some(if ours { TakeWord } else { Hint });
        }
        if come != 0 {
            kind = Some(self.frames_come(a, b, w, come)?);
        }
        let there = if step.op == Op::Or { step.with & step.old } else { 0 };
        if there != 0 {
            self.frames_are_there(a, b, w, there)?;
            // Whoever frees the first word of a chunk frees all of it, and the host hears of what
            // others have freed meanwhile.
            if step.with == !0 {
                let frees = self.actor(a).now().frees.iter_mut();
                frees.filter(|one| (one.b, one.w) == (b, w)).for_each(|one| one.bits &= !there);
                self.actor(a).now().frees.retain(|one| one.bits != 0);
            }
        }
        if step.op != Op::Exchange || lost != 0 {
            self.word_seen(a, b, w, if step.op == Op::Swap { step.old } else { step.new });
        }
        Ok(kind)
    }

    /// Frames appear in their word.
    fn frames_come(&mut self, a: Who, b: u32, w: usize, come: u64) -> Result<crate::Kind, Refusal> {
        self.actor(a).owes(b, Some(w));
        let looked: Check<'_> = &|one| match (one.tag, one.lease) {
            (true, true) => Ok(()),
            (false, _) => Err("frames are freed into a word without a look at the tag"),
            (true, false) => {
                Err("frames are freed into a word without a look into the leaseholder's hand")
            }
        };
        let mut rest = come & !self.take_carried(a, b, w, come, |_| Ok(()))?;
        if rest != 0 {
            if let Some(slot) = self.slot_inside(a, b, w) {
                let back = slot.hand() & rest;
                slot.stale |= back;
                rest &= !back;
            }
        }
        let freed = self.free(a, b, w, rest, looked)?;
        rest &= !freed;
        if rest != 0 && self.actor(a).now().call.task == Task::Add {
            let number = self.b(b).number.unwrap_or_default();
            let call = self.actor(a).now().call.clone();
            let added = super::shadow::words_of(&call.frames)
                .filter(|added| (added.0, added.1) == (number, w));
            let added = added.fold(0, |all, added| all | added.2);
            let present = &mut self.spot_of(b)?.present[w];
            let new = rest & added & !*present;
            *present |= new;
            rest &= !new;
        }
        match rest {
            0 => Ok(if freed != 0 { FreePut } else { PutBack }),
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
        let gone = self.take_carried(a, b, w, rest, |_| Ok(()))?;
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
        let inside = |this: &Self, lease: u64| this.named(a, lease).is_some();
        let hand = self.slot_inside(a, b, w).map_or(0, |slot| slot.hand());
        self.actor(a).named.retain(|&named| named != (b, w));
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
            (old, 0) if old != 0 && inside(self, old) && self.slot_inside(a, b, w).is_none() => {
                Ok(Some(Unname))
            }
            (old, 0) if old != 0 && self.holds_block(a, b) => {
                match self
                    .actor(a)
                    .view
                    .as_mut()
                    .filter(|view| view.b == b && view.words == [Some(!0); WORDS])
                {
                    Some(view) => view.unnamed |= 1 << w,
                    None => {
                        return Err(
                            "a lister ends a lease of a block that it has not seen to be free",
                        );
                    }
                }
                Ok(Some(RetireLease))
            }
            _ => Err("a lease does not become that"),
        }
    }

    fn lease_seen(&mut self, a: Who, b: u32, w: usize, lease: u64) {
        let leased = lease != 0 && lease & u64::from(EMPTY) == 0;
        let ours = self.named(a, lease).is_some() && self.slot_inside(a, b, w).is_none();
        let actor = self.actor(a);
        actor.named.retain(|&named| named != (b, w));
        if ours {
            actor.named.push((b, w));
        }
        if let Some(view) = actor.view.as_mut().filter(|view| view.b == b) {
            view.leases |= 1 << w;
            view.unnamed = view.unnamed & !(1 << w) | u8::from(lease == 0) << w;
            if leased {
                view.words[w].get_or_insert(0);
            }
        }
        for one in actor.now().looking().filter(|one| (one.b, one.w) == (b, w) && !one.is_open()) {
            one.lease = !leased;
            one.hand = leased.then(|| lease as u16 - 1);
        }
    }

    pub(super) fn key(&mut self, a: Who, c: u16, slot: usize, step: &Step) -> Verdict {
        if step.op == Op::Load {
            let other = |one: &Carried, this: &Self| {
                this.blocks[one.b as usize].number.map(|n| n * 8 + one.w as u64)
            };
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
        if self.b(b).number.map(|n| n * 8 + w as u64) != Some(step.new)
            || step.new % 16 != slot as u64
        {
            return Err("a slot names another word");
        }
        if self.b(b).leases[w] != u64::from(c) + 1 {
            return Err("a slot is opened for a word that its CPU does not lease");
        }
        let taken = self
            .actor(a)
            .now()
            .carried
            .iter()
            .find(|one| (one.b, one.w, one.from) == (b, w, From::Lease));
        if taken.is_some_and(|one| !one.tag) {
            return Err("frames come into a hand without a look at the tag");
        }
        Ok(Some(Look))
    }

    /// A look at another CPU's slot, on whose account `clear` says that the frames are not there.
    fn hand_seen(&mut self, a: Who, c: u16, slot: usize, clear: impl Fn(&Carried, &Self) -> bool) {
        let frame = self.actor(a).now();
        let (mut carried, mut frees) =
            (std::mem::take(&mut frame.carried), std::mem::take(&mut frame.frees));
        for one in carried.iter_mut().chain(&mut frees).filter(|one| one.hand == Some(c)) {
            let key = self.blocks[one.b as usize].number.map(|n| n * 8 + one.w as u64);
            one.lease |= key.is_some_and(|key| (key % 16) as usize == slot) && clear(one, self);
        }
        let frame = self.actor(a).now();
        (frame.carried, frame.frees) = (carried, frees);
    }

    pub(super) fn mask(&mut self, a: Who, c: u16, s: usize, step: &Step) -> Verdict {
        if step.op == Op::Load {
            if self.actor(a).now().looking().any(|one| one.hand == Some(c)) {
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
                Some(word) if word & out != 0 => {
                    return Err("frames leave a hand that were seen in their word");
                }
                _ => self.actor(a).carry(b, w, out, From::Hand),
            }
        }
        if come != 0 {
            let looked: Check<'_> = &|one| match saw {
                Some(word) if word & come & one.bits == 0 => Ok(()),
                _ => Err("frames are freed into a hand without a look at their word"),
            };
            let rest = come & !self.take_carried(a, b, w, come, |_| Ok(()))?;
            if rest & !self.free(a, b, w, rest, looked)? != 0 {
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
