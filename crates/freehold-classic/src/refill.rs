//! A CPU's list is empty: getting more from the zone under one hold of its lock.
//!
//! Before pcp-buddy this is a loop that takes chunks of the wanted order one by one. With ownership
//! it goes through four phases, each with a smaller claim on the future than the one before:
//!
//! ```text
//!   phase 0  recover   marked, may merge  fragments of blocks this CPU owns, which a drain had to
//!                                         give back
//!   phase 1  claim     marked, may merge  whole pageblocks, from now on owned by this CPU
//!   phase 2  fragment  cached only        the largest chunks of the same type that fit
//!   phase 3  fallback  cached only        chunks of the wanted order, from other types if need be
//! ```
//!
//! A zone too small or too fragmented for a phase falls through to the next, so that on a small
//! machine all that is left is the behaviour before pcp-buddy.

use core::sync::atomic::Ordering::Relaxed;

use freehold::{AllocFlags, Migratetype};

use crate::buddy::Mode;
use crate::page::{Kind, NIL, PAGEBLOCK, PAGEBLOCK_ORDER, State};
use crate::pcp::{Layout, PcpInner};
use crate::stats::ListFlow;
use crate::switches::Switch;
use crate::zone::{Locked, Zone};

/// What a refill is for.
#[derive(Clone, Copy)]
pub(crate) struct Refill {
    pub(crate) cpu: u32,
    pub(crate) order: u8,
    /// Chunks of that order.
    pub(crate) chunks: u32,
    pub(crate) migratetype: Migratetype,
    pub(crate) flags: AllocFlags,
}

impl Zone {
    /// Gets at least one chunk onto the PCP, or says no. Source: Linux, `rmqueue_bulk`; with
    /// ownership, the RFC's.
    pub(crate) fn refill(&self, pcp: &mut PcpInner, layout: Layout, refill: Refill) -> bool {
        let waits = !refill.flags.contains(AllocFlags::NO_LOCK);
        let locked = if waits { Some(self.lock()) } else { self.try_lock() };
        let Some(mut zone) = locked else { return false };
        let mut job = Job { zone: &mut zone, pcp, layout, refill, mode: Mode::Normal, got: 0 };
        let wanted = refill.chunks << refill.order;
        if self.on.has(Switch::Ownership) && refill.chunks > 1 {
            job.recover(wanted);
            job.claim(wanted);
            job.fragments(wanted);
        }
        job.fallback(wanted);
        let got = job.got;
        pcp.counters.refills += 1;
        pcp.counters.refilled_frames += u64::from(got);
        got > 0
    }
}

/// One refill under way.
struct Job<'a, 'z> {
    zone: &'a mut Locked<'z>,
    pcp: &'a mut PcpInner,
    layout: Layout,
    refill: Refill,
    mode: Mode,
    got: u32,
}

impl Job<'_, '_> {
    fn on(&self, switch: Switch) -> bool {
        self.zone.zone.on.has(switch)
    }

    fn keep(&mut self, frame: u32, order: u8, kind: Kind) {
        let migratetype = self.refill.migratetype;
        let index = self.layout.index(order, migratetype);
        let state = State::new(kind, order, migratetype);
        self.pcp.push_back(&self.zone.zone.frames, index, frame, state);
        ListFlow::count(&mut self.pcp.flow.refilled, order, migratetype.index());
        self.zone.work += 1;
        self.zone.count_movable(frame, order, migratetype);
        self.got += 1 << order;
    }

