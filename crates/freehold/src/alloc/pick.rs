//! A CPU chooses the next block to take frames of.
//!
//! | | where | when |
//! |---|---|---|
//! | (in use) | the block that it took frames of last | nearly all memory is whole, or no larger run of it is broken up |
//! | recover | the zone's board: the smallest class that will do, and of those the lowest block | there is one |
//! | claim | a wholly free block | there is none |
//! | fallback | a block of another type, if at least half of it is free; then frames of any block; both at the zone's upper end before elsewhere, for what cannot be moved | nothing else is left |
//!
//! None of it takes a lock: another thread that chooses the same block takes other words of it.

use crate::block::words::{count_of, find_run};
use crate::block::{
    Block, FRAMES, HIGH_ATOMIC, MOVABLE, SECTION_BLOCKS, SECTION_BLOCKS_LOG, WORDS, bits,
};
use crate::cpu::lease::Purpose;
use crate::cpu::{By, Inside};
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::zone::Zone;
use crate::zone::board::{CLASSES, LOOSE, row_of};
use crate::{AllocFlags, Migratetype, Platform, Request};

/// Single frames and runs of order 1 may come from a block in use whose largest run is of order 2:
/// with less each few frames would ask the board, with more larger runs are broken up.
const SMALL_CLASS: u8 = 3;
/// Blocks in which other CPUs lease words that are passed over where each CPU may have its own.
/// Without that 2 to 16 CPUs write 2 to 18 % more of what they share; contiguity is the same.
const PASSED_OVER: u32 = 8;
/// Blocks that a request for whole words looks at before it splits a whole one: each may have less
/// than its class says, and there may be many of those.
const LOOKS_FOR_WORDS: u32 = 64;
/// Blocks of another type looked at for one that is half free.
const LOOKS_FOR_FALLBACK: u32 = 16;

/// Free frames of a block that may lose loose ones before a run of four is broken up elsewhere.
/// With more of it free it may become whole, if it is left alone: without that bound short
/// processes on few CPUs left a fifth less of free memory in whole blocks. Where the host has taken
/// the memory of its larger runs away, what is loose is taken however much is free.
const MOST_FREE: u32 = FRAMES as u32 / 2;

/// How a CPU came by the next block to take frames of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RefillPhase {
    /// A partly free block.
    Recover = 0,
    /// A wholly free block was split.
    Claim = 1,
    /// A block of another migratetype was claimed.
    Fallback = 2,
}

/// What is looked for: a run of `order` (0 to 9) in a block of that type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) order: u32,
    pub(crate) migratetype: usize,
    pub(crate) flags: AllocFlags,
    /// From that block of the zone on, counted as by [`Zone::each_in_row_from`].
    pub(crate) from: u64,
}

