//! Which allocation a traced frame belongs to: a two-level direct index from traced PFN to slot.
//!
//! A trace names frames of the machine that recorded it; engines place the same allocations
//! elsewhere. What both share is the **slot**: a small number for each live allocation (see
//! [`super::mapper`]). Every alloc and free of a trace goes through this index, so it is an array
//! look-up, not a hash:
//!
//! ```text
//!  traced PFN  0x1_2345  =  chunk 0x91, frame 0x145
//!
//!  directory   [ .. | ● | .. ]          one pointer for each 512 frames, null where nothing lives
//!                     │
//!  chunk              ▼
//!    slot   [u32; 512]   slot of the allocation that starts at this frame
//!    order  [u8; 512]    and its order
//!    heads  [u64; 8]     one bit a frame: does an allocation start here?
//!    count  [u16; 10]    allocations by order, so that "is this frame inside a larger one?" looks only where it must
//! ```
//!
//! Only the first frame of an allocation is written, whatever its order. A chunk exists while
//! something lives in it, so memory follows the live set. Frame numbers too high for a directory
//! (no machine has them, a damaged file may) go to a map.

use std::collections::HashMap;

use freehold::{Order, Pfn};

/// Frames in a chunk of the index: a pageblock.
const CHUNK: usize = 512;
/// Chunks that the directory may span: frames below 2^31, which is 8 TiB of memory and 32 MiB of
/// pointers at most.
const DIRECTORY_MAX: u64 = 1 << 22;
/// Empty chunks kept for the next one that is needed, so that an allocation going to and fro costs
/// no heap traffic.
const SPARE_MAX: usize = 256;

/// An allocation found in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub head: Pfn,
    pub order: Order,
    pub slot: u32,
}

struct Chunk {
    slot: [u32; CHUNK],
    order: [u8; CHUNK],
    heads: [u64; CHUNK / 64],
    count: [u16; 10],
    live: u16,
}

impl Chunk {
    const fn new() -> Self {
        Self {
            slot: [0; CHUNK],
            order: [0; CHUNK],
            heads: [0; CHUNK / 64],
            count: [0; 10],
            live: 0,
        }
    }

    fn has(&self, at: usize) -> bool {
        self.heads[at / 64] >> (at % 64) & 1 == 1
    }
}

#[derive(Default)]
pub struct FrameIndex {
    directory: Vec<Option<Box<Chunk>>>,
    high: HashMap<u64, Box<Chunk>>,
    // Boxes, because they go back into the directory as they are: 2.6 KiB are not moved for it.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Chunk>>,
    /// Live allocations larger than a chunk, by order.
    large: [u64; Order::MAX.index() + 1],
    live: u64,
}

impl FrameIndex {
    fn chunk(&self, number: u64) -> Option<&Chunk> {
        if number < DIRECTORY_MAX {
            self.directory.get(number as usize)?.as_deref()
        } else {
            self.high.get(&number).map(|chunk| &**chunk)
        }
    }

    fn chunk_or_new(&mut self, number: u64) -> &mut Chunk {
        let spare = &mut self.spare;
        let new = || spare.pop().unwrap_or_else(|| Box::new(Chunk::new()));
        if number < DIRECTORY_MAX {
            let number = number as usize;
            if number >= self.directory.len() {
                self.directory.resize_with(number + 1, || None);
            }
            self.directory[number].get_or_insert_with(new)
        } else {
            self.high.entry(number).or_insert_with(new)
        }
    }

    /// Adds an allocation. The caller has made sure that nothing else lives there; `pfn` is aligned
    /// to `order`.
    pub fn insert(&mut self, pfn: Pfn, order: Order, slot: u32) {
        let chunk = self.chunk_or_new(pfn.get() / CHUNK as u64);
        let at = pfn.get() as usize % CHUNK;
        debug_assert!(!chunk.has(at), "two allocations start at {pfn}");
        chunk.slot[at] = slot;
        chunk.order[at] = order.get();
        chunk.heads[at / 64] |= 1 << (at % 64);
        chunk.live += 1;
        match chunk.count.get_mut(order.index()) {
            Some(count) => *count += 1,
            None => self.large[order.index()] += 1,
        }
        self.live += 1;
    }

