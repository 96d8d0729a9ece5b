//! The fast way of an allocation: what its CPU has in hand, or has freed last.
//!
//! | order | where |
//! |---|---|
//! | 0 | the current lease's hand; a frame freed last, where no lease has any in hand |
//! | 1 to 5 | the hand of the current lease for runs; a run freed last |
//! | 6 to 8 | the chunk in hand; whole words freed last |
//! | 9 | a block in hand |
//!
//! All else is for the slow way, the [ladder](super::ladder); nothing has changed then.
//!
//! **A single frame, or a run, from the hand**, what holds at each step:
//!
//! | step | holds |
//! |---|---|
//! | entered | nobody else changes this CPU's leases |
//! | `mask != 0` | the word's lease names this CPU; the lowest frame of `mask` is free and in nobody else's sight |
//! | the word has none of them too | they were not freed twice, so nobody else can come by them |
//! | `mask` without it is stored | it is the caller's |
//!
//! Reading the word costs one load of a line that freers write; it is what makes a frame that two
//! CPUs free at the same moment come out once.
//!
//! A pair of calls is some 60 instructions: each branch that is saved here is a fifteenth of it.

use crate::alloc::watch::key;
use crate::block::{BLOCK_ORDER, Block, bits};
use crate::calls::{Door, Handle, Owner};
use crate::cpu::door::at_once;
use crate::cpu::lease::{LEASED_BELOW, Lease, Purpose};
use crate::cpu::{Cpu, Inside, way_inside};
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::{AllocError, AllocFlags, Migratetype, Order, Pfn, Platform, Request};

/// Blocks with no larger class than this one may lose a run to a hint that fits exactly: half of a
/// word or less of each is in one piece.
pub(crate) const HINT_CLASS: u8 = 6;

/// [`HINT_CLASS`], or that of the run itself.
#[inline(always)]
fn hint_class(order: u32) -> u8 {
    HINT_CLASS.max(order as u8 + 1)
}

/// No frame's number.
const NO_FRAME: u64 = u64::MAX;

/// The fast way of an allocation, for a thread that is inside a CPU's state.
pub(crate) struct FastAlloc<'a, 'm, P>(pub(crate) Cpu<'a, 'm, P>);

way_inside!(FastAlloc);

impl<'m, P: Platform, D: Door<'m>> Handle<'_, 'm, P, D> {
    /// Allocates one chunk.
    ///
    /// From what the CPU has in hand in some 25 instructions, for orders up to 5, and some 55 for
    /// order 9; otherwise the next word or block, by the zone's board; before failing, every CPU
    /// that could help is asked.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        if request.way == Request::SLOW {
            return self.alloc_slow(request);
        }
        let cpu = self.fh.cpu(self.door.state(self.fh, self.id)?);
        self.door.get_in(self.fh, &cpu);
        let (kind, order) = (request.migratetype as usize, u32::from(request.order.get()));
        let fast = request.way & Request::OR_CMA == 0 || !cpu.cma_matters(request.flags);
        let way = FastAlloc(cpu);
        // From the hand first, and out at once.
        if fast && order < 6 {
            if let Some(pfn) = way.chunk_in_hand(request.order, kind) {
                return Ok(self.left_with(cpu, pfn, request.order));
            }
        }
        let fails = || {
            let (order, migratetype) = (request.order, request.migratetype);
            cpu.futile.get() != 0 && cpu.is_still_futile(key(order, migratetype, request.flags))
        };
        // What was freed last is looked up in two places for runs: the look at a failure first.
        let is_run = fast && (1..6).contains(&order);
        let run_fails = is_run && fails();
        let found = match request.way & !Request::OR_CMA {
            _ if !fast || run_fails => None,
            Request::FRAME => way.recent_frame_first(kind),
            Request::RUN => match order {
                6 => way.recent_words::<1>(kind),
                7 => way.recent_words::<2>(kind),
                8 => way.recent_words::<4>(kind),
                order => way.recent_run_of(kind, order as u8),
            },
            _ => way.kept_block(kind),
        };
        match found {
            Some(pfn) => {
                cpu.count_alloc(kind, request.order);
                Ok(self.left_with(cpu, pfn, request.order))
            }
            None if run_fails || !is_run && fails() => {
                self.door.get_out(&cpu);
                Err(AllocError::NoMemory { order: request.order })
            }
            None => Inside::already(cpu, self.door.biased()).alloc_slow(
                request.order,
                request.migratetype,
                request.flags,
            ),
        }
    }

    /// Out of the CPU with what was found there.
    #[inline(always)]
    fn left_with(&self, cpu: Cpu<'_, 'm, P>, pfn: Pfn, order: Order) -> Pfn {
        self.door.get_out(&cpu);
        self.fh.platform.handed_out(pfn, order);
        pfn
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, request: Request) -> Result<Pfn, AllocError> {
        match self.enter(request.flags) {
            Ok(inside) => inside.alloc_any(&request),
            // Somebody else is inside, whom this caller may have interrupted.
            Err(AllocError::WouldBlock) => self.fh.outside().alloc(self.id, &request),
            Err(error) => Err(error),
        }
    }
}

