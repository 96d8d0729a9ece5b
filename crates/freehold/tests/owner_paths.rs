//! The owners' fast paths against a model, with nothing in between that would tidy them up.
//!
//! Other histories walk all invariants after every call, which enters every CPU and undoes whatever its owner's fast path
//! had set aside: a fast path then never meets what the last one left. Here all CPUs have owners that live on, the walk is
//! one of the random steps, and what is compared after every step is read without entering: the free frames, and the
//! exact counts of allocations and frees.

mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use freehold::{
    AllocError, AllocFlags, Config, FrameRange, FreeError, Freehold, Migratetype, NodeId, Order, Owned, Pfn, Platform,
    Request, Watermarks, ZoneConfig,
};
use proptest::prelude::*;

const CPUS: u16 = 3;

/// One thread plays all CPUs: there is nobody whose stores a heavy barrier would have to wait for.
struct Host {
    barrier: bool,
    late: AtomicU64,
}

impl Platform for &Host {
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
    /// Single frames from there on, each `stride` frames behind the last one, to and fro between `lanes` such rows that
    /// are `apart` words apart.
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
    FreeRange {
        on: On,
        spot: Spot,
        len: u16,
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
    /// The same frame by two CPUs; the first free may be one that the second cannot see.
    Twice {
        first: On,
        second: On,
        spot: Spot,
    },
    Tick {
        on: On,
    },
    Flush {
        on: On,
    },
    Drain,
    Validate,
    Reown {
        cpu: u16,
        replug: bool,
    },
    Limited {
        on: On,
        order: u8,
        from: u16,
        len: u16,
    },
    Contig {
        from: u16,
        len: u16,
        anywhere: bool,
    },
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
        2 => (on(), spot(), prop_oneof![3 => 1u16..130, 1 => 1u16..1500])
            .prop_map(|(on, spot, len)| Step::FreeRange { on, spot, len }),
        4 => (on(), spot(), any::<bool>()).prop_map(|(on, spot, as_range)| Step::FreeBlock { on, spot, as_range }),
        5 => (on(), wrong_spot(), how()).prop_map(|(on, spot, how)| Step::Wrong { on, spot, how }),
        2 => (on(), on(), spot()).prop_map(|(first, second, spot)| Step::Twice { first, second, spot }),
        1 => on().prop_map(|on| Step::Tick { on }),
        1 => on().prop_map(|on| Step::Flush { on }),
        1 => prop_oneof![2 => Just(Step::Drain), 3 => Just(Step::Validate)],
        1 => (0..CPUS, any::<bool>()).prop_map(|(cpu, replug)| Step::Reown { cpu, replug }),
        1 => (on(), 0u8..11, any::<u16>(), 1u16..1100)
            .prop_map(|(on, order, from, len)| Step::Limited { on, order, from, len }),
        1 => (any::<u16>(), 1u16..1100, any::<bool>())
            .prop_map(|(from, len, anywhere)| Step::Contig { from, len, anywhere }),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    Absent,
    Virgin,
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
    fh: &'a Freehold<'static, &'a Host>,
    host: &'a Host,
    spans: Vec<FrameRange>,
    frames: Vec<Frame>,
    /// The CPU in whose buffer that frame may wait.
    waits: Vec<Option<u16>>,
    owners: Vec<Option<Owned<'a, 'static, &'a Host>>>,
    counted: Vec<Counted>,
    taken: VecDeque<u64>,
    freed: VecDeque<u64>,
    late: u64,
    free: u64,
    /// Something is held back: nothing can be said of what is refused.
    reserves: bool,
}

macro_rules! through {
    ($player:expr, $on:expr, $call:ident ( $($argument:expr),* )) => {{
        let on: On = $on;
        match &$player.owners[usize::from(on.cpu)] {
            Some(owner) if on.owner => owner.$call($($argument),*),
            _ => $player.fh.on(cpu(on.cpu)).$call($($argument),*),
        }
    }};
}

impl<'a> Player<'a> {
    fn new(fh: &'a Freehold<'static, &'a Host>, host: &'a Host, zones: &[ZoneConfig<'_>]) -> Self {
        let spans: Vec<FrameRange> = zones.iter().map(|zone| zone.span).collect();
        let end = spans.iter().map(|span| span.end.get()).max().unwrap() as usize;
        let mut frames = vec![Frame::Absent; end];
        for piece in zones.iter().flat_map(|zone| zone.memory) {
            frames[piece.start.get() as usize..piece.end.get() as usize].fill(Frame::Virgin);
        }
        Self {
            fh,
            host,
            free: frames.iter().filter(|&&f| f == Frame::Virgin).count() as u64,
            waits: vec![None; end],
            frames,
            owners: (0..CPUS).map(|c| Some(fh.own(cpu(c)).unwrap())).collect(),
            counted: vec![Counted::default(); usize::from(CPUS)],
            taken: VecDeque::new(),
            freed: VecDeque::new(),
            late: 0,
            reserves: zones.iter().any(|z| z.watermarks != Watermarks::None || !z.cma.is_empty()),
            spans,
        }
    }

    fn frame(&self, pfn: u64) -> Frame {
        usize::try_from(pfn).ok().and_then(|at| self.frames.get(at)).copied().unwrap_or(Frame::Absent)
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
            assert!(matches!(self.frame(f), Frame::Free | Frame::Virgin), "frame {f:#x} was {:?}", self.frame(f));
            self.frames[f as usize] = Frame::Used;
            self.waits[f as usize] = None;
        }
        self.free -= len;
        Self::remember(&mut self.taken, pfn);
        if let Some(on) = by {
            self.counted[usize::from(on.cpu)].allocs[usize::from(kind)][usize::from(order)] += 1;
        }
    }

