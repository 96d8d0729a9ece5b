//! What the judge knows: the cells' values, where each frame is, and what each thread carries and
//! owes.

use std::collections::BTreeMap;

use freehold::conformance::{EMPTY, NO_BLOCK, NO_KEY, NO_LIST, OWNERLESS, TagView};

use super::{Call, Judge, Task, Who};

/// Words of a block.
pub(crate) const WORDS: usize = 8;
/// A tag's states.
pub(crate) const ABSENT: u32 = 0;
pub(crate) const SPLIT: u32 = 1;
pub(crate) const WHOLE: u32 = 2;
pub(crate) const TAKEN: u32 = 3;
/// A section whose blocks are not set up.
pub(crate) const NO_SECTION: u64 = (NO_BLOCK >> 6) as u64;

/// A block whose metadata is set up.
pub(crate) struct Block {
    pub(crate) tag: u64,
    pub(crate) class: u64,
    pub(crate) leases: [u64; WORDS],
    pub(crate) words: [u64; WORDS],
    pub(crate) list: u64,
    pub(crate) next: u64,
    /// Its number, once that is known.
    pub(crate) number: Option<u64>,
    /// Frames in use.
    pub(crate) used: [u64; WORDS],
    /// Frames freed once too often without the call being told: they are in two places.
    pub(crate) owed: [u64; WORDS],
    /// Words that are full already of a block that is being split.
    pub(crate) filled: u8,
    /// The inbox it is in.
    pub(crate) inbox: Option<(u8, u16)>,
    /// Who has marked it and has to push it.
    pub(crate) marked: Option<Who>,
}

impl Default for Block {
    fn default() -> Self {
        let zero = [0; WORDS];
        Self {
            tag: 0,
            class: 0,
            leases: zero,
            words: zero,
            list: NO_LIST.into(),
            next: NO_BLOCK.into(),
            number: None,
            used: zero,
            owed: zero,
            filled: 0,
            inbox: None,
            marked: None,
        }
    }
}

impl Block {
    pub(crate) fn tag(&self) -> TagView {
        TagView::of(self.tag)
    }
}

/// Where the frames of a block are, by its number: its metadata may not be set up yet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// There is no such memory.
    #[default]
    Gone,
    /// All free, in the zone's bitmap.
    Bitmap,
    /// Its words tell.
    Split,
    /// All in use.
    Taken,
    /// All free, on a group's list of whole blocks.
    Listed,
    /// All free, its holder's, who has not looked at it yet.
    Loose,
    /// All free, in that thread's hand.
    Carried(Who),
    /// All free, kept by that CPU.
    Kept(u16),
}

/// See [`Place`].
#[derive(Clone, Default)]
pub(crate) struct Spot {
    pub(crate) place: Place,
    /// Frames that exist.
    pub(crate) present: [u64; WORDS],
    pub(crate) index: Option<u32>,
}

/// One leased word.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) key: u64,
    pub(crate) mask: u64,
    pub(crate) at: u64,
    /// Of the mask: frames that are back in their word already.
    pub(crate) stale: u64,
}

impl Slot {
    /// What is really in hand.
    pub(crate) fn hand(&self) -> u64 {
        self.mask & !self.stale
    }
    pub(crate) fn place(&self) -> (u32, usize) {
        ((self.at / 8) as u32, (self.at % 8) as usize)
    }
}

/// A CPU.
pub(crate) struct Cpu {
    pub(crate) busy: u64,
    pub(crate) intruder: u64,
    pub(crate) online: u64,
    pub(crate) kept: [u64; 2],
    pub(crate) slots: [Slot; 16],
    /// Who has said that its owner comes; who has locked it; who is inside.
    pub(crate) owner: Option<Who>,
    pub(crate) locked: Option<Who>,
    pub(crate) inside: Option<Who>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            busy: 0,
            intruder: OWNERLESS,
            online: 0,
            kept: [NO_BLOCK.into(); 2],
            slots: [Slot { key: NO_KEY, mask: 0, at: 0, stale: 0 }; 16],
            owner: None,
            locked: None,
            inside: None,
        }
    }
}

/// A group, or a zone itself, which is number 0 and has the bitmap; the first zone has what there
/// is only one of.
pub(crate) struct Holder {
    pub(crate) lock: u64,
    pub(crate) head: u64,
    pub(crate) rest: u64,
    pub(crate) by: Option<Who>,
    pub(crate) bits: BTreeMap<u32, u64>,
    pub(crate) sections: BTreeMap<u32, u64>,
    pub(crate) hotplug: u64,
}

impl Default for Holder {
    fn default() -> Self {
        let none = u64::from(NO_BLOCK);
        let (bits, sections) = Default::default();
        Self { lock: 0, head: none, rest: none, by: None, bits, sections, hotplug: 0 }
    }
}

