//! Allocating: from the CPU's lists where the order is kept there, else from the zone.
//!
//! ```text
//!   above low?  ── PCP: list ── empty? refill ── zone lock
//!              └─ busy, or order not kept ──> zone lock
//!   nothing:  down to min, with the reserves that the request may use
//!   nothing:  (peer-blocks) a block from another CPU
//!   nothing:  (least-drain) one CPU after the other gives back what is lacking
//!   nothing:  give a HIGHATOMIC block back, drain all CPUs, once more (not for requests that may
//!             not wait)
//!   nothing:  give the last HIGHATOMIC block back, once more
//! ```
//!
//! There is no reclaim here: where the kernel would go on to make pages free, an allocation fails.

use core::sync::atomic::Ordering::Relaxed;

use freehold::{AllocError, AllocFlags, CpuId, Migratetype, Order, Pfn};

use crate::Classic;
use crate::buddy::Mode;
use crate::config::Request;
use crate::page::PAGEBLOCK;
use crate::refill::Refill;
use crate::switches::Switch;
use crate::watermark::{Mark, RESERVES, enough};
use crate::zone::Zone;

impl Classic {
    /// Allocates one chunk.
    ///
    /// # Errors
    ///
    /// See [`AllocError`].
    pub fn alloc(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        self.check_cpu(cpu).map_err(|cpu| AllocError::CpuOffline { cpu })?;
        let request = request.check()?;
        self.alloc_checked(cpu, request).ok_or_else(|| {
            self.counts.failed.fetch_add(1, Relaxed);
            AllocError::NoMemory { order: request.order }
        })
    }

    /// [`alloc`](Self::alloc), as it goes where somebody else holds the CPU's PCP lock at that
    /// moment: past the PCP, to the zone. For simulations, in which one thread plays all CPUs and
    /// no lock is ever found busy.
    ///
    /// # Errors
    ///
    /// See [`AllocError`].
    pub fn alloc_finding_busy(&self, cpu: CpuId, request: Request) -> Result<Pfn, AllocError> {
        let set = |busy| {
            if let Some(pcp) = self.zone.pcps.get(cpu.index()) {
                pcp.look().busy = busy;
            }
        };
        set(true);
        let result = self.alloc(cpu, request);
        set(false);
        result
    }

    /// The attempts one after the other. Source: Linux, `get_page_from_freelist` and
    /// `__alloc_pages_slowpath`.
    ///
    /// The first one, above `low`, knows nothing of reserves: whoever may use them gets that right
    /// only once memory is short. Since 7.3 (`highatomic-first`) high-order atomic requests have
    /// theirs from the first one on.
    ///
    /// With `defrag-mode` requests avoid mixing blocks until draining has not helped; those that
    /// may not wait mix them as soon as nothing else is left, as in 7.2 (before, they failed).
    /// Source: Linux 6.19 and 7.2, where `gfp_to_alloc_flags` sets the flag and
    /// `__alloc_pages_slowpath` drops it behind reclaim.
    fn alloc_checked(&self, cpu: CpuId, request: Request) -> Option<Pfn> {
        let defrag = self.on.has(Switch::DefragMode);
        let avoided = if defrag { AllocFlags::NO_FRAGMENT } else { AllocFlags::empty() };
        let request = request.with(request.flags | avoided);
        let early = if self.on.has(Switch::HighAtomicFirst) && request.order > Order::ZERO {
            request.flags & AllocFlags::HIGH_ATOMIC
        } else {
            AllocFlags::empty()
        };
        let easy = request.with((request.flags - RESERVES - AllocFlags::NO_WATERMARKS) | early);
        let above = |request, mark| self.alloc_above(cpu, request, mark);
        let polluting = |request: Request| request.with(request.flags - AllocFlags::NO_FRAGMENT);
        let avoids = request.flags.contains(AllocFlags::NO_FRAGMENT) && !defrag;
        let last = polluting(request);
        let request = if defrag { request } else { last };
        let last_if = |may: bool| if may { above(last, Mark::Min) } else { None };
        let found = above(easy, Mark::Low)
            .or_else(|| if avoids { above(polluting(easy), Mark::Low) } else { None })
            .or_else(|| above(request, Mark::Min));
        if found.is_some() {
            return found;
        }
        if request.flags.intersects(AllocFlags::NON_BLOCK | AllocFlags::NO_LOCK) {
            return last_if(defrag);
        }
        // A request that may wait reclaims beside kswapd, which ends the boost once it has run.
        let elsewhere = self.zone.kswapd_elsewhere.load(Relaxed);
        if elsewhere && self.zone.boost.swap(0, Relaxed) > 0 {
            if let Some(pfn) = above(request, Mark::Min) {
                return Some(pfn);
            }
        }
        let peers = self.on.has(Switch::PeerBlocks).then(|| self.alloc_from_peer(cpu, request));
        if let Some(pfn) = peers.flatten() {
            return Some(pfn);
        }
        self.unreserve_high_atomic(request.migratetype, false);
        let asked = self.on.has(Switch::LeastDrain).then(|| self.alloc_asking(cpu, request));
        if let Some(pfn) = asked.flatten() {
            return Some(pfn);
        }
        self.drain_all();
        above(request, Mark::Min)
            .or_else(|| last_if(defrag))
            // Before anybody is failed, the last reserve has to go too.
            .or_else(|| last_if(self.unreserve_high_atomic(request.migratetype, true)))
    }

