//! The reverse map: which entries, in which address spaces, show a folio's frames.
//!
//! ```text
//!   folio (4 frames)                   address space 0        address space 1
//!     rmap -> mapping { space 0, base 96, live 1111 } -> mapping { space 1, base 509, live 1110 }
//!                       |                                          |
//!             pages 96..100 show frames 0..4        pages 510..513 show frames 1..4, across a
//!                                                   table's end
//! ```
//!
//! `base` is the page at which the folio's first frame would be; `live` has a bit for each of its
//! frames that is mapped there. So part of a mapping can go without a new record being needed,
//! which could not be had just when memory is short. A bit may outlive its entry for a moment (an
//! entry is cleared under its table's lock, the bit under the folio's), so whoever walks looks at
//! the entries; a bit without an entry does no harm.

use crate::folio::NIL;
use crate::lock::Spin;
use crate::primitive::{AtomicU32, AtomicU64, Plain};
use crate::{SpaceId, Vpn};

/// Words of a mapping's bits: 512 frames, the largest folio.
#[cfg(not(loom))]
const WORDS: usize = 8;
#[cfg(loom)]
const WORDS: usize = 1;

/// A place for one mapping of a folio: 80 bytes. The caller hands over a slice of them: one for
/// each folio that is mapped in one place, more for those in several.
pub struct Mapping {
    base: AtomicU64,
    live: [AtomicU64; WORDS],
    space: AtomicU32,
    next: AtomicU32,
}

fn word_mask(word: usize, first: u32, n: u32) -> u64 {
    let (low, high) = (word as u32 * 64, word as u32 * 64 + 64);
    let (from, to) = (first.max(low), (first + n).min(high));
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << (from - low)
}

impl Mapping {
    /// An unused record.
    #[must_use]
    pub fn new() -> Self {
        Self {
            base: AtomicU64::new(0),
            live: core::array::from_fn(|_| AtomicU64::new(0)),
            space: AtomicU32::new(0),
            next: AtomicU32::new(NIL),
        }
    }

    pub(crate) fn space(&self) -> SpaceId {
        SpaceId::new(self.space.get() as u16)
    }

    /// The page that shows, or would show, frame number `i` of the folio.
    pub(crate) fn page(&self, i: u32) -> Vpn {
        Vpn::new(self.base.get().wrapping_add(u64::from(i)))
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.get()
    }

    /// The first live frame from number `i` on.
    pub(crate) fn next_live(&self, i: u32) -> Option<u32> {
        let mut word = i as usize / 64;
        let mut bits = self.live.get(word)?.get() & (u64::MAX << (i % 64));
        loop {
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            word += 1;
            bits = self.live.get(word)?.get();
        }
    }

    pub(crate) fn live(&self) -> u32 {
        self.live.iter().map(|word| word.get().count_ones()).sum()
    }

    fn overlap(&self, first: u32, n: u32) -> u32 {
        self.live
            .iter()
            .enumerate()
            .map(|(w, word)| (word.get() & word_mask(w, first, n)).count_ones())
            .sum()
    }

    fn mark(&self, first: u32, n: u32) {
        for (w, word) in self.live.iter().enumerate() {
            word.set(word.get() | word_mask(w, first, n));
        }
    }

    /// Clears bits, as the entries are.
    pub(crate) fn unmark(&self, first: u32, n: u32) {
        for (w, word) in self.live.iter().enumerate() {
            word.set(word.get() & !word_mask(w, first, n));
        }
    }
}

/// All nodes are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMapping;

/// The records of all folios.
pub(crate) struct Mappings<'m> {
    mappings: &'m [Mapping],
    /// The first unused record that has been used before, and the first that never has.
    free: Spin<(u32, u32)>,
}

impl<'m> Mappings<'m> {
    pub(crate) fn new(mappings: &'m [Mapping]) -> Self {
        Self { mappings, free: Spin::new((NIL, 0)) }
    }

