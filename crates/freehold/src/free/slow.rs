//! The slow way of a free: whatever [`fast`](super::fast) has refused.
//!
//! **Frames of one word** go into the hand, or into the word, visible to everybody at once:
//!
//! | step | holds |
//! |---|---|
//! | the tag says split, no holes, not isolated | bits that are not set are in use, or in a hand |
//! | the leaseholder's hand, looked at first, does not show them | afterwards it may have leased the word once more |
//! | `fetch_or`: none of them was set | they are free, once; a free by their leaseholder at this very moment is told late |
//! | no larger run than the class says | the board knows all it needs |
//!
//! No step waits: none takes a lock, and a compare-exchange fails only as another CPU's succeeds.
//!
//! **Chunks and ranges** go by whole blocks, by their tag, and the rest by words; all of it is
//! checked before anything changes.
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

use crate::block::{
    ABSENT, Block, FRAMES, FRESH, HIGH_ATOMIC, HOLES, IN_HAND, SPLIT, TAKEN, Tag, WHOLE, WORDS,
    bits, pieces,
};
use crate::cpu::lease::{LEASED_BELOW, Leases, Purpose};
use crate::cpu::{By, Cpu, Inside};
use crate::free::fast::{FastFree, InHand};
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::{FrameRange, FreeError, Freehold, Migratetype, Order, Pfn, Platform};

/// A free: by a CPU, or by somebody who is in no CPU's state.
pub(crate) struct Freeing<'i, 'm, P: Platform> {
    pub(crate) fh: &'i Freehold<'m, P>,
    /// The CPU, where its state was to be had.
    pub(crate) inside: Option<&'i Inside<'i, 'm, P>>,
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// A free into a word for which this CPU has a slot, and that could not go straight into the
    /// hand: the word may have been let go, and taken over.
    fn free_into_empty(
        &self,
        key: u64,
        block: Block<'m>,
        w: usize,
        tag: Tag,
        frames: u64,
    ) -> Option<Result<(), FreeError>> {
        let slot = Leases::slot_of(key);
        let lease = self.cpu.leases.slot(slot);
        if !lease.is_of(key) {
            return None;
        }
        let there = (lease.all() | block.line.word(w)) & frames;
        if there != 0 {
            return Some(Err(block.is_free(w, there)));
        }
        if frames == !0 || lease.is_of_chunk() || self.fh.zones[tag.zone()].is_tight() {
            // Not needed in hand; and near its mark the zone counts what is free.
            self.slot(slot).end();
            return None;
        }
        if !self.slot(slot).claim(block, w) {
            return None;
        }
        self.fh.platform.poisoned_word(key, frames);
        lease.add_to(lease.mask.get(), frames);
        self.cpu.leases.set_ready(slot);
        // The next request for such a run need not search for it.
        if let Some(order @ 1..6) = frames.count_ones().checked_ilog2() {
            self.cpu.leases.set_freed(order, key * 64 + u64::from(frames.trailing_zeros()));
        }
        Some(Ok(()))
    }
}

/// The error for a frame whose block has no metadata.
#[cold]
pub(crate) fn no_such_frame(fh: &Freehold<'_, impl Platform>, pfn: Pfn) -> FreeError {
    if !fh.zones.iter().any(|z| z.span.contains(pfn)) {
        FreeError::OutOfZone { pfn }
    } else if fh.map.is_present(pfn.get()) {
        FreeError::NeverAllocated { pfn }
    } else {
        FreeError::Hole { pfn }
    }
}

impl<'i, 'm, P: Platform> Freeing<'i, 'm, P> {
    /// A free by that CPU, or by nobody.
    #[inline(always)]
    pub(crate) fn of(fh: &'i Freehold<'m, P>, inside: Option<&'i Inside<'i, 'm, P>>) -> Self {
        Self { fh, inside }
    }

    /// Who frees.
    #[inline(always)]
    pub(crate) fn by(&self) -> By<'i, 'm, P> {
        self.inside.map_or(self.fh.outside(), |inside| inside.by())
    }

    /// Why a free of these frames of one word would be refused, as far as is seen; changes nothing.
    ///
    /// # Errors
    ///
    /// See [`FreeError`].
    pub(crate) fn check_word(
        &self,
        block: Block<'m>,
        w: usize,
        frames: u64,
    ) -> Result<(), FreeError> {
        let (head, line) = (block.head, block.line);
        let tag = head.tag.get();
        block.check_tag(self.fh, tag, w, frames)?;
        if tag.state() == TAKEN {
            return Ok(());
        }
        let mut free = line.word(w);
        if head.is_leased(w) {
            free |= block.leased_frames(self.fh, w);
        } else if let Some(inside) = self.inside {
            // Its own hand, whatever the lease says.
            let key = u64::from(head.number) * WORDS as u64 + w as u64;
            let lease = inside.cpu.leases.slot(Leases::slot_of(key));
            free |= if lease.is_of(key) { lease.all() } else { 0 };
        }
        if free & frames == 0 { Ok(()) } else { Err(block.is_free(w, free & frames)) }
    }

