//! Getting more from a zone: blocks that change hands, or frames of blocks that stay the zone's.
//!
//! | phase | what | when |
//! |---|---|---|
//! | recover | up to 4 partly free blocks that call this CPU home | the zone keeps its low mark |
//! | claim | up to 4 wholly free blocks, more while refills follow one another | the same |
//! | fragment | up to 4 partly free blocks of the same migratetype | the same |
//! | (own) | frames of a block that stays the zone's | the zone keeps its min mark |
//! | fallback | the largest block of another type, if at least half of it is free; then frames of any block | nothing else is left |
//!
//! One hold of the zone lock moves at most 4 blocks or collects at most 1: at most 60 steps.

use crate::alloc::may_hold;
use crate::block::{CLASS_WHOLE, FRAMES, NONE};
use crate::handle::CpuGuard;
use crate::holder::Holder;
use crate::percpu::{CMA, Pcp};
use crate::primitive::{Count, Plain};
use crate::remote;
use crate::stats::RefillPhase;
use crate::zone::{HIGH_ATOMIC, ZoneGuard};
use crate::{AllocFlags, Freehold, Migratetype, Pfn, Platform, Request};

/// How far a request has got; see [`crate::alloc`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// What the CPU has, and blocks that the zone can spare.
    Normal,
    /// The zone's own frames down to the min mark; a block of another type.
    Reserve,
    /// Frames inside blocks of another type.
    Mix,
    /// HIGHATOMIC blocks.
    LastResort,
}

/// What a refill came to.
pub(crate) enum Refill {
    /// The CPU holds more blocks than before.
    Stocked,
    /// The request is served.
    Taken(Pfn),
    /// The zone has nothing for this request at this stage.
    Nothing,
}

/// Blocks moved in one hold.
const MOVES: usize = 4;
/// Holds that do nothing but collect what others freed, in one refill.
const COLLECT_HOLDS: u32 = 64;

/// Blocks on their way from the zone to a CPU.
struct Moved {
    blocks: [u32; MOVES],
    len: usize,
    phase: RefillPhase,
}

impl Moved {
    fn new(phase: RefillPhase) -> Self {
        Self { blocks: [NONE; MOVES], len: 0, phase }
    }

