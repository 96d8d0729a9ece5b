//! The invariant walk: proves, over all blocks, lists and leases, what must stay true.
//!
//! 1. Every frame that exists is allocated, in its block's word, or in one CPU's hand: never in two
//!    of them. What does not exist is in none. A block that is whole or taken has nothing in its
//!    words and nothing leased.
//! 2. Every lease that names a CPU is one of that CPU's slots, and every slot with frames in hand
//!    has the lease.
//! 3. Every block is where its holder looks for it: on the list of its type, of a class not below
//!    its largest free run; among the wholes of its group or in the zone's bitmap; or announced; or
//!    it is full, taken or isolated.
//! 4. The counts are those of the blocks, and an offline CPU has nothing in hand.
//!
//! The walk enters every CPU's state and takes every lock. Frees do not wait for locks, so point 3
//! can only be relied on while nobody frees.

use core::fmt;

use crate::block::NONE;
use crate::block::layout::Index;
use crate::block::tag::{
    ABSENT, CMA, HIGH_ATOMIC, IN_HAND, ISOLATED, SPLIT, TAKEN, TYPES, WHOLE, ZONE_GROUP,
};
use crate::block::words::{CLASS_NONE, CLASS_QUEUED, CLASS_WHOLE, EMPTY, class_of, count_of};
use crate::cpu::lease::{Leases, NO_KEY, SLOTS};
use crate::group::Stock;
use crate::group::lists::{IN_BITMAP, NO_LIST, WHOLE_LIST, listed_class};
use crate::primitive::Plain;
use crate::zone::Zone;
use crate::{Freehold, Pfn, Platform};

/// A broken invariant: a defect of the allocator, or of its metadata memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The first frame concerned; the first frame of a zone where a whole zone is.
    pub pfn: Pfn,
    /// What is wrong.
    pub what: &'static str,
    /// The value found, where there is one.
    pub found: u64,
    /// The value expected.
    pub expected: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (found {:#x}, expected {:#x})",
            self.pfn, self.what, self.found, self.expected
        )
    }
}

impl core::error::Error for Violation {}

