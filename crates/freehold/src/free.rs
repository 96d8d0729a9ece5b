//! Freeing: into the holder's own words, or by one atomic into a block that somebody else holds.
//!
//! A free never waits. Where the CPU's own state is in use (by a robber, or by the very path this interrupts) even its
//! own blocks are freed into as if they were somebody else's.

use crate::block::{Block, CLASS_ACTIVE, CLASS_DIRTY, FLAG_HOLES, FRAMES};
use crate::fast::ascending;
use crate::handle::CpuGuard;
use crate::holder::Holder;
use crate::owner::{HINT_NONE, may_hold};
use crate::percpu::{COMBINE, Combine, CpuState, NO_KEY};
use crate::primitive::{Count, Ordering, Plain};
use crate::remote;
use crate::{BulkFreeError, FrameRange, FreeError, Freehold, Order, Pfn, Platform};

impl<'m, P: Platform> Freehold<'m, P> {
    /// One frame.
    #[inline]
    pub(crate) fn free_one(&self, guard: Option<CpuGuard<'_, 'm, P>>, pfn: Pfn) -> Result<(), FreeError> {
        let Some(index) = self.map.locate(pfn.get()) else { return Err(self.nowhere(pfn)) };
        let block = &self.map.blocks[index as usize];
        let offset = (pfn.get() % FRAMES as u64) as usize;
        let (w, mask) = (offset / 64, 1u64 << (offset % 64));
        if let Some(guard) = &guard {
            if block.holder() == Holder::cpu(guard.id) {
                let word = block.free_word(w);
                if word & mask != 0 || block.is_queued() || block.flags() != 0 {
                    self.check_word(Some(guard), block, w, mask)?;
                }
                self.poisoned(pfn, 1);
                block.give(w, mask);
                let pcp = self.pcp(guard.id.index(), block.zone() as usize);
                guard.state.counters.local_frees.add(1);
                let class = block.class();
                if class == CLASS_ACTIVE {
                    pcp.active[block.migratetype() as usize].lower_word(block, w);
                } else if class <= CLASS_DIRTY {
                    pcp.touched(self.map.blocks, index, word | mask == !0);
                } else {
                    // Between two holders: whoever moves it counts it.
                    return Ok(());
                }
                pcp.note_frames(block, 1);
                if pcp.count() <= pcp.high.get() {
                    return Ok(());
                }
                self.drain_over_high(guard, block.zone() as usize);
                return Ok(());
            }
        }
        self.free_elsewhere(guard, index, w, mask)
    }

    /// Frames of one word of a block that the caller does not hold, or cannot treat as its own.
    #[inline(never)]
    fn free_elsewhere(
        &self,
        guard: Option<CpuGuard<'_, 'm, P>>,
        index: u32,
        w: usize,
        mask: u64,
    ) -> Result<(), FreeError> {
        self.free_foreign(guard.as_ref(), index, w, mask, u64::from(mask.count_ones()))
    }

