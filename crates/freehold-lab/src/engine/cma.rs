//! What CMA serves, kept by whoever makes the calls: the same account for every engine, whatever it
//! counts itself.
//!
//! CMA is memory that a device may claim: only movable requests are served from it. What is in the
//! book is what was handed out and given back; a frame that is not handed out is free, whether in a
//! zone or on some CPU's list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::{FrameRange, Migratetype, Order, Pfn};
use serde::{Deserialize, Serialize};

use super::{Block, Request};

/// What CMA served. The names of the fields are those of `--json` and stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CmaCounts {
    /// Frames of CMA.
    pub frames: u64,
    /// Of these, free at the end, wherever they are held.
    pub free_end: u64,
    /// The fewest that were free.
    pub free_lowest: u64,
    /// Movable requests that were served.
    pub movable_requests: u64,
    /// Of these, served by CMA.
    pub movable_by_cma: u64,
    /// Requests of any type that failed while CMA had at least as many frames free as they wanted.
    pub failed_while_free: u64,
    /// Of these, movable ones: CMA could have served them.
    pub failed_movable: u64,
}

impl CmaCounts {
    /// The share of movable requests that CMA served, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.movable_requests == 0 {
            0.0
        } else {
            self.movable_by_cma as f64 / self.movable_requests as f64
        }
    }
}

/// The account of one engine, or of one of the threads that use it.
#[derive(Debug)]
pub struct CmaBook {
    ranges: Vec<FrameRange>,
    /// Frames in use, common to the accounts of all threads. Relaxed throughout: only the number
    /// counts, and whoever frees a chunk has it from whoever allocated it, so that the sum never
    /// falls below 0.
    used: Arc<AtomicU64>,
    counts: CmaCounts,
    /// Requests that are not movable and got CMA: a defect of the engine.
    strays: u64,
}

impl CmaBook {
    /// Of a machine with that CMA, `used` frames of it in use; `None` where there is none.
    #[must_use]
    pub fn new(ranges: &[FrameRange], used: u64) -> Option<Self> {
        let book = Self::with(ranges.to_vec(), Arc::new(AtomicU64::new(used)));
        (book.counts.frames > 0).then_some(book)
    }

    fn with(ranges: Vec<FrameRange>, used: Arc<AtomicU64>) -> Self {
        let frames = ranges.iter().map(FrameRange::len).sum();
        let counts = CmaCounts { frames, ..CmaCounts::default() };
        let mut book = Self { ranges, used, counts, strays: 0 };
        book.begin();
        book
    }

