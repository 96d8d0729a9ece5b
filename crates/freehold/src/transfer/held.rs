//! A holder of blocks, a group or the zone, whose lock is taken.
//!
//! | a block of state | is | and its [`list`](crate::block::words::Links::list) |
//! |---|---|---|
//! | split, with a free frame | on the list of its type, fullness and class | names it |
//! | split, full | nowhere: its next free announces it | `NO_LIST` |
//! | whole | on the group's list of wholes, or in the zone's bitmap | `WHOLE_LIST`, `IN_BITMAP` |
//! | taken | nowhere | `NO_LIST` |

use core::cell::Cell;

use crate::block::layout::Index;
use crate::block::tag::{ABSENT, FRESH, HIGH_ATOMIC, IN_HAND, ISOLATED, SPLIT, WHOLE, ZONE_GROUP};
use crate::block::words::{CLASS_NONE, CLASS_QUEUED, CLASS_WHOLE, EMPTY, class_of, count_of};
use crate::block::{FRAMES, WORDS};
use crate::group::Stock;
use crate::group::lists::{IN_BITMAP, NO_LIST, WHOLE_LIST, list_for};
use crate::primitive::{Count, Ordering, Plain};
use crate::transfer::refill::COLLECT;
use crate::zone::Zone;
use crate::{AllocFlags, Freehold, Migratetype, Platform};

/// See the module's documentation. Unlocks when dropped.
pub(crate) struct Held<'a, 'm, P: Platform> {
    pub(crate) fh: &'a Freehold<'m, P>,
    pub(crate) zone: &'m Zone<'m>,
    /// Its number within the zone; [`ZONE_GROUP`] for the zone itself.
    pub(crate) group: u16,
    steps: Cell<u32>,
    /// Its holder may wait for others, too.
    pub(crate) waits: bool,
    /// The hold is work of the allocator, not a look from outside.
    pub(crate) counted: Cell<bool>,
}

impl<P: Platform> Drop for Held<'_, '_, P> {
    fn drop(&mut self) {
        if self.group != ZONE_GROUP {
            let group = &self.zone.groups[usize::from(self.group) - 1];
            if self.counted.get() {
                group.acquisitions.add(1);
            }
            return group.lock.unlock();
        }
        if self.counted.get() {
            self.zone.counters.hold(u64::from(self.steps.get()));
        }
        self.zone.update_level();
        self.zone.update_roomy();
        self.zone.lock.unlock();
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Takes the lock of a group, or of the zone itself.
    pub(crate) fn hold(&self, zone: &'m Zone<'m>, group: u16) -> Held<'_, 'm, P> {
        let relax = || self.platform.relax();
        match usize::from(group).checked_sub(1) {
            Some(number) => zone.groups[number].lock.lock(relax),
            None => zone.lock.lock(relax),
        }
        Held { fh: self, zone, group, steps: Cell::new(0), waits: true, counted: Cell::new(true) }
    }

    /// Takes it if it is free, for who may not wait.
    pub(crate) fn try_hold(&self, zone: &'m Zone<'m>, group: u16) -> Option<Held<'_, 'm, P>> {
        let taken = match usize::from(group).checked_sub(1) {
            Some(number) => zone.groups[number].lock.try_lock(),
            None => zone.lock.try_lock(),
        };
        taken.then(|| Held {
            fh: self,
            zone,
            group,
            steps: Cell::new(0),
            waits: false,
            counted: Cell::new(true),
        })
    }

    /// Takes it, or only tries to where the request may not wait.
    pub(crate) fn hold_for(
        &self,
        zone: &'m Zone<'m>,
        group: u16,
        flags: AllocFlags,
    ) -> Option<Held<'_, 'm, P>> {
        if flags.contains(AllocFlags::NO_LOCK) {
            return self.try_hold(zone, group);
        }
        Some(self.hold(zone, group))
    }

    /// The same after everything that was announced has been looked at, a few blocks a hold.
    pub(crate) fn hold_collected(
        &self,
        zone: &'m Zone<'m>,
        group: u16,
        flags: AllocFlags,
    ) -> Option<Held<'_, 'm, P>> {
        loop {
            let held = self.hold_for(zone, group, flags)?;
            if !held.collect(COLLECT) || flags.contains(AllocFlags::NO_LOCK) {
                return Some(held);
            }
        }
    }

    /// Takes the lock of whoever has the block now. `None` where it is no memory, or in a CPU's
    /// hand.
    pub(crate) fn hold_of(&self, index: Index) -> Option<Held<'_, 'm, P>> {
        loop {
            let tag = self.map.head(index).tag.get();
            if tag.state() == ABSENT || tag.group() == IN_HAND {
                return None;
            }
            let held = self.hold(&self.zones[tag.zone()], tag.group());
            let now = self.map.head(index).tag.get();
            if now.state() != ABSENT && (now.zone(), now.group()) == (tag.zone(), tag.group()) {
                return Some(held);
            }
        }
    }
}

impl<P: Platform> Freehold<'_, P> {
    /// A whole block that nobody else can reach is a split one of that type and group, and its
    /// frames can be had.
    pub(crate) fn fill(&self, index: Index, migratetype: usize, group: u16) {
        let (head, line) = (self.map.head(index), self.map.line(index));
        let tag = self.retyped(index, migratetype).with_state(SPLIT).with_flag(FRESH, false);
        // The words first: a free is refused until they are full. Between a tag that says split and
        // a word that is still empty a wrong free would count, and its frame could be handed out
        // twice. Whoever takes a frame by a hint meanwhile looks at the tag afterwards, and puts it
        // back.
        for w in 0..WORDS {
            self.report_late(index, w, line.fill_word(w));
        }
        head.tag.hand(tag.with_group(group));
    }
}