    fn push(&mut self, index: u32) {
        self.blocks[self.len] = index;
        self.len += 1;
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Goes to the zone at one stage. The CPU's state is entered; it is not left.
    pub(crate) fn refill(&self, guard: &CpuGuard<'_, 'm, P>, z: usize, request: &Request, stage: Stage) -> Refill {
        let zone = &self.zones[z];
        let pcp = self.pcp(guard.id.index(), z);
        let counters = &guard.state.counters;
        counters.refills.add(1);
        for _ in 0..COLLECT_HOLDS {
            let lock = match request.flags.contains(AllocFlags::NO_LOCK) {
                false => self.lock_zone(zone),
                true => match zone.try_lock(&self.map) {
                    Some(lock) => lock,
                    None => return Refill::Nothing,
                },
            };
            let collects = stage != Stage::Normal || !may_hold(pcp);
            if collects && !lock.inbox.is_empty() {
                // What others freed into the zone's blocks comes before any last resort.
                lock.collect(self, 1, |pfn| self.late_double_free(pfn));
                drop(lock);
                continue;
            }
            let moved = match stage {
                Stage::Normal if may_hold(pcp) => self.take_blocks(&lock, pcp, guard.id.index(), request),
                Stage::Normal => {
                    let mark = zone.min_mark(request.flags).map(|min| min.max(zone.low.get()));
                    match self.take_in_zone(&lock, request, mark) {
                        Some(pfn) => return Refill::Taken(pfn),
                        None => None,
                    }
                }
                Stage::Reserve => {
                    let mark = zone.min_mark(request.flags);
                    if let Some(pfn) = self.take_in_zone(&lock, request, mark) {
                        self.reserve_high_atomic(&lock, request, pfn);
                        return Refill::Taken(pfn);
                    }
                    self.claim_fallback(&lock, pcp, request)
                }
                Stage::Mix => match self.mix_in_zone(&lock, request) {
                    Some(pfn) => return Refill::Taken(pfn),
                    None => None,
                },
                Stage::LastResort => match self.take_high_atomic(&lock, request) {
                    Some(pfn) => return Refill::Taken(pfn),
                    None => None,
                },
            };
            if let Some(moved) = moved {
                for &index in &moved.blocks[..moved.len] {
                    self.map.blocks[index as usize].set_holder(Holder::cpu(guard.id));
                }
                drop(lock);
                let before = pcp.count();
                for &index in &moved.blocks[..moved.len] {
                    self.take_over(guard, index);
                }
                counters.by_phase[moved.phase as usize].add(1);
                let frames = pcp.count().wrapping_sub(before);
                counters.refilled_frames.add(u64::from(frames));
                // What was needed once will be needed again: keep that much more in hand (Linux 6.7's auto-tuning).
                pcp.high.set((pcp.high.get() + frames).min(pcp.high_max.get()));
                return Refill::Stocked;
            }
            if !collects && !lock.inbox.is_empty() {
                lock.collect(self, 1, |pfn| self.late_double_free(pfn));
                drop(lock);
                continue;
            }
            return Refill::Nothing;
        }
        Refill::Nothing
    }

    /// Puts a detached block, whose holder this CPU has just become, among its own.
    pub(crate) fn take_over(&self, guard: &CpuGuard<'_, 'm, P>, index: u32) {
        // Frees of this CPU into that block may wait in the buffer; as the holder it would no longer look there.
        self.flush_combining(guard);
        let block = &self.map.blocks[index as usize];
        if remote::has_remote(block) {
            self.absorb_in_hand(guard, index);
        }
        self.pcp(guard.id.index(), block.zone() as usize).insert(self.map.blocks, index);
    }

    /// The migratetypes to look at: the request's own, and CMA before it (over half of the zone's free frames are CMA)
    /// or after it, where that will do.
    fn types(lock: &ZoneGuard<'_, 'm>, request: &Request) -> ([u8; 2], usize) {
        let normal = request.migratetype as u8;
        if !request.cma() {
            ([normal, normal], 1)
        } else if lock.free_cma.get() > lock.free.get() / 2 {
            ([CMA, normal], 2)
        } else {
            ([normal, CMA], 2)
        }
    }

    /// Phases recover, claim and fragment.
    fn take_blocks(&self, lock: &ZoneGuard<'_, 'm>, pcp: &Pcp, cpu: usize, request: &Request) -> Option<Moved> {
        let order = request.order.get();
        let (types, n) = Self::types(lock, request);
        let spare = |frames: u64, cma: bool| {
            let mark = (!request.flags.contains(AllocFlags::NO_WATERMARKS)).then(|| lock.low.get());
            lock.allows(frames, mark, request.flags, cma)
        };
        for &migratetype in &types[..n] {
            let cma = migratetype == CMA;
            // Recover.
            let mut moved = Moved::new(RefillPhase::Recover);
            let mut next = lock.home_block(cpu, migratetype as usize, None);
            for _ in 0..MOVES {
                let Some(index) = next else { break };
                let block = &self.map.blocks[index as usize];
                next = lock.home_block(cpu, migratetype as usize, Some(index));
                if block.class() > order && spare(u64::from(block.count.get()), cma) {
                    lock.unplace(index);
                    moved.push(index);
                }
            }
            if moved.len > 0 {
                return Some(moved);
            }
            // Claim.
            let mut moved = Moved::new(RefillPhase::Claim);
            let room = (pcp.high_max.get().saturating_sub(pcp.count()) / FRAMES as u32).max(1);
            let want = pcp.ramp.get().min(MOVES as u32).min(room) as usize;
            while moved.len < want && spare(FRAMES as u64, cma) {
                let index = if cma {
                    let first = lock.shelf.first(migratetype as usize, CLASS_WHOLE);
                    first.inspect(|&index| lock.unplace(index))
                } else {
                    lock.take_whole(migratetype)
                };
                let Some(index) = index else { break };
                moved.push(index);
            }
            if moved.len > 0 {
                pcp.ramp.set((pcp.ramp.get() * 2).min(MOVES as u32));
                return Some(moved);
            }
            if order >= 9 {
                continue;
            }
            // Fragment.
            let mut moved = Moved::new(RefillPhase::Fragment);
            let mut frames = 0;
            while moved.len < MOVES && frames < FRAMES as u64 {
                lock.step(1);
                let Some(class) = lock.shelf.smallest(migratetype as usize, order + 1) else { break };
                let Some(index) = lock.shelf.first(migratetype as usize, class) else { break };
                let count = u64::from(self.map.blocks[index as usize].count.get());
                if !spare(count, cma) {
                    break;
                }
                lock.unplace(index);
                moved.push(index);
                frames += count;
            }
            if moved.len > 0 {
                return Some(moved);
            }
        }
        None
    }

    /// Frames of a block that stays the zone's: of the request's own type, breaking a whole block if need be.
    pub(crate) fn take_in_zone(&self, lock: &ZoneGuard<'_, 'm>, request: &Request, mark: Option<u64>) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        if request.flags.contains(AllocFlags::HIGH_ATOMIC) {
            if let Some((index, offset)) = lock.take_run(HIGH_ATOMIC as usize, order) {
                return Some(self.pfn_of(index, offset));
            }
        }
        let (types, n) = Self::types(lock, request);
        for &migratetype in &types[..n] {
            let cma = migratetype == CMA;
            // HIGHATOMIC frames are looked at above or in the last resort only: they do not count here.
            let flags = request.flags - (AllocFlags::HIGH_ATOMIC | AllocFlags::OOM | AllocFlags::NON_BLOCK);
            if !lock.allows(1 << order, mark, flags, cma) {
                continue;
            }
            if let Some((index, offset)) = lock.take_run(migratetype as usize, order) {
                return Some(self.pfn_of(index, offset));
            }
            if !cma {
                if let Some(index) = lock.take_whole(migratetype) {
                    self.take_of_detached(lock, index, 0, 1 << order);
                    return Some(self.pfn_of(index, 0));
                }
            }
        }
        None
    }

