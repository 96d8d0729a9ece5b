//! Emptying blocks, so that memory in use becomes whole blocks again: which block next, and how.
//!
//! ```text
//! emptiest    movable blocks, those with least in use first                      the board's rows lead to them
//! evacuate    isolate it; the caller moves what is in use; its guard's end       whole, or in use as before
//! ```
//!
//! **Which.** The board lists a block by its largest free run. A block whose largest run has `n`
//! frames has a frame in use in each `2n` of its 512, so its row says how much of it is in use at
//! least. The search goes through the rows from the largest runs down. It ends where no block of
//! the next row can have less in use than those that it has found.
//!
//! **How.** Emptying is an isolation of one block ([`isolate`](crate::memory::isolate)): nobody
//! allocates from it, and what is freed into it stays there. The frames that its contents move to
//! come from an ordinary request, which the board serves with the smallest run that will do. So
//! full blocks fill up, and no frame moves into a block that is being emptied.
//!
//! **If the caller stops.** It holds no lock and is inside no CPU's state. Others allocate and free
//! as ever; they lack the free frames of that one block until the guard ends.

use crate::block::words::count_of;
use crate::block::{Block, FRAMES, MOVABLE, bits};
use crate::memory::isolate::{Isolated, check_range};
use crate::zone::Zone;
use crate::zone::board::{CLASSES, row_of};
use crate::zone::moving::Movers;
use crate::{AllocError, FrameRange, Freehold, Migratetype, Pfn, Platform};

/// Blocks that one search of the board keeps.
const KEPT: usize = if cfg!(loom) { 2 } else { 32 };

/// What is emptied unless the caller says more, and what may be.
const MOVABLE_ALONE: &[usize] = &[MOVABLE];
const ANY_TYPE: &[usize] =
    &[Migratetype::Unmovable as usize, MOVABLE, Migratetype::Reclaimable as usize];

/// A block that could be emptied, as it was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SparseBlock {
    /// Frames in use, 1 to 511. What CPUs have in hand counts as in use.
    pub used: u16,
    /// Its first frame.
    pub start: Pfn,
}

impl SparseBlock {
    /// A block as one to be emptied, where it is one.
    fn of(block: Block<'_>, types: &[usize]) -> Option<Self> {
        let used = FRAMES as u32 - count_of(&block.words());
        let fits = can_be_emptied(block, types) && (1..FRAMES as u32).contains(&used);
        fits.then(|| Self { used: used as u16, start: Pfn::new(block.base()) })
    }
}

/// Whether a block is of one of these types and split, nothing of it missing, isolated by nobody.
fn can_be_emptied(block: Block<'_>, types: &[usize]) -> bool {
    types.iter().any(|&migratetype| block.tag.get().is_ordinary_of(migratetype))
}

/// Movable blocks by how little of them is in use: see [`Freehold::emptiest`].
pub struct Emptiest<'a, 'm, P, F> {
    fh: &'a Freehold<'m, P>,
    zone: Option<&'a Zone<'m>>,
    types: &'static [usize],
    wanted: F,
    /// Blocks that may still be looked at.
    looks: u32,
    /// What the last search has found, in order, and how many of these have been returned.
    found: [Option<SparseBlock>; KEPT],
    returned: usize,
    /// A block of the last search has got fuller, and is to be found anew.
    passed_over: bool,
    last: Option<SparseBlock>,
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Movable blocks of a zone with free and used frames, the one with least in use first, the
    /// lower of equal ones first; none where there is no such zone. Left out are blocks with holes,
    /// isolated ones, and those for which `wanted` is false. It is given a block's first frame, and
    /// tells what only the host knows: whether all in it can move, or needs no writing back.
    ///
    /// At most `looks` blocks are looked at. For every 32 blocks returned the board is searched
    /// once, and again for those that have got fuller meanwhile, by what moved there for one: each
    /// comes when it is its turn. Takes no lock.
    ///
    /// For clean blocks before others, chain two: `emptiest(z, n, clean).chain(emptiest(z, n,
    /// dirty))`. For an example see [`evacuate`](Self::evacuate).
    pub fn emptiest<F: FnMut(Pfn) -> bool>(
        &self,
        zone: usize,
        looks: u32,
        wanted: F,
    ) -> Emptiest<'_, 'm, P, F> {
        let zone = self.zones.get(zone);
        let found = [None; KEPT];
        Emptiest {
            fh: self,
            zone,
            types: MOVABLE_ALONE,
            wanted,
            looks,
            found,
            returned: 0,
            passed_over: false,
            last: None,
        }
    }