    /// Takes out the allocation that starts at `pfn`, if one does.
    pub fn remove(&mut self, pfn: Pfn) -> Option<Found> {
        let number = pfn.get() / CHUNK as u64;
        let at = pfn.get() as usize % CHUNK;
        let chunk = if number < DIRECTORY_MAX {
            self.directory.get_mut(number as usize)?.as_deref_mut()?
        } else {
            &mut **self.high.get_mut(&number)?
        };
        if !chunk.has(at) {
            return None;
        }
        let order = Order::new(chunk.order[at])?;
        let found = Found { head: pfn, order, slot: chunk.slot[at] };
        chunk.heads[at / 64] &= !(1 << (at % 64));
        chunk.live -= 1;
        match chunk.count.get_mut(order.index()) {
            Some(count) => *count -= 1,
            None => self.large[order.index()] -= 1,
        }
        self.live -= 1;
        if chunk.live == 0 {
            let empty = if number < DIRECTORY_MAX {
                self.directory[number as usize].take()
            } else {
                self.high.remove(&number)
            };
            // A chunk without live allocations reads as a new one: heads and counts are all zero
            // again.
            if let Some(empty) = empty.filter(|_| self.spare.len() < SPARE_MAX) {
                self.spare.push(empty);
            }
        }
        Some(found)
    }

    /// The allocation that starts at `pfn`, if one does.
    pub fn at(&self, pfn: Pfn) -> Option<Found> {
        let chunk = self.chunk(pfn.get() / CHUNK as u64)?;
        let at = pfn.get() as usize % CHUNK;
        if !chunk.has(at) {
            return None;
        }
        Some(Found { head: pfn, order: Order::new(chunk.order[at])?, slot: chunk.slot[at] })
    }