    /// Those frames were freed on that CPU, which counts it as so many frees.
    fn gave(&mut self, on: On, pfns: impl Iterator<Item = u64>, frees: u64, local: bool) {
        for f in pfns {
            assert!(self.is_used(f), "frame {f:#x} was {:?}", self.frame(f));
            self.frames[f as usize] = Frame::Free;
            self.waits[f as usize] = (!local).then_some(on.cpu);
            self.free += 1;
            Self::remember(&mut self.freed, f);
        }
        self.counted[usize::from(on.cpu)].frees += frees;
    }

    fn local_frees(&self, on: On) -> u64 {
        self.fh.cpu_stats(cpu(on.cpu)).unwrap().local_frees
    }

    fn pfn(&self, spot: Spot) -> u64 {
        let of = |list: &VecDeque<u64>, n: u8| list.get(usize::from(n) % list.len().max(1)).copied().unwrap_or(512);
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
        let request = Request::new(Order::new(order).unwrap(), Migratetype::PCP[usize::from(kind)]).flags(flags);
        match through!(self, on, alloc(request)) {
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
                assert!(self.reserves || self.run(1 << order, 1 << order, 0, u64::MAX).is_none(), "refused {order}");
                None
            }
        }
    }

    /// Where so many free frames are, aligned, within limits.
    fn run(&self, len: u64, align: u64, from: u64, below: u64) -> Option<u64> {
        let (mut run, end) = (0u64, below.min(self.frames.len() as u64));
        for f in from..end {
            run = if matches!(self.frame(f), Frame::Free | Frame::Virgin) { run + 1 } else { 0 };
            let start = (f + 1).saturating_sub(len);
            if run >= len && start % align == 0 {
                return Some(start);
            }
        }
        None
    }

    fn free_one(&mut self, on: On, pfn: u64) {
        let local = self.local_frees(on);
        through!(self, on, free(Pfn::new(pfn), Order::ZERO)).unwrap_or_else(|e| panic!("{pfn:#x} in use: {e}"));
        let local = self.local_frees(on) > local;
        self.gave(on, std::iter::once(pfn), 1, local);
    }

    fn free_block(&mut self, on: On, base: u64, as_range: bool) {
        let before = self.local_frees(on);
        let result = if as_range {
            through!(self, on, free_range(range(base, 512)))
        } else {
            through!(self, on, free(Pfn::new(base), Order::PAGEBLOCK))
        };
        result.unwrap_or_else(|e| panic!("block {base:#x} in use: {e}"));
        // Whole blocks wait in no buffer.
        assert!(self.local_frees(on) <= before + 1);
        self.gave(on, base..base + 512, 1, true);
    }

