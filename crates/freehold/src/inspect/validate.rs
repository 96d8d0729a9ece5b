//! The invariant walk: proves, over all blocks, lists and leases, what must stay true.
//!
//! 1. Every frame that exists is allocated, in its block's word, or in one CPU's hand: never in two
//!    of them. What does not exist is in none. A block that is whole or taken has nothing in its
//!    words and nothing leased.
//! 2. Every lease that names a CPU, be its hand empty, is one of that CPU's slots, and every slot
//!    with frames in hand has the lease.
//! 3. Every block is where requests look for it: a whole one in the zone's bitmap or in one CPU's
//!    hand; a split one on the board, in the row of its type and of a class not below its largest
//!    free run, with the summaries showing it; or it is full, taken or isolated.
//! 4. The counts are those of the blocks, and an offline CPU has nothing in hand. Free frames by
//!    type are compared where a block never changes its type: CMA. A free beside such a change
//!    counts for the type from before.
//! 5. Pieces of memory do not overlap, and are as many frames as their zones manage. Nobody has
//!    left a mark behind.
//!
//! The walk enters every CPU's state. Frees do not wait for that, so points 3 to 5 can only be
//! relied on while nobody frees.

use core::fmt;

use crate::block::words::{CLASS_BUSY, CLASS_NONE, CLASS_WHOLE, EMPTY, class_of, count_of};
use crate::block::{ABSENT, Block, CMA, HIGH_ATOMIC, IN_HAND, ISOLATED, MOVABLE, SPLIT, WHOLE};
use crate::cpu::CpuState;
use crate::cpu::lease::{Leases, NO_WORD, SLOTS};
use crate::platform::PlatformExt;
use crate::primitive::Relaxed;
use crate::zone::Zone;
use crate::zone::board::{LOOSE, row_of};
use crate::zone::moving::Movers;
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
    match found == expected {
        true => Ok(()),
        false => Err(Violation { pfn: Pfn::new(pfn), what, found, expected }),
    }
}

/// Something that is so (1) or not (0).
fn ensure(pfn: u64, what: &'static str, is_so: bool) -> Result<(), Violation> {
    expect(pfn, what, is_so.into(), 1)
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Checks every invariant. Takes time proportional to the memory used so far, and a look at
    /// each 128 MiB of the span below it; everybody else waits meanwhile.
    ///
    /// # Errors
    ///
    /// The first violation found.
    pub fn validate(&self) -> Result<(), Violation> {
        // By rising number, as everywhere: so two of us cannot wait for each other.
        let mut owned = false;
        for cpu in self.cpus {
            owned |= cpu.door.knock(&self.platform);
        }
        if owned {
            self.platform.barrier();
        }
        self.cpus.iter().for_each(|cpu| cpu.door.await_owner(&self.platform));
        let result = Walk { fh: self }.all();
        self.cpus.iter().for_each(|cpu| cpu.door.leave_intruder());
        result
    }
}

/// The walk, while every CPU's door is shut.
struct Walk<'a, 'm, P> {
    fh: &'a Freehold<'m, P>,
}

