//! A thread that allocates and frees, in every way there is.

mod free;

use std::sync::PoisonError;

use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, Migratetype, NodeId, Order, Pfn, Request,
};

use super::bounds::{BULK, Door, Kind, RANGE, alloc_of};
use super::clerk::Clerk;
use super::handle::Handle;
use super::ledger::Chunk;
use super::platform;
use super::world::World;
use super::{Map, Plant};
use crate::random::Random;

/// Steps between two looks whether everybody is to pause.
const STEPS: u32 = 64;
/// So many times there are at least.
const LEAST: u32 = 8;
/// Orders of allocations: small ones are common.
const ORDERS: [u8; 18] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10];
/// What a request may be allowed beside the ordinary.
const ALLOWED: [AllocFlags; 5] = [
    AllocFlags::NON_BLOCK,
    AllocFlags::MIN_RESERVE,
    AllocFlags::OOM,
    AllocFlags::NO_FRAGMENT,
    AllocFlags::NO_WATERMARKS,
];

pub(super) struct Worker {
    pub(super) clerk: Clerk,
    handle: Handle,
    random: Random,
    held: Vec<Chunk>,
    /// Frames of `held`, and as many as it is to have.
    frames: u64,
    target: u64,
    /// The fault that it makes, once.
    plant: Option<Plant>,
}

impl Worker {
    pub(super) fn new(world: &'static World, number: u32, alone: bool) -> Self {
        let plant = world.plan.plant.filter(|_| number == 0 && !alone);
        Self {
            clerk: Clerk::new(world, number, alone),
            handle: Handle::on(world, 0),
            random: Random::new(world.plan.seed << 20 | u64::from(number)),
            held: Vec::new(),
            frames: 0,
            target: world.share() / 2,
            plant,
        }
    }

    /// Calls until `over`.
    pub(super) fn run(&mut self, over: impl Fn() -> bool) {
        let world = self.clerk.world;
        let mut rounds = 0;
        // On a machine with more to do than this the time may be up before there was any.
        while !over() || rounds < LEAST && !world.ledger.is_trouble() {
            rounds += 1;
            let _calling = world.gate.read().unwrap_or_else(PoisonError::into_inner);
            self.begin_round();
            (0..STEPS).for_each(|_| self.step());
            while world.is_low_tide() && self.frames > self.target {
                self.free_some();
            }
        }
    }

    pub(super) fn free_all(&mut self) {
        let world = self.clerk.world;
        let _calling = world.gate.read().unwrap_or_else(PoisonError::into_inner);
        while let Some(chunk) = self.draw() {
            self.free(chunk);
        }
        self.change_handle(None);
    }

    /// Another CPU, and another share of memory to have, now and then.
    fn begin_round(&mut self) {
        let world = self.clerk.world;
        if self.random.below(4) == 0 {
            let cpu = self.random.below(u64::from(world.cpus())) as u16;
            let own = self.random.below(2) == 0;
            self.change_handle(Some((cpu, own)));
        }
        let share = world.share();
        if world.is_low_tide() {
            // Nearly all is free: blocks become whole, and memory can go.
            self.target = self.target.min(share / 50);
        } else if self.random.below(32) == 0 {
            // All together from a tenth to more than there is.
            self.target = share * (10 + self.random.below(130)) / 100;
        }
        if let Some(plant) = self.plant.filter(|_| self.frames > 0) {
            self.plant = None;
            self.do_wrong(plant);
        }
    }