    /// `least-drain`: one CPU after the other, the caller's own last, gives back what the request
    /// lacks, until it can be served. A CPU that has a chunk of that order and type gives that.
    fn alloc_asking(&self, cpu: CpuId, request: Request) -> Option<Pfn> {
        let (order, migratetype) = (request.order.get(), request.migratetype);
        let zone = &self.zone;
        let cpus = zone.pcps.len();
        for peer in (1..=cpus).map(|n| (cpu.index() + n) % cpus) {
            let lacks = zone.lacks(request.order);
            if zone.give_back(peer, self.layout, lacks, order, migratetype) == 0 {
                continue;
            }
            self.counts.cpus_asked.fetch_add(1, Relaxed);
            if let Some(pfn) = self.alloc_above(cpu, request, Mark::Min) {
                return Some(pfn);
            }
        }
        None
    }

    /// `peer-blocks`: before everybody is drained, one CPU is asked for one block. What others hold
    /// counts for no watermark, so none is looked at.
    fn alloc_from_peer(&self, cpu: CpuId, request: Request) -> Option<Pfn> {
        let (order, migratetype) = (request.order.get(), request.migratetype);
        if !self.layout.keeps(order) {
            return None;
        }
        let zone = &self.zone;
        let mut inner = zone.pcps[cpu.index()].try_lock().filter(|inner| !inner.busy)?;
        if !zone.take_from_peer(cpu.index(), &mut inner, self.layout, migratetype) {
            return None;
        }
        let frame = inner.take(&zone.frames, self.layout, order, migratetype)?;
        inner.counters.allocs += 1;
        zone.frames.set_allocated(frame, order, migratetype);
        Some(zone.frames.pfn(frame))
    }

    /// Gives a reserved block back, if there is one.
    fn unreserve_high_atomic(&self, migratetype: Migratetype, force: bool) -> bool {
        // A block without free frames is of no use, so without free reserved frames no lock is
        // needed.
        self.zone.free_frames().high_atomic > 0
            && self.zone.lock().unreserve_high_atomic(migratetype, force)
    }

    /// Takes a chunk if free memory stays above `mark`.
    fn alloc_above(&self, cpu: CpuId, request: Request, mark: Mark) -> Option<Pfn> {
        let Request { order, flags, .. } = request;
        let (zone, may_cma) = (&self.zone, request.may_cma());
        if !zone.below_high.load(Relaxed) && !zone.mark_ok(Mark::High, order, flags, may_cma) {
            zone.below_high.store(true, Relaxed);
        }
        if !flags.contains(AllocFlags::NO_WATERMARKS) && !zone.mark_ok(mark, order, flags, may_cma)
        {
            return None;
        }
        let frame = self.take(cpu, zone, request)?;
        let high_atomic = flags.contains(AllocFlags::HIGH_ATOMIC) && order > Order::ZERO;
        if high_atomic && mark == Mark::Min {
            zone.reserve_high_atomic(frame, order.get());
        }
        Some(zone.frames.pfn(frame))
    }

    /// Takes a chunk, through the PCP if it keeps the order. Source: Linux, `rmqueue`.
    fn take(&self, cpu: CpuId, zone: &Zone, request: Request) -> Option<u32> {
        let order = request.order.get();
        let listed = self.layout.keeps(order).then(|| self.take_from_pcp(cpu, zone, request));
        let frame = listed.flatten().or_else(|| Self::take_from_zone(zone, request))?;
        zone.frames.set_allocated(frame, order, request.migratetype);
        Some(frame)
    }

    fn take_from_pcp(&self, cpu: CpuId, zone: &Zone, request: Request) -> Option<u32> {
        let pcp = &zone.pcps[cpu.index()];
        let Some(mut inner) = pcp.try_lock() else {
            self.counts.pcp_busy.fetch_add(1, Relaxed);
            return None;
        };
        if inner.busy {
            inner.never_had();
            self.counts.pcp_busy.fetch_add(1, Relaxed);
            return None;
        }
        inner.tuning.note_alloc(self.on);
        self.take_or_refill(cpu, zone, &mut inner, request)
    }

