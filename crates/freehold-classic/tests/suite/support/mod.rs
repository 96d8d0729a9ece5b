//! Small machines for tests, and short names for what every test does.
//!
//! Watermarks are zero unless a test sets them, so that all memory can be handed out, and every
//! count is exact: one thread plays all CPUs.
// Each test file is a crate of its own and uses a part of this one.
#![allow(dead_code, unused_imports, unreachable_pub)]

use freehold::{AllocFlags, CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Design, Request, Stats, Watermarks};

pub use Migratetype::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};

pub const CPU0: CpuId = CpuId::new(0);
pub const CPU1: CpuId = CpuId::new(1);
/// Where the zone of [`config`] begins.
pub const BASE: Pfn = Pfn::new(0x10_0000);

pub fn design(text: &str) -> Design {
    Design::parse(text).unwrap()
}

pub fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// Two CPUs, one zone of `blocks` pageblocks, no watermarks.
pub fn config(text: &str, blocks: u64) -> Config {
    let mut config = Config::single_zone(design(text), 2, blocks * PAGEBLOCK_FRAMES);
    config.zones[0].watermarks = Some(Watermarks::default());
    config
}

pub fn machine(text: &str, blocks: u64) -> Classic {
    Classic::new(config(text, blocks)).unwrap()
}

/// A machine on which every call reaches the zone: PCPs off, order 9 not kept.
pub fn zone_only(text: &str, blocks: u64) -> Classic {
    zone_only_of(config(text, blocks))
}

pub fn zone_only_of(mut config: Config) -> Classic {
    config.huge_pages = false;
    let classic = Classic::new(config).unwrap();
    classic.pcp_disable();
    classic.reset_stats();
    classic
}

/// The frame `frames` behind the start of the zone.
pub fn at(frames: u64) -> Pfn {
    Pfn::new(BASE.get() + frames)
}

/// How far a frame is from the start of the zone.
pub fn offset(pfn: Pfn) -> u64 {
    pfn.get() - BASE.get()
}

pub fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(at(start), frames).unwrap()
}

/// Pageblock `block` of the zone.
pub fn block(block: u64) -> FrameRange {
    range(block * PAGEBLOCK_FRAMES, PAGEBLOCK_FRAMES)
}

pub fn request(o: u8, migratetype: Migratetype) -> Request {
    Request::new(order(o), migratetype)
}

pub trait Short {
    fn take(&self, cpu: CpuId, o: u8, migratetype: Migratetype) -> Pfn;
    fn take_many(&self, cpu: CpuId, o: u8, migratetype: Migratetype, many: usize) -> Vec<Pfn>;
    fn try_with(&self, o: u8, migratetype: Migratetype, flags: AllocFlags) -> Option<Pfn>;
    fn exhaust(&self, o: u8, migratetype: Migratetype, flags: AllocFlags) -> Vec<Pfn>;
    fn put(&self, cpu: CpuId, pfn: Pfn, o: u8);
    fn put_all(&self, cpu: CpuId, pfns: &[Pfn], o: u8);
    fn counted(&self, work: impl FnOnce()) -> Stats;
    fn types(&self, migratetype: Migratetype) -> u64;
    fn whole_again(&self, blocks: u64);
}

impl Short for Classic {
    fn take(&self, cpu: CpuId, o: u8, migratetype: Migratetype) -> Pfn {
        self.alloc(cpu, request(o, migratetype)).unwrap()
    }

    fn take_many(&self, cpu: CpuId, o: u8, migratetype: Migratetype, many: usize) -> Vec<Pfn> {
        (0..many).map(|_| self.take(cpu, o, migratetype)).collect()
    }

    fn try_with(&self, o: u8, migratetype: Migratetype, flags: AllocFlags) -> Option<Pfn> {
        self.alloc(CPU0, request(o, migratetype).with(flags)).ok()
    }

    /// Everything there is for such a request.
    fn exhaust(&self, o: u8, migratetype: Migratetype, flags: AllocFlags) -> Vec<Pfn> {
        core::iter::from_fn(|| self.try_with(o, migratetype, flags)).collect()
    }

    fn put(&self, cpu: CpuId, pfn: Pfn, o: u8) {
        let _ = self.free(cpu, pfn, order(o)).unwrap();
    }

    fn put_all(&self, cpu: CpuId, pfns: &[Pfn], o: u8) {
        pfns.iter().for_each(|&pfn| self.put(cpu, pfn, o));
    }

    /// What `work` alone adds to the counters.
    fn counted(&self, work: impl FnOnce()) -> Stats {
        self.reset_stats();
        work();
        self.validate().unwrap();
        self.stats()
    }

    /// Pageblocks of a type.
    fn types(&self, migratetype: Migratetype) -> u64 {
        self.memory_map().blocks_by_type[migratetype.index()]
    }

    /// Nothing is in use and nothing is lost.
    fn whole_again(&self, blocks: u64) {
        self.drain_all();
        self.validate().unwrap();
        let map = self.memory_map();
        assert_eq!((map.free, map.free_blocks), (blocks * PAGEBLOCK_FRAMES, blocks));
    }
}
