//! Feature `conformance`: every access to a cell of the protocol is told to a witness, in the one
//! order in which they happen.
//!
//! While somebody listens, each access takes one lock that is everybody's, is made, and is told
//! before the lock is given back: the history is exact and linear. What is judged with it is the
//! protocol, its steps and who makes them; what the orderings give is loom's part. Without the
//! feature nothing of this is compiled; with it and without a witness an access costs a load more.
//!
//! | file | what |
//! |---|---|
//! | `atomics` | the atomics of the whole crate, which tell |
//! | `places` | which cell an address is |
//! | [`record`] | a history as words of memory, for a machine that is judged elsewhere |
//! | `lock` | the one lock |

pub(crate) mod atomics;
#[expect(unsafe_code, reason = "a lock around a value; see there")]
mod lock;
mod places;
pub mod record;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::block::tag::{HOLES, ISOLATED, TYPES};
use crate::block::words::CLASSES;
use crate::group::lists;
use crate::types::section::SECTION_BLOCKS;
use crate::{FrameRange, Freehold, Pfn, Platform};
use lock::{Guard, Lock};
use places::Places;

/// No block.
pub const NO_BLOCK: u32 = crate::block::NONE;
/// The class of a block that is announced.
pub const CLASS_QUEUED: u8 = crate::block::words::CLASS_QUEUED;
/// The class of a block of which all is free.
pub const CLASS_WHOLE: u8 = crate::block::words::CLASS_WHOLE;
/// In a lease: its CPU has nothing of the word in hand.
pub const EMPTY: u16 = crate::block::words::EMPTY;
/// The key of a slot not in use.
pub const NO_KEY: u64 = crate::cpu::lease::NO_KEY;
/// On no list.
pub const NO_LIST: u16 = lists::NO_LIST;
/// In the zone's bitmap.
pub const IN_BITMAP: u16 = lists::IN_BITMAP;
/// On the list of whole blocks.
pub const WHOLE_LIST: u16 = lists::WHOLE_LIST;

/// In the word of a door that intruders write: one of them is inside.
pub const LOCKED: u64 = 1;
/// In the same: nobody owns the CPU.
pub const OWNERLESS: u64 = 2;

/// What is accessed. Blocks are named by their index, holders by zone and group, of which 0 is the
/// zone itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// A block's tag.
    Tag(u32),
    /// A block's class.
    Class(u32),
    /// Who leases a word of a block.
    Lease(u32, u8),
    /// A word of a block.
    Word(u32, u8),
    /// On which list a block is.
    List(u32),
    /// The block behind it in its inbox.
    Next(u32),
    /// A CPU's owner is inside, or on its way.
    Busy(u16),
    /// [`LOCKED`] and [`OWNERLESS`].
    Intruder(u16),
    /// Whether a CPU is online.
    Online(u16),
    /// A CPU's whole blocks, by place.
    Kept(u16, u8),
    /// The key of a CPU's slot.
    Key(u16, u8),
    /// What the CPU has in hand of it.
    Mask(u16, u8),
    /// The word that the slot is for: block times eight and word.
    At(u16, u8),
    /// A holder's lock.
    Lock(u8, u16),
    /// The block pushed last into a holder's inbox.
    Head(u8, u16),
    /// The next block of those that the holder has taken out.
    Rest(u8, u16),
    /// 64 bits of a zone's bitmap.
    Bits(u8, u32),
    /// Where a section's blocks are: their first index divided by the section's blocks.
    Section(u32),
    /// The lock of what CPUs and what memory there are.
    Hotplug,
}

/// How it is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// It is what it was when the witness came.
    Initial,
    /// A load, or an exchange that failed.
    Load,
    /// A store.
    Store,
    /// An exchange of whatever there is.
    Swap,
    /// A compare-exchange that succeeded.
    Exchange,
    /// `fetch_or`.
    Or,
    /// `fetch_and`.
    And,
}

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What.
    pub cell: Cell,
    /// How.
    pub op: Op,
    /// The operand.
    pub with: u64,
    /// What was there.
    pub old: u64,
    /// What is there now.
    pub new: u64,
}

/// What a tag says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagView {
    /// 0 absent, 1 split, 2 whole, 3 taken.
    pub state: u32,
    /// The type.
    pub migratetype: usize,
    /// Some frames do not exist.
    pub holes: bool,
    /// Being emptied.
    pub isolated: bool,
    /// The zone.
    pub zone: u8,
    /// The group; [`TagView::IN_HAND`] for a CPU.
    pub group: u16,
}

impl TagView {
    /// The group of a whole block that a CPU has in hand.
    pub const IN_HAND: u16 = crate::block::tag::IN_HAND;