impl<'a, 'm, P: Platform> Handle<'a, 'm, P, Owner<'a, 'm, P>> {
    /// A chunk of order 0 to 5 that the CPU has in hand, and nothing else: for doors that keep all
    /// the rest out of line, so that nothing has to be saved for it. `None` says only that
    /// [`alloc`](Self::alloc) must be asked. Of the three types that requests may name.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_in_hand(&self, order: Order, migratetype: Migratetype) -> Option<Pfn> {
        debug_assert!(Migratetype::PCP.contains(&migratetype));
        let (cpu, kind) = (self.fh.cpu(self.door.state), migratetype as usize);
        let way = FastAlloc(cpu);
        let found = at_once!(cpu.door, self.door.biased, way.chunk_in_hand(order, kind))??;
        self.fh.platform.handed_out(found, order);
        Some(found)
    }
}

impl<P: Platform> Cpu<'_, '_, P> {
    /// Counts an allocation. By who is inside.
    #[inline(always)]
    pub(crate) fn count_alloc(self, migratetype: usize, order: Order) {
        self.counters.allocs[migratetype % 4][order.index()].add(1);
    }

    /// Whether a request that may take CMA frames has any to look at in its home zone.
    #[inline(always)]
    pub(crate) fn cma_matters(self, flags: AllocFlags) -> bool {
        flags.contains(AllocFlags::CMA) && self.home().cma_blocks.get() != 0
    }
}