    /// The same; counts as so many frees.
    #[inline]
    fn free_foreign(
        &self,
        guard: Option<&CpuGuard<'_, 'm, P>>,
        index: u32,
        w: usize,
        mask: u64,
        frees: u64,
    ) -> Result<(), FreeError> {
        let block = &self.map.blocks[index as usize];
        let Some(guard) = guard.filter(|g| g.state.online.get()) else {
            self.check_word(None, block, w, mask)?;
            self.poisoned_mask(block, w, mask);
            // Relaxed: a statistic.
            self.unattributed_frees.fetch_add(frees, Ordering::Relaxed);
            let lost = self.publish(index, w, mask);
            return self.told(block, w, lost);
        };
        let key = (block.base() >> 6) + w as u64;
        let slot = key as usize % COMBINE;
        let entry = &guard.state.combine[slot];
        if entry.key.get() == key && entry.mask.get() != 0 {
            let before = entry.mask.get();
            // `known` spares reading the holder's line: a frame not free then may have been freed by somebody else since,
            // which the flush will see; one that was free then may be in use by now, which the check reads.
            if (before | entry.known.get() | block.remote_word(w)) & mask != 0 || block.flags() != 0 {
                self.check_word(Some(guard), block, w, mask)?;
            }
            self.poisoned_mask(block, w, mask);
            entry.mask.set(before | mask);
            guard.state.counters.remote_frees.add(frees);
            if before | mask | entry.known.get() == !0 {
                // Nothing more can come.
                self.flush_entry(guard.state, slot);
            }
            return Ok(());
        }
        let mut known = self.free_or_held(block, w) | block.remote_word(w);
        if known & mask != 0 || block.flags() != 0 || block.holder() == Holder::NOBODY {
            self.check_word(Some(guard), block, w, mask)?;
        }
        if block.has_flag(FLAG_HOLES) {
            // So that later frees of this word look closer.
            known |= !self.map.present(block)[w];
        }
        if entry.mask.get() != 0 {
            self.flush_entry(guard.state, slot);
        }
        self.poisoned_mask(block, w, mask);
        guard.state.counters.remote_frees.add(frees);
        if mask == !0 {
            let lost = self.publish(index, w, mask);
            return self.told(block, w, lost);
        }
        entry.key.set(key);
        entry.mask.set(mask);
        entry.known.set(known);
        entry.block.set(index);
        let combining = &guard.state.combining;
        combining.set(combining.get() | 1 << slot);
        Ok(())
    }

    /// Frees frames into a block that the caller does not hold; returns those that were free already.
    #[inline]
    pub(crate) fn publish(&self, index: u32, w: usize, mask: u64) -> u64 {
        let block = &self.map.blocks[index as usize];
        if may_hold(block.hint.get(), w) {
            self.revoke(block, w, mask);
        }
        remote::publish(self.map.blocks, self, index, w, mask)
    }

    /// Tells the holder that it can no longer free these frames without looking.
    #[cold]
    fn revoke(&self, block: &Block, w: usize, mask: u64) {
        if let Some(cpu) = block.holder().as_cpu().and_then(|cpu| self.cpu_state(cpu)) {
            cpu.owner.revoke(block.base() + w as u64 * 64, mask);
        }
    }

    /// What a publication that lost frames to somebody else's free of the same frames is told.
    fn told(&self, block: &Block, w: usize, lost: u64) -> Result<(), FreeError> {
        if lost == 0 {
            return Ok(());
        }
        Err(FreeError::DoubleFree { pfn: Pfn::new(block.base() + w as u64 * 64 + u64::from(lost.trailing_zeros())) })
    }

    /// Publishes one entry of the combining buffer and empties it.
    pub(crate) fn flush_entry(&self, state: &CpuState, slot: usize) {
        let entry: &Combine = &state.combine[slot];
        let (key, mut mask, index) = (entry.key.get(), entry.mask.get(), entry.block.get());
        entry.key.set(NO_KEY);
        entry.mask.set(0);
        // The owner must not go on adding to it.
        state.owner.remote_key.set(NO_KEY);
        state.counters.remote_frees.add(u64::from(entry.frees.get()));
        entry.frees.set(0);
        state.combining.set(state.combining.get() & !(1 << slot));
        let block = &self.map.blocks[index as usize];
        let w = (key % 8) as usize;
        // Frames that became free since the entry was opened: somebody freed them twice. Also where the holder keeps them
        // aside: it would hand them out once more, and collect them while they are in use.
        let mut late = self.free_or_held(block, w) & mask;
        mask &= !late;
        if mask != 0 {
            late |= self.publish(index, w, mask);
        }
        for bit in crate::bits::each(late) {
            state.counters.late_double_frees.add(1);
            self.late_double_free((key << 6) + u64::from(bit));
        }
    }

    /// Publishes all that waits in the CPU's combining buffer.
    pub(crate) fn flush_combining(&self, guard: &CpuGuard<'_, 'm, P>) {
        for slot in crate::bits::each(u64::from(guard.state.combining.get())) {
            self.flush_entry(guard.state, slot as usize);
        }
    }

