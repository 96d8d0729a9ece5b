//! Allocating: from the active block in a few instructions, otherwise step by step further away.
//!
//! ```text
//! 1 active block        3 inbox          5 zone: recover, claim, fragment      7 other CPUs' blocks, one at a time
//! 2 blocks on the shelf 4 whole in hand  6 zone's own frames, then a fallback  8 mixing migratetypes, reserves
//! ```
//!
//! A request fails only after all of these came to nothing on every zone it may use.

use core::num::NonZeroU64;

use crate::block::{Block, CLASS_DETACHED, CLASS_DIRTY, FRAMES, NONE, WORDS};
use crate::handle::CpuGuard;
use crate::percpu::{Active, CMA, Pcp};
use crate::primitive::{Count, Plain};
use crate::refill::{Refill, Stage};
use crate::remote;
use crate::{AllocError, AllocFlags, FrameRange, Freehold, Migratetype, Order, Pfn, Platform, Request};

/// Blocks of its inbox that a CPU collects at a time.
const COLLECT: u32 = 16;

impl<'m, P: Platform> Freehold<'m, P> {
    /// The whole of an allocation but for getting in. Leaves the CPU.
    #[inline(always)]
    pub(crate) fn alloc_entered(
        &self,
        guard: CpuGuard<'_, 'm, P>,
        pcp: &Pcp,
        request: &Request,
    ) -> Result<Pfn, AllocError> {
        if request.is_plain_frame() {
            if let Some(pfn) = self.take_active(pcp, request.migratetype as usize) {
                let active = &pcp.active[request.migratetype as usize];
                pcp.forget_frames(&self.map.blocks[active.block.get() as usize], 1);
                guard.state.counters.allocs[request.migratetype as usize][0].add(1);
                self.handed_out(pfn, Order::ZERO);
                return Ok(pfn);
            }
        }
        if request.plain == Request::PLAIN_CHUNK {
            let migratetype = request.migratetype as usize;
            if let Some(pfn) = self.take_partial(pcp, migratetype, u32::from(request.order.get())) {
                guard.state.counters.allocs[migratetype][request.order.index()].add(1);
                self.handed_out(pfn, request.order);
                return Ok(pfn);
            }
        }
        self.alloc_slow(guard, request)
    }

    /// The lowest free frame of the active block. The caller counts it.
    #[inline(always)]
    fn take_active(&self, pcp: &Pcp, migratetype: usize) -> Option<Pfn> {
        let active = &pcp.active[migratetype];
        // An index of NONE is out of bounds: one check for both.
        let block = self.map.blocks.get(active.block.get() as usize)?;
        let w = active.word.get() as usize % WORDS;
        let word = block.free_word(w);
        let Some(bits) = NonZeroU64::new(word) else { return Self::take_next_word(active, block, w) };
        block.set_free_word(w, word & (word - 1));
        Some(Pfn::new(active.base.get() + u64::from(bits.trailing_zeros())))
    }

    /// The same where word `w` has nothing left: the next word that has becomes the one to allocate from.
    #[cold]
    #[inline(never)]
    fn take_next_word(active: &Active, block: &Block, w: usize) -> Option<Pfn> {
        let w = (w + 1..WORDS).find(|&w| block.free_word(w) != 0)?;
        active.set_word(block, w);
        let word = block.free_word(w);
        block.set_free_word(w, word & (word - 1));
        Some(Pfn::new(active.base.get() + u64::from(word.trailing_zeros())))
    }

    /// Tells the host's poison check about frames on their way out.
    #[inline(always)]
    pub(crate) fn handed_out(&self, pfn: Pfn, order: Order) {
        #[cfg(feature = "debug-poison")]
        if let Some(frames) = FrameRange::new(pfn, order.frames()) {
            self.platform.check_poison(frames);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, order);
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, guard: CpuGuard<'_, 'm, P>, request: &Request) -> Result<Pfn, AllocError> {
        let result = self.alloc_checked(&guard, request);
        let state = guard.state;
        match result {
            Ok(_) => {
                state.counters.allocs[request.migratetype as usize][request.order.index()].add(1);
            }
            Err(_) => state.counters.failed.add(1),
        }
        drop(guard);
        self.tell_pressure();
        if let Ok(pfn) = result {
            self.handed_out(pfn, request.order);
        }
        result
    }