impl Want {
    /// In blocks of the request's own type.
    #[inline(always)]
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            order: u32::from(request.order.get()),
            migratetype: request.migratetype as usize,
            flags: request.flags,
            from: 0,
        }
    }

    /// Without flags.
    #[inline(always)]
    pub(crate) const fn new(order: u32, migratetype: usize) -> Self {
        Self { order, migratetype, flags: AllocFlags::empty(), from: 0 }
    }

    #[inline(always)]
    pub(crate) fn purpose(self) -> Purpose {
        if self.order == 0 { Purpose::Frames } else { Purpose::Runs }
    }

    /// Whether it takes loose frames before it breaks up a run of four.
    #[inline(always)]
    pub(crate) fn is_for_loose(self) -> bool {
        self.order == 0 && self.migratetype == MOVABLE
    }

    /// The smallest class that will do.
    #[inline(always)]
    fn class(self) -> u8 {
        self.order as u8 + 1
    }

    /// A look for it in a zone, for somebody.
    #[inline(always)]
    pub(crate) fn pick<'c, 'm, P>(self, by: By<'c, 'm, P>, zone: &'m Zone<'m>) -> Pick<'c, 'm, P> {
        Pick { by, zone, want: self }
    }
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// From the block in use of a zone.
    #[inline]
    pub(crate) fn take_of_block_in_use(&self, zone: &Zone<'m>, want: Want) -> Option<u64> {
        let cursors = self.cursors(zone.id.into());
        let block = cursors.get(&self.fh.map.blocks, want.purpose(), want.migratetype)?;
        if !self.fits(block, zone, want) {
            return None;
        }
        self.take_of(block, want)
    }

    /// Whether a block may be used without a search of the board. Its class says that it has such a
    /// run; and no hands are to be emptied, which a request does that goes further; and unless
    /// nearly all of the zone is whole, it has no larger run than is taken, or is
    /// the one that the search would find: otherwise the board may know one that fits better, which
    /// is what keeps others whole.
    fn fits(&self, block: Block<'m>, zone: &Zone<'m>, want: Want) -> bool {
        let tag = block.tag.get();
        // Once: others change it.
        let class = block.class();
        class >= want.class()
            && tag.zone() == usize::from(zone.id)
            && tag.migratetype() == want.migratetype
            && zone.may_lease(self.by(), want.migratetype, want.order, want.flags)
            && !zone.has_hands_to_empty()
            && (zone.is_roomy()
                || class <= SMALL_CLASS.max(want.class())
                || self.is_next(block, zone, want, class))
    }

    /// Whether the block in use, whose class is larger than what is wanted, is the one that
    /// [`block`](Pick::block) would find, as far as a few glances tell.
    #[inline(never)]
    fn is_next(&self, block: Block<'m>, zone: &Zone<'m>, want: Want, class: u8) -> bool {
        let (fh, head) = (self.fh, block.head);
        let (board, row) = (&zone.board, row_of(want.migratetype, class));
        class <= CLASSES
            && board.are_empty(row_of(want.migratetype, want.class())..row)
            && !(want.is_for_loose() && board.has_any(LOOSE))
            && board.is_first(fh.map.blocks.rows(block), row, head.number)
            && !(zone.spread.get() && block.is_shared(self.by()))
    }

    /// Finds a split block with the run that is wanted and makes it this CPU's block in use. `None`
    /// where the zone has nothing of that type.
    pub(crate) fn refill(&self, zone: &'m Zone<'m>, want: Want) -> Option<Block<'m>> {
        self.cpu.counters.refills.add(1);
        let spread = zone.spread.get() && want.order < 6;
        let most = if want.order < 6 { u32::MAX } else { LOOKS_FOR_WORDS };
        let pick = want.pick(self.by(), zone);
        let (block, phase) = pick
            .block(spread, most)
            .map(|block| (block, RefillPhase::Recover))
            .or_else(|| Some((pick.split_whole()?, RefillPhase::Claim)))
            .or_else(|| {
                let rest = if most == u32::MAX { None } else { pick.block(spread, u32::MAX) };
                Some((rest?, RefillPhase::Recover))
            })?;
        self.came_by(zone, want, block, phase);
        Some(block)
    }

    /// A block is the one in use from now on; the one before it may become whole.
    pub(crate) fn came_by(
        &self,
        zone: &Zone<'m>,
        want: Want,
        block: Block<'m>,
        phase: RefillPhase,
    ) {
        self.cpu.counters.by_phase[phase as usize].add(1);
        let cursors = self.cursors(zone.id.into());
        let before = cursors.get(&self.fh.map.blocks, want.purpose(), want.migratetype);
        if want.purpose() == Purpose::Runs {
            self.cpu.runs_from.set(block, 0);
        }
        if before == Some(block) {
            return;
        }
        self.holds();
        cursors.set(want.purpose(), want.migratetype, block);
        if let Some(before) = before {
            self.by().leave(before);
        }
    }
}

impl<'m, P: Platform> By<'_, 'm, P> {
    /// A block is not in use any more: what is wholly free becomes whole.
    pub(crate) fn leave(self, block: Block<'m>) {
        if block.class() >= CLASSES && block.tag.get().is_open() {
            self.raise(block);
        }
    }
}

/// A look for what is wanted in a zone, for somebody.
pub(crate) struct Pick<'c, 'm, P> {
    by: By<'c, 'm, P>,
    zone: &'m Zone<'m>,
    want: Want,
}