impl<'m, P: Platform> Held<'_, 'm, P> {
    pub(crate) fn stock(&self) -> &'m Stock {
        match usize::from(self.group).checked_sub(1) {
            Some(number) => &self.zone.groups[number].stock,
            None => &self.zone.stock,
        }
    }

    pub(crate) fn step(&self, n: u32) {
        self.steps.set(self.steps.get() + n);
    }

    /// The words of a block as a lister reads them: what is leased does not count, since nobody
    /// else may take it.
    pub(crate) fn words(&self, index: Index) -> [u64; WORDS] {
        self.step(1);
        let (head, line) = (self.fh.map.head(index), self.fh.map.line(index));
        core::array::from_fn(|w| if head.is_leased(w) { 0 } else { line.word_after_class(w) })
    }

    /// Takes a block of this holder off its list, if it is on one.
    pub(crate) fn unlist(&self, index: Index) {
        let links = self.fh.map.links(index);
        match links.list.get() {
            NO_LIST => {}
            IN_BITMAP => {
                links.list.set(NO_LIST);
                let bit = self.zone.bit(self.fh.map.head(index).number);
                self.step(self.zone.remove_whole(bit));
            }
            list => {
                self.stock().lists.unlink(&self.fh.map, index);
                if list != WHOLE_LIST {
                    let migratetype = self.fh.map.head(index).tag.get().migratetype();
                    self.stock().note(migratetype, u64::from(links.count.get()).wrapping_neg());
                }
                self.step(1);
            }
        }
    }

    /// Looks at a split block of this holder and puts it where it belongs; a wholly free one
    /// becomes whole.
    pub(crate) fn file(&self, index: Index) {
        let (map, head) = (&self.fh.map, self.fh.map.head(index));
        self.unlist(index);
        let tag = head.tag.get();
        if tag.has(ISOLATED) {
            return;
        }
        // A block that is in an inbox stays marked: it is looked at once more when it is popped.
        let listing = head.begin_listing_unless_queued();
        let words = self.words(index);
        let mut class = class_of(&words);
        if class == CLASS_WHOLE && tag.migratetype() < HIGH_ATOMIC {
            if self.retire(index) {
                return self.place_whole(index);
            }
            // Somebody has leased a word meanwhile, or is about to.
            class = CLASS_WHOLE - 1;
        }
        let count = count_of(&words);
        map.links(index).count.set(count as u16);
        if class != CLASS_NONE {
            self.stock().note(tag.migratetype(), u64::from(count));
            self.stock().lists.link(map, index, list_for(tag.migratetype(), count, class));
            self.step(1);
        }
        if listing {
            head.end_listing(self.known(class));
        }
    }

    /// The class that a block's lists tell the world. Of the zone's own blocks none: the next free
    /// into one announces it, as what they have counts for the watermarks.
    fn known(&self, class: u8) -> u8 {
        if self.group == ZONE_GROUP { CLASS_NONE } else { class }
    }

    /// The same for a block that was handed over before this lock was taken: a free may have
    /// announced it and somebody else filed it meanwhile, and a third one may have taken it
    /// further.
    pub(crate) fn file_if_ours(&self, index: Index) {
        let tag = self.fh.map.head(index).tag.get();
        if tag.state() == SPLIT
            && tag.group() == self.group
            && tag.zone() == usize::from(self.zone.id)
        {
            self.file(index);
        }
    }

    /// Takes the newest of the whole blocks that this group keeps.
    pub(crate) fn take_kept_whole(&self) -> Option<Index> {
        self.stock().lists.whole(&self.fh.map).inspect(|&index| self.unlist(index))
    }

    /// Makes a split block whole, if no word of it is leased and all are full. `false` where that
    /// is not so; nothing has changed then.
    fn retire(&self, index: Index) -> bool {
        let (head, line) = (self.fh.map.head(index), self.fh.map.line(index));
        self.step(1);
        for w in 0..WORDS {
            let lease = head.lease(w);
            let free = lease == 0 || lease & EMPTY != 0 && head.change_lease(w, lease, 0);
            if !free || !line.take_bits(w, !0) {
                (0..w).for_each(|w| self.fh.put_back(index, w, !0));
                return false;
            }
        }
        head.tag.set(head.tag.get().with_state(WHOLE));
        true
    }

    /// Puts a whole block of this holder, on no list, where it belongs.
    pub(crate) fn place_whole(&self, index: Index) {
        let (map, head) = (&self.fh.map, self.fh.map.head(index));
        debug_assert_eq!(map.links(index).list.get(), NO_LIST);
        if self.group == ZONE_GROUP {
            // In the bitmap a type means nothing.
            head.tag.set(self.fh.retyped(index, Migratetype::Movable as usize));
            map.links(index).list.set(IN_BITMAP);
            self.step(self.zone.insert_whole(self.zone.bit(head.number)));
        } else {
            self.stock().lists.link(map, index, WHOLE_LIST);
            self.step(1);
        }
    }

    /// Makes a whole block that this holder has, on no list, a split one of that type, and lists
    /// it.
    pub(crate) fn split(&self, index: Index, migratetype: usize) {
        self.fh.fill(index, migratetype, self.group);
        self.file_split(index);
    }

    /// Lists a block that was split just now: all of it is free, and whoever holds it wants it
    /// split.
    fn file_split(&self, index: Index) {
        let (map, head) = (&self.fh.map, self.fh.map.head(index));
        let migratetype = head.tag.get().migratetype();
        let listing = head.begin_listing_unless_queued();
        let class = if migratetype < HIGH_ATOMIC { CLASS_WHOLE - 1 } else { CLASS_WHOLE };
        map.links(index).count.set(FRAMES as u16);
        self.stock().note(migratetype, FRAMES as u64);
        self.stock().lists.link(map, index, list_for(migratetype, FRAMES as u32, class));
        if listing {
            head.end_listing(self.known(class));
        }
        self.step(2);
    }

    /// Looks at up to `limit` blocks that frees have announced; `true` while more are waiting.
    pub(crate) fn collect(&self, limit: u32) -> bool {
        let inbox = &self.stock().inbox;
        for _ in 0..limit {
            if inbox.is_empty() {
                return false;
            }
            let Some(index) = inbox.pop(&self.fh.map) else { return false };
            self.step(1);
            self.accept(index);
        }
        !inbox.is_empty()
    }

    /// Does what has to be done with a block that was announced.
    fn accept(&self, index: Index) {
        let head = self.fh.map.head(index);
        let tag = head.tag.get();
        let mine =
            tag.group() == self.group && core::ptr::eq(&self.fh.zones[tag.zone()], self.zone);
        if tag.state() != ABSENT && tag.group() != IN_HAND && !mine {
            // It has changed hands meanwhile; it stays marked.
            self.fh.zones[tag.zone()].stock(tag.group()).inbox.push(&self.fh.map, index);
            return;
        }
        // From here on it may be announced again; what the tag says is read after that.
        head.begin_listing();
        // The list before the tag: who takes a run of blocks without a lock writes them the other
        // way round. SeqCst: and after the class, which is read by who frees that run and finds it
        // marked.
        let unlisted = self.fh.map.links(index).list.load(Ordering::SeqCst) == NO_LIST;
        let tag = head.tag.get();
        match tag.state() {
            SPLIT if tag.group() == self.group => self.file(index),
            WHOLE if tag.group() == self.group && unlisted => self.place_whole(index),
            // It was freed just now, by somebody who found it marked.
            SPLIT | WHOLE if tag.group() != IN_HAND && tag.group() != self.group => {
                self.fh.announce(index)
            }
            _ => {}
        }
    }

    /// The next block of that type with a free run of `order`, by the lists and by its words; it
    /// stays listed.
    pub(crate) fn pick(&self, migratetype: usize, order: u32, emptiest: bool) -> Option<Index> {
        let mut looks = u32::MAX;
        self.pick_within(migratetype, order, emptiest, &mut looks)
    }

    /// The same, given up when so many blocks were looked at. For holds that must be short, where
    /// somebody looks again who has collected what was announced.
    pub(crate) fn pick_within(
        &self,
        migratetype: usize,
        order: u32,
        emptiest: bool,
        looks: &mut u32,
    ) -> Option<Index> {
        let lists = &self.stock().lists;
        while *looks != 0 {
            *looks -= 1;
            let class = order as u8 + 1;
            let found = match emptiest {
                false => lists.best(&self.fh.map, migratetype, class),
                true => lists.emptiest(&self.fh.map, migratetype, class),
            };
            let index = found?;
            self.step(1);
            let words = self.words(index);
            let whole =
                migratetype < HIGH_ATOMIC && words.iter().fold(!0, |all, word| all & word) == !0;
            if !whole && crate::block::words::find_run(&words, order).is_some() {
                // Where memory is plenty each CPU has a block of its own in use, so that they do
                // not share a line of words; where it is not, sharing one leaves more of the others
                // to become whole.
                if self.zone.spread.get() {
                    lists.take_turn(&self.fh.map, index);
                }
                return Some(index);
            }
            // Less than the list says, or more: it moves to where it belongs, so that it is looked
            // at in vain once only.
            self.file(index);
        }
        None
    }

    /// Has a block of this holder, on no list, belong to another one from now on; that one must
    /// file it.
    pub(crate) fn hand_over(&self, index: Index, group: u16) {
        let head = self.fh.map.head(index);
        head.tag.set(head.tag.get().with_group(group));
        self.step(1);
    }
}