    fn alloc_checked(&self, guard: &CpuGuard<'_, 'm, P>, request: &Request) -> Result<Pfn, AllocError> {
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        if !guard.state.online.get() {
            return Err(AllocError::CpuOffline { cpu: guard.id });
        }
        if request.align > request.order {
            // A larger chunk starts where the smaller one shall; what is behind it goes back at once.
            let larger = Request { order: request.align, align: Order::ZERO, ..*request };
            let pfn = self.alloc_checked(guard, &larger)?;
            let rest = FrameRange {
                start: Pfn::new(pfn.get() + request.order.frames()),
                end: Pfn::new(pfn.get() + larger.order.frames()),
            };
            let freed = self.free_range_inside(guard, rest);
            debug_assert!(freed.is_ok());
            return Ok(pfn);
        }
        if request.is_limited() {
            return self.alloc_limited(guard, request);
        }
        if request.order > Order::PAGEBLOCK {
            return self.alloc_run(guard, request);
        }
        self.alloc_stages(guard, request)
    }

    /// All stages of an allocation of up to one block. Each is bounded; the zone lock is never held over two of them.
    fn alloc_stages(&self, guard: &CpuGuard<'_, 'm, P>, request: &Request) -> Result<Pfn, AllocError> {
        let cpu = guard.id.index();
        let zones = self.zonelist(cpu, request.node);
        // Stage by stage, over all zones before the next stage: a further zone is better than a last resort.
        for stage in [Stage::Normal, Stage::Reserve] {
            for z in zones.clone() {
                if let Some(pfn) = self.alloc_in_zone(guard, z, request, stage) {
                    return Ok(pfn);
                }
            }
        }
        if request.flags.contains(AllocFlags::NO_LOCK) {
            return Err(AllocError::WouldBlock);
        }
        for z in zones.clone() {
            if let Some(pfn) = self.steal_in_zone(guard, z, request) {
                return Ok(pfn);
            }
        }
        for stage in [Stage::Mix, Stage::LastResort] {
            for z in zones.clone() {
                if let Some(pfn) = self.alloc_in_zone(guard, z, request, stage) {
                    return Ok(pfn);
                }
                if stage == Stage::Mix {
                    if let Some(pfn) = self.mix_in_cpus(guard, z, request) {
                        return Ok(pfn);
                    }
                }
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }

    /// One stage on one zone: what the CPU has, then what the zone gives.
    pub(crate) fn alloc_in_zone(
        &self,
        guard: &CpuGuard<'_, 'm, P>,
        z: usize,
        request: &Request,
        stage: Stage,
    ) -> Option<Pfn> {
        let pcp = self.pcp(guard.id.index(), z);
        if stage == Stage::Normal {
            if let Some(pfn) = self.take_in_hand(guard, pcp, request) {
                return Some(pfn);
            }
            guard.state.counters.slow.add(1);
        }
        // Each turn either ends or has brought blocks; others may take them while this CPU is left, but not for ever.
        for _ in 0..8 {
            match self.refill(guard, z, request, stage) {
                Refill::Taken(pfn) => return Some(pfn),
                Refill::Stocked => {
                    if let Some(pfn) = self.take_in_hand(guard, pcp, request) {
                        return Some(pfn);
                    }
                }
                Refill::Nothing => return None,
            }
        }
        None
    }

    /// From the blocks that the CPU holds, after collecting its inbox if need be.
    pub(crate) fn take_in_hand(&self, guard: &CpuGuard<'_, 'm, P>, pcp: &Pcp, request: &Request) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        let normal = request.migratetype as u8;
        // The CMA rule, applied to what is in hand: over half of it CMA means CMA first.
        let cma_first = request.cma() && pcp.count_cma() > pcp.count() / 2;
        let types = match (request.cma(), cma_first) {
            (true, true) => [CMA, normal],
            (true, false) => [normal, CMA],
            _ => [normal, normal],
        };
        for round in 0..2 {
            for migratetype in types {
                if let Some(pfn) = self.take_partial(pcp, migratetype as usize, order) {
                    return Some(pfn);
                }
            }
            if round == 0 && !self.collect_some(guard, COLLECT) {
                break;
            }
        }
        self.take_whole_in_hand(pcp, normal, order)
    }

    /// From a block of that type: the active one, or the one on the shelf with the smallest sufficient run.
    fn take_partial(&self, pcp: &Pcp, migratetype: usize, order: u32) -> Option<Pfn> {
        let blocks = self.map.blocks;
        if order == 0 {
            if let Some(pfn) = self.take_active(pcp, migratetype) {
                pcp.forget_frames(&blocks[pcp.active[migratetype].block.get() as usize], 1);
                return Some(pfn);
            }
            let (index, _) = pcp.find_partial(blocks, migratetype, 0)?;
            pcp.activate(blocks, index);
            let pfn = self.take_active(pcp, migratetype)?;
            pcp.forget_frames(&blocks[index as usize], 1);
            return Some(pfn);
        }
        if order == 9 {
            return None;
        }
        let active = pcp.active[migratetype].block.get();
        if active != NONE {
            if let Some(offset) = blocks[active as usize].find_run(order) {
                return Some(self.take_from(pcp, active, offset, order));
            }
        }
        let (index, offset) = pcp.find_partial(blocks, migratetype, order)?;
        if active == NONE {
            pcp.activate(blocks, index);
            return Some(self.take_from(pcp, index, offset, order));
        }
        let pfn = self.take_from(pcp, index, offset, order);
        pcp.reclassify(blocks, index);
        Some(pfn)
    }

    /// From a wholly free block in hand, which takes the type of the request.
    fn take_whole_in_hand(&self, pcp: &Pcp, migratetype: u8, order: u32) -> Option<Pfn> {
        let blocks = self.map.blocks;
        let index = pcp.find_whole(blocks)?;
        if blocks[index as usize].migratetype() != migratetype {
            pcp.retype(blocks, index, migratetype);
        }
        // What is left of it is the active block's successor, but only once that one has nothing left: otherwise every
        // chunk that did not fit would leave a block behind that is hardly begun.
        let active = blocks.get(pcp.active[migratetype as usize].block.get() as usize);
        if order < 9 && active.is_none_or(|active| !active.has_free()) {
            pcp.activate(blocks, index);
            return Some(self.take_from(pcp, index, 0, order));
        }
        let pfn = self.take_from(pcp, index, 0, order);
        pcp.reclassify(blocks, index);
        Some(pfn)
    }

    /// Hands out a free run of a block in hand.
    pub(crate) fn take_from(&self, pcp: &Pcp, index: u32, offset: usize, order: u32) -> Pfn {
        let block = &self.map.blocks[index as usize];
        block.take_run(offset, 1 << order);
        pcp.forget_frames(block, 1 << order);
        Pfn::new(block.base() + offset as u64)
    }

    /// Collects up to `limit` blocks of the CPU's inbox; whether there was anything.
    pub(crate) fn collect_some(&self, guard: &CpuGuard<'_, 'm, P>, limit: u32) -> bool {
        let inbox = &guard.state.inbox;
        if inbox.is_empty() {
            return false;
        }
        let me = crate::holder::Holder::cpu(guard.id);
        for _ in 0..limit {
            let Some(index) = inbox.pop(self.map.blocks) else { break };
            if remote::accept(self.map.blocks, self, me, index) {
                self.absorb_in_hand(guard, index);
            }
        }
        true
    }

    /// Takes what others freed in a block that the CPU holds.
    pub(crate) fn absorb_in_hand(&self, guard: &CpuGuard<'_, 'm, P>, index: u32) {
        let block = &self.map.blocks[index as usize];
        let absorbed = remote::absorb(block);
        if absorbed.words == 0 {
            return;
        }
        self.report_doubles(guard, block.base(), &absorbed);
        guard.state.counters.collected_blocks.add(1);
        guard.state.counters.collected_frames.add(u64::from(absorbed.frames));
        if block.class() == CLASS_DETACHED {
            // Between two holders: whoever moves it counts it afresh.
            return;
        }
        let pcp = self.pcp(guard.id.index(), block.zone() as usize);
        pcp.note_frames(block, absorbed.frames);
        if block.class() <= CLASS_DIRTY {
            pcp.touched(self.map.blocks, index, true);
        } else {
            let lowest = absorbed.touched.trailing_zeros();
            pcp.active[block.migratetype() as usize].lower_word(block, lowest as usize);
        }
    }

    fn report_doubles(&self, guard: &CpuGuard<'_, 'm, P>, base: u64, absorbed: &remote::Absorbed) {
        for w in 0..WORDS {
            for bit in crate::bits::each(absorbed.doubles[w]) {
                guard.state.counters.late_double_frees.add(1);
                self.late_double_free(base + w as u64 * 64 + u64::from(bit));
            }
        }
    }

    /// An allocation that must not wait: from the CPU's hand if its state is to be had, or from a zone whose lock is
    /// free.
    #[cold]
    pub(crate) fn alloc_no_lock(
        &self,
        state: &crate::percpu::CpuState,
        id: crate::CpuId,
        owner: bool,
        request: &Request,
    ) -> Result<Pfn, AllocError> {
        if request.order > Order::PAGEBLOCK || request.is_limited() || request.align > request.order {
            return Err(AllocError::WouldBlock);
        }
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        // Kept until the end: only who is inside may count.
        let guard = CpuGuard::try_enter(self, state, id, owner);
        let in_hand = guard.as_ref().and_then(|guard| {
            self.zonelist(id.index(), request.node)
                .find_map(|z| self.take_in_hand(guard, self.pcp(id.index(), z), request))
        });
        let taken = in_hand.or_else(|| {
            self.zonelist(id.index(), request.node).find_map(|z| {
                let zone = &self.zones[z];
                let lock = zone.try_lock(&self.map)?;
                self.take_in_zone(&lock, request, zone.min_mark(request.flags))
            })
        });
        if let Some(guard) = &guard {
            let counters = &guard.state.counters;
            match taken {
                Some(_) => counters.allocs[request.migratetype as usize][request.order.index()].add(1),
                None => counters.failed.add(1),
            }
        }
        drop(guard);
        if let Some(pfn) = taken {
            self.handed_out(pfn, request.order);
        }
        taken.ok_or(AllocError::WouldBlock)
    }

    /// Single frames into a slice; see [`On::alloc_bulk`](crate::On::alloc_bulk).
    pub(crate) fn alloc_bulk_entered(
        &self,
        guard: CpuGuard<'_, 'm, P>,
        request: &Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        if request.order != Order::ZERO {
            return Err(AllocError::OrderTooLarge { order: request.order, max: Order::ZERO });
        }
        let mut done = 0;
        let plain = request.is_plain_frame();
        let pcp = self.pcp(guard.id.index(), self.first_zone(guard.id.index()));
        let mut failure = None;
        while done < out.len() {
            if plain {
                let got = self.take_active_many(pcp, request.migratetype as usize, &mut out[done..]);
                guard.state.counters.allocs[request.migratetype as usize][0].add(got as u64);
                done += got;
                if done == out.len() {
                    break;
                }
            }
            // One frame through all stages; it leaves a new active block behind.
            match self.alloc_checked(&guard, request) {
                Ok(pfn) => {
                    guard.state.counters.allocs[request.migratetype as usize][0].add(1);
                    out[done] = pfn;
                    done += 1;
                }
                Err(error) => {
                    guard.state.counters.failed.add(1);
                    failure = Some(error);
                    break;
                }
            }
        }
        drop(guard);
        self.tell_pressure();
        for &pfn in &out[..done] {
            self.handed_out(pfn, Order::ZERO);
        }
        match failure {
            Some(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    /// As many free frames of the active block as fit, word by word.
    fn take_active_many(&self, pcp: &Pcp, migratetype: usize, out: &mut [Pfn]) -> usize {
        let active = &pcp.active[migratetype];
        let Some(block) = self.map.blocks.get(active.block.get() as usize) else { return 0 };
        let base = block.base();
        let mut done = 0;
        let first = active.word.get() as usize % WORDS;
        for w in first..WORDS {
            let before = block.free_word(w);
            if before == 0 {
                continue;
            }
            let (left, taken) = crate::fast::take_runs(before, base + w as u64 * 64, &mut out[done..]);
            block.set_free_word(w, left);
            done += taken;
            active.set_word(block, w);
            if done == out.len() {
                break;
            }
        }
        if done > 0 {
            pcp.forget_frames(block, done as u32);
        }
        done
    }
}

/// A share of at least one block: below that a CPU holds no blocks of its own.
pub(crate) fn may_hold(pcp: &Pcp) -> bool {
    pcp.high_max.get() >= FRAMES as u32
}
