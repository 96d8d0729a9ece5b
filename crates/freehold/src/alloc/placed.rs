//! Requests that not any frames will do for: within limits of the frame number space, at a multiple
//! of more than their own size, or of more than a block (orders 10 to 18). One search for all.
//!
//! Zone by zone, in each the kinds of block from best to worst, in each the blocks from the lowest
//! on. Frames are taken straight from the blocks' words and from the bitmap of whole blocks.
//!
//! | step | holds |
//! |---|---|
//! | the zone would keep its mark | its blocks are worth a look |
//! | a glance at tag and room | nothing: each may change at once |
//! | a split block: a run out of its words | all or none of it |
//! | whole ones: they are claimed, and their bits cleared word by word | nobody else has these blocks |
//! | of a whole one: all of it, or it is split and a run taken | the board knows what is left |
//! | nothing: what CPUs have in hand comes back, and all once more | a request fails only where that brought nothing |

use crate::alloc::ladder::Climb;
use crate::block::words::CLASS_WHOLE;
use crate::block::{BLOCK_ORDER, Block, CMA, FRAMES, HIGH_ATOMIC, WORDS};
use crate::cpu::{By, Inside};
use crate::zone::Zone;
use crate::zone::allowance::Granted;
use crate::{AllocError, AllocFlags, Order, Pfn, Platform, Request};

/// Where a run may lie: the limits, how many frames it has, and of what it starts at a multiple.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    below: u64,
    frames: u64,
    align: u64,
}

impl Window {
    fn of(request: &Request) -> Self {
        Self {
            from: request.from.get(),
            below: request.below.get(),
            frames: request.order.frames(),
            align: request.alignment().frames(),
        }
    }

    /// The first block from that number on in which a run may start, by the alignment alone: of
    /// those between none is looked at.
    fn next_start(self, number: u64) -> u64 {
        number.next_multiple_of((self.align / FRAMES as u64).max(1))
    }

    /// The frames of a block that lie within the limits, as offsets in it, and of what a run starts
    /// at a multiple there. `None` where no run fits.
    fn within(self, base: u64) -> Option<(usize, usize, usize)> {
        let offset = |pfn: u64| pfn.saturating_sub(base).min(FRAMES as u64) as usize;
        let (low, high) = (offset(self.from), offset(self.below));
        let align = self.align.min(FRAMES as u64) as usize;
        let starts = align < FRAMES || base % self.align == 0;
        let fits = low.next_multiple_of(align) as u64 + self.frames <= high as u64;
        (starts && fits).then_some((low, high, align))
    }
}

impl<'m, P: Platform> Climb<'_, 'm, P> {
    /// A chunk that only some places will do for: at first; and after what CPUs have in hand has
    /// come back, which goes no further than it has to.
    pub(crate) fn find_placed(&self, inside: &Inside<'_, 'm, P>) -> Result<Pfn, AllocError> {
        let look = || self.search_places();
        if let Some(pfn) = look() {
            return Ok(pfn);
        }
        if !self.request.flags.contains(AllocFlags::NO_LOCK) {
            return self.look_for_the_last_time(inside, look);
        }
        inside.give_back_all();
        look().ok_or(AllocError::WouldBlock)
    }

    /// Serves the request out of what is in nobody's hand.
    pub(crate) fn search_places(&self) -> Option<Pfn> {
        let (fh, request, window) = (self.by.fh, self.request, Window::of(self.request));
        let zones = fh.zonelists.of(self.id.index(), request.node).map(|z| &fh.zones[z]);
        let mut touched = zones.filter(|zone| {
            window.from < zone.span.end.get() && zone.span.start.get() < window.below
        });
        touched.find_map(|zone| Places { by: self.by, zone, request, window }.find())
    }
}

/// The places of one zone that a request may have.
struct Places<'c, 'm, P> {
    by: By<'c, 'm, P>,
    zone: &'m Zone<'m>,
    request: &'c Request,
    window: Window,
}

