//! What calls are given and what they come to, and what is true while none runs.

use freehold::conformance::{
    CLASS_QUEUED, CLASS_WHOLE, EMPTY, NO_LIST, TagView, WHOLE_LIST, class_of_list,
};

use super::announce::class_of;
use super::shadow::{Carried, Frame, From, Place, SPLIT, TAKEN, WHOLE, WORDS, words_of};
use super::{Call, Judge, Refusal, Task, Verdict, Who};

impl Judge {
    /// Nothing is left behind between two calls.
    fn settled(&mut self, a: Who) -> Result<(), Refusal> {
        let inside = self.cpus.iter().any(|cpu| cpu.inside == Some(a) || cpu.locked == Some(a));
        let locked = self.hotplug == Some(a)
            || self.holders.iter().flatten().any(|holder| holder.by == Some(a));
        let actor = self.actor(a);
        let top = actor.calls.len() == 1;
        if !actor.now().carried.is_empty() || !actor.now().blocks.is_empty() {
            return Err("frames are lost: a call is over and has them still");
        }
        if top && !actor.holding.is_empty() {
            return Err("a whole block is lost: a call is over and has it still");
        }
        if !actor.tells.is_empty()
            || actor.again.is_some()
            || actor.marks != 0
            || actor.popped.is_some()
        {
            return Err("a call is over and somebody was not told");
        }
        if top && (inside || locked) { Err("a call is over and has a lock still") } else { Ok(()) }
    }

    pub(super) fn begin(&mut self, a: Who, call: &Call) -> Verdict {
        if self.actor(a).calls.len() == 1 {
            self.settled(a)?;
        }
        let mut frame = Frame::new(call.clone());
        let given = if call.task == Task::Free { &call.frames[..] } else { &[] };
        for (n, w, bits) in words_of(given) {
            let Some(b) = self.spot(n).and_then(|spot| spot.index) else {
                frame.wronged = true;
                continue;
            };
            frame.wronged |= bits & !self.b(b).used[w] != 0;
            frame.frees.push(Carried::new(b, w, bits, From::Freed));
        }
        self.actor(a).calls.push(frame);
        Ok(None)
    }

    pub(super) fn end(&mut self, a: Who, ok: bool, got: &[(u64, u64)]) -> Verdict {
        if self.actor(a).calls.len() < 2 {
            return Err("a call ends that has not begun");
        }
        let task = self.actor(a).now().call.task;
        if task == Task::Alloc && ok {
            self.hand_out(a, got)?;
        } else if !got.is_empty() {
            return Err("a call hands out what it was not asked for");
        }
        if task == Task::Remove && ok {
            self.forget(a)?;
        }
        if task == Task::Add && ok {
            let frames = self.actor(a).now().call.frames.clone();
            let there = |this: &mut Self, (n, w, bits)| {
                this.spot(n).is_some_and(|spot| spot.present[w] & bits == bits)
            };
            if !words_of(&frames).all(|word| there(self, word)) {
                return Err("memory was added that is not there");
            }
        }
        self.drop_owed(a);
        if task == Task::Free {
            self.freed(a, ok)?;
        }
        self.settled(a)?;
        let actor = self.actor(a);
        actor.calls.pop();
        actor.view = None;
        if actor.calls.len() == 1 {
            self.settled(a)?;
        }
        Ok(None)
    }

    /// Frames are their caller's.
    fn hand_out(&mut self, a: Who, got: &[(u64, u64)]) -> Result<(), Refusal> {
        let words: Vec<_> = words_of(got).collect();
        for (n, w, bits) in words {
            let b = self
                .spot(n)
                .and_then(|spot| spot.index)
                .ok_or("frames are handed out that do not exist")?;
            let whole = self.actor(a).now().blocks.iter().position(|&block| block == n);
            if let Some(at) = whole.filter(|_| bits == !0 && w + 1 == WORDS) {
                self.actor(a).now().blocks.swap_remove(at);
            } else if whole.is_none() {
                let found = self.take_carried(a, b, w, bits, |one| match one.from {
                    From::Past if !one.tag || !one.lease => {
                        Err("frames taken past the leases are handed out without a second look")
                    }
                    _ => Ok(()),
                })?;
                if found != bits {
                    return Err("frames are handed out that the call did not take");
                }
            }
            let (twice, owed) = (self.b(b).used[w] & bits, self.b(b).owed[w]);
            if twice & !owed != 0 {
                return Err("a frame is handed out twice");
            }
            let mut calls = self.actors.iter().flat_map(|actor| &actor.calls);
            let under_way = |frame: &Frame| {
                frame.frees.iter().any(|one| (one.b, one.w) == (b, w) && one.bits & bits != 0)
            };
            let freed = if calls.any(under_way) { bits } else { owed };
            self.beyond += u64::from((bits & freed).count_ones());
            self.b(b).used[w] |= bits;
        }
        Ok(())
    }

    /// Of frames that were freed twice unseen one goes.
    fn drop_owed(&mut self, a: Who) {
        let mut carried = std::mem::take(&mut self.actor(a).now().carried);
        for one in &mut carried {
            let owed = &mut self.b(one.b).owed[one.w];
            let twice = one.bits & *owed;
            *owed &= !twice;
            one.bits &= !twice;
        }
        carried.retain(|one| one.bits != 0);
        self.actor(a).now().carried = carried;
    }

