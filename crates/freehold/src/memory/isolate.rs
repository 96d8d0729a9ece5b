//! Isolation: blocks from which nothing is allocated while they are emptied.
//!
//! An isolated block is split, with a flag in its tag: nobody takes frames of it, and it does not
//! become whole. Frames freed into it go to its words as ever, and stay there. Its migratetype
//! stays what it was, so that undoing an isolation loses nothing.
//!
//! ```text
//! 1 recall: no CPU keeps the block as a whole (only where it is whole; for all blocks of a range together)
//! 2 split, flag ISOLATED, by one exchange of the tag      from now on no word of it is leased
//! 3 recall: the leases that there were end
//! ```

use crate::alloc::watch::ANY;
use crate::block::map::LOOKS;
use crate::block::tag::{ABSENT, IN_HAND, ISOLATED, SPLIT, TAKEN, WHOLE};
use crate::block::words::EMPTY;
use crate::block::{Block, FRAMES, WORDS, bits, pieces};
use crate::cpu::lease::SLOTS;
use crate::zone::Zone;
use crate::{AllocError, FrameRange, Freehold, Pfn, Platform};

/// Times that a range's users are asked to move before it is given up (Linux retries migration five
/// times).
const MIGRATE_ROUNDS: u32 = 5;

impl<'m> Block<'m> {
    /// Whether a range touches that block.
    fn touches(self, range: FrameRange) -> bool {
        let blocks = range.start.pageblock().get()..range.end.get();
        blocks.contains(&self.base())
    }
}

/// Blocks that are isolated.
pub(crate) struct Isolated<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    range: FrameRange,
}

impl<'a, 'm, P: Platform> Isolated<'a, 'm, P> {
    /// Isolates every block that a range touches, or none. They are ordinary again when what it
    /// returns is dropped, be it by a panic.
    pub(crate) fn new(fh: &'a Freehold<'m, P>, range: FrameRange) -> Result<Self, AllocError> {
        let mut isolated = Self { fh, range: FrameRange { start: range.start, end: range.start } };
        // One block is as well asked for by itself.
        if blocks_of(range).nth(1).is_some() {
            Self::end_keeping(fh, range);
        }
        for number in blocks_of(range) {
            if !Self::block(fh, number) {
                return Err(AllocError::Busy {
                    pfn: Pfn::new((number << 9).max(range.start.get())),
                });
            }
            isolated.range.end = Pfn::new((number + 1) << 9);
        }
        Self::end_leases(fh, range);
        Ok(isolated)
    }

    /// Isolates one block, but for the leases that there are; `false` where it is isolated already,
    /// is no memory, or somebody is stopped on the way with it.
    fn block(fh: &Freehold<'m, P>, number: u64) -> bool {
        let Some(zone) = fh.zones.iter().find(|zone| zone.span.contains(Pfn::new(number << 9)))
        else {
            return false;
        };
        let bit = number - zone.first_block;
        for _ in 0..LOOKS {
            if zone.bitmap.contains(bit) {
                if let Some(block) = Self::take_whole(fh, zone, bit) {
                    let head = block.head;
                    let migratetype = head.tag.get().migratetype();
                    let tag = block.fill(fh.outside(), migratetype);
                    head.tag.set(tag.with_flag(ISOLATED, true));
                    // From the claim until its words were full its frames did not count.
                    fh.watch.came(ANY);
                    return true;
                }
            }
            let Some(block) = fh.map.locate_block(number) else {
                fh.platform.relax();
                continue;
            };
            let head = block.head;
            let tag = head.tag.get();
            match tag.state() {
                ABSENT if zone.bitmap.contains(bit) => {}
                ABSENT => return false,
                _ if tag.has(ISOLATED) => return false,
                WHOLE if tag.has(IN_HAND) => {
                    fh.recall_where(None, |cpu| cpu.kept.iter().any(|kept| kept.names(block)));
                }
                // Somebody is a few steps away from having it, or from setting its bit.
                WHOLE => {}
                // A block in use becomes a split one, since it may be freed at this moment.
                state => {
                    let strays = (state == TAKEN).then(|| block.strays());
                    let to = tag.with_state(SPLIT).with_flag(ISOLATED, true);
                    if head.tag.exchange(tag, to) {
                        if let Some(strays) = strays {
                            block.report_these_strays(fh, strays);
                        }
                        return true;
                    }
                }
            }
            fh.platform.relax();
        }
        false
    }