impl<'m, P: Platform> Places<'_, 'm, P> {
    /// In the kinds of block that will do, best first.
    fn find(&self) -> Option<Pfn> {
        let (request, own) = (self.request, self.request.migratetype as usize);
        let split = |kind, is_one: &dyn Fn(usize) -> bool| {
            let in_one = request.order <= Order::PAGEBLOCK;
            if in_one { self.split(kind, is_one) } else { None }
        };
        let of_cma = || match request.order > Order::PAGEBLOCK {
            _ if !request.cma() => None,
            true => self.of_cma(),
            false => split(CMA, &|kind| kind == CMA),
        };
        let reserve = || split(HIGH_ATOMIC, &|kind| kind == HIGH_ATOMIC);
        split(own, &|kind| kind == own)
            .or_else(of_cma)
            .or_else(|| self.whole())
            .or_else(|| split(own, &|kind| kind < HIGH_ATOMIC && kind != own))
            // The reserve is there to be used.
            .or_else(|| if request.flags.may_use_reserve() { reserve() } else { None })
    }

    /// Makes sure that the zone keeps its mark, of a request for frames of that kind.
    fn granted(&self, kind: usize) -> Option<Granted<'_>> {
        self.zone.reserve(self.by, kind, self.window.frames, self.request.flags)
    }

    /// Looks through the split blocks of some types, lowest first; frames of that kind are asked for.
    fn split(&self, kind: usize, is_one: &dyn Fn(usize) -> bool) -> Option<Pfn> {
        let Self { by, zone, window, .. } = *self;
        let _granted = self.granted(kind)?;
        let map = &by.fh.map;
        let first = zone.span.start.get().max(window.from) >> 9;
        let end = zone.span.end.get().min(window.below).div_ceil(FRAMES as u64);
        let mut at = window.next_start(first);
        while let Some(number) = map.next_set_up(at, end) {
            at = window.next_start(number + 1);
            let Some(block) = map.locate_block(number) else { continue };
            let tag = block.tag.get();
            let there = tag.zone() == usize::from(zone.id) && is_one(tag.migratetype());
            if !there || !tag.is_open() {
                continue;
            }
            let found = self.claim(block);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Takes such a run out of a split block's words; its first frame.
    fn claim(&self, block: Block<'m>) -> Option<Pfn> {
        let (low, high, align) = self.window.within(block.base())?;
        let order = self.request.order.get().into();
        block.claim_within(self.by, order, align, low, high).map(Pfn::new)
    }

    /// From CMA blocks side by side, each of them wholly free: all or none.
    fn of_cma(&self) -> Option<Pfn> {
        let Self { by, zone, window, .. } = *self;
        let len = window.frames / FRAMES as u64;
        let _granted = self.granted(CMA)?;
        zone.each_run_of_cma(by, len, |first| {
            let base = first.base();
            let fits = window.from <= base && base + window.frames <= window.below;
            if !fits || base % window.align != 0 {
                return None;
            }
            let block = |n: u64| by.fh.map.locate_block(u64::from(first.number) + n);
            let claim = |n: &u64| block(*n).is_some_and(|b| b.claim(by, BLOCK_ORDER).is_some());
            let taken = (0..len).take_while(claim).count() as u64;
            if taken == len {
                return Some(Pfn::new(base));
            }
            if let Some(block) = block(taken).filter(|block| !block.has_open_run(BLOCK_ORDER)) {
                by.lower(block, CLASS_WHOLE, CLASS_WHOLE);
            }
            for block in (0..taken).filter_map(block) {
                (0..WORDS).for_each(|w| by.put_back(block, w, !0));
            }
            None
        })
    }

    /// From whole blocks in the zone's bitmap: as many in a row as the request needs.
    fn whole(&self) -> Option<Pfn> {
        let Self { by, zone, request, window } = *self;
        let order = u32::from(request.order.get());
        let runs = order.saturating_sub(BLOCK_ORDER);
        let len = 1u64 << runs;
        let in_use = order >= BLOCK_ORDER;
        let _granted =
            if in_use { None } else { Some(self.granted(request.migratetype as usize)?) };
        let give_back = || {
            if in_use {
                zone.give_back_blocks(by.fh, len);
            }
        };
        let to = window.below.div_ceil(FRAMES as u64).saturating_sub(zone.first_block);
        let mut at = (window.from >> 9).saturating_sub(zone.first_block);
        loop {
            at = window.next_start(zone.first_block + at) - zone.first_block;
            let first = zone.bitmap.find(runs, at, to)?;
            let number = zone.first_block + first;
            at = first + 1;
            let aligned = window.next_start(number) == number;
            let fits = match runs {
                0 => window.within(number << 9).is_some(),
                _ => window.from <= number << 9 && (number + len) << 9 <= window.below,
            };
            if !aligned || !fits {
                continue;
            }
            if in_use && !zone.grant_blocks(by, len, request.flags, false) {
                return None;
            }
            if !zone.claim_wholes(len) {
                give_back();
                return None;
            }
            // Others may be faster, or are setting up a section of it.
            let Some(block) = self.take_wholes_at(first, len) else {
                give_back();
                at = first + len;
                continue;
            };
            if in_use {
                return Some(Pfn::new(number << 9));
            }
            by.split(block, request.migratetype as usize);
            let found = self.claim(block);
            if found.is_some() {
                return found;
            }
            by.raise(block);
        }
    }

    /// Takes whole blocks in a row that were claimed, all or none, in use if the request is for
    /// whole ones; the first of them.
    fn take_wholes_at(&self, first: u64, len: u64) -> Option<Block<'m>> {
        let Self { by, zone, request, .. } = *self;
        let may_wait = !request.flags.contains(AllocFlags::NO_LOCK);
        let (writes, taken) = zone.bitmap.take_run(first, len);
        by.wrote(zone, writes + 1);
        let blocks = || (first..first + len).map(|bit| zone.set_up(by.fh, bit, may_wait));
        if !taken || blocks().any(|block| block.is_none()) {
            if taken {
                zone.bitmap.insert_range(first, first + len);
            }
            zone.give_up_wholes(by.fh, len);
            return None;
        }
        if request.order >= Order::PAGEBLOCK {
            for block in blocks().flatten() {
                block.take_block(by.fh, request.migratetype as usize);
            }
        }
        zone.update_mode();
        blocks().next().flatten()
    }
}
