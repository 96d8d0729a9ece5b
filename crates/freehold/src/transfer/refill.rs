//! A CPU chooses the next block to lease words of.
//!
//! | | where | when |
//! |---|---|---|
//! | recover | a partly free block of its own group: the smallest sufficient run, then the fullest | it is to be used up, or nobody's is fuller |
//! | fragment | one that no group holds, fuller than that; one of another group that has plenty: the emptiest | before whole blocks, so that these stay whole |
//! | claim | a wholly free block of the group, then of the zone | the zone keeps its min mark |
//! | claim | one that another group keeps | nobody has anything else of the type |
//! | (zone) | frames of a block that stays the zone's, one request at a time | the zone keeps its min mark |
//! | fallback | a block of another type, if at least half of it is free; then frames of any block | nothing else is left |
//!
//! One hold of a lock looks at 6 announced blocks at most and moves one block, or as many as had
//! been forgotten at the wrong place of the lists: each of those is looked at in vain at most once
//! between two frees.

use super::held::Held;
use super::in_use::FOLLOWED;
use crate::block::FRAMES;
use crate::block::layout::Index;
use crate::block::tag::{CMA, HIGH_ATOMIC, IN_HAND, SPLIT, Tag, ZONE_GROUP};
use crate::cpu::inside::Inside;
use crate::cpu::lease::Purpose;
use crate::primitive::{Count, Ordering, Plain, SharedCount};
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Migratetype, Platform};

/// Announced blocks looked at before one is chosen.
pub(crate) const COLLECT: u32 = 6;
/// Blocks looked at to fetch from another holder: the ones in front may all have become whole by
/// now, and each look at such a one files it.
const LOOKS: u32 = PARTLY_FREE as u32;
/// A block with more free frames than this may become whole: one that no group holds is used before
/// it, if that is fuller.
const MOSTLY_FREE: u64 = FRAMES as u64 / 2;
/// Partly free blocks that a group fetches from the zone at a time.
const PARTLY_FREE: usize = 6;
/// Whole blocks that a group fetches beside the one it needs.
const MORE: usize = 3;
/// Whole blocks are few where there are fewer than one in so many.
const FEW: u64 = 16;
/// Another group has plenty of a type with as many free frames as a whole block.
const PLENTY: u64 = FRAMES as u64;
/// Other groups looked at before a whole block is split, where whole blocks are not few: each look
/// is a cache miss.
const NEIGHBOURS: u16 = 16;

/// How a CPU came by the next block to lease words of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum RefillPhase {
    /// A partly free block of the CPU's own group.
    Recover = 0,
    /// A wholly free block was split.
    Claim = 1,
    /// A partly free block that no group, or another one, held.
    Fragment = 2,
    /// A block of another migratetype was claimed.
    Fallback = 3,
}

/// What is looked for: a run of `order` (0 to 9) in a block of that type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) order: u32,
    pub(crate) migratetype: usize,
    pub(crate) flags: AllocFlags,
}

impl Want {
    /// Without flags.
    #[inline(always)]
    pub(crate) const fn plain(order: u32, migratetype: usize) -> Self {
        Self { order, migratetype, flags: AllocFlags::empty() }
    }

    #[inline(always)]
    pub(crate) fn purpose(self) -> Purpose {
        if self.order == 0 { Purpose::Frames } else { Purpose::Runs }
    }
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Finds a split block with the run that is wanted and makes it this CPU's next one. `None`
    /// where the zone has nothing of that type, or must keep it.
    pub(crate) fn refill(&self, z: usize, want: Want) -> Option<Index> {
        let zone = &self.fh.zones[z];
        self.cpu.counters.refills.add(1);
        let (index, phase) = self.choose(zone, want)?;
        self.cpu.counters.by_phase[phase as usize].add(1);
        self.cpu.counters.refilled_frames.add(u64::from(self.fh.map.links(index).count.get()));
        self.cursors(z).set(want.purpose(), want.migratetype, index.get());
        self.cpu.followed.set(FOLLOWED);
        Some(index)
    }

