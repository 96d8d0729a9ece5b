//! Long random histories, wrong calls included, against the simplest model there is: the set of
//! frames in use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::*;
use crate::histories::histories;
use freehold::{
    AllocError, AllocFlags, Config, FrameRange, FreeError, Migratetype, Order, Pfn, Platform,
    Request, Watermarks, ZoneConfig,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        cpu: u16,
        order: u8,
        migratetype: usize,
        align: u8,
        flags: u16,
    },
    Bulk {
        cpu: u16,
        n: usize,
        migratetype: usize,
    },
    /// Frees a whole allocation, or a piece of one.
    Free {
        cpu: u16,
        pick: usize,
        from: u64,
        len: u64,
    },
    FreeOrder {
        cpu: u16,
        pick: usize,
    },
    FreeBulk {
        cpu: u16,
        pick: usize,
        n: usize,
        step: usize,
    },
    Wrong {
        cpu: u16,
        pfn: u64,
        len: u64,
    },
    Tick {
        cpu: u16,
    },
    Drain,
    /// A request within address limits.
    Limited {
        cpu: u16,
        order: u8,
        from: u64,
        len: u64,
    },
    /// Exactly these frames; users are moved away, or not.
    Contig {
        start: u64,
        len: u64,
        moving: bool,
    },
    /// A CPU goes and comes back.
    Replug {
        cpu: u16,
    },
    /// A piece of memory goes, if it is free, and comes back.
    Remove {
        start: u64,
        blocks: u64,
    },
    /// From a context that may not wait.
    NoLock {
        cpu: u16,
        order: u8,
    },
    /// Calls by a CPU's owner.
    Owned {
        cpu: u16,
        order: u8,
        pick: usize,
    },
}

const CPUS: u16 = 3;

fn ops() -> impl Strategy<Value = Op> {
    let cpu = 0..CPUS;
    prop_oneof![
        6 => (cpu.clone(), prop_oneof![4 => 0u8..3, 2 => 0u8..10, 1 => 0u8..13], 0usize..3, 0u8..3, 0u16..128)
            .prop_map(|(cpu, order, migratetype, align, flags)| Op::Alloc { cpu, order, migratetype, align, flags }),
        2 => (cpu.clone(), 1usize..700, 0usize..3).prop_map(|(cpu, n, migratetype)| Op::Bulk { cpu, n, migratetype }),
        4 => (cpu.clone(), any::<usize>(), any::<u64>(), any::<u64>())
            .prop_map(|(cpu, pick, from, len)| Op::Free { cpu, pick, from, len }),
        4 => (cpu.clone(), any::<usize>()).prop_map(|(cpu, pick)| Op::FreeOrder { cpu, pick }),
        2 => (cpu.clone(), any::<usize>(), 1usize..400, 1usize..40)
            .prop_map(|(cpu, pick, n, step)| Op::FreeBulk { cpu, pick, n, step }),
        2 => (cpu.clone(), 0u64..20000, 1u64..700).prop_map(|(cpu, pfn, len)| Op::Wrong { cpu, pfn, len }),
        1 => cpu.clone().prop_map(|cpu| Op::Tick { cpu }),
        1 => Just(Op::Drain),
        1 => (cpu.clone(), 0u8..11, 0u64..20000, 1u64..20000)
            .prop_map(|(cpu, order, from, len)| Op::Limited { cpu, order, from, len }),
        1 => (0u64..20000, 1u64..2000, any::<bool>()).prop_map(|(start, len, moving)| Op::Contig { start, len, moving }),
        1 => cpu.clone().prop_map(|cpu| Op::Replug { cpu }),
        1 => (0u64..40, 1u64..4).prop_map(|(start, blocks)| Op::Remove { start, blocks }),
        1 => (cpu.clone(), 0u8..10).prop_map(|(cpu, order)| Op::NoLock { cpu, order }),
        2 => (cpu.clone(), prop_oneof![Just(0u8), Just(9), 0u8..10], any::<usize>())
            .prop_map(|(cpu, order, pick)| Op::Owned { cpu, order, pick }),
    ]
}

/// Frames in use: maximal runs by their start.
#[derive(Default)]
struct Model {
    used: BTreeMap<u64, u64>,
}

