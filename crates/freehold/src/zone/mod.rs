//! A zone: memory of one node with its own watermarks, whole blocks, and board of the others.
//!
//! ```text
//! bitmap    wholly free blocks of the three ordinary migratetypes, one bit each: their type means nothing until used
//! board     partly free blocks, by type and largest free run; CMA and HIGHATOMIC blocks, wholly free ones too
//! (nowhere) full blocks, taken ones, isolated ones, and whole ones that a CPU keeps
//! ```
//!
//! There is no lock: bits change atomically, and what CPUs count is summed up where it matters.

pub(crate) mod allowance;
pub(crate) mod bitmap;
pub(crate) mod board;
pub(crate) mod counters;
pub(crate) mod moving;
pub(crate) mod shared_words;
pub(crate) mod summary;
pub(crate) mod watermarks;
pub(crate) mod whole;
pub(crate) mod zonelists;

use crate::block::tag::Tag;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, Relaxed};
use crate::{FrameRange, NodeId};
use allowance::KINDS;
use bitmap::WholeBitmap;
use board::Board;
use counters::{OUTSIDE, Outside, ZoneCounters};
use shared_words::SharedWords;

/// How a zone's memory stands, which decides what a CPU may do without asking.
pub(crate) mod mode {
    /// Best fit.
    pub(crate) const ORDINARY: u8 = 0;
    /// Nearly all of it is whole: whatever is at hand will do.
    pub(crate) const ROOMY: u8 = 1;
    /// Near its min mark: what is taken in hand has to be asked for.
    pub(crate) const TIGHT: u8 = 2;
    /// Nearer still: what CPUs may have in hand would be as much as is left, so they have nothing.
    pub(crate) const LEAN: u8 = 3;
}

/// See the module's documentation.
#[repr(C, align(128))]
pub(crate) struct Zone<'m> {
    pub(crate) id: u8,
    pub(crate) node: NodeId,
    pub(crate) span: FrameRange,
    /// The number of the block of bit 0 of the bitmap: the span's start rounded down to 1 GiB.
    pub(crate) first_block: u64,
    pub(crate) bitmap: WholeBitmap<'m>,
    pub(crate) board: Board<'m>,
    /// One of [`mode`]'s. Written only where it changes, since every CPU reads it.
    pub(crate) mode: AtomicU8,
    /// It has become LEAN, and nobody has emptied the hands yet.
    pub(crate) hands_to_empty: AtomicBool,
    /// Parts of blocks have no memory: what is at hand may cost most, so it is never roomy.
    pub(crate) thrifty: AtomicBool,
    /// Each CPU has blocks of its own in use.
    pub(crate) spread: AtomicBool,
    /// What its CPUs may lease, where each has no word of its own.
    pub(crate) words: SharedWords,
    /// The largest allowance, in frames.
    pub(crate) fold: AtomicU64,
    /// Into so many allowances what is left above the mark is divided.
    pub(crate) shares: AtomicU64,
    /// With fewer ordinary frames it becomes TIGHT, or stays so; and LEAN. See
    /// [`set_modes`](Self::set_modes).
    pub(crate) tight_below: [AtomicU64; 2],
    pub(crate) lean_below: [AtomicU64; 2],
    /// Its own count when it was last summed up for the host.
    pub(crate) summed_at: AtomicU64,
    /// Frames there are; changes at hotplug.
    pub(crate) managed: AtomicU64,
    /// CMA blocks there are. None: a request that would take CMA frames is an ordinary one.
    pub(crate) cma_blocks: AtomicU64,
    pub(crate) min: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) high: AtomicU64,
    /// They follow the kernel's formulae when the amount of memory changes.
    pub(crate) kernel_marks: AtomicBool,
    /// How many bits are set in the bitmap, less those that somebody is about to clear.
    pub(crate) whole_blocks: Apart,
    /// Free frames by kind, without all CPUs' allowances: may be below 0. See [`allowance`].
    pub(crate) free: [AtomicU64; KINDS],
    /// HIGHATOMIC blocks there are.
    pub(crate) high_atomic_blocks: AtomicU64,
    /// The pressure level last told to the host: 0 none, 1 below low, 2 below min.
    pub(crate) level: AtomicU32,
    /// Up to there are the blocks that there were at first; 0 in a zone of less than 2 GiB. What is
    /// added above them later may be taken away again: frames that cannot be moved come from there
    /// last.
    pub(crate) first_end: u64,
    /// The level has changed and nobody has told the host yet.
    pub(crate) level_changed: AtomicBool,
    pub(crate) counters: ZoneCounters,
    pub(crate) outside: [Outside; OUTSIDE],
}

