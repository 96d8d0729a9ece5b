//! Freeing chunks and ranges: whole blocks by their tag, the rest by words; all of it is checked
//! before anything changes.
//!
//! | a range | step | holds |
//! |---|---|---|
//! | one block in use as a whole | `whole` | nothing was to be checked: see below |
//! | less than a word | the hand, or `word` | all of it is free, or none |
//! | any other | `check` | each frame is some zone's memory and not seen to be free; nothing has changed |
//! | | `commit`, a block or word at a time | each is freed all or none, the first counts as the one free that this is |
//! | | a word is refused | another call frees it at this moment: that one goes on, this one stops; what it freed stays free |
//!
//! **`whole`**:
//!
//! | step | holds |
//! |---|---|
//! | the tag goes from taken to whole, by one exchange | the block is free, once; no list has it yet |
//! | with room in hand: "in hand" by the same exchange | nobody else takes it; the CPU has it when `kept` names it |
//! | without: its bit is set | it is anybody's |
//! | failed, and split | somebody frees a part of it: word by word, each freed by one of the two |

use crate::block::Block;
use crate::block::tag::{IN_HAND, SPLIT, TAKEN, Tag, WHOLE};
use crate::block::{FRAMES, WORDS, bits, pieces};
use crate::free::fast::{FastFree, InHand};
use crate::free::word::{Freeing, no_such_frame};
use crate::platform::PlatformExt;
use crate::primitive::Relaxed;
use crate::{FrameRange, FreeError, Migratetype, Order, Pfn, Platform};

