//! The owners' fast paths against a model of the frames, with exact counts.
//!
//! Other histories check after every call by entering every CPU. Here all CPUs have owners that
//! live on, the walk over all invariants is one of the random steps, and what is compared after
//! every step is read without entering: the free frames, and the counts of allocations and frees.
//! The steps are rows, bulks and pairs: what leases are made and ended by.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use crate::how_many_histories::histories;
use freehold::{
    AllocError, AllocFlags, Config, FrameRange, Frames, FreeError, Migratetype, NodeId, Order,
    Owned, Pfn, Platform, Request, Watermarks, ZoneConfig,
};
use proptest::prelude::*;

const CPUS: u16 = 3;

/// One thread plays all CPUs: there is nobody whose stores a heavy barrier would have to wait for.
struct Host {
    barrier: bool,
    late: AtomicU64,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}

/// A frame to do something to.
#[derive(Clone, Copy, Debug)]
enum Spot {
    /// Handed out so many steps ago.
    Taken(u8),
    /// Freed so many steps ago.
    Freed(u8),
    /// This one or the next that will do.
    At(u16),
    /// So many frames before the last number there is.
    Last(u8),
}

/// How frames are freed.
#[derive(Clone, Copy, Debug)]
enum How {
    Singly,
    Order(u8),
    Range(u16),
    Bulk,
}

#[derive(Clone, Copy, Debug)]
struct On {
    cpu: u16,
    /// By its owner, as nearly all calls are.
    owner: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        on: On,
        kind: u8,
        order: u8,
        n: u8,
        no_lock: bool,
    },
    AllocBulk {
        on: On,
        kind: u8,
        n: u16,
    },
    /// Allocates and frees, over and over; `hold` of them are in use at a time.
    Pairs {
        on: On,
        freer: On,
        kind: u8,
        order: u8,
        hold: u8,
        n: u8,
    },
    /// Single frames from there on, each `stride` frames behind the last one, to and fro between
    /// `lanes` such rows that are `apart` words apart.
    FreeRow {
        on: On,
        spot: Spot,
        stride: u8,
        n: u8,
        lanes: u8,
        apart: u8,
        down: bool,
    },
    FreeBulk {
        on: On,
        spot: Spot,
        stride: u8,
        n: u8,
        lanes: u8,
        apart: u8,
    },
    /// The block in use around that place.
    FreeBlock {
        on: On,
        spot: Spot,
        as_range: bool,
    },
    Wrong {
        on: On,
        spot: Spot,
        how: How,
    },
    Tick {
        on: On,
    },
    Drain,
    Validate,
}

fn on() -> impl Strategy<Value = On> {
    (0..CPUS, prop::bool::weighted(0.93)).prop_map(|(cpu, owner)| On { cpu, owner })
}

fn spot() -> impl Strategy<Value = Spot> {
    prop_oneof![
        5 => (0u8..40).prop_map(Spot::Taken),
        4 => (0u8..12).prop_map(Spot::Freed),
        2 => any::<u16>().prop_map(Spot::At),
    ]
}