    /// What the first frame of these that is not in use is told.
    fn error(&self, pfns: impl Iterator<Item = u64>) -> Option<(usize, FreeError)> {
        pfns.enumerate().find(|&(_, f)| !self.is_used(f)).map(|(at, f)| {
            let pfn = Pfn::new(f);
            let error = match self.frame(f) {
                Frame::Free => FreeError::DoubleFree { pfn },
                Frame::Virgin => FreeError::NeverAllocated { pfn },
                _ if self.spans.iter().any(|span| span.contains(pfn)) => FreeError::Hole { pfn },
                _ => FreeError::OutOfZone { pfn },
            };
            (at, error)
        })
    }

    fn error_of_range(&self, start: u64, len: u64) -> Option<FreeError> {
        let Some(span) = self.spans.iter().find(|span| span.contains(Pfn::new(start))) else {
            return Some(FreeError::OutOfZone { pfn: Pfn::new(start) });
        };
        if start.saturating_add(len) > span.end.get() {
            return Some(FreeError::PastEnd { pfn: span.end });
        }
        self.error(start..start + len).map(|(_, error)| error)
    }

    /// What waits in another CPU's buffer no call can see, and what became free since a CPU opened an entry of its own for
    /// the word that CPU does not look at again. Published there, and only there: what the holder keeps aside stays.
    fn publish(&mut self, on: On, pfns: impl Iterator<Item = u64>) {
        let mut waiting = Vec::new();
        for f in pfns.filter(|&f| self.frame(f) == Frame::Free) {
            let here = self.waits[f as usize];
            let word = f as usize / 64 * 64..self.frames.len().min(f as usize / 64 * 64 + 64);
            match here {
                Some(c) if c == on.cpu => {}
                _ => {
                    waiting.extend(here);
                    waiting.extend(self.waits[word].iter().flatten().find(|&&c| c == on.cpu));
                }
            }
        }
        for c in (0..CPUS).filter(|c| waiting.contains(c)) {
            self.flush(On { cpu: c, owner: true });
        }
    }

    fn flush(&mut self, on: On) {
        through!(self, on, flush()).unwrap();
        self.waits.iter_mut().filter(|w| **w == Some(on.cpu)).for_each(|w| *w = None);
    }

    fn wrong(&mut self, on: On, spot: Spot, how: How) {
        let pfn = self.pfn(spot);
        match how {
            How::Singly => {
                let Some((_, error)) = self.error(std::iter::once(pfn)) else { return };
                self.publish(on, std::iter::once(pfn));
                assert_eq!(through!(self, on, free(Pfn::new(pfn), Order::ZERO)), Err(error));
            }
            How::Order(order) => {
                let order = request_order(order);
                if !Pfn::new(pfn).is_aligned(order) {
                    let error = FreeError::Misaligned { pfn: Pfn::new(pfn), order };
                    assert_eq!(through!(self, on, free(Pfn::new(pfn), order)), Err(error));
                }
                let start = pfn & !(order.frames() - 1);
                let all = || start..start.saturating_add(order.frames());
                // Within a word nothing but the frames is looked at.
                let error = match order.get() {
                    0..=6 => self.error(all()).map(|(_, error)| error),
                    _ => self.error_of_range(start, order.frames()),
                };
                let Some(error) = error else { return };
                self.publish(on, all());
                let result = through!(self, on, free(Pfn::new(start), order));
                let absent = |e: FreeError| matches!(e, FreeError::OutOfZone { .. } | FreeError::Hole { .. });
                // A word in which there is nothing at all is named by its first frame.
                assert!(result == Err(error) || result.is_err_and(absent), "{result:?}: {error}");
            }
            How::Range(len) => {
                let range = FrameRange { start: Pfn::new(pfn), end: Pfn::new(pfn.saturating_add(u64::from(len))) };
                let Some(error) = self.error_of_range(pfn, range.len()) else { return };
                if range.is_empty() {
                    return;
                }
                self.publish(on, pfn..range.end.get());
                let told = through!(self, on, free_range(range)).unwrap_err();
                // Of one word, what does not exist is named before what is free.
                let hole = matches!(told, FreeError::Hole { pfn } if range.contains(pfn) && self.frame(pfn.get()) == Frame::Absent);
                assert!(told == error || hole, "{told}: {error}");
            }
            How::Bulk => {
                // Some that are right before it, and one behind it that must be let alone.
                let mut pfns = self.row(Spot::Taken(0), 1, 5, 1, 1);
                pfns.retain(|&f| f != pfn);
                let behind = pfns.pop();
                pfns.push(pfn);
                pfns.extend(behind);
                let Some((at, error)) = self.error(pfns.iter().copied()) else { return };
                self.publish(on, std::iter::once(pfn));
                let list: Vec<Pfn> = pfns.iter().map(|&f| Pfn::new(f)).collect();
                let told = through!(self, on, free_bulk(&list)).unwrap_err();
                assert_eq!((told.freed, told.error), (at, error));
                self.gave(on, pfns[..at].iter().copied(), at as u64, false);
            }
        }
    }