impl<'m, P: Platform> Walk<'_, 'm, P> {
    /// All points.
    fn all(&self) -> Result<(), Violation> {
        let fh = self.fh;
        let mut in_hand = 0;
        for block in fh.map.all() {
            self.check_frames(block)?;
            self.check_place(block)?;
            in_hand += u64::from(block.tag.get().has(IN_HAND));
        }
        fh.cpus.iter().try_for_each(|cpu| self.check_leases(cpu))?;
        let kept =
            fh.cpus.iter().flat_map(|cpu| &cpu.kept).filter(|kept| !kept.is_none()).count() as u64;
        expect(0, "blocks that CPUs keep and blocks in a hand differ", kept, in_hand)?;
        let holding = fh.cpus.iter().filter(|cpu| cpu.holds.get()).count() as u64;
        expect(0, "CPUs that say so hold something", holding, fh.holding.0.get())?;
        for cpu in fh.cpus.iter().filter(|cpu| !cpu.holds.get()) {
            ensure(0, "a CPU that says it holds nothing does", fh.cpu(cpu).is_empty())?;
        }
        let moving = Movers(fh).moves().at_it;
        expect(0, "marks of frames on the way that nobody has", moving, 0)?;
        expect(0, "requests that are about to fail", fh.failing.0.0.get(), 0)?;
        fh.zones.iter().try_for_each(|zone| self.check_zone(zone))
    }

    /// Point 2 for one CPU, and what an offline one may have.
    fn check_leases(&self, cpu: &CpuState<'m>) -> Result<(), Violation> {
        let (number, mut held) = (u64::from(cpu.number), 0);
        for slot in 0..SLOTS {
            let lease = cpu.leases.slot(slot);
            if !lease.is_in_use() {
                expect(number, "a slot not in use has frames", lease.all(), 0)?;
                continue;
            }
            held |= 1 << slot;
            let pfn = lease.first.get();
            let place = lease.seen_place(&self.fh.map.blocks);
            let first = |(block, w): (Block<'m>, usize)| block.base() + w as u64 * 64;
            expect(pfn, "a slot that names another word", place.map_or(NO_WORD, first), pfn)?;
            let ready = cpu.leases.is_ready(slot) || lease.is_of_chunk();
            if let Some((block, w)) = place.filter(|_| ready) {
                let named = u64::from(block.lease(w));
                expect(pfn, "a slot is ready whose word is not leased", named, number + 1)?;
            }
            expect(pfn, "frames in hand twice", lease.mask.get() & lease.spare.get(), 0)?;
            if lease.all() != 0 {
                ensure(pfn, "frames in a hand that nobody would look for", ready)?;
            }
        }
        expect(number, "the note of slots in use", u64::from(cpu.leases.held.get()), held)?;
        ensure(
            number,
            "a chunk in hand is not what its slots have",
            cpu.chunk.agrees(&cpu.leases),
        )?;
        if !cpu.online.get() {
            expect(number, "an offline CPU leases words", held, 0)?;
        }
        for (block, _) in cpu.kept.iter().filter_map(|kept| kept.seen(&self.fh.map.blocks)) {
            let tag = block.tag.get();
            let whole = tag.state() == WHOLE && tag.has(IN_HAND);
            ensure(number, "a block that a CPU keeps", whole && cpu.online.get())?;
        }
        Ok(())
    }

    /// Points 1 and 2 for one block.
    fn check_frames(&self, block: Block<'m>) -> Result<(), Violation> {
        let (line, base) = (block.line, block.base());
        let tag = block.tag.get();
        let present = self.fh.map.present(block);
        for (w, &present) in present.iter().enumerate() {
            let pfn = base + w as u64 * 64;
            let (word, lease) = (line.word(w), block.lease(w));
            if tag.state() != SPLIT {
                expect(pfn, "a block that is no split one has frames in a word", word, 0)?;
                // Nobody is inside any door: none is on its way to being given up.
                expect(pfn, "a block that is no split one has a word leased", u64::from(lease), 0)?;
                continue;
            }
            let hand = block.leased_frames(self.fh, w);
            expect(pfn, "frames both free and in a hand", word & hand, 0)?;
            expect(pfn, "frames free that do not exist", (word | hand) & !present, 0)?;
            if tag.has(ISOLATED) {
                expect(pfn, "a word of an isolated block is in a hand", hand, 0)?;
            }
            if lease != 0 {
                let cpu = self.fh.cpus.get(usize::from(lease & !EMPTY).wrapping_sub(1));
                let slot = cpu.map(|cpu| cpu.leases.slot(Leases::slot_of(pfn / 64)));
                let first = slot.map_or(NO_WORD, |slot| slot.first.get());
                expect(pfn, "a lease that its CPU does not know", first, pfn)?;
            }
        }
        Ok(())
    }

    /// Point 3 for one block.
    fn check_place(&self, block: Block<'m>) -> Result<(), Violation> {
        let (line, base) = (block.line, block.base());
        let (tag, class) = (block.tag.get(), block.class());
        let most = class.min(CLASS_WHOLE);
        expect(base, "a block that is nobody's to change", class.into(), most.into())?;
        if tag.state() == ABSENT {
            return Ok(());
        }
        let zone = &self.fh.zones[tag.zone()];
        let in_bitmap = zone.bitmap.contains(zone.bit(block.number));
        let whole = tag.state() == WHOLE && !tag.has(IN_HAND);
        expect(base, "whole, and in the bitmap", in_bitmap.into(), whole.into())?;
        if !tag.is_open() {
            return Ok(());
        }
        let exact = class_of(CLASS_NONE, |w| line.word(w), |w| !block.is_leased(w));
        // One that some CPU takes its next words from stays split.
        let whole = exact == CLASS_WHOLE && tag.migratetype() < HIGH_ATOMIC;
        let in_use = || self.fh.cursors.iter().any(|cursors| cursors.names(block));
        ensure(base, "a wholly free block that is not whole", !whole || in_use())?;
        let least = if whole { CLASS_WHOLE - 1 } else { exact };
        expect(base, "the class of a block is too low", class.max(least).into(), class.into())?;
        let listed = class == CLASS_NONE
            || class == CLASS_BUSY
            || zone.board.shows(
                self.fh.map.blocks.rows(block),
                row_of(tag.migratetype(), class),
                block.number,
            );
        ensure(base, "a block that its row does not show", listed)?;
        let shown = !block.loose.get()
            || tag.migratetype() != MOVABLE
            || zone.board.shows(self.fh.map.blocks.rows(block), LOOSE, block.number);
        ensure(base, "a block whose loose frames no row shows", shown)
    }

    /// Point 5 for the zone's memory.
    fn check_pieces(&self, zone: &Zone<'m>) -> Result<(), Violation> {
        let pieces = || {
            let there = self.fh.map.ranges.iter().filter(|piece| !piece.is_spent());
            let ends = there.map(|piece| (piece.start.get(), piece.end.get()));
            ends.filter(|&(start, _)| zone.span.contains(Pfn::new(start)))
        };
        let mut managed = 0;
        for (start, end) in pieces() {
            managed += end - start;
            let within = pieces().filter(|&(at, last)| at < end && start < last).count();
            expect(start, "pieces of memory overlap", within as u64, 1)?;
            let last = zone.span.end.get();
            expect(start, "a piece of memory ends in its zone", end.max(last), last)?;
        }
        let start = zone.span.start.get();
        expect(start, "the zone's count of its frames", zone.managed.get(), managed)
    }

    /// Point 4 for the zone's bitmap and its counts of reserved blocks.
    fn check_zone(&self, zone: &Zone<'m>) -> Result<(), Violation> {
        self.check_pieces(zone)?;
        let start = zone.span.start.get();
        let (mut bits, mut at) = (0u64, 0);
        while let Some(bit) = zone.bitmap.next(at) {
            bits += 1;
            at = bit + 1;
            let tag = self.fh.map.locate_block(zone.first_block + bit).map(|block| block.tag.get());
            let right = tag.is_none_or(|tag| {
                tag.state() == ABSENT || tag.state() == WHOLE && !tag.has(IN_HAND)
            });
            let pfn = (zone.first_block + bit) << 9;
            ensure(pfn, "a bit for a block that the zone does not have", right)?;
        }
        expect(start, "the zone's count of whole blocks", zone.wholes(), bits)?;
        ensure(start, "the bitmap's summary shows all bits", zone.bitmap.is_summed_up())?;
        let (mut in_words, mut in_cma) = (0, 0);
        for block in self.fh.map.all() {
            let tag = block.tag.get();
            if tag.state() == SPLIT && tag.zone() == usize::from(zone.id) {
                let free = u64::from(count_of(&block.words()));
                in_words += free;
                in_cma += if tag.migratetype() == CMA { free } else { 0 };
            }
        }
        let counts = self.fh.cpus.iter().flat_map(|cpu| self.fh.cpu(cpu).all_counts());
        let overdrawn = counts.filter(|own| (own.get() as i64) < 0).count() as u64;
        expect(start, "allowances of which more was taken than there was", overdrawn, 0)?;
        let free = zone.free(self.fh);
        expect(start, "the zone's count of free frames", free.all, bits * 512 + in_words)?;
        expect(start, "the zone's count of free CMA frames", free.cma, in_cma)?;
        let of = |migratetype: usize| {
            let tags = self.fh.map.all().map(|block| block.tag.get());
            let here = tags.filter(|tag| tag.state() != ABSENT && tag.zone() == zone.id.into());
            here.filter(|tag| tag.migratetype() == migratetype).count() as u64
        };
        let (reserved, cma) = (zone.high_atomic_blocks.get(), zone.cma_blocks.get());
        expect(start, "the zone's count of HIGHATOMIC blocks", reserved, of(HIGH_ATOMIC))?;
        expect(start, "the zone's count of CMA blocks", cma, of(CMA))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::layout::Place;
    use crate::block::{HOLES, WORDS};
    use crate::primitive::AtomicU64;
    use crate::tests::testing::*;

    /// A block and a word of it that CPU 0 leases, with frames in hand, some of which are loose,
    /// and a block that it keeps.
    fn used() -> (Machine, Block<'static>, usize) {
        let fh = machine(2, 4 * 512);
        let cpu = fh.here();
        let request = |order| movable(order);
        let kept = cpu.alloc(request(9)).unwrap();
        cpu.free(kept, Order::PAGEBLOCK).unwrap();
        let frames: Vec<Pfn> = (0..130).map(|_| cpu.alloc(request(0)).unwrap()).collect();
        // Past the leases.
        for pfn in frames[..64].iter().step_by(2) {
            Freeing::of(&fh, None).word(pfn.get() / 64, 1 << (pfn.get() % 64), 1).unwrap();
        }
        let (block, w) = place(&fh, frames[129]);
        assert!(block.loose.get() && block.is_leased(w));
        fh.validate().unwrap();
        (fh, block, w)
    }

    /// One defect each, as a wrong line or a stray store would leave it, and what is told of it.
    type Defect = (&'static str, fn(&Machine, Block<'static>, usize));

    const DEFECTS: [Defect; 22] = [
        ("no split one has frames in a word", |fh, _, _| {
            fh.cpus[0].kept[0].block(&fh.map.blocks).unwrap().line.put(3, 1).unwrap();
        }),
        ("no split one has a word leased", |fh, _, _| {
            fh.cpus[0].kept[0].block(&fh.map.blocks).unwrap().head.set_lease(3, 1);
        }),
        ("both free and in a hand", |fh, block, w| {
            let slot = fh.cpus[0].leases.slot(Leases::slot_of(block.base() / 64 + w as u64));
            block.line.put_back(w, slot.all() & slot.all().wrapping_neg());
        }),
        ("free that do not exist", |fh, block, _| {
            fh.map.ranges[0].end.set(block.base());
            block.tag.set(block.tag.get().with_flag(HOLES, true));
        }),
        ("isolated block is in a hand", |_, block, _| {
            block.tag.set(block.tag.get().with_flag(ISOLATED, true));
        }),
        ("a lease that its CPU does not know", |_, block, w| block.set_lease(w, 2)),
        ("a lease that its CPU does not know", |_, block, w| {
            block.set_lease((w + 1) % WORDS, 1 | EMPTY);
        }),
        ("a slot not in use has frames", |fh, _, _| {
            let mut slots = (0..SLOTS).map(|slot| fh.cpus[1].leases.slot(slot));
            slots.find(|slot| !slot.is_in_use()).unwrap().mask.set(1);
        }),
        ("whose word is not leased", |_, block, w| block.set_lease(w, 0)),
        ("that nobody would look for", |fh, block, w| {
            fh.cpus[0].leases.set_empty(Leases::slot_of(block.base() / 64 + w as u64));
        }),
        ("an offline CPU leases words", |fh, _, _| fh.cpus[0].online.set(false)),
        ("a chunk in hand is not", |fh, _, _| fh.cpus[0].chunk.in_hand.set(1)),
        ("blocks in a hand differ", |fh, _, _| fh.cpus[0].kept.iter().for_each(Place::clear)),
        ("say so hold something", |fh, _, _| fh.cpus[0].holds.set(false)),
        ("whole, and in the bitmap", |fh, block, _| {
            let bit = fh.zones[0].bit(block.number);
            fh.zones[0].bitmap.insert(bit as usize / 64, 1 << (bit % 64));
        }),
        ("class of a block is too low", |_, block, _| {
            assert!(block.change_class(block.class(), CLASS_NONE));
        }),
        ("its row does not show", |fh, block, _| {
            let row = row_of(Migratetype::Movable as usize, block.class());
            fh.zones[0].board.clear(fh.map.blocks.rows(block), row, block.number, || false);
        }),
        ("whose loose frames no row shows", |fh, block, _| {
            fh.zones[0].board.clear(fh.map.blocks.rows(block), LOOSE, block.number, || false);
        }),
        ("count of free frames", |_, block, _| {
            let w = (0..WORDS).find(|&w| block.line.word(w).count_ones() == 32).unwrap();
            let in_use = !block.line.word(w);
            block.line.put(w, in_use & in_use.wrapping_neg()).unwrap();
        }),
        ("marks of frames on the way", |fh, _, _| {
            core::mem::forget(fh.zones[0].moving(fh.outside(), 3));
        }),
        ("about to fail", |fh, _, _| fh.failing.0.0.set(1)),
        ("count of its frames", |fh, _, _| fh.zones[0].managed.set(1 << 12)),
    ];

    #[test]
    fn each_defect_is_told() {
        for (number, (expected, plant)) in DEFECTS.into_iter().enumerate() {
            let (fh, block, w) = used();
            plant(&fh, block, w);
            let found = fh.validate().expect_err(expected);
            assert!(found.what.contains(expected), "{number}: {found}");
        }
    }

    #[test]
    fn counts_of_reserved_blocks_and_whole_ones_are_compared() {
        type Count = fn(&Machine) -> &AtomicU64;
        let counts: [(&str, Count); 3] = [
            ("HIGHATOMIC", |fh| &fh.zones[0].high_atomic_blocks),
            ("CMA", |fh| &fh.zones[0].cma_blocks),
            ("whole", |fh| &fh.zones[0].whole_blocks.0),
        ];
        for (expected, count) in counts {
            let (fh, ..) = used();
            count(&fh).set(count(&fh).get() + 1);
            let found = fh.validate().unwrap_err();
            assert!(found.what.contains(expected), "{found}");
        }
    }

    #[test]
    fn pieces_of_memory_that_overlap_are_told() {
        let memory = [(0, 1024), (2048, 1024)].map(|(at, frames)| frames_at(at, frames));
        let zones = [crate::ZoneConfig::new(&memory)];
        let fh =
            crate::tests::testing::machine_of(&crate::SingleCpu, &crate::Config::new(1, &zones));
        fh.validate().unwrap();
        fh.map.ranges[1].set(512, 1536);
        assert_eq!(fh.validate().unwrap_err().what, "pieces of memory overlap");
        fh.map.ranges[1].set(2048, 1 << 20);
        assert_eq!(fh.validate().unwrap_err().what, "a piece of memory ends in its zone");
    }
}