    /// The frames of word `w` that are free in the holder's hand, with what it keeps aside.
    #[inline]
    pub(crate) fn free_or_held(&self, block: &Block, w: usize) -> u64 {
        let free = block.free_word(w);
        if may_hold(block.hint.get(), w) { free | self.held_by_holder(block, w) } else { free }
    }

    #[cold]
    fn held_by_holder(&self, block: &Block, w: usize) -> u64 {
        let holder = block.holder().as_cpu().and_then(|cpu| self.cpu_state(cpu));
        holder.map_or(0, |cpu| cpu.owner.held_frames(block, w))
    }

    /// Whether every frame of `mask` in word `w` is in use, as far as this caller can read.
    #[cold]
    #[inline(never)]
    fn check_word(
        &self,
        guard: Option<&CpuGuard<'_, 'm, P>>,
        block: &Block,
        w: usize,
        mask: u64,
    ) -> Result<(), FreeError> {
        let base = block.base() + w as u64 * 64;
        if block.holder() == Holder::NOBODY {
            return Err(self.nowhere(Pfn::new(base + u64::from(mask.trailing_zeros()))));
        }
        if block.has_flag(FLAG_HOLES) {
            let missing = mask & !self.map.present(block)[w];
            if missing != 0 {
                return Err(self.nowhere(Pfn::new(base + u64::from(missing.trailing_zeros()))));
            }
        }
        let mut free = self.free_or_held(block, w) | block.remote_word(w);
        if let Some(guard) = guard {
            let key = base >> 6;
            let entry = &guard.state.combine[key as usize % COMBINE];
            if entry.key.get() == key {
                free |= entry.mask.get();
            }
        }
        let twice = free & mask;
        if twice == 0 {
            return Ok(());
        }
        let bit = twice.trailing_zeros();
        let pfn = Pfn::new(base + u64::from(bit));
        if block.is_virgin(w * 64 + bit as usize) {
            Err(FreeError::NeverAllocated { pfn })
        } else {
            Err(FreeError::DoubleFree { pfn })
        }
    }

    /// Why there is no frame there.
    #[cold]
    pub(crate) fn nowhere(&self, pfn: Pfn) -> FreeError {
        if self.zones.iter().any(|z| z.span.contains(pfn)) {
            FreeError::Hole { pfn }
        } else {
            FreeError::OutOfZone { pfn }
        }
    }

    /// An aligned chunk.
    pub(crate) fn free_chunk(
        &self,
        guard: Option<CpuGuard<'_, 'm, P>>,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        if !pfn.is_aligned(order) {
            return Err(FreeError::Misaligned { pfn, order });
        }
        if order.get() <= 6 {
            // Within one word.
            let mask = crate::bits::mask((pfn.get() % 64) as u32, 1 << order.get());
            return self.free_word_mask(guard.as_ref(), pfn.get() >> 6, mask, 1);
        }
        match FrameRange::new(pfn, order.frames()) {
            Some(range) => self.free_range_entered(guard, range),
            None => Err(FreeError::OutOfZone { pfn }),
        }
    }

    /// Any range; checks all of it before it changes anything.
    pub(crate) fn free_range_entered(
        &self,
        guard: Option<CpuGuard<'_, 'm, P>>,
        range: FrameRange,
    ) -> Result<(), FreeError> {
        self.check_range(guard.as_ref(), range)?;
        let result = self.commit_range(guard.as_ref(), range);
        if let Some(guard) = &guard {
            for z in 0..self.zones.len() {
                let pcp = self.pcp(guard.id.index(), z);
                if pcp.count() > pcp.high.get() {
                    self.drain_over_high(guard, z);
                }
            }
        }
        result
    }

    /// A range, by an allocation that is giving back part of what it took.
    pub(crate) fn free_range_inside(&self, guard: &CpuGuard<'_, 'm, P>, range: FrameRange) -> Result<(), FreeError> {
        self.check_range(Some(guard), range)?;
        self.commit_range(Some(guard), range)
    }

