//! The protocol: what there is, and what each call does to it, one atomic step at a time.
//!
//! ```text
//! Block   tag (state, holder, isolated) | words | leases | class | which list it is on     as in `freehold::block`
//! Cpu     online | who is inside its door | what it has in hand of each word | a block it keeps
//! Todo    of each CPU: the steps that the call running on it has still to make, the next one last
//! shadow  which frames are in use, and which were freed once too often without the call seeing it
//! ```
//!
//! A step is one access to what others change without a lock, or a stretch of accesses to what a
//! lock or a door protects. Where the code chooses (the best word, the fullest block, a hint), the
//! model lets every choice happen. `docs/model.md` says what is left out.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

use crate::Kind::{self, *};
use crate::few::Few;

pub const WORDS: usize = 2; // of a block, and frames of a word
pub const FULL: u8 = 0b11; // all frames of a word
pub const ZONE: u8 = 0; // as a holder; groups are 1 and 2
pub const HAND: u8 = 9; // the holder of a whole block in a CPU's hand
pub const NONE: u8 = 0xff; // no CPU, no block, no lease, no slot
pub const EMPTY: u8 = 0x80; // in a lease: its CPU has nothing of the word in hand
pub const QUEUED: u8 = 0xee; // the class of a block that is announced
pub const CLASS_WHOLE: u8 = 3; // the class of a block of which all is free
pub const HOTPLUG: u8 = 3; // that lock's place among the locks

/// What a block's tag says of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Absent, // no memory
    Split,  // the words tell
    Whole,  // all free
    Taken,  // all in use
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    pub tag: (State, u8, bool), // state, holder, isolated
    pub words: [u8; WORDS],     // bits of free frames
    pub leases: [u8; WORDS],    // who leases each word
    pub class: u8, // 0 nothing, 1 a frame, 2 a word, 3 all, QUEUED; 0 of the zone's own
    pub known: u8, // shadow: the class by which the zone has listed it
    pub listed: bool, // on a list of its holder: partly free ones, whole ones, or the zone's bitmap
    pub inbox: u8, // the holder in whose inbox it is
    pub used: [u8; WORDS], // shadow: frames in use
    pub owed: [u8; WORDS], // shadow: frames freed once too often
}

impl Block {
    /// It has been listed with that class. The zone's own blocks tell of none: any free into one
    /// announces it.
    pub fn tell(&mut self, class: u8) {
        (self.class, self.known) = if self.tag.1 == ZONE { (0, class) } else { (class, 0) };
    }
}

/// One CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    pub online: bool,           // it may lease words
    pub door: u8,               // who is inside its state
    pub hand: [[u8; WORDS]; 2], // of each word: what is in hand, or NONE where there is no slot for it
    pub kept: u8,               // a whole block that it keeps
}

/// A step, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Do {
    pub kind: Kind,
    pub c: u8,     // the CPU whose state it is done to
    pub h: u8,     // a holder
    pub b: u8,     // a block
    pub w: u8,     // a word of it
    pub bits: u8,  // frames of that word that are on their way
    pub freed: u8, // frames of that word that the call is to free
    pub n: u8,     // how far a call has got, or what it has learnt
}

/// What a CPU's thread has still to do; the last one is next.
pub type Todo = Few<Do, 28>;

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub memory: Memory,
    pub todo: Few<Todo, 3>,
}

/// All of a world but what is still to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    pub blocks: Few<Block, 2>,
    pub cpus: Few<Cpu, 3>,
    pub locks: [u8; 4], // who has the lock of the zone and of each group, and the hotplug lock
    pub left: [u8; 4],  // wrong frees, hotplugs, isolations and preemptions that may still happen
    pub wronged: bool,  // a wrong free has been made: a call may be refused
    pub last: u8,       // whose step was the last one, while its call is not over
    pub broken: &'static str, // what must not be; empty while all is well
    pub beyond: bool,   // not judged: see `hand_out` and `accept`
}

impl Deref for World {
    type Target = Memory;
    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

/// A step about nothing in particular.
pub const fn just(kind: Kind) -> Do {
    Do { kind, c: NONE, h: NONE, b: NONE, w: NONE, bits: 0, freed: 0, n: 0 }
}

impl Hash for Do {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { kind, c, h, b, w, bits, freed, n } = *self;
        state.write_u64(u64::from_le_bytes([kind as u8, c, h, b, w, bits, freed, n]));
    }
}