fn wrong_spot() -> impl Strategy<Value = Spot> {
    prop_oneof![
        6 => (0u8..6).prop_map(Spot::Freed),
        1 => (0u8..40).prop_map(Spot::Taken),
        1 => any::<u16>().prop_map(Spot::At),
        1 => (0u8..2).prop_map(Spot::Last),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Singly),
        1 => Just(How::Order(9)),
        1 => (1u8..9).prop_map(How::Order),
        1 => (1u16..1100).prop_map(How::Range),
        1 => Just(How::Bulk),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let kind = || prop_oneof![6 => Just(1u8), 1 => 0u8..3];
    let stride = || prop_oneof![5 => Just(1u8), 1 => Just(0), 2 => 1u8..100];
    let apart = || prop_oneof![3 => Just(8u8), 1 => Just(16), 2 => 1u8..20];
    let row = (stride(), prop_oneof![3 => 1u8..4, 2 => 1u8..80], 1u8..4, apart());
    let n = || prop_oneof![4 => 1u8..4, 2 => 1u8..150];
    prop_oneof![
        6 => (on(), kind(), prop_oneof![12 => Just(0u8), 3 => Just(9), 2 => 1u8..11], n(), prop::bool::weighted(0.05))
            .prop_map(|(on, kind, order, n, no_lock)| Step::Alloc { on, kind, order, n, no_lock }),
        3 => (on(), kind(), prop_oneof![4 => 1u16..300, 1 => 1u16..5000])
            .prop_map(|(on, kind, n)| Step::AllocBulk { on, kind, n }),
        4 => (on(), on(), any::<bool>(), kind(), prop_oneof![3 => Just(0u8), 2 => Just(9)], 1u8..6, 1u8..12).prop_map(
            |(on, other, same, kind, order, hold, n)| {
                Step::Pairs { on, freer: if same { on } else { other }, kind, order, hold, n }
            }
        ),
        10 => (on(), spot(), row.clone(), any::<bool>())
            .prop_map(|(on, spot, (stride, n, lanes, apart), down)| {
                Step::FreeRow { on, spot, stride, n, lanes, apart, down }
            }),
        2 => (on(), spot(), row)
            .prop_map(|(on, spot, (stride, n, lanes, apart))| Step::FreeBulk { on, spot, stride, n, lanes, apart }),
        4 => (on(), spot(), any::<bool>()).prop_map(|(on, spot, as_range)| Step::FreeBlock { on, spot, as_range }),
        5 => (on(), wrong_spot(), how()).prop_map(|(on, spot, how)| Step::Wrong { on, spot, how }),
        1 => on().prop_map(|on| Step::Tick { on }),
        1 => prop_oneof![2 => Just(Step::Drain), 3 => Just(Step::Validate)],
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    Absent,
    NeverAllocated,
    Free,
    Used,
}

/// What a CPU must have counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Counted {
    allocs: [[u64; 11]; 3],
    frees: u64,
}

struct Player<'a> {
    fh: &'a Alloc<'a>,
    host: &'a Host,
    spans: Vec<FrameRange>,
    frames: Vec<Frame>,
    owners: Vec<Option<Owned<'a, 'static, Any<'a>>>>,
    counted: Vec<Counted>,
    taken: VecDeque<u64>,
    freed: VecDeque<u64>,
    unattributed: u64,
    free: u64,
    /// CMA, which is split from the beginning.
    split_at_first: Vec<FrameRange>,
    /// Something is held back: nothing can be said of what is refused.
    reserves: bool,
}

