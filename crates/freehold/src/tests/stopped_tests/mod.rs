//! A thread that is stopped at any step of any call holds up nobody: all others finish all their
//! calls, and get all memory but what the stopped one has, and one block that it was at.
//!
//! ```text
//! mod.rs    the machine, the calls that are stopped, what the others do and what they must get
//! each      every step, all of the others' calls one after another in between
//! ```
//!
//! The two exceptions: a thread that is inside a CPU's state keeps others out of that, and calls
//! that ask all CPUs for what they have in hand wait for it. So the others do not wait here: their
//! requests are `NO_LOCK` ones, and where memory is left and no CPU is being asked, ordinary ones
//! too. A turn of a wait fails the test.

mod each;

use crate::cpu::lease::SLOTS;
use crate::cpu::state::CpuState;
use crate::tests::testing::*;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// The machine: these blocks from that frame on. CPU 0 is the stopped thread's, 1 and 2 the
/// others', and somebody is inside CPU 3 where calls are made outside every door.
const BLOCKS: u64 = 8;
const FIRST: u64 = 1024;
const FRAMES: u64 = BLOCKS * 512;
const STOPPED: CpuId = CpuId::new(0);
const BUSY: CpuId = CpuId::new(3);

/// Turns of waits are wrong while `nobody_waits`, but for the thread that is stopped.
struct Host {
    nobody_waits: AtomicBool,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn heavy_barrier(&self) {}
    fn relax(&self) {
        let wrong = self.nobody_waits.load(Ordering::Relaxed);
        assert!(!wrong, "somebody waits for a thread that is stopped");
    }
}

/// The type of the crate's other tests: each type of host more is one more copy to compile.
type Machine = Freehold<'static, &'static dyn Platform>;
type Chunk = (Pfn, Order);

/// How the stopped call gets into a CPU's state.
#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Anybody,
    Owner,
    /// Not at all: somebody else is inside.
    Nobody,
}

/// A call that is stopped.
#[derive(Clone, Copy, Debug)]
enum Call {
    Alloc(u8, Migratetype),
    /// From frame `FIRST` + 512 * 2 on, aligned further than its order.
    Within(u8),
    Free(u8),
    /// The last frame of a block: it becomes whole.
    Last,
    /// A part of a block in use as one.
    Part,
    Bulk,
    FreeBulk,
    Range,
    Flush,
    Tick,
    Own,
    Drain,
    Contig,
    ContigRange,
    Evacuate,
    Hotplug,
    Cpu,
}

impl Call {
    /// It asks other CPUs for what they have, and is inside their states meanwhile.
    fn asks(self) -> bool {
        use Call::{Contig, ContigRange, Cpu, Drain, Evacuate, Hotplug};
        matches!(self, Contig | ContigRange | Cpu | Drain | Evacuate | Hotplug)
    }

    /// The frames that it takes, frees or isolates.
    fn frames(self) -> u64 {
        match self {
            Self::Alloc(order, _) | Self::Within(order) | Self::Free(order) => 1 << order,
            Self::Last => 1,
            // The block that it empties, and a frame's new place.
            Self::Evacuate => 513,
            Self::Part => 64,
            Self::Bulk | Self::FreeBulk => 150,
            Self::Range => 700,
            Self::Contig | Self::ContigRange | Self::Hotplug => 1024,
            _ => 0,
        }
    }
}

/// What is stopped, and with how much memory.
#[derive(Clone, Copy, Debug)]
struct Plan {
    call: Call,
    by: By,
    /// No block is wholly free.
    short: bool,
}

/// The machine, and who has what.
struct World {
    fh: Machine,
    host: &'static Host,
    plan: Plan,
    /// The stopped thread's, before its call and, once that has ended, after it.
    mine: Mutex<Vec<Chunk>>,
    /// The others', to be freed.
    theirs: Mutex<Vec<Chunk>>,
}

