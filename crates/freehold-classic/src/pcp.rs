//! A CPU's own lists in one zone: the per-CPU pages.
//!
//! ```text
//!   5.17 .. 7.3                                    pcp-buddy
//!   lists[0..12]  orders 0..3 x 3 types            lists[0..30]  orders 0..9 x 3 types
//!   lists[12..14] order 9: not movable, movable
//!     (6.0 to 6.9: one list for both; before: 12..15, 3 types)
//!   5.13 and before, or `high-order-pcp` off: lists[0..3], order 0 only
//!
//!   head <── allocation takes, free puts (cache-warm)
//!   tail ──> drained first (cold); refills put here
//! ```
//!
//! The lock is the CPU's own in the sense that nobody else is expected to want it: others only come
//! to drain. The free path therefore tries it and goes to the zone when it is busy, instead of
//! waiting. The RFC makes it everybody's: frees of a CPU's frames wait for it, and what was done
//! under the zone lock is done under it. Holds and steps are counted as the zone's are.

use std::sync::{Mutex, MutexGuard, TryLockError};

use freehold::Migratetype;

use crate::list::List;
use crate::page::{Frames, Kind, PAGEBLOCK_ORDER, State};
use crate::stats::{ListFlow, PcpCounters};
use crate::switches::{Switch, Switches};
use crate::tune::Tuning;

/// The most lists a CPU can have: 10 orders of 3 types.
pub(crate) const MAX_LISTS: usize = 30;

/// The largest order below a pageblock that the kernel's PCP keeps.
const COSTLY_ORDER: u8 = 3;

/// What a PCP lock protects.
pub(crate) struct PcpInner {
    pub(crate) lists: [List; MAX_LISTS],
    /// Frames on the lists.
    pub(crate) count: u32,
    pub(crate) tuning: Tuning,
    /// An allocation is to find the lock busy: see
    /// [`Classic::alloc_finding_busy`](crate::Classic::alloc_finding_busy).
    pub(crate) busy: bool,
    pub(crate) counters: PcpCounters,
    pub(crate) flow: ListFlow,
    /// Steps done in this hold.
    pub(crate) work: u64,
}

/// One CPU's lists in one zone, and the two ways in. On lines of its own, as the kernel's per-CPU
/// areas are: beside one another, two CPUs that have nothing to do with each other would write to
/// one line. 128, since adjacent lines are fetched in pairs.
#[repr(align(128))]
pub(crate) struct Pcp {
    lock: Mutex<PcpInner>,
    /// Chunks that other CPUs have left to the owner (`remote-list`), the last one last. The
    /// proposal has a lock-free list there, since spinning on a remote PCP lock inverts lock order
    /// (Rik van Riel, in his own series that carries the proposal): nobody waits for `lock`.
    remote: Mutex<Vec<u32>>,
}

impl Pcp {
    pub(crate) fn new() -> Self {
        let inner = PcpInner {
            lists: [List::EMPTY; MAX_LISTS],
            count: 0,
            tuning: PcpInner::BOOT_TUNING,
            busy: false,
            counters: PcpCounters::default(),
            flow: ListFlow::default(),
            work: 0,
        };
        Self { lock: Mutex::new(inner), remote: Mutex::default() }
    }

    /// Takes the lock, waiting for it.
    pub(crate) fn lock(&self) -> Held<'_> {
        Held { inner: self.look(), counted: true }
    }

    /// Takes the lock if it is free at this moment.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let inner = match self.lock.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { inner, counted: true })
    }

    /// What other CPUs have left to the owner, for a moment in which no other lock is asked for.
    pub(crate) fn remote(&self) -> MutexGuard<'_, Vec<u32>> {
        self.remote.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Looks at what the lock protects without counting that as a hold: for what the kernel reads
    /// or sets without the lock, and for whoever only wants to know.
    pub(crate) fn look(&self) -> MutexGuard<'_, PcpInner> {
        self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A held PCP lock. Dropping it records the hold and how much was done in it.
pub(crate) struct Held<'a> {
    inner: MutexGuard<'a, PcpInner>,
    counted: bool,
}

