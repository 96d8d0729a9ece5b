//! What must be true of every world, and of one in which no call runs.

use crate::Kind::*;
use crate::protocol::*;

impl World {
    /// Every frame is in exactly one place; whoever has frames in hand has the lease; what is listed is its holder's.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.broken.is_empty() {
            return Err(self.broken);
        }
        for (b, block) in self.blocks.iter().enumerate() {
            let todo = || self.todo().filter(|d| usize::from(d.b) == b);
            for w in 0..WORDS {
                let mut places = vec![block.used[w]];
                // It is just being split: the words tell already.
                let filled = todo().any(|d| d.kind == SetSplit || d.kind == Fill && w < usize::from(d.w));
                match block.tag.0 {
                    State::Whole if filled => places.push(block.words[w]),
                    State::Whole => places.push(FULL),
                    State::Absent => places.push(FULL & !block.used[w]),
                    _ => places.push(block.words[w]),
                }
                if matches!(block.tag.0, State::Whole | State::Absent) && !filled {
                    places.push(block.words[w] & block.owed[w]);
                }
                for (c, cpu) in self.cpus.iter().enumerate() {
                    let hand = cpu.hand[b][w];
                    let closing = todo().any(|d| d.kind == Close && usize::from(d.c) == c && usize::from(d.w) == w);
                    if hand != NONE && !closing {
                        places.push(hand);
                        if hand != 0 && block.leases[w] != c as u8 {
                            return Err("a CPU has frames in hand without the lease");
                        }
                        if !cpu.online && cpu.door == NONE {
                            return Err("an offline CPU has a slot");
                        }
                    }
                }
                places.extend(todo().map(|d| d.transit(b as u8, w as u8)));
                for bit in [1, 2] {
                    let found = places.iter().filter(|&&place| place & bit != 0).count();
                    let more = usize::from(block.owed[w] & bit != 0);
                    if found < 1 + more {
                        return Err("a frame is lost");
                    }
                    if found > 1 + more {
                        return Err("a frame is in two places");
                    }
                }
            }
            if block.tag.0 == State::Taken && block.listed {
                return Err("a block in use is listed");
            }
            if (block.inbox != NONE) != (block.class == QUEUED)
                && !todo().any(|d| matches!(d.kind, Route | Push | Unqueue | Accept | Relist))
            {
                return Err("a block is announced and in no inbox, or the other way round");
            }
        }
        Ok(())
    }

    /// While no call runs, whoever looks for frames finds them: the lists know of no smaller runs than there are.
    pub fn check_places(&self) -> Result<(), &'static str> {
        for block in self.blocks.iter().filter(|block| block.tag.0 == State::Split && !block.tag.2) {
            let open = std::array::from_fn(|w| if leased(block.leases[w]) { 0 } else { block.words[w] });
            let class = class_of(open).min(CLASS_WHOLE - 1);
            if class > block.class {
                return Err("the class of a block is too low");
            }
            if class != 0 && block.class != QUEUED && !block.listed {
                return Err("a block with free frames that nobody would find");
            }
        }
        Ok(())
    }
}
