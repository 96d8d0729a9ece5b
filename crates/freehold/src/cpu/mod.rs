//! What one CPU has: words it leases, what it freed last, a whole block or two, the door to it all.
//!
//! | file | what |
//! |---|---|
//! | [`door`] | getting in: nearly free for the owner, one compare-exchange for anybody else |
//! | [`lease`] | the leased words and what of them is in hand |
//! | [`recall`] | what CPUs have goes back: ticks, drains, and others' leases, with one heavy barrier for all |
//!
//! ```text
//! CpuState   door, leases           the lines that every call writes
//!            recent, whole blocks   their own lines
//!            counters               their own lines
//! Cursors    one for each (CPU, zone): the block whose words are leased next, by purpose and migratetype
//! ```
//!
//! **Who does something** is a CPU, whose state is entered, or somebody outside of all of them.
//! Whatever door was taken, what is done inside is the same.
//!
//! **What it has freed last** into words that it does not lease is where it looks first. These are
//! only hints: the frames are in their word, visible to everybody, and may be gone. Without them a
//! random free and the next allocation would each lease a word for one frame or run, or look for
//! whole words on the board.
//!
//! They are of blocks of the home zone, of any type: another than is wanted is forgotten.

use crate::alloc::chunk::Chunk;
use crate::block::layout::{Blocks, Place};
use crate::block::{Block, TYPES, Tag};
use crate::cpu::door::Door;
use crate::cpu::lease::{Leases, NO_WORD, Purpose};
use crate::platform::{OnPanic, Pressure, PressureLevel};
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Count, Ordering, Relaxed};
use crate::zone::Zone;
use crate::zone::supply::{Share, Supply};
use crate::{AllocError, CpuId, Freehold, ORDERS, Platform};
use core::cell::Cell;
use core::ops::Deref;

pub(crate) mod door;
pub(crate) mod lease;
pub(crate) mod recall;

/// Whole blocks that a CPU keeps, so that an order-9 pair writes to nothing that others share.
pub(crate) const KEPT: usize = 2;

/// See the module's documentation. 128 bytes apart, since adjacent lines are fetched in pairs.
#[repr(C, align(128))]
pub(crate) struct CpuState<'m> {
    pub(crate) door: Door,
    /// Its number.
    pub(crate) number: u16,
    /// Somebody has taken it for good with `own`.
    pub(crate) owned: AtomicBool,
    pub(crate) online: AtomicBool,
    /// The zone with memory that its requests go to first. Changes with memory, under the door.
    pub(crate) home_zone: AtomicU32,
    /// [`Tag::ordinary_in`] of it.
    pub(crate) home_split: AtomicU32,
    /// The word of the last free that went into a word that is not leased: a second one leases it,
    /// unless a run was taken in between or it is too long.
    pub(crate) last_key: AtomicU64,
    /// What it may take of the home zone, by migratetype: see
    /// [`allowance`](crate::zone::allowance).
    pub(crate) allowance: [AtomicU64; 8],
    /// Where one of them is larger after a free the zone is told. Smaller near its mark.
    pub(crate) most: AtomicU64,
    /// The block that was chosen last to take runs of: some place in its [`Cursors`] names it.
    pub(crate) runs_from: Place,
    pub(crate) leases: Leases<'m>,
    /// The chunk of whole words that it leases.
    pub(crate) chunk: Chunk,
    pub(crate) share: Share,
    pub(crate) counters: CpuCounters,
    pub(crate) recent: Recent,
    /// Wholly free blocks of the home zone.
    pub(crate) kept: [Place; KEPT],
    /// It has kept one, and may keep the next without asking. Only where `holds`.
    pub(crate) keeps: AtomicBool,
    /// It may have something in hand, or a block in use: the allocator counts it as such.
    pub(crate) holds: AtomicBool,
    /// The generation in which a request came to nothing here, and which one; 0 for none. See
    /// [`watch`](crate::alloc::watch).
    pub(crate) futile: AtomicU64,
    pub(crate) futile_request: AtomicU64,
    /// A watermark was what it was short of.
    pub(crate) futile_for_mark: AtomicBool,
    /// The block of the zone from which on the next gap for a run is looked for: see
    /// [`runs`](crate::alloc::runs).
    pub(crate) next_gap: AtomicU32,
    /// Allocations when the last tick came.
    pub(crate) allocs_at_tick: AtomicU64,
    /// The next CPU that the recall which has knocked here is about to enter.
    pub(crate) next_asked: AtomicU32,
}

impl<'m> CpuState<'m> {
    /// What is freed next is the first of a row: it leases no word.
    #[inline(always)]
    pub(crate) fn ends_row(&self) {
        self.last_key.set(NO_WORD);
    }

