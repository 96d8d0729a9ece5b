//! A hand for one chunk of whole words, which a CPU frees and allocates in turn.
//!
//! Chunks of orders 6 to 8 go into their words, and come from there by a hint: two exchanges for
//! each word of a pair. A second free in a row of the chunk that came so last leases its words
//! instead, all at once, while nearly all of the zone's memory is whole: the third of three, as a
//! rule. Where chunks are freed at random that is rare. The pairs after it write to nothing that
//! others share.
//!
//! | | `mask` of its slots | `in_hand` |
//! |---|---|---|
//! | in hand | all | how many words it has, and the migratetype that it serves |
//! | given out | nothing | 0 |
//! | this CPU frees a part of it, a slot is needed, a tick, a recall | all words go back together | 0 |
//!
//! What another CPU frees of it lies in its words, which stay leased until one of these, or until
//! this CPU's next allocation on the slow way, tick or flush.
//! Its slots are leases as any to a wrong free, a recall and an isolation. No request for frames or
//! runs comes to them, and no part of a word is freed into them.

use crate::Platform;
use crate::alloc::fast::FastAlloc;
use crate::block::{Block, HIGH_ATOMIC, MOVABLE, WORDS};
use crate::cpu::Cpu;
use crate::cpu::lease::{Lease, Leases, NO_WORD, Purpose, SLOTS};
use crate::free::fast::FastFree;
use crate::primitive::{AtomicU32, AtomicU64, Count, Relaxed};

/// Which chunk it is. Under the CPU's door.
pub(crate) struct Chunk {
    /// The first frame of the chunk whose words the CPU leases; [`NO_WORD`] for none.
    first: AtomicU64,
    /// What it is: see [`kind_of`]. 0 for none.
    kind: AtomicU32,
    /// That, while it is in hand.
    pub(crate) in_hand: AtomicU32,
    /// The first frame of the last chunk that was freed, or given out from here.
    pub(crate) freed: AtomicU64,
    /// That of the last one that was freed twice in a row.
    twice: AtomicU64,
}

/// A chunk of so many words that serves a migratetype, as one number.
const fn kind_of(len: usize, migratetype: usize) -> u32 {
    (len << 3 | migratetype & 7) as u32
}

impl Chunk {
    pub(crate) fn new() -> Self {
        let nowhere = || AtomicU64::new(NO_WORD);
        Self {
            first: nowhere(),
            kind: AtomicU32::new(0),
            in_hand: AtomicU32::new(0),
            freed: nowhere(),
            twice: nowhere(),
        }
    }

    /// Whether a chunk of so many words for that type is in hand.
    #[inline(always)]
    pub(crate) fn is_in_hand<const LEN: usize>(&self, migratetype: usize) -> bool {
        self.in_hand.get() == kind_of(LEN, migratetype)
    }

    /// How many words it has.
    fn len(&self) -> usize {
        self.kind.get() as usize >> 3
    }

    /// Whether it says what the slots have; for `validate`.
    pub(crate) fn agrees(&self, leases: &Leases<'_>) -> bool {
        let (first, len, in_hand) = (self.first.get(), self.len() as u64, self.in_hand.get());
        let is_of_chunk = |slot: &Lease<'_>| slot.is_in_use() && slot.is_of_chunk();
        let slots = (0..SLOTS).filter(|&slot| is_of_chunk(leases.slot(slot))).count() as u64;
        let mut words = (0..len).map(|n| first / 64 + n);
        let has = if in_hand == 0 { 0 } else { !0 };
        (len == 0) == (first == NO_WORD)
            && slots == len
            && (in_hand == 0 || in_hand == self.kind.get())
            && words.all(|key| {
                let slot = leases.slot(Leases::slot_of(key));
                slot.is_of(key) && is_of_chunk(slot) && slot.all() == has
            })
    }
}

