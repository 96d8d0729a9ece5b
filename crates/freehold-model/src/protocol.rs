//! The protocol: what there is, and what each call does to it, one atomic step at a time.
//!
//! ```text
//! Block   tag (state, holder, isolated) | words | leases | class | which list it is on     as in `freehold::block`
//! Cpu     online | who is inside its door | what it has in hand of each word | a block it keeps
//!         todo: the steps that the call running on it has still to make, the next one last
//! shadow  which frames are in use, and which were freed once too often without the call seeing it
//! ```
//!
//! A step is one access to what others change without a lock, or a stretch of accesses to what a lock or a door protects.
//! Where the code chooses (the best word, the fullest block, a hint), the model lets every choice happen. `docs/model.md`
//! says what is left out.

use crate::Kind::{self, *};

/// Words of a block, and frames of a word.
pub const WORDS: usize = 2;
/// All frames of a word.
pub const FULL: u8 = 0b11;
/// The zone as a holder; groups are 1 and 2.
pub const ZONE: u8 = 0;
/// The holder of a whole block in a CPU's hand.
pub const HAND: u8 = 9;
/// No CPU, no block, no lease, no slot.
pub const NONE: u8 = 0xff;
/// In a lease: its CPU has nothing of the word in hand.
pub const EMPTY: u8 = 0x80;
/// The class of a block that is announced.
pub const QUEUED: u8 = 0xee;
/// The class of a block of which all is free.
pub const CLASS_WHOLE: u8 = 3;

/// What a block's tag says of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No memory.
    Absent,
    /// The words tell.
    Split,
    /// All free.
    Whole,
    /// All in use.
    Taken,
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The tag: state, holder, isolated.
    pub tag: (State, u8, bool),
    /// Bits of free frames.
    pub words: [u8; WORDS],
    /// Who leases each word.
    pub leases: [u8; WORDS],
    /// 0 nothing, 1 a frame, 2 a word, 3 all, [`QUEUED`].
    pub class: u8,
    /// It is on a list of its holder: partly free ones, whole ones, or the zone's bitmap.
    pub listed: bool,
    /// The holder in whose inbox it is.
    pub inbox: u8,
    /// Shadow: frames in use, and frames freed once too often.
    pub used: [u8; WORDS],
    /// See `used`.
    pub owed: [u8; WORDS],
}

/// One CPU and the thread that runs on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// It may lease words.
    pub online: bool,
    /// Who is inside its state.
    pub door: u8,
    /// Of each word: what is in hand, or [`NONE`] where there is no slot for it.
    pub hand: Vec<[u8; WORDS]>,
    /// A whole block that it keeps.
    pub kept: u8,
    /// What its thread has still to do; the last one is next.
    pub todo: Vec<Do>,
}

/// A step, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Do {
    /// What is done.
    pub kind: Kind,
    /// The CPU whose state it is done to.
    pub c: u8,
    /// A holder.
    pub h: u8,
    /// A block.
    pub b: u8,
    /// A word of it.
    pub w: u8,
    /// Frames of that word that are on their way.
    pub bits: u8,
    /// Frames of that word that the call is to free.
    pub freed: u8,
    /// How far a call has got, or what it has learnt.
    pub n: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// Who has the lock of the zone and of each group, and the hotplug lock.
    pub locks: [u8; 4],
    /// Wrong frees, hotplugs, isolations and preemptions that may still happen.
    pub left: [u8; 4],
    /// A wrong free has been made: a call may be refused.
    pub wronged: bool,
    /// Whose step was the last one, while its call is not over.
    pub last: u8,
    /// What must not be; empty while all is well.
    pub broken: &'static str,
    /// Beyond what the model judges: a frame was handed out while somebody was about to free it wrongly.
    pub beyond: bool,
}

/// The hotplug lock's place among the locks.
pub const HOTPLUG: u8 = 3;

/// A step about nothing in particular.
pub const fn just(kind: Kind) -> Do {
    Do { kind, c: NONE, h: NONE, b: NONE, w: NONE, bits: 0, freed: 0, n: 0 }
}