    fn choose(&self, zone: &'m Zone<'m>, want: Want) -> Option<(Index, RefillPhase)> {
        let own_group = zone.group_of(self.id.index());
        // A glance first: a zone that is full or has no memory is asked by each request that goes
        // on to the next one.
        let stock = zone.stock(own_group);
        let any = stock.may_have(want.migratetype) || stock.lists.wholes() != 0;
        let (own, whole_in_group) = if any {
            let held = self.fh.hold_for(zone, own_group, want.flags)?;
            held.collect(COLLECT);
            (held.pick(want.migratetype, want.order, false), held.stock().lists.wholes() != 0)
        } else {
            (None, false)
        };
        if let Some(own) = own {
            // It stays listed: one that nobody holds and that is fuller goes before it.
            let count = u64::from(self.fh.map.links(own).count.get());
            // Where memory is plenty but in use, also before one that has a larger run than is
            // wanted; with little memory for each of many groups that costs whole blocks, and while
            // most of the zone is whole, looks in vain.
            let plenty = zone.spread.get() && !zone.roomy.get();
            let spared = count > MOSTLY_FREE || plenty && self.breaks_a_run(own, want);
            let fuller = if spared {
                self.adopt_partial(zone, ZONE_GROUP, own_group, want, count)
            } else {
                None
            };
            return Some(
                fuller.map_or((own, RefillPhase::Recover), |index| (index, RefillPhase::Fragment)),
            );
        }
        // Blocks that nobody has begun are spared, most of all where they are few and by requests
        // that stay where they are.
        let few = zone.whole_blocks.get() * FEW < zone.blocks();
        let confined = want.migratetype != Migratetype::Movable as usize;
        let (groups, least) = if few || confined { (u16::MAX, 0) } else { (NEIGHBOURS, PLENTY) };
        let partial = self.adopt_partial(zone, ZONE_GROUP, own_group, want, u64::MAX);
        let partial =
            partial.or_else(|| self.adopt_of_others(zone, own_group, want, groups, least));
        if let Some(index) = partial {
            return Some((index, RefillPhase::Fragment));
        }
        // CMA and HIGHATOMIC blocks are what they are.
        if want.migratetype < HIGH_ATOMIC {
            if let Some(index) = self.split_whole(zone, own_group, want, whole_in_group) {
                return Some((index, RefillPhase::Claim));
            }
        }
        // Where the least was 0 all others have been looked at.
        if least != 0 {
            if let Some(index) = self.adopt_of_others(zone, own_group, want, u16::MAX, 0) {
                return Some((index, RefillPhase::Fragment));
            }
        }
        self.split_whole_of_others(zone, own_group, want).map(|index| (index, RefillPhase::Claim))
    }

    /// A whole block that another group keeps, where nobody has anything else: otherwise the
    /// request would fail beside it.
    fn split_whole_of_others(
        &self,
        zone: &'m Zone<'m>,
        own_group: u16,
        want: Want,
    ) -> Option<Index> {
        if want.migratetype >= HIGH_ATOMIC {
            return None;
        }
        let index = zone.other_groups(own_group).find_map(|from| {
            // A glance first: most have none.
            if zone.stock(from).lists.wholes() == 0 {
                return None;
            }
            let held = self.fh.hold_for(zone, from, want.flags)?;
            let index = held.take_kept_whole()?;
            // On its way it is in this CPU's hand, as in `split_whole`.
            held.hand_over(index, IN_HAND);
            Some(index)
        })?;
        match self.fh.hold_for(zone, own_group, want.flags) {
            Some(held) => held.split(index, want.migratetype),
            None => self.split_unlisted(index, want.migratetype, own_group),
        }
        Some(index)
    }