impl<'a> Player<'a> {
    fn new(fh: &'a Alloc<'a>, host: &'a Host, zones: &[ZoneConfig<'_>]) -> Self {
        let spans: Vec<FrameRange> = zones.iter().map(|zone| zone.span).collect();
        let end = spans.iter().map(|span| span.end.get()).max().unwrap() as usize;
        let mut frames = vec![Frame::Absent; end];
        for piece in zones.iter().flat_map(|zone| zone.memory) {
            frames[piece.start.get() as usize..piece.end.get() as usize]
                .fill(Frame::NeverAllocated);
        }
        Self {
            fh,
            host,
            free: frames.iter().filter(|&&f| f == Frame::NeverAllocated).count() as u64,
            frames,
            owners: (0..CPUS).map(|c| Some(fh.own(cpu(c)).unwrap())).collect(),
            counted: vec![Counted::default(); usize::from(CPUS)],
            taken: VecDeque::new(),
            freed: VecDeque::new(),
            unattributed: 0,
            split_at_first: zones.iter().flat_map(|z| z.cma).copied().collect(),
            reserves: zones.iter().any(|z| z.watermarks != Watermarks::None || !z.cma.is_empty()),
            spans,
        }
    }

    /// What a call is made through.
    fn through(&self, on: On) -> Box<dyn Frames + '_> {
        match &self.owners[usize::from(on.cpu)] {
            Some(owner) if on.owner => Box::new(owner),
            _ => Box::new(self.fh.on(cpu(on.cpu))),
        }
    }

    fn frame(&self, pfn: u64) -> Frame {
        usize::try_from(pfn)
            .ok()
            .and_then(|at| self.frames.get(at))
            .copied()
            .unwrap_or(Frame::Absent)
    }

    fn block_of(&self, pfn: u64) -> impl Iterator<Item = Frame> {
        (pfn & !511..(pfn & !511) + 512).map(|f| self.frame(f))
    }

    fn is_used(&self, pfn: u64) -> bool {
        self.frame(pfn) == Frame::Used
    }

    fn remember(list: &mut VecDeque<u64>, pfn: u64) {
        list.push_front(pfn);
        list.truncate(64);
    }

    fn took(&mut self, by: Option<On>, kind: u8, order: u8, pfn: u64, len: u64) {
        for f in pfn..pfn + len {
            assert!(
                matches!(self.frame(f), Frame::Free | Frame::NeverAllocated),
                "frame {f:#x} was {:?}",
                self.frame(f)
            );
            self.frames[f as usize] = Frame::Used;
        }
        self.free -= len;
        Self::remember(&mut self.taken, pfn);
        if let Some(on) = by {
            self.counted[usize::from(on.cpu)].allocs[usize::from(kind)][usize::from(order)] += 1;
        }
    }

    /// Those frames were freed on that CPU, which counts it as so many frees; nobody does where its
    /// door was not to be had.
    fn gave(&mut self, on: On, pfns: impl Iterator<Item = u64>, frees: u64) {
        for f in pfns {
            assert!(self.is_used(f), "frame {f:#x} was {:?}", self.frame(f));
            self.frames[f as usize] = Frame::Free;
            self.free += 1;
            Self::remember(&mut self.freed, f);
        }
        if on.owner || !self.host.barrier {
            self.counted[usize::from(on.cpu)].frees += frees;
        } else {
            self.unattributed += frees;
        }
    }

    fn pfn(&self, spot: Spot) -> u64 {
        let of = |list: &VecDeque<u64>, n: u8| {
            list.get(usize::from(n) % list.len().max(1)).copied().unwrap_or(512)
        };
        match spot {
            Spot::Taken(n) => of(&self.taken, n),
            Spot::Freed(n) => of(&self.freed, n),
            Spot::At(n) => u64::from(n) % (self.frames.len() as u64 + 100),
            Spot::Last(n) => u64::MAX - u64::from(n),
        }
    }

    /// That frame, or the next one in use behind it.
    fn used(&self, spot: Spot) -> Option<u64> {
        let from = self.pfn(spot).min(self.frames.len() as u64);
        (from..self.frames.len() as u64).chain(0..from).find(|&f| self.is_used(f))
    }

    /// Frames in use: rows of them, to and fro between the lanes.
    fn row(&self, spot: Spot, stride: u8, n: u8, lanes: u8, apart: u8) -> Vec<u64> {
        let Some(first) = self.used(spot) else { return Vec::new() };
        let mut row = Vec::new();
        for i in 0..u64::from(n) {
            for lane in 0..u64::from(lanes) {
                let pfn = first + i * u64::from(stride) + lane * u64::from(apart) * 64;
                if self.is_used(pfn) && !row.contains(&pfn) {
                    row.push(pfn);
                }
            }
        }
        row
    }

    fn alloc(&mut self, on: On, kind: u8, order: u8, flags: AllocFlags) -> Option<u64> {
        let request = Request::new(Order::new(order).unwrap(), Migratetype::PCP[usize::from(kind)])
            .flags(flags);
        let result = self.through(on).alloc(request);
        match result {
            Ok(pfn) => {
                assert!(pfn.is_aligned(request_order(order)), "{pfn} for order {order}");
                self.took(Some(on), kind, order, pfn.get(), 1 << order);
                Some(pfn.get())
            }
            Err(AllocError::WouldBlock) => {
                assert!(flags.contains(AllocFlags::NO_LOCK));
                None
            }
            Err(error) => {
                assert!(is_no_memory(Err(error)), "{error}");
                assert!(self.reserves || !self.run(order), "refused {order}");
                None
            }
        }
    }

    /// Whether a run of that order is free somewhere.
    fn run(&self, order: u8) -> bool {
        let is_free = |frame: &Frame| matches!(frame, Frame::Free | Frame::NeverAllocated);
        self.frames.chunks_exact(1 << order).any(|run| run.iter().all(is_free))
    }

    fn free_one(&mut self, on: On, pfn: u64) {
        self.through(on)
            .free(Pfn::new(pfn), Order::ZERO)
            .unwrap_or_else(|e| panic!("{pfn:#x} in use: {e}"));
        self.gave(on, std::iter::once(pfn), 1);
    }

    fn free_block(&mut self, on: On, base: u64, as_range: bool) {
        let result = if as_range {
            self.through(on).free_range(range(base, 512))
        } else {
            self.through(on).free(Pfn::new(base), Order::PAGEBLOCK)
        };
        result.unwrap_or_else(|e| panic!("block {base:#x} in use: {e}"));
        self.gave(on, base..base + 512, 1);
    }

    /// The first of these frames that is not in use.
    fn culprit(&self, pfns: impl Iterator<Item = u64>) -> Option<usize> {
        pfns.into_iter().position(|f| !self.is_used(f))
    }

    /// Whether a free of these frames, which is wrong, may be told that.
    fn explains(&self, error: FreeError, start: u64, len: u64) -> bool {
        let inside = |pfn: Pfn| pfn.get().wrapping_sub(start) < len;
        let zone = |pfn: Pfn| self.spans.iter().find(|span| span.contains(pfn));
        match error {
            FreeError::Misaligned { pfn, order } => pfn.get() == start && !pfn.is_aligned(order),
            FreeError::OutOfZone { pfn } => inside(pfn) && zone(pfn).is_none(),
            FreeError::PastEnd { pfn } => {
                inside(pfn) && zone(pfn).is_none() && zone(Pfn::new(start)).is_some()
            }
            FreeError::Hole { pfn } => {
                inside(pfn) && self.frame(pfn.get()) == Frame::Absent && zone(pfn).is_some()
            }
            // A whole block of which nothing was ever handed out, or a frame of one that has been
            // begun.
            FreeError::NeverAllocated { pfn } => {
                inside(pfn) && self.block_of(pfn.get()).all(|f| f == Frame::NeverAllocated)
            }
            FreeError::DoubleFree { pfn } => {
                let begun = self.split_at_first.iter().any(|range| range.contains(pfn))
                    || self.block_of(pfn.get()).any(|f| f != Frame::NeverAllocated);
                inside(pfn)
                    && matches!(self.frame(pfn.get()), Frame::Free | Frame::NeverAllocated)
                    && begun
            }
            _ => false,
        }
    }

    fn wrong(&mut self, on: On, spot: Spot, how: How) {
        let pfn = self.pfn(spot);
        let (start, len, result) = match how {
            How::Singly if !self.is_used(pfn) => {
                (pfn, 1, self.through(on).free(Pfn::new(pfn), Order::ZERO))
            }
            How::Order(order) => {
                let order = request_order(order);
                // Now and then one that is not aligned.
                let start = if pfn % 7 == 0 { pfn } else { pfn & !(order.frames() - 1) };
                let all = start..start.saturating_add(order.frames());
                if Pfn::new(start).is_aligned(order) && self.culprit(all).is_none() {
                    return;
                }
                (start, order.frames(), self.through(on).free(Pfn::new(start), order))
            }
            How::Range(len) => {
                let range = FrameRange {
                    start: Pfn::new(pfn),
                    end: Pfn::new(pfn.saturating_add(u64::from(len))),
                };
                if range.is_empty() || self.culprit(pfn..range.end.get()).is_none() {
                    return;
                }
                (pfn, range.len(), self.through(on).free_range(range))
            }
            How::Bulk => return self.wrong_in_bulk(on, pfn),
            How::Singly => return,
        };
        let error = result.expect_err("a wrong free was accepted");
        assert!(self.explains(error, start, len), "{start:#x}+{len}: {error}");
    }

    /// Some that are right before it, and one behind it that must be let alone.
    fn wrong_in_bulk(&mut self, on: On, pfn: u64) {
        let mut pfns = self.row(Spot::Taken(0), 1, 5, 1, 1);
        pfns.retain(|&f| f != pfn);
        let behind = pfns.pop();
        pfns.push(pfn);
        pfns.extend(behind);
        let Some(at) = self.culprit(pfns.iter().copied()) else { return };
        let list: Vec<Pfn> = pfns.iter().map(|&f| Pfn::new(f)).collect();
        let told = self.through(on).free_bulk(&list).unwrap_err();
        assert!(told.freed == at && self.explains(told.error, pfns[at], 1), "{told}");
        self.gave(on, pfns[..at].iter().copied(), at as u64);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { on, kind, order, n, no_lock } => {
                // Through another door than the owner's it may be served past the CPU, which then
                // does not count it.
                let flags =
                    if no_lock && on.owner { AllocFlags::NO_LOCK } else { AllocFlags::empty() };
                let n = if order == 0 { n } else { n % 4 + 1 };
                for _ in 0..n {
                    self.alloc(on, kind, order, flags);
                }
            }
            Step::AllocBulk { on, kind, n } => {
                let mut out = vec![Pfn::default(); usize::from(n)];
                let request = Request::new(Order::ZERO, Migratetype::PCP[usize::from(kind)]);
                let got = self.through(on).alloc_bulk(request, &mut out).unwrap_or(0);
                out[..got].iter().for_each(|pfn| self.took(Some(on), kind, 0, pfn.get(), 1));
                assert!(
                    got == out.len() || self.reserves || self.free == 0,
                    "{got} of {n}, {} free",
                    self.free
                );
            }
            Step::Pairs { on, freer, kind, order, hold, n } => {
                let mut held = VecDeque::new();
                for _ in 0..n {
                    for _ in held.len()..usize::from(hold) {
                        held.extend(self.alloc(on, kind, order, AllocFlags::empty()));
                    }
                    let Some(pfn) = held.pop_front() else { break };
                    if order == 0 {
                        self.free_one(freer, pfn)
                    } else {
                        self.free_block(freer, pfn, false)
                    }
                }
            }
            Step::FreeRow { on, spot, stride, n, lanes, apart, down } => {
                let mut row = self.row(spot, stride, n, lanes, apart);
                if down {
                    row.reverse();
                }
                row.into_iter().for_each(|pfn| self.free_one(on, pfn));
            }
            Step::FreeBulk { on, spot, stride, n, lanes, apart } => {
                let row = self.row(spot, stride, n, lanes, apart);
                let list: Vec<Pfn> = row.iter().map(|&f| Pfn::new(f)).collect();
                self.through(on).free_bulk(&list).unwrap();
                let frees = row.len() as u64;
                self.gave(on, row.into_iter(), frees);
            }
            Step::FreeBlock { on, spot, as_range } => {
                let base = self.pfn(spot) & !511;
                if (base..base + 512).all(|f| self.is_used(f)) {
                    self.free_block(on, base, as_range);
                }
            }
            Step::Wrong { on, spot, how } => self.wrong(on, spot, how),
            Step::Tick { on } => match &self.owners[usize::from(on.cpu)] {
                Some(owner) if on.owner => owner.tick().unwrap(),
                _ => self.fh.on(cpu(on.cpu)).tick().unwrap(),
            },
            Step::Drain => self.fh.drain_all(),
            Step::Validate => self.fh.validate().unwrap_or_else(|violation| panic!("{violation}")),
        }
    }

    /// All that can be read without entering.
    fn check(&self) {
        let free: u64 =
            (0..self.fh.zone_count()).map(|z| self.fh.zone_stats(z).unwrap().free).sum();
        assert_eq!(free, self.free, "frames free");
        for (c, counted) in self.counted.iter().enumerate() {
            let stats = self.fh.cpu_stats(cpu(c as u16)).unwrap();
            for (kind, expected) in counted.allocs.iter().enumerate() {
                assert_eq!(
                    &stats.allocs[kind][..11],
                    expected,
                    "allocations of type {kind} by CPU {c}"
                );
            }
            assert_eq!(stats.local_frees + stats.remote_frees, counted.frees, "frees by CPU {c}");
            assert!(
                self.fh.cpu_holdings(cpu(c as u16)).unwrap().0 <= self.free,
                "CPU {c} holds more than is free"
            );
        }
        assert_eq!(self.fh.totals().unattributed_frees, self.unattributed);
        assert_eq!(self.host.late.load(Ordering::Relaxed), 0, "late double frees");
    }

    fn finish(mut self) {
        let used: Vec<u64> = (0..self.frames.len() as u64).filter(|&f| self.is_used(f)).collect();
        for (i, pfn) in used.into_iter().enumerate() {
            self.free_one(On { cpu: (i / 700) as u16 % CPUS, owner: true }, pfn);
        }
        self.check();
        assert_all_free(self.fh);
    }
}