    /// Reads a tag's value.
    #[must_use]
    pub fn of(value: u64) -> Self {
        let tag = crate::block::tag::Tag::of(value as u32);
        Self {
            state: tag.state(),
            migratetype: tag.migratetype(),
            holes: tag.has(HOLES),
            isolated: tag.has(ISOLATED),
            zone: tag.zone() as u8,
            group: tag.group(),
        }
    }
}

/// The type of the blocks on a list of partly free ones.
#[must_use]
pub fn type_of_list(list: u16) -> usize {
    usize::from(list) * TYPES / usize::from(WHOLE_LIST)
}

/// The class of the blocks on such a list; 0 where it is none.
#[must_use]
pub fn class_of_list(list: u16) -> u8 {
    lists::listed_class(list)
}

const _: () = assert!(WHOLE_LIST as usize % (TYPES * CLASSES) == 0);

/// What there is of everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// CPUs.
    pub cpus: u16,
    /// For each zone its span, the number of its bitmap's first block, and its groups.
    pub zones: Vec<(FrameRange, u64, u16)>,
    /// Where memory is.
    pub memory: Vec<FrameRange>,
    /// The first block of the first section, and the blocks of a section.
    pub sections: (u64, u64),
}

static ON: AtomicBool = AtomicBool::new(false);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static WITNESS: Lock<Option<Witness>> = Lock::new(None);
/// One allocator has a witness at a time; the others wait.
static ONE: Lock<()> = Lock::new(());

struct Witness {
    places: Places,
    told: Told,
}

/// Who is told of a step; it says how often the thread that made it should let others go on before
/// it does.
pub type Told = Box<dyn FnMut(&Step) -> u32 + Send>;

/// An allocator that has a witness, until this is dropped.
pub struct Witnessed<'a>(
    PhantomData<&'a ()>,
    #[expect(dead_code, reason = "held")] Guard<'static, ()>,
);

impl Drop for Witnessed<'_> {
    fn drop(&mut self) {
        // Relaxed: who sees it late finds no witness.
        ON.store(false, Ordering::Relaxed);
        *WITNESS.lock() = None;
    }
}

impl<P: Platform> Freehold<'_, P> {
    /// Tells `told` of every access to this allocator's cells, beginning with what they are, until
    /// what this returns is dropped. Nobody may be in a call now, no CPU may have anything in hand
    /// or an owner, nothing may be announced.
    #[must_use]
    pub fn witnessed(&self, mut told: Told) -> Witnessed<'_> {
        let one = ONE.lock();
        let places = Places::of(self);
        places::initial(self, &mut told);
        let (start, end) = places.span();
        *WITNESS.lock() = Some(Witness { places, told });
        // Relaxed: calls begin after this, by whatever way their threads come to know.
        START.store(start, Ordering::Relaxed);
        END.store(end, Ordering::Relaxed);
        ON.store(true, Ordering::Relaxed);
        Witnessed(PhantomData, one)
    }

    /// What there is now.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let piece = |r: &crate::block::map::MemoryRange| {
            use crate::primitive::Plain;
            FrameRange { start: Pfn::new(r.start.get()), end: Pfn::new(r.end.get()) }
        };
        Shape {
            cpus: self.cpus.len() as u16,
            zones: self
                .zones
                .iter()
                .map(|z| (z.span, z.first_block, z.groups.len() as u16))
                .collect(),
            memory: self.map.ranges.iter().map(piece).filter(|r| !r.is_empty()).collect(),
            sections: (self.map.first_section * SECTION_BLOCKS, SECTION_BLOCKS),
        }
    }
}

/// Makes an access, and tells of it if somebody listens.
#[inline]
pub(crate) fn access<T>(
    at: usize,
    op: Op,
    with: u64,
    value: impl Fn() -> u64,
    act: impl FnOnce() -> (T, bool),
) -> T {
    // Relaxed: see `witnessed`.
    let far = !ON.load(Ordering::Relaxed)
        || at < START.load(Ordering::Relaxed)
        || at >= END.load(Ordering::Relaxed);
    if far {
        return act().0;
    }
    let mut witness = WITNESS.lock();
    let (old, mut turns) = (value(), 0);
    let (result, done) = act();
    if let Some(witness) = &mut *witness {
        if let Some(cell) = witness.places.cell(at) {
            let op = if done { op } else { Op::Load };
            // Who waits for a lock looks any number of times.
            if op != Op::Load || !matches!(cell, Cell::Lock(..) | Cell::Hotplug) {
                turns = (witness.told)(&Step { cell, op, with, old, new: value() });
            }
        }
    }
    drop(witness);
    (0..turns).for_each(|_| lock::let_others_go_on());
    result
}
