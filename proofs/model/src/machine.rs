//! The shared cells of a small machine, and what must be true of them.
//!
//! ```text
//! block     2 words of 2 frames, a lease for each word, class, tag
//! board     rows[type][class]: bit b = block b; any: bit for each row
//! zone      the bitmap (one cell a block, so that a run of two blocks is two cells), its count,
//!           the count of frames in split blocks
//! CPU       door (busy, intruder), a slot for one leased word (key, hand), its count of frames
//! ```

use crate::access::{Stop, run};
use crate::calls::{Bug, Call};

pub(crate) const WORDS: usize = 2;
/// A word of which both frames are free.
pub(crate) const FULL: u8 = 0b11;
/// Classes: nothing, a frame, a word; a whole block has no class on the board.
pub(crate) const NONE: u8 = 0;
pub(crate) const WHOLE_CLASS: u8 = 3;
pub(crate) const BUSY: u8 = 9;
/// States in a tag, a flag, and the bit of the type.
pub(crate) const WHOLE: u8 = 0;
pub(crate) const SPLIT: u8 = 1;
pub(crate) const TAKEN: u8 = 2;
pub(crate) const STATE: u8 = 3;
pub(crate) const TYPE: u8 = 4;
pub(crate) const ISOLATED: u8 = 8;
/// In a lease: its CPU has nothing in hand, and anybody may take the word over.
pub(crate) const EMPTY: u8 = 0x80;
const BLOCKS: usize = 3;
const CPUS: usize = 3;
const CELLS: usize = BLOCKS * 8 + 8 + CPUS * 5;

/// Where a cell is.
#[derive(Clone, Copy)]
pub(crate) enum Cell {
    Word(usize, usize),
    Lease(usize, usize),
    Class(usize),
    Tag(usize),
    /// The block's bit in the zone's bitmap.
    Whole(usize),
    /// Not the protocol's: the block is isolated and its leases have ended.
    Settled(usize),
    Row(u8, u8),
    Any,
    /// Whole blocks that nobody has claimed.
    Count,
    SplitFree,
    /// Frames counted by threads that were inside no CPU's state.
    Outside,
    Busy(usize),
    Intruder(usize),
    Key(usize),
    Hand(usize),
    Delta(usize),
}

impl Cell {
    pub(crate) fn at(self) -> usize {
        let (board, cpus) = (BLOCKS * 8, BLOCKS * 8 + 8);
        match self {
            Self::Word(b, w) => b * 8 + w,
            Self::Lease(b, w) => b * 8 + 2 + w,
            Self::Class(b) => b * 8 + 4,
            Self::Tag(b) => b * 8 + 5,
            Self::Whole(b) => b * 8 + 6,
            Self::Settled(b) => b * 8 + 7,
            Self::Row(kind, class) => board + usize::from(kind * 2 + class - 1),
            Self::Any => board + 4,
            Self::Count => board + 5,
            Self::SplitFree => board + 6,
            Self::Outside => board + 7,
            Self::Busy(c) => cpus + c * 5,
            Self::Intruder(c) => cpus + c * 5 + 1,
            Self::Key(c) => cpus + c * 5 + 2,
            Self::Hand(c) => cpus + c * 5 + 3,
            Self::Delta(c) => cpus + c * 5 + 4,
        }
    }
}

/// The cells' values.
pub(crate) type Cells = [u8; CELLS];

/// What is searched: a machine, how it begins, and which calls its threads may make.
#[derive(Clone)]
pub struct Machine {
    /// Threads, each the owner of a CPU.
    pub cpus: usize,
    /// Blocks of four frames, 1 to 3.
    pub blocks: usize,
    /// Which calls may begin, in any order.
    pub menu: Vec<Call>,
    /// How many calls each thread makes.
    pub calls: u8,
    /// Frames in use at the beginning, bit 4 b + 2 w + f; the blocks that they lie in are split.
    pub used: u16,
    /// Whether every block has a bit in every row at the beginning, most of them stale.
    pub stale: bool,
    /// Whether CPU 0 leases the first word at the beginning, with nothing in hand.
    pub leased: bool,
    /// Free frames to be kept.
    pub mark: u8,
    /// A rule left out, to see that the search tells.
    pub bug: Option<Bug>,
}