impl Model {
    fn overlaps(&self, start: u64, len: u64) -> bool {
        self.used.range(..start + len).next_back().is_some_and(|(s, l)| s + l > start)
    }

    fn add(&mut self, start: u64, len: u64) {
        assert!(!self.overlaps(start, len), "{start:#x}+{len} handed out twice");
        self.used.insert(start, len);
    }

    fn covers(&self, start: u64, len: u64) -> bool {
        let mut at = start;
        while at < start + len {
            match self.used.range(..=at).next_back() {
                Some((s, l)) if s + l > at => at = s + l,
                _ => return false,
            }
        }
        true
    }

    fn remove(&mut self, start: u64, len: u64) {
        let end = start + len;
        let inside: Vec<(u64, u64)> = self
            .used
            .range(..end)
            .rev()
            .take_while(|(s, l)| *s + *l > start)
            .map(|(s, l)| (*s, *l))
            .collect();
        for (s, l) in inside {
            self.used.remove(&s);
            if s < start {
                self.used.insert(s, start - s);
            }
            if s + l > end {
                self.used.insert(end, s + l - end);
            }
        }
    }

    fn pick(&self, n: usize) -> Option<(u64, u64)> {
        if self.used.is_empty() {
            return None;
        }
        self.used.iter().nth(n % self.used.len()).map(|(s, l)| (*s, *l))
    }

    fn total(&self) -> u64 {
        self.used.values().sum()
    }
}

/// Free frames over all zones.
fn free_frames(fh: &Alloc<'_>) -> u64 {
    (0..fh.zone_count()).map(|z| fh.zone_stats(z).unwrap().free).sum()
}

