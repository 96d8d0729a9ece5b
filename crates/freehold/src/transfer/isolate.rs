//! Isolation: blocks from which nothing is allocated while they are emptied.
//!
//! An isolated block is split, the zone's, on no list, and its frames do not count as free. It is
//! taken from whoever has it; frames freed into it go to its words as ever, and stay there. Its
//! migratetype stays what it was, so that undoing an isolation loses nothing.
//!
//! ```text
//! 1 recall: no CPU keeps the block as a whole (only where it is whole; for all blocks of a range together)
//! 2 under its holder's lock: split, flag ISOLATED, off the lists    from now on no word of it is leased
//! 3 recall: the leases that there were end
//! ```

use crate::block::layout::Index;
use crate::block::tag::{ABSENT, IN_HAND, ISOLATED, SPLIT, TAKEN, Tag, WHOLE, ZONE_GROUP};
use crate::block::words::{CLASS_QUEUED, EMPTY};
use crate::block::{FRAMES, WORDS};
use crate::cpu::lease::SLOTS;
use crate::group::lists::{IN_BITMAP, NO_LIST};
use crate::primitive::{Ordering, Plain};
use crate::{AllocError, FrameRange, Freehold, Pfn, Platform};

impl<'m, P: Platform> Freehold<'m, P> {
    /// Isolates one block, but for the leases that there are; `false` where it is isolated already,
    /// or is no memory.
    fn isolate_block(&self, number: u64) -> bool {
        let Some(index) = self.set_up_block(number) else { return false };
        let head = self.map.head(index);
        loop {
            let tag = head.tag.get();
            if tag.state() == ABSENT || tag.has(ISOLATED) {
                return false;
            }
            if tag.group() == IN_HAND {
                self.recall_where(None, |cpu| {
                    cpu.kept.iter().any(|kept| kept.get() == index.get())
                });
                self.platform.relax();
                continue;
            }
            let Some(held) = self.hold_of(index) else { continue };
            // Freed and announced: maybe in the inbox of who had it before, who may not look for
            // long. A block of the bitmap may be on its way out, as part of a run, without a lock:
            // so the list is read before the tag. Acquire: pairs with `take_found`.
            let takeable = match self.map.links(index).list.load(Ordering::Acquire) {
                NO_LIST => head.class() == CLASS_QUEUED,
                IN_BITMAP => held.zone.bitmap.contains(held.zone.bit(head.number)),
                _ => true,
            };
            // Others may have isolated it before this had the lock, and a block in use, or on its
            // way, changes hands without it.
            let group = held.group;
            let lost = |tag: Tag| tag.has(ISOLATED) || tag.group() != group;
            let tag = head.tag.get();
            if lost(tag) {
                continue;
            }
            match tag.state() {
                WHOLE if takeable => {
                    held.unlist(index);
                    held.split(index, tag.migratetype());
                    held.unlist(index);
                }
                // Somebody is a few steps away from having it, or from announcing it.
                WHOLE => {
                    drop(held);
                    self.platform.relax();
                    continue;
                }
                SPLIT => held.unlist(index),
                _ => {}
            }
            // A block in use becomes a split one, by an exchange, since it may be freed at this
            // moment, and be anybody's then.
            let tag = head.tag.get();
            if lost(tag) {
                continue;
            }
            let isolated = tag.with_state(SPLIT).with_flag(ISOLATED, true).with_group(ZONE_GROUP);
            let strays = (tag.state() == TAKEN).then(|| self.strays(index));
            if (tag.state() == SPLIT || tag.state() == TAKEN) && head.tag.exchange(tag, isolated) {
                if let Some(strays) = strays {
                    self.report_these_strays(index, strays);
                }
                return true;
            }
        }
    }

    /// A block of that number, its metadata set up where it is memory.
    pub(crate) fn set_up_block(&self, number: u64) -> Option<Index> {
        let zone = self.zones.iter().find(|zone| zone.span.contains(Pfn::new(number << 9)))?;
        let there = self
            .map
            .locate_block(number)
            .filter(|&index| self.map.head(index).tag.get().state() != ABSENT);
        if there.is_none() {
            let held = self.hold(zone, ZONE_GROUP);
            let bit = number - zone.first_block;
            if zone.bitmap.contains(bit) {
                return held.set_up(bit);
            }
        }
        there.or_else(|| self.map.locate_block(number))
    }