    /// `no_word` is a word that is never anybody's.
    pub(crate) fn new(number: usize, no_word: &'m AtomicU64) -> Self {
        Self {
            door: Door::new(),
            number: number as u16,
            owned: AtomicBool::new(false),
            online: AtomicBool::new(false),
            home_zone: AtomicU32::new(0),
            home_split: AtomicU32::new(Tag::ordinary_in(0)),
            last_key: AtomicU64::new(NO_WORD),
            allowance: core::array::from_fn(|_| AtomicU64::new(0)),
            most: AtomicU64::new(0),
            runs_from: Place::none(),
            leases: Leases::new(no_word),
            chunk: Chunk::new(),
            share: Share::default(),
            counters: CpuCounters::default(),
            recent: Recent::new(),
            kept: core::array::from_fn(|_| Place::none()),
            keeps: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            futile: AtomicU64::new(0),
            futile_request: AtomicU64::new(0),
            futile_for_mark: AtomicBool::new(false),
            next_gap: AtomicU32::new(0),
            allocs_at_tick: AtomicU64::new(0),
            next_asked: AtomicU32::new(0),
        }
    }
}

/// What a CPU counts, on lines of its own: no lock and no cache line is shared for it. Each is
/// written by a thread inside the CPU's state, as a plain load, add and store.
#[derive(Default)]
pub(crate) struct CpuCounters {
    /// Allocations by migratetype asked for, then by order; four: two bits of a type are an index.
    pub(crate) allocs: [[AtomicU64; ORDERS]; 4],
    pub(crate) local_frees: AtomicU64,
    pub(crate) remote_frees: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Allocations that needed more than what the CPU had in hand.
    pub(crate) slow: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) by_phase: [AtomicU64; 3],
    pub(crate) refilled_frames: AtomicU64,
    pub(crate) recalls: AtomicU64,
    /// Writes to what all CPUs share.
    pub(crate) shared_writes: AtomicU64,
}

/// Where a CPU leases its next words in one zone: hints, since the block's tag says whether it
/// still may. And its count of that zone, where that is not its home.
pub(crate) struct Cursors {
    blocks: [[Place; TYPES]; 2],
    /// The block split last for a run of any length: it stays split while the CPU cuts runs.
    cut: Place,
    /// As [`CpuState::allowance`].
    pub(crate) allowance: [AtomicU64; 8],
}

impl Cursors {
    pub(crate) fn new() -> Self {
        Self {
            blocks: core::array::from_fn(|_| core::array::from_fn(|_| Place::none())),
            cut: Place::none(),
            allowance: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline(always)]
    pub(crate) fn get<'m>(
        &self,
        blocks: &Blocks<'m>,
        purpose: Purpose,
        migratetype: usize,
    ) -> Option<Block<'m>> {
        self.blocks[purpose as usize][migratetype].block(blocks)
    }

    pub(crate) fn set(&self, purpose: Purpose, migratetype: usize, block: Block<'_>) {
        self.blocks[purpose as usize][migratetype].set(block, 0);
    }

    /// Whether some place names that block.
    pub(crate) fn names(&self, block: Block<'_>) -> bool {
        self.places().any(|place| place.names(block))
    }

    /// Every place.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.blocks.iter().flatten().chain([&self.cut])
    }

    /// Has runs of any length come from that block; returns the one before it.
    pub(crate) fn cut_from<'m>(&self, blocks: &Blocks<'m>, block: Block<'m>) -> Option<Block<'m>> {
        let before = self.cut.block(blocks);
        self.cut.set(block, 0);
        before
    }
}

/// Copies a type whatever host it is for, which a derive would want to be copied, too.
macro_rules! copied {
    ($name:ident) => {
        impl<P> Clone for $name<'_, '_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P> Copy for $name<'_, '_, P> {}
    };
}

/// What is done with a CPU's state in one way, for a thread that is inside: each way is a type.
macro_rules! way_inside {
    ($name:ident) => {
        $crate::cpu::copied!($name);

        impl<'a, 'm, P> core::ops::Deref for $name<'a, 'm, P> {
            type Target = $crate::cpu::Cpu<'a, 'm, P>;

            #[inline(always)]
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}
pub(crate) use {copied, way_inside};

/// See the module's documentation. A CPU counts on its own lines, by plain stores; a thread that is
/// outside of all has no counts that plain stores could change.
pub(crate) struct By<'a, 'm, P> {
    pub(crate) fh: &'a Freehold<'m, P>,
    state: Option<&'m CpuState<'m>>,
}

/// A CPU's state and the allocator that it is of: for a thread that is inside, or for a look at it
/// from outside, which changes nothing.
pub(crate) struct Cpu<'a, 'm, P> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) cpu: &'m CpuState<'m>,
}

copied!(Cpu);