// One arm for each kind of operation.
#[allow(clippy::too_many_lines)]
fn run(fh: &Alloc<'_>, managed: u64, reserve: u64, ops: Vec<Op>) {
    let mut model = Model::default();
    for op in ops {
        match op.clone() {
            Op::Alloc { cpu: c, order: o, migratetype, align, flags } => {
                let flags = AllocFlags::from_bits_truncate(flags) - AllocFlags::NO_LOCK;
                let mut request =
                    Request::new(order(o), Migratetype::PCP[migratetype]).flags(flags);
                if align == 2 {
                    request = request.align(order(o.min(8) + 1));
                }
                match fh.on(cpu(c)).alloc(request) {
                    Ok(pfn) => {
                        assert!(pfn.is_aligned(order(o)));
                        assert!(align != 2 || pfn.is_aligned(order(o.min(8) + 1)));
                        model.add(pfn.get(), 1 << o);
                    }
                    Err(AllocError::NoMemory { .. }) => {
                        // Order 0 fails only where nothing is free beyond the reserves.
                        let free = managed - model.total();
                        assert!(
                            o > 0 || align == 2 || free <= reserve,
                            "{free} frames free but {op:?} failed"
                        );
                    }
                    Err(error) => panic!("{op:?}: {error}"),
                }
            }
            Op::Bulk { cpu: c, n, migratetype } => {
                let mut out = vec![Pfn::default(); n];
                let request = Request::new(Order::ZERO, Migratetype::PCP[migratetype]);
                let got = fh.on(cpu(c)).alloc_bulk(request, &mut out).unwrap_or(0);
                out[..got].iter().for_each(|p| model.add(p.get(), 1));
                assert!(got == n || managed - model.total() <= reserve);
            }
            Op::Free { cpu: c, pick, from, len } => {
                let Some((s, l)) = model.pick(pick) else { continue };
                let start = s + from % l;
                let len = 1 + len % (s + l - start);
                fh.on(cpu(c)).free_range(range(start, len)).unwrap();
                model.remove(start, len);
            }
            Op::FreeOrder { cpu: c, pick } => {
                let Some((s, l)) = model.pick(pick) else { continue };
                let (start, o) = range(s, l).chunks(Order::MAX).last().unwrap();
                fh.on(cpu(c)).free(start, o).unwrap();
                model.remove(start.get(), o.frames());
            }
            Op::FreeBulk { cpu: c, pick, n, step } => {
                let mut frames = Vec::new();
                for i in 0..n.min(model.used.len()) {
                    let Some((s, _)) = model.pick(pick.wrapping_add(i * step)) else { break };
                    frames.push(Pfn::new(s));
                }
                frames.sort();
                frames.dedup();
                if n % 2 == 0 {
                    frames.reverse();
                }
                fh.on(cpu(c)).free_bulk(&frames).unwrap();
                frames.iter().for_each(|p| model.remove(p.get(), 1));
            }
            Op::Wrong { cpu: c, pfn, len } => {
                if model.covers(pfn, len) {
                    continue;
                }
                let free = free_frames(fh);
                let error = fh.on(cpu(c)).free_range(range(pfn, len)).unwrap_err();
                let culprit = match error {
                    FreeError::DoubleFree { pfn }
                    | FreeError::NeverAllocated { pfn }
                    | FreeError::Hole { pfn }
                    | FreeError::OutOfZone { pfn }
                    | FreeError::PastEnd { pfn } => pfn,
                    other => panic!("{other}"),
                };
                assert!(!model.covers(culprit.get(), 1), "{error} but it is in use");
                assert_eq!(free_frames(fh), free, "a refused free changed something");
            }
            Op::Tick { cpu: c } => fh.on(cpu(c)).tick().unwrap(),
            Op::Drain => fh.drain_all(),
            Op::Limited { cpu: c, order: o, from, len } => {
                let (from, below) = (Pfn::new(from), Pfn::new(from + len));
                let request =
                    Request::new(order(o), Migratetype::Unmovable).from(from).below(below);
                if let Ok(pfn) = fh.on(cpu(c)).alloc(request) {
                    assert!(
                        pfn.is_aligned(order(o))
                            && pfn >= from
                            && pfn.get() + (1 << o) <= below.get()
                    );
                    model.add(pfn.get(), 1 << o);
                }
            }
            Op::Contig { start, len, moving } => {
                let target = range(start, len);
                let result = fh.alloc_contig_range(target, |used| {
                    if !moving {
                        return false;
                    }
                    for pfn in used.start.get()..used.end.get() {
                        let Ok(new) =
                            fh.on(cpu(1)).alloc(Request::new(Order::ZERO, Migratetype::Movable))
                        else {
                            return false;
                        };
                        assert!(!target.contains(new));
                        model.add(new.get(), 1);
                        fh.on(cpu((pfn % 3) as u16)).free(Pfn::new(pfn), Order::ZERO).unwrap();
                        model.remove(pfn, 1);
                    }
                    true
                });
                if result.is_ok() {
                    model.add(start, len);
                }
            }
            Op::Replug { cpu: c } => {
                fh.cpu_offline(cpu(c)).unwrap();
                fh.validate().unwrap_or_else(|v| panic!("after {op:?}: {v}"));
                assert_eq!(fh.cpu_holdings(cpu(c)).unwrap().0, 0);
                fh.cpu_online(cpu(c)).unwrap();
            }
            Op::Remove { start, blocks } => {
                let piece = range(start * 512, blocks * 512);
                if fh.remove_memory(piece).is_ok() {
                    assert!(!model.overlaps(piece.start.get(), piece.len()));
                    fh.validate().unwrap_or_else(|v| panic!("after {op:?}: {v}"));
                    assert_eq!(free_frames(fh), managed - model.total() - piece.len());
                    fh.add_memory(piece).unwrap();
                }
            }
            Op::NoLock { cpu: c, order: o } => {
                let request =
                    Request::new(order(o), Migratetype::Movable).flags(AllocFlags::NO_LOCK);
                if let Ok(pfn) = fh.on(cpu(c)).alloc(request) {
                    model.add(pfn.get(), 1 << o);
                }
            }
            Op::Owned { cpu: c, order: o, pick } => {
                let owned = fh.own(cpu(c)).unwrap();
                for _ in 0..pick % 200 {
                    if let Ok(pfn) = owned.alloc(Request::new(order(o), Migratetype::Movable)) {
                        model.add(pfn.get(), 1 << o);
                    }
                }
                for i in 0..pick % 300 {
                    let Some((s, l)) = model.pick(pick.wrapping_add(i * 7)) else { break };
                    let (start, o) = range(s, l).chunks(Order::MAX).next().unwrap();
                    if i % 2 == 0 {
                        owned.free(start, Order::ZERO).unwrap();
                        assert!(owned.free(start, Order::ZERO).is_err());
                        model.remove(start.get(), 1);
                    } else {
                        owned.free(start, o).unwrap();
                        model.remove(start.get(), o.frames());
                    }
                }
            }
        }
        assert_eq!(free_frames(fh), managed - model.total(), "after {op:?}");
        fh.validate().unwrap_or_else(|v| panic!("after {op:?}: {v}"));
    }
    let rest: Vec<(u64, u64)> = model.used.into_iter().collect();
    for (i, (s, l)) in rest.into_iter().enumerate() {
        fh.on(cpu(i as u16 % CPUS)).free_range(FrameRange::new(Pfn::new(s), l).unwrap()).unwrap();
    }
    assert_all_free(fh);
    assert_eq!(fh.totals().late_double_frees, 0);
}