    /// Takes a chunk from a PCP whose lock is held, refilling it if need be. Source: Linux,
    /// `__rmqueue_pcplist`.
    fn take_or_refill(
        &self,
        cpu: CpuId,
        zone: &Zone,
        inner: &mut crate::pcp::PcpInner,
        request: Request,
    ) -> Option<u32> {
        let (order, migratetype) = (request.order.get(), request.migratetype);
        let mut held = inner.take(&zone.frames, self.layout, order, migratetype);
        let pcp = &zone.pcps[cpu.index()];
        if held.is_none() && !pcp.remote().is_empty() {
            zone.absorb(cpu.index(), inner, self.layout);
            held = inner.take(&zone.frames, self.layout, order, migratetype);
        }
        if held.is_some() {
            inner.counters.allocs += 1;
            inner.counters.hits += 1;
            return held;
        }
        if request.flags.contains(AllocFlags::HIGH_ATOMIC) && self.on.has(Switch::HighAtomicDirect)
        {
            return None;
        }
        let count = inner.count;
        let chunks = inner.tuning.refill(self.on, order, count, zone.pressure());
        let refill =
            Refill { cpu: u32::from(cpu.get()), order, chunks, migratetype, flags: request.flags };
        // Where a claim would bring a block, a peer's is instead of one.
        let block = self.on.has(Switch::PeerBlocks) && chunks << order >= PAGEBLOCK;
        let from_peer = block && zone.take_from_peer(cpu.index(), inner, self.layout, migratetype);
        if !from_peer && !zone.refill(inner, self.layout, refill) {
            return None;
        }
        let frame = inner.take(&zone.frames, self.layout, order, migratetype)?;
        inner.counters.allocs += 1;
        Some(frame)
    }

    /// Takes a chunk under the zone lock. Source: Linux, `rmqueue_buddy`.
    fn take_from_zone(zone: &Zone, request: Request) -> Option<u32> {
        let Request { order, migratetype, flags } = request;
        let mut locked =
            if flags.contains(AllocFlags::NO_LOCK) { zone.try_lock()? } else { zone.lock() };
        let mut frame = None;
        if flags.contains(AllocFlags::HIGH_ATOMIC) {
            frame = locked.take_smallest(order.get(), Migratetype::HighAtomic);
        }
        if frame.is_none() {
            frame = locked.rmqueue(order.get(), migratetype, flags, &mut Mode::default());
        }
        // Better the reserve than failing somebody who cannot wait.
        if frame.is_none() && flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            frame = locked.take_smallest(order.get(), Migratetype::HighAtomic);
        }
        locked.counters.allocs += u64::from(frame.is_some());
        frame.inspect(|&frame| locked.count_movable(frame, order.get(), migratetype))
    }

    /// Fills the empty places of `slots` with single frames and returns how many places from the
    /// start on are filled.
    ///
    /// Takes the PCP lock once, stops at the first refill that brings nothing, and falls back to
    /// one ordinary allocation when that leaves nothing, the zone has not enough, or only one is
    /// wanted. Source: Linux, `alloc_pages_bulk`.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; a lack of memory is not an error but a smaller number.
    pub fn alloc_bulk(
        &self,
        cpu: CpuId,
        migratetype: Migratetype,
        flags: AllocFlags,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, AllocError> {
        self.check_cpu(cpu).map_err(|cpu| AllocError::CpuOffline { cpu })?;
        let mut request = Request { order: Order::ZERO, migratetype, flags }.check()?;
        if self.on.has(Switch::DefragMode) {
            request = request.with(request.flags | AllocFlags::NO_FRAGMENT);
        }
        let mut filled = slots.iter().take_while(|slot| slot.is_some()).count();
        let missing = slots.iter().filter(|slot| slot.is_none()).count();
        let before = filled;
        if missing > 1 {
            self.fill(cpu, request, slots, &mut filled, missing as u64);
        }
        if filled == before && missing > 0 {
            match self.alloc_checked(cpu, request) {
                Some(pfn) => slots[filled] = Some(pfn),
                None => {
                    self.counts.failed.fetch_add(1, Relaxed);
                    return Ok(filled);
                }
            }
            while slots.get(filled).is_some_and(Option::is_some) {
                filled += 1;
            }
        }
        Ok(filled)
    }

    fn fill(
        &self,
        cpu: CpuId,
        request: Request,
        slots: &mut [Option<Pfn>],
        filled: &mut usize,
        missing: u64,
    ) {
        let zone = &self.zone;
        let mark = zone.marks.low + zone.boost.load(Relaxed) + missing;
        let none = AllocFlags::empty();
        if !enough(mark, Order::ZERO, none, request.may_cma(), zone.free_frames()) {
            return;
        }
        let Some(mut inner) = zone.pcps[cpu.index()].try_lock() else {
            self.counts.pcp_busy.fetch_add(1, Relaxed);
            return;
        };
        while *filled < slots.len() {
            if slots[*filled].is_none() {
                let Some(frame) = self.take_or_refill(cpu, zone, &mut inner, request) else {
                    return;
                };
                zone.frames.set_allocated(frame, 0, request.migratetype);
                slots[*filled] = Some(zone.frames.pfn(frame));
            }
            *filled += 1;
        }
    }
}