    /// Whether a range touches the block that a place of a CPU's names, if it names one.
    fn touches(&self, range: FrameRange, raw: u32) -> bool {
        let blocks = range.start.pageblock().get()..range.end.get();
        self.map.index(raw).is_some_and(|index| blocks.contains(&self.map.base(index)))
    }

    /// Has CPUs give back the blocks of a range that they keep as wholes: one heavy barrier for all
    /// of them. `isolate_block` takes one for each that it comes to; left to do for it is what
    /// another CPU takes meanwhile.
    fn end_keeping(&self, range: FrameRange) {
        let is_kept = |index: Index| self.map.head(index).tag.get().group() == IN_HAND;
        if Self::blocks_of(range).filter_map(|number| self.map.locate_block(number)).any(is_kept) {
            self.recall_where(None, |cpu| {
                cpu.kept.iter().any(|kept| self.touches(range, kept.get()))
            });
        }
    }

    /// Ends every lease of the isolated blocks that a range touches. The caller is inside no CPU's
    /// state.
    fn end_leases(&self, range: FrameRange) {
        self.recall_where(None, |cpu| {
            (0..SLOTS).any(|slot| {
                let lease = cpu.leases.slot(slot);
                lease.key() != crate::cpu::lease::NO_KEY && self.touches(range, lease.place().0)
            })
        });
        // Whoever has leased a word without having opened a slot yet is inside its door for a few
        // more steps.
        for index in Self::blocks_of(range).filter_map(|number| self.map.locate_block(number)) {
            for w in 0..WORDS {
                loop {
                    // Read once: its CPU may say meanwhile that it has nothing in hand, and has a
                    // slot for the word still.
                    let lease = usize::from(self.map.head(index).lease(w) & !EMPTY);
                    if lease == 0 {
                        break;
                    }
                    self.recall_these(core::iter::once(lease - 1));
                }
            }
        }
    }

    /// Makes an isolated block ordinary again.
    fn restore_block(&self, number: u64) {
        let Some(index) = self.map.locate_block(number) else { return };
        let Some(held) = self.hold_of(index) else { return };
        let head = self.map.head(index);
        if head.tag.get().has(ISOLATED) {
            head.tag.set(head.tag.get().with_flag(ISOLATED, false));
            held.file(index);
        }
    }

    /// The numbers of the blocks that a range touches.
    pub(crate) fn blocks_of(range: FrameRange) -> impl Iterator<Item = u64> {
        range.start.get() >> 9..range.end.get().div_ceil(FRAMES as u64)
    }

    /// Isolates every block that a range touches, or none. They are ordinary again when what it
    /// returns is dropped, be it by a panic.
    pub(crate) fn isolate_range(
        &self,
        range: FrameRange,
    ) -> Result<Isolated<'_, 'm, P>, AllocError> {
        let mut isolated =
            Isolated { fh: self, range: FrameRange { start: range.start, end: range.start } };
        // One block is as well asked for by itself.
        if Self::blocks_of(range).nth(1).is_some() {
            self.end_keeping(range);
        }
        for number in Self::blocks_of(range) {
            if !self.isolate_block(number) {
                return Err(AllocError::Busy {
                    pfn: Pfn::new((number << 9).max(range.start.get())),
                });
            }
            isolated.range.end = Pfn::new((number + 1) << 9);
        }
        self.end_leases(range);
        Ok(isolated)
    }

    /// The first maximal run of frames in use within a range of isolated blocks.
    pub(crate) fn first_used(&self, range: FrameRange) -> Option<FrameRange> {
        let is_free = |pfn: u64| {
            let index = self.map.locate(pfn)?;
            let offset = (pfn % FRAMES as u64) as usize;
            Some(self.map.line(index).word(offset / 64) >> (offset % 64) & 1 == 1)
        };
        let start =
            (range.start.get()..range.end.get()).find(|&pfn| is_free(pfn) == Some(false))?;
        let end = (start..range.end.get())
            .find(|&pfn| is_free(pfn) != Some(false))
            .unwrap_or(range.end.get());
        Some(FrameRange { start: Pfn::new(start), end: Pfn::new(end) })
    }
}

/// Blocks that are isolated.
pub(crate) struct Isolated<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    range: FrameRange,
}

impl<P: Platform> Drop for Isolated<'_, '_, P> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            Freehold::<P>::blocks_of(self.range).for_each(|number| self.fh.restore_block(number));
        }
    }
}
