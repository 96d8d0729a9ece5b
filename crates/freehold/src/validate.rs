//! The invariant walk: proves, over all blocks, lists and buffers, what must stay true.
//!
//! 1. Every frame that exists is allocated, in `free`, in `remote` or in one combining buffer: never in two of them.
//!    What does not exist is in none.
//! 2. Every block has exactly one holder and is where the holder looks for it: active, on the list of its type and of a
//!    class not below its largest free run, in the map of whole blocks, or nowhere (full, or isolated).
//! 3. What others freed is on its way home: a block with remote bits is queued, and every queued block is in exactly
//!    one inbox.
//! 4. The counts of free frames are those of the bits.
//!
//! The walk enters every CPU's state and takes every zone lock. Frees do not wait for locks, so point 3 and the counts
//! can only be relied on while nobody frees.

use core::fmt;

use crate::block::{Block, CLASS_ACTIVE, CLASS_DETACHED, CLASS_FULL, CLASS_WHOLE, CLASSES, FLAG_ISOLATED, NONE};
use crate::holder::Holder;
use crate::owner::HINT_NONE;
use crate::percpu::{CMA, NO_KEY};
use crate::primitive::Plain;
use crate::shelf::{Shelf, TYPES};
use crate::zone::{HIGH_ATOMIC, Zone};
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
        write!(f, "{}: {} (found {:#x}, expected {:#x})", self.pfn, self.what, self.found, self.expected)
    }
}

impl core::error::Error for Violation {}