    /// What a free comes to: all was freed, or it was refused since not all of it was its caller's
    /// to free. What is left of it then is in use still, if it was.
    fn freed(&mut self, a: Who, ok: bool) -> Result<(), Refusal> {
        let frames = self.actor(a).now().call.frames.clone();
        let exist =
            words_of(&frames).all(|(n, ..)| self.spot(n).is_some_and(|spot| spot.index.is_some()));
        let frame = self.actor(a).now();
        match (ok, frame.wronged) {
            (true, _) if frame.frees.is_empty() && exist => Ok(()),
            (true, true) => Err("a wrong free is told that it is right"),
            (true, false) => Err("frames are lost: they were not freed"),
            (false, true) => Ok(()),
            (false, false) => Err("a right free is refused"),
        }
    }

    /// Memory is gone.
    fn forget(&mut self, a: Who) -> Result<(), Refusal> {
        let frames = self.actor(a).now().call.frames.clone();
        for (n, w, bits) in words_of(&frames) {
            let spot = self.spot(n).ok_or("memory beyond the zone")?;
            spot.present[w] &= !bits;
            let b = spot.index.ok_or("a block that is not set up")?;
            if self.take_carried(a, b, w, bits, |_| Ok(()))? != bits {
                return Err("memory is gone of which not all was taken");
            }
        }
        Ok(())
    }

    /// While no call runs: each frame is in one place, and whoever looks for it finds it.
    pub(super) fn quiet(&mut self) -> Verdict {
        for a in 0..self.actors.len() as Who {
            if self.actor(a).calls.len() != 1 {
                return Err("a call runs while none should");
            }
            self.settled(a)?;
        }
        let mut hands = vec![[0u64; WORDS]; self.blocks.len()];
        for slot in self.cpus.iter().flat_map(|cpu| &cpu.slots).filter(|slot| slot.mask != 0) {
            let (b, w) = slot.place();
            if hands.get(b as usize).is_none() {
                return Err("a slot of no block");
            }
            if slot.stale != 0 || hands[b as usize][w] & slot.hand() != 0 {
                return Err("a frame is in two hands");
            }
            hands[b as usize][w] |= slot.hand();
        }
        for at in 0..self.spots.len() {
            let spot = self.spots[at].clone();
            let Some(b) = spot.index else { continue };
            self.quiet_frames(b, spot.place, &spot.present, &hands[b as usize])?;
            self.quiet_place(b, spot.place)?;
        }
        Ok(None)
    }

    fn quiet_frames(
        &mut self,
        b: u32,
        place: Place,
        present: &[u64; WORDS],
        hand: &[u64; WORDS],
    ) -> Result<(), Refusal> {
        let block = self.b(b);
        for w in 0..WORDS {
            let (word, used, owed) = (block.words[w], block.used[w], block.owed[w]);
            let twice = word & used | word & hand[w] | used & hand[w];
            if twice & !owed != 0 {
                return Err("a frame is in two places");
            }
            let right = match place {
                Place::Split => word | used | hand[w] == present[w],
                Place::Taken => used == present[w] && word & !owed == 0 && hand[w] == 0,
                _ => used == 0 && word & !owed == 0 && hand[w] == 0,
            };
            if !right {
                return Err("a frame is lost");
            }
        }
        Ok(())
    }

    fn quiet_place(&mut self, b: u32, place: Place) -> Result<(), Refusal> {
        let block = self.b(b);
        let (tag, class) = (block.tag(), block.class as u8);
        let queued = class == CLASS_QUEUED;
        if queued != block.inbox.is_some() {
            return Err("a block is announced and in no inbox, or the other way round");
        }
        let fits = match place {
            Place::Split => tag.state == SPLIT,
            Place::Taken => tag.state == TAKEN && block.list == u64::from(NO_LIST),
            Place::Listed => tag.state == WHOLE && block.list == u64::from(WHOLE_LIST),
            Place::Loose => tag.state == WHOLE && queued,
            Place::Kept(_) => tag.state == WHOLE && tag.group == TagView::IN_HAND,
            Place::Bitmap => tag.state == WHOLE || tag.state == 0,
            Place::Gone => tag.state == 0,
            Place::Carried(_) => false,
        };
        if !fits {
            return Err("a block is not where its tag says");
        }
        if place != Place::Split || tag.isolated {
            return Ok(());
        }
        let leased = |lease: u64| lease != 0 && lease & u64::from(EMPTY) == 0;
        let open =
            std::array::from_fn(|w| if leased(block.leases[w]) { 0 } else { block.words[w] });
        let exact = class_of(&open);
        let least = if tag.migratetype < 3 { exact.min(CLASS_WHOLE - 1) } else { exact };
        // The zone's own blocks tell of none: any free into one announces it.
        let known =
            if class == 0 && tag.group == 0 { class_of_list(block.list as u16) } else { class };
        if known < least {
            return Err("the class of a block is too low");
        }
        let findable = exact == 0 || queued || block.list < u64::from(WHOLE_LIST);
        if findable { Ok(()) } else { Err("a block with free frames that nobody would find") }
    }
}
