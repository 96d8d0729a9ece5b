//! Tags, whole blocks, lists and the bitmap: who may make what of a block.

use freehold::conformance::{
    CLASS_QUEUED, IN_BITMAP, NO_BLOCK, NO_LIST, Op, Step, TagView, WHOLE_LIST, type_of_list,
};

use super::shadow::{ABSENT, From, Place, SPLIT, TAKEN, WHOLE, WORDS, each};
use super::{Judge, Refusal, Task, Verdict, Who};
use crate::Kind::{self, *};

/// Types of which a block becomes whole when all of it is free.
const ORDINARY: usize = 3;

impl Judge {
    pub(super) fn initial_tag(&mut self, b: u32, value: u64) -> Result<(), Refusal> {
        match TagView::of(value).state {
            SPLIT => self.spot_of(b)?.place = Place::Split,
            TAKEN => return Err("something is in use when the judgement begins"),
            _ => {}
        }
        Ok(())
    }

    /// A section's blocks are set up.
    pub(super) fn section(&mut self, s: u32, step: &Step) -> Verdict {
        if step.op == Op::Load || step.new == super::shadow::NO_SECTION {
            return Ok(None);
        }
        let (first, each) = self.shape.sections;
        for i in 0..each {
            let (index, number) = ((step.new * each + i) as u32, first + u64::from(s) * each + i);
            while self.blocks.len() <= index as usize {
                self.blocks.push(super::Block::default());
            }
            self.b(index).number = Some(number);
            if let Some(spot) = self.spot(number) {
                spot.index = Some(index);
            }
        }
        Ok(None)
    }

    /// A whole block that the thread has, or may have since it is on no list and its holder's lock
    /// is this thread's.
    fn possess(&mut self, a: Who, b: u32) -> Result<u64, Refusal> {
        let holds = self.holds_block(a, b);
        let place = self.spot_of(b)?.place;
        let number = self.b(b).number.unwrap_or_default();
        match place {
            Place::Carried(by) if by == a => Ok(number),
            Place::Loose if holds => self.put(number, Place::Carried(a)).map(|()| number),
            _ => Err("a whole block is changed by somebody who does not have it"),
        }
    }

    pub(super) fn tag(&mut self, a: Who, b: u32, step: &Step) -> Verdict {
        let (old, new) = (TagView::of(step.old), TagView::of(step.new));
        if step.op == Op::Load {
            self.tag_seen(a, b, new);
            return Ok(None);
        }
        if self.b(b).number.is_none() {
            return Err("a block that is not set up");
        }
        let kind = match (old.state, new.state) {
            (WHOLE, WHOLE) => self.whole_moves(a, b, new),
            (WHOLE, SPLIT) => self.whole_splits(a, b, new),
            (WHOLE, TAKEN) => self.whole_is_taken(a, b),
            (SPLIT, WHOLE) => self.retires(a, b, old, new),
            (SPLIT, SPLIT) => self.split_moves(a, b, old, new),
            (TAKEN, WHOLE) if step.op == Op::Exchange => self.block_is_freed(a, b, new),
            (TAKEN, SPLIT) if step.op == Op::Exchange => self.taken_splits(a, b, old, new),
            (TAKEN, TAKEN) if step.op == Op::Exchange && self.holds(a, old.zone, old.group) => {
                self.actor(a).owes(b, None);
                Ok(LeaveToZone)
            }
            (ABSENT, WHOLE) => self.appears(a, b, new),
            (ABSENT, SPLIT) => self.is_added(a, b, new),
            (SPLIT, ABSENT) => self.is_removed(a, b, old),
            _ => Err("a block does not become that"),
        }?;
        if step.op == Op::Exchange {
            self.tag_seen(a, b, new);
        }
        Ok(Some(kind))
    }

