//! Giving frames back from a CPU to the zone: how many at once, from which list, and who asks for
//! it.
//!
//! ```text
//!   5.17   selection (rotating, a growing share a list) ──> second list ──> zone lock: free each
//!   5.18   zone lock: from the list that overflowed on, empty one list after the other, free each
//!          as it is picked
//!   6.18   as in 5.18; what decays goes back batch by batch, each from the first list on
//!   6.19   batch by batch too goes what a free drains, from the list that overflowed on, and the
//!          lock is dropped after every batch
//!   RFC    PCP lock: merge buddies; zone lock: whole pageblocks first, then the lists from the
//!          smallest order on
//! ```
//!
//! Who asks: a free that found the PCP full, the decay of an idle CPU, a drain of everybody before
//! an allocation fails, isolation, and a CPU going offline.

use freehold::Migratetype;

use crate::list::List;
use crate::page::{Kind, MAX_ORDER, PAGEBLOCK_ORDER, State};
use crate::pcp::{Layout, PcpInner, next};
use crate::stats::ListFlow;
use crate::switches::Switch;
use crate::tune::SCALE_MAX;
use crate::zone::{Locked, Zone};

/// The choice of the next list to take from. Each look at a list is counted, found empty or not.
struct Selection {
    index: usize,
    /// The lists between which there may be a non-empty one.
    min: usize,
    max: usize,
    /// How many lists there are.
    lists: usize,
    /// 5.17: lists passed since the last one taken from; that many chunks are taken from the next.
    /// What a list that ran empty could not give is added to the share of the one after it.
    share: u32,
}

impl Selection {
    /// The next non-empty list. There must be one.
    fn next(&mut self, pcp: &mut PcpInner, zone: &Zone) -> usize {
        let range = zone.on.has(Switch::PindexRange);
        // As first posted, the search starts over where all lists end: the range says when there is
        // only one list left, and spares no look.
        let wrap = zone.on.has(Switch::RangeWrap);
        loop {
            self.share += 1;
            let (start, end) = if wrap { (self.min, self.max) } else { (0, self.lists - 1) };
            self.index = if self.index >= end { start } else { self.index + 1 };
            pcp.counters.lists_looked_at += 1;
            pcp.work += 1;
            if !pcp.lists[self.index].is_empty() {
                return self.index;
            }
            if range {
                if self.index == self.max && self.max > self.min {
                    self.max -= 1;
                } else if self.index == self.min && self.min < self.max {
                    self.min += 1;
                }
            }
        }
    }
}

impl Zone {
    /// Gives at least `wanted` frames back, or all there are; `requested` is the list that
    /// overflowed.
    ///
    /// `first` says that this is the first piece of a drain: with `merge-once` only that is
    /// preceded by a merge pass.
    ///
    /// One hold of the zone lock. Source: `free_pcppages_bulk` of 5.17, of each patch of the 2022
    /// series, and of the RFC.
    pub(crate) fn free_bulk(
        &self,
        pcp: &mut PcpInner,
        layout: Layout,
        wanted: u32,
        requested: usize,
        first: bool,
    ) {
        let left = wanted.min(pcp.count);
        if left == 0 {
            return;
        }
        if self.on.has(Switch::Merge) && (first || !self.on.has(Switch::MergeOnce)) {
            pcp.merge(&self.frames, layout);
        }
        if self.on.has(Switch::MergeUnowned) && first {
            pcp.merge_unowned(&self.frames, layout);
        }
        let selection = self.first_list(layout, requested);
        pcp.counters.drains += 1;
        // Up to 5.19 the buddies of the first batch of chunks were prefetched.
        let prefetch = if self.on.has(Switch::ThpOneList) { 0 } else { pcp.tuning.batch };
        if self.on.has(Switch::SinglePass) {
            self.free_in_one_pass(pcp, left, selection, prefetch);
        } else {
            self.free_in_two_passes(pcp, left, selection, prefetch);
        }
    }

    /// Where a drain begins to look.
    fn first_list(&self, layout: Layout, requested: usize) -> Selection {
        let lists = layout.lists();
        let first = if self.on.has(Switch::WholeFirst) {
            layout.index(PAGEBLOCK_ORDER, Migratetype::Unmovable)
        } else if !self.on.has(Switch::SimpleSelection) {
            0
        } else {
            requested
        };
        // The kernel steps on before it looks, so to begin with a list means to stand on the one
        // before.
        let early = self.on.has(Switch::RequestedFirst) || self.on.has(Switch::WholeFirst);
        let index = if early { (first + lists - 1) % lists } else { first };
        Selection { index, min: 0, max: lists - 1, lists, share: 0 }
    }

    /// Chunks are taken off and freed one by one, all under the zone lock.
    fn free_in_one_pass(&self, pcp: &mut PcpInner, left: u32, selection: Selection, prefetch: u32) {
        let mut zone = self.lock();
        let looked = pcp.counters.lists_looked_at;
        self.pick_all(pcp, left, selection, prefetch, |_, frame, state| {
            zone.work += 1;
            zone.free_drained(frame, state);
        });
        zone.work += pcp.counters.lists_looked_at - looked;
    }