impl<'m, P: Platform> Pick<'_, 'm, P> {
    /// The block of the smallest class of that type that has the run that is wanted, and of those
    /// the lowest. Looks at `most` blocks. If `spread`, blocks in which others lease words are
    /// passed over, a few of them.
    pub(crate) fn block(&self, spread: bool, mut most: u32) -> Option<Block<'m>> {
        let Self { by, zone, want } = *self;
        let classes = if want.migratetype < HIGH_ATOMIC { CLASSES } else { want.class() };
        let mut shared = None;
        let mut passed_over = 0;
        let mut next = want.class();
        let mut asks_loose = want.is_for_loose();
        while next <= classes {
            let listed = zone.board.smallest(want.migratetype, next);
            if asks_loose && listed.is_none_or(|class| class > SMALL_CLASS) {
                // Rather than that a run of four is broken up.
                asks_loose = false;
                if let Some(block) = self.loose() {
                    return Some(block);
                }
            }
            let class = listed?;
            next = class + 1;
            let row = row_of(want.migratetype, class);
            let found = zone.each_in_row_from(by, row, want.from, |block| {
                if most == 0 {
                    return Some(None);
                }
                let (tag, known) = (block.tag.get(), block.class());
                let right = known == class && tag.is_open_of(want.migratetype, zone.id);
                let known = if right { Some(known) } else { by.class_in_row(block, zone, row) };
                if known.is_some_and(|known| known < want.class()) {
                    // One of a type whose blocks are all in one row.
                    return None;
                }
                most -= 1;
                let known = known?;
                if !block.has_open_run(want.order) {
                    by.lower(block, known, want.class());
                    return None;
                }
                if spread && passed_over < PASSED_OVER && block.is_shared(by) {
                    passed_over += 1;
                    shared.get_or_insert(block);
                    return None;
                }
                Some(Some(block))
            });
            if let Some(found) = found {
                return found.or(shared);
            }
            if shared.is_some() {
                return shared;
            }
        }
        None
    }

    /// A movable block with loose frames beside a large run, at most half of it free: in the lowest
    /// section that has one that of the smallest class, so that the others may become whole.
    fn loose(&self) -> Option<Block<'m>> {
        let Self { by, zone, want } = *self;
        if !zone.board.has_any(LOOSE) {
            return None;
        }
        zone.each_section_in_row(by, LOOSE, 0, |first, word| {
            let rows = by.fh.map.blocks.rows(first);
            let mut left = word;
            let classes = SMALL_CLASS + 1..=CLASSES;
            let by_class = classes.map(|class| word & rows.row(row_of(want.migratetype, class)));
            let mut blocks = by_class.flat_map(|blocks| {
                left &= !blocks;
                bits::each(blocks)
            });
            let block = |bit: u32| by.fh.map.blocks.beside(first, bit);
            let found = blocks.by_ref().map(block).find(|&block| {
                let tag = block.tag.get();
                let words = block.open_words();
                let right = tag.is_open()
                    && tag.migratetype() == want.migratetype
                    && words.iter().any(|&word| bits::loose(word) != 0)
                    && (count_of(&words) <= MOST_FREE || self.only_loose_in_memory(block, &words));
                if !right {
                    by.unlist_loose(block, zone);
                }
                right
            });
            drop(blocks);
            if found.is_none() {
                // All that those have is loose, and their classes say so.
                bits::each(left).map(block).for_each(|block| by.unlist_loose(block, zone));
            }
            found
        })
    }

    /// Whether a block has loose frames in memory, and free ones that are not: it is no use to have
    /// it whole, and what is loose costs nothing.
    fn only_loose_in_memory(&self, block: Block<'m>, words: &[u64; WORDS]) -> bool {
        let base = block.base();
        let (mut loose, mut absent) = (0, 0);
        for (w, &word) in words.iter().enumerate() {
            let there = self.by.fh.platform.frames_in_memory(base, w);
            loose |= bits::loose(word) & there;
            absent |= word & !there;
        }
        loose != 0 && absent != 0
    }

    /// A block of another type that is at least half free becomes one of the wanted type (Linux
    /// 6.12 and later). Movable requests claim only what has a large run, since they can be moved
    /// out of the way later; with NO_FRAGMENT nothing is.
    pub(crate) fn fallback(&self) -> Option<Block<'m>> {
        let Self { by, zone, want } = *self;
        if want.flags.contains(AllocFlags::NO_FRAGMENT)
            || want.order >= 9
            || want.migratetype >= HIGH_ATOMIC
        {
            return None;
        }
        let movable = want.migratetype == MOVABLE;
        let smallest = if movable { want.order.max(4) } else { want.order };
        for &fallback in Migratetype::PCP[want.migratetype].fallbacks() {
            let mut looks = LOOKS_FOR_FALLBACK;
            // From the largest run on: what has that is likeliest to be half free.
            for class in (smallest as u8 + 1..=CLASSES).rev() {
                let row = row_of(fallback as usize, class);
                let found = zone.each_in_row_from(by, row, want.from, |block| {
                    if looks == 0 {
                        return Some(None);
                    }
                    looks -= 1;
                    let tag = block.tag.get();
                    let words = block.open_words();
                    let half = count_of(&words) >= FRAMES as u32 / 2;
                    let fits = by.class_in_row(block, zone, row).is_some()
                        && half
                        && find_run(&words, want.order).is_some();
                    let claimed = fits && by.retype(block, tag, want.migratetype);
                    claimed.then_some(Some(block))
                });
                match found {
                    Some(Some(block)) => {
                        zone.counters.fallbacks.add_shared(1);
                        return Some(block);
                    }
                    Some(None) => break,
                    None => {}
                }
            }
        }
        None
    }

    /// A run straight out of a listed block of that type, past the leases.
    pub(crate) fn run(&self) -> Option<u64> {
        let Self { by, zone, want } = *self;
        // Others may be faster, but not for ever.
        for _ in 0..FRAMES {
            let block = self.block(false, u32::MAX)?;
            let found = block.claim(by, want.order);
            if found.is_some() {
                return found;
            }
            if !zone.leaves_mark(by, want.migratetype, 1 << want.order, want.flags) {
                // Somebody was faster with what is above the mark.
                return None;
            }
        }
        None
    }

    /// Serves one request out of what the zone has, as far as its watermarks allow: a run of order
    /// 0 to 8 of the wanted type, past the leases, breaking a whole block if need be.
    pub(crate) fn run_to_mark(&self) -> Option<u64> {
        let Self { by, zone, want } = *self;
        if want.flags.contains(AllocFlags::HIGH_ATOMIC) && zone.high_atomic_blocks.get() != 0 {
            let reserve = Want { migratetype: HIGH_ATOMIC, ..want };
            let found = reserve.pick(by, zone).run();
            if found.is_some() {
                return found;
            }
        }
        // HIGHATOMIC frames are looked at above or in the last resort only: they do not count here.
        let _granted = zone.reserve(by, want.migratetype, 1 << want.order, want.flags)?;
        self.run().or_else(|| self.split_whole()?.claim(by, want.order))
    }

    /// A whole block becomes a split one of the wanted type.
    fn split_whole(&self) -> Option<Block<'m>> {
        if self.want.migratetype >= HIGH_ATOMIC {
            return None;
        }
        let block = self.zone.take_whole(self.by, self.want)?;
        self.by.split(block, self.want.migratetype);
        Some(block)
    }
}