impl Do {
    /// About a word.
    pub const fn at(kind: Kind, b: u8, w: u8) -> Self {
        Self { b, w, ..just(kind) }
    }
    /// About a block.
    pub const fn block(kind: Kind, b: u8) -> Self {
        Self { b, ..just(kind) }
    }
    /// About a CPU.
    pub const fn cpu(kind: Kind, c: u8) -> Self {
        Self { c, ..just(kind) }
    }
    /// About a holder.
    pub const fn held(kind: Kind, h: u8) -> Self {
        Self { h, ..just(kind) }
    }
    /// With frames on their way.
    pub const fn with(self, bits: u8) -> Self {
        Self { bits, ..self }
    }
    /// With a number.
    pub const fn n(self, n: u8) -> Self {
        Self { n, ..self }
    }
    /// The same with another kind.
    pub const fn then(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

/// The class of these words.
pub fn class_of(words: [u8; WORDS]) -> u8 {
    match words {
        [FULL, FULL] => CLASS_WHOLE,
        [0, 0] => 0,
        [FULL, _] | [_, FULL] => 2,
        _ => 1,
    }
}

/// Whether somebody may have frames of that word in hand.
pub fn leased(lease: u8) -> bool {
    lease != NONE && lease & EMPTY == 0
}

/// What of a word is still to be put back although its hand shows it no more, and the like: see [`World::check`].
fn transit(d: &Do, b: u8, w: u8) -> u8 {
    match d.kind {
        Look | LeaseBack | PutBack | HintLook if (d.b, d.w) == (b, w) => d.bits,
        RetireLease | RetireTake if d.b == b && w < d.w => FULL,
        RetireEnd if d.b == b => FULL,
        _ => 0,
    }
}

impl World {
    /// All memory whole and the zone's.
    pub fn new(cpus: u8, blocks: u8, left: [u8; 4]) -> Self {
        let block = Block {
            tag: (State::Whole, ZONE, false),
            words: [0; WORDS],
            leases: [NONE; WORDS],
            class: 0,
            listed: true,
            inbox: NONE,
            used: [0; WORDS],
            owed: [0; WORDS],
        };
        let hand = vec![[NONE; WORDS]; blocks.into()];
        let cpu = Cpu { online: true, door: NONE, hand, kept: NONE, todo: Vec::new() };
        Self {
            blocks: vec![block; blocks.into()],
            cpus: vec![cpu; cpus.into()],
            locks: [NONE; 4],
            left,
            wronged: false,
            last: NONE,
            broken: "",
            beyond: false,
        }
    }

    /// CPUs 0 and 1 are group 1, CPU 2 is group 2.
    pub fn group(c: u8) -> u8 {
        c / 2 + 1
    }
    /// Groups there are.
    pub fn groups(&self) -> u8 {
        Self::group(self.cpus.len() as u8 - 1)
    }
    /// A block.
    pub fn b(&mut self, b: u8) -> &mut Block {
        &mut self.blocks[usize::from(b)]
    }
    /// What a CPU has in hand of a word.
    pub fn hand(&mut self, c: u8, b: u8, w: u8) -> &mut u8 {
        &mut self.cpus[usize::from(c)].hand[usize::from(b)][usize::from(w)]
    }
    /// No call runs.
    pub fn quiet(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.todo.is_empty())
    }
    /// Words that a CPU has a slot for.
    pub fn slots(&self, c: u8) -> Vec<(u8, u8)> {
        let hand = &self.cpus[usize::from(c)].hand;
        let words = (0..hand.len() as u8).flat_map(|b| (0..WORDS as u8).map(move |w| (b, w)));
        words.filter(|&(b, w)| hand[usize::from(b)][usize::from(w)] != NONE).collect()
    }

    /// Notes the first thing that must not be.
    pub fn must(&mut self, holds: bool, what: &'static str) {
        if !holds && self.broken.is_empty() {
            self.broken = what;
        }
    }

    /// These frames are their caller's.
    pub fn hand_out(&mut self, b: u8, w: u8, bits: u8) {
        let being_freed =
            self.cpus.iter().flat_map(|cpu| &cpu.todo).any(|d| (d.b, d.w) == (b, w) && d.freed & bits != 0);
        self.beyond |= being_freed;
        let block = *self.b(b);
        let w = usize::from(w);
        self.must(block.used[w] & bits == 0 || being_freed, "a frame is handed out twice");
        self.must(block.owed[w] & bits == 0 || being_freed, "a frame is handed out that is free in another place too");
        self.must(block.tag.0 != State::Absent, "a frame is handed out of memory that is gone");
        self.b(b).used[w] |= bits;
    }

    /// A free of these frames was accepted.
    pub fn accept(&mut self, b: u8, w: u8, bits: u8) {
        // Nobody can see that a frame is free which is on its way from its word into a whole block; and one that is on its way
        // to a caller is as good as handed out.
        let unseen = [HintLook, RetireLease, RetireTake, RetireEnd];
        let on_its_way = |d: &Do| unseen.contains(&d.kind) && transit(d, b, w) & bits != 0;
        self.beyond |= self.cpus.iter().flat_map(|cpu| &cpu.todo).any(on_its_way);
        let block = self.b(b);
        let w = usize::from(w);
        let twice = bits & !block.used[w];
        let thrice = twice & block.owed[w];
        block.used[w] &= !bits;
        block.owed[w] |= twice;
        let wronged = self.wronged;
        self.must(twice == 0 || wronged, "a right free counts as a double one");
        self.must(thrice == 0, "a frame is freed three times unseen");
    }

    /// A free of these frames was refused.
    pub fn refuse(&mut self, b: u8, w: u8, bits: u8) {
        let used = self.b(b).used[usize::from(w)];
        self.must(used & bits != bits, "a right free is refused");
    }

    /// These frames were freed twice, the host hears of it, and one of the two goes.
    pub fn late(&mut self, b: u8, w: u8, bits: u8) {
        let owed = &mut self.b(b).owed[usize::from(w)];
        let wrong = bits & !*owed;
        *owed &= !bits;
        self.must(wrong == 0, "a frame is called freed twice that was not");
    }

    /// Every frame is in exactly one place; whoever has frames in hand has the lease; what is listed is its holder's.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.broken.is_empty() {
            return Err(self.broken);
        }
        for (b, block) in self.blocks.iter().enumerate() {
            let todo = || self.cpus.iter().flat_map(|cpu| &cpu.todo).filter(|d| usize::from(d.b) == b);
            let filled = todo().any(|d| d.kind == SetSplit) && !todo().any(|d| d.kind == Fill);
            for w in 0..WORDS {
                let mut places = vec![block.used[w]];
                match block.tag.0 {
                    State::Whole if !filled => places.push(FULL),
                    State::Absent => places.push(FULL & !block.used[w]),
                    _ => places.push(block.words[w]),
                }
                if block.tag.0 == State::Whole && !filled || block.tag.0 == State::Absent {
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
                places.extend(todo().map(|d| transit(d, b as u8, w as u8)));
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
