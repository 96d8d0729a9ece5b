//! Classes and inboxes: a holder is told of a block, and looks at it.

use freehold::conformance::{CLASS_QUEUED, CLASS_WHOLE, NO_BLOCK, Op, Step, class_of_list};

use super::shadow::{ABSENT, View, WORDS};
use super::{Judge, Task, Verdict, Who};
use crate::Kind::*;

/// The class of a block with these free frames: one more than the order of its largest aligned run,
/// 0 for none.
pub(super) fn class_of(words: &[u64; WORDS]) -> u8 {
    let full = |len: usize| words.chunks(len).any(|words| words.iter().all(|&word| word == !0));
    if let Some(order) = [8usize, 4, 2, 1].iter().position(|&len| full(len)) {
        return CLASS_WHOLE - order as u8;
    }
    let largest = |word: u64| {
        let (mut runs, mut class) = (word, 0);
        for order in 0..6 {
            if runs == 0 {
                break;
            }
            class = order + 1;
            // A run of the next order: two of this one, the first at a multiple of both.
            let starts = (0..64).step_by(2 << order).fold(0, |all, at| all | 1u64 << at);
            runs = runs & runs >> (1 << order) & starts;
        }
        class
    };
    words.iter().map(|&word| largest(word)).max().unwrap_or(0)
}

impl Judge {
    pub(super) fn class(&mut self, a: Who, b: u32, step: &Step) -> Verdict {
        let queued = u64::from(CLASS_QUEUED);
        // The tag says already that it is split, or the words; who looks at the class has done his
        // part.
        self.actor(a).tells.retain(|tell| tell.0 != b);
        let (old, new) = (step.old, step.new);
        self.actor(a).class = Some((b, new));
        match step.op {
            Op::Load => {
                // It is looked at by who has the lock, and again by who takes it out of the inbox.
                if new == queued && self.holds_block(a, b) {
                    self.begin_view(a, b);
                }
                Ok(None)
            }
            Op::Swap if new == queued => {
                if old != queued {
                    if self.b(b).inbox.is_some() || self.b(b).marked.is_some() {
                        return Err("a block is announced twice");
                    }
                    self.b(b).marked = Some(a);
                    self.actor(a).marks += 1;
                }
                Ok(Some(Queue))
            }
            Op::Store if new == 0 => {
                if self.actor(a).popped == Some(b) {
                    self.actor(a).popped = None;
                    self.begin_view(a, b);
                    return Ok(Some(Relist));
                }
                if self.b(b).marked != Some(a) {
                    return Err("a mark is taken back by somebody else");
                }
                self.b(b).marked = None;
                self.actor(a).marks -= 1;
                self.actor(a).again = Some(b);
                Ok(Some(Unqueue))
            }
            // The last step for one of the zone's own: it is listed by then.
            Op::Exchange if (old, new) == (0, 0) && class_of_list(self.b(b).list as u16) != 0 => {
                self.end_view(a, b, 0)
            }
            Op::Exchange if old != queued && new == 0 => {
                let state = self.b(b).tag().state;
                // Who frees frames of it has looked when it was in use as a whole; it may be split
                // by now.
                let adds = state == ABSENT && self.actor(a).now().call.task == Task::Add;
                if !adds && !self.holds_block(a, b) && !self.frees_of(a, b) {
                    return Err("a block is looked at without its holder's lock");
                }
                self.begin_view(a, b);
                Ok(Some(File))
            }
            Op::Exchange if old == 0 && new <= u64::from(CLASS_WHOLE) => {
                self.end_view(a, b, new as u8)
            }
            _ => Err("a class does not become that"),
        }
    }

    fn begin_view(&mut self, a: Who, b: u32) {
        let actor = self.actor(a);
        let filled = actor.filled == Some(b);
        actor.view = Some(View { b, words: [None; WORDS], leases: 0, unnamed: 0, filled });
    }

