//! A zone: memory of one node with its own lock, watermarks, groups, and the blocks that no group
//! holds.
//!
//! ```text
//! bitmap    wholly free blocks of the three ordinary migratetypes, one bit each: their type means nothing until used
//! stock     partly free blocks that no group holds; CMA and HIGHATOMIC blocks, wholly free ones too
//! groups    1, 2, ... of the CPUs that share a cache; number 0 is the zone itself
//! (nowhere) full blocks, taken ones, and isolated ones
//! ```
//!
//! Every operation on one block takes a constant number of steps; callers bound how many blocks
//! they move in one hold.

pub(crate) mod bitmap;
pub(crate) mod counters;
pub(crate) mod watermarks;

use core::iter::once;

use crate::block::tag::{ABSENT, FRESH, Tag, WHOLE, ZONE_GROUP};
use crate::block::words::Head;
use crate::group::lock::Lock;
use crate::group::{Group, Stock};
use crate::primitive::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Count, Plain};
use crate::{FrameRange, NodeId};
use bitmap::WholeBitmap;
use counters::ZoneCounters;

/// See the module's documentation.
#[repr(C, align(128))]
pub(crate) struct Zone<'m> {
    pub(crate) lock: Lock,
    pub(crate) id: u8,
    pub(crate) node: NodeId,
    pub(crate) span: FrameRange,
    /// The number of the block that bit 0 of the bitmap stands for: the span's start rounded down
    /// to 1 GiB.
    pub(crate) first_block: u64,
    pub(crate) bitmap: WholeBitmap<'m>,
    /// How many bits are set in it.
    pub(crate) whole_blocks: AtomicU64,
    /// For each 1 GiB of the span, blocks that went to unmovable or reclaimable requests and have
    /// not come back.
    pub(crate) tainted: &'m [AtomicU32],
    pub(crate) stock: Stock,
    pub(crate) groups: &'m [Group],
    /// CPUs in a group.
    pub(crate) group_size: u16,
    /// Whole blocks that a group keeps.
    pub(crate) keep: AtomicU32,
    /// Each CPU has blocks of its own in use.
    pub(crate) spread: AtomicBool,
    /// A block with at most so many free frames is one to fill: runs that were freed lately are
    /// taken from it again.
    pub(crate) nearly_full: AtomicU16,
    /// Requests that cannot be moved away look at which 1 GiB a block lies in: the machine is
    /// large.
    pub(crate) by_region: AtomicBool,
    /// Most of it is whole blocks.
    pub(crate) roomy: AtomicBool,
    /// Frames there are; changes at hotplug.
    pub(crate) managed: AtomicU64,
    /// HIGHATOMIC blocks there are.
    pub(crate) high_atomic_blocks: AtomicU64,
    /// CMA blocks there are. None: a request that would take CMA frames is an ordinary one.
    pub(crate) cma_blocks: AtomicU64,
    pub(crate) min: AtomicU64,
    pub(crate) low: AtomicU64,
    pub(crate) high: AtomicU64,
    /// They follow the kernel's formulae when the amount of memory changes.
    pub(crate) kernel_marks: AtomicBool,
    /// The pressure level last told to the host: 0 none, 1 below low, 2 below min.
    pub(crate) level: AtomicU32,
    /// The level has changed and nobody has told the host yet.
    pub(crate) level_changed: AtomicBool,
    pub(crate) counters: ZoneCounters,
}

/// The slices that a zone is made of.
pub(crate) struct ZoneParts<'m> {
    pub(crate) bitmap: WholeBitmap<'m>,
    pub(crate) tainted: &'m [AtomicU32],
    pub(crate) groups: &'m [Group],
}