/// Chunks that these frames are.
fn singles(frames: &[Pfn]) -> impl Iterator<Item = Chunk> + '_ {
    frames.iter().map(|&pfn| (pfn, Order::ZERO))
}

impl World {
    fn new(plan: Plan) -> &'static Self {
        let memory = [frames_at(FIRST, FRAMES)];
        let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
        let config = Config { extra_ranges: 4, ..Config::new(4, &zones) };
        let size = config.metadata_size().unwrap();
        let metadata: &mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(size));
        let host: &Host = Box::leak(Box::new(Host { nobody_waits: AtomicBool::new(false) }));
        let world = Self {
            fh: Machine::new(&config, metadata, host).unwrap(),
            host,
            plan,
            mine: Mutex::new(Vec::new()),
            theirs: Mutex::new(Vec::new()),
        };
        world.prepare();
        Box::leak(Box::new(world))
    }

    /// Has both have some memory, so that blocks are partly free and words leased.
    fn prepare(&self) {
        let own = self.fh.on(STOPPED);
        // Every section's metadata is set up: a thread that is stopped at that keeps the section,
        // see bounds.md.
        let blocks = core::iter::from_fn(|| own.alloc(movable(9)).ok()).collect::<Vec<_>>();
        blocks.into_iter().for_each(|pfn| own.free(pfn, Order::PAGEBLOCK).unwrap());
        self.fh.drain_all();
        let take = |n: u8| (own.alloc(movable(n)).unwrap(), of_order(n));
        let mut mine = Vec::new();
        match self.plan.call {
            Call::Free(n) => mine.push(take(n)),
            Call::Last | Call::Part => mine.push(take(9)),
            Call::FreeBulk => mine.extend((0..self.plan.call.frames()).map(|_| take(0))),
            Call::Range => mine.push(take(10)),
            Call::Evacuate => mine.push(take(0)),
            _ => {}
        }
        // In hand, and in a block that others have frames of too.
        mine.push(take(0));
        let mut theirs = Vec::new();
        for (n, of) in [(0, 1), (3, 1), (0, 2), (7, 2), (9, 1)] {
            theirs.push((self.fh.on(CpuId::new(of)).alloc(movable(n)).unwrap(), of_order(n)));
        }
        if self.plan.short {
            let other = self.fh.on(CpuId::new(1));
            let blocks = core::iter::from_fn(|| other.alloc(movable(9)).ok());
            theirs.extend(blocks.map(|pfn| (pfn, Order::PAGEBLOCK)));
            // Of one block half is free.
            let (block, _) = theirs.pop().unwrap();
            let half = FrameRange::new(block, 256).unwrap();
            other.free_range(half).unwrap();
            theirs.push((Pfn::new(block.get() + 256), of_order(8)));
            self.fh.drain_all();
        }
        if let (Call::Last, Some((block, of_block))) = (self.plan.call, mine.first_mut()) {
            // Last of all: nobody takes a frame of it.
            let rest = frames_at(block.get() + 1, 511);
            self.fh.on(BUSY).free_range(rest).unwrap();
            *of_block = Order::ZERO;
        }
        self.mine.lock().unwrap().extend(mine);
        self.theirs.lock().unwrap().extend(theirs);
    }

    /// What is to be freed by the call, which is the first that the stopped thread has.
    fn first(&self) -> Chunk {
        self.mine.lock().unwrap().remove(0)
    }

    /// The call, through its door; what it leaves the thread with is noted. `run` is given the part
    /// that is to be stopped.
    fn call(&'static self, run: &mut dyn FnMut(&mut dyn FnMut())) {
        let call = self.plan.call;
        let mut got: Vec<Chunk> = Vec::new();
        let Plan { by, .. } = self.plan;
        let given = match call {
            Call::Free(_) | Call::Last | Call::Part | Call::Range => Some(self.first()),
            _ => None,
        };
        let frames: Vec<Pfn> = match call {
            Call::FreeBulk => (0..call.frames()).map(|_| self.first().0).collect(),
            _ => Vec::new(),
        };
        let flags = if by == By::Nobody { AllocFlags::NO_LOCK } else { AllocFlags::empty() };
        let on_busy = || (self.fh.cpus.get(BUSY.index()).unwrap(), self.fh.on(BUSY));
        let mut through = |door: &dyn Frames| {
            run(&mut || match call {
                Call::Alloc(n, kind) => {
                    let request = Request::new(of_order(n), kind).flags(flags);
                    got.extend(door.alloc(request).ok().map(|pfn| (pfn, of_order(n))));
                }
                Call::Within(n) => {
                    let request = movable(n).flags(flags).from(Pfn::new(FIRST + 1024));
                    let found = door.alloc(request.align(of_order(n + 2)));
                    got.extend(found.ok().map(|pfn| (pfn, of_order(n))));
                }
                Call::Free(_) | Call::Last => {
                    let (pfn, order) = given.unwrap();
                    door.free(pfn, order).unwrap();
                }
                Call::Part => {
                    let (pfn, _) = given.unwrap();
                    door.free(pfn, of_order(6)).unwrap();
                    let rest = (1..8).map(|w| (Pfn::new(pfn.get() + w * 64), of_order(6)));
                    got.extend(rest);
                }
                Call::Bulk => {
                    let mut out = [Pfn::new(0); 150];
                    let n = door.alloc_bulk(movable(0).flags(flags), &mut out).unwrap_or(0);
                    got.extend(singles(&out[..n]));
                }
                Call::FreeBulk => door.free_bulk(&frames).unwrap(),
                Call::Range => {
                    let (pfn, _) = given.unwrap();
                    let range = |from, frames| frames_at(from, frames);
                    door.free_range(range(pfn.get(), 700)).unwrap();
                    let rest = pfn.get() + 700..pfn.get() + 1024;
                    got.extend(rest.map(|pfn| (Pfn::new(pfn), Order::ZERO)));
                }
                _ => self.rare(&mut got),
            });
        };
        match by {
            By::Anybody => through(&self.fh.on(STOPPED)),
            By::Owner => through(&self.fh.own(STOPPED).unwrap()),
            By::Nobody => {
                let (state, door) = on_busy();
                let _inside = Inside::enter(&self.fh, state, false);
                through(&door);
            }
        }
        self.mine.lock().unwrap().append(&mut got);
    }

    /// Calls that are no request and no free.
    fn rare(&self, got: &mut Vec<Chunk>) {
        let fh = &self.fh;
        let whole = |block: u64| frames_at(FIRST + block * 512, 1024);
        let mut took = |range: FrameRange| {
            let frames = range.start.get()..range.end.get();
            got.extend(frames.map(|pfn| (Pfn::new(pfn), Order::ZERO)));
        };
        match self.plan.call {
            Call::Flush => fh.on(STOPPED).flush().unwrap(),
            Call::Tick => fh.on(STOPPED).tick().unwrap(),
            Call::Own => drop(fh.own(STOPPED).unwrap()),
            Call::Drain => fh.drain_all(),
            Call::Contig => {
                let all = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };
                let found = fh.alloc_contig_free(1024, of_order(6), all);
                found.into_iter().for_each(&mut took);
            }
            Call::ContigRange => {
                let range = whole(BLOCKS - 2);
                if fh.alloc_contig_range(range, |_| false).is_ok() {
                    took(range);
                }
            }
            Call::Evacuate => self.evacuate(got),
            Call::Hotplug => {
                if fh.remove_memory(whole(BLOCKS - 2)).is_ok() {
                    fh.add_memory(whole(BLOCKS - 2)).unwrap();
                }
            }
            Call::Cpu => {
                fh.on(STOPPED).offline().unwrap();
                fh.on(STOPPED).online().unwrap();
            }
            call => unreachable!("{call:?} is a request or a free"),
        }
    }

    /// All that the stopped thread has moves out of its block.
    fn evacuate(&self, got: &mut Vec<Chunk>) {
        let own = self.fh.on(STOPPED);
        let mut left = core::mem::take(&mut *self.mine.lock().unwrap());
        let start = left[0].0.pageblock();
        if let Ok(mut block) = self.fh.evacuate(start) {
            block.move_used(|used| {
                for (pfn, _) in left.iter_mut().filter(|(pfn, _)| used.contains(*pfn)) {
                    let Ok(new) = own.alloc(movable(0)) else { return false };
                    assert_ne!(new.pageblock(), start, "a frame of a block that is being emptied");
                    own.free(*pfn, Order::ZERO).unwrap();
                    *pfn = new;
                }
                true
            });
        }
        got.append(&mut left);
    }

    /// One of the others frees what it has, some of it through the stopped thread's CPU and through
    /// the one that somebody is in, and makes requests of every kind; none of it waits.
    fn others(&self, cpu: CpuId) {
        let fh = &self.fh;
        let mut door = 0;
        // A CPU that is going, or coming, is none to free through.
        let first = if matches!(self.plan.call, Call::Cpu) { cpu } else { STOPPED };
        loop {
            let Some((pfn, order)) = self.theirs.lock().unwrap().pop() else { break };
            door += 1;
            fh.on([cpu, first, BUSY][door % 3]).free(pfn, order).unwrap();
        }
        let there = [AllocFlags::NO_LOCK, AllocFlags::empty()];
        let asked = self.plan.call.asks() || self.plan.short;
        for n in [0, 3, 7, 9, 10] {
            // A run of blocks may be in the stopped thread's way, and a thread that misses one asks
            // all CPUs.
            let ordinary = if asked || n > 9 { 1 } else { 2 };
            for &flags in &there[..ordinary] {
                // Through the stopped thread's CPU only who does not wait.
                let through = if flags.is_empty() { cpu } else { first };
                for door in [cpu, through] {
                    match fh.on(door).alloc(movable(n).flags(flags)) {
                        Ok(pfn) => fh.on(cpu).free(pfn, of_order(n)).unwrap(),
                        Err(AllocError::WouldBlock) => {}
                        Err(error) => panic!("{:?}: order {n}: {error}", self.plan),
                    }
                }
            }
        }
    }

    /// Frames that nobody but the stopped thread may take: of its own CPU, and of those that it is
    /// inside of, since it asks them for what they have.
    fn in_hand(&self) -> u64 {
        let its = |cpu: &&CpuState<'_>| cpu.number == STOPPED.get() || cpu.door.is_occupied();
        self.fh.cpus.iter().filter(its).map(|cpu| self.in_hand_of(cpu)).sum()
    }

    /// What a CPU has in hand, what others have freed into words that it leases, and the whole
    /// blocks that it keeps.
    fn in_hand_of(&self, cpu: &CpuState<'_>) -> u64 {
        let of_slot = |slot: usize| {
            let lease = cpu.leases.slot(slot);
            let named = lease.seen_place(&self.fh.map.blocks).map(|(block, w)| block.head.lease(w));
            let is_its = lease.is_in_use() && named == Some(cpu.number + 1);
            let word = if is_its { lease.word() } else { 0 };
            u64::from((lease.all() | word).count_ones())
        };
        let kept = cpu.kept.iter().filter(|kept| !kept.is_none()).count() as u64;
        (0..SLOTS).map(of_slot).sum::<u64>() + kept * 512
    }

    /// All memory that can be had without waiting is taken: it is all but what the stopped thread
    /// has, or has in hand, and what its call is about, and one block on the way.
    fn all_else_is_there(&self, ended: bool) {
        let fh = &self.fh;
        let mut got: Vec<Chunk> = Vec::new();
        let mut before = None;
        while before != Some(got.len()) {
            before = Some(got.len());
            for cpu in [CpuId::new(1), CpuId::new(2), BUSY] {
                let request = |n| movable(n).flags(AllocFlags::NO_LOCK);
                let blocks = core::iter::from_fn(|| fh.on(cpu).alloc(request(9)).ok());
                got.extend(blocks.map(|pfn| (pfn, Order::PAGEBLOCK)));
                let mut out = [Pfn::new(0); 512];
                while let Ok(n) = fh.on(cpu).alloc_bulk(request(0), &mut out) {
                    got.extend(singles(&out[..n]));
                }
            }
        }
        let sum = |chunks: &[Chunk]| chunks.iter().map(|(_, order)| order.frames()).sum::<u64>();
        let (there, mine) = (sum(&got), sum(&self.mine.lock().unwrap()));
        let in_hand = self.in_hand();
        let hidden = FRAMES - there - mine - in_hand.min(FRAMES - there - mine);
        let most = if ended { 0 } else { self.plan.call.frames() + 512 };
        assert!(
            hidden <= most,
            "{:?}: {there} frames can be had, the stopped thread has {mine} and {in_hand} in hand, {hidden} are gone",
            self.plan
        );
        // Nobody has a frame twice.
        let mut all: Vec<u64> = got
            .iter()
            .chain(self.mine.lock().unwrap().iter())
            .flat_map(|(pfn, order)| pfn.get()..pfn.get() + order.frames())
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{:?}: a frame was handed out twice", self.plan);
        got.into_iter().for_each(|(pfn, order)| fh.on(CpuId::new(2)).free(pfn, order).unwrap());
    }

    /// The call has gone on and ended: all memory comes back and is whole.
    fn end(&self) {
        let fh = &self.fh;
        self.all_else_is_there(true);
        let left = core::mem::take(&mut *self.mine.lock().unwrap());
        left.into_iter().for_each(|(pfn, order)| fh.on(STOPPED).free(pfn, order).unwrap());
        fh.drain_all();
        fh.validate().unwrap_or_else(|violation| panic!("{:?}: {violation}", self.plan));
        let (free, blocks) =
            (fh.zone_stats(0).unwrap().free, fh.zone_blocks(0).unwrap().free_blocks);
        assert_eq!((free, blocks), (FRAMES, BLOCKS), "{:?}", self.plan);
        assert_eq!(fh.totals().late_double_frees, 0);
    }
}

