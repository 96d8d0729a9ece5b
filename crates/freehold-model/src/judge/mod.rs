//! Judges histories of the real allocator: whether each step is one that the protocol has, made by
//! who may make it.
//!
//! ```text
//! freehold, feature conformance:  Step (cell, operation, value before and after)  \
//! the program that calls it:      Begin (the call), End (what it came to)          >  Event  ->  Judge  ->  Kind, or why not
//! ```
//!
//! The judge keeps a shadow of every cell, and beside it what no cell says: **where each frame
//! is**. It is in use, in its word, in one CPU's hand, in a whole block, or carried by the one
//! thread that has taken it and not put it down yet. A step moves frames from one place to another,
//! and only who has them may: so nothing is lost or doubled without a step being refused. Of a
//! thread that owes something (a look at the tag, an announcement) its next move, or the end of its
//! call, is refused until it has done so.
//!
//! | file | what |
//! |---|---|
//! | [`shadow`] | the state: blocks, CPUs, holders, and what each thread carries and owes |
//! | `blocks` | tags, whole blocks, lists, the bitmap |
//! | `words` | words, leases, hands |
//! | `announce` | classes, inboxes, what a lister has read |
//! | `doors` | doors, locks, CPUs that come and go |
//! | `calls` | what a call was given and what it came to; what is true while no call runs |
//!
//! What is judged and what is not: `docs/model.md`.

mod announce;
mod blocks;
mod calls;
mod doors;
pub mod shadow;
mod words;

use std::collections::BTreeMap;

use freehold::conformance::{Cell, Op, Shape, Step};

use crate::Kind;
use shadow::{Actor, Block, Cpu, Holder, Spot};

/// A thread.
pub type Who = u16;

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// An access to a cell.
    Step(Step),
    /// A call begins.
    Begin(Call),
    /// It ends: whether it succeeded, and the frames that the caller has from now on, as first
    /// frame and number.
    End(bool, Vec<(u64, u64)>),
    /// No call runs, and none has left anything behind.
    Quiet,
}

/// Something that happens, and whose doing it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The thread.
    pub who: Who,
    /// What.
    pub what: What,
}

/// A call and the frames that it is about, as first frame and number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// What for.
    pub task: Task,
    /// Those that it frees, adds or removes.
    pub frames: Vec<(u64, u64)>,
}

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// It asks for frames.
    Alloc,
    /// It frees some.
    Free,
    /// Memory comes.
    Add,
    /// Memory goes.
    Remove,
    /// Neither: ticks, drains, CPUs that come and go.
    Other,
}

/// Why an event is refused.
pub type Refusal = &'static str;

/// The step of the model that an event is, where it changes anything.
pub(crate) type Verdict = Result<Option<Kind>, Refusal>;

/// See the module's documentation.
pub struct Judge {
    pub(crate) shape: Shape,
    pub(crate) blocks: Vec<Block>,
    /// By block number, from the first block of the first section on.
    pub(crate) spots: Vec<Spot>,
    pub(crate) cpus: Vec<Cpu>,
    /// By zone and group.
    pub(crate) holders: Vec<Vec<Holder>>,
    pub(crate) hotplug: Option<Who>,
    pub(crate) actors: Vec<Actor>,
    /// Steps that changed something, by the model's name of them.
    pub kinds: BTreeMap<Kind, u64>,
    /// Steps, looks among them.
    pub steps: u64,
    /// Frames that were handed out while a wrong free of them was on its way: not judged.
    pub beyond: u64,
    /// Values are not compared with those written before: for tests of what is left of the
    /// judgement then.
    pub blind: bool,
}