impl<'m, P> Deref for Cpu<'_, 'm, P> {
    type Target = CpuState<'m>;

    #[inline(always)]
    fn deref(&self) -> &CpuState<'m> {
        self.cpu
    }
}

impl<'a, 'm, P: Platform> Cpu<'a, 'm, P> {
    /// It, as who does something.
    #[inline(always)]
    pub(crate) fn by(self) -> By<'a, 'm, P> {
        By { fh: self.fh, state: Some(self.cpu) }
    }

    /// Which one it is.
    #[inline(always)]
    pub(crate) fn id(self) -> CpuId {
        CpuId::new(self.cpu.number)
    }

    /// Whether it is online, if only by now.
    pub(crate) fn is_online(self) -> Result<(), AllocError> {
        if self.online.get() { Ok(()) } else { Err(AllocError::CpuOffline { cpu: self.id() }) }
    }

    /// The zone that its requests go to first.
    #[inline(always)]
    pub(crate) fn home(self) -> &'m Zone<'m> {
        &self.fh.zones[self.home_zone.get() as usize]
    }

    /// Whether that is the one of this number.
    #[inline(always)]
    pub(crate) fn is_home(self, zone: usize) -> bool {
        self.home_zone.get() as usize == zone
    }

    /// What it has of a zone: where it leases its next words.
    #[inline(always)]
    pub(crate) fn cursors(self, zone: usize) -> &'m Cursors {
        &self.fh.cursors[usize::from(self.cpu.number) * self.fh.zones.len() + zone]
    }
}

copied!(By);

impl<P: Platform> By<'_, '_, P> {
    /// Counts writes to what all CPUs of a zone share.
    pub(crate) fn wrote(self, zone: &Supply, writes: u32) {
        match self.state {
            Some(cpu) => cpu.counters.shared_writes.add(u64::from(writes)),
            None if writes != 0 => zone.counters.shared_writes.add_shared(u64::from(writes)),
            None => {}
        }
    }
}

impl<'a, 'm, P: Platform> By<'a, 'm, P> {
    /// The CPU, if it is one.
    #[inline(always)]
    pub(crate) fn cpu(self) -> Option<Cpu<'a, 'm, P>> {
        self.state.map(|cpu| Cpu { fh: self.fh, cpu })
    }

    /// [`tell_pressure`](Self::tell_pressure); where the host panics, what a call took goes back.
    pub(crate) fn tell_pressure_or(self, give_back: impl FnMut()) {
        let back = OnPanic(give_back);
        self.tell_pressure();
        core::mem::forget(back);
    }

    /// Tells the host about changed pressure. Called at the edge of the API.
    pub(crate) fn tell_pressure(self) {
        self.fh.zones.iter().for_each(|zone| zone.update_level(self.fh));
        for (z, zone) in self.fh.zones.iter().enumerate() {
            // Acquire: pairs with `update_level`; the level that made the change is seen.
            while zone.level_changed.get() && zone.level_changed.swap(false, Ordering::Acquire) {
                let level = zone.level.get();
                self.fh.platform.pressure(Pressure {
                    zone: z,
                    level: match level {
                        0 => PressureLevel::None,
                        1 => PressureLevel::Low,
                        _ => PressureLevel::Min,
                    },
                    free: zone.free(self.fh).all,
                    watermarks: [zone.min.get(), zone.low.get(), zone.high.get()],
                });
                // Another CPU may have told a later one before: the last told must be true.
                if zone.level.get() != level {
                    zone.level_changed.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// A CPU whose state is the calling thread's.
    #[inline(always)]
    pub(crate) fn cpu<'a>(&'a self, cpu: &'m CpuState<'m>) -> Cpu<'a, 'm, P> {
        Cpu { fh: self, cpu }
    }

    /// Somebody outside of every CPU's state.
    pub(crate) fn outside(&self) -> By<'_, 'm, P> {
        By { fh: self, state: None }
    }
}

/// A CPU's state, entered. Left when dropped; in between too, to reach into other CPUs.
pub(crate) struct Inside<'a, 'm, P: Platform> {
    at: Cpu<'a, 'm, P>,
    owner: bool,
    inside: Cell<bool>,
}

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// Enters, waiting. Must not be called where the caller may have interrupted the CPU's owner.
    #[inline]
    pub(crate) fn enter(fh: &'a Freehold<'m, P>, cpu: &'m CpuState<'m>, owner: bool) -> Self {
        cpu.door.enter(owner, &fh.platform);
        Self::already(fh.cpu(cpu), owner)
    }

    /// Enters if that takes neither waiting nor a heavy barrier.
    #[inline]
    pub(crate) fn try_enter(
        fh: &'a Freehold<'m, P>,
        cpu: &'m CpuState<'m>,
        owner: bool,
    ) -> Option<Self> {
        cpu.door.try_enter(owner).then(|| Self::already(fh.cpu(cpu), owner))
    }

    /// For who has got in already.
    #[inline(always)]
    pub(crate) fn already(at: Cpu<'a, 'm, P>, owner: bool) -> Self {
        Self { at, owner, inside: Cell::new(true) }
    }

    /// Runs `f` outside. The CPU's state may be quite another afterwards, and the CPU offline.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.inside.set(false);
        self.cpu.door.leave(self.owner);
        let result = f();
        self.cpu.door.enter(self.owner, &self.fh.platform);
        self.inside.set(true);
        result
    }
}

impl<'a, 'm, P: Platform> Deref for Inside<'a, 'm, P> {
    type Target = Cpu<'a, 'm, P>;