/// All calls, through each door that they can be made through.
fn plans() -> Vec<Plan> {
    use Call::{Alloc, Free, Within};
    use Migratetype::{Movable, Unmovable};
    let mut plans = Vec::new();
    let mut add = |calls: &[Call], doors: &[By], short: bool| {
        for &call in calls {
            plans.extend(doors.iter().map(|&by| Plan { call, by, short }));
        }
    };
    let all = [By::Anybody, By::Owner, By::Nobody];
    let orders = [0, 3, 7, 9, 10];
    let allocs = orders.map(|n| Alloc(n, Movable));
    add(&allocs, &all, false);
    add(&orders.map(Free), &all, false);
    add(
        &[Alloc(0, Unmovable), Alloc(3, Migratetype::Reclaimable), Within(0), Within(9)],
        &all,
        false,
    );
    // Of another type: blocks are claimed, or mixed.
    add(
        &[Alloc(0, Unmovable), Alloc(7, Unmovable), Alloc(0, Movable), Alloc(3, Movable)],
        &[By::Nobody],
        true,
    );
    add(&[Call::Last, Call::Part, Call::Bulk, Call::FreeBulk, Call::Range], &all, false);
    use Call::{Contig, ContigRange, Cpu, Drain, Evacuate, Flush, Hotplug, Own, Tick};
    let rare = [Flush, Tick, Own, Drain, Contig, ContigRange, Evacuate, Hotplug, Cpu];
    add(&rare, &[By::Anybody], false);
    plans
}
