//! Freeing frames of one word: into the hand, or into the word, visible to everybody at once.
//!
//! A free into the hand is in [`short`](super::short). **Any other free**:
//!
//! | step | holds |
//! |---|---|
//! | the tag says split, no holes, not isolated | bits that are not set are in use, or in a hand |
//! | the leaseholder's hand, looked at first, does not show them | afterwards it may have leased the word once more |
//! | `fetch_or`: none of them was set | they are free, once; a free by their leaseholder at this very moment is told late |
//! | no larger run than the class says | the board knows all it needs |
//!
//! No step waits: none takes a lock, and a compare-exchange fails only because another CPU's
//! succeeded.

use crate::block::layout::Index;
use crate::block::tag::{ABSENT, FRESH, HIGH_ATOMIC, HOLES, SPLIT, TAKEN, Tag, WHOLE};
use crate::block::{FRAMES, WORDS, bits};
use crate::cpu::by::{By, OUTSIDE};
use crate::cpu::inside::Inside;
use crate::cpu::lease::{Leases, Purpose};
use crate::cpu::state::CpuState;
use crate::primitive::{Count, Plain, SharedCount};
use crate::{FreeError, Freehold, Pfn, Platform};

impl<P: Platform> Inside<'_, '_, P> {
    /// A free into a word for which this CPU has a slot, and that could not go straight into the
    /// hand: the word may have been let go, and taken over.
    fn free_into_empty(
        &self,
        key: u64,
        index: Index,
        w: usize,
        tag: Tag,
        frames: u64,
    ) -> Option<Result<(), FreeError>> {
        let slot = Leases::slot_of(key);
        let lease = self.cpu.leases.slot(slot);
        if !lease.is_of(key) {
            return None;
        }
        let there = (lease.all() | self.fh.map.line(index).word(w)) & frames;
        if there != 0 {
            return Some(Err(self.fh.is_free(index, w, there)));
        }
        if frames == !0 || self.fh.zones[tag.zone()].is_tight() {
            // All of the word is not needed in hand; and near its mark the zone counts what is free.
            self.end_lease(slot);
            return None;
        }
        if !self.claim_slot(slot, index, w) {
            return None;
        }
        self.fh.poisoned_word(key, frames);
        lease.add(frames);
        self.cpu.leases.set_ready(slot);
        Some(Ok(()))
    }