impl<P: Platform> FastAlloc<'_, '_, P> {
    /// Gives out the chunk in hand, which is one of so many words; `NO_WORD` where somebody has
    /// freed a part of it, wrongly.
    #[inline(never)]
    pub(crate) fn take_chunk<const LEN: usize>(self) -> u64 {
        let chunk = &self.cpu.chunk;
        let first = chunk.first.get();
        let slots = self.cpu.leases.slots_of::<LEN>(first);
        if slots.iter().fold(0, |any, slot| any | slot.word()) != 0 {
            return self.strays_of_chunk();
        }
        slots.iter().for_each(|slot| slot.mask.set(0));
        chunk.in_hand.set(0);
        chunk.freed.set(first);
        first
    }

    #[cold]
    #[inline(never)]
    fn strays_of_chunk(self) -> u64 {
        self.end_chunk();
        NO_WORD
    }
}

impl<'m, P: Platform> FastFree<'_, 'm, P> {
    /// Frees a chunk that was freed last, or given out from the hand.
    #[inline(never)]
    pub(crate) fn free_chunk_again<const LEN: usize>(self, pfn: u64) -> bool {
        self.chunk_to_hand::<LEN>(pfn) || self.chunk_again_slow::<LEN>(pfn)
    }

    /// Frees the chunk that was given out from the hand, if it is that.
    #[inline(always)]
    fn chunk_to_hand<const LEN: usize>(self, pfn: u64) -> bool {
        let chunk = &self.cpu.chunk;
        let kind = chunk.kind.get();
        if chunk.first.get() != pfn || kind >> 3 != LEN as u32 {
            return false;
        }
        let slots = self.cpu.leases.slots_of::<LEN>(pfn);
        if slots.iter().fold(0, |any, slot| any | slot.mask.get() | slot.word()) != 0 {
            // It is free, or a part of it: the slow way knows.
            return false;
        }
        slots.iter().for_each(|slot| slot.mask.set(!0));
        chunk.in_hand.set(kind);
        self.counters.local_frees.add(1);
        true
    }

    /// [`chunk_to_hand`](Self::chunk_to_hand), where some of its words are leased.
    #[cold]
    #[inline(never)]
    pub(crate) fn leased_chunk_to_hand<const LEN: usize>(
        self,
        block: Block<'m>,
        first: usize,
    ) -> bool {
        self.chunk_to_hand::<LEN>(block.base() + first as u64 * 64)
    }

    #[cold]
    #[inline(never)]
    fn chunk_again_slow<const LEN: usize>(self, pfn: u64) -> bool {
        // Where every CPU may have all of its slots a chunk takes no word from anything else.
        let may = self.home().is_roomy() && self.leases.limit.get() == SLOTS as u32;
        let third = may && self.chunk.twice.get() == pfn;
        self.chunk.twice.set(pfn);
        third && self.lease_chunk(pfn, LEN) || self.other_words_to_block::<LEN>(pfn)
    }

    /// Leases the words of a chunk that is freed, if all that is in the ordinary. `false` where
    /// nothing was freed.
    fn lease_chunk(self, pfn: u64, len: usize) -> bool {
        let Some(block) = self.fh.map.locate(pfn) else { return false };
        let (head, line, chunk) = (block.head, block.line, &self.chunk);
        let (tag, first) = (head.tag.get(), (pfn / 64) as usize % WORDS);
        let words = || first..first + len;
        let in_use = || words().all(|w| line.word(w) == 0 && head.lease(w) == 0);
        let ordinary = tag.is_ordinary_in(self.home_split.get()) && tag.migratetype() < HIGH_ATOMIC;
        // Where a zone has CMA blocks, movable requests look on the board first.
        let comes_again = tag.migratetype() != MOVABLE || self.home().cma_blocks.get() == 0;
        let may = ordinary && comes_again && self.online.get() && self.may_lease();
        if cfg!(feature = "debug-poison") || !may || pfn % (64 * len as u64) != 0 || !in_use() {
            return false;
        }
        self.end_chunk();
        let key = pfn / 64;
        let slot = |n: usize| self.leases.slot(Leases::slot_of(key + n as u64));
        for n in (0..len).filter(|&n| slot(n).is_of(key + n as u64)) {
            // Others had taken the word over.
            self.slot(Leases::slot_of(key + n as u64)).end();
        }
        chunk.first.set(pfn);
        chunk.kind.set(kind_of(len, tag.migratetype()));
        let kind = (Purpose::Words, tag.migratetype());
        let lease = |w: &usize| self.lease(block, *w, tag, kind, (!0, None)).is_some();
        // Where the zone has just become scarce, room for one word may have ended all before it.
        let leased = words().take_while(|w| chunk.first.get() == pfn && lease(w)).count();
        // Whoever frees the first word has freed them all.
        let all = leased == len && chunk.first.get() == pfn;
        if all {
            chunk.in_hand.set(chunk.kind.get());
        } else {
            self.end_chunk_of(pfn, leased);
            if leased != 0 {
                words().skip(leased).for_each(|w| self.by().put_back(block, w, !0));
            }
        }
        self.count_frees((leased != 0).into());
        leased != 0
    }
}