    /// Phase 0: fragments of owned blocks, block by block until there is enough.
    ///
    /// Without `cma-phases` only blocks of exactly the requested type are taken, so CMA blocks,
    /// which movable requests use, are never recovered: the defect that Frank van der Linden found.
    /// Looks at up to 512 records a block.
    fn recover(&mut self, wanted: u32) {
        if !self.on(Switch::Recover) {
            return;
        }
        let zone = self.zone.zone;
        let cma = self.on(Switch::CmaPhases) && self.refill.migratetype == Migratetype::Movable;
        let before = self.got;
        let lists = if self.on(Switch::OwnedByType) {
            let cma_list = cma.then_some(Migratetype::Cma.index());
            [Some(self.refill.migratetype.index()), cma_list]
        } else {
            [Some(0), None]
        };
        'lists: for list in lists.into_iter().flatten() {
            let mut at = self.zone.owned[self.refill.cpu as usize][list].first();
            while let Some(block) = at {
                let next = zone.blocks.data(block).map(|data| data.next.load(Relaxed));
                at = next.filter(|&next| next != NIL);
                self.zone.work += 1;
                let migratetype = zone.blocks.migratetype(block);
                if migratetype != self.refill.migratetype
                    && !(cma && migratetype == Migratetype::Cma)
                {
                    continue;
                }
                self.recover_block(block);
                self.zone.unlist(block);
                if self.got >= wanted {
                    break 'lists;
                }
            }
        }
        self.pcp.counters.refills_recover += u64::from(self.got > before);
    }

    fn recover_block(&mut self, block: u32) {
        let zone = self.zone.zone;
        let frames = Locked::block_frames(block);
        let mut at = frames.start;
        while at < frames.end {
            self.zone.work += 1;
            let state = zone.frames.state(at);
            if state.kind() != Kind::Buddy {
                // The kernel's walk goes frame by frame here; where a head says how large a chunk
                // is, so may we.
                at += 1 << state.order();
                continue;
            }
            let (order, _) = self.zone.take(at);
            self.keep(at, order, Kind::PcpBuddy);
            at += 1 << order;
        }
    }

    /// Phase 1: whole pageblocks, as many as fit into what is wanted.
    fn claim(&mut self, wanted: u32) {
        if !self.on(Switch::Claim) {
            return;
        }
        let before = self.got;
        while self.got + PAGEBLOCK <= wanted {
            let Refill { migratetype, flags, cpu, .. } = self.refill;
            let Some(frame) =
                self.zone.rmqueue(PAGEBLOCK_ORDER, migratetype, flags, &mut self.mode)
            else {
                break;
            };
            let zone = self.zone.zone;
            let block_type = zone.type_of(frame);
            let own = block_type == migratetype || block_type == Migratetype::Cma;
            if !own && self.on(Switch::ForeignClaim) {
                // Queued under the requested type it would be handed out as if the block were of
                // that type.
                self.zone.free_one(frame, PAGEBLOCK_ORDER, block_type, true);
                break;
            }
            zone.blocks.set_owner(zone.block_of(frame), Some(cpu));
            self.keep(frame, PAGEBLOCK_ORDER, Kind::PcpBuddy);
        }
        self.pcp.counters.refills_claim += u64::from(self.got > before);
    }

    /// Phase 2: the largest chunks of the same type that fit, down to just above the wanted order.
    fn fragments(&mut self, wanted: u32) {
        if !self.on(Switch::Fragment) {
            return;
        }
        let before = self.got;
        let movable = self.refill.migratetype == Migratetype::Movable;
        for order in (self.refill.order + 1..PAGEBLOCK_ORDER).rev() {
            while self.got + (1 << order) <= wanted {
                self.zone.work += 1;
                let prefer_cma = self.on(Switch::CmaPhases) && self.zone.prefer_cma(movable);
                let types = [prefer_cma.then_some(Migratetype::Cma), Some(self.refill.migratetype)];
                let area = &self.zone.areas[order as usize];
                let found =
                    types.into_iter().flatten().find_map(|mt| area.lists[mt.index()].first());
                self.zone.counters.lists_looked_at += 1;
                let Some(frame) = found else { break };
                self.zone.take(frame);
                self.zone.counters.taken_chunks += 1;
                self.keep(frame, order, Kind::Pcp);
            }
        }
        self.pcp.counters.refills_fragment += u64::from(self.got > before);
    }

    /// Phase 3, and the whole of a refill before pcp-buddy: chunks of the wanted order one by one,
    /// each queued at the tail so that they are handed out by rising frame number.
    fn fallback(&mut self, wanted: u32) {
        let before = self.got;
        while self.got < wanted {
            let Refill { order, migratetype, flags, .. } = self.refill;
            let Some(frame) = self.zone.rmqueue(order, migratetype, flags, &mut self.mode) else {
                break;
            };
            self.keep(frame, order, Kind::Pcp);
        }
        self.pcp.counters.refills_fallback += u64::from(self.got > before);
    }
}