/// One thread, with the biased paths or without: there is nobody whose stores a heavy barrier would
/// have to wait for, and nobody to wait for at all. A call may ask another CPU for a block and look
/// again, but not for ever.
struct OneThread {
    barrier: bool,
    waits: AtomicU32,
}

impl OneThread {
    fn new(barrier: bool) -> Self {
        Self { barrier, waits: AtomicU32::new(0) }
    }
}

impl Platform for OneThread {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }
    fn relax(&self) {
        assert!(
            self.waits.fetch_add(1, Ordering::Relaxed) < 10_000,
            "a call waits, with nobody else there"
        );
    }
}

proptest! {
    #![proptest_config(histories(24, 60))]

    /// A zone in which CPUs hold blocks of their own.
    #[test]
    fn any_history_keeps_every_promise(ops in prop::collection::vec(ops(), 1..250)) {
        let memory = [range(512, 24 * 8 * MIB)];
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
        let host = OneThread::new(true);
        let fh = build(&Config { extra_ranges: 4, ..Config::new(CPUS, &[zone]) }, &host);
        run(&fh, 24 * 8 * MIB, 0, ops);
    }

    /// A zone so small that CPUs hold nothing and are served from the zone's own blocks, with
    /// holes.
    #[test]
    fn a_small_holey_zone_does_too(ops in prop::collection::vec(ops(), 1..250)) {
        let memory = [range(700, 3000), range(4100, 1000), range(8192, 2048)];
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
        let host = OneThread::new(false);
        let fh = build(&Config { extra_ranges: 4, ..Config::new(CPUS, &[zone]) }, &host);
        run(&fh, 6048, 0, ops);
    }

    /// Memory runs out at the watermark, not before.
    #[test]
    fn reserves_are_kept(ops in prop::collection::vec(ops(), 1..250)) {
        let memory = [range(512, 32 * MIB)];
        let zone =
            ZoneConfig { watermarks: Watermarks::Frames { min: 300, low: 900, high: 1500 }, ..ZoneConfig::new(&memory) };
        let host = OneThread::new(false);
        let fh = build(&Config { extra_ranges: 4, ..Config::new(CPUS, &[zone]) }, &host);
        run(&fh, 32 * MIB, 300, ops);
    }

    /// Two zones, CMA and HIGHATOMIC, watermarks, biased locks: everything at once.
    #[test]
    fn zones_with_everything_do_too(ops in prop::collection::vec(ops(), 1..250)) {
        let (low, high) = ([range(512, 16 * MIB)], [range(8192, 180 * MIB)]);
        let cma = [range(10240, 20 * MIB)];
        let marks = Watermarks::Frames { min: 200, low: 800, high: 1000 };
        let zones = [
            ZoneConfig { watermarks: Watermarks::Frames { min: 50, low: 60, high: 70 }, ..ZoneConfig::new(&low) },
            ZoneConfig { watermarks: marks, cma: &cma, ..ZoneConfig::new(&high) },
        ];
        let host = OneThread::new(true);
        let fh = build(&Config { extra_ranges: 4, ..Config::new(CPUS, &zones) }, &host);
        // Frames of CMA blocks are no use to most requests.
        run(&fh, 196 * MIB, 250 + 20 * MIB, ops);
    }
}