    fn twice(&mut self, first: On, second: On, spot: Spot) {
        let Some(pfn) = self.used(spot) else { return };
        self.free_one(first, pfn);
        match through!(self, second, free(Pfn::new(pfn), Order::ZERO)) {
            Ok(()) => {
                assert_ne!(first.cpu, second.cpu, "{pfn:#x} was freed twice by one CPU");
                self.counted[usize::from(second.cpu)].frees += 1;
                self.late += 1;
                // Whichever is published last is found out; the holder's own is there already.
                self.flush(first);
                if self.late() < self.late {
                    self.flush(second);
                }
                assert_eq!(self.late(), self.late, "{pfn:#x} was freed twice and nobody was told");
            }
            Err(error) => assert_eq!(error, FreeError::DoubleFree { pfn: Pfn::new(pfn) }),
        }
    }

    fn late(&self) -> u64 {
        self.host.late.load(Ordering::Relaxed)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Alloc { on, kind, order, n, no_lock } => {
                let flags = if no_lock { AllocFlags::NO_LOCK } else { AllocFlags::empty() };
                let n = if order == 0 { n } else { n % 4 + 1 };
                for _ in 0..n {
                    self.alloc(on, kind, order, flags);
                }
            }
            Step::AllocBulk { on, kind, n } => {
                let mut out = vec![Pfn::default(); usize::from(n)];
                let request = Request::new(Order::ZERO, Migratetype::PCP[usize::from(kind)]);
                let got = through!(self, on, alloc_bulk(request, &mut out)).unwrap_or(0);
                out[..got].iter().for_each(|pfn| self.took(Some(on), kind, 0, pfn.get(), 1));
                assert!(got == out.len() || self.reserves || self.free == 0, "{got} of {n}, {} free", self.free);
            }
            Step::Pairs { on, freer, kind, order, hold, n } => {
                let mut held = VecDeque::new();
                for _ in 0..n {
                    for _ in held.len()..usize::from(hold) {
                        held.extend(self.alloc(on, kind, order, AllocFlags::empty()));
                    }
                    let Some(pfn) = held.pop_front() else { break };
                    if order == 0 { self.free_one(freer, pfn) } else { self.free_block(freer, pfn, false) }
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
                through!(self, on, free_bulk(&list)).unwrap();
                let frees = row.len() as u64;
                self.gave(on, row.into_iter(), frees, false);
            }
            Step::FreeRange { on, spot, len } => {
                let Some(start) = self.used(spot) else { return };
                let end = (start..start + u64::from(len)).find(|&f| !self.is_used(f)).unwrap_or(start + u64::from(len));
                // Zones lie side by side: a range is within one.
                let zone = self.spans.iter().find(|span| span.contains(Pfn::new(start))).unwrap();
                let end = end.min(zone.end.get());
                through!(self, on, free_range(range(start, end - start))).unwrap();
                // One free for the piece in each block.
                self.gave(on, start..end, (end - 1) / 512 - start / 512 + 1, false);
            }
            Step::FreeBlock { on, spot, as_range } => {
                let base = self.pfn(spot) & !511;
                if (base..base + 512).all(|f| self.is_used(f)) {
                    self.free_block(on, base, as_range);
                }
            }
            Step::Wrong { on, spot, how } => self.wrong(on, spot, how),
            Step::Twice { first, second, spot } => self.twice(first, second, spot),
            Step::Tick { on } => through!(self, on, tick()).unwrap(),
            Step::Flush { on } => self.flush(on),
            Step::Drain => self.fh.drain_all(),
            Step::Validate => self.fh.validate().unwrap_or_else(|violation| panic!("{violation}")),
            Step::Reown { cpu: c, replug } => {
                self.owners[usize::from(c)] = None;
                if replug {
                    self.fh.cpu_offline(cpu(c)).unwrap();
                    assert_eq!(self.fh.blocks_held(Some(cpu(c))), 0);
                    self.fh.cpu_online(cpu(c)).unwrap();
                }
                self.owners[usize::from(c)] = Some(self.fh.own(cpu(c)).unwrap());
            }
            Step::Limited { on, order, from, len } => {
                let (from, below) = (u64::from(from), u64::from(from) + u64::from(len));
                let request = Request::new(request_order(order), Migratetype::Movable);
                match through!(self, on, alloc(request.from(Pfn::new(from)).below(Pfn::new(below)))) {
                    Ok(pfn) => {
                        assert!(from <= pfn.get() && pfn.get() + (1 << order) <= below);
                        self.took(Some(on), 1, order, pfn.get(), 1 << order);
                    }
                    Err(error) => {
                        assert!(is_no_memory(Err(error)), "{error}");
                        let run = self.run(1 << order, 1 << order, from, below);
                        assert!(self.reserves || run.is_none(), "order {order} refused, but {run:x?} is free");
                    }
                }
            }
            Step::Contig { from, len, anywhere } => {
                let (from, len) = (u64::from(from), u64::from(len));
                let below = if anywhere { self.frames.len() as u64 } else { from + len };
                let limits = FrameRange { start: Pfn::new(from.min(below)), end: Pfn::new(below) };
                match self.fh.alloc_contig(len, Order::ZERO, limits, |_| false) {
                    Ok(found) => {
                        assert!(limits.start <= found.start && found.end <= limits.end && found.len() == len);
                        self.took(None, 0, 0, found.start.get(), len);
                    }
                    Err(error) => {
                        assert!(is_no_memory(Err(error)), "{error}");
                        let run = self.run(len, 1, limits.start.get(), below);
                        let run = run.filter(|&at| {
                            self.spans.iter().any(|s| s.contains(Pfn::new(at + len - 1)) && s.contains(Pfn::new(at)))
                        });
                        assert!(self.reserves || run.is_none(), "{len} frames refused, but {run:x?} is free");
                    }
                }
            }
        }
    }

