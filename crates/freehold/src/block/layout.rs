//! The layout of the metadata: typed slices in the caller's memory.
//!
//! ```text
//! | CpuState ... | Cursors ... | Zone ... | bitmap words | ... | sections | Line ... | Head ... | Rows ... |
//!   each slice aligned to its type; all written at once           | [`Blocks`]: written section by section,
//!                                                                   on first use
//! ```
//!
//! One function lays it out and both [`Config::metadata_size`](crate::Config::metadata_size) and
//! [`Freehold::new`](crate::Freehold::new) run it, so they cannot disagree.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::words::{Head, Line};
use super::{Block, FRAMES};
use crate::block::{SECTION_BLOCKS, SECTION_BLOCKS_LOG};
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Relaxed};
use crate::zone::board::Rows;

/// The alignment that the start of the metadata is brought to.
pub(crate) const ALIGN: usize = 128;

/// Places one slice of metadata behind the other; without memory it only counts.
pub(crate) struct LayoutBuilder<'m> {
    /// The start of the region, aligned to [`ALIGN`], or none where only the size is wanted.
    base: Option<NonNull<u8>>,
    /// Bytes in the region.
    len: usize,
    /// Bytes laid out so far.
    used: usize,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

impl<'m> LayoutBuilder<'m> {
    /// Counts bytes only.
    pub(crate) fn measure() -> Self {
        Self { base: None, len: 0, used: 0, region: PhantomData }
    }

    /// Lays out `region`, from its first aligned byte on.
    pub(crate) fn new(region: &'m mut [MaybeUninit<u8>]) -> Self {
        let skip = region.as_ptr().align_offset(ALIGN).min(region.len());
        let region = &mut region[skip..];
        let len = region.len();
        Self { base: NonNull::new(region.as_mut_ptr().cast()), len, used: 0, region: PhantomData }
    }

    /// Bytes laid out so far.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes in the region.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Places a slice of `n` values, each made by `init`. An empty slice where only counting, or
    /// where the region is too small; [`LayoutBuilder::used`] tells then.
    pub(crate) fn take<T>(&mut self, n: usize, mut init: impl FnMut(usize) -> T) -> &'m [T] {
        let first = self.reserve::<T>(n).as_ptr();
        if self.base.is_none() || self.used > self.len {
            return &[];
        }
        // SAFETY: `n` elements from `first` on lie within the region, which `base` and `len` describe
        // and whose borrow 'm this builder holds exclusively; no other slice covers these bytes,
        // since `used` only grows. `first` is aligned: see `reserve`. Every element is written
        // before the slice is formed. The elements are never dropped, which is safe.
        unsafe {
            for i in 0..n {
                first.add(i).write(init(i));
            }
            core::slice::from_raw_parts(first, n)
        }
    }

    /// [`take`](Self::take) where there is nothing to make values of, as only the size is wanted.
    pub(crate) fn skip<T>(&mut self, n: usize) -> &'m [T] {
        self.reserve::<T>(n);
        &[]
    }

    /// Places the metadata of the blocks of so many sections of a span, which nobody writes yet.
    pub(crate) fn take_blocks(&mut self, span: usize, sections: usize) -> Blocks<'m> {
        let blocks = sections * SECTION_BLOCKS as usize;
        Blocks {
            slots: self.take(span, |_| AtomicU32::new(NO_SLOT)),
            lines: self.reserve(blocks),
            heads: self.reserve(blocks),
            rows: self.reserve(sections),
            sections: sections as u32,
            claimed: AtomicU32::new(0),
            region: PhantomData,
        }
    }

    /// Leaves room for `n` values, unwritten. Dangling where only counting, or without room.
    fn reserve<T>(&mut self, n: usize) -> NonNull<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let start = self.used.checked_next_multiple_of(align_of::<T>());
        let end = start.and_then(|start| n.checked_mul(size_of::<T>())?.checked_add(start));
        let (Some(start), Some(end)) = (start, end) else {
            self.used = usize::MAX / 2;
            return NonNull::dangling();
        };
        self.used = end;
        match self.base {
            // SAFETY: `start..end` lies within the region of `len` bytes from `base` on. `base` is
            // aligned to ALIGN, which `T`'s alignment divides, and so is `start`.
            Some(base) if end <= self.len => unsafe { base.add(start).cast() },
            _ => NonNull::dangling(),
        }
    }
}

/// A pointer to one of the blocks' words: what a lease goes by, without looking the block up again.
pub(crate) struct WordCell<'m>(AtomicPtr<AtomicU64>, PhantomData<&'m AtomicU64>);

impl<'m> WordCell<'m> {
    /// Names that word, whatever lives as long as the metadata.
    pub(crate) fn new(word: &'m AtomicU64) -> Self {
        Self(AtomicPtr::new(core::ptr::from_ref(word).cast_mut()), PhantomData)
    }

    /// Names another word.
    pub(crate) fn set(&self, word: &'m AtomicU64) {
        // Release: see `seen`. Every value ever stored is good for 'm.
        self.0.store(core::ptr::from_ref(word).cast_mut(), Ordering::Release);
    }

