//! What each CPU has, and what it has of each zone.
//!
//! ```text
//! CpuState   door, leases           the lines that every call writes
//!            recent, whole blocks   their own lines
//!            counters               their own lines
//! Cursors    one for each (CPU, zone): the block whose words are leased next, by purpose and migratetype
//! ```

use super::door::Door;
use super::lease::{Leases, Purpose};
use super::recent::Recent;
use crate::ORDERS;
use crate::alloc::chunk::Chunk;
use crate::block::Block;
use crate::block::layout::{Blocks, Place};
use crate::block::tag::{TYPES, Tag};
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Relaxed};
use crate::zone::shared_words::Share;

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
    /// [`fit`](crate::alloc::fit).
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
        self.last_key.set(super::lease::NO_WORD);
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
            last_key: AtomicU64::new(super::lease::NO_WORD),
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