impl<'m> Zone<'m> {
    /// Calls `see` with each block that has a bit in a row, lowest first, until it returns
    /// something. From a block of the zone on, counted from the first of the zone's first section.
    pub(crate) fn each_in_row_from<T>(
        &'m self,
        by: By<'_, 'm, impl Platform>,
        row: usize,
        from: u64,
        mut see: impl FnMut(Block<'m>) -> Option<T>,
    ) -> Option<T> {
        let section = from >> SECTION_BLOCKS_LOG;
        self.each_section_in_row(by, row, section, |first, word| {
            let is_first = self.board.section_of(first.number) == section;
            let before = if is_first { from % SECTION_BLOCKS } else { 0 };
            let word = word >> before << before;
            bits::each(word).find_map(|bit| see(by.fh.map.blocks.beside(first, bit)))
        })
    }

    /// Calls `see` with the first block of each section, from one on, that has blocks in a row, and
    /// the section's word of that row, lowest first, until it returns something.
    pub(crate) fn each_section_in_row<T>(
        &'m self,
        by: By<'_, 'm, impl Platform>,
        row: usize,
        mut from: u64,
        mut see: impl FnMut(Block<'m>, u64) -> Option<T>,
    ) -> Option<T> {
        let mut writes = 0;
        let rows = |first: u64| {
            let block = by.fh.map.locate_block(first)?;
            Some((block, by.fh.map.blocks.rows(block)))
        };
        let found = loop {
            let Some((section, first, word)) = self.board.next(row, from, rows, &mut writes) else {
                break None;
            };
            let found = see(first, word);
            if found.is_some() {
                break found;
            }
            from = section + 1;
        };
        if writes != 0 {
            by.wrote(self, writes);
        }
        found
    }
}

const _: () = assert!(SECTION_BLOCKS_LOG <= 6 && CLASSES as usize == 9);