    /// All that can be read without entering.
    fn check(&self) {
        let free: u64 = (0..self.fh.zone_count()).map(|z| self.fh.zone_stats(z).unwrap().free).sum();
        assert_eq!(free, self.free, "frames free");
        for (c, counted) in self.counted.iter().enumerate() {
            let stats = self.fh.cpu_stats(cpu(c as u16)).unwrap();
            for (kind, expected) in counted.allocs.iter().enumerate() {
                assert_eq!(&stats.allocs[kind][..11], expected, "allocations of type {kind} by CPU {c}");
            }
            assert_eq!(stats.local_frees + stats.remote_frees, counted.frees, "frees by CPU {c}");
            let holdings = self.fh.cpu_holdings(cpu(c as u16)).unwrap().0;
            assert!(holdings <= self.free, "CPU {c} says it holds {holdings} free frames of {}", self.free);
        }
        assert_eq!(self.fh.totals().unattributed_frees, 0);
        assert_eq!(self.late(), self.late, "late double frees");
    }

    fn finish(mut self) {
        self.fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        let used: Vec<u64> = (0..self.frames.len() as u64).filter(|&f| self.is_used(f)).collect();
        for (i, pfn) in used.into_iter().enumerate() {
            self.free_one(On { cpu: (i / 700) as u16 % CPUS, owner: true }, pfn);
        }
        self.check();
        self.fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_all_free(self.fh);
        assert_eq!(self.late(), self.late, "late double frees");
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
    let loud = std::env::var_os("FREEHOLD_HISTORY").is_some();
    for step in steps {
        if loud {
            eprintln!("{step:?}");
        }
        player.step(step);
        player.check();
    }
    player.finish();
}

fn nothing_back<'a>(memory: &'a [FrameRange]) -> ZoneConfig<'a> {
    ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(memory) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// CPUs whose share of memory is hardly more than a block: they give back all the time, and memory runs out.
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

    /// Zones of two nodes with CMA, watermarks and a hole: CPUs that hold blocks of a zone they do not go to first.
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

