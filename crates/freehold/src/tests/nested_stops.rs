//! Calls interrupted by calls that are interrupted: up to three deep, at drawn steps and machines.
//!
//! ```text
//! CPU 2, a run of 700   #########|...................|#######     a call, stopped at two of its steps
//! CPU 0, a free                  |###|....|##########             another one meanwhile, stopped at one
//! CPU 1, an order 9                  |####|                       and another one meanwhile
//! ```
//!
//! What loses a race by luck in other tests loses it here by force. A table of frames says at once
//! where one is handed out twice; all invariants hold whenever nobody is stopped; and once all is
//! free again all of it is whole.
//!
//! The call at the bottom may wait, since all others have ended when it goes on. Those above it
//! must not: who they would wait for is stopped. At some stops all memory is taken that can be had
//! without waiting: it is all but what the call is about, what is in hands that it or an owner
//! keeps shut, and one block on the way.

use crate::cpu::CpuState;
use crate::cpu::lease::SLOTS;
use crate::tests::testing::*;
use core::sync::atomic::{AtomicU32, Ordering};
use fastrand::Rng;

const CPUS: u16 = 3;
/// The CPU that has an owner on some machines.
const OWNED: u16 = 2;
/// How deep calls are nested.
const DEPTH: usize = 3;
/// Turns of waits in one world: more are a call that waits for one that is stopped.
const MOST_TURNS: u32 = 1 << 20;

/// A host whose waits end.
struct Host(AtomicU32);

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        true
    }

    fn relax(&self) {
        let turns = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(turns < MOST_TURNS, "somebody waits for a call that is stopped");
    }

    fn late_double_free(&self, pfn: Pfn) {
        std::eprintln!("{pfn} was freed rightly");
    }
}

/// A machine, and which of its frames are in use.
struct World {
    fh: &'static Machine,
    host: &'static Host,
    owner: Option<Owned<'static, 'static, super::testing::Host>>,
    blocks: u64,
    /// Frames that the call at the bottom takes, frees or isolates.
    about: Cell<u64>,
    held: RefCell<Vec<FrameRange>>,
    used: RefCell<Vec<bool>>,
}

/// Tells the seed of what went wrong.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("the machine of seed {}", self.0);
        }
    }
}