impl Judge {
    /// For an allocator of which nothing is in use.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let end =
            shape.zones.iter().map(|(span, ..)| span.end.get().div_ceil(512)).max().unwrap_or(0);
        let first = shape.sections.0;
        let holders = |groups: u16| (0..=groups).map(|_| Holder::default()).collect();
        let mut this = Self {
            shape: shape.clone(),
            blocks: Vec::new(),
            spots: (first..end).map(|_| Spot::default()).collect(),
            cpus: (0..shape.cpus).map(|_| Cpu::default()).collect(),
            holders: shape.zones.iter().map(|&(_, _, groups)| holders(groups)).collect(),
            hotplug: None,
            actors: Vec::new(),
            kinds: BTreeMap::new(),
            steps: 0,
            beyond: 0,
            blind: false,
        };
        for range in &shape.memory {
            let frames = [(range.start.get(), range.end.get() - range.start.get())];
            for (n, w, bits) in shadow::words_of(&frames) {
                if let Some(spot) = this.spot(n) {
                    spot.present[w] |= bits;
                }
            }
        }
        this
    }

    /// Judges a whole history; the judge in the end. `blind`: see there.
    ///
    /// # Errors
    ///
    /// The number of the first event that is refused, and why.
    pub fn of(shape: &Shape, history: &[Event], blind: bool) -> Result<Self, (usize, Refusal)> {
        let mut judge = Self { blind, ..Self::new(shape) };
        history
            .iter()
            .enumerate()
            .try_for_each(|(at, event)| judge.event(event).map(drop).map_err(|why| (at, why)))?;
        Ok(judge)
    }

    /// Judges the next event; the step of the model that it is, where it changes anything.
    ///
    /// # Errors
    ///
    /// Why the protocol has no such step. What comes after it cannot be judged.
    pub fn event(&mut self, event: &Event) -> Verdict {
        let who = usize::from(event.who);
        while self.actors.len() <= who {
            self.actors.push(Actor::default());
        }
        match &event.what {
            What::Step(step) => self.step(event.who, step),
            What::Begin(call) => self.begin(event.who, call),
            What::End(ok, got) => self.end(event.who, *ok, got),
            What::Quiet => self.quiet(),
        }
    }

    /// The same for a step, without an event made of it.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn step(&mut self, a: Who, step: &Step) -> Verdict {
        while self.actors.len() <= usize::from(a) {
            self.actors.push(Actor::default());
        }
        if step.op == Op::Initial {
            return self.initial(step);
        }
        self.steps += 1;
        let known = self.value(step.cell).ok_or("there is no such cell")?;
        if *known != step.old && !self.blind {
            return Err("a value that nobody has written");
        }
        if step.op == Op::Load && step.old != step.new {
            return Err("a look changes something");
        }
        let verdict = match step.cell {
            Cell::Tag(b) => self.tag(a, b, step),
            Cell::Class(b) => self.class(a, b, step),
            Cell::Lease(b, w) => self.lease(a, b, w.into(), step),
            Cell::Word(b, w) => self.word(a, b, w.into(), step),
            Cell::List(b) => self.list(a, b, step),
            Cell::Next(b) => self.next(a, b, step),
            Cell::Busy(c) => self.busy(a, c, step),
            Cell::Intruder(c) => self.intruder(a, c, step),
            Cell::Online(c) => self.online(a, c, step),
            Cell::Kept(c, k) => self.kept(a, c, k, step),
            Cell::Key(c, slot) => self.key(a, c, slot.into(), step),
            Cell::Mask(c, slot) => self.mask(a, c, slot.into(), step),
            Cell::At(c, _) => self.may_change(a, c, step),
            Cell::Lock(z, g) => self.lock(a, z, g, step),
            Cell::Head(z, g) => self.head(a, z, g, step),
            Cell::Rest(z, g) => self.rest(a, z, g, step),
            Cell::Bits(z, w) => self.bits(a, z, w, step),
            Cell::Section(s) => self.section(s, step),
            Cell::Hotplug => self.hotplug_lock(a, step),
        }?;
        if step.op != Op::Load {
            *self.value(step.cell).ok_or("there is no such cell")? = step.new;
        }
        if let Some(kind) = verdict {
            *self.kinds.entry(kind).or_default() += 1;
        }
        Ok(verdict)
    }

    /// What is there when the judgement begins.
    fn initial(&mut self, step: &Step) -> Verdict {
        match step.cell {
            Cell::Section(s) => drop(self.section(s, step)?),
            Cell::Bits(z, w) => {
                for bit in shadow::each(step.new) {
                    let n = self.numbered(z, w, bit);
                    self.spot(n).ok_or("a bit beyond the zone")?.place = shadow::Place::Bitmap;
                }
            }
            Cell::Tag(b) => self.initial_tag(b, step.new)?,
            _ => {}
        }
        *self.value(step.cell).ok_or("there is no such cell")? = step.new;
        Ok(None)
    }

    /// The value of a cell, as far as the history tells.
    fn value(&mut self, cell: Cell) -> Option<&mut u64> {
        let block = match cell {
            Cell::Tag(b)
            | Cell::Class(b)
            | Cell::Lease(b, _)
            | Cell::Word(b, _)
            | Cell::List(b)
            | Cell::Next(b) => b,
            _ => 0,
        };
        while self.blocks.len() <= block as usize {
            self.blocks.push(Block::default());
        }
        let block = &mut self.blocks[block as usize];
        let at = |zone: u8, group: u16| (usize::from(zone), usize::from(group));
        Some(match cell {
            Cell::Tag(_) => &mut block.tag,
            Cell::Class(_) => &mut block.class,
            Cell::Lease(_, w) => &mut block.leases[usize::from(w)],
            Cell::Word(_, w) => &mut block.words[usize::from(w)],
            Cell::List(_) => &mut block.list,
            Cell::Next(_) => &mut block.next,
            Cell::Busy(c) => &mut self.cpus.get_mut(usize::from(c))?.busy,
            Cell::Intruder(c) => &mut self.cpus.get_mut(usize::from(c))?.intruder,
            Cell::Online(c) => &mut self.cpus.get_mut(usize::from(c))?.online,
            Cell::Kept(c, k) => &mut self.cpus.get_mut(usize::from(c))?.kept[usize::from(k)],
            Cell::Key(c, slot) => {
                &mut self.cpus.get_mut(usize::from(c))?.slots[usize::from(slot)].key
            }
            Cell::Mask(c, slot) => {
                &mut self.cpus.get_mut(usize::from(c))?.slots[usize::from(slot)].mask
            }
            Cell::At(c, slot) => {
                &mut self.cpus.get_mut(usize::from(c))?.slots[usize::from(slot)].at
            }
            Cell::Lock(z, g) => &mut self.holders.get_mut(at(z, g).0)?.get_mut(at(z, g).1)?.lock,
            Cell::Head(z, g) => &mut self.holders.get_mut(at(z, g).0)?.get_mut(at(z, g).1)?.head,
            Cell::Rest(z, g) => &mut self.holders.get_mut(at(z, g).0)?.get_mut(at(z, g).1)?.rest,
            Cell::Bits(z, w) => {
                self.holders.get_mut(usize::from(z))?.first_mut()?.bits.entry(w).or_default()
            }
            Cell::Section(s) => {
                let sections = &mut self.holders.first_mut()?.first_mut()?.sections;
                sections.entry(s).or_insert(shadow::NO_SECTION)
            }
            Cell::Hotplug => &mut self.holders.first_mut()?.first_mut()?.hotplug,
        })
    }
}