    fn change_handle(&mut self, to: Option<(u16, bool)>) {
        let world = self.clerk.world;
        let old = self.handle.cpu().get();
        let handle = std::mem::replace(&mut self.handle, Handle::on(world, 0));
        if let Handle::Owned(owned) = handle {
            let _ = self.clerk.ask(Kind::Release, old, 0, || {
                drop(owned);
                Ok::<(), ()>(())
            });
        }
        let Some((cpu, own)) = to else { return };
        platform::run_on(CpuId::new(cpu));
        self.handle = if self.random.below(4) == 0 {
            Handle::here(world, cpu)
        } else {
            Handle::on(world, cpu)
        };
        if own {
            match self.clerk.ask(Kind::Own, cpu, 0, || world.freehold.own(CpuId::new(cpu))) {
                Ok(owned) => self.handle = Handle::Owned(owned),
                Err(AllocError::CpuOwned { .. } | AllocError::CpuOffline { .. }) => {}
                Err(error) => world.ledger.tell(format!("own: {error}")),
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..10 => self.leave_in_pool(),
            10..25 => self.free_of_pool(),
            25..28 => self.periodic(),
            28 => self.eat_up(),
            29..31 => self.range(),
            31 if self.random.below(8) == 0 => self.drain(),
            32..34 => self.look(),
            34..36 => self.take_free(),
            36 => self.isolate(),
            _ if self.frames < self.target => self.alloc_some(),
            _ => self.free_some(),
        }
    }

    fn on_cpu<T, E>(
        &mut self,
        kind: Kind,
        what: u64,
        f: impl FnOnce(&Handle) -> Result<T, E>,
    ) -> Result<T, E> {
        let (handle, door) = (&self.handle, self.handle.door());
        self.clerk.call((kind, door), handle.cpu().get(), what, || f(handle))
    }

    fn keep(&mut self, chunk: Chunk) {
        self.clerk.world.ledger.take(chunk, self.clerk.name());
        self.frames += chunk.frames;
        self.held.push(chunk);
    }

    fn alloc_some(&mut self) {
        let order = ORDERS[self.random.below(ORDERS.len() as u64) as usize];
        let kind = Migratetype::PCP[self.random.below(3) as usize];
        let flags = if self.random.below(4) == 0 { AllocFlags::CMA } else { AllocFlags::empty() };
        let request = Request::new(order_of(order), kind).flags(flags);
        match self.random.below(48) {
            0 => {
                let align = (order + 1 + self.random.below(3) as u8).min(9);
                let is_larger = align > order;
                let what = if is_larger { Kind::AllocAligned } else { alloc_of(order) };
                if self.alloc(what, order, request.align(order_of(align))) {
                    self.clerk.tally.trims += u64::from(is_larger);
                }
            }
            1 => {
                let span = self.clerk.world.span();
                let from = span.start.get() + self.random.below(span.len());
                let below = Pfn::new(from + 1024 + self.random.below(8192));
                self.alloc(Kind::AllocLimited, order, request.from(Pfn::new(from)).below(below));
            }
            2..4 => {
                if self.alloc(Kind::AllocNoLock, order, request.flags(flags | AllocFlags::NO_LOCK))
                {
                    self.clerk.tally.unseen += 1;
                }
            }
            4..7 => {
                let node = NodeId::new(self.random.below(2) as u8);
                self.alloc(alloc_of(order), order, request.node(node));
            }
            7..9 => self.alloc_bulk(Request::new(Order::ZERO, kind)),
            9..12 => {
                // Of these orders a zone keeps a reserve.
                let order = 1 + self.random.below(8) as u8;
                let request = Request::new(order_of(order), kind)
                    .flags(AllocFlags::HIGH_ATOMIC | self.allowed());
                self.alloc(Kind::AllocHighAtomic, order, request);
            }
            12..15 => {
                let allowed = self.allowed();
                self.alloc(alloc_of(order), order, request.flags(flags | allowed));
            }
            15..19 if order <= 5 && self.alloc_in_hand(order, kind) => {}
            19..21 => self.alloc_line(),
            _ => {
                self.alloc(alloc_of(order), order, request);
            }
        }
    }

    fn allowed(&mut self) -> AllocFlags {
        ALLOWED[self.random.below(ALLOWED.len() as u64) as usize]
    }

    /// A chunk that the owner has in hand; whether there was one.
    fn alloc_in_hand(&mut self, order: u8, kind: Migratetype) -> bool {
        let Some(owned) = self.handle.owned() else { return false };
        let call = (Kind::AllocInHand, Door::Owner);
        let found = self.clerk.call(call, owned.cpu().get(), u64::from(order), || {
            owned.alloc_in_hand(order_of(order), kind).ok_or(())
        });
        let Ok(pfn) = found else { return false };
        self.clerk.tally.allocs += 1;
        self.keep(Chunk::new(pfn, 1 << order));
        true
    }

    /// Whether there was one.
    fn alloc(&mut self, kind: Kind, order: u8, request: Request) -> bool {
        let may_block = kind == Kind::AllocNoLock;
        match self.on_cpu(kind, u64::from(order), |cpu| cpu.alloc(request)) {
            Ok(pfn) => {
                self.clerk.tally.allocs += 1;
                self.keep(Chunk::new(pfn, 1 << order));
                return true;
            }
            Err(AllocError::NoMemory { .. } | AllocError::CpuOffline { .. }) => {}
            Err(AllocError::WouldBlock) if may_block => {}
            Err(error) => self.clerk.world.ledger.tell(format!("{}: {error}", kind.name())),
        }
        false
    }

    /// Frames side by side, of any number.
    fn alloc_line(&mut self) {
        let most = self.random.pick(&[5, 60, 300, RANGE]);
        let count = 1 + self.random.below(most);
        if let Some(owned) = self.handle.owned().filter(|_| self.random.percent(50)) {
            let call = (Kind::AllocAtHand, Door::Owner);
            let found = self
                .clerk
                .call(call, owned.cpu().get(), count, || owned.alloc_run_at_hand(count).ok_or(()));
            if let Ok(pfn) = found {
                self.clerk.tally.allocs += 1;
                self.keep(Chunk::new(pfn, count));
                return;
            }
        }
        match self.on_cpu(Kind::AllocLine, count, |cpu| cpu.alloc_run(count)) {
            Ok(run) => {
                self.clerk.tally.allocs += 1;
                self.keep(Chunk::new(run.start, run.len()));
            }
            Err(AllocError::NoMemory { .. } | AllocError::CpuOffline { .. }) => {}
            Err(error) => self.clerk.world.ledger.tell(format!("alloc_run: {error}")),
        }
    }

    fn alloc_bulk(&mut self, request: Request) {
        let mut out = [Pfn::default(); BULK];
        let n = 1 + self.random.below(BULK as u64) as usize;
        match self.on_cpu(Kind::AllocBulk, n as u64, |cpu| cpu.alloc_bulk(request, &mut out[..n])) {
            Ok(got) => {
                self.clerk.tally.allocs += got as u64;
                out[..got].iter().for_each(|&pfn| self.keep(Chunk::new(pfn, 1)));
            }
            Err(AllocError::NoMemory { .. } | AllocError::CpuOffline { .. }) => {}
            Err(error) => self.clerk.world.ledger.tell(format!("alloc_bulk: {error}")),
        }
    }

    /// A range that is asked for by its place, or by its length.
    fn range(&mut self) {
        let world = self.clerk.world;
        let cpu = self.handle.cpu().get();
        let patient = self.random.below(2) == 0;
        // Nothing can be moved here, but its owner may free it meanwhile. Not a turn for each run
        // that is in use: on a busy machine a turn is a few ms, and of 1500 frames in use there are
        // 750 runs, five times.
        let mut asked = 0u32;
        let wait = |_: FrameRange| {
            if asked.is_multiple_of(256) {
                std::thread::yield_now();
            }
            asked += 1;
            patient
        };
        let zone = self.random.pick(&world.zones.iter().map(|z| z.span).collect::<Vec<_>>());
        let len = 1 + self.random.below(RANGE.min(zone.len() - 1));
        if self.random.below(8) == 0 {
            let align = order_of(self.random.below(10) as u8);
            let (kind, found) = if self.random.below(2) == 0 {
                let free = || world.freehold.alloc_contig_free(len, align, all(world));
                (Kind::ContigFree, self.clerk.ask(Kind::ContigFree, cpu, len, free))
            } else {
                let any = || world.freehold.alloc_contig(len, align, all(world), wait);
                (Kind::Contig, self.clerk.ask(Kind::Contig, cpu, len, any))
            };
            match found {
                Ok(range) => self.keep(Chunk::new(range.start, range.len())),
                Err(AllocError::NoMemory { .. }) => {}
                Err(error) => world.ledger.tell(format!("{}: {error}", kind.name())),
            }
            return;
        }
        let start = Pfn::new(zone.start.get() + self.random.below(zone.len() - len));
        let chunk = Chunk::new(start, len);
        match self.clerk.ask(Kind::ContigRange, cpu, start.get(), || {
            world.freehold.alloc_contig_range(chunk.range(), wait)
        }) {
            Ok(()) => self.keep(chunk),
            // Somebody has it, or it is away just now.
            Err(AllocError::Busy { .. } | AllocError::BadRange { .. }) => {}
            Err(error) => world.ledger.tell(format!("alloc_contig_range: {error}")),
        }
    }

    /// Whatever is free of a part of a block.
    fn take_free(&mut self) {
        let world = self.clerk.world;
        let zone = self.random.pick(&world.zones.iter().map(|z| z.span).collect::<Vec<_>>());
        let block = zone.start.get() + self.random.below(zone.len() / 512) * 512;
        let first = self.random.below(300);
        let asked = FrameRange {
            start: Pfn::new(block + first),
            end: Pfn::new(block + first + 1 + self.random.below(200)),
        };
        let cpu = self.handle.cpu().get();
        let taken = self.clerk.ask(Kind::TakeFree, cpu, block, || world.freehold.take_free(asked));
        let Ok(words) = taken else { return };
        for pfn in (0..512).filter(|n| words[n / 64] >> (n % 64) & 1 == 1) {
            let pfn = Pfn::new(block + pfn as u64);
            if !asked.contains(pfn) {
                world.ledger.tell(format!("take_free of {asked} took {pfn}"));
            }
            self.keep(Chunk::new(pfn, 1));
        }
    }

    /// Keeps a range of blocks from everybody for a moment.
    fn isolate(&mut self) {
        let (world, cpu) = (self.clerk.world, self.handle.cpu().get());
        let zone = self.random.pick(&world.zones.iter().map(|z| z.span).collect::<Vec<_>>());
        let start = zone.start.get() + self.random.below(zone.len());
        let range = Chunk { start, frames: 1 + self.random.below(900) }.range();
        if self.clerk.ask(Kind::Isolate, cpu, start, || world.freehold.isolate(range)).is_ok() {
            std::thread::yield_now();
            let _ = self.clerk.ask(Kind::Restore, cpu, start, || {
                world.freehold.restore(range);
                Ok::<(), ()>(())
            });
        }
    }

    fn periodic(&mut self) {
        let tick = self.random.below(2) == 0;
        let result = if tick {
            self.on_cpu(Kind::Tick, 0, Handle::tick)
        } else {
            self.on_cpu(Kind::Flush, 0, Handle::flush)
        };
        if let Err(error) = result.or_else(unless_offline) {
            self.clerk.world.ledger.tell(format!("tick or flush: {error}"));
        }
    }

    fn drain(&mut self) {
        let (world, cpu) = (self.clerk.world, self.handle.cpu().get());
        let _ = self.clerk.ask(Kind::Drain, cpu, 0, || {
            world.freehold.drain_all();
            Ok::<(), ()>(())
        });
    }

    /// What can be asked without changing anything. While others call little of it is sure.
    fn look(&mut self) {
        let (world, cpu) = (self.clerk.world, self.handle.cpu());
        let zone = self.random.below(world.zones.len() as u64) as usize;
        let (fh, about) = (world.freehold, zone as u64);
        let sound = match self.random.below(8) {
            0 => self.clerk.ask(Kind::Totals, cpu.get(), about, || {
                // No count becomes less.
                let before = fh.totals().shared_writes;
                let there = fh.cpu_stats(cpu).is_some() && fh.totals().shared_writes >= before;
                there.then_some(()).ok_or("no sums")
            }),
            1 => self.whereabouts(),
            2 => self.clerk.ask(Kind::ZoneStats, cpu.get(), about, || {
                let stats = fh.zone_stats(zone).ok_or("no statistics of a zone")?;
                (stats.managed <= world.zones[zone].frames())
                    .then_some(())
                    .ok_or("a zone has more than there is")
            }),
            3 => self.clerk.ask(Kind::Pageblocks, cpu.get(), about, || {
                let full = fh.pageblocks(zone).all(|block| block.free <= block.frames);
                full.then_some(()).ok_or("a pageblock has more free frames than frames")
            }),
            4 => self.clerk.ask(Kind::Reserve, cpu.get(), about, || {
                let _ = fh.may_have_free(zone, order_of(3), AllocFlags::empty());
                fh.reserve(zone).map(|_| ()).ok_or("no reserve of a zone")
            }),
            5 => self.clerk.ask(Kind::GiveUpReserve, cpu.get(), about, || {
                let _ = fh.give_up_reserve(zone, Migratetype::Movable);
                Ok(())
            }),
            6 => self.clerk.ask(Kind::CheckFree, cpu.get(), about, || {
                // No memory is there.
                let nothing = FrameRange { start: Pfn::new(0), end: Pfn::new(1) };
                match fh.on(cpu).check_free(nothing) {
                    Ok(()) if !world.span().contains(nothing.start) => {
                        Err("a free of nothing is right")
                    }
                    _ => Ok(()),
                }
            }),
            // A zone of few blocks may be away just now.
            _ => self.clerk.ask(Kind::LargestOrder, cpu.get(), about, || {
                let order = fh.largest_possible_order(zone);
                let may_be_empty = world.plan.map == Map::Random;
                order.map(|_| ()).or(may_be_empty.then_some(())).ok_or("a zone without memory")
            }),
        };
        if let Err(what) = sound {
            world.ledger.tell(format!("a look: {what}"));
        }
    }

    /// Asks where a frame of its own is, and what the CPU has.
    fn whereabouts(&mut self) -> Result<(), &'static str> {
        let (world, cpu) = (self.clerk.world, self.handle.cpu());
        let Some(pfn) = self.held.first().map(|chunk| Pfn::new(chunk.start)) else { return Ok(()) };
        let owned = self.handle.door() == Door::Owner;
        self.clerk.ask(Kind::Where, cpu.get(), pfn.get(), || {
            let holder = world.freehold.holder_of(pfn).is_none_or(|cpu| cpu.get() < world.cpus());
            let zone = world.freehold.zone_of(pfn);
            if !holder || zone != world.zones.iter().position(|zone| zone.span.contains(pfn)) {
                return Err("a frame in use is not where it belongs");
            }
            if owned && !world.freehold.is_online(cpu) {
                return Err("an owned CPU is offline");
            }
            world.freehold.cpu_holdings(cpu).map(|_| ()).ok_or("a CPU without a state")
        })
    }