impl Machine {
    /// Two CPUs and one block, of which nothing is used, without a mark.
    #[must_use]
    pub fn new(menu: &[Call], calls: u8) -> Self {
        Self {
            cpus: 2,
            blocks: 1,
            menu: menu.to_vec(),
            calls,
            used: 0,
            stale: false,
            leased: false,
            mark: 0,
            bug: None,
        }
    }
}

/// A thread: the call it is in, what that has read so far, and how many more it may begin.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Thread {
    pub(crate) call: Option<(Call, u8)>,
    pub(crate) log: Vec<u8>,
    pub(crate) left: u8,
}

/// One state of the machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub(crate) cells: Cells,
    /// Frames in use by somebody, who may free them from any CPU.
    pub(crate) held: u16,
    pub(crate) threads: Vec<Thread>,
}

pub(crate) fn class_of(words: [u8; WORDS]) -> u8 {
    match words {
        [FULL, FULL] => WHOLE_CLASS,
        [0, 0] => NONE,
        words => 1 + u8::from(words.contains(&FULL)),
    }
}

/// The frames of a block's words, as bits of the machine's.
pub(crate) fn frames(b: usize, w: usize, bits: u8) -> u16 {
    u16::from(bits) << (b * 4 + w * 2)
}

impl World {
    pub(crate) fn first(machine: &Machine) -> Self {
        let thread = Thread { call: None, log: Vec::new(), left: machine.calls };
        let threads = vec![thread; machine.cpus];
        let mut world = Self { cells: [0; CELLS], held: machine.used, threads };
        for b in 0..machine.blocks {
            let free = !(machine.used >> (b * 4)) as u8 & 0xf;
            if free == 0xf {
                world.set(Cell::Whole(b), 1);
                world.set(Cell::Count, world.get(Cell::Count) + 1);
                continue;
            }
            let words = [free & FULL, free >> 2];
            (0..WORDS).for_each(|w| world.set(Cell::Word(b, w), words[w]));
            let class = class_of(words);
            world.set(Cell::Tag(b), SPLIT);
            world.set(Cell::Class(b), class);
            world.set(Cell::SplitFree, world.get(Cell::SplitFree) + free.count_ones() as u8);
            if class != NONE {
                world.set(Cell::Row(0, class), world.get(Cell::Row(0, class)) | 1 << b);
                world.set(Cell::Any, world.get(Cell::Any) | 1 << (class - 1));
            }
        }
        if machine.leased {
            world.set(Cell::Lease(0, 0), 1);
            world.set(Cell::Key(0), 1);
        }
        if machine.stale {
            for row in [Cell::Row(0, 1), Cell::Row(0, 2), Cell::Row(1, 1), Cell::Row(1, 2)] {
                world.set(row, (1 << machine.blocks) - 1);
            }
            world.set(Cell::Any, 0xf);
        }
        world
    }

    pub(crate) fn get(&self, cell: Cell) -> u8 {
        self.cells[cell.at()]
    }

    fn set(&mut self, cell: Cell, value: u8) {
        self.cells[cell.at()] = value;
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.threads.iter().all(|thread| thread.call.is_none())
    }

    /// What must be true in every world.
    pub(crate) fn check(&self, machine: &Machine) -> Result<(), String> {
        for c in 0..machine.cpus {
            let key = usize::from(self.get(Cell::Key(c)) & 0xf);
            if key != 0 && self.get(Cell::Settled((key - 1) / 2)) != 0 {
                return Err(format!("CPU {c} has a word of an isolated block in hand"));
            }
        }
        if self.is_quiet() { self.check_quiet(machine) } else { self.check_steps(machine) }
    }