    /// Takes the whole block of that bit out of the bitmap.
    fn take_whole(fh: &Freehold<'m, P>, zone: &Zone<'m>, bit: u64) -> Option<Block<'m>> {
        // A block that is claimed and not taken is on the way.
        let _moving = zone.moving(fh.outside(), bit as usize);
        let block = zone.claim_whole_at(fh.outside(), bit);
        zone.update_mode();
        block
    }

    /// Has CPUs give back the blocks of a range that they keep as wholes: one heavy barrier for all
    /// of them. `block` takes one for each that it comes to; left to do for it is what
    /// another CPU takes meanwhile.
    fn end_keeping(fh: &Freehold<'m, P>, range: FrameRange) {
        let is_kept = |block: Block<'m>| block.head.tag.get().has(IN_HAND);
        if blocks_of(range).filter_map(|number| fh.map.locate_block(number)).any(is_kept) {
            fh.recall_where(None, |cpu| {
                cpu.kept
                    .iter()
                    .filter_map(|kept| kept.seen(&fh.map.blocks))
                    .any(|(block, _)| block.touches(range))
            });
        }
    }

    /// Ends every lease of the isolated blocks that a range touches. The caller is inside no CPU's
    /// state.
    fn end_leases(fh: &Freehold<'m, P>, range: FrameRange) {
        fh.recall_where(None, |cpu| {
            (0..SLOTS).any(|slot| {
                let lease = cpu.leases.slot(slot);
                lease.is_in_use()
                    && lease
                        .seen_place(&fh.map.blocks)
                        .is_some_and(|(block, _)| block.touches(range))
            })
        });
        // A thread that has leased a word without having opened a slot yet is inside its door for a
        // few more steps.
        for block in blocks_of(range).filter_map(|number| fh.map.locate_block(number)) {
            for w in 0..WORDS {
                loop {
                    // Read once: its CPU may say meanwhile that it has nothing in hand, and has a
                    // slot for the word still.
                    let lease = usize::from(block.head.lease(w) & !EMPTY);
                    if lease == 0 {
                        break;
                    }
                    fh.recall_these(core::iter::once(lease - 1));
                }
            }
        }
    }

    /// Makes an isolated block ordinary again.
    pub(crate) fn restore(fh: &Freehold<'m, P>, number: u64) {
        let Some(block) = fh.map.locate_block(number) else { return };
        let head = block.head;
        // Its frames can be had before its row says so.
        let _moving = block.moving_block(fh.outside());
        let mut tag = head.tag.get();
        while tag.state() != ABSENT && tag.has(ISOLATED) {
            if head.tag.exchange(tag, tag.with_flag(ISOLATED, false)) {
                block.publish(fh.outside());
                block.raise(fh.outside());
            }
            tag = head.tag.get();
        }
    }

    /// Takes every frame of a range of isolated blocks; all or none.
    pub(crate) fn take(&self, range: FrameRange) -> Result<(), AllocError> {
        let mut taken = FrameRange { start: range.start, end: range.start };
        for (base, offset, len) in pieces(range) {
            let had = self
                .fh
                .map
                .locate(base)
                .is_some_and(|block| block.take_isolated(self.fh, offset, len));
            if !had {
                // Freed twice meanwhile, or not at all.
                for (base, offset, len) in pieces(taken) {
                    let Some(block) = self.fh.map.locate(base) else { continue };
                    bits::spans(offset, len)
                        .for_each(|(w, m)| block.put_back(self.fh.outside(), w, m));
                }
                return Err(AllocError::Busy { pfn: Pfn::new(base + offset as u64) });
            }
            taken.end = Pfn::new(base + (offset + len) as u64);
        }
        Ok(())
    }

    /// Has every frame of an isolated range freed.
    pub(crate) fn empty(
        &self,
        range: FrameRange,
        migrate: &mut impl FnMut(FrameRange) -> bool,
    ) -> Result<(), AllocError> {
        for _ in 0..MIGRATE_ROUNDS {
            let mut rest = range;
            let mut asked = false;
            while let Some(used) = self.first_used(rest) {
                asked = true;
                if !migrate(used) {
                    return Err(AllocError::Busy { pfn: used.start });
                }
                rest.start = used.end;
            }
            if !asked {
                return Ok(());
            }
        }
        match self.first_used(range) {
            None => Ok(()),
            Some(used) => Err(AllocError::Busy { pfn: used.start }),
        }
    }

    /// The first maximal run of frames in use within a range of isolated blocks.
    fn first_used(&self, range: FrameRange) -> Option<FrameRange> {
        let is_free = |pfn: u64| {
            let block = self.fh.map.locate(pfn)?;
            let offset = (pfn % FRAMES as u64) as usize;
            Some(block.line.word(offset / 64) >> (offset % 64) & 1 == 1)
        };
        let start =
            (range.start.get()..range.end.get()).find(|&pfn| is_free(pfn) == Some(false))?;
        let end = (start..range.end.get())
            .find(|&pfn| is_free(pfn) != Some(false))
            .unwrap_or(range.end.get());
        Some(FrameRange { start: Pfn::new(start), end: Pfn::new(end) })
    }
}

impl<P: Platform> Drop for Isolated<'_, '_, P> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            blocks_of(self.range).for_each(|number| Self::restore(self.fh, number));
        }
    }
}

/// The numbers of the blocks that a range touches.
pub(crate) fn blocks_of(range: FrameRange) -> core::ops::Range<u64> {
    range.start.get() >> 9..range.end.get().div_ceil(FRAMES as u64)
}