fn request_order(order: u8) -> Order {
    Order::new(order).unwrap()
}

fn play(zones: &[ZoneConfig<'_>], nodes: &[NodeId], barrier: bool, steps: &[Step]) {
    let host = Host { barrier, late: AtomicU64::new(0) };
    let config = Config { extra_ranges: 4, cpu_nodes: nodes, ..Config::new(CPUS, zones) };
    let fh = build(&config, &host);
    let mut player = Player::new(&fh, &host, zones);
    for step in steps {
        player.step(step);
        player.check();
    }
    player.finish();
}

fn nothing_back<'a>(memory: &'a [FrameRange]) -> ZoneConfig<'a> {
    ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(memory) }
}

proptest! {
    #![proptest_config(histories(64, 256))]

    /// CPUs whose share of memory is hardly more than a block: they give back all the time, and
    /// memory runs out.
    #[test]
    fn owners_of_little_memory(steps in prop::collection::vec(steps(), 1..120)) {
        let memory = [range(512, 26 * 512)];
        play(&[nothing_back(&memory)], &[], true, &steps);
    }

    /// Enough for everybody: blocks stay, and the fast paths are seldom left.
    #[test]
    fn owners_of_much_memory(steps in prop::collection::vec(steps(), 1..120)) {
        let memory = [range(512, 120 * 512)];
        play(&[nothing_back(&memory)], &[], true, &steps);
    }

    /// Zones of two nodes with CMA, watermarks and a hole: CPUs that hold blocks of a zone they do
    /// not go to first.
    #[test]
    fn owners_on_two_nodes(steps in prop::collection::vec(steps(), 1..120)) {
        let (low, high) = ([range(512, 40 * 512)], [range(41 * 512, 30 * 512 + 100), range(72 * 512, 20 * 512)]);
        let cma = [range(44 * 512, 8 * 512)];
        let marks = |min| Watermarks::Frames { min, low: min * 2, high: min * 3 };
        let zones = [
            ZoneConfig { watermarks: marks(60), ..ZoneConfig::new(&low) },
            ZoneConfig { watermarks: marks(100), cma: &cma, node: NodeId::new(1), ..ZoneConfig::new(&high) },
        ];
        play(&zones, &[NodeId::new(0), NodeId::new(1), NodeId::new(1)], true, &steps);
    }

    /// Handles without a heavy barrier take the ordinary lock, and come to the same.
    #[test]
    fn owners_without_a_heavy_barrier(steps in prop::collection::vec(steps(), 1..60)) {
        let memory = [range(512, 26 * 512)];
        play(&[nothing_back(&memory)], &[], false, &steps);
    }
}