    /// A partly free block of one of the next `most` groups that has at least `least` free frames
    /// of that type: the emptiest, so that the fullest may become full there. In the same order
    /// each time: one group's blocks after another's are used up.
    fn adopt_of_others(
        &self,
        zone: &'m Zone<'m>,
        own_group: u16,
        want: Want,
        most: u16,
        least: u64,
    ) -> Option<Index> {
        zone.other_groups(own_group)
            .take(usize::from(most) - 1)
            .filter(|&from| zone.stock(from).free_of(want.migratetype) >= least)
            .find_map(|from| self.adopt_partial(zone, from, own_group, want, u64::MAX))
    }

    /// A partly free block of group `from` with fewer than `below` free frames becomes one of group
    /// `own_group`.
    fn adopt_partial(
        &self,
        zone: &'m Zone<'m>,
        from: u16,
        own_group: u16,
        want: Want,
        below: u64,
    ) -> Option<Index> {
        // A glance first: most have none, or none that is fuller.
        let stock = zone.stock(from);
        let (map, class) = (&self.fh.map, want.order as u8 + 1);
        let best = || {
            stock
                .lists
                .best(map, want.migratetype, class)
                .map(|index| u64::from(map.links(index).count.get()))
        };
        if !stock.may_have(want.migratetype)
            || below != u64::MAX && best().is_none_or(|count| count >= below)
        {
            return None;
        }
        let held = self.fh.hold_for(zone, from, want.flags)?;
        held.collect(COLLECT / 2);
        let mut looks = LOOKS;
        held.pass_on(own_group, want.flags, |held| {
            let index =
                held.pick_within(want.migratetype, want.order, from != ZONE_GROUP, &mut looks)?;
            let count = u64::from(map.links(index).count.get());
            let flags = want.flags & AllocFlags::NO_WATERMARKS;
            let allowed = from != ZONE_GROUP || zone.allows(count, flags, want.migratetype == CMA);
            (count < below && allowed).then_some(index)
        })
    }

    /// A whole block, of the group or of the zone, becomes a split one of the wanted type.
    fn split_whole(
        &self,
        zone: &'m Zone<'m>,
        own_group: u16,
        want: Want,
        in_group: bool,
    ) -> Option<Index> {
        let (mut index, mut more) = (None, [None; MORE]);
        if !in_group {
            if zone.whole_blocks.get() == 0 && zone.stock.inbox.is_empty() {
                return None;
            }
            self.fh.prepare_whole(zone, want.flags);
            let held = self.fh.hold_for(zone, ZONE_GROUP, want.flags)?;
            held.collect(COLLECT);
            // Near the min mark the zone keeps its blocks and serves one request at a time,
            // whatever marks that one has.
            if zone.allows(FRAMES as u64, want.flags & AllocFlags::NO_WATERMARKS, false) {
                index = held.take_whole(want.migratetype);
                // On its way it is in this CPU's hand: the group would take it for one that was
                // freed just now.
                index.inspect(|&index| held.hand_over(index, IN_HAND));
            }
            index?;
            // Where there are plenty, a few more at once: the group will want them next, and gives
            // back what it does not.
            let plenty = zone.blocks() / zone.groups.len() as u64 >= 256;
            if plenty && zone.whole_blocks.get() * FEW > zone.blocks() {
                for more in &mut more {
                    *more = held.take_whole(want.migratetype);
                    more.inspect(|&index| held.hand_over(index, IN_HAND));
                }
            }
        }
        let Some(held) = self.fh.hold_for(zone, own_group, want.flags) else {
            more.into_iter().flatten().for_each(|index| self.send(index, own_group));
            return index.inspect(|&index| self.split_unlisted(index, want.migratetype, own_group));
        };
        for index in more.into_iter().flatten() {
            held.hand_over(index, own_group);
            held.place_whole(index);
        }
        let index = index.or_else(|| held.take_kept_whole())?;
        held.split(index, want.migratetype);
        Some(index)
    }

    /// A whole block in this CPU's hand goes to a group without its lock.
    fn send(&self, index: Index, group: u16) {
        let tag = &self.fh.map.head(index).tag;
        tag.hand(tag.get().with_group(group));
        self.fh.announce(index);
    }

