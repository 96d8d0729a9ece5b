//! Small per-CPU objects in virtual areas: what `pcpu_alloc_test` needs above vmalloc.
//!
//! ```text
//!   chunk = one area     | CPU 0: unit of 64 pages | CPU 1: unit of 64 pages |
//!                          ^ an object is at the same offset in each unit
//!   bitmap of a unit     one bit for each 16 bytes: 16,384 bits
//! ```
//!
//! A port in small of the kernel's: first fit by bitmap in the first chunk that has room, with a hint what it has no
//! room for; a new chunk where none has; and a chunk that becomes empty is freed. Left out are the kernel's populating of single pages of a chunk, its sorting of
//! chunks by free space, and the zeroing of objects.

use super::areas::{Failed, Shape, Thread};

/// Bytes of a bit.
const GRANULE: usize = 16;
const UNIT_PAGES: u64 = 64;
const WORDS: usize = UNIT_PAGES as usize * 4096 / GRANULE / 64;
const GRANULES: usize = WORDS * 64;
/// Alignments of 1 to 128 granules.
const ALIGNMENTS: usize = 8;
const NONE_REFUSED: [u16; ALIGNMENTS] = [u16::MAX; ALIGNMENTS];

struct Chunk<A> {
    area: A,
    used: [u64; WORDS],
    free: usize,
    /// No granule below this one is free.
    hint: usize,
    /// For each power of two of an alignment, the least length that was found to fit nowhere.
    refused: [u16; ALIGNMENTS],
}

/// An object: its chunk, its first granule, its granules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    chunk: u32,
    first: u16,
    len: u16,
}

pub(super) struct PerCpu<A> {
    cpus: u64,
    chunks: Vec<Option<Box<Chunk<A>>>>,
}

impl<A> Chunk<A> {
    /// The first granule from `from` on that is used, or that is not; [`GRANULES`] where there is none.
    fn next(&self, from: usize, used: bool) -> usize {
        let mut word = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while word < WORDS {
            let bits = if used { self.used[word] } else { !self.used[word] } & mask;
            if bits != 0 {
                return word * 64 + bits.trailing_zeros() as usize;
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        GRANULES
    }

    fn mark(&mut self, first: usize, len: usize, used: bool) {
        for granule in first..first + len {
            let bit = 1 << (granule % 64);
            if used {
                self.used[granule / 64] |= bit;
            } else {
                self.used[granule / 64] &= !bit;
            }
        }
        self.free = if used { self.free - len } else { self.free + len };
    }

    /// The first place for so many granules at a multiple of `align`, a power of two.
    fn find(&mut self, len: usize, align: usize) -> Option<usize> {
        let at = (align.trailing_zeros() as usize).min(ALIGNMENTS - 1);
        // What does not fit with less alignment does not fit with more.
        if self.free < len || self.refused[..=at].iter().any(|&refused| usize::from(refused) <= len) {
            return None;
        }
        self.hint = self.next(self.hint, false);
        let mut first = self.hint.next_multiple_of(align);
        while first + len <= GRANULES {
            let used = self.next(first, true);
            if used >= first + len {
                return Some(first);
            }
            first = self.next(used, false).next_multiple_of(align);
        }
        self.refused[at] = self.refused[at].min(len as u16);
        None
    }
}

impl<A> PerCpu<A> {
    pub(super) fn new(cpus: u64) -> Self {
        Self { cpus, chunks: Vec::new() }
    }

    /// An object of `size` bytes at a multiple of `align`, both at most a unit.
    pub(super) fn alloc(
        &mut self,
        thread: &mut impl Thread<Area = A>,
        size: usize,
        align: usize,
    ) -> Result<Object, Failed> {
        let (len, align) = (size.div_ceil(GRANULE).max(1), align.div_ceil(GRANULE).max(1));
        let object = |chunk: usize, first: usize| Object { chunk: chunk as u32, first: first as u16, len: len as u16 };
        let mut vacant = None;
        for (at, place) in self.chunks.iter_mut().enumerate() {
            let Some(chunk) = place else {
                vacant = vacant.or(Some(at));
                continue;
            };
            if let Some(first) = chunk.find(len, align) {
                chunk.mark(first, len, true);
                return Ok(object(at, first));
            }
        }
        let area = thread.vmalloc(Shape::pages(UNIT_PAGES * self.cpus))?;
        let mut chunk = Box::new(Chunk { area, used: [0; WORDS], free: GRANULES, hint: 0, refused: NONE_REFUSED });
        chunk.mark(0, len, true);
        let at = vacant.unwrap_or(self.chunks.len());
        if at == self.chunks.len() {
            self.chunks.push(Some(chunk));
        } else {
            self.chunks[at] = Some(chunk);
        }
        Ok(object(at, 0))
    }

    pub(super) fn free(&mut self, thread: &mut impl Thread<Area = A>, object: Object) -> Result<(), Failed> {
        let place = &mut self.chunks[object.chunk as usize];
        let Some(chunk) = place else { return Ok(()) };
        chunk.mark(object.first.into(), object.len.into(), false);
        chunk.hint = chunk.hint.min(object.first.into());
        chunk.refused = NONE_REFUSED;
        if chunk.free < GRANULES {
            return Ok(());
        }
        place.take().map_or(Ok(()), |chunk| thread.vfree(chunk.area))
    }

    #[cfg(test)]
    fn chunks(&self) -> usize {
        self.chunks.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::loops::Random;
    use crate::bench::memory::areas::Areas;
    use crate::bench::memory::mapped::Mapped;
    use freehold::CpuId;

    #[test]
    fn objects_do_not_overlap_and_empty_chunks_go() {
        let mut thread = Mapped.thread(CpuId::new(0)).unwrap();
        let mut objects = PerCpu::new(2);
        let mut random = Random::new(3);
        let mut live: Vec<Object> = Vec::new();
        let mut bytes = std::collections::HashSet::new();
        let granules = |o: Object| (o.first..o.first + o.len).map(move |granule| (o.chunk, granule));
        for _ in 0..20_000 {
            if live.is_empty() || random.below(5) < 3 {
                let (size, align) = (random.below(1024) as usize + 1, 1 << (random.below(11) + 1));
                let object = objects.alloc(&mut thread, size, align).unwrap();
                assert_eq!(usize::from(object.first) * GRANULE % align.max(GRANULE), 0);
                granules(object).for_each(|granule| assert!(bytes.insert(granule), "{object:?} overlaps another"));
                live.push(object);
            } else {
                let object = live.swap_remove(random.below(live.len() as u64) as usize);
                granules(object).for_each(|granule| assert!(bytes.remove(&granule)));
                objects.free(&mut thread, object).unwrap();
            }
        }
        assert!(objects.chunks() > 1);
        live.into_iter().for_each(|object| objects.free(&mut thread, object).unwrap());
        assert_eq!(objects.chunks(), 0);
    }
}