fn expect(pfn: u64, what: &'static str, found: u64, expected: u64) -> Result<(), Violation> {
    if found == expected { Ok(()) } else { Err(Violation { pfn: Pfn::new(pfn), what, found, expected }) }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Checks every invariant. Takes time proportional to the memory managed; everybody else waits meanwhile.
    ///
    /// # Errors
    ///
    /// The first violation found.
    pub fn validate(&self) -> Result<(), Violation> {
        // CPUs by rising number, then zones by rising number: nobody takes more than one of each, zones innermost.
        for state in self.cpus {
            state.lock.enter_intruder(&self.barrier());
        }
        for state in self.cpus {
            let pcp = &self.pcps[state.first_pcp.get() as usize];
            state.owner.settle(pcp, &state.counters, self.map.blocks);
        }
        let result = self.validate_zones(0);
        for state in self.cpus {
            state.lock.leave_intruder();
        }
        result
    }

    fn validate_zones(&self, z: usize) -> Result<(), Violation> {
        match self.zones.get(z) {
            Some(zone) => {
                let lock = self.lock_zone_quietly(zone);
                let result = self.validate_zones(z + 1);
                drop(lock);
                result
            }
            None => self.walk(),
        }
    }

    fn walk(&self) -> Result<(), Violation> {
        let mut queued = 0;
        for (index, block) in self.map.all().iter().enumerate() {
            self.check_frames(block)?;
            self.check_place(block, index as u32)?;
            queued += u64::from(block.is_queued());
        }
        for (cpu, state) in self.cpus.iter().enumerate() {
            for entry in &state.combine {
                let key = entry.key.get();
                if key == NO_KEY {
                    continue;
                }
                let block = &self.map.blocks[entry.block.get() as usize];
                let w = (key % 8) as usize;
                let taken = block.free_word(w) | block.remote_word(w);
                expect(
                    key << 6,
                    "a frame waits in a combining buffer and is free already",
                    entry.mask.get() & taken,
                    0,
                )?;
                expect(key << 6, "an entry of a combining buffer names another block", block.base() >> 9, key >> 3)?;
            }
            if !state.online.get() {
                expect(cpu as u64, "an offline CPU has frees waiting", u64::from(state.combining.get()), 0)?;
            }
        }
        let inboxes = self.cpus.iter().map(|c| &c.inbox).chain(self.zones.iter().map(|z| &z.inbox));
        let total = self.map.all().len() as u64;
        let mut waiting = 0;
        for inbox in inboxes {
            waiting += inbox.count(self.map.blocks, total);
        }
        expect(0, "blocks queued and blocks in inboxes differ", waiting, queued)?;
        for (z, zone) in self.zones.iter().enumerate() {
            self.check_zone(z, zone)?;
            for cpu in 0..self.cpus.len() {
                self.check_pcp(cpu, z)?;
            }
        }
        Ok(())
    }

    /// Point 1 for one block, but for the combining buffers.
    fn check_frames(&self, block: &Block) -> Result<(), Violation> {
        let present = self.map.present(block);
        for (w, &present) in present.iter().enumerate() {
            let base = block.base() + w as u64 * 64;
            let (free, remote) = (block.free_word(w), block.remote_word(w));
            expect(base, "frames both free and freed remotely", free & remote, 0)?;
            expect(base, "frames free that do not exist", (free | remote) & !present, 0)?;
            let noted = block.virgin_words.get() >> w & 1;
            let virgins = u64::from(block.virgin_bits(w) != 0);
            expect(base, "the note of virgin words is wrong", virgins, u64::from(noted))?;
            if remote != 0 {
                expect(base, "remote frees in a block that is not queued", u64::from(block.is_queued()), 1)?;
            }
        }
        Ok(())
    }

    /// Point 2 for one block, as far as it can be told from the block itself.
    fn check_place(&self, block: &Block, index: u32) -> Result<(), Violation> {
        let base = block.base();
        let class = block.class();
        let holder = block.holder();
        expect(base, "something of a block is kept aside", u64::from(block.hint.get()), u64::from(HINT_NONE))?;
        if holder == Holder::NOBODY {
            return expect(base, "a block of nobody has free frames", u64::from(block.popcount()), 0);
        }
        let exact = block.exact_class();
        if holder == Holder::ZONE {
            expect(base, "the zone's count of a block", u64::from(block.count.get()), u64::from(block.popcount()))?;
            expect(base, "the zone's class of a block", u64::from(class), u64::from(exact))?;
            let zone = &self.zones[block.zone() as usize];
            let bit = u64::from(block.number.get()) - zone.first_block;
            let ordinary = block.migratetype() < HIGH_ATOMIC;
            let mapped = class == CLASS_WHOLE && ordinary && !block.has_flag(FLAG_ISOLATED);
            return expect(base, "the map of whole blocks", u64::from(zone.wholes.contains(bit)), u64::from(mapped));
        }
        expect(base, "an isolated block must be the zone's", u64::from(block.flags() & FLAG_ISOLATED), 0)?;
        let Some(cpu) = holder.as_cpu().filter(|cpu| cpu.index() < self.cpus.len()) else {
            return expect(base, "no such holder", u64::from(holder.raw()), 1);
        };
        if class == CLASS_DETACHED {
            // On its way while somebody steals: allowed, but nobody may be on the way when all is quiet.
            return Ok(());
        }
        expect(base, "an offline CPU holds a block", u64::from(self.cpus[cpu.index()].online.get()), 1)?;
        let pcp = self.pcp(cpu.index(), block.zone() as usize);
        if class == CLASS_ACTIVE {
            let active = &pcp.active[block.migratetype() as usize];
            expect(base, "an active block its CPU does not know", u64::from(active.block.get()), u64::from(index))?;
            let below = (0..active.word.get() as usize).find(|&w| block.free_word(w) != 0);
            return expect(base, "free frames below the active word", below.map_or(0, |w| w as u64 + 1), 0);
        }
        let whole = u64::from(exact == CLASS_WHOLE && class != CLASS_WHOLE);
        expect(base, "a CPU does not know that a block is whole", whole, 0)?;
        expect(base, "the class of a block is too low", u64::from(class.max(exact)), u64::from(class))
    }

    fn check_zone(&self, z: usize, zone: &Zone<'m>) -> Result<(), Violation> {
        let base = zone.span.start.get();
        let mine = |b: &&Block| b.zone() as usize == z && b.holder() == Holder::ZONE;
        let usable = |b: &&Block| mine(b) && !b.has_flag(FLAG_ISOLATED);
        let sum = |of: &dyn Fn(&Block) -> bool| -> u64 {
            self.map.all().iter().filter(usable).filter(|b| of(b)).map(|b| u64::from(b.popcount())).sum()
        };
        expect(base, "the zone's count of free frames", zone.free.get(), sum(&|_| true))?;
        expect(base, "the zone's count of free CMA frames", zone.free_cma.get(), sum(&|b| b.migratetype() == CMA))?;
        let high_atomic = |b: &Block| b.migratetype() == HIGH_ATOMIC;
        expect(base, "the zone's count of free HIGHATOMIC frames", zone.free_high_atomic.get(), sum(&high_atomic))?;
        let mapped = |b: &Block| b.class() == CLASS_WHOLE && b.migratetype() < HIGH_ATOMIC;
        let wholes = self.map.all().iter().filter(usable).filter(|b| mapped(b)).count() as u64;
        expect(base, "the zone's count of whole blocks", zone.whole_blocks.get(), wholes)?;
        let listed = self.check_shelf(&zone.shelf, base, Holder::ZONE, z)?;
        let expected = self.map.all().iter().filter(usable).filter(|b| b.class() != CLASS_FULL && !mapped(b)).count();
        expect(base, "blocks on the zone's lists", listed, expected as u64)?;
        self.check_home_lists(z, zone)
    }

    fn check_home_lists(&self, z: usize, zone: &Zone<'m>) -> Result<(), Violation> {
        let mut seen = 0;
        for cpu in 0..self.cpus.len() {
            for migratetype in 0..TYPES {
                let (mut index, mut before) = (zone.home[cpu * TYPES + migratetype].get(), NONE);
                while index != NONE {
                    let block = &self.map.blocks[index as usize];
                    let home = Holder::from_raw(block.home.get()).as_cpu().map(|c| c.index());
                    expect(block.base(), "on the wrong home list", home.map_or(u64::MAX, |c| c as u64), cpu as u64)?;
                    expect(block.base(), "a home list is torn", u64::from(block.home_prev.get()), u64::from(before))?;
                    seen += 1;
                    before = index;
                    index = block.home_next.get();
                }
            }
        }
        let expected = self.map.all().iter().filter(|b| {
            b.zone() as usize == z
                && b.holder() == Holder::ZONE
                && !b.has_flag(FLAG_ISOLATED)
                && b.class() != CLASS_FULL
                && !(b.class() == CLASS_WHOLE && b.migratetype() < HIGH_ATOMIC)
                && Holder::from_raw(b.home.get()).as_cpu().is_some()
        });
        expect(zone.span.start.get(), "blocks on home lists", seen, expected.count() as u64)
    }

    fn check_pcp(&self, cpu: usize, z: usize) -> Result<(), Violation> {
        let pcp = self.pcp(cpu, z);
        let base = self.zones[z].span.start.get();
        let holder = Holder::cpu(crate::CpuId::new(cpu as u16));
        let mine = || {
            self.map
                .all()
                .iter()
                .filter(|b| b.holder() == holder && b.zone() as usize == z && b.class() != CLASS_DETACHED)
        };
        let free: u64 = mine().map(|b| u64::from(b.popcount())).sum();
        expect(base, "a CPU's count of free frames", u64::from(pcp.count()), free)?;
        let cma: u64 = mine().filter(|b| b.migratetype() == CMA).map(|b| u64::from(b.popcount())).sum();
        expect(base, "a CPU's count of free CMA frames", u64::from(pcp.count_cma()), cma)?;
        let held = mine().count() as u64;
        expect(base, "a CPU's count of blocks", u64::from(pcp.blocks.get()), held)?;
        let active = pcp.active.iter().filter(|a| a.block.get() != NONE).count() as u64;
        let listed = self.check_shelf(&pcp.shelf, base, holder, z)?;
        expect(base, "blocks on a CPU's lists", listed + active, held)
    }

    /// Every block on these lists belongs there, and the links agree both ways; returns how many there are.
    fn check_shelf(&self, shelf: &Shelf, base: u64, holder: Holder, z: usize) -> Result<u64, Violation> {
        let mut listed = 0;
        for migratetype in 0..TYPES {
            for class in 0..CLASSES as u8 {
                let filled = shelf.smallest(migratetype, class) == Some(class);
                let first = shelf.first(migratetype, class);
                expect(base, "the note of which lists are filled", u64::from(filled), u64::from(first.is_some()))?;
                let (mut index, mut before) = (first.unwrap_or(NONE), NONE);
                while index != NONE {
                    let block = &self.map.blocks[index as usize];
                    let at = block.base();
                    expect(
                        at,
                        "on a list of another holder",
                        u64::from(block.holder().raw()),
                        u64::from(holder.raw()),
                    )?;
                    expect(at, "on a list of another zone", u64::from(block.zone()), z as u64)?;
                    expect(at, "on a list of another type", u64::from(block.migratetype()), migratetype as u64)?;
                    expect(at, "on a list of another class", u64::from(block.class()), u64::from(class))?;
                    expect(at, "a list is torn", u64::from(block.prev.get()), u64::from(before))?;
                    listed += 1;
                    before = index;
                    index = block.next.get();
                }
            }
        }
        Ok(listed)
    }
}