fn expect(pfn: u64, what: &'static str, found: u64, expected: u64) -> Result<(), Violation> {
    if found == expected {
        Ok(())
    } else {
        Err(Violation { pfn: Pfn::new(pfn), what, found, expected })
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Checks every invariant. Takes time proportional to the memory used so far; everybody else
    /// waits meanwhile.
    ///
    /// # Errors
    ///
    /// The first violation found.
    pub fn validate(&self) -> Result<(), Violation> {
        // CPUs by rising number, then groups and zones by rising number: the order of locks
        // everywhere.
        let mut owned = false;
        for cpu in self.cpus {
            loop {
                if let Some(has_owner) = cpu.door.knock() {
                    owned |= has_owner;
                    break;
                }
                self.platform.relax();
            }
        }
        if owned {
            self.platform.heavy_barrier();
        }
        self.cpus.iter().for_each(|cpu| cpu.door.await_owner(|| self.platform.relax()));
        let locks =
            || self.zones.iter().flat_map(|z| z.groups.iter().map(|g| &g.lock).chain([&z.lock]));
        locks().for_each(|lock| lock.lock(|| self.platform.relax()));
        let result = self.walk();
        locks().for_each(|lock| lock.unlock());
        self.cpus.iter().for_each(|cpu| cpu.door.leave_intruder());
        result
    }

    fn walk(&self) -> Result<(), Violation> {
        let (mut queued, mut in_hand) = (0, 0);
        for index in self.map.all() {
            self.check_frames(index)?;
            self.check_place(index)?;
            in_hand += u64::from(self.map.head(index).tag.get().group() == IN_HAND);
            queued += u64::from(self.map.head(index).class() == CLASS_QUEUED);
        }
        for cpu in 0..self.cpus.len() {
            self.check_leases(cpu)?;
        }
        let kept =
            self.cpus.iter().flat_map(|cpu| &cpu.kept).filter(|kept| kept.get() != NONE).count()
                as u64;
        expect(0, "blocks that CPUs keep and blocks in a hand differ", kept, in_hand)?;
        let all = self.map.all().count() as u64;
        let mut waiting = 0;
        for zone in self.zones {
            for group in 0..=zone.groups.len() as u16 {
                waiting += zone.stock(group).inbox.count(&self.map, all);
                self.check_stock(zone, group)?;
            }
            self.check_zone(zone)?;
        }
        expect(0, "blocks announced and blocks in inboxes differ", waiting, queued)
    }

    /// Points 1 and 2 for one block.
    fn check_frames(&self, index: Index) -> Result<(), Violation> {
        let (head, line, base) = (self.map.head(index), self.map.line(index), self.map.base(index));
        let tag = head.tag.get();
        let present = self.map.present(index);
        for (w, &present) in present.iter().enumerate() {
            let pfn = base + w as u64 * 64;
            let (word, lease) = (line.word(w), head.lease(w));
            if tag.state() != SPLIT {
                expect(pfn, "a block that is no split one has frames in a word", word, 0)?;
                // Nobody is inside any door: none is on its way to being given up.
                expect(pfn, "a block that is no split one has a word leased", u64::from(lease), 0)?;
                continue;
            }
            let hand = self.leased_frames(index, w);
            expect(pfn, "frames both free and in a hand", word & hand, 0)?;
            expect(pfn, "frames free that do not exist", (word | hand) & !present, 0)?;
            if tag.has(ISOLATED) {
                expect(pfn, "a word of an isolated block is in a hand", hand, 0)?;
            }
            if lease != 0 && lease & EMPTY == 0 {
                let slot = self
                    .cpus
                    .get(usize::from(lease) - 1)
                    .map(|cpu| cpu.leases.slot(Leases::slot_of(pfn / 64)));
                expect(
                    pfn,
                    "a lease that its CPU does not know",
                    slot.map_or(NO_KEY, |slot| slot.key()),
                    pfn / 64,
                )?;
            }
        }
        Ok(())
    }

    /// Point 2 for one CPU, and what an offline one may have.
    fn check_leases(&self, number: usize) -> Result<(), Violation> {
        let cpu = &self.cpus[number];
        let mut held = 0;
        for slot in 0..SLOTS {
            let lease = cpu.leases.slot(slot);
            if lease.key() == NO_KEY {
                expect(number as u64, "a slot not in use has frames", lease.mask(), 0)?;
                continue;
            }
            held |= 1 << slot;
            let pfn = lease.key() * 64;
            let (raw, w) = lease.place();
            let place = self.map.index(raw).map_or(0, |index| self.map.base(index) / 64 + w as u64);
            expect(pfn, "a slot that names another word", place, lease.key())?;
            let ready = cpu.leases.is_ready(slot);
            if let Some(index) = self.map.index(raw).filter(|_| ready) {
                let named = u64::from(self.map.head(index).lease(w));
                expect(pfn, "a slot is ready whose word is not leased", named, number as u64 + 1)?;
            }
            if lease.mask() != 0 {
                expect(pfn, "frames in a hand that nobody would look for", u64::from(ready), 1)?;
            }
        }
        expect(number as u64, "the note of slots in use", u64::from(cpu.leases.held()), held)?;
        if !cpu.online.get() {
            expect(number as u64, "an offline CPU leases words", held, 0)?;
        }
        for kept in cpu.kept.iter().filter(|kept| kept.get() != NONE) {
            let tag = self.map.index(kept.get()).map(|index| self.map.head(index).tag.get());
            let whole = tag.is_some_and(|tag| tag.state() == WHOLE && tag.group() == IN_HAND);
            expect(
                number as u64,
                "a block that a CPU keeps",
                u64::from(whole && cpu.online.get()),
                1,
            )?;
        }
        Ok(())
    }

    /// Point 3 for one block.
    fn check_place(&self, index: Index) -> Result<(), Violation> {
        let (head, line, base) = (self.map.head(index), self.map.line(index), self.map.base(index));
        let (tag, list) = (head.tag.get(), self.map.links(index).list.get());
        let queued = head.class() == CLASS_QUEUED;
        match tag.state() {
            ABSENT | TAKEN => {
                expect(base, "a block in use is listed", u64::from(list), u64::from(NO_LIST))
            }
            WHOLE => {
                let right = match (tag.group(), list) {
                    (ZONE_GROUP, IN_BITMAP) | (IN_HAND, NO_LIST) => true,
                    (ZONE_GROUP | IN_HAND, _) => queued && list == NO_LIST,
                    (_, list) => list == WHOLE_LIST || queued && list == NO_LIST,
                };
                expect(base, "a whole block is in the wrong place", u64::from(right), 1)
            }
            SPLIT if tag.has(ISOLATED) => {
                expect(base, "an isolated block is listed", u64::from(list), u64::from(NO_LIST))
            }
            _ => {
                let open =
                    core::array::from_fn(|w| if head.is_leased(w) { 0 } else { line.word(w) });
                let exact = class_of(&open);
                // A whole one of an ordinary type stays split until somebody looks.
                let whole = exact == CLASS_WHOLE && tag.migratetype() < HIGH_ATOMIC;
                let least = if whole { CLASS_WHOLE - 1 } else { exact };
                // The zone's own blocks say nothing: any free into one announces it.
                let of_zone = tag.group() == ZONE_GROUP && !queued;
                if of_zone {
                    expect(
                        base,
                        "a class that a block of the zone tells",
                        u64::from(head.class()),
                        CLASS_NONE.into(),
                    )?;
                    let counted = u64::from(self.map.links(index).count.get());
                    let listed = if list < WHOLE_LIST { counted } else { 0 };
                    let uncounted = u64::from(count_of(&open)).saturating_sub(listed);
                    expect(base, "free frames of the zone that it does not count", uncounted, 0)?;
                }
                let known = if of_zone { listed_class(list) } else { head.class() };
                expect(
                    base,
                    "the class of a block is too low",
                    u64::from(known.max(least)),
                    u64::from(known),
                )?;
                let findable = exact == CLASS_NONE || queued || list < WHOLE_LIST;
                expect(
                    base,
                    "a block with free frames that nobody would find",
                    u64::from(findable),
                    1,
                )
            }
        }
    }

    /// Points 3 and 4 for the lists of one holder.
    fn check_stock(&self, zone: &Zone<'m>, group: u16) -> Result<(), Violation> {
        let stock: &Stock = zone.stock(group);
        let start = zone.span.start.get();
        let mut free = [0u64; TYPES];
        let mut filled = stock.lists.filled().peekable();
        for list in 0..=WHOLE_LIST {
            let noted = filled.next_if_eq(&list).is_some();
            let Some(first) = stock.lists.first(list).and_then(|raw| self.map.index(raw)) else {
                expect(start, "an empty list that is noted as filled", u64::from(noted), 0)?;
                continue;
            };
            expect(
                start,
                "a list that is not noted as filled",
                u64::from(noted),
                u64::from(list != WHOLE_LIST),
            )?;
            let (mut at, mut wholes) = (first, 0u64);
            loop {
                let (links, tag) = (self.map.links(at), self.map.head(at).tag.get());
                let base = self.map.base(at);
                expect(
                    base,
                    "on a list of another holder",
                    u64::from(tag.group()),
                    u64::from(group),
                )?;
                expect(base, "on a list of another zone", tag.zone() as u64, u64::from(zone.id))?;
                expect(
                    base,
                    "on another list than it says",
                    u64::from(links.list.get()),
                    u64::from(list),
                )?;
                let state = if list == WHOLE_LIST { WHOLE } else { SPLIT };
                expect(
                    base,
                    "a listed block of another state",
                    u64::from(tag.state()),
                    u64::from(state),
                )?;
                let next = self.map.index(links.next.get());
                let back = next.map_or(NONE, |next| self.map.links(next).prev.get());
                expect(base, "a list is torn", u64::from(back), u64::from(at.get()))?;
                wholes += 1;
                if list != WHOLE_LIST {
                    free[tag.migratetype()] += u64::from(links.count.get());
                }
                match next.filter(|&next| next != first) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            if list == WHOLE_LIST {
                expect(
                    start,
                    "a group's count of whole blocks",
                    u64::from(stock.lists.wholes()),
                    wholes,
                )?;
            }
        }
        for (migratetype, free) in free.into_iter().enumerate() {
            expect(start, "a holder's count of free frames", stock.free_of(migratetype), free)?;
        }
        Ok(())
    }

    /// Point 4 for the zone's bitmap and its counts of reserved blocks.
    fn check_zone(&self, zone: &Zone<'m>) -> Result<(), Violation> {
        let start = zone.span.start.get();
        let (mut bits, mut at) = (0u64, 0);
        while let (Some(bit), _) = zone.bitmap.next(at) {
            bits += 1;
            at = bit + 1;
            let tag = self
                .map
                .locate_block(zone.first_block + bit)
                .map(|index| self.map.head(index).tag.get());
            let right = tag.is_none_or(|tag| {
                tag.state() == ABSENT || tag.state() == WHOLE && tag.group() == ZONE_GROUP
            });
            expect(
                (zone.first_block + bit) << 9,
                "a bit for a block that the zone does not have",
                u64::from(right),
                1,
            )?;
        }
        expect(start, "the zone's count of whole blocks", zone.whole_blocks.get(), bits)?;
        let of = |migratetype: usize| {
            let tags = self.map.all().map(|index| self.map.head(index).tag.get());
            tags.filter(|tag| tag.state() != ABSENT && tag.zone() == usize::from(zone.id))
                .filter(|tag| tag.migratetype() == migratetype)
                .count() as u64
        };
        expect(
            start,
            "the zone's count of HIGHATOMIC blocks",
            zone.high_atomic_blocks.get(),
            of(HIGH_ATOMIC),
        )?;
        expect(start, "the zone's count of CMA blocks", zone.cma_blocks.get(), of(CMA))
    }
}
