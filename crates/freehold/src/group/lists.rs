//! The free lists of one holder: its partly free blocks by migratetype, largest free run and
//! fullness.
//!
//! ```text
//! list = (migratetype, class, bucket)     class: see `block::words`     bucket: free frames / 64, 0 = the fullest
//! WHOLE                                   wholly free blocks, of no type
//! ```
//!
//! A request takes a block whose largest run is the smallest that will do, and of those the
//! fullest: large runs stay, and what is nearly free becomes whole. (After long aging on 16 CPUs
//! with 1 GiB, 70 % used, that leaves 87 % of free memory in whole blocks; the fullest first
//! whatever its runs 59 %, the kernel's free lists 82 %.) Circular lists through the blocks'
//! [`Links`](crate::block::words::Links), so that taking turns is moving the head. Every operation
//! takes constant time. Under the holder's lock.

use crate::block::bits;
use crate::block::layout::Index;
use crate::block::map::FrameMap;
use crate::block::tag::TYPES;
use crate::block::words::{CLASS_NONE, CLASSES};
use crate::block::{FRAMES, NONE};
use crate::primitive::{AtomicU8, AtomicU16, AtomicU32, Plain};

/// Buckets of fullness.
const BUCKETS: usize = 8;
/// Lists of partly free blocks.
const PARTLY: usize = TYPES * BUCKETS * CLASSES;
/// The list of wholly free blocks.
pub(crate) const WHOLE_LIST: u16 = PARTLY as u16;
/// In [`Links::list`](crate::block::words::Links): in the zone's bitmap.
pub(crate) const IN_BITMAP: u16 = PARTLY as u16 + 1;
/// In [`Links::list`](crate::block::words::Links): on no list.
pub(crate) const NO_LIST: u16 = u16::MAX;

/// See the module's documentation.
pub(crate) struct Lists {
    heads: [AtomicU32; PARTLY + 1],
    /// Bit `class` set: a list of that class has a block.
    classes: [AtomicU16; TYPES],
    /// Bit `bucket` set: that list has a block.
    filled: [[AtomicU8; CLASSES]; TYPES],
    /// Wholly free blocks.
    wholes: AtomicU32,
}

/// The list for a block of that type, with so many free frames and that class.
pub(crate) fn list_for(migratetype: usize, frames: u32, class: u8) -> u16 {
    let bucket = (frames.clamp(1, FRAMES as u32) as usize - 1) / 64;
    list_of(migratetype, usize::from(class), bucket)
}

/// The class of the blocks on that list; none where it is no list of partly free ones.
pub(crate) fn listed_class(list: u16) -> u8 {
    if list < WHOLE_LIST { (usize::from(list) / BUCKETS % CLASSES) as u8 } else { CLASS_NONE }
}

fn list_of(migratetype: usize, class: usize, bucket: usize) -> u16 {
    ((migratetype * CLASSES + class) * BUCKETS + bucket) as u16
}