impl<'m, P: Platform> Freeing<'_, 'm, P> {
    /// An aligned chunk.
    pub(crate) fn chunk(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if !pfn.is_aligned(order) {
            return Err(FreeError::Misaligned { pfn, order });
        }
        if order.get() <= 6 {
            let frames = bits::mask((pfn.get() % 64) as u32, 1 << order.get());
            return self.word(pfn.get() / 64, frames, 1);
        }
        match FrameRange::new(pfn, order.frames()) {
            Some(range) => self.range(range),
            None => Err(FreeError::OutOfZone { pfn }),
        }
    }

    /// Any range; checks all of it before it changes anything.
    pub(crate) fn range(&self, range: FrameRange) -> Result<(), FreeError> {
        if let Some(freed) = self.as_block(range) {
            return freed;
        }
        if let Some((key, frames)) = word_of(range) {
            // A word's frames are freed all or none. Most ranges that are no chunk are of one.
            let way = self.inside.map(|inside| FastFree(**inside));
            match way.map(|way| (way, way.free_in_hand(key, frames))) {
                Some((_, InHand::Yes)) => Ok(()),
                Some((way, InHand::Elsewhere)) if !range.len().is_power_of_two() => {
                    if way.run_to_word(key, (frames, range.len())) {
                        return Ok(());
                    }
                    self.leases_no_word();
                    self.word(key, frames, 1)
                }
                _ => self.word(key, frames, 1),
            }
        } else {
            self.check(range)?;
            self.commit(range)
        }
    }

    /// A range that is a block in use as a whole: one exchange frees all of it, so nothing has to
    /// be checked before. `None` for any other.
    #[inline]
    fn as_block(&self, range: FrameRange) -> Option<Result<(), FreeError>> {
        if range.len() != FRAMES as u64 || !range.start.is_aligned(Order::PAGEBLOCK) {
            return None;
        }
        let block = self.fh.map.locate(range.start.get())?;
        let tag = block.head.tag.get();
        if tag.state() != TAKEN {
            return None;
        }
        self.fh.platform.poisoned(range.start, FRAMES as u64);
        Some(self.whole(block, tag).map(|()| self.count(block, tag)))
    }

    /// Counts a range that was freed, of which that is the first block.
    fn count(&self, block: Block<'m>, tag: Tag) {
        match self.inside {
            Some(inside) => inside.count_frees(1),
            None => block.count_frees_outside(self.fh, tag, 1),
        }
    }

    /// Why a free of these frames would be refused, as far as can be seen; changes nothing.
    #[inline(never)]
    fn check(&self, range: FrameRange) -> Result<(), FreeError> {
        if range.is_empty() {
            return Err(FreeError::ZeroLength);
        }
        // Zones that touch are one stretch of memory to a thread that frees: a run may have been
        // put together across their edge.
        let mut at = range.start;
        while at < range.end {
            at = match self.fh.zones.iter().find(|z| z.span.contains(at)) {
                Some(zone) => zone.span.end,
                None if at == range.start => return Err(FreeError::OutOfZone { pfn: at }),
                None => return Err(FreeError::PastEnd { pfn: at }),
            };
        }
        for (base, offset, len) in pieces(range) {
            let first = Pfn::new(base + offset as u64);
            let Some(block) = self.fh.map.locate(base) else {
                return Err(no_such_frame(self.fh, first));
            };
            if len == FRAMES && block.head.tag.get().state() == TAKEN {
                continue;
            }
            for (w, m) in bits::spans(offset, len) {
                self.check_word(block, w, m)?;
            }
        }
        Ok(())
    }

    /// Frees a range that has been checked. Of several calls that free the same frames at the same
    /// moment the first to free a word wins it; the others stop there.
    pub(crate) fn commit(&self, range: FrameRange) -> Result<(), FreeError> {
        let mut freed = Ok(());
        let mut counted = false;
        for (base, offset, len) in pieces(range) {
            let Some(block) = self.fh.map.locate(base) else { continue };
            let tag = block.head.tag.get();
            if len == FRAMES && tag.state() == TAKEN {
                self.fh.platform.poisoned(Pfn::new(base), FRAMES as u64);
                freed = self.whole(block, tag);
            } else {
                for (w, m) in bits::spans(offset, len) {
                    self.leases_no_word();
                    freed = self.word(base / 64 + w as u64, m, 0);
                    if freed.is_err() {
                        break;
                    }
                }
            }
            freed?;
            if !counted {
                counted = true;
                self.count(block, tag);
            }
        }
        freed
    }

    /// A CPU leases no word for runs of any length: they are cut from words that nobody leases.
    #[inline]
    fn leases_no_word(&self) {
        self.inside.into_iter().for_each(|inside| inside.ends_row());
    }

    /// A block in use as a whole: whole again, in the CPU's hand if there is room, or anybody's.
    #[inline(always)]
    pub(crate) fn whole(&self, block: Block<'m>, tag: Tag) -> Result<(), FreeError> {
        let head = block.head;
        let keeper = self.inside.filter(|_| !tag.zone_of(self.fh.zones).is_lean());
        let kept = keeper.and_then(|inside| FastFree(**inside).room_for_block(tag));
        if let (Some(inside), Some(_)) = (keeper, kept) {
            inside.holds();
            inside.cpu.keeps.set(true);
        }
        // Of no type in the bitmap, see `release_whole`.
        let movable = Migratetype::Movable as usize;
        let kind = if kept.is_some() { tag.migratetype() } else { movable };
        let to = tag.with_state(WHOLE).with_type(kind).with_flag(IN_HAND, kept.is_some());
        if !head.tag.exchange(tag, to) {
            // Somebody else frees it, or a part of it, at this moment.
            let first = u64::from(head.number) * WORDS as u64;
            return match head.tag.get().state() {
                SPLIT => (first..first + WORDS as u64).try_for_each(|key| self.word(key, !0, 0)),
                _ => Err(FreeError::DoubleFree { pfn: Pfn::new(block.base()) }),
            };
        }
        match kept {
            Some(kept) => kept.set(block, 0),
            None => self.by().free_whole(block),
        }
        Ok(())
    }
}

/// The word and the bits of a range that lies in one word, and is less than it.
#[inline]
fn word_of(range: FrameRange) -> Option<(u64, u64)> {
    let len = range.end.get().checked_sub(range.start.get()).filter(|len| (1..64).contains(len))?;
    let offset = range.start.get() % 64;
    (offset + len <= 64).then(|| (range.start.get() / 64, bits::mask(offset as u32, len as u32)))
}