impl<P: Platform> Cpu<'_, '_, P> {
    /// The chunk goes back where others have freed some of it: nobody finds that in leased words.
    /// So begin `alloc_slow` and all that enters by [`Handle::enter`](crate::Handle).
    #[inline(always)]
    pub(crate) fn end_freed_chunk(self) {
        if self.chunk.first.get() != NO_WORD {
            self.end_chunk_if_freed();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_chunk_if_freed(self) {
        let (first, len) = (self.chunk.first.get() / 64, self.chunk.len() as u64);
        let word = |n: u64| self.cpu.leases.slot(Leases::slot_of(first + n)).word();
        if (0..len).any(|n| word(n) != 0) {
            self.end_chunk();
        }
    }

    /// The chunk goes back, wherever it is.
    pub(crate) fn end_chunk(self) {
        let chunk = &self.cpu.chunk;
        self.end_chunk_of(chunk.first.get(), chunk.len());
    }

    fn end_chunk_of(self, first: u64, len: usize) {
        let chunk = &self.cpu.chunk;
        chunk.in_hand.set(0);
        chunk.first.set(NO_WORD);
        chunk.kind.set(0);
        for key in (0..len as u64).map(|n| first / 64 + n) {
            let slot = Leases::slot_of(key);
            if self.leases.slot(slot).is_of(key) {
                self.slot(slot).end_alone();
            }
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "debug-poison"))))]
mod tests {
    use super::*;
    use crate::alloc::runs::Fit;
    use crate::tests::testing::*;
    use crate::{FreeError, Order};

    const FRAMES_OF_MACHINE: u64 = 1 << 16;

    /// A CPU that has freed a chunk of that order three times in a row, and has it in hand.
    fn in_hand(order: u8) -> (Machine, Pfn) {
        let fh = unmarked(2, FRAMES_OF_MACHINE);
        fh.cpus.iter().for_each(|cpu| cpu.leases.set_limits(SLOTS as u64, SLOTS as u64));
        let cpu = fh.here();
        let pfn = cpu.alloc(movable(order)).unwrap();
        for _ in 0..2 {
            cpu.free(pfn, of_order(order)).unwrap();
            assert_eq!(fh.cpus[0].leases.held.get(), 0, "two frees are none of a row");
            assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
        }
        cpu.free(pfn, of_order(order)).unwrap();
        assert_eq!(fh.cpus[0].leases.held.get().count_ones(), 1 << (order - 6));
        fh.validate().unwrap();
        (fh, pfn)
    }