    fn check_range(&self, guard: Option<&CpuGuard<'_, 'm, P>>, range: FrameRange) -> Result<(), FreeError> {
        if range.is_empty() {
            return Err(FreeError::ZeroLength);
        }
        let Some(zone) = self.zones.iter().find(|z| z.span.contains(range.start)) else {
            return Err(FreeError::OutOfZone { pfn: range.start });
        };
        if range.end > zone.span.end {
            return Err(FreeError::PastEnd { pfn: zone.span.end });
        }
        for (base, offset, len) in pieces(range) {
            let Some(index) = self.map.locate(base) else { return Err(self.nowhere(Pfn::new(base + offset as u64))) };
            let block = &self.map.blocks[index as usize];
            for (w, m) in crate::bits::spans(offset, len) {
                let mut free = self.free_or_held(block, w) | block.remote_word(w);
                if let Some(guard) = guard.filter(|g| g.state.combining.get() != 0) {
                    let key = (base >> 6) + w as u64;
                    let entry = &guard.state.combine[key as usize % COMBINE];
                    if entry.key.get() == key {
                        free |= entry.mask.get();
                    }
                }
                if free & m != 0 || block.flags() != 0 || block.holder() == Holder::NOBODY {
                    self.check_word(guard, block, w, m)?;
                }
            }
        }
        Ok(())
    }