impl<'m, P: Platform> FastAlloc<'_, 'm, P> {
    /// A chunk of order 0 to 5 from the current lease, counted. The hottest code there is: see the
    /// table above.
    #[inline(always)]
    pub(crate) fn chunk_in_hand(self, order: Order, migratetype: usize) -> Option<Pfn> {
        // Counted in each arm, where the order's place is known.
        let count = |order: u32| self.counters.allocs[migratetype % 4][order as usize].add(1);
        let order = u32::from(order.get());
        match order {
            0 => {
                let lease = self.leases.current(Purpose::Frames, migratetype);
                let mask = lease.mask.get();
                // Nothing in hand, or frames that were freed twice: the slow way knows.
                if mask == 0 || mask & lease.word() != 0 {
                    return None;
                }
                lease.mask.set(mask & (mask - 1));
                count(0);
                Some(Pfn::new(lease.first.get() + u64::from(mask.trailing_zeros())))
            }
            1..6 => {
                let lease = self.leases.current(Purpose::Runs, migratetype);
                self.run_of(lease, order).inspect(|_| count(order))
            }
            _ => None,
        }
    }

    /// A run of order 1 to 5 from that lease for runs.
    #[inline(always)]
    fn run_of(self, lease: &Lease<'_>, order: u32) -> Option<Pfn> {
        let mask = lease.mask.get();
        let starts = bits::runs(mask & !lease.word(), order);
        let start = bits::best_start(starts, order, lease.breakable.get())?;
        let start = self.leases.predicted(start);
        lease.mask.set(mask & !bits::mask(start, 1 << order));
        Some(Pfn::new(lease.first.get() + u64::from(start)))
    }

    /// A frame that this CPU has freed last, where no lease has any in hand.
    #[inline(never)]
    pub(crate) fn recent_frame_first(self, migratetype: usize) -> Option<Pfn> {
        if self.leases.ready(Purpose::Frames, migratetype) != 0 {
            return None;
        }
        self.recent_frame(migratetype)
    }

    /// The newest hint that holds: its frame is in its word still, and nobody leases that.
    #[inline(always)]
    pub(crate) fn recent_frame(self, migratetype: usize) -> Option<Pfn> {
        self.hinted::<0>(migratetype, |block, w, frame| {
            let line = block.line;
            // Not out of a run of order 3 or more, unless nearly all memory is whole.
            let run = line.word(w) >> (frame.trailing_zeros() & !7) & 0xff;
            let fits = run != 0xff || self.home().is_roomy();
            fits && line.take_frame(w, frame)
        })
    }

    /// [`recent_run`](Self::recent_run) of that order; none of another than 1 to 5.
    #[inline(always)]
    pub(crate) fn recent_run_of(self, migratetype: usize, order: u8) -> Option<Pfn> {
        match order {
            1 => self.recent_run::<1>(migratetype),
            2 => self.recent_run::<2>(migratetype),
            3 => self.recent_run::<3>(migratetype),
            4 => self.recent_run::<4>(migratetype),
            5 => self.recent_run::<5>(migratetype),
            _ => None,
        }
    }

    /// A run of order 1 to 5 that this CPU has freed last: into a word in hand, or any other.
    #[inline(never)]
    pub(crate) fn recent_run<const ORDER: u32>(self, migratetype: usize) -> Option<Pfn> {
        // From the hand that one of its order was freed into since the last time: it fits exactly,
        // mostly.
        if let Some(slot) = self.leases.take_freed(ORDER) {
            let lease = self.leases.slot(slot);
            if lease.serves(Purpose::Runs, migratetype) {
                if let Some(pfn) = self.run_of(lease, ORDER) {
                    self.leases.set_current(Purpose::Runs, migratetype, slot);
                    return Some(pfn);
                }
            }
        }
        self.recent_run_in_word::<ORDER>(migratetype)
    }

    /// A run of order 1 to 5 that this CPU has freed last, and that is no half of a larger one:
    /// it fits exactly. What is nearly free may become whole: a run of it is better left alone,
    /// unless most of the zone is whole, or the CPU takes its runs of that block.
    #[inline(never)]
    fn recent_run_in_word<const ORDER: u32>(self, migratetype: usize) -> Option<Pfn> {
        // With a larger run it may become whole, and another block fits better.
        let most = if self.home().is_roomy() { u8::MAX } else { hint_class(ORDER) };
        self.hinted::<ORDER>(migratetype, |block, w, run| {
            let line = block.line;
            let buddy = bits::mask(run.trailing_zeros() ^ (1 << ORDER), 1 << ORDER);
            let word = line.word(w);
            let fits = word & buddy != buddy
                && (block.head.class() <= most || self.runs_from.starts(block));
            let taken = fits && line.take_bits_of(w, word, run);
            if taken && ORDER < LEASED_BELOW {
                self.ends_row();
            }
            taken
        })
    }

    /// 1, 2 or 4 whole words by the newest hint, by the rule of
    /// [`recent_run_in_word`](Self::recent_run_in_word). `None` where that does not hold; the next
    /// one may.
    #[inline(always)]
    pub(crate) fn recent_words<const LEN: usize>(self, migratetype: usize) -> Option<Pfn> {
        let pfn = match self.chunk.is_in_hand::<LEN>(migratetype) {
            true => self.take_chunk::<LEN>(),
            false => self.words_by_hint::<LEN>(migratetype),
        };
        if pfn == NO_FRAME { None } else { Some(Pfn::new(pfn)) }
    }

    /// [`recent_words`](Self::recent_words), or [`NO_FRAME`]: a result in one register can come
    /// from a call at the end, for which nothing has to be kept.
    #[inline(never)]
    fn words_by_hint<const LEN: usize>(self, migratetype: usize) -> u64 {
        let order = 6 + LEN.ilog2();
        let Some((block, offset)) = self.recent.pop(&self.fh.map.blocks, order) else {
            return NO_FRAME;
        };
        let (head, line, first) = (block.head, block.line, offset as usize / 64 / LEN * LEN);
        let (tag, buddy) = (head.tag.get(), first ^ LEN);
        // Half of the buddy is no better left alone than all of it.
        let full = || (buddy..buddy + LEN).filter(|&w| line.word(w) == !0);
        let alone = || full().nth((LEN - 1) / 2).is_none();
        let in_use = || self.runs_from.starts(block);
        // Without an index that may be out of bounds nothing has to be kept for a panic.
        let roomy =
            self.fh.zones.get(self.home_zone.get() as usize).is_some_and(|zone| zone.is_roomy());
        let fits = roomy || alone() && (head.class() <= hint_class(order) || in_use());
        if !fits || !tag.is_ordinary_of_in(migratetype, self.home_split.get()) {
            return NO_FRAME;
        }
        let end = block.take_words::<LEN>(first);
        // As in `hinted`.
        let leased = || (first..first + LEN).fold(0, |any, w| any | head.lease(w)) != 0;
        let own = &self.allowance[migratetype];
        let left = own.get().wrapping_sub(64 * LEN as u64);
        let changed = || head.is_busy() || head.tag.get() != tag || leased();
        if end != first + LEN || changed() || (left as i64) < 0 {
            return self.words_after_all::<LEN>(block, first, end);
        }
        own.set(left);
        u64::from(head.number) << BLOCK_ORDER | u64::from(offset)
    }

    /// [`hinted_after_all`](Self::hinted_after_all) of whole words, taken up to `end`.
    #[cold]
    #[inline(never)]
    fn words_after_all<const LEN: usize>(self, block: Block<'m>, first: usize, end: usize) -> u64 {
        let kept = block.keep_words::<LEN>(self.by(), first, end);
        if kept { block.base() + first as u64 * 64 } else { NO_FRAME }
    }

    /// [`recent_words`](Self::recent_words), hint after hint: a loop in there is five instructions
    /// of a pair of order 6. The chunk in hand needs no hint.
    pub(crate) fn any_recent_words<const LEN: usize>(self, migratetype: usize) -> Option<Pfn> {
        let order = 6 + LEN.ilog2();
        while self.chunk.is_in_hand::<LEN>(migratetype) || self.recent.has(order) {
            let found = self.recent_words::<LEN>(migratetype);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    #[inline(always)]
    fn hinted<const ORDER: u32>(
        self,
        migratetype: usize,
        take: impl Fn(Block<'m>, usize, u64) -> bool,
    ) -> Option<Pfn> {
        while let Some((block, offset)) = self.recent.pop(&self.fh.map.blocks, ORDER) {
            let w = offset as usize / 64;
            let head = block.head;
            let tag = head.tag.get();
            let home = self.home_split.get();
            let fits = tag.is_ordinary_of_in(migratetype, home) && !head.is_leased(w);
            let frames = bits::mask(offset % 64, 1 << ORDER);
            if fits && take(block, w, frames) {
                // By the rules of `still_open`. A tag that is the same is as good as it was before.
                let (busy, now) = (head.is_busy(), head.tag.get());
                let own = &self.allowance[migratetype];
                let left = own.get().wrapping_sub(1 << ORDER);
                if busy || now != tag || head.is_leased(w) || (left as i64) < 0 {
                    return self.hinted_after_all::<ORDER>(block, offset);
                }
                own.set(left);
                return Some(Pfn::new(u64::from(head.number) << BLOCK_ORDER | u64::from(offset)));
            }
        }
        None
    }

    /// Frames were taken by a hint, and may be to be put back: where the block has just changed, or
    /// the zone would not keep its mark, the next request looks further.
    #[cold]
    #[inline(never)]
    fn hinted_after_all<const ORDER: u32>(self, block: Block<'m>, offset: u32) -> Option<Pfn> {
        let (w, frames) = (offset as usize / 64, bits::mask(offset % 64, 1 << ORDER));
        if !block.still_open(self.by(), w, frames, 1 << ORDER) {
            return None;
        }
        Some(Pfn::new(block.base() + u64::from(offset)))
    }

    /// 1, 2 or 4 whole words of the block in use.
    pub(crate) fn words_in_use<const LEN: usize>(self, migratetype: usize) -> Option<Pfn> {
        let zone = self.home();
        let cursors = self.cursors(usize::from(zone.id));
        let block = cursors.get(&self.fh.map.blocks, Purpose::Runs, migratetype)?;
        let tag = block.head.tag.get();
        // Nearly all memory is whole, or no block has a smaller run that will do.
        let (wanted, class) = (7 + LEN.ilog2() as u8, block.head.class());
        let least = || zone.board.smallest(migratetype, wanted);
        let fits =
            zone.is_roomy() || class <= wanted || least().is_some_and(|least| class <= least);
        if !fits || !tag.is_ordinary_of_in(migratetype, self.home_split.get()) {
            return None;
        }
        block.claim_words::<LEN>(self.by()).map(Pfn::new)
    }

    /// A whole block that this CPU keeps.
    #[inline(always)]
    pub(crate) fn kept_block(self, migratetype: usize) -> Option<Pfn> {
        let (kept, block) =
            self.kept.iter().find_map(|kept| Some((kept, kept.block(&self.fh.map.blocks)?)))?;
        kept.clear();
        Some(Pfn::new(block.take_block(self.fh, migratetype)))
    }
}