impl Held<'_> {
    /// Gives the lock back as if it had never been had: it stands for one that somebody else held.
    pub(crate) fn never_had(mut self) {
        self.counted = false;
    }
}

impl core::ops::Deref for Held<'_> {
    type Target = PcpInner;
    fn deref(&self) -> &PcpInner {
        &self.inner
    }
}

impl core::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut PcpInner {
        &mut self.inner
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let work = core::mem::take(&mut self.inner.work);
        if self.counted {
            self.inner.counters.lock_holds += 1;
            self.inner.counters.lock_steps += work;
        }
    }
}

/// The lists that a PCP has for huge pages; the value is how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HugeLists {
    /// Huge pages are off.
    None = 0,
    /// 6.0 to 6.9.
    One = 1,
    /// 6.10 and later.
    MovableOrNot = 2,
    /// 5.14 to 5.19.
    EachType = 3,
}

/// How the lists are laid out, which depends on the design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    buddy: bool,
    high_order: bool,
    huge_lists: HugeLists,
}

impl Layout {
    pub(crate) fn new(on: Switches, huge_pages: bool) -> Self {
        let has = |switch| on.has(switch);
        let (buddy, high_order) = (has(Switch::Ownership), has(Switch::HighOrderPcp));
        let huge_lists = match (has(Switch::ThpByType), has(Switch::ThpOneList)) {
            _ if !huge_pages => HugeLists::None,
            (true, _) => HugeLists::MovableOrNot,
            (_, true) => HugeLists::One,
            _ => HugeLists::EachType,
        };
        Self { buddy, high_order, huge_lists }
    }

    /// Whether the PCP keeps chunks of `order`.
    #[inline]
    pub(crate) fn keeps(self, order: u8) -> bool {
        if self.buddy {
            order <= PAGEBLOCK_ORDER
        } else {
            let huge = order == PAGEBLOCK_ORDER && self.huge_lists != HugeLists::None;
            order == 0 || self.high_order && (order <= COSTLY_ORDER || huge)
        }
    }

    /// The list for chunks of `order` and `migratetype`; types that have no lists of their own
    /// count as movable.
    #[inline]
    pub(crate) fn index(self, order: u8, migratetype: Migratetype) -> usize {
        let kind =
            if migratetype.is_mergeable() { migratetype } else { Migratetype::Movable }.index();
        if !self.buddy && order > COSTLY_ORDER {
            return match self.huge_lists {
                HugeLists::EachType => 12 + kind,
                HugeLists::MovableOrNot => 12 + usize::from(kind == Migratetype::Movable.index()),
                HugeLists::One | HugeLists::None => 12,
            };
        }
        3 * order as usize + kind
    }

    /// The order of the chunks on list `index`.
    #[inline]
    pub(crate) fn order(self, index: usize) -> u8 {
        if !self.buddy && index >= 12 { PAGEBLOCK_ORDER } else { (index / 3) as u8 }
    }

    /// How many lists there are.
    #[inline]
    pub(crate) fn lists(self) -> usize {
        match self {
            Self { buddy: true, .. } => MAX_LISTS,
            Self { high_order: false, .. } => 3,
            Self { huge_lists, .. } => 12 + huge_lists as usize,
        }
    }
}

impl PcpInner {
    /// What the kernel boots with, replaced before first use.
    pub(crate) const BOOT_TUNING: Tuning = Tuning::new(1, 0, 0, false);

    /// Adds a chunk at the head of list `index`, the next to be allocated.
    #[inline]
    pub(crate) fn push(&mut self, frames: &Frames, index: usize, frame: u32, state: State) {
        frames.set(frame, state);
        self.lists[index].push_front(frames, frame);
        self.count += 1 << state.order();
        self.work += 1;
    }

    /// Adds a chunk at the tail of list `index`, the last to be allocated.
    #[inline]
    pub(crate) fn push_back(&mut self, frames: &Frames, index: usize, frame: u32, state: State) {
        frames.set(frame, state);
        self.lists[index].push_back(frames, frame);
        self.count += 1 << state.order();
        self.work += 1;
    }