/// A history written out, on much memory: the order of things that random ones seldom hit.
fn written(history: impl FnOnce(&mut Player<'_>)) {
    let host = Host { barrier: true, late: AtomicU64::new(0) };
    let memory = [range(512, 120 * 512)];
    let zones = [nothing_back(&memory)];
    let fh = build(&Config::new(CPUS, &zones), &host);
    let mut player = Player::new(&fh, &host, &zones);
    history(&mut player);
    player.check();
    player.finish();
}

const OWNER: On = On { cpu: 0, owner: true };
const OTHER: On = On { cpu: 1, owner: true };

impl Player<'_> {
    fn block(&mut self, on: On) -> u64 {
        self.alloc(on, 1, 9, AllocFlags::empty()).unwrap()
    }

    fn single(&mut self, on: On) -> u64 {
        self.alloc(on, 1, 0, AllocFlags::empty()).unwrap()
    }

    fn is_double(&self, on: On, pfn: u64, order: Order, first: u64) {
        let result = through!(self, on, free(Pfn::new(pfn), order));
        assert_eq!(result, Err(FreeError::DoubleFree { pfn: Pfn::new(first) }));
    }
}

#[test]
fn part_of_a_block_kept_aside_goes_its_own_way() {
    for lone in [false, true] {
        written(|p| {
            let block = p.block(OWNER);
            p.free_block(OWNER, block, false);
            assert_eq!(p.block(OWNER), block);
            if lone {
                let other = p.single(OWNER);
                p.free_one(OWNER, other);
            }
            p.free_one(OWNER, block + 70);
            p.is_double(OWNER, block, Order::PAGEBLOCK, block + 70);
            p.free_one(OWNER, block + 7);
            p.is_double(OWNER, block, Order::PAGEBLOCK, block + 7);
        });
    }
}

#[test]
fn a_block_taken_whole_is_looked_at_when_a_frame_of_its_last_word_comes_back() {
    written(|p| {
        // Two blocks in hand; the second one becomes whole frame by frame, its last word last.
        let (first, second) = (p.block(OWNER), p.block(OWNER));
        p.free_block(OWNER, first, false);
        let kept = p.block(OWNER);
        (0..512).for_each(|i| p.free_one(OWNER, second + i));
        let again = [p.block(OWNER), p.block(OWNER)];
        let taken = again.into_iter().find(|&b| b == second).unwrap_or(kept);
        for i in [511, 510, 509, 508] {
            p.free_one(OWNER, taken + i);
        }
        p.is_double(OWNER, taken + 509, Order::ZERO, taken + 509);
        p.fh.validate().unwrap();
    });
}

#[test]
fn a_block_freed_to_and_fro_between_its_words_is_known_to_be_whole() {
    written(|p| {
        let blocks = [p.block(OWNER), p.block(OWNER), p.block(OWNER)];
        for block in blocks {
            for i in 0..64 {
                for w in [0, 5, 1, 4, 2, 7, 3, 6] {
                    p.free_one(OWNER, block + w * 64 + i);
                }
            }
        }
        p.check();
        p.fh.validate().unwrap();
    });
}