    fn commit_range(&self, guard: Option<&CpuGuard<'_, 'm, P>>, range: FrameRange) -> Result<(), FreeError> {
        self.poisoned(range.start, range.len());
        let mut result = Ok(());
        for (base, offset, len) in pieces(range) {
            let Some(index) = self.map.locate(base) else { continue };
            if let Err(error) = self.commit_piece(guard, index, offset, len) {
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Frees checked frames of one block.
    fn commit_piece(
        &self,
        guard: Option<&CpuGuard<'_, 'm, P>>,
        index: u32,
        offset: usize,
        len: usize,
    ) -> Result<(), FreeError> {
        let block = &self.map.blocks[index as usize];
        let spans = || crate::bits::spans(offset, len);
        if let Some(guard) = guard {
            if block.holder() == Holder::cpu(guard.id) {
                for (w, m) in spans() {
                    block.give(w, m);
                }
                guard.state.counters.local_frees.add(1);
                self.freed_in_hand(guard, index, offset, len);
                return Ok(());
            }
            if len < 64 && offset / 64 == (offset + len - 1) / 64 {
                let m = crate::bits::mask((offset % 64) as u32, len as u32);
                return self.free_foreign(Some(guard), index, offset / 64, m, 1);
            }
            guard.state.counters.remote_frees.add(1);
        } else {
            // Relaxed: a statistic.
            self.unattributed_frees.fetch_add(1, Ordering::Relaxed);
        }
        if block.hint.get() != HINT_NONE {
            spans().for_each(|(w, m)| self.revoke(block, w, m));
        }
        match remote::publish_run(self.map.blocks, self, index, spans()) {
            None => Ok(()),
            Some((w, lost)) => self.told(block, w, lost),
        }
    }

    /// Frames of a block in hand have been set free: counts them and puts the block where it belongs.
    #[inline]
    fn freed_in_hand(&self, guard: &CpuGuard<'_, 'm, P>, index: u32, offset: usize, len: usize) {
        let block = &self.map.blocks[index as usize];
        let class = block.class();
        let pcp = self.pcp(guard.id.index(), block.zone() as usize);
        if class == CLASS_ACTIVE {
            pcp.active[block.migratetype() as usize].lower_word(block, offset / 64);
        } else if class <= CLASS_DIRTY {
            pcp.touched(self.map.blocks, index, true);
        } else {
            // Detached: whoever moves it counts it.
            return;
        }
        pcp.note_frames(block, len as u32);
    }

    /// Single frames in any order: neighbours in the slice that share a word go together.
    pub(crate) fn free_bulk_entered(
        &self,
        guard: Option<CpuGuard<'_, 'm, P>>,
        frames: &[Pfn],
    ) -> Result<(), BulkFreeError> {
        let guard = guard.as_ref();
        let mut at = 0;
        while at < frames.len() {
            let first = frames[at].get();
            let key = first >> 6;
            // Ascending neighbours first: they are common, and cheap to recognise.
            let run = ascending(&frames[at..], 64 - (first % 64) as usize);
            let mut mask = crate::bits::mask((first % 64) as u32, run as u32);
            let mut end = at + run;
            while end < frames.len() && frames[end].get() >> 6 == key {
                let bit = 1u64 << (frames[end].get() % 64);
                if mask & bit != 0 {
                    break;
                }
                mask |= bit;
                end += 1;
            }
            if let Err(error) = self.free_word_mask(guard, key, mask, u64::from(mask.count_ones())) {
                // The word as a whole was refused; frame by frame finds the first that is to blame.
                for (i, &pfn) in frames[at..end].iter().enumerate() {
                    let bit = 1u64 << (pfn.get() % 64);
                    if let Err(error) = self.free_word_mask(guard, key, bit, 1) {
                        return Err(BulkFreeError { freed: at + i, error });
                    }
                }
                // Somebody else's free was in the way for a moment: all of it is free now, but part not by us.
                return Err(BulkFreeError { freed: end, error });
            }
            at = end;
        }
        Ok(())
    }

    /// Frames of one word, wherever it is held; counts as so many frees.
    #[inline]
    fn free_word_mask(
        &self,
        guard: Option<&CpuGuard<'_, 'm, P>>,
        key: u64,
        mask: u64,
        frees: u64,
    ) -> Result<(), FreeError> {
        let first = Pfn::new((key << 6) + u64::from(mask.trailing_zeros()));
        let Some(index) = self.map.locate(key << 6) else { return Err(self.nowhere(first)) };
        let block = &self.map.blocks[index as usize];
        let w = (key % 8) as usize;
        if let Some(guard) = guard {
            if block.holder() == Holder::cpu(guard.id) {
                let word = block.free_word(w);
                if word & mask != 0 || block.is_queued() || block.flags() != 0 {
                    self.check_word(Some(guard), block, w, mask)?;
                }
                self.poisoned_mask(block, w, mask);
                block.give(w, mask);
                guard.state.counters.local_frees.add(frees);
                let pcp = self.pcp(guard.id.index(), block.zone() as usize);
                let class = block.class();
                if class == CLASS_ACTIVE {
                    pcp.active[block.migratetype() as usize].lower_word(block, w);
                } else if class <= CLASS_DIRTY {
                    pcp.touched(self.map.blocks, index, word | mask == !0);
                } else {
                    return Ok(());
                }
                pcp.note_frames(block, mask.count_ones());
                if pcp.count() > pcp.high.get() {
                    self.drain_over_high(guard, block.zone() as usize);
                }
                return Ok(());
            }
        }
        self.free_foreign(guard, index, w, mask, frees)
    }

    #[inline(always)]
    pub(crate) fn poisoned(&self, pfn: Pfn, frames: u64) {
        #[cfg(feature = "debug-poison")]
        if let Some(range) = FrameRange::new(pfn, frames) {
            self.platform.poison(range);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, frames);
    }

    #[inline(always)]
    pub(crate) fn poisoned_mask(&self, block: &Block, w: usize, mask: u64) {
        #[cfg(feature = "debug-poison")]
        for bit in crate::bits::each(mask) {
            self.poisoned(Pfn::new(block.base() + w as u64 * 64 + u64::from(bit)), 1);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (block, w, mask);
    }
}

/// The part of a range in each block: (first frame of the block, offset in it, length).
fn pieces(range: FrameRange) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, end) = (range.start.get(), range.end.get());
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let offset = at % FRAMES as u64;
        let len = (FRAMES as u64 - offset).min(end - at);
        let item = (at - offset, offset as usize, len as usize);
        at += len;
        Some(item)
    })
}