    /// Takes a chunk out of list `index`. Its record becomes a tail.
    #[inline]
    pub(crate) fn remove(&mut self, frames: &Frames, index: usize, frame: u32) -> State {
        let state = frames.state(frame);
        debug_assert!(matches!(state.kind(), Kind::Pcp | Kind::PcpBuddy));
        self.lists[index].remove(frames, frame);
        frames.set(frame, State::TAIL);
        self.count -= 1 << state.order();
        self.work += 1;
        state
    }

    /// A chunk of exactly `order`, or split from a larger one where the design does that
    /// (pcp-buddy).
    #[inline]
    pub(crate) fn take(
        &mut self,
        frames: &Frames,
        layout: Layout,
        order: u8,
        migratetype: Migratetype,
    ) -> Option<u32> {
        if !layout.buddy {
            let index = layout.index(order, migratetype);
            let frame = self.lists[index].first()?;
            self.remove(frames, index, frame);
            return Some(frame);
        }
        for at in order..=PAGEBLOCK_ORDER {
            self.work += 1;
            let index = layout.index(at, migratetype);
            let Some(frame) = self.lists[index].first() else { continue };
            let kind = self.remove(frames, index, frame).kind();
            for part in (order..at).rev() {
                // The mark goes on to the parts: what was claimed as a block may be joined to one
                // again.
                let state = State::new(kind, part, migratetype);
                self.push(frames, layout.index(part, migratetype), frame + (1 << part), state);
                self.counters.splits += 1;
            }
            return Some(frame);
        }
        None
    }

    /// Joins buddies that lie on these lists, from the smallest order up. Only chunks marked
    /// [`Kind::PcpBuddy`] take part: the mark means that they are on their owner's PCP, so a marked
    /// buddy cannot be on anybody else's.
    ///
    /// Looks at every entry of every list below pageblock order. Source: pcp-buddy RFC,
    /// `free_pcppages_bulk`.
    pub(crate) fn merge(&mut self, frames: &Frames, layout: Layout) {
        let marked = |frame| frames.state(frame).kind() == Kind::PcpBuddy;
        self.merge_where(frames, layout, 0..PAGEBLOCK_ORDER, marked);
    }

    /// Joins chunks of these orders on these lists with their buddies, from the smallest order up,
    /// where both have the mark or neither, and `is_here` says that the buddy is on these lists
    /// too.
    pub(crate) fn merge_where(
        &mut self,
        frames: &Frames,
        layout: Layout,
        orders: impl Iterator<Item = u8>,
        is_here: impl Fn(u32) -> bool,
    ) {
        for order in orders {
            for migratetype in Migratetype::PCP {
                let index = layout.index(order, migratetype);
                let mut at = self.lists[index].first();
                while let Some(frame) = at {
                    self.counters.merge_steps += 1;
                    self.work += 1;
                    at = next(frames, frame);
                    let buddy = frame ^ (1 << order);
                    if !is_here(buddy) {
                        continue;
                    }
                    // A mark says that the whole chunk is its owner's: it is neither lost nor won
                    // by merging.
                    let (kind, other) = (frames.state(frame).kind(), frames.state(buddy));
                    if other.order() != order || other.kind() != kind {
                        continue;
                    }
                    if at == Some(buddy) {
                        at = next(frames, buddy);
                    }
                    self.remove(frames, index, frame);
                    // Another list than this one where the block changed its type between the two
                    // frees.
                    self.remove(frames, layout.index(order, other.migratetype()), buddy);
                    let state = State::new(kind, order + 1, migratetype);
                    let larger = layout.index(order + 1, migratetype);
                    self.push_back(frames, larger, frame & buddy, state);
                    self.counters.merges += 1;
                }
            }
        }
    }
}