    /// The word, to a thread that is not inside the CPU's door: it may never have seen the metadata
    /// that the word is in set up.
    pub(crate) fn seen(&self) -> &'m AtomicU64 {
        // SAFETY: as in `get`. Acquire: a thread that named the word has seen it set up.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// The word, under the CPU's door.
    #[inline(always)]
    pub(crate) fn get(&self) -> &'m AtomicU64 {
        // SAFETY: only `new` and `set` store here, each time a pointer made from a reference that
        // is valid for 'm; what is behind it is an atomic, so a shared reference is enough for
        // whatever is done with it.
        unsafe { &*self.0.load(Ordering::Relaxed) }
    }
}

/// No section has that slot: nothing of the section was ever used.
const NO_SLOT: u32 = u32::MAX >> SECTION_BLOCKS_LOG;
/// Somebody is setting the section up.
const SETTING_UP: u32 = NO_SLOT - 1;

/// What came of setting a section up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetUp {
    /// It is set up.
    Done,
    /// Somebody else is at it.
    Elsewhere,
    /// There is no room.
    Full,
}

/// The metadata of all blocks, by sections of [`SECTION_BLOCKS`], and which one has which.
///
/// A thread that sets a section up marks it first, so there is one to each section; several
/// sections may be set up at the same time.
pub(crate) struct Blocks<'m> {
    /// For each section of the span where its blocks are; written here alone, a slot only when all
    /// of it has been written.
    slots: &'m [AtomicU32],
    lines: NonNull<Line>,
    heads: NonNull<Head>,
    rows: NonNull<Rows>,
    /// Slots there are.
    sections: u32,
    /// Slots given to a section. Only grows.
    claimed: AtomicU32,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

// SAFETY: it hands out shared references to `Line`, `Head` and `Rows` only, which consist of
// atomics, and the memory behind them is borrowed for 'm.
unsafe impl Sync for Blocks<'_> {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Blocks<'_> {}

/// A frame of some block whose metadata is set up, or none: what a CPU keeps of a block, without
/// asking once more whether that is set up. Changed under the CPU's door only.
pub(crate) struct Place(AtomicU64);

impl Place {
    const NONE: u64 = u64::MAX;

    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    /// The frame `offset` of a block.
    #[inline(always)]
    pub(crate) fn set(&self, block: Block<'_>, offset: u32) {
        debug_assert!(offset < FRAMES as u32);
        // Release: see `seen`.
        self.0.store(Self::first(block) + u64::from(offset), Ordering::Release);
    }

    /// A block's first frame.
    #[inline(always)]
    fn first(block: Block<'_>) -> u64 {
        u64::from(block.index) * FRAMES as u64
    }

    #[inline(always)]
    fn of<'m>(place: u64, blocks: &Blocks<'m>) -> Option<(Block<'m>, u32)> {
        // Only `set` stores others, each made of a block.
        let of = || (blocks.block((place / FRAMES as u64) as u32), (place % FRAMES as u64) as u32);
        (place != Self::NONE).then(of)
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.0.set(Self::NONE);
    }

    /// The block and the offset, under the CPU's door: a thread that reads it was let in after who
    /// wrote it, and so sees set up what that one has seen set up.
    #[inline(always)]
    pub(crate) fn get<'m>(&self, blocks: &Blocks<'m>) -> Option<(Block<'m>, u32)> {
        Self::of(self.0.get(), blocks)
    }

    /// The block, under the CPU's door.
    #[inline(always)]
    pub(crate) fn block<'m>(&self, blocks: &Blocks<'m>) -> Option<Block<'m>> {
        self.get(blocks).map(|(block, _)| block)
    }

    /// The block and the offset, outside the CPU's door.
    pub(crate) fn seen<'m>(&self, blocks: &Blocks<'m>) -> Option<(Block<'m>, u32)> {
        // Acquire: a thread that named the block has seen it set up.
        Self::of(self.0.load(Ordering::Acquire), blocks)
    }

    /// Whether it names no block, by a glance.
    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.0.get() == Self::NONE
    }

    /// Whether it is that block's first frame, under the CPU's door.
    #[inline(always)]
    pub(crate) fn starts(&self, block: Block<'_>) -> bool {
        self.0.get() == Self::first(block)
    }

    /// Whether it is a place in that block, by a glance.
    #[inline(always)]
    pub(crate) fn names(&self, block: Block<'_>) -> bool {
        self.0.get() / FRAMES as u64 * FRAMES as u64 == Self::first(block)
    }
}

impl<'m> Blocks<'m> {
    /// Sections there is room for.
    pub(crate) fn room(&self) -> u32 {
        self.sections
    }

