//! What a host asks often, answered by the board: whether a request could be served, and about how
//! many chunks of each order there are.
//!
//! ```text
//! ordinary types    a row for each class: one word of its summary for 512 GiB
//! CMA, HIGHATOMIC   one row for all classes: what each block of it says
//! orders above 9    the bitmap, or wholly free CMA blocks side by side
//! ```
//!
//! The board may know of more than there is, never of less while nothing runs. A request that fails
//! puts right what it has met, so that the answer is "no" from then on.

use crate::block::words::CLASS_WHOLE;
use crate::block::{BLOCK_ORDER, Block, CMA, FRAMES, HIGH_ATOMIC, SECTION_BLOCKS_LOG, WORDS};
use crate::cpu::By;
use crate::inspect::stats::count_chunks;
use crate::zone::Zone;
use crate::zone::board::{CLASSES, row_of};
use crate::{AllocFlags, Freehold, ORDERS, Order, Pfn, Platform};

impl<P: Platform> Freehold<'_, P> {
    /// Whether a zone may have a free chunk of that order which no CPU has in hand, by a glance at
    /// its board: what a kernel's watermark check asks before it tries. Of the flags `CMA` says
    /// whether frames of CMA blocks will do, `HIGH_ATOMIC` and `OOM` whether those of HIGHATOMIC
    /// blocks will. False where there is no such zone.
    ///
    /// Takes no lock, and time that grows with the zone's sections by one step for 262,144 of them;
    /// where nothing else is left, by a look at each CMA and HIGHATOMIC block that counts; above
    /// order 9 by a step for 64 blocks. "No" is exact while nothing runs and no CPU has frames in
    /// hand; "yes" may be a class that is out of date, until a request has failed.
    #[must_use]
    pub fn may_have_free(&self, zone: usize, order: Order, flags: AllocFlags) -> bool {
        let Some(zone) = self.zones.get(zone) else { return false };
        let (by, cma) = (self.outside(), flags.contains(AllocFlags::CMA));
        if let Some(runs) = u32::from(order.get()).checked_sub(BLOCK_ORDER).filter(|&n| n != 0) {
            let of_cma = || zone.each_run_of_cma(by, 1 << runs, Some).is_some();
            return zone.bitmap.find(runs, 0, u64::MAX).is_some() || cma && of_cma();
        }
        let reserve = flags.intersects(AllocFlags::HIGH_ATOMIC | AllocFlags::OOM);
        !zone.is_empty_from(by, order.get() + 1, reserve, cma)
    }

    /// Which frames of a block may be free, by a glance, a word for 64 of them: all of a word that a
    /// CPU has leased. None of a block that there is not.
    #[doc(hidden)]
    #[must_use]
    pub fn may_be_free(&self, block: Pfn) -> [u64; WORDS] {
        let block = self.map.locate(block.get());
        block.map_or([0; WORDS], |Block { head, line, .. }| {
            core::array::from_fn(|w| if head.is_leased(w) { !0 } else { line.word(w) })
        })
    }

    /// About how many free chunks of each order a zone has that no CPU has in hand: what
    /// [`ZoneBlocks::free_chunks`](crate::ZoneBlocks::free_chunks) counts exactly by a walk over
    /// all blocks. **An estimate**: whole blocks are counted exactly; of a partly free block its
    /// largest run counts as one chunk, as far as the board knows; all else that is free counts as
    /// single frames. Together they are the zone's free frames. `None` where there is no such zone.
    ///
    /// Takes no lock; looks at 240 bytes for each 128 MiB of memory that was used, and at each CMA
    /// and HIGHATOMIC block.
    #[must_use]
    pub fn listed_chunks(&self, zone: usize) -> Option<[u64; ORDERS]> {
        let zone = self.zones.get(zone)?;
        let mut chunks = [0; ORDERS];
        let of_blocks = &mut chunks[BLOCK_ORDER as usize..];
        zone.bitmap.eights().for_each(|words| count_chunks(&words, of_blocks));
        let mut listed = [0; BLOCK_ORDER as usize + 1];
        for migratetype in 0..HIGH_ATOMIC {
            for class in 1..=CLASSES {
                zone.each_section_in_row(
                    self.outside(),
                    row_of(migratetype, class),
                    0,
                    |_, word| {
                        listed[usize::from(class) - 1] += u64::from(word.count_ones());
                        None::<()>
                    },
                );
            }
        }
        for migratetype in [HIGH_ATOMIC, CMA] {
            zone.each_in_row_from(self.outside(), row_of(migratetype, 1), 0, |block| {
                if let Some(order) = block.class().checked_sub(1) {
                    listed[usize::from(order).min(BLOCK_ORDER as usize)] += 1;
                }
                None::<()>
            });
        }
        // Where classes say more than there is, the larger ones are likelier to be out of date.
        let whole: u64 = chunks.iter().enumerate().map(|(order, n)| n << order).sum();
        let mut left = zone.free(self).all.saturating_sub(whole);
        for (order, n) in listed.into_iter().enumerate() {
            let n = n.min(left >> order);
            chunks[order] += n;
            left -= n << order;
        }
        chunks[0] += left;
        Some(chunks)
    }
}