    /// A second free in a row into a word leases it, so that runs cost one exchange for 64 frames.
    fn free_and_lease(&self, index: Index, w: usize, tag: Tag, frames: u64) -> bool {
        // Near its mark the zone counts what is free.
        let ordinary = tag.migratetype() != HIGH_ATOMIC
            && self.is_home(tag.zone())
            && !self.fh.zones[tag.zone()].is_tight();
        let leasable = ordinary && self.cpu.leases.limit() != 0 && frames != !0;
        if !leasable
            || self.fh.map.line(index).word(w) & frames != 0
            || self.fh.map.head(index).is_leased(w)
        {
            return false;
        }
        self.fh.poisoned_word(self.fh.map.base(index) / 64 + w as u64, frames);
        self.lease(index, w, tag, (Purpose::Frames, tag.migratetype()), (frames, None)).is_some()
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Frees frames of one word, all or none; counts as so many frees. `inside` is the CPU, where
    /// its state was to be had.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline]
    pub(crate) fn free_word(
        &self,
        inside: Option<&Inside<'_, 'm, P>>,
        key: u64,
        frames: u64,
        frees: u64,
    ) -> Result<(), FreeError> {
        let w = (key % WORDS as u64) as usize;
        let first = Pfn::new(key * 64 + u64::from(frames.trailing_zeros()));
        let Some(index) = self.map.locate(key * 64) else { return Err(self.no_such_frame(first)) };
        let mut tag = self.map.head(index).tag.get();
        if !tag.is_plain_split() {
            let by = inside.map_or(OUTSIDE, Inside::by);
            tag = self.look_closer(by, index, tag, w, frames)?;
        }
        if let Some(inside) = inside {
            if let Some(done) = inside.free_into_empty(key, index, w, tag, frames) {
                inside.cpu.counters.local_frees.add(if done.is_ok() { frees } else { 0 });
                return done;
            }
            let left = inside.cpu.after_recall.get();
            inside.cpu.after_recall.set(left.saturating_sub(1));
            let again = left == 0 && inside.cpu.last_key.get() == key;
            if again && tag.is_plain_split() && inside.free_and_lease(index, w, tag, frames) {
                self.count_frees(inside.cpu, frees);
                return Ok(());
            }
            inside.cpu.last_key.set(key);
        }
        if self.in_other_hand(index, w, frames) {
            let seen = frames & self.leased_frames(index, w);
            return Err(self.is_free(index, w, if seen == 0 { frames } else { seen }));
        }
        #[cfg(feature = "debug-poison")]
        if self.map.line(index).word(w) & frames == 0 {
            self.poisoned_word(key, frames);
        }
        let by = inside.map_or(OUTSIDE, Inside::by);
        let count = u64::from(frames.count_ones());
        // Before they can be seen: see `watch`.
        self.count_free(by, tag, index, count);
        match self.map.line(index).put(w, frames) {
            Err(there) => {
                self.count_free(by, tag, index, count.wrapping_neg());
                return Err(self.is_free(index, w, there));
            }
            Ok(now) => self.raise_by(by, index, now),
        }
        match inside {
            None => self.count_frees_outside(index, tag, frees),
            Some(inside) => {
                if frames & (frames - 1) == 0 && inside.is_home(tag.zone()) {
                    let offset = (first.get() % FRAMES as u64) as u32;
                    inside.cpu.hints.push(tag.migratetype(), 0, index, offset);
                }
                self.count_frees(inside.cpu, frees);
                self.fold_home(inside.cpu);
            }
        }
        Ok(())
    }

    /// Counts frees into a word, or of whole blocks; those into the hand are local ones.
    #[inline(always)]
    pub(crate) fn count_frees(&self, cpu: &CpuState<'_>, frees: u64) {
        cpu.counters.remote_frees.add(frees);
    }

    /// Counts frees of a block by somebody who is in no CPU's state.
    pub(crate) fn count_frees_outside(&self, index: Index, tag: Tag, frees: u64) {
        let outside = &self.zones[tag.zone()].outside;
        outside[index.get() as usize % outside.len()].frees.add_shared(frees);
    }

    /// A block that is not an ordinary split one: refuses the free, or makes the block ready for
    /// it; the tag then.
    #[cold]
    fn look_closer(
        &self,
        by: By<'_>,
        index: Index,
        mut tag: Tag,
        w: usize,
        frames: u64,
    ) -> Result<Tag, FreeError> {
        let head = self.map.head(index);
        loop {
            match tag.state() {
                ABSENT => return Err(self.no_such_frame(self.frame_of(index, w, frames))),
                WHOLE => return Err(self.is_free(index, w, frames)),
                TAKEN => {
                    // A part of it is freed: from now on its words tell, and what others free there
                    // may count for no row yet.
                    let _moving = self.moving_block(by, index);
                    let strays = self.strays(index);
                    if head.tag.exchange(tag, tag.with_state(SPLIT)) {
                        self.report_these_strays(index, strays);
                        // Its class may say too much still, from before it was whole.
                        self.publish(OUTSIDE, index);
                        return Ok(tag.with_state(SPLIT));
                    }
                    tag = head.tag.get();
                }
                _ => {
                    if tag.has(HOLES) {
                        let missing = frames & !self.map.present_of_ranges(self.map.base(index))[w];
                        if missing != 0 {
                            return Err(self.no_such_frame(self.frame_of(index, w, missing)));
                        }
                    }
                    return Ok(tag);
                }
            }
        }
    }

    /// Why a free of these frames of one word would be refused, as far as can be seen; changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// See [`FreeError`].
    pub(crate) fn check_word(
        &self,
        inside: Option<&Inside<'_, 'm, P>>,
        index: Index,
        w: usize,
        frames: u64,
    ) -> Result<(), FreeError> {
        let (head, line) = (self.map.head(index), self.map.line(index));
        let tag = head.tag.get();
        match tag.state() {
            ABSENT => return Err(self.no_such_frame(self.frame_of(index, w, frames))),
            WHOLE => return Err(self.is_free(index, w, frames)),
            TAKEN => return Ok(()),
            _ => {}
        }
        if tag.has(HOLES) {
            let missing = frames & !self.map.present_of_ranges(self.map.base(index))[w];
            if missing != 0 {
                return Err(self.no_such_frame(self.frame_of(index, w, missing)));
            }
        }
        let mut free = line.word(w);
        if head.is_leased(w) {
            free |= self.leased_frames(index, w);
        } else if let Some(inside) = inside {
            // Its own hand, whatever the lease says.
            let key = u64::from(head.number) * WORDS as u64 + w as u64;
            let lease = inside.cpu.leases.slot(Leases::slot_of(key));
            free |= if lease.is_of(key) { lease.all() } else { 0 };
        }
        if free & frames == 0 { Ok(()) } else { Err(self.is_free(index, w, free & frames)) }
    }

    fn frame_of(&self, index: Index, w: usize, frames: u64) -> Pfn {
        Pfn::new(self.map.base(index) + w as u64 * 64 + u64::from(frames.trailing_zeros()))
    }

    /// The error for the first of these frames, which are free.
    #[cold]
    pub(crate) fn is_free(&self, index: Index, w: usize, frames: u64) -> FreeError {
        let pfn = self.frame_of(index, w, frames);
        if self.map.head(index).tag.get().has(FRESH) {
            FreeError::NeverAllocated { pfn }
        } else {
            FreeError::DoubleFree { pfn }
        }
    }

    /// The error for a frame whose block has no metadata.
    #[cold]
    pub(crate) fn no_such_frame(&self, pfn: Pfn) -> FreeError {
        if !self.zones.iter().any(|z| z.span.contains(pfn)) {
            FreeError::OutOfZone { pfn }
        } else if self.map.is_present(pfn.get()) {
            FreeError::NeverAllocated { pfn }
        } else {
            FreeError::Hole { pfn }
        }
    }

    #[inline(always)]
    pub(crate) fn poisoned(&self, pfn: Pfn, frames: u64) {
        #[cfg(feature = "debug-poison")]
        if let Some(range) = crate::FrameRange::new(pfn, frames) {
            self.platform.poison(range);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, frames);
    }

    #[inline(always)]
    pub(crate) fn poisoned_word(&self, key: u64, frames: u64) {
        #[cfg(feature = "debug-poison")]
        for bit in bits::each(frames) {
            self.poisoned(Pfn::new(key * 64 + u64::from(bit)), 1);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (key, frames);
    }
}

const _: () = assert!(FRAMES == WORDS * 64 && bits::mask(0, 64) == !0);