    /// A block by its section, counted from the first of the span, and its place there.
    #[inline(always)]
    pub(crate) fn locate(&self, section: u64, in_section: u32) -> Option<Block<'m>> {
        // Compared as 64 bits: a 32-bit index would take a frame for another one.
        if section >= self.slots.len() as u64 {
            return None;
        }
        // Acquire: pairs with `set_up`. A plain load on x86.
        let slot = self.slots[section as usize].load(Ordering::Acquire);
        let index = || (slot << SECTION_BLOCKS_LOG) | (in_section % SECTION_BLOCKS as u32);
        (slot < self.sections).then(|| self.block(index()))
    }

    /// The first block of each section that is set up, from the lowest on. Looks at every section
    /// of the span below the last one.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Block<'m>> + '_ {
        // Relaxed: a thread that claims one later is not waited for.
        let most = self.claimed.get().min(self.sections) as usize;
        (0..self.slots.len() as u64).filter_map(|section| self.locate(section, 0)).take(most)
    }

    /// Sets a section up, whose first block has the number `number`. Writes some 7 KiB.
    pub(crate) fn set_up(&self, section: u64, number: u32) -> SetUp {
        let Some(entry) = usize::try_from(section).ok().and_then(|at| self.slots.get(at)) else {
            return SetUp::Full;
        };
        // Acquire: see `locate`. Relaxed: a thread that marks it writes what nobody reads before it
        // is published.
        let marked =
            entry.compare_exchange(NO_SLOT, SETTING_UP, Ordering::Relaxed, Ordering::Acquire);
        match marked {
            Ok(_) => {}
            Err(SETTING_UP) => return SetUp::Elsewhere,
            Err(_) => return SetUp::Done,
        }
        let mut slot = self.claimed.get();
        loop {
            if slot >= self.sections {
                entry.set(NO_SLOT);
                return SetUp::Full;
            }
            // Relaxed: each slot goes to one section, which is all that matters.
            let claimed = self.claimed.compare_exchange_weak(
                slot,
                slot + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => break,
                Err(now) => slot = now,
            }
        }
        let first = (slot as usize) << SECTION_BLOCKS_LOG;
        for i in 0..SECTION_BLOCKS as usize {
            // SAFETY: `slot` is below `sections`, for whose blocks `take_blocks` reserved room in
            // both; nobody has a reference to what is in a slot before a section has it, and no
            // slot is claimed twice.
            unsafe {
                self.lines.add(first + i).write(Line::new());
                self.heads.add(first + i).write(Head::new(number + i as u32, (first + i) as u32));
            }
        }
        // SAFETY: as above, one for each section.
        unsafe { self.rows.add(slot as usize).write(Rows::new()) };
        // Release: a thread that sees the slot sees what was written.
        entry.store(slot, Ordering::Release);
        SetUp::Done
    }

    /// The block of that index, which is one of a block.
    #[inline(always)]
    fn block(&self, index: u32) -> Block<'m> {
        // SAFETY: it comes from a slot that was written, or from the head of a block in one, and is
        // never written as a whole again; the memory is borrowed for 'm.
        unsafe {
            let head = self.heads.add(index as usize).as_ref();
            Block { head, line: self.lines.add(index as usize).as_ref() }
        }
    }

    /// The block at that place of another one's section, all of which is set up at once.
    #[inline(always)]
    pub(crate) fn beside(&self, block: Block<'m>, in_section: u32) -> Block<'m> {
        let mask = SECTION_BLOCKS as u32 - 1;
        self.block(block.index & !mask | in_section & mask)
    }

    /// The board's rows of a block's section.
    #[inline(always)]
    pub(crate) fn rows(&self, block: Block<'m>) -> &'m Rows {
        // SAFETY: as in `block`.
        unsafe { self.rows.add((block.index >> SECTION_BLOCKS_LOG) as usize).as_ref() }
    }

    /// Leaves a section marked as being set up, as one does who is stopped there.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn leave_marked(&self, section: usize, marked: bool) {
        self.slots[section].set(if marked { SETTING_UP } else { NO_SLOT });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_disjoint_and_measured_alike() {
        let mut counting = LayoutBuilder::measure();
        counting.take(3, |i| i as u8);
        counting.take(5, |i| i as u64);
        counting.take(2, |_| [0u32; 3]);
        let mut region = std::vec![MaybeUninit::uninit(); counting.used() + ALIGN];
        let mut layout = LayoutBuilder::new(&mut region[1..]);
        let a = layout.take(3, |i| i as u8);
        let b = layout.take(5, |i| i as u64 * 7);
        let c = layout.take(2, |i| [i as u32; 3]);
        assert_eq!(
            (a, b, c),
            (&[0u8, 1, 2][..], &[0u64, 7, 14, 21, 28][..], &[[0u32; 3], [1; 3]][..])
        );
        assert_eq!(layout.used(), counting.used());
    }

    #[test]
    fn a_region_too_small_yields_nothing() {
        let mut region = [MaybeUninit::uninit(); 40];
        let mut layout = LayoutBuilder::new(&mut region);
        assert!(layout.take(1000, |i| i as u64).is_empty());
        assert!(layout.take(usize::MAX, |i| i as u64).is_empty());
        assert!(layout.used() > layout.len());
    }
}