    /// Whoever carries frames of it has looked.
    fn tag_seen(&mut self, a: Who, b: u32, tag: TagView) {
        // Somebody else has made it a split one: it is freed word by word.
        let number = self.blocks.get(b as usize).and_then(|block| block.number);
        if let Some(number) = number.filter(|_| tag.state == SPLIT) {
            self.explode(a, b, number);
        }
        let actor = self.actor(a);
        if actor.again == Some(b) {
            actor.again = None;
        }
        for carried in actor.now().looking().filter(|carried| carried.b == b && !carried.is_open())
        {
            carried.tag = tag.state == SPLIT && (carried.from != From::Lease || !tag.isolated);
        }
    }

    fn whole_moves(&mut self, a: Who, b: u32, new: TagView) -> Result<Kind, Refusal> {
        let number = self.possess(a, b)?;
        if new.group != TagView::IN_HAND && !self.holds(a, new.zone, new.group) {
            self.put(number, Place::Loose)?;
            self.actor(a).owes(b, None);
            return Ok(GiveBack);
        }
        Ok(Give)
    }

    fn whole_splits(&mut self, a: Who, b: u32, new: TagView) -> Result<Kind, Refusal> {
        let number = self.possess(a, b)?;
        if std::mem::take(&mut self.b(b).filled) != 0xff {
            return Err("a block is split before its words are full");
        }
        if new.isolated || new.group == TagView::IN_HAND {
            return Err("a block is split for nobody");
        }
        self.put(number, Place::Split)?;
        self.actor(a).filled = Some(b);
        if !self.holds(a, new.zone, new.group) {
            self.actor(a).owes(b, None);
        }
        Ok(SetSplit)
    }

    fn whole_is_taken(&mut self, a: Who, b: u32) -> Result<Kind, Refusal> {
        let number = self.possess(a, b)?;
        let block = self.b(b);
        if block.list != u64::from(NO_LIST) {
            return Err("a block in use is listed");
        }
        if (0..WORDS).any(|w| block.words[w] & !block.owed[w] != 0) {
            return Err("a block is in use and its words tell of free frames");
        }
        self.put(number, Place::Taken)?;
        self.actor(a).now().blocks.push(number);
        Ok(AllocBlock)
    }

    fn retires(&mut self, a: Who, b: u32, old: TagView, new: TagView) -> Result<Kind, Refusal> {
        if !self.holds(a, old.zone, old.group)
            || new.group != old.group
            || old.isolated
            || old.migratetype >= ORDINARY
        {
            return Err("a block becomes whole where it may not");
        }
        let block = self.b(b);
        if block.list != u64::from(NO_LIST) {
            return Err("a listed block becomes whole");
        }
        if self.actor(a).view.as_ref().is_none_or(|view| view.b != b || view.unnamed != 0xff) {
            return Err("a block becomes whole whose words may be leased");
        }
        // A word may be leased by who has come too late and has found it empty: he lets go when he
        // looks at the tag. That nobody has a frame of it in hand is what follows.
        let number = self.b(b).number.unwrap_or_default();
        for w in 0..WORDS {
            if self.take_carried(a, b, w, !0, |_| Ok(()))? != !0 {
                return Err("a block becomes whole of which not all was taken");
            }
        }
        self.put(number, Place::Carried(a))?;
        Ok(RetireEnd)
    }

    fn split_moves(&mut self, a: Who, b: u32, old: TagView, new: TagView) -> Result<Kind, Refusal> {
        if !self.holds(a, old.zone, old.group) {
            return Err("a split block is changed without its holder's lock");
        }
        let listed = self.b(b).list != u64::from(NO_LIST);
        let moves = (old.zone, old.group) != (new.zone, new.group);
        if listed && (moves || old.migratetype != new.migratetype || new.isolated) {
            return Err("a listed block changes hands");
        }
        if new.isolated && new.group != 0 || new.group == TagView::IN_HAND {
            return Err("a split block goes to nobody");
        }
        Ok(match (old.isolated, new.isolated) {
            (false, true) => Isolate2,
            (true, false) => Restore,
            (true, true) if moves => return Err("an isolated block changes hands"),
            _ if moves => Give,
            _ => Add,
        })
    }

