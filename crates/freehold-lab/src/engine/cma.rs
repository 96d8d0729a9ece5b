//! What CMA serves, kept by whoever makes the calls: the same account for every engine, whatever it
//! counts itself.
//!
//! CMA is memory that a device may claim: only movable requests are served from it. What is in the
//! book is what was handed out and given back; a frame that is not handed out is free, whether in a
//! zone or on some CPU's list.

use freehold::{FrameRange, Migratetype, Order, Pfn};
use serde::{Deserialize, Serialize};

use super::Request;

/// What CMA served. The names of the fields are those of `--json` and stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CmaCounts {
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
    pub fn share(&self) -> f64 {
        if self.movable_requests == 0 {
            0.0
        } else {
            self.movable_by_cma as f64 / self.movable_requests as f64
        }
    }
}

/// The account of one engine.
#[derive(Debug)]
pub struct CmaBook {
    ranges: Vec<FrameRange>,
    /// Frames in use.
    used: u64,
    counts: CmaCounts,
    /// Requests that are not movable and got CMA: a defect of the engine.
    strays: u64,
}

impl CmaBook {
    /// Of a machine with that CMA, `used` frames of it in use; `None` where there is none.
    pub fn new(ranges: &[FrameRange], used: u64) -> Option<Self> {
        let frames = ranges.iter().map(FrameRange::len).sum();
        let counts = CmaCounts { frames, ..CmaCounts::default() };
        let mut book = Self { ranges: ranges.to_vec(), used, counts, strays: 0 };
        book.begin();
        (frames > 0).then_some(book)
    }

    /// So many frames of it are in use.
    pub fn in_use(&mut self, used: u64) {
        self.used = used;
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
        self.counts.frames.saturating_sub(self.used)
    }

    pub fn served(&mut self, request: Request, pfn: Pfn) {
        let by_cma = self.is_cma(pfn);
        if request.migratetype == Migratetype::Movable {
            self.counts.movable_requests += 1;
            self.counts.movable_by_cma += u64::from(by_cma);
        } else {
            self.strays += u64::from(by_cma);
        }
        if by_cma {
            self.used += request.order.frames();
            self.counts.free_lowest = self.counts.free_lowest.min(self.free());
        }
    }

    pub fn failed(&mut self, request: Request) {
        if self.free() >= request.order.frames() {
            self.counts.failed_while_free += 1;
            self.counts.failed_movable += u64::from(request.migratetype == Migratetype::Movable);
        }
    }

    pub fn freed(&mut self, pfn: Pfn, order: Order) {
        if self.is_cma(pfn) {
            // A free that the account has no allocation of is an engine's defect, which is found at
            // the end.
            self.used = self.used.saturating_sub(order.frames());
        }
    }

    /// What was counted, as of now.
    pub fn counts(&self) -> CmaCounts {
        CmaCounts { free_end: self.free(), ..self.counts }
    }

    /// What is wrong with an engine that has so many frames of CMA free, in words: CMA in the hands
    /// of somebody who cannot move it, or another number than the book has.
    pub fn findings(&self, free: u64) -> Vec<String> {
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
        assert!(book.findings(996).is_empty());
        book.served(request(Migratetype::Reclaimable, 0), Pfn::new(2047));
        assert_eq!(book.findings(995).len(), 1, "somebody who cannot be moved");
        assert_eq!(book.findings(996).len(), 2, "and a frame too many");
        book.begin();
        let CmaCounts { free_lowest, movable_requests, .. } = book.counts();
        assert_eq!((free_lowest, movable_requests), (995, 0));
    }
}