    /// Chunks are gathered on a list of their own first, and freed from there under the zone lock.
    fn free_in_two_passes(
        &self,
        pcp: &mut PcpInner,
        left: u32,
        selection: Selection,
        prefetch: u32,
    ) {
        let mut picked = List::EMPTY;
        self.pick_all(pcp, left, selection, prefetch, |pcp, frame, state| {
            self.frames.set(frame, state);
            picked.push_back(&self.frames, frame);
            pcp.counters.second_list_moves += 1;
        });
        let mut zone = self.lock();
        let mut at = picked.first();
        while let Some(frame) = at {
            // Read before the free reuses the links.
            at = next(&self.frames, frame);
            zone.free_drained(frame, self.frames.state(frame));
        }
    }

    /// Takes chunks of `left` frames off, list by list.
    fn pick_all(
        &self,
        pcp: &mut PcpInner,
        mut left: u32,
        mut selection: Selection,
        mut prefetch: u32,
        mut with: impl FnMut(&mut PcpInner, u32, State),
    ) {
        while left > 0 {
            let list = selection.next(pcp, self);
            let mut share = self.share(&mut selection, left);
            loop {
                let (frame, state) = self.pick(pcp, list, &mut prefetch);
                left = left.saturating_sub(1 << state.order());
                share -= 1;
                with(pcp, frame, state);
                if left == 0 || share == 0 || pcp.lists[list].is_empty() {
                    break;
                }
            }
            selection.share = share;
        }
    }

    /// How many chunks may be taken from the list just chosen.
    fn share(&self, selection: &mut Selection, left: u32) -> u32 {
        if self.on.has(Switch::SimpleSelection) {
            return left;
        }
        let share = core::mem::take(&mut selection.share);
        // Everything else was empty: no need to come back to this list again and again.
        let only = if self.on.has(Switch::PindexRange) {
            share as usize >= selection.max - selection.min
        } else {
            share as usize > selection.max
        };
        if only { left } else { share }
    }

    /// Takes the coldest chunk of a list.
    fn pick(&self, pcp: &mut PcpInner, list: usize, prefetch: &mut u32) -> (u32, State) {
        let frame = pcp.lists[list]
            .last()
            .unwrap_or_else(|| unreachable!("the list was chosen because it is not empty"));
        let state = pcp.remove(&self.frames, list, frame);
        ListFlow::count(&mut pcp.flow.drained, state.order(), state.migratetype().index());
        pcp.counters.drained_chunks += 1;
        pcp.counters.drained_frames += 1 << state.order();
        pcp.counters.drained_blocks += u64::from(state.order() == PAGEBLOCK_ORDER);
        if *prefetch > 0 {
            *prefetch -= 1;
            pcp.counters.prefetches += 1;
            // Before patch 1 of the 2022 series it was always the buddy of order 0.
            let wrong = state.order() > 0 && !self.on.has(Switch::RightBuddyPrefetch);
            pcp.counters.wrong_prefetches += u64::from(wrong);
        }
        (frame, state)
    }

    /// What a piece of a drain counts for when it was to be `piece` frames and was `drained`.
    ///
    /// The kernel subtracts what it asked for, even where a huge page came out of it: the
    /// recordings of 6.18 have timer drains of 32 batches, 17 of them a huge page each. The RFC
    /// leaves that loop as it is and begins each piece with whole blocks, so that a piece of 63
    /// frames gives back 512, eight times too much. With `count-drained` a block counts as one.
    pub(crate) fn given(&self, piece: u32, drained: u32) -> u32 {
        if self.on.has(Switch::CountDrained) { drained } else { piece }
    }

    /// Empties a PCP, its list of remote frees included: in pieces of at most 32 batches, each one
    /// hold of both locks, or (before 6.10) in one. The chunks of 6.19 are for drains after a free;
    /// this one they left alone. Source: `drain_pages_zone` of 5.17, where the 2022 series shows
    /// it, and of Linux 7.3.
    pub(crate) fn drain_pcp(&self, cpu: usize, layout: Layout) {
        let pcp = &self.pcps[cpu];
        self.absorb_all(cpu, layout);
        // Once around per piece; frees that arrive meanwhile are the next drain's business.
        let all = pcp.look().count;
        let mut left = all;
        while left > 0 {
            let mut inner = pcp.lock();
            let bounded = self.on.has(Switch::DrainPieces);
            let most = if bounded { inner.tuning.batch << SCALE_MAX } else { u32::MAX };
            let piece = left.min(most.max(1)).min(inner.count);
            if piece == 0 {
                break;
            }
            let before = inner.count;
            self.free_bulk(&mut inner, layout, piece, 0, left == all);
            left = left.saturating_sub(before - inner.count);
        }
    }