    fn block_is_freed(&mut self, a: Who, b: u32, new: TagView) -> Result<Kind, Refusal> {
        let number = self.b(b).number.unwrap_or_default();
        let frame = self.actor(a).now();
        if let Some(at) = frame.blocks.iter().position(|&block| block == number) {
            // It was taken just now.
            frame.blocks.swap_remove(at);
        } else {
            let all = self.b(b).used == [!0; WORDS];
            for w in 0..WORDS {
                if !all || self.free(a, b, w, !0, &|_| Ok(()))? != !0 {
                    return Err("a block is freed by somebody who does not have it");
                }
            }
        }
        if new.group == TagView::IN_HAND {
            self.put(number, Place::Carried(a))?;
        } else {
            self.put(number, Place::Loose)?;
            self.actor(a).owes(b, None);
        }
        Ok(FreeBlock)
    }

    /// Whether the thread is to free frames of a block.
    pub(super) fn frees_of(&mut self, a: Who, b: u32) -> bool {
        self.actor(a).now().frees.iter().any(|one| one.b == b)
    }

    fn taken_splits(
        &mut self,
        a: Who,
        b: u32,
        old: TagView,
        new: TagView,
    ) -> Result<Kind, Refusal> {
        let number = self.b(b).number.unwrap_or_default();
        let holds = self.holds(a, old.zone, old.group);
        let frees = self.frees_of(a, b);
        let isolates = holds && new.isolated && new.group == 0;
        let told = [0, u64::from(CLASS_QUEUED)]
            .iter()
            .any(|&class| self.actor(a).class == Some((b, class)));
        if !isolates && frees && !told {
            return Err("a block is split whose class may be of another time");
        }
        let parts = frees && !new.isolated && (new.zone, new.group) == (old.zone, old.group);
        if !isolates && !parts {
            return Err("a block in use becomes a split one by somebody who frees nothing of it");
        }
        self.explode(a, b, number);
        self.put(number, Place::Split)?;
        Ok(if isolates { Isolate2 } else { FreeSplit })
    }

    fn appears(&mut self, a: Who, b: u32, new: TagView) -> Result<Kind, Refusal> {
        let holds = self.holds(a, new.zone, 0);
        let place = self.spot_of(b)?.place;
        let mine = place == Place::Carried(a) || place == Place::Bitmap && holds;
        if mine && new.group == 0 && !new.isolated {
            Ok(Add)
        } else {
            Err("a block appears that is not there")
        }
    }

    fn is_added(&mut self, a: Who, b: u32, new: TagView) -> Result<Kind, Refusal> {
        if self.actor(a).now().call.task != Task::Add
            || !self.holds(a, new.zone, 0)
            || new.group != 0
        {
            return Err("memory appears that nobody adds");
        }
        let number = self.b(b).number.unwrap_or_default();
        self.put(number, Place::Split)?;
        Ok(Add)
    }

    fn is_removed(&mut self, a: Who, b: u32, old: TagView) -> Result<Kind, Refusal> {
        if self.actor(a).now().call.task != Task::Remove
            || !old.isolated
            || !self.holds(a, old.zone, 0)
        {
            return Err("memory goes that nobody removes");
        }
        let present = self.spot_of(b)?.present;
        let block = self.b(b);
        if block.words != present || block.leases != [0; WORDS] {
            return Err("memory goes of which not all is free");
        }
        let number = block.number.unwrap_or_default();
        self.put(number, Place::Gone)?;
        Ok(Remove)
    }