#[test]
fn a_block_used_up_and_put_aside_takes_part_again_when_its_last_word_gets_a_frame_back() {
    written(|p| {
        let (first, second) = (p.block(OWNER), p.block(OWNER));
        p.free_one(OWNER, second + 100);
        p.free_one(OWNER, second + 101);
        (0..4).for_each(|i| p.free_one(OWNER, first + i));
        // The first block becomes the active one, is freed into, and is used up.
        while p.frames[first as usize..first as usize + 4].contains(&Frame::Free) {
            p.single(OWNER);
        }
        p.free_one(OWNER, first + 3);
        p.free_one(OWNER, first + 2);
        while p.frames[first as usize..first as usize + 4].contains(&Frame::Free) {
            p.single(OWNER);
        }
        // Another one takes its place, and now the word freed into last is one of a block on the shelf.
        let other = p.single(OWNER);
        assert_ne!(other / 512, first / 512);
        p.free_one(OWNER, first + 2);
        p.free_one(OWNER, first + 1);
        p.check();
        p.fh.validate().unwrap();
    });
}

#[test]
fn the_owner_is_told_of_frees_by_others_in_whichever_block_it_freed_into_last() {
    written(|p| {
        let blocks = [p.block(OWNER), p.block(OWNER), p.block(OWNER)];
        // Something is kept aside, so that the frees below set bits.
        let kept = p.single(OWNER);
        p.free_one(OWNER, kept);
        for block in blocks {
            for i in 0..3 {
                p.free_one(OWNER, block + i);
            }
            // The owner is settled by nobody: the other CPU publishes its own buffer.
            p.free_one(OTHER, block + 9);
            p.free_one(OTHER, block + 10);
            p.flush(OTHER);
            p.is_double(OWNER, block + 9, Order::ZERO, block + 9);
        }
        for block in blocks {
            for i in 20..23 {
                p.free_one(OWNER, block + i);
            }
            p.free_one(OTHER, block + 30);
            let pair = p.single(OWNER);
            p.free_one(OWNER, pair);
            p.is_double(OWNER, block + 30, Order::ZERO, block + 30);
        }
    });
}

#[test]
fn a_kept_frame_freed_by_another_cpu_is_not_the_owners_to_free() {
    for publish in [false, true] {
        written(|p| {
            for _ in 0..3 {
                let pfn = p.single(OWNER);
                p.free_one(OWNER, pfn);
                let again = p.single(OWNER);
                p.free_one(OTHER, again);
                if publish {
                    p.flush(OTHER);
                    p.is_double(OWNER, again, Order::ZERO, again);
                } else {
                    match p.owners[0].as_ref().unwrap().free(Pfn::new(again), Order::ZERO) {
                        Ok(()) => {
                            p.counted[0].frees += 1;
                            p.late += 1;
                        }
                        Err(error) => assert_eq!(error, FreeError::DoubleFree { pfn: Pfn::new(again) }),
                    }
                    p.flush(OTHER);
                }
                // Handed out once, and not collected while it is in use.
                let next = p.single(OWNER);
                p.fh.drain_all();
                p.check();
                p.free_one(OWNER, next);
                let block = p.block(OWNER);
                p.free_block(OWNER, block, true);
            }
        });
    }
}

/// No number stands for "nothing" that a caller may free.
#[test]
fn the_last_number_there_is_is_no_frame() {
    written(|p| {
        let none = Pfn::new(u64::MAX);
        for round in 0..3 {
            for order in [Order::ZERO, Order::PAGEBLOCK] {
                let result = p.owners[0].as_ref().unwrap().free(none, order);
                assert!(result.is_err(), "round {round}: {result:?}");
            }
            let (pfn, block) = (p.single(OWNER), p.block(OWNER));
            p.free_one(OWNER, pfn);
            p.free_block(OWNER, block, false);
            if round == 1 {
                // Kept aside, in use, and freed by another CPU.
                assert_eq!(p.single(OWNER), pfn);
                p.free_one(OTHER, pfn);
                p.flush(OTHER);
            } else {
                p.flush(OWNER);
            }
        }
    });
}