    /// The allocation of more than `order` that the chunk of `order` at `pfn` is a part of, if
    /// there is one.
    pub fn covering(&self, pfn: Pfn, order: Order) -> Option<Found> {
        if let Some(chunk) = self.chunk(pfn.get() / CHUNK as u64) {
            let at = pfn.get() as usize % CHUNK;
            for larger in order.index() + 1..chunk.count.len() {
                let head = at & !((1 << larger) - 1);
                if chunk.count[larger] > 0
                    && chunk.has(head)
                    && usize::from(chunk.order[head]) >= larger
                {
                    return self.at(Pfn::new(pfn.get() - (at - head) as u64));
                }
            }
        }
        for larger in (order.index() + 1).max(10)..self.large.len() {
            if self.large[larger] > 0 {
                let head = pfn.align_down(Order::new(larger as u8)?);
                if let Some(found) = self.at(head).filter(|found| found.order.index() >= larger) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Whether nothing lives in the chunk of `order` at `pfn`, nor the chunk in anything larger:
    /// the common case at an allocation, answered with one look at the chunk.
    pub fn is_clear(&self, pfn: Pfn, order: Order) -> bool {
        self.first_within(pfn, order).is_none() && self.covering(pfn, order).is_none()
    }

    /// The first allocation that starts within the chunk of `order` at `pfn`.
    pub fn first_within(&self, pfn: Pfn, order: Order) -> Option<Found> {
        if order.index() <= 9 {
            let chunk = self.chunk(pfn.get() / CHUNK as u64)?;
            return first_head(chunk, pfn.get() as usize % CHUNK, order.frames() as usize)
                .and_then(|at| {
                    self.at(Pfn::new(pfn.get() / CHUNK as u64 * CHUNK as u64 + at as u64))
                });
        }
        let first = pfn.get() / CHUNK as u64;
        (first..first + order.frames() / CHUNK as u64).find_map(|number| {
            let at = first_head(self.chunk(number)?, 0, CHUNK)?;
            self.at(Pfn::new(number * CHUNK as u64 + at as u64))
        })
    }

    /// Every allocation, in rising order of frames, except that frames beyond the directory come
    /// last in no order.
    pub fn iter(&self) -> impl Iterator<Item = Found> + '_ {
        let low = self
            .directory
            .iter()
            .enumerate()
            .filter_map(|(n, chunk)| Some((n as u64, chunk.as_deref()?)));
        let high = self.high.iter().map(|(&n, chunk)| (n, &**chunk));
        low.chain(high).flat_map(|(number, chunk)| {
            (0..CHUNK).filter(|&at| chunk.has(at)).filter_map(move |at| {
                let head = Pfn::new(number * CHUNK as u64 + at as u64);
                Some(Found { head, order: Order::new(chunk.order[at])?, slot: chunk.slot[at] })
            })
        })
    }
}

/// The first head among `len` frames of `chunk` from `at` on. Both are multiples of each other's
/// power of two, so the range never crosses from the middle of one word into the next.
fn first_head(chunk: &Chunk, at: usize, len: usize) -> Option<usize> {
    if len < 64 {
        let word = chunk.heads[at / 64] >> (at % 64) & ((1 << len) - 1);
        return (word != 0).then(|| at + word.trailing_zeros() as usize);
    }
    (at / 64..(at + len) / 64)
        .find(|&word| chunk.heads[word] != 0)
        .map(|word| word * 64 + chunk.heads[word].trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn order(order: u8) -> Order {
        Order::new(order).unwrap()
    }

    #[test]
    fn a_frame_inside_a_larger_allocation_is_found_from_any_frame_of_it() {
        for large in [1u8, 4, 9, 10, 11] {
            let mut index = FrameIndex::default();
            let head = Pfn::new(1 << 14);
            index.insert(head, order(large), 7);
            for offset in [0, 1, (1 << large) - 1] {
                let found =
                    index.covering(Pfn::new(head.get() + offset), Order::ZERO).expect("covered");
                assert_eq!((found.head, found.order, found.slot), (head, order(large), 7));
            }
            assert_eq!(index.covering(Pfn::new(head.get() + (1 << large)), Order::ZERO), None);
            assert_eq!(index.covering(head, order(large)), None, "it is not inside itself");
            assert!(!index.is_clear(head, Order::ZERO));
        }
    }

    #[test]
    fn a_neighbour_of_smaller_order_does_not_cover() {
        let mut index = FrameIndex::default();
        index.insert(Pfn::new(4), Order::ZERO, 1);
        index.insert(Pfn::new(8), order(2), 2);
        assert_eq!(index.covering(Pfn::new(5), Order::ZERO), None);
        assert_eq!(index.covering(Pfn::new(11), Order::ZERO).unwrap().slot, 2);
        assert_eq!(index.first_within(Pfn::new(0), order(4)).unwrap().slot, 1);
    }

    #[test]
    fn an_empty_index_keeps_no_chunk() {
        let mut index = FrameIndex::default();
        for pfn in [3, 70_000, u64::MAX - 1] {
            index.insert(Pfn::new(pfn), Order::ZERO, 0);
            assert_eq!(index.remove(Pfn::new(pfn)).map(|f| f.head.get()), Some(pfn));
            assert_eq!(index.remove(Pfn::new(pfn)), None);
        }
        assert_eq!(index.live, 0);
        assert!(index.directory.iter().all(Option::is_none));
        assert!(index.high.is_empty());
    }

    /// Random inserts and removes against the obvious map.
    #[test]
    fn agrees_with_a_plain_map() {
        let mut index = FrameIndex::default();
        let mut model: BTreeMap<u64, (u8, u32)> = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut random = |below: u64| rng.u64(..below);
        for slot in 0..20_000u32 {
            let size = random(12) as u8;
            let pfn = random(1 << 14) >> size << size;
            let end = pfn + (1 << size);
            let clear = model.iter().all(|(&head, &(o, _))| head + (1 << o) <= pfn || head >= end);
            assert_eq!(index.is_clear(Pfn::new(pfn), order(size)), clear);
            let within = model.range(pfn..end).next().map(|(&head, &(_, slot))| (head, slot));
            let first = index.first_within(Pfn::new(pfn), order(size));
            assert_eq!(first.map(|f| (f.head.get(), f.slot)), within);
            if clear {
                index.insert(Pfn::new(pfn), order(size), slot);
                model.insert(pfn, (size, slot));
            } else if let Some((head, slot)) = within {
                assert_eq!(index.remove(Pfn::new(head)).map(|f| f.slot), Some(slot));
                model.remove(&head);
            }
        }
        let all: Vec<_> = index.iter().map(|f| (f.head.get(), (f.order.get(), f.slot))).collect();
        assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    }
}