    /// Takes all there is and gives most of it back: blocks of other types are broken into, and
    /// other CPUs recalled.
    fn eat_up(&mut self) {
        if self.random.below(20) != 0 {
            return;
        }
        let order = [0, 0, 3][self.random.below(3) as usize];
        let request =
            Request::new(order_of(order), Migratetype::PCP[self.random.below(3) as usize]);
        let mut left = self.clerk.world.plan.used.min(self.clerk.world.frames());
        while left > 0 && !self.clerk.world.is_over() && self.alloc(alloc_of(order), order, request)
        {
            left -= 1;
        }
        while self.frames > self.target {
            self.free_some();
        }
    }

    fn leave_in_pool(&mut self) {
        let Some(chunk) = self.draw() else { return };
        self.clerk.world.pool().push((chunk, self.clerk.name()));
    }

    fn do_wrong(&mut self, plant: Plant) {
        let Some(chunk) = self.draw() else { return };
        let (world, range) = (self.clerk.world, chunk.range());
        match plant {
            // It stays in the ledger, and is handed out to somebody else.
            Plant::UseAfterFree => {
                let _ = world.freehold.on(CpuId::new(0)).free_range(range);
            }
            Plant::DoubleFree => {
                self.free(chunk);
                let on = world.freehold.on(CpuId::new(0));
                if let Err(error) = on.free_range(range) {
                    world.ledger.tell(format!("a free was refused: {error}"));
                }
            }
            Plant::WrongOwner => {
                world.ledger.pass(chunk, self.clerk.name(), self.clerk.name() + 1);
                self.free(chunk);
            }
            Plant::Leak => {}
            // Where the bounds are looked at.
            Plant::SmallBound => self.free(chunk),
            Plant::Stall => {
                let _ = self.on_cpu(Kind::Flush, 0, |_| -> Result<(), ()> {
                    loop {
                        std::thread::sleep(std::time::Duration::from_secs(1));
                    }
                });
            }
        }
    }
}

fn all(world: &World) -> FrameRange {
    world.span()
}

fn unless_offline(error: AllocError) -> Result<(), AllocError> {
    if matches!(error, AllocError::CpuOffline { .. }) { Ok(()) } else { Err(error) }
}

/// An order that is in range by where it comes from.
fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::ZERO)
}