/// Where carried frames come from, which says what has to be looked at before they are put down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// A word, past the leases: the block is split still and nobody leases the word, looked at
    /// afterwards.
    Past,
    /// A word that the thread's CPU leases: the tag, looked at afterwards.
    Lease,
    /// A hand.
    Hand,
    /// Nowhere: they are in use until the step that frees them, before which the tag and the
    /// leaseholder's hand are looked at.
    Freed,
}

/// Frames of a word that a thread carries, or is to free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) b: u32,
    pub(crate) w: usize,
    pub(crate) bits: u64,
    pub(crate) from: From,
    /// The tag was looked at, and was right; so was the lease, or the hand that it names.
    pub(crate) tag: bool,
    pub(crate) lease: bool,
    /// The CPU whose hand has to be looked at.
    pub(crate) hand: Option<u16>,
}

impl Carried {
    pub(crate) fn new(b: u32, w: usize, bits: u64, from: From) -> Self {
        Self { b, w, bits, from, tag: false, lease: false, hand: None }
    }
    /// Taken past the leases, and found right afterwards: the call's, whatever a later look shows.
    pub(crate) fn is_open(&self) -> bool {
        self.from == From::Past && self.tag && self.lease
    }
}

/// A call that a thread is in.
pub(crate) struct Frame {
    pub(crate) call: Call,
    pub(crate) carried: Vec<Carried>,
    /// Blocks in use as a whole that it has, by number.
    pub(crate) blocks: Vec<u64>,
    /// What it was given to free and has not freed yet. Any number of calls may be given the same
    /// frames: whose step frees one has freed it, whoever began first.
    pub(crate) frees: Vec<Carried>,
    /// Not all that it was given was in use all the time until it freed it: it may be refused.
    pub(crate) wronged: bool,
}

impl Frame {
    /// All that a look at a cell is about.
    pub(crate) fn looking(&mut self) -> impl Iterator<Item = &mut Carried> {
        self.carried.iter_mut().chain(&mut self.frees)
    }
    pub(crate) fn new(call: Call) -> Self {
        Self { call, carried: Vec::new(), blocks: Vec::new(), frees: Vec::new(), wronged: false }
    }
}

/// What a lister has read of a block since it began.
pub(crate) struct View {
    pub(crate) b: u32,
    /// The words; none where not read yet.
    pub(crate) words: [Option<u64>; WORDS],
    /// The words whose lease it has read.
    pub(crate) leases: u8,
    /// Those of which it saw last, or has seen to it, that nobody is named.
    pub(crate) unnamed: u8,
    /// It has made all of the block free itself.
    pub(crate) filled: bool,
}

/// A thread.
pub(crate) struct Actor {
    /// The calls that it is in; the first one is none.
    pub(crate) calls: Vec<Frame>,
    /// Words that it has read while inside a CPU's state, the newest last.
    pub(crate) seen: Vec<(u32, usize, u64)>,
    /// Words that it has put frames into, or ended the lease of, without having looked at the
    /// class; blocks that it has let go.
    pub(crate) tells: Vec<(u32, Option<usize>)>,
    /// A block whose mark it has taken back: the tag is looked at once more.
    pub(crate) again: Option<u32>,
    pub(crate) view: Option<View>,
    /// The class that it saw last, and of which block.
    pub(crate) class: Option<(u32, u64)>,
    /// Words whose lease names a CPU that it is inside of and that has no slot for them: it ends
    /// the lease, or looks again.
    pub(crate) named: Vec<(u32, usize)>,
    /// All that was in an inbox, by the first of it.
    pub(crate) fetched: u64,
    /// A block that it has taken out of an inbox and has to look at.
    pub(crate) popped: Option<u32>,
    /// A block that it has made a split one, all of it free.
    pub(crate) filled: Option<u32>,
    /// Whole blocks that it has, by number.
    pub(crate) holding: Vec<u64>,
    /// Blocks that it has marked and not pushed.
    pub(crate) marks: u32,
}

impl Default for Actor {
    fn default() -> Self {
        let outside = Frame::new(Call { task: Task::Other, frames: Vec::new() });
        let (seen, tells, holding, class, named) = Default::default();
        let (again, view, popped, filled, marks) = Default::default();
        let fetched = NO_BLOCK.into();
        Self {
            calls: vec![outside],
            seen,
            tells,
            again,
            view,
            class,
            named,
            fetched,
            popped,
            filled,
            holding,
            marks,
        }
    }
}