    pub(super) fn list(&mut self, a: Who, b: u32, step: &Step) -> Verdict {
        if step.op == Op::Load {
            return Ok(None);
        }
        let tag = self.b(b).tag();
        let place = self.spot_of(b)?.place;
        let in_hand = place == Place::Carried(a) && tag.group == TagView::IN_HAND;
        if !in_hand && !self.holds_block(a, b) {
            return Err("a block is listed without its holder's lock");
        }
        let (from, to) = (step.old as u16, step.new as u16);
        if to == NO_LIST {
            if from == WHOLE_LIST {
                if place != Place::Listed {
                    return Err("a whole block is not where its list says");
                }
                let number = self.b(b).number.unwrap_or_default();
                self.put(number, Place::Carried(a))?;
            }
            return Ok(Some(Pick));
        }
        if from != NO_LIST {
            return Err("a block is on two lists");
        }
        match to {
            WHOLE_LIST if tag.state == WHOLE => {
                let number = self.possess(a, b)?;
                self.put(number, Place::Listed)?;
            }
            IN_BITMAP if tag.state == WHOLE && tag.group == 0 => {}
            partly if partly < WHOLE_LIST && tag.state == SPLIT && !tag.isolated => {
                if type_of_list(partly) != tag.migratetype {
                    return Err("a block is listed among those of another type");
                }
            }
            _ => return Err("a block is listed that may not be"),
        }
        Ok(Some(List))
    }

    pub(super) fn bits(&mut self, a: Who, z: u8, w: u32, step: &Step) -> Verdict {
        if step.op == Op::Load {
            return Ok(None);
        }
        if !self.holds(a, z, 0) {
            return Err("the bitmap changes without the zone's lock");
        }
        for bit in each(step.old & !step.new) {
            let n = self.numbered(z, w, bit);
            if self.spot(n).map(|spot| spot.place) != Some(Place::Bitmap) {
                return Err("a whole block is taken that is not there");
            }
            self.put(n, Place::Carried(a))?;
        }
        for bit in each(step.new & !step.old) {
            let n = self.numbered(z, w, bit);
            let spot = self.spot(n).ok_or("a bit beyond the memory")?;
            if let (Place::Gone, [0, 0, 0, 0, 0, 0, 0, 0]) = (spot.place, spot.present) {
                if !self.adds(a, n) {
                    return Err("memory appears that nobody adds");
                }
                self.spot(n).ok_or("a bit beyond the memory")?.present = [!0; WORDS];
            } else {
                let b = spot.index.ok_or("a block that is not set up")?;
                if self.b(b).tag().state != WHOLE {
                    return Err("a block of the bitmap is not whole");
                }
                self.possess(a, b)?;
            }
            self.put(n, Place::Bitmap)?;
        }
        Ok(Some(if step.new > step.old { List } else { TakeWhole }))
    }

    /// Whether the thread adds all of that block.
    fn adds(&mut self, a: Who, number: u64) -> bool {
        let call = &self.actor(a).now().call;
        let covers = |&(start, frames): &(u64, u64)| {
            start <= number << 9 && (number + 1) << 9 <= start + frames
        };
        call.task == Task::Add && call.frames.iter().any(covers)
    }

    pub(super) fn kept(&mut self, a: Who, c: u16, _: u8, step: &Step) -> Verdict {
        let none = u64::from(NO_BLOCK);
        if step.op == Op::Load || step.old == step.new {
            return Ok(None);
        }
        self.may_change(a, c, step)?;
        let b = if step.new == none { step.old } else { step.new } as u32;
        self.there(b)?;
        let number = self.b(b).number.ok_or("a block that is not set up")?;
        let place = self.spot_of(b)?.place;
        let tag = self.b(b).tag();
        if step.new == none && place == Place::Kept(c) {
            self.put(number, Place::Carried(a))?;
            return Ok(Some(TakeWhole));
        }
        let whole = tag.state == WHOLE && tag.group == TagView::IN_HAND;
        if step.old != none
            || place != Place::Carried(a)
            || !whole
            || self.cpus[usize::from(c)].online == 0
        {
            return Err("a CPU keeps a block that is not its to keep");
        }
        self.put(number, Place::Kept(c))?;
        Ok(Some(FreeBlock))
    }
}
