//! What must be true of every world, and of one in which no call runs.

use crate::Kind::*;
use crate::protocol::*;

impl World {
    /// Every frame is in exactly one place; whoever has frames in hand has the lease; what is
    /// listed is its holder's.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.broken.is_empty() {
            return Err(self.broken);
        }
        let places = self.places()?;
        for (block, places) in self.blocks.iter().zip(&places) {
            for (owed, place) in block.owed.iter().zip(places) {
                if FULL & !place[0] | owed & !place[1] != 0 {
                    return Err("a frame is lost");
                }
                if place[1] & !owed | place[2] != 0 {
                    return Err("a frame is in two places");
                }
            }
            if block.tag.0 == State::Taken && block.listed {
                return Err("a block in use is listed");
            }
        }
        let on_its_way = |b: usize| {
            let moves = |d: &Do| matches!(d.kind, Route | Push | Unqueue | Accept | Relist);
            self.todo().any(|d| usize::from(d.b) == b && moves(d))
        };
        let unlike = |block: &Block| (block.inbox != NONE) != (block.class == QUEUED);
        if (0..).zip(self.blocks.iter()).any(|(b, block)| unlike(block) && !on_its_way(b)) {
            return Err("a block is announced and in no inbox, or the other way round");
        }
        // Whether or not somebody is there just now.
        let may_wait = |d: &Do| matches!(d.kind, Enter | Lock | Isolate);
        let frees = |todo: &Todo| todo.iter().any(|d| d.kind == FreeEnd);
        if self.todo.iter().any(|todo| frees(todo) && todo.last().is_some_and(may_wait)) {
            return Err("a free may wait");
        }
        Ok(())
    }

    /// Of each word which frames are in one place at least, in two, in three.
    fn places(&self) -> Result<[[[u8; 3]; WORDS]; 2], &'static str> {
        let mut places = [[[0; 3]; WORDS]; 2];
        let mut is_in = |b: usize, w: usize, bits: u8| {
            let [one, two, three] = &mut places[b][w];
            *three |= *two & bits;
            *two |= *one & bits;
            *one |= bits;
        };
        let (mut filled, mut closing) = ([0; 2], [[0; 3]; 2]);
        for d in self.todo().filter(|d| d.b != NONE) {
            let b = usize::from(d.b);
            match d.kind {
                // It is just being split: the words tell already.
                SetSplit => filled[b] = WORDS,
                Fill => filled[b] = filled[b].max(d.w.into()),
                Close => closing[b][usize::from(d.c)] |= 1 << d.w,
                Look | LeaseBack | PutBack | HintLook => is_in(b, d.w.into(), d.bits),
                RetireLease | RetireTake | RetireEnd => {
                    (0..WORDS).for_each(|w| is_in(b, w, d.transit(d.b, w as u8)))
                }
                _ => {}
            }
        }
        for (b, block) in self.blocks.iter().enumerate() {
            for w in 0..WORDS {
                is_in(b, w, block.used[w]);
                let tells = w < filled[b];
                match block.tag.0 {
                    State::Whole if !tells => is_in(b, w, FULL),
                    State::Absent => is_in(b, w, FULL & !block.used[w]),
                    _ => is_in(b, w, block.words[w]),
                }
                if matches!(block.tag.0, State::Whole | State::Absent) && !tells {
                    is_in(b, w, block.words[w] & block.owed[w]);
                }
                for (c, cpu) in self.cpus.iter().enumerate() {
                    let hand = cpu.hand[b][w];
                    if hand != NONE && closing[b][c] >> w & 1 == 0 {
                        is_in(b, w, hand);
                        if hand != 0 && block.leases[w] != c as u8 {
                            return Err("a CPU has frames in hand without the lease");
                        }
                        if !cpu.online && cpu.door == NONE {
                            return Err("an offline CPU has a slot");
                        }
                    }
                }
            }
        }
        Ok(places)
    }

    /// While no call runs, whoever looks for frames finds them: the lists know of no smaller runs
    /// than there are.
    pub fn check_places(&self) -> Result<(), &'static str> {
        for block in self.blocks.iter().filter(|block| block.tag.0 == State::Split && !block.tag.2)
        {
            let open =
                std::array::from_fn(|w| if leased(block.leases[w]) { 0 } else { block.words[w] });
            let class = class_of(open).min(CLASS_WHOLE - 1);
            if class > block.class.max(block.known) {
                return Err("the class of a block is too low");
            }
            if class != 0 && block.class != QUEUED && !block.listed {
                return Err("a block with free frames that nobody would find");
            }
        }
        Ok(())
    }
}