    /// The class is what the lister has read since it began; of the zone's own blocks that of their
    /// list is, and they tell of none.
    fn end_view(&mut self, a: Who, b: u32, told: u8) -> Verdict {
        if !self.holds_block(a, b) {
            return Err("a block is looked at without its holder's lock");
        }
        let class = class_of_list(self.b(b).list as u16);
        let zones_own = self.b(b).tag().group == 0;
        if told != if zones_own { 0 } else { class } {
            return Err("a class is set of a block that is listed otherwise");
        }
        let Some(view) = self.actor(a).view.take().filter(|view| view.b == b) else {
            return Err("a class is set by somebody who has not looked");
        };
        if view.filled && view.words == [None; WORDS] {
            return if class >= CLASS_WHOLE - 1 {
                Ok(Some(FileEnd))
            } else {
                Err("a class is not what was read")
            };
        }
        if view.leases != 0xff {
            return Err("a class is set before all leases were read");
        }
        let mut words = [0; WORDS];
        for (word, seen) in words.iter_mut().zip(view.words) {
            *word = seen.ok_or("a class is set before all words were read")?;
        }
        let exact = class_of(&words);
        let almost = exact == CLASS_WHOLE && class == CLASS_WHOLE - 1;
        if class == exact || almost {
            Ok(Some(FileEnd))
        } else {
            Err("a class is not what was read")
        }
    }

    /// The link of an inbox.
    pub(super) fn next(&mut self, a: Who, b: u32, step: &Step) -> Verdict {
        let pushes = self.b(b).marked == Some(a) || self.actor(a).popped == Some(b);
        if step.op == Op::Load || pushes {
            Ok(None)
        } else {
            Err("a link of an inbox changes that is not ours")
        }
    }

    /// A block is pushed, or all of them are taken.
    pub(super) fn head(&mut self, a: Who, z: u8, g: u16, step: &Step) -> Verdict {
        match step.op {
            Op::Load => Ok(None),
            Op::Exchange => {
                let b = step.new as u32;
                self.there(b)?;
                let popped = self.actor(a).popped == Some(b);
                if !popped && self.b(b).marked != Some(a) {
                    return Err("a block is announced by somebody who has not marked it");
                }
                if self.b(b).inbox.is_some() {
                    return Err("a block is in two inboxes");
                }
                if self.b(b).next != step.old {
                    return Err("an inbox is torn");
                }
                if popped {
                    self.actor(a).popped = None;
                } else {
                    self.b(b).marked = None;
                    self.actor(a).marks -= 1;
                }
                self.b(b).inbox = Some((z, g));
                Ok(Some(Push))
            }
            Op::Swap if step.new == u64::from(NO_BLOCK) && self.holds(a, z, g) => {
                self.actor(a).fetched = step.old;
                Ok(Some(Collect))
            }
            _ => Err("an inbox is emptied without its holder's lock"),
        }
    }

    /// A block is taken out of those that were taken.
    pub(super) fn rest(&mut self, a: Who, z: u8, g: u16, step: &Step) -> Verdict {
        let none = u64::from(NO_BLOCK);
        if step.op == Op::Load {
            return Ok(None);
        }
        if !self.holds(a, z, g) {
            return Err("an inbox is emptied without its holder's lock");
        }
        let fetched = std::mem::replace(&mut self.actor(a).fetched, none);
        let b = if step.old == none { fetched } else { step.old } as u32;
        if self.blocks.get(b as usize).is_none() || self.b(b).inbox != Some((z, g)) {
            return Err("a block is taken out of an inbox that it is not in");
        }
        if self.b(b).next != step.new {
            return Err("an inbox is torn");
        }
        if self.actor(a).popped.is_some() {
            return Err("a block that was announced is not looked at");
        }
        self.b(b).inbox = None;
        self.actor(a).popped = Some(b);
        Ok(Some(Accept))
    }
}

#[cfg(test)]
mod tests {
    use super::class_of;

    #[test]
    fn a_class_is_one_more_than_the_order_of_the_largest_run() {
        let with = |words: &[(usize, u64)]| {
            let mut all = [0; 8];
            words.iter().for_each(|&(w, word)| all[w] = word);
            class_of(&all)
        };
        assert_eq!(with(&[]), 0);
        assert_eq!(with(&[(3, 0b110)]), 1);
        assert_eq!(with(&[(3, 0b1100)]), 2);
        assert_eq!(with(&[(0, 0xff << 4), (1, 1)]), 3);
        assert_eq!(with(&[(7, !0 << 32)]), 6);
        assert_eq!(with(&[(7, !0), (0, 1)]), 7);
        assert_eq!(with(&[(3, !0), (4, !0)]), 7);
        assert_eq!(with(&[(4, !0), (5, !0)]), 8);
        assert_eq!(class_of(&[!0; 8]), 10);
    }
}