    /// Frees frames of one word, all or none; counts as so many frees. `inside` is the CPU, where
    /// its state was to be had.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline]
    pub(crate) fn word(&self, key: u64, frames: u64, frees: u64) -> Result<(), FreeError> {
        let w = (key % WORDS as u64) as usize;
        let first = Pfn::new(key * 64 + u64::from(frames.trailing_zeros()));
        let Some(block) = self.fh.map.locate(key * 64) else {
            return Err(no_such_frame(self.fh, first));
        };
        let mut tag = block.head.tag.get();
        if !tag.is_ordinary() {
            let by = self.by();
            tag = block.look_closer(by, tag, w, frames)?;
        }
        if let Some(inside) = self.inside {
            if let Some(done) = inside.free_into_empty(key, block, w, tag, frames) {
                inside.cpu.counters.local_frees.add(if done.is_ok() { frees } else { 0 });
                return done;
            }
            let again = inside.cpu.last_key.get() == key && frames.count_ones() < 1 << LEASED_BELOW;
            let way = FastFree(**inside);
            if again && tag.is_ordinary() && way.free_and_lease(block, w, tag, frames) {
                inside.count_frees(frees);
                return Ok(());
            }
            inside.cpu.last_key.set(key);
        }
        let seen = frames & block.leased_frames(self.fh, w);
        if seen != 0 {
            return Err(block.is_free(w, seen));
        }
        #[cfg(feature = "debug-poison")]
        if block.line.word(w) & frames == 0 {
            self.fh.platform.poisoned_word(key, frames);
        }
        let by = self.by();
        let count = u64::from(frames.count_ones());
        // Before they can be seen: see `watch`.
        by.count_free(tag, count);
        match block.line.put(w, frames) {
            Err(there) => {
                by.count_free(tag, count.wrapping_neg());
                return Err(block.is_free(w, there));
            }
            Ok(now) => by.raise_by(block, now),
        }
        match self.inside {
            None => block.count_frees_outside(self.fh, tag, frees),
            Some(inside) => {
                if frames & (frames - 1) == 0 && inside.is_home(tag.zone()) {
                    let offset = (first.get() % FRAMES as u64) as u32;
                    inside.cpu.recent.push(0, block, offset);
                }
                inside.count_frees(frees);
                if inside.is_home(tag.zone()) {
                    inside.tell_after_free(tag.migratetype());
                }
            }
        }
        Ok(())
    }
}

impl<'m, P: Platform> FastFree<'_, 'm, P> {
    /// A second free in a row into a word leases it, so that single frames and short runs cost one
    /// exchange for 64 frames: see [`LEASED_BELOW`].
    pub(crate) fn free_and_lease(self, block: Block<'m>, w: usize, tag: Tag, frames: u64) -> bool {
        // Near its mark the zone counts what is free.
        let ordinary =
            tag.migratetype() != HIGH_ATOMIC && self.is_home(tag.zone()) && !self.home().is_tight();
        if !ordinary
            || block.line.word(w) & frames != 0
            || block.head.is_leased(w)
            || !self.may_lease()
        {
            return false;
        }
        self.fh.platform.poisoned_word(block.base() / 64 + w as u64, frames);
        let kind = (Purpose::Frames, tag.migratetype());
        let leased = self.lease(block, w, tag, kind, (frames, None)).is_some();
        self.give_up_unused_share();
        leased
    }
}

impl<P: Platform> Cpu<'_, '_, P> {
    /// Counts frees into a word, or of whole blocks; those into the hand are local ones.
    #[inline(always)]
    pub(crate) fn count_frees(self, frees: u64) {
        self.counters.remote_frees.add(frees);
    }
}

impl<'m> Block<'m> {
    /// Counts frees of a block by somebody who is in no CPU's state.
    pub(crate) fn count_frees_outside(
        self,
        fh: &Freehold<'m, impl Platform>,
        tag: Tag,
        frees: u64,
    ) {
        let outside = &fh.zones[tag.zone()].outside;
        outside[self.head.number as usize % outside.len()].frees.add_shared(frees);
    }

    /// Why a free of these frames of one word would be refused, by the block's tag alone.
    #[inline]
    fn check_tag(
        self,
        fh: &Freehold<'m, impl Platform>,
        tag: Tag,
        w: usize,
        frames: u64,
    ) -> Result<(), FreeError> {
        let missing = match tag.state() {
            ABSENT => frames,
            WHOLE => return Err(self.is_free(w, frames)),
            SPLIT if tag.has(HOLES) => frames & !fh.map.present_of_ranges(self.base())[w],
            _ => 0,
        };
        if missing == 0 { Ok(()) } else { Err(no_such_frame(fh, self.frame_of(w, missing))) }
    }

    /// A block that is no ordinary split one: refuses the free, or is made ready; the tag then.
    #[cold]
    fn look_closer(
        self,
        by: By<'_, 'm, impl Platform>,
        mut tag: Tag,
        w: usize,
        frames: u64,
    ) -> Result<Tag, FreeError> {
        let head = self.head;
        loop {
            self.check_tag(by.fh, tag, w, frames)?;
            if tag.state() != TAKEN {
                return Ok(tag);
            }
            // A part of it is freed: from now on its words tell, and what others free there may
            // count for no row yet.
            let _moving = by.moving_block(self);
            let strays = self.words();
            if head.tag.exchange(tag, tag.with_state(SPLIT)) {
                self.report_these_strays(by.fh, strays);
                // Its class may say too much still, from before it was whole.
                by.fh.outside().publish(self);
                return Ok(tag.with_state(SPLIT));
            }
            tag = head.tag.get();
        }
    }

    fn frame_of(self, w: usize, frames: u64) -> Pfn {
        Pfn::new(self.base() + w as u64 * 64 + u64::from(frames.trailing_zeros()))
    }

    /// The error for the first of these frames, which are free.
    #[cold]
    pub(crate) fn is_free(self, w: usize, frames: u64) -> FreeError {
        let pfn = self.frame_of(w, frames);
        if self.head.tag.get().has(FRESH) {
            FreeError::NeverAllocated { pfn }
        } else {
            FreeError::DoubleFree { pfn }
        }
    }
}

const _: () = assert!(FRAMES == WORDS * 64 && bits::mask(0, 64) == !0);

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
            match way.map(|way| (way, way.free_in_hand(key * 64, frames))) {
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