impl Actor {
    /// The call that it is in now.
    pub(crate) fn now(&mut self) -> &mut Frame {
        let last = self.calls.len() - 1;
        &mut self.calls[last]
    }
    /// Frames that it has taken.
    pub(crate) fn carry(&mut self, b: u32, w: usize, bits: u64, from: From) {
        if bits != 0 {
            self.now().carried.push(Carried::new(b, w, bits, from));
        }
    }
    /// It owes a look at the class.
    pub(crate) fn owes(&mut self, b: u32, w: Option<usize>) {
        if !self.tells.contains(&(b, w)) {
            self.tells.push((b, w));
        }
    }
    /// What it saw last of a word.
    pub(crate) fn saw(&self, b: u32, w: usize) -> Option<u64> {
        self.seen.iter().rev().find(|seen| (seen.0, seen.1) == (b, w)).map(|seen| seen.2)
    }
}

/// The bits that are set.
pub(crate) fn each(bits: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| bits >> bit & 1 == 1)
}

/// The words that ranges of frames touch: block number, word and bits.
pub(crate) fn words_of(ranges: &[(u64, u64)]) -> impl Iterator<Item = (u64, usize, u64)> + '_ {
    ranges.iter().flat_map(|&(start, frames)| {
        let end = start + frames;
        (start / 64..end.div_ceil(64)).map(move |key| {
            let (low, high) = (start.max(key * 64) - key * 64, end.min(key * 64 + 64) - key * 64);
            let bits = if high == 64 { !0 } else { (1 << high) - 1 };
            (key / 8, (key % 8) as usize, bits & (!0 << low))
        })
    })
}

impl Judge {
    pub(crate) fn spot(&mut self, number: u64) -> Option<&mut Spot> {
        let first = self.shape.sections.0;
        self.spots.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }
    pub(crate) fn b(&mut self, b: u32) -> &mut Block {
        &mut self.blocks[b as usize]
    }
    /// Whether there is such a block: an altered history may name any.
    pub(crate) fn there(&self, b: u32) -> Result<(), &'static str> {
        self.blocks.get(b as usize).map(|_| ()).ok_or("a block that is not set up")
    }
    pub(crate) fn actor(&mut self, a: Who) -> &mut Actor {
        &mut self.actors[usize::from(a)]
    }
    /// The spot of a block that is set up.
    pub(crate) fn spot_of(&mut self, b: u32) -> Result<&mut Spot, &'static str> {
        let number = self.b(b).number.ok_or("a block that is not set up")?;
        self.spot(number).ok_or("a block beyond the memory")
    }
    /// The number of the block that a bit of a bitmap stands for.
    pub(crate) fn numbered(&self, z: u8, w: u32, bit: u64) -> u64 {
        self.shape.zones[usize::from(z)].1 + u64::from(w) * 64 + bit
    }
    /// A block is somewhere else from now on.
    pub(crate) fn put(&mut self, number: u64, place: Place) -> Result<(), &'static str> {
        let spot = self.spot(number).ok_or("a block beyond the memory")?;
        let before = std::mem::replace(&mut spot.place, place);
        if let Place::Carried(by) = before {
            self.actor(by).holding.retain(|&held| held != number);
        }
        if let Place::Carried(by) = place {
            self.actor(by).holding.push(number);
        }
        Ok(())
    }
    /// Whether a thread has that holder's lock.
    pub(crate) fn holds(&self, a: Who, zone: u8, group: u16) -> bool {
        let holder =
            self.holders.get(usize::from(zone)).and_then(|zone| zone.get(usize::from(group)));
        holder.is_some_and(|holder| holder.by == Some(a))
    }
    /// Whether it has the lock of the block's holder.
    pub(crate) fn holds_block(&self, a: Who, b: u32) -> bool {
        let tag = self.blocks[b as usize].tag();
        self.holds(a, tag.zone, tag.group)
    }
    /// The CPU that a lease names, if the thread is inside its state.
    pub(crate) fn named(&self, a: Who, lease: u64) -> Option<usize> {
        let number = (lease & !u64::from(EMPTY)).wrapping_sub(1) as usize;
        self.cpus.get(number).filter(|cpu| cpu.inside == Some(a)).map(|_| number)
    }
    /// The slot of a word, in a state that the thread is inside of. A recall is inside several, and
    /// more than one may have a slot for the word: who had it before keeps its slot, with nothing
    /// in hand. Then it is the one of the CPU that the lease names.
    pub(crate) fn slot_inside(&mut self, a: Who, b: u32, w: usize) -> Option<&mut Slot> {
        let key = self.b(b).number? * 8 + w as u64;
        let lease = self.b(b).leases[w];
        let named = self.named(a, lease);
        let all = self.cpus.iter_mut().enumerate();
        let inside = all
            .filter(|(number, cpu)| named.map_or(cpu.inside == Some(a), |named| *number == named));
        inside.map(|(_, cpu)| &mut cpu.slots[(key % 16) as usize]).find(|slot| slot.key == key)
    }
}