impl Lists {
    pub(crate) fn new() -> Self {
        Self {
            heads: core::array::from_fn(|_| AtomicU32::new(NONE)),
            classes: core::array::from_fn(|_| AtomicU16::new(0)),
            filled: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU8::new(0))),
            wholes: AtomicU32::new(0),
        }
    }

    /// Puts a block at the end of a list: what was freed into just now is used last, and may become
    /// whole meanwhile. A whole one goes to the head.
    pub(crate) fn link(&self, map: &FrameMap<'_>, index: Index, list: u16) {
        let links = map.links(index);
        debug_assert_eq!(links.list.get(), NO_LIST);
        links.list.set(list);
        let head = &self.heads[usize::from(list)];
        match map.index(head.get()) {
            None => {
                head.set(index.get());
                links.next.set(index.get());
                links.prev.set(index.get());
                self.note(list, true);
            }
            Some(first) => {
                let last = map.links(first).prev.get();
                links.next.set(first.get());
                links.prev.set(last);
                map.links(first).prev.set(index.get());
                if let Some(last) = map.index(last) {
                    map.links(last).next.set(index.get());
                }
            }
        }
        if list == WHOLE_LIST {
            head.set(index.get());
            self.wholes.set(self.wholes.get() + 1);
        }
    }

    /// Takes a block off its list.
    pub(crate) fn unlink(&self, map: &FrameMap<'_>, index: Index) {
        let links = map.links(index);
        let list = links.list.get();
        links.list.set(NO_LIST);
        if list == WHOLE_LIST {
            self.wholes.set(self.wholes.get() - 1);
        }
        let head = &self.heads[usize::from(list)];
        let (next, prev) = (links.next.get(), links.prev.get());
        if next == index.get() {
            head.set(NONE);
            self.note(list, false);
            return;
        }
        if let (Some(next), Some(prev)) = (map.index(next), map.index(prev)) {
            map.links(next).prev.set(prev.get());
            map.links(prev).next.set(next.get());
        }
        if head.get() == index.get() {
            head.set(next);
        }
    }

    fn note(&self, list: u16, filled: bool) {
        let list = usize::from(list);
        if list >= PARTLY {
            return;
        }
        let (class, bucket) = (list / BUCKETS, list % BUCKETS);
        let (migratetype, class) = (class / CLASSES, class % CLASSES);
        let (buckets, classes) = (&self.filled[migratetype][class], &self.classes[migratetype]);
        buckets.set(if filled {
            buckets.get() | 1 << bucket
        } else {
            buckets.get() & !(1 << bucket)
        });
        let bit = u16::from(buckets.get() != 0) << class;
        classes.set(classes.get() & !(1 << class) | bit);
    }

    /// The lists that have a partly free block when it is their turn: the others, of some hundreds
    /// most, are not looked at.
    pub(crate) fn filled(&self) -> impl Iterator<Item = u16> + '_ {
        let of_class = |migratetype: usize, class: usize| {
            bits::each(u64::from(self.filled[migratetype][class].get()))
                .map(move |bucket| list_of(migratetype, class, bucket as usize))
        };
        (0..TYPES).flat_map(move |migratetype| {
            bits::each(u64::from(self.classes[migratetype].get()))
                .flat_map(move |class| of_class(migratetype, class as usize))
        })
    }

    /// The head of a list.
    pub(crate) fn first(&self, list: u16) -> Option<u32> {
        let index = self.heads[usize::from(list)].get();
        (index != NONE).then_some(index)
    }

    /// The next block of that type to take a run of `class` from: of the smallest class that has
    /// one, the fullest, and among those of a list the one at its head.
    pub(crate) fn best(&self, map: &FrameMap<'_>, migratetype: usize, class: u8) -> Option<Index> {
        let classes = u32::from(self.classes[migratetype].get()) & (!0 << class);
        if classes == 0 {
            return None;
        }
        let class = classes.trailing_zeros() as usize;
        let bucket = self.filled[migratetype][class].get().trailing_zeros() as usize;
        map.index(self.first(list_of(migratetype, class, bucket))?)
    }

    /// The emptiest one with such a run.
    pub(crate) fn emptiest(
        &self,
        map: &FrameMap<'_>,
        migratetype: usize,
        class: u8,
    ) -> Option<Index> {
        let filled = &self.filled[migratetype][usize::from(class)..];
        let (class, bucket) = (usize::from(class)..)
            .zip(filled)
            .filter_map(|(class, buckets)| Some((class, buckets.get().checked_ilog2()? as usize)))
            .max_by_key(|&(_, bucket)| bucket)?;
        map.index(self.first(list_of(migratetype, class, bucket))?)
    }

    /// The block that is at the head of its list goes to the end of it: the next CPU gets another
    /// one.
    pub(crate) fn take_turn(&self, map: &FrameMap<'_>, index: Index) {
        let links = map.links(index);
        let head = &self.heads[usize::from(links.list.get()).min(PARTLY)];
        if head.get() == index.get() {
            head.set(links.next.get());
        }
    }

    /// Any partly free block.
    pub(crate) fn any(&self, map: &FrameMap<'_>) -> Option<Index> {
        (0..TYPES).find_map(|migratetype| self.best(map, migratetype, 0))
    }

    /// A wholly free block: the newest.
    pub(crate) fn whole(&self, map: &FrameMap<'_>) -> Option<Index> {
        map.index(self.first(WHOLE_LIST)?)
    }

    /// Wholly free blocks there are.
    pub(crate) fn wholes(&self) -> u32 {
        self.wholes.get()
    }
}