/// A count on a line of its own, behind which the zone's others follow that are written as often.
#[repr(C, align(128))]
pub(crate) struct Apart(pub(crate) AtomicU64);

impl<'m> Zone<'m> {
    pub(crate) fn new(
        (id, node, span): (u8, NodeId, FrameRange),
        (bitmap, board): (WholeBitmap<'m>, Board<'m>),
        first_end: u64,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            id,
            node,
            span,
            first_block: first_block(span),
            bitmap,
            board,
            mode: AtomicU8::new(mode::ORDINARY),
            hands_to_empty: AtomicBool::new(false),
            thrifty: AtomicBool::new(false),
            spread: AtomicBool::new(false),
            words: SharedWords::new(),
            fold: zero(),
            shares: zero(),
            tight_below: [zero(), zero()],
            lean_below: [zero(), zero()],
            summed_at: zero(),
            managed: zero(),
            cma_blocks: zero(),
            min: zero(),
            low: zero(),
            high: zero(),
            kernel_marks: AtomicBool::new(false),
            whole_blocks: Apart(zero()),
            free: core::array::from_fn(|_| zero()),
            high_atomic_blocks: zero(),
            level: AtomicU32::new(0),
            first_end,
            level_changed: AtomicBool::new(false),
            counters: ZoneCounters::default(),
            outside: Default::default(),
        }
    }

    /// A block's bit.
    pub(crate) fn bit(&self, number: u32) -> u64 {
        u64::from(number) - self.first_block
    }

    /// Whole blocks that nobody has claimed.
    pub(crate) fn wholes(&self) -> u64 {
        self.whole_blocks.0.get()
    }

    /// Makes a whole block anybody's to take; the writes that it took.
    pub(crate) fn insert_whole(&self, number: u32) -> u32 {
        let bit = self.bit(number);
        let writes = self.bitmap.insert((bit / 64) as usize, 1 << (bit % 64));
        // SeqCst: whether somebody watches for it is read next.
        self.whole_blocks.0.fetch_add(1, Ordering::SeqCst);
        writes + 1
    }

    /// Claims `n` whole blocks: a thread that has claimed them finds as many bits set, since a bit
    /// is set before it is counted.
    pub(crate) fn claim_wholes(&self, n: u64) -> bool {
        let mut count = self.wholes();
        while count >= n {
            // Release: a thread that finds the block gone sees that a CPU is inside its door with
            // it. Relaxed on failure: a thread that claims one by the count looks for its bit.
            let claimed = self.whole_blocks.0.compare_exchange_weak(
                count,
                count - n,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// How many blocks the zone has.
    pub(crate) fn blocks(&self) -> u64 {
        self.managed.get() >> 9
    }

    #[inline(always)]
    pub(crate) fn is_roomy(&self) -> bool {
        self.mode.get() == mode::ROOMY
    }

    /// Whether one of so many frames is free.
    pub(crate) fn has_free_of(&self, frames: u64) -> bool {
        let free = self.free[allowance::ORDINARY].get() as i64;
        free.max(0) as u64 * frames >= self.managed.get()
    }

    #[inline(always)]
    pub(crate) fn is_tight(&self) -> bool {
        self.mode.get() >= mode::TIGHT
    }

    /// Whether CPUs are to have nothing in hand.
    #[inline(always)]
    pub(crate) fn is_lean(&self) -> bool {
        self.mode.get() == mode::LEAN
    }

    /// Whether they may have something in hand all the same.
    #[inline(always)]
    pub(crate) fn has_hands_to_empty(&self) -> bool {
        self.is_lean() && self.hands_to_empty.get()
    }
}

impl Tag {
    /// The zone that it names; of a block that is none yet, any.
    #[inline(always)]
    pub(crate) fn zone_of<'z, 'm>(self, zones: &'z [Zone<'m>]) -> &'z Zone<'m> {
        zones.get(self.zone()).unwrap_or(&zones[0])
    }
}

/// The first bit of a zone's bitmap: 1 GiB-aligned, so that runs of any order are so there too.
pub(crate) fn first_block(span: FrameRange) -> u64 {
    (span.start.get() >> 18) << 9
}

/// How many bits a zone's bitmap has.
pub(crate) fn bitmap_blocks(span: FrameRange) -> u64 {
    (span.end.get() >> 9) - first_block(span)
}