    /// Hands out frames of a detached block and gives the rest to the zone.
    pub(crate) fn take_of_detached(&self, lock: &ZoneGuard<'_, 'm>, index: u32, offset: usize, len: usize) {
        let block = &self.map.blocks[index as usize];
        block.take_run(offset, len);
        block.count.set(block.count.get() - len as u16);
        lock.step(8 + (len as u32).div_ceil(64));
        lock.place(index, block.exact_class());
    }

    fn pfn_of(&self, index: u32, offset: usize) -> Pfn {
        Pfn::new(self.map.blocks[index as usize].base() + offset as u64)
    }

    /// The claim rule (Linux 6.12 and later): the largest block of another type becomes the requester's if at least
    /// half of it is free. Movable requests claim only what is large (half a block's order), since they can be moved
    /// out of the way later; with NO_FRAGMENT only whole blocks are claimed, and those are anybody's already.
    fn claim_fallback(&self, lock: &ZoneGuard<'_, 'm>, pcp: &Pcp, request: &Request) -> Option<Moved> {
        if request.flags.contains(AllocFlags::NO_FRAGMENT) || !may_hold(pcp) || request.order.get() >= 9 {
            return None;
        }
        let smallest = match request.migratetype {
            Migratetype::Movable => request.order.get().max(4),
            _ => request.order.get(),
        };
        for &fallback in request.migratetype.fallbacks() {
            lock.step(1);
            let Some(class) = lock.shelf.largest(fallback as usize, smallest + 1) else { continue };
            let Some(index) = lock.shelf.first(fallback as usize, class) else { continue };
            let free = u64::from(self.map.blocks[index as usize].count.get());
            // The kernel also counts frames in use that are of the requester's kind; no such thing is known here.
            if free < FRAMES as u64 / 2 || !lock.allows(free, lock.min_mark(request.flags), request.flags, false) {
                continue;
            }
            lock.unplace(index);
            self.map.blocks[index as usize].home.set(Holder::NOBODY.raw());
            lock.retype(index, request.migratetype as u8);
            lock.counters.fallbacks.add(1);
            let mut moved = Moved::new(RefillPhase::Fallback);
            moved.push(index);
            return Some(moved);
        }
        None
    }

    /// Frames inside a block of another type, which keeps its type: the smallest sufficient run.
    fn mix_in_zone(&self, lock: &ZoneGuard<'_, 'm>, request: &Request) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        if !lock.allows(1 << order, lock.min_mark(request.flags), request.flags, false) {
            return None;
        }
        for &fallback in request.migratetype.fallbacks() {
            if let Some((index, offset)) = lock.take_run(fallback as usize, order) {
                lock.counters.fallbacks.add(1);
                lock.counters.mixed.add(1);
                return Some(self.pfn_of(index, offset));
            }
        }
        None
    }

    /// After a HIGH_ATOMIC request had to be served at the min mark: keeps the rest of its block for such requests.
    /// At most 1 % of the zone, and only in zones of which 1 % is a block (Linux 7.3).
    fn reserve_high_atomic(&self, lock: &ZoneGuard<'_, 'm>, request: &Request, pfn: Pfn) {
        let cap = lock.managed.get() / 100;
        if !request.flags.contains(AllocFlags::HIGH_ATOMIC)
            || request.order.get() == 0
            || request.order.get() >= 9
            || cap < FRAMES as u64
            || lock.high_atomic_blocks.get() >= cap.div_ceil(FRAMES as u64)
        {
            return;
        }
        let Some(index) = self.map.locate(pfn.get()) else { return };
        let block = &self.map.blocks[index as usize];
        if block.migratetype() < HIGH_ATOMIC {
            let class = block.class();
            lock.unplace(index);
            lock.retype(index, HIGH_ATOMIC);
            lock.place(index, class);
        }
    }

    /// HIGHATOMIC frames for requests that may not wait or are a way out of memory shortage; for all others a
    /// HIGHATOMIC block becomes ordinary again before they fail, as long as one is left.
    fn take_high_atomic(&self, lock: &ZoneGuard<'_, 'm>, request: &Request) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        if request.flags.intersects(AllocFlags::NON_BLOCK | AllocFlags::OOM | AllocFlags::HIGH_ATOMIC) {
            let (index, offset) = lock.take_run(HIGH_ATOMIC as usize, order)?;
            return Some(self.pfn_of(index, offset));
        }
        if lock.high_atomic_blocks.get() <= 1 {
            return None;
        }
        let class = lock.shelf.smallest(HIGH_ATOMIC as usize, order as u8 + 1)?;
        let index = lock.shelf.first(HIGH_ATOMIC as usize, class)?;
        lock.unplace(index);
        lock.retype(index, request.migratetype as u8);
        lock.place(index, class);
        self.take_in_zone(lock, request, lock.min_mark(request.flags))
    }
}