/// Frames beside existing ones of one block that do not exist themselves, freed by every CPU.
#[test]
fn holes_are_no_frames_to_any_owner() {
    let host = Host { barrier: true, late: AtomicU64::new(0) };
    let memory = [range(512, 40 * 512 + 70)];
    let zone = ZoneConfig { span: range(512, 60 * 512), ..nothing_back(&memory) };
    let fh = build(&Config::new(CPUS, &[zone]), &host);
    let mut player = Player::new(&fh, &host, std::slice::from_ref(&zone));
    let end = memory[0].end.get();
    for cpu in [1, 0, 2] {
        let on = On { cpu, owner: true };
        while player.free > 0 {
            player.alloc(on, 1, 0, AllocFlags::empty()).unwrap();
        }
        for pfn in [end - 1, end - 2] {
            player.free_one(on, pfn);
            for hole in [end, end + 1, end + 100].map(Pfn::new) {
                let result = player.through(on).free(hole, Order::ZERO);
                assert_eq!(result, Err(FreeError::Hole { pfn: hole }));
            }
        }
        player.check();
    }
    player.finish();
}

/// What doors of other languages try first is the same as what a call does: the same frames, no
/// more than are in hand, and nothing where the call would have refused.
#[test]
#[cfg_attr(feature = "debug-poison", ignore = "frees that poison frames take the whole way")]
fn the_first_half_of_a_call_is_what_the_call_would_have_done() {
    for barrier in [true, false] {
        let host = Host { barrier, late: AtomicU64::new(0) };
        let memory = [range(512, 8 * MIB)];
        let fh = build(&Config::new(1, &[nothing_back(&memory)]), &host);
        let owned = fh.own(cpu(0)).unwrap();
        for n in 0..=5 {
            let (order, kind) = (order(n), Migratetype::Movable);
            assert_eq!(owned.alloc_in_hand(order, kind), None, "nothing is in hand yet");
            let first = owned.alloc(movable(n)).unwrap();
            assert!(!owned.free_in_hand(Pfn::new(first.get() + 1), order), "not aligned, or free");
            assert!(owned.free_in_hand(first, order));
            assert!(!owned.free_in_hand(first, order), "it is free");
            assert_eq!(owned.alloc_in_hand(order, Migratetype::Unmovable), None, "of another type");
            // The newest first, as the call.
            assert_eq!(owned.alloc_in_hand(order, kind), Some(first));
            let mut held = vec![first];
            held.extend(std::iter::from_fn(|| owned.alloc_in_hand(order, kind)));
            assert_eq!(held.len() as u64, 64 >> n, "one word");
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len() as u64, 64 >> n, "each once");
            let counted = fh.cpu_stats(cpu(0)).unwrap();
            assert_eq!(counted.allocs[kind as usize][usize::from(n)], (64 >> n) + 1);
            fh.validate().unwrap();
            for pfn in held {
                if !owned.free_in_hand(pfn, order) {
                    owned.free(pfn, order).unwrap();
                }
            }
            owned.flush().unwrap();
        }
        for n in 6..=9 {
            assert!(!owned.free_in_hand(Pfn::new(512), order(n)));
            assert_eq!(owned.alloc_in_hand(order(n), Migratetype::Movable), None);
        }
        drop(owned);
        assert_all_free(&fh);
        assert_eq!(host.late.load(Ordering::Relaxed), 0);
    }
}