    /// Begins to empty the block that a frame lies in. Until what it returns is dropped, nothing is
    /// allocated from that block, and what is freed into it stays there. Afterwards the block is
    /// whole if nothing of it is in use, and in use as before if something is.
    ///
    /// Passes every CPU's door, with a heavy barrier where some have owners; else constant time.
    ///
    /// ```
    /// # use freehold::*;
    /// # let memory = [FrameRange::new(Pfn::new(0), 4096).unwrap()];
    /// # let zones = [ZoneConfig::new(&memory)];
    /// # let fh = Freehold::leaked(&Config::new(1, &zones), SingleCpu)?;
    /// # let page = Request::new(Order::ZERO, Migratetype::Movable);
    /// # let pages: Vec<_> = (0..1024).map(|_| fh.here().alloc(page).unwrap()).collect();
    /// # pages.iter().filter(|p| p.get() % 512 > 9).for_each(|&p| fh.here().free(p, Order::ZERO).unwrap());
    /// # fh.drain_all();
    /// let block = fh.emptiest(0, 100, |_| true).next().ok_or("nothing to empty")?;
    /// let mut emptying = fh.evacuate(block.start)?;
    /// emptying.move_used(|used| {
    ///     for old in used.start.get()..used.end.get() {
    ///         let Ok(new) = fh.here().alloc(page) else { return false };
    ///         // The host copies the frame `old` to `new`, and maps `new` in its place.
    /// #       assert_ne!(new.pageblock(), block.start);
    ///         fh.here().free(Pfn::new(old), Order::ZERO).unwrap();
    ///     }
    ///     true
    /// });
    /// assert!(emptying.finish(), "all of it has moved: 512 frames in a row are free");
    /// # fh.validate()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRange`] where not all of the block is one zone's memory.
    /// [`AllocError::Busy`] with its first frame where it is no movable block with free and used
    /// frames, is isolated already, or where somebody is stopped on the way with it. Nothing has
    /// changed then.
    pub fn evacuate(&self, pfn: Pfn) -> Result<Evacuation<'_, 'm, P>, AllocError> {
        let [only] = self.evacuate_each([pfn]);
        only
    }

    /// [`evacuate`](Self::evacuate) of a block of any migratetype that single frames come from: see
    /// [`Emptiest::of_any_type`].
    ///
    /// # Errors
    ///
    /// As `evacuate`, but for the block's type.
    pub fn evacuate_any_type(&self, pfn: Pfn) -> Result<Evacuation<'_, 'm, P>, AllocError> {
        let [only] = self.evacuate_those([pfn], ANY_TYPE);
        only
    }

    /// [`evacuate`](Self::evacuate) of several blocks, of each by itself: all CPUs' doors are passed
    /// once, with one heavy barrier for all blocks.
    pub fn evacuate_each<const N: usize>(
        &self,
        pfns: [Pfn; N],
    ) -> [Result<Evacuation<'_, 'm, P>, AllocError>; N] {
        self.evacuate_those(pfns, MOVABLE_ALONE)
    }

    fn evacuate_those<const N: usize>(
        &self,
        pfns: [Pfn; N],
        types: &[usize],
    ) -> [Result<Evacuation<'_, 'm, P>, AllocError>; N] {
        let begun = pfns.map(|pfn| Evacuation::begin(self, pfn, types));
        if begun.iter().all(Result::is_err) {
            return begun;
        }
        Isolated::end_leases(self);
        // A block may be on the way to becoming whole, by whoever has emptied it before.
        let arrived = Movers(self).wait();
        begun.map(|evacuation| {
            evacuation.and_then(|evacuation| {
                let busy = AllocError::Busy { pfn: evacuation.start() };
                // Another type may have claimed it before it was isolated: what it holds may not
                // move.
                if arrived && types.contains(&evacuation.block.tag.get().migratetype()) {
                    Ok(evacuation)
                } else {
                    Err(busy)
                }
            })
        })
    }
}

impl<'a, 'm, P: Platform, F: FnMut(Pfn) -> bool> Emptiest<'a, 'm, P, F> {
    /// Goes through blocks of every migratetype that single frames come from, not of movable ones
    /// alone: `wanted` knows that what a block holds can move. Requests that found nothing of their
    /// own type have left movable frames in blocks of others, and some hold no other frames.
    /// [`Freehold::evacuate_any_type`] empties such a block.
    #[must_use]
    pub fn of_any_type(self) -> Self {
        Self { types: ANY_TYPE, ..self }
    }

    /// How many blocks it may still look at.
    #[must_use]
    pub fn looks_left(&self) -> u32 {
        self.looks
    }