    /// The account of another thread: what is in use is common to both, what each serves is its
    /// own.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::with(self.ranges.clone(), Arc::clone(&self.used))
    }

    /// Adds what another thread's account counted.
    pub fn add(&mut self, other: &Self) {
        let (counts, more) = (&mut self.counts, &other.counts);
        counts.free_lowest = counts.free_lowest.min(more.free_lowest);
        counts.movable_requests += more.movable_requests;
        counts.movable_by_cma += more.movable_by_cma;
        counts.failed_while_free += more.failed_while_free;
        counts.failed_movable += more.failed_movable;
        self.strays += other.strays;
    }

    /// So many frames of it are in use.
    pub fn in_use(&mut self, used: u64) {
        self.used.store(used, Relaxed);
        self.begin();
    }

    /// Forgets what was counted, not what is in use.
    pub fn begin(&mut self) {
        self.counts = CmaCounts {
            frames: self.counts.frames,
            free_lowest: self.free(),
            ..CmaCounts::default()
        };
    }

    fn is_cma(&self, pfn: Pfn) -> bool {
        self.ranges.iter().any(|range| range.contains(pfn))
    }

    fn free(&self) -> u64 {
        self.counts.frames.saturating_sub(self.used.load(Relaxed))
    }

    /// A request got a chunk.
    pub fn served(&mut self, request: Request, pfn: Pfn) {
        let by_cma = self.is_cma(pfn);
        if request.migratetype == Migratetype::Movable {
            self.counts.movable_requests += 1;
            self.counts.movable_by_cma += u64::from(by_cma);
        } else {
            self.strays += u64::from(by_cma);
        }
        if by_cma {
            let used =
                self.used.fetch_add(request.order.frames(), Relaxed) + request.order.frames();
            self.counts.free_lowest =
                self.counts.free_lowest.min(self.counts.frames.saturating_sub(used));
        }
    }

    /// A request got nothing.
    pub fn failed(&mut self, request: Request) {
        if self.free() >= request.order.frames() {
            self.counts.failed_while_free += 1;
            self.counts.failed_movable += u64::from(request.migratetype == Migratetype::Movable);
        }
    }

    /// A chunk is given back.
    pub fn freed(&mut self, pfn: Pfn, order: Order) {
        if self.is_cma(pfn) {
            // A free that no account has an allocation of is an engine's defect, which is found at
            // the end.
            let _ = self
                .used
                .fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(order.frames())));
        }
    }

    /// What was counted, as of now.
    #[must_use]
    pub fn counts(&self) -> CmaCounts {
        CmaCounts { free_end: self.free(), ..self.counts }
    }

    /// What is wrong with an engine that has these blocks, in words: CMA in the hands of somebody
    /// who cannot move it, or another number of free frames of CMA than the book has.
    #[must_use]
    pub fn findings(&self, blocks: &[Block]) -> Vec<String> {
        let cma = blocks.iter().filter(|block| block.migratetype == Migratetype::Cma);
        self.findings_where(cma.map(|block| u64::from(block.free)).sum())
    }

    /// The findings where so many frames of CMA are free.
    fn findings_where(&self, free: u64) -> Vec<String> {
        let strays = (self.strays > 0)
            .then(|| format!("{} requests that are not movable got CMA", self.strays));
        let other = (free != self.free()).then(|| {
            format!("{free} frames of CMA are free, but {} were not handed out", self.free())
        });
        strays.into_iter().chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::AllocFlags;

    fn request(migratetype: Migratetype, order: u8) -> Request {
        Request { order: Order::new(order).unwrap(), migratetype, flags: AllocFlags::empty() }
    }

    #[test]
    fn what_is_handed_out_of_cma_is_in_the_book() {
        assert!(CmaBook::new(&[], 0).is_none());
        let range = FrameRange::new(Pfn::new(1024), 1024).unwrap();
        let mut book = CmaBook::new(&[range], 24).unwrap();
        let movable = request(Migratetype::Movable, 3);
        book.served(movable, Pfn::new(1024));
        book.served(movable, Pfn::new(512));
        book.served(request(Migratetype::Unmovable, 0), Pfn::new(0));
        book.freed(Pfn::new(1024), Order::new(2).unwrap());
        book.freed(Pfn::new(512), Order::new(3).unwrap());
        book.failed(request(Migratetype::Unmovable, 9));
        book.failed(movable);
        book.failed(request(Migratetype::Movable, 10));
        let counts = CmaCounts {
            frames: 1024,
            free_end: 996,
            free_lowest: 992,
            movable_requests: 2,
            movable_by_cma: 1,
            failed_while_free: 2,
            failed_movable: 1,
        };
        assert_eq!((book.counts(), book.counts().share()), (counts, 0.5));
        assert!(book.findings_where(996).is_empty());
        book.served(request(Migratetype::Reclaimable, 0), Pfn::new(2047));
        assert_eq!(book.findings_where(995).len(), 1, "somebody who cannot be moved");
        assert_eq!(book.findings_where(996).len(), 2, "and a frame too many");
        book.begin();
        let CmaCounts { free_lowest, movable_requests, .. } = book.counts();
        assert_eq!((free_lowest, movable_requests), (995, 0));
    }
}