impl<'m> Zone<'m> {
    pub(crate) fn new(
        id: u8,
        node: NodeId,
        span: FrameRange,
        group_size: u16,
        parts: ZoneParts<'m>,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            lock: Lock::new(),
            id,
            node,
            span,
            first_block: first_block(span),
            bitmap: parts.bitmap,
            whole_blocks: zero(),
            tainted: parts.tainted,
            stock: Stock::new(),
            groups: parts.groups,
            group_size,
            keep: AtomicU32::new(1),
            spread: AtomicBool::new(false),
            nearly_full: AtomicU16::new(0),
            by_region: AtomicBool::new(false),
            roomy: AtomicBool::new(false),
            managed: zero(),
            high_atomic_blocks: zero(),
            cma_blocks: zero(),
            min: zero(),
            low: zero(),
            high: zero(),
            kernel_marks: AtomicBool::new(false),
            level: AtomicU32::new(0),
            level_changed: AtomicBool::new(false),
            counters: ZoneCounters::new(),
        }
    }

    /// The stock of a group, or of the zone itself.
    pub(crate) fn stock(&self, group: u16) -> &Stock {
        match usize::from(group).checked_sub(1) {
            Some(number) => &self.groups[number].stock,
            None => &self.stock,
        }
    }

    /// All groups but `own_group`, from the next one on and round.
    pub(crate) fn other_groups(&self, own_group: u16) -> impl Iterator<Item = u16> + use<> {
        let groups = self.groups.len() as u16;
        (1..groups).map(move |step| (own_group - 1 + step) % groups + 1)
    }

    /// All groups: `own_group`, then the others.
    pub(crate) fn groups_from(&self, own_group: u16) -> impl Iterator<Item = u16> + use<> {
        once(own_group).chain(self.other_groups(own_group))
    }

    /// All who hold blocks: group `own_group`, the other groups, the zone itself.
    pub(crate) fn holders(&self, own_group: u16) -> impl Iterator<Item = u16> + use<> {
        self.groups_from(own_group).chain(once(ZONE_GROUP))
    }

    /// The group of a CPU.
    #[inline(always)]
    pub(crate) fn group_of(&self, cpu: usize) -> u16 {
        cpu as u16 / self.group_size + 1
    }

    /// The CPUs of a group, of so many.
    pub(crate) fn cpus_of(&self, group: u16, cpus: usize) -> core::ops::Range<usize> {
        let first = usize::from(group - 1) * usize::from(self.group_size);
        first..(first + usize::from(self.group_size)).min(cpus)
    }

    /// A block's bit.
    pub(crate) fn bit(&self, number: u32) -> u64 {
        u64::from(number) - self.first_block
    }

    /// Sets a block's bit; the steps it took. Under the zone's lock.
    pub(crate) fn insert_whole(&self, bit: u64) -> u32 {
        self.whole_blocks.add(1);
        self.bitmap.insert(bit)
    }

    /// Clears it.
    pub(crate) fn remove_whole(&self, bit: u64) -> u32 {
        self.whole_blocks.sub(1);
        self.bitmap.remove((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Notes whether most of the zone is whole blocks. Written only where that changes, since every
    /// CPU reads it.
    pub(crate) fn update_roomy(&self) {
        let roomy = self.whole_blocks.get() * 2 > self.blocks();
        if self.roomy.get() != roomy {
            self.roomy.set(roomy);
        }
    }

    /// A block of the bitmap whose metadata has just been set up is whole, and never used.
    pub(crate) fn make_present(&self, head: &Head) {
        if head.tag.get().state() == ABSENT {
            let tag = Tag::new(WHOLE, crate::Migratetype::Movable as usize, self.id, ZONE_GROUP);
            head.tag.set(tag.with_flag(FRESH, true));
        }
    }

    /// How many blocks the zone has.
    pub(crate) fn blocks(&self) -> u64 {
        self.managed.get() >> 9
    }
}

/// The first bit of a zone's bitmap: 1 GiB-aligned, so that runs of any order are aligned in the
/// bitmap too.
pub(crate) fn first_block(span: FrameRange) -> u64 {
    (span.start.get() >> 18) << 9
}

/// How many bits a zone's bitmap has.
pub(crate) fn bitmap_blocks(span: FrameRange) -> u64 {
    (span.end.get() >> 9) - first_block(span)
}