    /// Looks for the blocks behind the last one that was returned.
    fn search(&mut self, zone: &'a Zone<'m>) {
        (self.found, self.returned, self.passed_over) = ([None; KEPT], 0, false);
        let (fh, last) = (self.fh, self.last);
        for class in (1..=CLASSES).rev() {
            // In each run twice as large as its largest free one a frame is in use.
            let least = FRAMES as u16 >> class;
            if self.found[KEPT - 1].is_some_and(|worst| worst.used < least) {
                return;
            }
            let types = self.types;
            let mut look = |block: Block<'a>| {
                if self.looks == 0 {
                    return Some(());
                }
                self.looks -= 1;
                // A bit may be left in a row that the block is not in any more.
                if block.class() == class {
                    self.see(SparseBlock::of(block, types).filter(|&block| Some(block) > last));
                }
                None
            };
            let stopped = types.iter().find_map(|&migratetype| {
                zone.each_in_row_from(fh.outside(), row_of(migratetype, class), 0, &mut look)
            });
            if stopped.is_some() {
                return;
            }
        }
    }

    /// Keeps a block if it is one of the emptiest so far.
    fn see(&mut self, block: Option<SparseBlock>) {
        let Some(block) = block else { return };
        let place = self.found.iter().position(|kept| kept.is_none_or(|kept| block < kept));
        if let Some(place) = place.filter(|_| (self.wanted)(block.start)) {
            self.found[place..].rotate_right(1);
            self.found[place] = Some(block);
        }
    }
}

impl<P: Platform, F: FnMut(Pfn) -> bool> Iterator for Emptiest<'_, '_, P, F> {
    type Item = SparseBlock;

    fn next(&mut self) -> Option<SparseBlock> {
        let zone = self.zone?;
        loop {
            if self.returned == KEPT || self.found[self.returned].is_none() {
                // The last search has found all that there are.
                if self.last.is_some() && self.returned < KEPT && !self.passed_over {
                    return None;
                }
                self.search(zone);
            }
            let block = self.found[self.returned]?;
            self.returned += 1;
            let now = self.fh.map.locate(block.start.get());
            let now = now.and_then(|block| SparseBlock::of(block, self.types));
            let now = now.filter(|&now| {
                // Others may come first: those found, those not kept, and what was passed over.
                let has_more = self.returned == KEPT || self.passed_over;
                let next = self.found.get(self.returned).copied().flatten();
                let waits = next.or(has_more.then_some(block)).is_some_and(|next| now > next);
                self.passed_over |= waits;
                !waits
            });
            self.last = now.max(Some(block));
            if now.is_some() {
                return now;
            }
        }
    }
}

/// A block that is being emptied: see [`Freehold::evacuate`]. Whoever gives up drops it, be it by a
/// panic. If it is forgotten, the block stays as it is until [`Freehold::restore`].
#[must_use = "the block is in use again when this is dropped"]
pub struct Evacuation<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    block: Block<'m>,
}

impl<'a, 'm, P: Platform> Evacuation<'a, 'm, P> {
    /// Isolates the block that a frame lies in where it can be emptied, but for its leases.
    fn begin(fh: &'a Freehold<'m, P>, pfn: Pfn, types: &[usize]) -> Result<Self, AllocError> {
        let start = pfn.pageblock();
        check_range(fh, FrameRange { start, end: Pfn::new(start.get() + FRAMES as u64) })?;
        let block = fh.map.locate(start.get()).filter(|&block| can_be_emptied(block, types));
        let block = block.filter(|block| Isolated::block(fh, block.number.into()));
        block.map(|block| Self { fh, block }).ok_or(AllocError::Busy { pfn: start })
    }

    /// Its first frame.
    #[must_use]
    pub fn start(&self) -> Pfn {
        Pfn::new(self.block.base())
    }

    /// Frames of it in use now; only frees change that. Reads eight words.
    #[must_use]
    pub fn used(&self) -> u32 {
        FRAMES as u32 - count_of(&self.block.words())
    }

    /// Calls `mover` with each run of neighbouring frames in use, by rising address, with no lock
    /// held: it moves their contents elsewhere and frees them, on any CPU and in any pieces. What
    /// it cannot move it leaves. It returns whether to go on: false where the rest is of no use.
    ///
    /// Returns how many frames are in use still. May be called again. Reads eight words for each
    /// run, of which there are 256 at most.
    pub fn move_used(&mut self, mut mover: impl FnMut(FrameRange) -> bool) -> u32 {
        let mut at = 0;
        while at < FRAMES {
            // Anew each time: others free meanwhile.
            let words = self.block.words();
            let start = bits::next(&words, at, false);
            let end = bits::next(&words, start, true);
            let frame = |at: usize| Pfn::new(self.block.base() + at as u64);
            if start < end && !mover(FrameRange { start: frame(start), end: frame(end) }) {
                break;
            }
            at = end;
        }
        self.used()
    }

    /// Ends it, as dropping does; whether nothing of the block is in use. It is whole then, unless
    /// somebody is allocating from it already.
    pub fn finish(self) -> bool {
        self.used() == 0
    }
}

impl<P: Platform> Drop for Evacuation<'_, '_, P> {
    fn drop(&mut self) {
        Isolated::restore(self.fh, u64::from(self.block.number));
        self.fh.outside().tell_pressure();
    }
}