    /// The same, split.
    fn split_unlisted(&self, index: Index, migratetype: usize, group: u16) {
        self.fh.fill(index, migratetype, group);
        self.fh.announce(index);
    }

    /// A block of another type that is at least half free becomes one of the wanted type (Linux
    /// 6.12 and later). Movable requests claim only what has a large run, since they can be moved
    /// out of the way later; with NO_FRAGMENT nothing is.
    pub(crate) fn claim_fallback(&self, z: usize, want: Want) -> Option<Index> {
        if want.flags.contains(AllocFlags::NO_FRAGMENT)
            || want.order >= 9
            || want.migratetype >= HIGH_ATOMIC
        {
            return None;
        }
        let zone = &self.fh.zones[z];
        let own_group = zone.group_of(self.id.index());
        let smallest = if want.migratetype == Migratetype::Movable as usize {
            want.order.max(4)
        } else {
            want.order
        };
        for &fallback in Migratetype::PCP[want.migratetype].fallbacks() {
            for from in zone.holders(own_group) {
                let Some(held) = self.fh.hold_for(zone, from, want.flags) else { continue };
                let Some(index) = held.pick(fallback as usize, smallest, true) else { continue };
                let count = u64::from(self.fh.map.links(index).count.get());
                let enough = count >= FRAMES as u64 / 2;
                if !enough || from == ZONE_GROUP && !zone.allows(count, want.flags, false) {
                    continue;
                }
                held.unlist(index);
                let tag = self.fh.retyped(index, want.migratetype);
                self.fh.map.head(index).tag.set(tag.with_group(own_group));
                drop(held);
                zone.counters.fallbacks.add_shared(1);
                self.fh.arrive(zone, own_group, [Some(index)], want.flags);
                self.cursors(z).set(want.purpose(), want.migratetype, index.get());
                return Some(index);
            }
        }
        None
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Partly free blocks that were given to group `own_group` are listed there, or, if its lock is
    /// not to be waited for, announced: whoever has the lock lists them.
    fn arrive(
        &self,
        zone: &'m Zone<'m>,
        own_group: u16,
        blocks: impl IntoIterator<Item = Option<Index>>,
        flags: AllocFlags,
    ) {
        let held = self.hold_for(zone, own_group, flags);
        blocks.into_iter().flatten().for_each(|index| match &held {
            Some(held) => held.file_if_ours(index),
            None => self.announce(index),
        });
    }

    /// A block's tag with another type, noted in what the zone knows of its 1 GiB region.
    pub(crate) fn retyped(&self, index: Index, migratetype: usize) -> Tag {
        let head = self.map.head(index);
        let tag = head.tag.get();
        let zone = &self.zones[tag.zone()];
        let confined = |migratetype: usize| {
            migratetype < HIGH_ATOMIC && migratetype != Migratetype::Movable as usize
        };
        let region = &zone.tainted[(zone.bit(head.number) / 512) as usize];
        // Relaxed: which region comes first is a preference.
        match (confined(tag.migratetype()), confined(migratetype)) {
            (false, true) => {
                region.fetch_add(1, Ordering::Relaxed);
            }
            (true, false) => {
                region.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        tag.with_type(migratetype)
    }
}

impl<P: Platform> Held<'_, '_, P> {
    /// Gives `group` the partly free blocks of this holder that `choose` names, until it names
    /// none. Unlocks this holder before it locks that group. Returns the first block if it is still
    /// split.
    pub(crate) fn pass_on(
        self,
        group: u16,
        flags: AllocFlags,
        mut choose: impl FnMut(&Self) -> Option<Index>,
    ) -> Option<Index> {
        let (fh, zone) = (self.fh, self.zone);
        let mut given = [None; PARTLY_FREE];
        // One of another group; of the zone's own, which nobody uses, several in one hold.
        let most = if self.group == ZONE_GROUP { PARTLY_FREE } else { 1 };
        for given in &mut given[..most] {
            let Some(index) = choose(&self) else { break };
            self.unlist(index);
            self.hand_over(index, group);
            *given = Some(index);
        }
        drop(self);
        // Frees announce them to that group from now on. Nobody else can reach them by a list.
        let first = given[0]?;
        fh.arrive(zone, group, given, flags);
        (fh.map.head(first).tag.get().state() == SPLIT).then_some(first)
    }

    /// Serves one request out of what the zone has in its own hand, as far as its watermarks allow:
    /// a run of order 0 to 9 of the wanted type, breaking a whole block if need be. The block stays
    /// the zone's. For the zone's own hold.
    pub(crate) fn take_in_zone(&self, want: Want) -> Option<u64> {
        if want.flags.contains(AllocFlags::HIGH_ATOMIC) {
            if let Some(pfn) = self.take_listed(HIGH_ATOMIC, want.order) {
                return Some(pfn);
            }
        }
        // HIGHATOMIC frames are looked at above or in the last resort only: they do not count here.
        if !self.zone.leaves_mark(1 << want.order, want.flags, want.migratetype == CMA) {
            return None;
        }
        if let Some(pfn) = self.take_listed(want.migratetype, want.order) {
            return Some(pfn);
        }
        if want.migratetype >= HIGH_ATOMIC {
            return None;
        }
        let index = self.take_whole(want.migratetype)?;
        if want.order == 9 {
            return Some(self.fh.take_block(index, want.migratetype, ZONE_GROUP));
        }
        self.split(index, want.migratetype);
        self.claim_listed(index, want.order)
    }

    /// A run out of a listed block of that type, which stays where it is.
    pub(crate) fn take_listed(&self, migratetype: usize, order: u32) -> Option<u64> {
        while let Some(index) = self.pick(migratetype, order, false) {
            if let Some(pfn) = self.claim_listed(index, order) {
                return Some(pfn);
            }
        }
        None
    }

    fn claim_listed(&self, index: Index, order: u32) -> Option<u64> {
        let offset = self.fh.claim(index, order);
        self.zone.counters.splits.add_shared(1);
        self.file(index);
        Some(self.fh.map.base(index) + offset? as u64)
    }

    /// Keeps the rest of a block for HIGHATOMIC requests after one of them had to be served at the
    /// min mark: at most 1 % of the zone, and only in zones of which 1 % is a block (Linux 7.3).
    pub(crate) fn reserve_high_atomic(&self, want: Want, pfn: u64) {
        let cap = self.zone.managed.get() / 100;
        let reserved = self.zone.high_atomic_blocks.get();
        if !want.flags.contains(AllocFlags::HIGH_ATOMIC)
            || want.order == 0
            || want.order >= 9
            || cap < FRAMES as u64
            || reserved >= cap.div_ceil(FRAMES as u64)
        {
            return;
        }
        let Some(index) = self.fh.map.locate(pfn) else { return };
        let tag = self.fh.map.head(index).tag.get();
        if tag.migratetype() < HIGH_ATOMIC && tag.state() == SPLIT && tag.group() == self.group {
            self.unlist(index);
            self.fh.map.head(index).tag.set(self.fh.retyped(index, HIGH_ATOMIC));
            self.zone.high_atomic_blocks.add(1);
            self.file(index);
        }
    }

    /// HIGHATOMIC frames for requests that may not wait or are a way out of memory shortage; for
    /// all others a HIGHATOMIC block becomes ordinary again before they fail, as long as one is
    /// left.
    pub(crate) fn take_high_atomic(&self, want: Want) -> Option<u64> {
        if want.flags.intersects(AllocFlags::NON_BLOCK | AllocFlags::OOM | AllocFlags::HIGH_ATOMIC)
        {
            return self.take_listed(HIGH_ATOMIC, want.order);
        }
        if self.zone.high_atomic_blocks.get() <= 1 {
            return None;
        }
        let index = self.pick(HIGH_ATOMIC, want.order, false)?;
        self.unlist(index);
        self.fh.map.head(index).tag.set(self.fh.retyped(index, want.migratetype));
        self.zone.high_atomic_blocks.sub(1);
        self.file(index);
        self.take_in_zone(want)
    }
}