#[test]
fn a_kept_block_freed_by_another_cpu_is_not_the_owners_to_free() {
    written(|p| {
        for part in [false, true] {
            let block = p.block(OWNER);
            p.free_block(OWNER, block, false);
            assert_eq!(p.block(OWNER), block);
            if part {
                p.free_one(OTHER, block + 100);
                p.flush(OTHER);
                p.is_double(OWNER, block, Order::PAGEBLOCK, block + 100);
            } else {
                p.free_block(OTHER, block, true);
                p.is_double(OWNER, block, Order::PAGEBLOCK, block);
            }
        }
    });
}

#[test]
fn a_block_freed_whole_takes_its_kept_frame_along() {
    written(|p| {
        // A kept block that is held, so that the next one has its bits set.
        let (first, second) = (p.block(OWNER), p.block(OWNER));
        p.free_one(OWNER, second + 3);
        while !p.is_used(second + 3) {
            p.single(OWNER);
        }
        p.free_block(OWNER, first, false);
        p.free_block(OWNER, second, false);
        p.check();
        p.is_double(OWNER, second + 3, Order::ZERO, second + 3);
        p.is_double(OWNER, second, Order::PAGEBLOCK, second);
        p.fh.validate().unwrap();
    });
}

#[test]
fn the_active_block_freed_whole_is_allocated_from_its_first_word() {
    written(|p| {
        let mut frames = vec![Pfn::default(); 1100];
        let got = p.owners[0].as_ref().unwrap().alloc_bulk(movable(0), &mut frames).unwrap();
        frames[..got].iter().for_each(|pfn| p.took(Some(OWNER), 1, 0, pfn.get(), 1));
        let last = frames[got - 1].get() & !511;
        while p.is_used(last) && !p.is_used(last + 511) {
            p.single(OWNER);
        }
        // Another one is kept aside already.
        let other = p.block(OWNER);
        p.free_block(OWNER, other, false);
        p.free_block(OWNER, last, false);
        p.fh.validate().unwrap();
        let kept = p.block(OWNER);
        p.free_block(OWNER, kept, false);
        // A word of the block freed whole was the one freed into last.
        (0..3).for_each(|i| p.free_one(OWNER, frames[i].get()));
    });
}

#[test]
fn what_is_kept_aside_is_found_by_whoever_asks_for_that_very_frame() {
    for limited in [false, true] {
        written(|p| {
            let block = p.block(OWNER);
            let pfn = p.single(OWNER);
            p.free_one(OWNER, pfn);
            p.free_block(OWNER, block, false);
            let (from, len) = (block as u16, 512);
            if limited {
                p.step(&Step::Limited { on: OTHER, order: 9, from, len });
                p.step(&Step::Limited { on: OTHER, order: 0, from: pfn as u16, len: 1 });
            } else {
                p.step(&Step::Contig { from, len, anywhere: false });
                p.step(&Step::Contig { from: pfn as u16, len: 1, anywhere: false });
            }
            assert!(p.is_used(block + 511) && p.is_used(pfn));
        });
    }
}

/// Frames beside existing ones of one block that do not exist themselves, freed by its holder and by others.
#[test]
fn holes_are_no_frames_to_any_owner() {
    let host = Host { barrier: true, late: AtomicU64::new(0) };
    let memory = [range(512, 40 * 512 + 70)];
    let zone = ZoneConfig { span: range(512, 60 * 512), ..nothing_back(&memory) };
    let fh = build(&Config::new(CPUS, &[zone]), &host);
    let mut p = Player::new(&fh, &host, std::slice::from_ref(&zone));
    while p.free > 0 {
        p.single(OWNER);
    }
    let end = memory[0].end.get();
    for on in [OTHER, OWNER, On { cpu: 2, owner: true }] {
        for pfn in [end - 1, end - 2] {
            p.free_one(on, pfn);
            for hole in [end, end + 1, end + 100] {
                let result = through!(p, on, free(Pfn::new(hole), Order::ZERO));
                assert_eq!(result, Err(FreeError::Hole { pfn: Pfn::new(hole) }));
            }
        }
        p.flush(on);
        p.check();
        while p.free > 0 {
            p.single(OWNER);
        }
    }
    p.finish();
}