    pub(crate) fn get(&self, n: u32) -> &'m Mapping {
        &self.mappings[n as usize]
    }

    /// Takes `count` unused records, chained, or none.
    pub(crate) fn take(&self, count: u32, relax: impl Fn()) -> Result<u32, NoMapping> {
        self.free.with(relax, |(free, fresh)| {
            let mut chain = NIL;
            for _ in 0..count {
                let n = if *free != NIL {
                    let n = *free;
                    *free = self.get(n).next();
                    n
                } else if (*fresh as usize) < self.mappings.len() {
                    *fresh += 1;
                    *fresh - 1
                } else {
                    self.push(free, chain);
                    return Err(NoMapping);
                };
                self.get(n).next.set(chain);
                chain = n;
            }
            Ok(chain)
        })
    }

    /// Gives back a chain of records.
    pub(crate) fn give(&self, chain: u32, relax: impl Fn()) {
        if chain != NIL {
            self.free.with(relax, |(free, _)| self.push(free, chain));
        }
    }

    fn push(&self, free: &mut u32, mut chain: u32) {
        while chain != NIL {
            let next = self.get(chain).next();
            self.get(chain).next.set(*free);
            *free = chain;
            chain = next;
        }
    }

    /// Takes the first record off a chain and makes it that of one page.
    pub(crate) fn single(&self, chain: &mut u32, list: &AtomicU32, space: SpaceId, page: Vpn) {
        let n = *chain;
        let mapping = self.get(n);
        *chain = mapping.next();
        self.fill(n, list, space, page, 0, 1);
    }

    fn fill(&self, n: u32, list: &AtomicU32, space: SpaceId, base: Vpn, first: u32, len: u32) {
        let mapping = self.get(n);
        mapping.space.set(u32::from(space.get()));
        mapping.base.set(base.get());
        mapping.live.iter().for_each(|word| word.set(0));
        mapping.mark(first, len);
        mapping.next.set(list.get());
        list.set(n);
    }

    /// Notes that frames of a folio are mapped. Under its lock, as all that follows.
    pub(crate) fn add(
        &self,
        list: &AtomicU32,
        space: SpaceId,
        base: Vpn,
        (first, n): (u32, u32),
        relax: impl Fn(),
    ) -> Result<(), NoMapping> {
        let mut at = list.get();
        while at != NIL {
            let mapping = self.get(at);
            if mapping.space() == space && mapping.page(0) == base && mapping.overlap(first, n) == 0
            {
                mapping.mark(first, n);
                return Ok(());
            }
            at = mapping.next();
        }
        // A bit may be left from an entry that is gone already: then a second record has the new
        // ones.
        let node = self.take(1, relax)?;
        self.fill(node, list, space, base, first, n);
        Ok(())
    }

    /// Notes that frames of a folio are not mapped there any more.
    pub(crate) fn remove(
        &self,
        list: &AtomicU32,
        space: SpaceId,
        base: Vpn,
        (first, n): (u32, u32),
        relax: impl Fn(),
    ) {
        let mut i = first;
        while i < first + n {
            let mut at = list.get();
            let mut found = false;
            while at != NIL {
                let mapping = self.get(at);
                if mapping.space() == space && mapping.page(0) == base {
                    // As many as this record has in one go.
                    let mut len = first + n - i;
                    while len > 0 && mapping.overlap(i, len) != len {
                        len /= 2;
                    }
                    if len > 0 {
                        mapping.unmark(i, len);
                        i += len;
                        found = true;
                        break;
                    }
                }
                at = mapping.next();
            }
            debug_assert!(found, "an entry that the reverse map does not know");
            if !found {
                i += 1;
            }
        }
        self.sweep(list, relax);
    }

    /// Gives back records without a bit.
    pub(crate) fn sweep(&self, list: &AtomicU32, relax: impl Fn()) {
        let (mut before, mut at, mut empty) = (NIL, list.get(), NIL);
        while at != NIL {
            let mapping = self.get(at);
            let next = mapping.next();
            if mapping.next_live(0).is_none() {
                if before == NIL {
                    list.set(next);
                } else {
                    self.get(before).next.set(next);
                }
                mapping.next.set(empty);
                empty = at;
            } else {
                before = at;
            }
            at = next;
        }
        self.give(empty, relax);
    }

    /// The record of that place that has frame `i` live.
    pub(crate) fn find(
        &self,
        list: &AtomicU32,
        space: SpaceId,
        base: Vpn,
        i: u32,
    ) -> Option<&'m Mapping> {
        self.iter(list).find(|m| m.space() == space && m.page(0) == base && m.overlap(i, 1) == 1)
    }

    /// All records of a folio.
    pub(crate) fn iter(&self, list: &AtomicU32) -> impl Iterator<Item = &'m Mapping> {
        let mut at = list.get();
        core::iter::from_fn(move || {
            if at == NIL {
                return None;
            }
            let mapping = self.get(at);
            at = mapping.next();
            Some(mapping)
        })
    }
}