    #[inline(always)]
    fn deref(&self) -> &Cpu<'a, 'm, P> {
        &self.at
    }
}

impl<P: Platform> Drop for Inside<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.inside.get() {
            self.cpu.door.leave(self.owner);
        }
    }
}

/// Places kept of single frames, and of each order from 1 to 8; powers of two.
///
/// More make mixed orders cheaper, and cost contiguity: what is freed is taken again before the
/// board is asked which block fits best. With 16 single frames a step of mixed orders takes a sixth
/// more instructions. Few under loom, whose threads have small stacks.
const FRAMES_KEPT: usize = if cfg!(loom) { 4 } else { 64 };
const RUNS_KEPT: usize = if cfg!(loom) { 2 } else { 16 };
/// Orders 0 to 8.
const HINTED: usize = 9;

/// What a CPU has freed last: a ring of places for each order, side by side. Under its door.
pub(crate) struct Recent {
    places: [Place; FRAMES_KEPT + (HINTED - 1) * RUNS_KEPT],
    /// The newest of each order. Behind it there are empty ones, or the oldest.
    tops: [AtomicU32; HINTED],
}

impl Recent {
    fn new() -> Self {
        Self {
            places: core::array::from_fn(|_| Place::none()),
            tops: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The places of an order, and the newest one's number.
    #[inline(always)]
    fn ring(&self, order: u32) -> (&[Place], &AtomicU32) {
        debug_assert!(order < HINTED as u32);
        let order = (order as usize).min(HINTED - 1);
        let runs = |n: usize| &self.places[FRAMES_KEPT + n * RUNS_KEPT..][..RUNS_KEPT];
        let places = if order == 0 { &self.places[..FRAMES_KEPT] } else { runs(order - 1) };
        (places, &self.tops[order])
    }

    /// A chunk of order 0 to 8 was freed, by its block and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, order: u32, block: Block<'_>, offset: u32) {
        let (places, newest) = self.ring(order);
        let top = newest.get().wrapping_add(1);
        places[top as usize % places.len()].set(block, offset);
        newest.set(top);
    }

    /// The newest of that order.
    #[inline(always)]
    pub(crate) fn pop<'m>(&self, blocks: &Blocks<'m>, order: u32) -> Option<(Block<'m>, u32)> {
        let (places, newest) = self.ring(order);
        let top = newest.get();
        let place = &places[top as usize % places.len()];
        let found = place.get(blocks)?;
        place.clear();
        newest.set(top.wrapping_sub(1));
        Some(found)
    }

    /// Whether there is one of that order.
    pub(crate) fn has(&self, order: u32) -> bool {
        let (places, newest) = self.ring(order);
        !places[newest.get() as usize % places.len()].is_none()
    }

    pub(crate) fn clear(&self) {
        self.places.iter().for_each(Place::clear);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::FRAMES;
    use crate::tests::testing::*;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let (recent, map) = (Recent::new(), &set_up().map);
        for order in 0..9 {
            assert!(recent.pop(&map.blocks, order).is_none());
            let kept = if order == 0 { FRAMES_KEPT } else { RUNS_KEPT } as u32;
            let place = |n: u32| (n / 3, n % FRAMES as u32);
            for n in 0..kept + 10 {
                let (number, offset) = place(n);
                recent.push(order, map.locate_block(number.into()).unwrap(), offset);
            }
            let seen = |(block, offset): (Block<'_>, u32)| (block.head.number, offset);
            let all: Vec<_> =
                core::iter::from_fn(|| recent.pop(&map.blocks, order).map(seen)).collect();
            let expected: Vec<_> = (10..kept + 10).rev().map(place).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn each_order_has_its_own() {
        let (recent, map) = (Recent::new(), &set_up().map);
        let last = map.locate_block(63).unwrap();
        (0..9).for_each(|order| recent.push(order, last, order));
        (0..9).for_each(|order| assert!(recent.pop(&map.blocks, order) == Some((last, order))));
        (0..9).for_each(|order| recent.push(order, last, 2));
        recent.clear();
        (0..9).for_each(|order| assert!(recent.pop(&map.blocks, order).is_none()));
    }
}
