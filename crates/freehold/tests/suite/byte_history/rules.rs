//! When a request must not fail, said by looking at every frame; and what the allocator must say of
//! its blocks.

use freehold::{AllocFlags, Freehold, Migratetype, Order, PageblockState};

use crate::common::Any;

use super::model::Model;

/// A request, spelled out.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub order: Order,
    /// At least `order`.
    pub align: Order,
    pub from: u64,
    pub below: u64,
    pub migratetype: Migratetype,
    pub flags: AllocFlags,
}

impl Wanted {
    fn cma(&self) -> bool {
        self.migratetype == Migratetype::Movable && self.flags.contains(AllocFlags::CMA)
    }

    /// Whether blocks of that type will do. HIGHATOMIC ones may, or may not.
    fn may_use(&self, migratetype: Migratetype) -> bool {
        Migratetype::PCP.contains(&migratetype) || migratetype == Migratetype::Cma && self.cma()
    }

    /// The part of a min watermark that it keeps.
    fn mark(&self, min: u64) -> u64 {
        let mut mark = min;
        for (flag, part) in
            [(AllocFlags::MIN_RESERVE, 2), (AllocFlags::NON_BLOCK, 4), (AllocFlags::OOM, 2)]
        {
            mark -= if self.flags.contains(flag) { mark / part } else { 0 };
        }
        if self.flags.contains(AllocFlags::NO_WATERMARKS) { 0 } else { mark }
    }

    /// Frames that a request which has just failed should have got: in a zone that keeps its mark
    /// without them. All free frames count for that, in whichever hand they were.
    pub fn should_have_got(&self, fh: &Freehold<'_, Any<'_>>, model: &Model) -> Option<u64> {
        (0..fh.zone_count()).find_map(|z| {
            let blocks: Vec<_> =
                fh.pageblocks(z).filter(|block| self.may_use(block.migratetype)).collect();
            let mark = self.mark(fh.zone_stats(z).unwrap().watermarks[0]);
            // CMA frames do not count for a thread that takes others.
            let allowed = |cma: bool| {
                let counts = |block: &&PageblockState| cma || block.migratetype != Migratetype::Cma;
                let free = |block: &PageblockState| u64::from(block.free);
                let own: u64 = blocks.iter().filter(counts).map(free).sum();
                own.checked_sub(self.order.frames()).is_some_and(|left| left >= mark)
            };
            if self.order > Order::PAGEBLOCK {
                return self.run_of_blocks(&blocks).filter(|_| allowed(false));
            }
            let may_go = |block: &&PageblockState| allowed(block.migratetype == Migratetype::Cma);
            blocks.iter().filter(may_go).find_map(|block| self.run_in(block, model))
        })
    }

    fn run_in(&self, block: &PageblockState, model: &Model) -> Option<u64> {
        let start = block.start.get();
        let (low, high) = (start.max(self.from), (start + 512).min(self.below));
        let first = low.checked_next_multiple_of(self.align.frames())?;
        let is_free = |pfn: u64| model.get(pfn).is_free();
        let fits = |&at: &u64| {
            at + self.order.frames() <= high && (at..at + self.order.frames()).all(is_free)
        };
        (first..high).step_by(self.align.frames() as usize).find(fits)
    }

    fn run_of_blocks(&self, blocks: &[PageblockState]) -> Option<u64> {
        let whole =
            |block: &PageblockState| block.free == 512 && block.migratetype != Migratetype::Cma;
        let blocks = blocks.iter().filter(|block| whole(block)).map(|block| block.start.get());
        let blocks: std::collections::BTreeSet<u64> = blocks.collect();
        let fits = |&&at: &&u64| {
            let end = at + self.order.frames();
            at % self.align.frames() == 0
                && at >= self.from
                && end <= self.below
                && (at..end).step_by(512).all(|block| blocks.contains(&block))
        };
        blocks.iter().find(fits).copied()
    }

    /// Whether it may have got that frame, by the type of its block.
    pub fn may_have(&self, fh: &Freehold<'_, Any<'_>>, pfn: u64) -> bool {
        let Some(zone) = fh.zone_of(freehold::Pfn::new(pfn)) else { return false };
        let block = fh.pageblocks(zone).find(|block| block.start.get() == pfn / 512 * 512);
        let reserves = AllocFlags::HIGH_ATOMIC | AllocFlags::NON_BLOCK | AllocFlags::OOM;
        block.is_some_and(|block| match block.migratetype {
            Migratetype::HighAtomic => self.flags.intersects(reserves),
            migratetype => self.may_use(migratetype),
        })
    }
}

/// What the allocator says of its blocks and of its largest free chunks is what the model has.
pub fn check_blocks(fh: &Freehold<'_, Any<'_>>, model: &Model) {
    for z in 0..fh.zone_count() {
        let (stats, blocks) = (fh.zone_stats(z).unwrap(), fh.zone_blocks(z).unwrap());
        let (mut seen, mut free, mut by_type) = (0, 0, [0; 6]);
        for block in fh.pageblocks(z) {
            let frames = (u64::from(block.frames), u64::from(block.free));
            assert_eq!(frames, model.count(block.start.get()), "{block:?}");
            (seen, free) = (seen + frames.0, free + frames.1);
            by_type[block.migratetype.index()] += 1;
        }
        assert_eq!(
            (seen, free, by_type),
            (stats.managed, stats.free, blocks.blocks_by_type),
            "zone {z}"
        );
        let chunks: u64 = blocks.free_chunks.iter().enumerate().map(|(order, n)| n << order).sum();
        assert_eq!(chunks, stats.free, "zone {z}: its chunks are not all that is free");
        let span = model.spans[z];
        let largest =
            (0..=Order::MAX.get()).rev().map(|order| Order::new(order).unwrap()).find(|&order| {
                model.free_run(order.frames(), order, span.start.get(), span.end.get()).is_some()
            });
        assert_eq!(blocks.largest_free_order(), largest, "zone {z}");
    }
}