    /// Gives about `frames` frames back, a batch at least, from the list of that order and type on
    /// where the CPU keeps such chunks; returns how many went. Fewer than a batch would have the
    /// next request ask again: what CPUs hold counts for no watermark.
    pub(crate) fn give_back(
        &self,
        cpu: usize,
        layout: Layout,
        frames: u32,
        order: u8,
        migratetype: Migratetype,
    ) -> u32 {
        let pcp = &self.pcps[cpu];
        self.absorb_all(cpu, layout);
        if pcp.look().count == 0 {
            return 0;
        }
        let mut inner = pcp.lock();
        let (before, frames) = (inner.count, frames.max(inner.tuning.batch));
        let list = if layout.keeps(order) { layout.index(order, migratetype) } else { 0 };
        self.free_bulk(&mut inner, layout, frames, list, true);
        before - inner.count
    }

    /// Takes over what other CPUs have freed to `cpu`, if there may be anything.
    fn absorb_all(&self, cpu: usize, layout: Layout) {
        let pcp = &self.pcps[cpu];
        if !pcp.remote().is_empty() {
            self.absorb(cpu, &mut pcp.lock(), layout);
        }
    }

    /// Takes over what other CPUs have freed to `cpu`. The caller holds that PCP's lock.
    pub(crate) fn absorb(&self, cpu: usize, inner: &mut PcpInner, layout: Layout) {
        let left = core::mem::take(&mut *self.pcps[cpu].remote());
        for frame in left.into_iter().rev() {
            let order = self.frames.state(frame).order();
            let block_type = self.type_of(frame);
            inner.counters.absorbed += 1;
            if block_type == Migratetype::Isolate {
                self.lock().free_split(frame, order, false);
                continue;
            }
            let index = layout.index(order, block_type);
            let list_type = Migratetype::PCP[index % 3];
            let owned = self.blocks.owner(self.block_of(frame)) == Some(cpu as u32);
            let kind = if owned { Kind::PcpBuddy } else { Kind::Pcp };
            inner.push(&self.frames, index, frame, State::new(kind, order, list_type));
        }
    }

    /// An idle CPU's share sinks, and what is above it goes back. Source: Linux 6.7,
    /// `decay_pcp_high`.
    pub(crate) fn decay(&self, cpu: usize, layout: Layout) {
        let pcp = &self.pcps[cpu];
        self.absorb_all(cpu, layout);
        let excess = {
            // The kernel lowers the mark without the lock.
            let mut inner = pcp.look();
            let count = inner.count;
            inner.tuning.decay(self.on, count)
        };
        if !self.on.has(Switch::AutoHigh) {
            return;
        }
        let mut left = excess;
        while left > 0 {
            let mut inner = pcp.lock();
            if inner.count == 0 {
                break;
            }
            let before = inner.count;
            let chunked = self.on.has(Switch::ChunkedDecay);
            let piece = if chunked { left.min(inner.tuning.batch.max(1)) } else { left };
            self.free_bulk(&mut inner, layout, piece, 0, left == excess);
            left = left.saturating_sub(self.given(piece, before - inner.count));
        }
    }

    /// One tick of a CPU that keeps frames of another node's zone: after three idle ticks they
    /// trickle back, a batch a tick. Source: Linux, `drain_zone_pages`.
    pub(crate) fn drain_remote_node(&self, cpu: usize, layout: Layout) {
        let pcp = &self.pcps[cpu];
        self.absorb_all(cpu, layout);
        if pcp.look().count > 0 {
            let mut inner = pcp.lock();
            let piece = inner.count.min(inner.tuning.batch);
            self.free_bulk(&mut inner, layout, piece, 0, true);
        }
    }
}

impl Locked<'_> {
    /// Frees a chunk that a PCP gave back, as the design says which list it belongs to.
    fn free_drained(&mut self, frame: u32, state: State) {
        let zone = self.zone;
        let order = state.order();
        debug_assert!(order <= MAX_ORDER);
        let block = zone.block_of(frame);
        // Since 6.10 the block's type of now; before, the type it had when the chunk was freed,
        // unless some block is being isolated.
        let stale = !zone.on.has(Switch::TypeHygiene) && self.isolated_blocks == 0;
        let now = zone.blocks.migratetype(block);
        // A reserve's or isolation's type from back then must not take the chunk out of reach now.
        let then = state.migratetype();
        let migratetype =
            if stale && now.is_mergeable() && then.is_mergeable() { then } else { now };
        let fragment = state.kind() == Kind::PcpBuddy && order < PAGEBLOCK_ORDER;
        if let Some(owner) = zone.blocks.owner(block) {
            if fragment && zone.on.has(Switch::Recover) {
                self.enlist(owner, block);
            }
        }
        let tail = fragment && zone.on.has(Switch::FragmentTail);
        self.free_one(frame, order, migratetype, tail);
    }
}