impl<'m> Zone<'m> {
    /// Whether the board has nothing of that class and above, and the bitmap has nothing.
    /// HIGHATOMIC blocks count if `reserve`, CMA blocks if `cma`.
    pub(crate) fn is_empty_from(
        &'m self,
        by: By<'_, 'm, impl Platform>,
        class: u8,
        reserve: bool,
        cma: bool,
    ) -> bool {
        let has = |block: Block<'m>| (block.class() >= class).then_some(());
        let none_of =
            |migratetype| self.each_in_row_from(by, row_of(migratetype, 1), 0, has).is_none();
        self.wholes() == 0
            && self.board.is_empty_from(class)
            && (!reserve || none_of(HIGH_ATOMIC))
            && (!cma || none_of(CMA))
    }

    /// Calls `see` with the first block of each aligned run of so many CMA blocks all of which are
    /// wholly free as far as their classes say, lowest first, until it returns something.
    pub(crate) fn each_run_of_cma<T>(
        &'m self,
        by: By<'_, 'm, impl Platform>,
        len: u64,
        mut see: impl FnMut(Block<'m>) -> Option<T>,
    ) -> Option<T> {
        let mut run = None::<(Block<'m>, u64)>;
        self.each_in_row_from(by, row_of(CMA, 1), 0, |block| {
            let number = u64::from(block.number);
            let before = run.take();
            if block.class() < CLASS_WHOLE {
                return None;
            }
            let goes_on = |(first, n): &(Block<'m>, u64)| u64::from(first.number) + n == number;
            let (first, n) = match before.filter(goes_on) {
                _ if number % len == 0 => (block, 0),
                Some(run) => run,
                None => return None,
            };
            run = Some((first, n + 1));
            if n + 1 == len { see(first) } else { None }
        })
    }
}

const _: () = assert!(
    1 << (Order::MAX.index() - BLOCK_ORDER as usize) == 8 * u64::BITS as usize
        && FRAMES == 1 << BLOCK_ORDER
        && SECTION_BLOCKS_LOG <= 6
);

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;

    /// The board's answer against what an allocation then gets, while memory goes and comes.
    #[test]
    fn a_glance_tells_whether_a_chunk_of_an_order_may_be_had() {
        let fh = unmarked(1, 2048);
        let cpu = fh.here();
        let has = |o| fh.may_have_free(0, of_order(o), AllocFlags::empty());
        assert!((0..=11).all(has) && !has(12));
        assert!(!fh.may_have_free(1, Order::ZERO, AllocFlags::empty()));
        let request = movable(0);
        let frames: Vec<Pfn> = std::iter::from_fn(|| cpu.alloc(request).ok()).collect();
        assert_eq!(frames.len(), 2048);
        assert!((0..=12).all(|o| !has(o)));
        for pfn in &frames[8..12] {
            cpu.free(*pfn, Order::ZERO).unwrap();
        }
        fh.drain_all();
        assert!((0..=2).all(has) && !(3..=12).any(has));
        let counts = fh.free_chunks(0, Migratetype::Movable).unwrap();
        assert_eq!((counts[2], counts.iter().sum::<u64>()), (1, 1));
        assert_eq!(fh.free_chunks(0, Migratetype::Unmovable).unwrap(), [0; crate::ORDERS]);
        assert!(fh.free_chunks(1, Migratetype::Movable).is_none());
        assert!(cpu.alloc(movable(3)).is_err());
        assert!(cpu.alloc(movable(2)).is_ok());
    }

    /// Four blocks, of which the upper two are CMA, and a request that may have those.
    fn with_cma() -> (Machine, impl Fn(u8) -> Request) {
        let memory = [frames_at(0, 2048)];
        let cma = [frames_at(1024, 1024)];
        let marks = Watermarks::None;
        let zones = [ZoneConfig { cma: &cma, watermarks: marks, ..ZoneConfig::new(&memory) }];
        let of = |o| movable(o).flags(AllocFlags::CMA);
        (machine_of(&SingleCpu, &Config::new(2, &zones)), of)
    }

    /// The one row of CMA blocks has a bit for any of their frames, and so of all orders.
    #[test]
    fn one_cma_frame_is_no_chunk() {
        let (fh, request) = with_cma();
        let cpu = fh.here();
        let all: Vec<Pfn> = std::iter::from_fn(|| cpu.alloc(request(0)).ok()).collect();
        assert_eq!(all.len(), 2048);
        cpu.free(Pfn::new(1500), Order::ZERO).unwrap();
        fh.drain_all();
        let has = |o: u8| fh.may_have_free(0, of_order(o), AllocFlags::CMA);
        assert!(has(0) && !(1..=12).any(has));
        assert!(!fh.may_have_free(0, of_order(0), AllocFlags::empty()));
        // A request that has come to nothing is not repeated, whatever single frames there are.
        cpu.alloc(request(3)).unwrap_err();
        let searches = fh.cpus[0].counters.slow.get();
        cpu.alloc(request(3)).unwrap_err();
        assert_eq!(fh.cpus[0].counters.slow.get(), searches, "it has searched again");
        cpu.alloc(request(0)).unwrap();
    }

    /// A class may be too high: a request that finds nothing puts it right.
    #[test]
    fn a_request_that_has_failed_is_promised_nothing() {
        let (fh, request) = with_cma();
        let cpu = fh.here();
        let all: Vec<Pfn> = std::iter::from_fn(|| cpu.alloc(request(0)).ok()).collect();
        for pfn in (0..2048).filter(|pfn| pfn % 2 == 0) {
            cpu.free(Pfn::new(pfn), Order::ZERO).unwrap();
            cpu.free(Pfn::new(pfn + 1), Order::ZERO).unwrap();
            cpu.flush().unwrap();
            let one = request(0).from(Pfn::new(pfn)).below(Pfn::new(pfn + 1));
            cpu.alloc(one).unwrap();
        }
        assert_eq!(all.len(), 2048);
        for o in 1..=10 {
            cpu.alloc(request(o)).unwrap_err();
            assert!(!fh.may_have_free(0, of_order(o), AllocFlags::CMA), "order {o}");
        }
        assert!(fh.may_have_free(0, of_order(0), AllocFlags::CMA));
    }

    /// Blocks that are no neighbours, or do not start where a chunk has to.
    #[test]
    fn whole_blocks_apart_are_no_larger_chunk() {
        let fh = unmarked(1, 1 << 14);
        let cpu = fh.here();
        let block = movable(9);
        while cpu.alloc(block).is_ok() {}
        let has = |o: u8| fh.may_have_free(0, of_order(o), AllocFlags::empty());
        for n in [1, 2, 5, 6, 9, 12, 13] {
            assert!(!has(10), "before block {n}");
            cpu.free(Pfn::new(n * 512), of_order(9)).unwrap();
            cpu.flush().unwrap();
        }
        assert!(has(9) && has(10) && !has(11));
        cpu.alloc(movable(10)).unwrap();
        assert!(has(9) && !has(10));
    }

    /// Larger chunks come of CMA blocks, too: all of one or none, and wholly free again at the end.
    #[test]
    fn two_cma_blocks_are_a_chunk_of_order_ten() {
        let (fh, request) = with_cma();
        let cpu = fh.here();
        let has = |o: u8| fh.may_have_free(0, of_order(o), AllocFlags::CMA);
        let ordinary = movable(10);
        assert_eq!(cpu.alloc(ordinary), Ok(Pfn::new(0)));
        assert!(has(10) && !has(11));
        cpu.alloc(ordinary).unwrap_err();
        cpu.alloc(request(10).below(Pfn::new(2047))).unwrap_err();
        cpu.alloc(request(10).align(of_order(11))).unwrap_err();
        fh.validate().unwrap();
        // One frame of the second block is in use.
        let frame = cpu.alloc(request(0).from(Pfn::new(1700))).unwrap();
        cpu.alloc(request(10)).unwrap_err();
        assert!(!has(10));
        cpu.free(frame, Order::ZERO).unwrap();
        cpu.flush().unwrap();
        assert!(has(10));
        let chunk = cpu.alloc(request(10).flags(AllocFlags::CMA | AllocFlags::NO_LOCK)).unwrap();
        assert_eq!(chunk, Pfn::new(1024));
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 0);
        cpu.free(chunk, of_order(10)).unwrap();
        cpu.free(Pfn::new(0), of_order(10)).unwrap();
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free_cma, 1024);
        assert_eq!(cpu.alloc(request(10)), Ok(Pfn::new(1024)));
    }