impl Do {
    pub const fn at(kind: Kind, b: u8, w: u8) -> Self {
        Self { b, w, ..just(kind) }
    }
    pub const fn block(kind: Kind, b: u8) -> Self {
        Self { b, ..just(kind) }
    }
    pub const fn cpu(kind: Kind, c: u8) -> Self {
        Self { c, ..just(kind) }
    }
    pub const fn held(kind: Kind, h: u8) -> Self {
        Self { h, ..just(kind) }
    }
    pub const fn with(self, bits: u8) -> Self {
        Self { bits, ..self }
    }
    pub const fn n(self, n: u8) -> Self {
        Self { n, ..self }
    }
    pub const fn then(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
    /// About each word of its block.
    pub fn words(self) -> impl DoubleEndedIterator<Item = Self> {
        (0..WORDS as u8).map(move |w| Self { w, ..self })
    }
    /// Frames of that word that this step has on their way: in no place that shows them.
    pub fn transit(&self, b: u8, w: u8) -> u8 {
        match self.kind {
            Look | LeaseBack | PutBack | HintLook if (self.b, self.w) == (b, w) => self.bits,
            RetireLease | RetireTake if self.b == b && w < self.w => FULL,
            RetireEnd if self.b == b => FULL,
            _ => 0,
        }
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

impl World {
    /// All memory whole and the zone's.
    pub fn new(cpus: u8, blocks: u8, left: [u8; 4]) -> Self {
        let block = Block {
            tag: (State::Whole, ZONE, false),
            words: [0; WORDS],
            leases: [NONE; WORDS],
            class: 0,
            known: 0,
            listed: true,
            inbox: NONE,
            used: [0; WORDS],
            owed: [0; WORDS],
        };
        let hand = [[NONE; WORDS]; 2];
        let cpu = Cpu { online: true, door: NONE, hand, kept: NONE };
        let memory = Memory {
            blocks: Few::of(block, blocks.into()),
            cpus: Few::of(cpu, cpus.into()),
            locks: [NONE; 4],
            left,
            wronged: false,
            last: NONE,
            broken: "",
            beyond: false,
        };
        Self { memory, todo: Few::of(Todo::new(just(Enter)), cpus.into()) }
    }

    /// CPUs 0 and 1 are group 1, CPU 2 is group 2.
    pub fn group(c: u8) -> u8 {
        c / 2 + 1
    }
    pub fn groups(&self) -> u8 {
        Self::group(self.cpus.len() as u8 - 1)
    }
    pub fn b(&mut self, b: u8) -> &mut Block {
        &mut self.blocks[usize::from(b)]
    }
    pub fn cpu(&mut self, c: u8) -> &mut Cpu {
        &mut self.cpus[usize::from(c)]
    }
    /// The word that a step is about.
    pub fn word(&mut self, d: Do) -> &mut u8 {
        &mut self.b(d.b).words[usize::from(d.w)]
    }
    /// Its lease.
    pub fn lease(&mut self, d: Do) -> &mut u8 {
        &mut self.b(d.b).leases[usize::from(d.w)]
    }
    /// What the step's CPU has in hand of it.
    pub fn hand(&mut self, d: Do) -> &mut u8 {
        &mut self.cpu(d.c).hand[usize::from(d.b)][usize::from(d.w)]
    }
    /// Words that a CPU has a slot for, as the step that ends their lease.
    pub fn slots(&self, c: u8) -> Few<Do, 4> {
        let hand = &self.cpus[usize::from(c)].hand;
        let words =
            (0..self.blocks.len() as u8).flat_map(|b| Do { c, ..Do::block(EndLease, b) }.words());
        let mut slots = Few::new(just(EndLease));
        slots.extend(words.filter(|d| hand[usize::from(d.b)][usize::from(d.w)] != NONE));
        slots
    }
    /// What a CPU's thread has still to do.
    pub fn of(&mut self, t: u8) -> &mut Todo {
        &mut self.todo[usize::from(t)]
    }
    /// Whether no call runs there.
    pub fn rests(&self, t: u8) -> bool {
        self.todo[usize::from(t)].is_empty()
    }
    /// All steps that are still to be made.
    pub fn todo(&self) -> impl Iterator<Item = &Do> {
        self.todo.iter().flat_map(|todo| todo.iter())
    }
    pub fn quiet(&self) -> bool {
        self.todo().next().is_none()
    }

    /// Notes the first thing that must not be.
    pub fn must(&mut self, holds: bool, what: &'static str) {
        if !holds && self.broken.is_empty() {
            self.broken = what;
        }
    }

    /// These frames of a word are their caller's.
    pub fn hand_out(&mut self, d: Do, bits: u8) {
        let being_freed =
            self.todo().any(|other| (other.b, other.w) == (d.b, d.w) && other.freed & bits != 0);
        self.beyond |= being_freed;
        let (block, w) = (*self.b(d.b), usize::from(d.w));
        self.must(block.used[w] & bits == 0 || being_freed, "a frame is handed out twice");
        self.must(
            block.owed[w] & bits == 0 || being_freed,
            "a frame is handed out that is free in another place too",
        );
        self.must(block.tag.0 != State::Absent, "a frame is handed out of memory that is gone");
        self.b(d.b).used[w] |= bits;
    }

    /// A free of these frames was accepted.
    pub fn accept(&mut self, d: Do, bits: u8) {
        // Nobody can see that a frame is free which is on its way from its word into a whole block;
        // and one that is on its way to a caller is as good as handed out.
        let hidden = [HintLook, RetireLease, RetireTake, RetireEnd];
        let on_its_way =
            |other: &Do| hidden.contains(&other.kind) && other.transit(d.b, d.w) & bits != 0;
        let unseen = self.todo().any(on_its_way);
        self.beyond |= unseen;
        let (wronged, w) = (self.wronged, usize::from(d.w));
        let block = self.b(d.b);
        let twice = bits & !block.used[w];
        let thrice = twice & block.owed[w];
        block.used[w] &= !bits;
        block.owed[w] |= twice;
        self.must(twice == 0 || wronged, "a right free counts as a double one");
        self.must(thrice == 0, "a frame is freed three times unseen");
    }

    /// A free of these frames was refused.
    pub fn refuse(&mut self, d: Do, bits: u8) {
        let used = self.b(d.b).used[usize::from(d.w)];
        self.must(used & bits != bits, "a right free is refused");
    }

    /// These frames were freed twice, the host hears of it, and one of the two goes.
    pub fn late(&mut self, d: Do, bits: u8) {
        let owed = &mut self.b(d.b).owed[usize::from(d.w)];
        let wrong = bits & !*owed;
        *owed &= !bits;
        self.must(wrong == 0, "a frame is called freed twice that was not");
    }
}
