//! Freeing frames of one word: into the hand, or into the word, visible to everybody at once.
//!
//! A free into the hand is in [`fast`](crate::free::fast). **Any other free**:
//!
//! | step | holds |
//! |---|---|
//! | the tag says split, no holes, not isolated | bits that are not set are in use, or in a hand |
//! | the leaseholder's hand, looked at first, does not show them | afterwards it may have leased the word once more |
//! | `fetch_or`: none of them was set | they are free, once; a free by their leaseholder at this very moment is told late |
//! | no larger run than the class says | the board knows all it needs |
//!
//! No step waits: none takes a lock, and a compare-exchange fails only as another CPU's succeeds.

use crate::block::Block;
use crate::block::tag::{ABSENT, FRESH, HIGH_ATOMIC, HOLES, SPLIT, TAKEN, Tag, WHOLE};
use crate::block::{FRAMES, WORDS, bits};
use crate::cpu::by::{By, Cpu, Inside};
use crate::cpu::lease::{LEASED_BELOW, Leases, Purpose};
use crate::free::fast::FastFree;
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::{FreeError, Freehold, Pfn, Platform};

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
        lease.add_to(lease.mask(), frames);
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
            let again = inside.cpu.last_key.get() == key;
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
        let ordinary = tag.migratetype() != HIGH_ATOMIC
            && self.is_home(tag.zone())
            && !self.fh.zones[tag.zone()].is_tight();
        if !ordinary
            || frames.count_ones() >= 1 << LEASED_BELOW
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