    /// Every call ends with all other threads stopped where they are, unless it waits at a door.
    fn check_steps(&self, machine: &Machine) -> Result<(), String> {
        let mut some = false;
        for t in (0..self.threads.len()).filter(|&t| self.threads[t].call.is_some()) {
            let mut world = self.clone();
            match run(machine, &mut world, t, 400) {
                Err(Stop::Budget) => {
                    return Err(format!("{:?} waits for a stopped thread", self.threads[t].call));
                }
                Err(Stop::Wrong(what)) => return Err(what),
                Ok(()) => some = true,
                Err(Stop::Blocked) => some |= world.cells != self.cells,
            }
        }
        if some { Ok(()) } else { Err("nobody can go on".into()) }
    }

    /// Nothing runs: every frame is in one place, and the board knows of all that is free.
    fn check_quiet(&self, machine: &Machine) -> Result<(), String> {
        let (mut seen, mut split) = (self.held, 0);
        let mut see = |frames: u16| {
            let twice = seen & frames != 0;
            seen |= frames;
            if twice { Err(format!("frames {frames:#b} are in two places")) } else { Ok(()) }
        };
        let mut wholes = 0;
        for b in 0..machine.blocks {
            let (tag, class) = (self.get(Cell::Tag(b)), self.get(Cell::Class(b)));
            let words = [0, 1].map(|w| self.get(Cell::Word(b, w)));
            let leases = [0, 1].map(|w| self.get(Cell::Lease(b, w)));
            split += words.iter().map(|word| word.count_ones() as u8).sum::<u8>();
            if self.get(Cell::Whole(b)) == 1 {
                wholes += 1;
                see(0xf << (b * 4))?;
                if tag & STATE != WHOLE || leases.iter().any(|&lease| lease & !EMPTY != 0) {
                    return Err(format!(
                        "block {b} is whole, with tag {tag} and leases {leases:?}"
                    ));
                }
                continue;
            }
            (0..WORDS).try_for_each(|w| see(frames(b, w, words[w])))?;
            let is_open = |w: usize| leases[w] == 0 || leases[w] & EMPTY != 0;
            let open = [0, 1].map(|w| if is_open(w) { words[w] } else { 0 });
            let truth = class_of(open);
            if class == BUSY || class < truth {
                return Err(format!("block {b} has class {truth}, is said to have {class}"));
            }
            let row = Cell::Row(u8::from(tag & TYPE != 0), class.clamp(1, 2));
            let shown = self.get(row) >> b & self.get(Cell::Any) >> (row.at() - BLOCKS * 8) & 1;
            if truth != NONE && shown == 0 {
                return Err(format!("block {b} is not on the board"));
            }
        }
        let mut counted = self.get(Cell::SplitFree).wrapping_add(self.get(Cell::Outside));
        for c in 0..machine.cpus {
            let (key, hand) = (self.get(Cell::Key(c)), self.get(Cell::Hand(c)));
            if let Some(key) = usize::from(key & 0xf).checked_sub(1) {
                see(frames(key / 2, key % 2, hand))?;
            }
            counted = counted.wrapping_add(self.get(Cell::Delta(c)));
        }
        // Each CPU but one may have been told at the same moment that there is a word left.
        if split + 4 * wholes + 2 * (machine.cpus as u8 - 1) < machine.mark {
            return Err(format!(
                "the mark is passed by more than a word a CPU: {split} + 4 * {wholes}"
            ));
        }
        if (counted, self.get(Cell::Count)) != (split, wholes) {
            return Err(format!("{split} frames and {wholes} blocks free, counted {counted}"));
        }
        if seen != (1 << (machine.blocks * 4)) - 1 {
            return Err(format!("frames are lost: only {seen:#b} are anywhere"));
        }
        self.check_all_can_be_had(machine)
    }

    /// The first CPU alone can have every frame that is free.
    fn check_all_can_be_had(&self, machine: &Machine) -> Result<(), String> {
        if machine.mark != 0 {
            return Ok(());
        }
        let mut world = self.clone();
        let free = machine.blocks as u32 * 4 - self.held.count_ones();
        for got in 0..free {
            world.threads[0].call = Some((Call::Frame, 0));
            let held = world.held;
            match run(machine, &mut world, 0, 400) {
                Ok(()) if world.held != held => {}
                Err(Stop::Wrong(what)) => return Err(what),
                _ => return Err(format!("{free} frames are free, one CPU finds {got}")),
            }
        }
        Ok(())
    }
}