const _: () = assert!(CLASS_QUEUED > CLASS_WHOLE);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::testing::{machine, place};
    use crate::{CpuId, Order, Pfn, Request};

    /// What others have freed into a leased word is its leaseholder's to take.
    #[test]
    fn a_lister_leaves_leased_words_out() {
        let fh = machine(2, 1 << 16);
        let [first, second] = [0, 1].map(|cpu| fh.on(CpuId::new(cpu)));
        let request = Request::new(Order::ZERO, Migratetype::Movable);
        let pfn = first.alloc(request).unwrap();
        second.free(pfn, Order::ZERO).unwrap();
        let (index, w) = place(&fh, pfn);
        let group = fh.map.head(index).tag.get().group();
        assert_ne!(fh.map.line(index).word(w), 0);
        assert_eq!(fh.hold(&fh.zones[0], group).words(index)[w], 0);
        first.flush().unwrap();
        assert_eq!(fh.hold(&fh.zones[0], group).words(index)[w], !0);
    }

    /// Somebody has taken a frame of its fourth word after it was seen to be wholly free.
    #[test]
    fn a_block_that_does_not_become_whole_keeps_its_words() {
        let fh = machine(1, 1024);
        let request = Request::new(Order::ZERO, Migratetype::Movable)
            .from(Pfn::new(200))
            .below(Pfn::new(201));
        let pfn = fh.on(CpuId::new(0)).alloc(request).unwrap();
        let (index, _) = place(&fh, pfn);
        let group = fh.map.head(index).tag.get().group();
        assert!(!fh.hold(&fh.zones[0], group).retire(index));
        let words: [u64; WORDS] = core::array::from_fn(|w| if w == 3 { !(1 << 8) } else { !0 });
        assert_eq!(core::array::from_fn(|w| fh.map.line(index).word(w)), words);
    }
}