    /// All is free, and nobody has anything.
    fn is_as_before(fh: &Machine) {
        fh.drain_all();
        fh.validate().unwrap();
        let stats = fh.zone_stats(0).unwrap();
        assert_eq!((stats.free, stats.free_in_cpus), (FRAMES_OF_MACHINE, 0));
        assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, FRAMES_OF_MACHINE / 512);
    }

    #[test]
    fn pairs_of_a_chunk_come_from_the_hand() {
        for order in 6..9 {
            let (fh, pfn) = in_hand(order);
            let cpu = fh.here();
            let writes = fh.cpus[0].counters.shared_writes.get();
            for n in 1..10 {
                assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
                assert_eq!(fh.zone_stats(0).unwrap().free, FRAMES_OF_MACHINE - (1 << order));
                cpu.free(pfn, of_order(order)).unwrap();
                assert_eq!(cpu.stats().unwrap().local_frees, n);
                fh.validate().unwrap();
            }
            assert_eq!(fh.cpus[0].counters.shared_writes.get(), writes);
            // Of another order, or type, it is not for.
            assert_ne!(cpu.alloc(movable(6 + (order - 5) % 3)), Ok(pfn));
            let unmovable = Request::new(of_order(order), Migratetype::Unmovable);
            assert_ne!(cpu.alloc(unmovable), Ok(pfn));
            assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
        }
    }

    /// Freed in two parts, frame by frame, by another CPU, in its place: each part is free once, and
    /// none is in the hand, where nobody takes a part of a chunk.
    #[test]
    fn what_is_freed_of_a_chunk_that_was_given_out_is_free_once() {
        for order in 6..9 {
            let (half, frames) = (of_order(order - 1), 1 << order);
            let upper = |pfn: Pfn| Pfn::new(pfn.get() + frames / 2);
            for way in 0..4 {
                let (fh, pfn) = in_hand(order);
                let cpu = fh.here();
                assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
                let all = || (0..frames).map(|n| Pfn::new(pfn.get() + n));
                let free = |pfn, order| {
                    cpu.free(pfn, order).unwrap();
                    fh.validate().unwrap();
                };
                match way {
                    0 => [pfn, upper(pfn)].iter().for_each(|&pfn| free(pfn, half)),
                    1 => all().for_each(|pfn| free(pfn, Order::ZERO)),
                    2 => fh.on(CpuId::new(1)).free(pfn, of_order(order)).unwrap(),
                    _ => cpu.free_bulk(&all().collect::<Vec<_>>()).unwrap(),
                }
                let again = cpu.free(pfn, of_order(order));
                assert!(matches!(again, Err(FreeError::DoubleFree { .. })), "{order} {way}");
                is_as_before(&fh);
            }
        }
    }

    #[test]
    fn nothing_is_freed_into_or_taken_of_a_chunk_in_hand() {
        for order in 6..9 {
            let (fh, pfn) = in_hand(order);
            let (cpu, last) = (fh.here(), Pfn::new(pfn.get() + (1 << order) - 1));
            for other in [&cpu, &fh.on(CpuId::new(1))] {
                for (pfn, order) in [(pfn, order), (pfn, 6), (last, 0)] {
                    let freed = other.free(pfn, of_order(order));
                    assert!(matches!(freed, Err(FreeError::DoubleFree { .. })));
                }
            }
            let owned = fh.own(CpuId::new(0)).unwrap();
            assert!(!owned.alloc_run_at(pfn, 4, Fit::All));
            assert!(!owned.free_run_at_hand(pfn, 4));
            drop(owned);
            assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
            cpu.free(pfn, of_order(order)).unwrap();
            is_as_before(&fh);
        }
    }

    #[test]
    fn a_chunk_in_hand_is_found_by_who_needs_it_and_goes_back_at_a_tick() {
        for order in 6..9 {
            let (fh, pfn) = in_hand(order);
            let other = fh.on(CpuId::new(1));
            let mut all = Vec::new();
            while let Ok(pfn) = other.alloc(movable(order)) {
                all.push(pfn);
            }
            assert!(all.contains(&pfn) && all.len() as u64 == FRAMES_OF_MACHINE >> order);
            all.into_iter().for_each(|pfn| other.free(pfn, of_order(order)).unwrap());
            is_as_before(&fh);
            for given_out in [false, true] {
                let (fh, pfn) = in_hand(order);
                let cpu = fh.here();
                if given_out {
                    assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
                }
                cpu.tick().unwrap();
                assert_eq!(fh.cpus[0].leases.held.get(), 0);
                assert_eq!(cpu.free(pfn, of_order(order)).is_ok(), given_out);
                is_as_before(&fh);
            }
        }
    }

    /// It lies in leased words, where no other CPU looks, until the one that leases them goes the
    /// slow way for whatever it is.
    #[test]
    fn what_another_cpu_frees_of_a_chunk_is_everybodys_soon() {
        let mut frames = [Pfn::new(0); 1024];
        let ways: [&mut dyn FnMut(&Machine); 5] = [
            &mut |fh| {
                _ = fh.here().alloc(Request::new(Order::ZERO, Migratetype::Unmovable)).unwrap()
            },
            &mut |fh| _ = fh.here().alloc(movable(9)).unwrap(),
            &mut |fh| _ = fh.here().alloc_run(600).unwrap(),
            &mut |fh| _ = fh.here().alloc(movable(0).align(of_order(3))).unwrap(),
            &mut |fh| assert_eq!(fh.here().alloc_bulk(movable(0), &mut frames), Ok(1024)),
        ];
        for (n, way) in ways.into_iter().enumerate() {
            for (order, part) in [(6, 6), (8, 8), (8, 0)] {
                let (fh, pfn) = in_hand(order);
                assert_eq!(fh.here().alloc(movable(order)), Ok(pfn));
                fh.on(CpuId::new(1)).free(pfn, of_order(part)).unwrap();
                way(&fh);
                assert_eq!(fh.cpus[0].chunk.first.get(), NO_WORD, "way {n}, {order}, {part}");
                fh.validate().unwrap();
            }
        }
    }

    /// Of a request that may not wait, too, and where nothing was freed into words of late.
    #[test]
    fn a_request_on_the_slow_way_has_the_chunk_in_hand() {
        for order in 6..9 {
            let (fh, pfn) = in_hand(order);
            fh.cpus[0].recent.clear();
            let no_lock = movable(order).flags(AllocFlags::NO_LOCK);
            assert_eq!(fh.here().alloc(no_lock), Ok(pfn));
            fh.validate().unwrap();
        }
    }

    #[test]
    fn no_chunk_is_leased_by_who_may_not() {
        type Way = (&'static str, fn(&Machine));
        let ways: [Way; 4] = [
            ("", |_| ()),
            ("offline", |fh| fh.cpus[0].online.set(false)),
            ("a request is about to fail", |fh| fh.failing.0.0.set(1)),
            ("few words", |fh| fh.cpus[0].leases.set_limits(15, 4)),
        ];
        for (why, change) in ways {
            let (fh, pfn) = in_hand(6);
            assert_eq!(fh.here().alloc(movable(6)), Ok(pfn));
            fh.here().tick().unwrap();
            change(&fh);
            assert!(FastFree(*inside(&fh, 0)).words_to_block::<1>(pfn.get()), "{why}");
            assert_eq!(fh.cpus[0].leases.held.get() == 0, !why.is_empty(), "{why}");
        }
    }

    /// Nobody's number is not the first frame of the chunk that there is none of.
    #[test]
    fn a_wrong_frame_number_is_no_chunk() {
        for order in 6..9 {
            let (fh, _) = in_hand(order);
            fh.here().tick().unwrap();
            assert!(fh.here().free(Pfn::new(u64::MAX), of_order(order)).is_err());
            fh.validate().unwrap();
        }
    }

    /// A part of the chunk is freed, wrongly, at each step of the free that leases it, and of pairs
    /// from the hand: it is told, and free once.
    #[test]
    fn a_wrong_free_at_any_step_counts_once() {
        for (order, leases) in [(6, true), (8, true), (7, false)] {
            let (mut n, mut reached) = (0, true);
            while reached {
                n += 1;
                let (fh, pfn) = in_hand(order);
                let fh: &'static Machine = leaked(fh);
                let cpu = fh.here();
                if leases {
                    cpu.tick().unwrap();
                }
                assert_eq!(cpu.alloc(movable(order)), Ok(pfn));
                let wrong = move || {
                    let frame = Pfn::new(pfn.get() + (1 << order) - 3);
                    let _ =
                        Freeing::of(fh, None).word(frame.get() / 64, 1 << (frame.get() % 64), 1);
                };
                let free = || cpu.free(pfn, of_order(order));
                let (_, ran) = interrupted(n, wrong, free);
                let again = cpu.alloc(movable(order)).unwrap();
                cpu.free(again, of_order(order)).unwrap();
                reached = ran;
                // What was in use still, as the free was refused.
                for n in 0..1 << order {
                    let _ = cpu.free(Pfn::new(pfn.get() + n), Order::ZERO);
                }
                is_as_before(fh);
            }
        }
    }
}