/// The entry after `frame` on its list.
pub(crate) fn next(frames: &Frames, frame: u32) -> Option<u32> {
    let next = frames.page(frame).next.load(core::sync::atomic::Ordering::Relaxed);
    (next != crate::page::NIL).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Design;

    fn layout(name: &str) -> Layout {
        Layout::new(Design::parse(name).unwrap().switches, true)
    }

    #[test]
    fn lists_by_design() {
        use Migratetype::{Cma, Movable, Unmovable};
        assert_eq!(["5.17", "7.2", "pcp-buddy"].map(|name| layout(name).lists()), [15, 14, 30]);
        assert_eq!(layout("7.2").index(3, Movable), 10);
        for name in ["7.2", "5.17"] {
            assert_eq!([Unmovable, Movable].map(|of| layout(name).index(9, of)), [12, 13]);
        }
        let one = layout("7.2,-thp-by-type");
        assert_eq!((one.lists(), one.index(9, Unmovable), one.index(9, Movable)), (13, 12, 12));
        assert_eq!(layout("pcp-buddy").index(9, Movable), 28);
        assert_eq!(layout("7.2").index(0, Cma), layout("7.2").index(0, Movable));
        for name in ["5.17", "7.2", "7.2,-thp-by-type", "pcp-buddy", "5.17,-high-order-pcp"] {
            let layout = layout(name);
            for order in (0..=10).filter(|&order| layout.keeps(order)) {
                for migratetype in Migratetype::PCP {
                    assert_eq!(layout.order(layout.index(order, migratetype)), order);
                }
            }
        }
        let single = layout("7.2,-high-order-pcp");
        assert_eq!(((0..=10).filter(|&order| single.keeps(order)).count(), single.lists()), (1, 3));
        assert!(!layout("7.2").keeps(4) && layout("pcp-buddy").keeps(4));
        assert!(!layout("pcp-buddy").keeps(10));
    }

    fn filled(marked: impl Fn(u32) -> bool) -> (Frames, PcpInner) {
        let frames = Frames::new(0, 1024);
        (0..1024).for_each(|frame| frames.set(frame, State::TAIL));
        let pcp = Pcp::new();
        let mut inner = pcp.lock.into_inner().unwrap();
        for frame in 0..8 {
            let kind = if marked(frame) { Kind::PcpBuddy } else { Kind::Pcp };
            inner.push(&frames, 1, frame, State::new(kind, 0, Migratetype::Movable));
        }
        (frames, inner)
    }

    /// Movable chunks by order.
    fn chunks(pcp: &PcpInner, frames: &Frames) -> [usize; 4] {
        core::array::from_fn(|order| pcp.lists[3 * order + 1].iter(frames).count())
    }

    #[test]
    fn marked_buddies_merge_bottom_up_and_only_they() {
        let layout = layout("pcp-buddy");
        let (frames, mut pcp) = filled(|_| true);
        pcp.merge(&frames, layout);
        assert_eq!(pcp.lists[layout.index(3, Migratetype::Movable)].first(), Some(0));
        assert_eq!((pcp.count, pcp.counters.merges), (8, 7));

        let (frames, mut pcp) = filled(|frame| frame != 5);
        pcp.merge(&frames, layout);
        assert_eq!(chunks(&pcp, &frames), [2, 1, 1, 0]);
    }

    #[test]
    fn what_has_been_merged_goes_to_the_tail_to_be_drained_first() {
        let layout = layout("pcp-buddy");
        let (frames, mut pcp) = filled(|_| true);
        let index = layout.index(3, Migratetype::Movable);
        pcp.push(&frames, index, 64, State::new(Kind::PcpBuddy, 3, Migratetype::Movable));
        pcp.merge(&frames, layout);
        assert_eq!(pcp.lists[index].iter(&frames).collect::<Vec<_>>(), [64, 0]);
    }

    #[test]
    fn a_split_leaves_the_halves_on_the_pcp_with_their_mark() {
        let layout = layout("pcp-buddy");
        let (frames, mut pcp) = filled(|_| true);
        pcp.merge(&frames, layout);
        assert_eq!(pcp.take(&frames, layout, 1, Migratetype::Movable), Some(0));
        assert_eq!(chunks(&pcp, &frames), [0, 1, 1, 0]);
        assert_eq!(frames.state(4).kind(), Kind::PcpBuddy);
        assert_eq!((pcp.count, pcp.counters.splits), (6, 2));
        assert_eq!(pcp.take(&frames, layout, 3, Migratetype::Movable), None);
    }
}