/// Runs by their place: just what is free is had, once, out of words, over their ends, and out of
/// the hand; a free is checked as any.
#[test]
#[cfg_attr(feature = "debug-poison", ignore = "frees that poison frames take the whole way")]
fn a_run_is_had_again_where_it_was_freed() {
    for barrier in [true, false] {
        let host = Host { barrier, late: AtomicU64::new(0) };
        let memory = [range(512, 64 * MIB)];
        let fh = build(&Config::new(1, &[nothing_back(&memory)]), &host);
        let owned = fh.own(cpu(0)).unwrap();
        let first = |run: FrameRange| run.start.get();
        let runs: Vec<FrameRange> = (0..60).map(|_| owned.alloc_run(5).unwrap()).collect();
        let within = |run: &&FrameRange| first(**run) / 64 == (run.end.get() - 1) / 64;
        for &run in runs.iter().filter(within) {
            assert!(!owned.alloc_run_at(run.start, 5, true), "it is in use");
            assert!(owned.free_run_at_hand(run.start, 5));
            assert!(!owned.free_run_at_hand(run.start, 5), "it is free");
            let double = owned.free_range(run);
            assert_eq!(double, Err(FreeError::DoubleFree { pfn: run.start }));
            // A part of it is somebody's meanwhile.
            let part = FrameRange { start: Pfn::new(first(run) + 3), end: run.end };
            assert!(owned.alloc_run_at(part.start, 2, true));
            assert!(!owned.alloc_run_at(run.start, 5, true));
            owned.free_range(part).unwrap();
            assert!(owned.alloc_run_at(run.start, 5, true));
            fh.validate().unwrap();
        }
        // Over the end of a word, which only the whole way frees.
        let over = runs.iter().find(|run| !within(run)).unwrap();
        assert!(!owned.free_run_at_hand(over.start, 5));
        owned.free_range(*over).unwrap();
        assert!(owned.alloc_run_at(over.start, 5, true));
        // In the hand.
        let frames: Vec<Pfn> = (0..64).map(|_| owned.alloc(movable(0)).unwrap()).collect();
        let single = *frames.iter().find(|&&pfn| owned.free_in_hand(pfn, order(0))).unwrap();
        assert!(owned.alloc_run_at(single, 1, true) && !owned.alloc_run_at(single, 1, true));
        // Of no block's, and of more than one.
        assert!(!owned.alloc_run_at(Pfn::new(1), 5, true));
        assert!(!owned.alloc_run_at(Pfn::new(1020), 5, true));
        assert!(!owned.alloc_run_at(Pfn::new(1020), 0, true));
        frames.iter().for_each(|&pfn| owned.free(pfn, order(0)).unwrap());
        runs.iter().for_each(|&run| owned.free_range(run).unwrap());
        drop(owned);
        assert_all_free(&fh);
        assert_eq!(host.late.load(Ordering::Relaxed), 0);
    }
}