    /// The estimate beside the walk: blocks are counted exactly, all else adds up.
    #[test]
    fn what_the_board_lists_adds_up() {
        let (fh, request) = with_cma();
        let cpu = fh.here();
        let sum = |chunks: [u64; crate::ORDERS]| -> u64 {
            chunks.iter().enumerate().map(|(order, n)| n << order).sum()
        };
        // Two whole blocks are one chunk of order 10 in the bitmap, two CMA blocks are two.
        let listed = fh.listed_chunks(0).unwrap();
        assert_eq!((listed[9], listed[10], sum(listed)), (2, 1, 2048));
        let frames: Vec<Pfn> = (0..2048).map(|_| cpu.alloc(request(0)).unwrap()).collect();
        assert_eq!(fh.listed_chunks(0).unwrap(), [0; crate::ORDERS]);
        for pfn in frames.iter().filter(|pfn| pfn.get() % 32 < 9) {
            cpu.free(*pfn, Order::ZERO).unwrap();
        }
        // Puts right what classes say of runs that are gone.
        cpu.alloc(request(4)).unwrap_err();
        fh.drain_all();
        let (listed, walked) = (fh.listed_chunks(0).unwrap(), fh.zone_blocks(0).unwrap());
        assert_eq!((sum(listed), sum(walked.free_chunks)), (576, 576));
        // Of each block one run of eight, and the rest as single frames.
        assert_eq!((listed[3], walked.free_chunks[3]), (4, 64));
        assert_eq!(listed[4..], walked.free_chunks[4..]);
        assert!(fh.listed_chunks(1).is_none());
    }
}