impl World {
    fn new(random: &mut Rng) -> &'static Self {
        let blocks = random.u64(2..8);
        let frames = blocks * PAGEBLOCK_FRAMES;
        let memory = [frames_at(0, frames)];
        let cma = [frames_at(frames - 512, 512)];
        let min = random.u64(..200);
        let watermarks = match random.u32(..3) {
            0 => Watermarks::Frames { min, low: 2 * min, high: 3 * min },
            _ => Watermarks::None,
        };
        let cma = &cma[..usize::from(random.u32(..4) == 0)];
        let zones = [ZoneConfig { cma, watermarks, ..ZoneConfig::new(&memory) }];
        let host: &Host = Box::leak(Box::new(Host(AtomicU32::new(0))));
        let fh = machine_of(host, &Config { extra_ranges: 4, ..Config::new(CPUS, &zones) });
        let fh: &Machine = Box::leak(Box::new(fh));
        // A thread that is stopped while it sets a section up keeps the section.
        assert!(fh.map.set_up(0, || true));
        Box::leak(Box::new(Self {
            fh,
            host,
            owner: random.bool().then(|| fh.own(CpuId::new(OWNED)).unwrap()),
            blocks,
            about: Cell::new(0),
            held: RefCell::default(),
            used: RefCell::new(std::vec![false; frames as usize]),
        }))
    }

    fn mark(&self, range: FrameRange, used: bool) {
        for pfn in range.start.get()..range.end.get() {
            let before = core::mem::replace(&mut self.used.borrow_mut()[pfn as usize], used);
            assert_ne!(before, used, "frame {pfn:#x} was handed out twice");
        }
    }

    fn took(&self, range: FrameRange) {
        self.mark(range, true);
        self.held.borrow_mut().push(range);
    }

    fn took_frames(&self, start: Pfn, frames: u64) {
        self.took(FrameRange::new(start, frames).unwrap());
    }

    /// Something that is in use, which is in use no more, or a part of it.
    fn given(&self, random: &mut Rng) -> Option<FrameRange> {
        let mut held = self.held.borrow_mut();
        let mut range = match held.len() {
            0 => return None,
            len => held.swap_remove(random.usize(..len)),
        };
        if range.len() > 1 && random.u32(..4) == 0 {
            let at = Pfn::new(range.start.get() + random.u64(1..range.len()));
            held.push(FrameRange { start: at, end: range.end });
            range.end = at;
        }
        drop(held);
        self.mark(range, false);
        Some(range)
    }

    /// Two or fewer blocks.
    fn some_blocks(&self, random: &mut Rng) -> FrameRange {
        let first = random.u64(..self.blocks);
        let blocks = (1 + random.u64(..2)).min(self.blocks - first);
        frames_at(first * 512, blocks * 512)
    }

    /// A call that may be stopped at any step, and waits for nobody.
    fn call(&self, random: &mut Rng, flags: AllocFlags) {
        let (fh, cpu) = (self.fh, CpuId::new(random.u16(..CPUS)));
        let on = fh.on(cpu);
        if !on.is_online() {
            return;
        }
        let is_open = !fh.cpus[cpu.index()].door.is_occupied();
        let owner = self.owner.as_ref().filter(|_| is_open && cpu.get() == OWNED);
        let door: &dyn Frames = owner.map_or(&on, |owner| owner);
        let about = |frames| self.about.set(frames);
        match random.u32(..20) {
            0..7 => {
                let order = if random.u32(..3) == 0 { random.u8(6..11) } else { random.u8(..6) };
                let order = of_order(order);
                let kind = Migratetype::PCP[random.usize(..3).min(random.usize(..3))];
                let flag = [AllocFlags::CMA, AllocFlags::HIGH_ATOMIC, AllocFlags::NON_BLOCK];
                let more = if random.bool() { flag[random.usize(..3)] } else { flags };
                let mut request = Request::new(order, kind).flags(flags | more);
                if random.u32(..3) == 0 {
                    let within = self.some_blocks(random);
                    request = request.from(within.start).below(within.end);
                }
                if random.u32(..4) == 0 {
                    request = request.align(of_order(random.u8(..11)));
                }
                about(request.alignment().frames());
                if let Ok(pfn) = door.alloc(request) {
                    self.took_frames(pfn, order.frames());
                }
            }
            7..13 => {
                let Some(range) = self.given(random) else { return };
                about(range.len());
                let whole = Order::fitting(range.len()).filter(|order| {
                    order.frames() == range.len() && range.start.is_aligned(*order)
                });
                match whole.filter(|_| random.bool()) {
                    Some(order) => door.free(range.start, order).unwrap(),
                    None => door.free_range(range).unwrap(),
                }
            }
            13 => {
                let mut out = [Pfn::new(0); 200];
                let out = &mut out[..random.usize(1..200)];
                let request = movable(0).flags(flags);
                about(out.len() as u64);
                let got = door.alloc_bulk(request, out).unwrap_or(0);
                out[..got].iter().for_each(|&pfn| self.took_frames(pfn, 1));
            }
            14 | 15 if is_open => {
                let len = [random.u64(1..600), random.u64(512..1600)][random.usize(..2)];
                about(len);
                on.alloc_run(len).into_iter().for_each(|run| self.took(run));
            }
            16 if is_open => on.flush().unwrap(),
            17 => _ = fh.give_up_reserve(0, Migratetype::Movable),
            18 => {
                let block = self.some_blocks(random).start;
                about(512);
                let words = fh.take_free(FrameRange::new(block, 512).unwrap()).unwrap();
                for (w, word) in (0..).zip(words) {
                    let first = block.get() + w * 64;
                    crate::block::bits::each(word)
                        .for_each(|bit| self.took_frames(Pfn::new(first + u64::from(bit)), 1));
                }
            }
            _ => {}
        }
    }

    /// One at the bottom, which may wait.
    fn bottom(&self, random: &mut Rng) {
        let (fh, blocks) = (self.fh, self.some_blocks(random));
        let kind = random.u32(..16);
        self.about.set(match kind {
            1 | 2 | 4 => blocks.len(),
            // Blocks that a range of 900 frames touches.
            3 => 3 * 512,
            _ => 0,
        });
        match kind {
            0 => fh.drain_all(),
            1 => {
                if fh.isolate(blocks).is_ok() {
                    fh.restore(blocks);
                }
            }
            2 => {
                let start = Pfn::new(blocks.start.get() + random.u64(..200));
                let range = FrameRange { start, end: blocks.end };
                if fh.alloc_contig_range(range, |_| false).is_ok() {
                    self.took(range);
                }
            }
            3 => {
                let all = frames_at(0, self.blocks * 512);
                let found = fh.alloc_contig_free(random.u64(1..900), Order::ZERO, all);
                found.into_iter().for_each(|range| self.took(range));
            }
            4 => {
                if fh.remove_memory(blocks).is_ok() {
                    fh.add_memory(blocks).unwrap();
                }
            }
            5 => {
                let cpu = CpuId::new(random.u16(..OWNED));
                fh.on(cpu).offline().unwrap();
                fh.on(cpu).online().unwrap();
            }
            _ => self.call(random, AllocFlags::empty()),
        }
    }

    /// Frames that only a CPU may take, and who is inside of it.
    fn in_hand(&self, cpu: &CpuState<'_>) -> u64 {
        let of_slot = |slot: usize| {
            let lease = cpu.leases.slot(slot);
            let place = lease.seen_place(&self.fh.map.blocks).filter(|_| lease.is_in_use());
            let is_its = place.is_some_and(|(block, w)| block.lease(w) == cpu.number + 1);
            u64::from((lease.all() | if is_its { lease.word() } else { 0 }).count_ones())
        };
        let kept = cpu.kept.iter().filter(|kept| !kept.is_none()).count() as u64;
        (0..SLOTS).map(of_slot).sum::<u64>() + kept * 512
    }

    /// Takes all that can be had while the call at the bottom is stopped, and waits for nobody.
    fn all_else_is_there(&self) {
        let (fh, waits) = (self.fh, || self.host.0.load(Ordering::Relaxed));
        let before = waits();
        let cpus = || (0..CPUS).map(|cpu| fh.on(CpuId::new(cpu))).filter(|cpu| cpu.is_online());
        // With whole blocks left, and no mark, a request that may wait need not.
        let is_open = |cpu: &On<'_, '_, _>| {
            let state = &fh.cpus[cpu.cpu().index()];
            !state.door.is_occupied() && !state.owned.get()
        };
        for order in [0, 3, 9] {
            let zone = &fh.zones[0];
            for cpu in cpus().filter(is_open).filter(|_| zone.min.get() == 0 && zone.wholes() > 2) {
                let pfn = cpu.alloc(movable(order)).unwrap();
                cpu.free(pfn, of_order(order)).unwrap();
            }
        }
        let any = AllocFlags::NO_LOCK
            | AllocFlags::NO_WATERMARKS
            | AllocFlags::NON_BLOCK
            | AllocFlags::CMA;
        let got: Vec<FrameRange> = [9, 0, 9, 0]
            .into_iter()
            .flat_map(|order| cpus().map(move |cpu| (cpu, order)))
            .flat_map(|(cpu, order)| {
                let alloc = move || cpu.alloc(movable(order).flags(any)).ok();
                core::iter::from_fn(alloc).map(move |pfn| frames_at(pfn.get(), 1 << order))
            })
            .inspect(|&chunk| self.mark(chunk, true))
            .collect();
        let shut = fh.cpus.iter().filter(|cpu| cpu.door.is_occupied() || cpu.owned.get());
        let in_hand: u64 = shut.map(|cpu| self.in_hand(cpu)).sum();
        let there = self.used.borrow().iter().filter(|&&used| used).count() as u64 + in_hand;
        let (all, most) = (self.blocks * 512, self.about.get() + 512);
        assert!(there + most >= all, "of {all} frames {there} are found, and {most} may be away");
        let cpu = cpus().next().unwrap();
        for chunk in got {
            self.mark(chunk, false);
            cpu.free_range(chunk).unwrap();
        }
        assert_eq!(waits(), before, "somebody waits for a call that is stopped");
    }

    /// A call that others interrupt; `depth` of them are on top of each other at most.
    fn play(&'static self, random: &mut Rng, depth: usize) {
        let stops = (0..random.usize(..=depth)).map(|_| {
            let most = 1 << random.u32(3..10);
            let at = random.u64(1..=most);
            let mut random = random.fork();
            let other: Other = match depth {
                DEPTH if random.u32(..4) == 0 => Box::new(|| self.all_else_is_there()),
                _ => Box::new(move || self.play(&mut random, depth - 1)),
            };
            (at, other)
        });
        let stops = if depth == 0 { Vec::new() } else { stops.collect() };
        interrupted_by(stops, || match depth {
            DEPTH => self.bottom(random),
            _ => {
                let about = self.about.get();
                self.call(random, AllocFlags::NO_LOCK);
                self.about.set(about);
            }
        });
    }

    /// All is free again.
    fn end(&self) {
        let held = core::mem::take(&mut *self.held.borrow_mut());
        held.into_iter().for_each(|range| self.fh.here().free_range(range).unwrap());
        self.fh.drain_all();
        self.fh.validate().unwrap();
        assert_eq!(self.fh.zone_blocks(0).unwrap().free_blocks, self.blocks);
        assert_eq!(self.fh.totals().late_double_frees, 0);
        assert_eq!(self.fh.holding.0.load(crate::primitive::Ordering::Relaxed), 0);
    }
}

#[test]
fn calls_that_are_stopped_within_calls_that_are_stopped_lose_nothing() {
    for seed in rounds(250) {
        let (mut random, _told) = (Rng::with_seed(seed), Seed(seed));
        let world = World::new(&mut random);
        for _ in 0..60 {
            world.play(&mut random, DEPTH);
            world.fh.validate().unwrap();
        }
        world.end();
    }
}
