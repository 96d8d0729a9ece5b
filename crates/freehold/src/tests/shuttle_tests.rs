//! Random schedules of the whole allocator, run by shuttle:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p freehold --lib --release shuttle_tests`.
//!
//! Loom runs every schedule of two calls on two CPUs; here four CPUs and one more
//! thread do sixteen random calls each on three blocks, and a scheduler that is good at finding
//! rare orders of events (probabilistic concurrency testing) picks who goes on at each access to an
//! atomic. What the machine may reorder is loom's business: shuttle shows every access in one
//! order.
//!
//! `SHUTTLE_SCHEDULES` says how many schedules each test runs. One that fails prints what replays
//! it: give that to `SHUTTLE_REPLAY`.

extern crate std;

use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::vec::Vec;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, ThreadId};
use shuttle::{Config as Schedules, Runner};

use crate::{
    AllocError, AllocFlags, Config, CpuId, Door, FrameRange, Frames, FreeError, Freehold, Handle,
    HotplugError, Migratetype, Order, Pfn, Platform, Request, Watermarks, ZoneConfig,
};

const CPUS: u16 = 4;
const BLOCKS: u64 = 3;
const FIRST: u64 = 1024;
/// Calls of each CPU.
const STEPS: usize = 16;
/// Changes of priority that the scheduler makes in a schedule.
const DEPTH: usize = 6;
/// What requests ask for.
const ORDERS: [u8; 12] = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 9];

/// A host with heavy barriers, which shuttle has no need of.
#[derive(Default)]
struct Host {
    /// A call that must not wait.
    hasty: Mutex<Option<ThreadId>>,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn heavy_barrier(&self) {
        thread::yield_now();
    }
    fn relax(&self) {
        let hasty = *self.hasty.lock().unwrap();
        assert_ne!(hasty, Some(thread::current().id()), "it waits");
        thread::yield_now();
    }
}

/// What one thread holds.
type Chunk = (Pfn, Order);

/// The allocator, who has which frame, and what waits to be freed by somebody else.
struct World<'m> {
    fh: Freehold<'m, Host>,
    taken: Vec<AtomicBool>,
    passed_on: Mutex<Vec<Chunk>>,
}

impl<'m> World<'m> {
    fn new(metadata: &'m mut [MaybeUninit<u8>]) -> Self {
        let fh = with_config(|config| Freehold::new(config, metadata, Host::default()).unwrap());
        fh.lease_as_on_large_machines();
        Self {
            fh,
            taken: (0..BLOCKS * 512).map(|_| AtomicBool::new(false)).collect(),
            passed_on: Mutex::new(Vec::new()),
        }
    }

    /// Notes that frames have changed hands. Not shuttle's atomics: nobody is to be scheduled
    /// between a call and its note.
    fn note(&self, pfn: Pfn, frames: u64, taken: bool) {
        for frame in pfn.get()..pfn.get() + frames {
            let was = self.taken[(frame - FIRST) as usize].swap(taken, Ordering::Relaxed);
            assert_ne!(was, taken, "frame {frame} was handed out twice");
        }
    }

    fn free(&self, frames: &impl Frames, (pfn, order): Chunk) {
        self.note(pfn, order.frames(), false);
        let range = FrameRange::new(pfn, order.frames()).unwrap();
        let result = if thread_rng().gen_bool(0.2) {
            frames.free_range(range)
        } else {
            frames.free(pfn, order)
        };
        match result {
            Err(FreeError::CpuOffline { .. }) => {
                self.fh.on(CpuId::new(0)).free(pfn, order).unwrap()
            }
            result => result.unwrap(),
        }
    }

    fn alloc(&self, frames: &impl Frames, flags: AllocFlags) -> Option<Chunk> {
        let mut rng = thread_rng();
        let order = Order::new(ORDERS[rng.gen_range(0..ORDERS.len())]).unwrap();
        let kind = if rng.gen_bool(0.2) { Migratetype::Unmovable } else { Migratetype::Movable };
        match frames.alloc(Request::new(order, kind).flags(flags)) {
            Ok(pfn) => {
                self.note(pfn, order.frames(), true);
                Some((pfn, order))
            }
            Err(
                AllocError::NoMemory { .. }
                | AllocError::CpuOffline { .. }
                | AllocError::WouldBlock,
            ) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// One CPU's calls.
    fn work<D: Door<'m>>(&self, door: &Handle<'_, 'm, Host, D>, flags: AllocFlags) {
        let mut held: Vec<Chunk> = Vec::new();
        for _ in 0..STEPS {
            match thread_rng().gen_range(0..10) {
                0..5 => held.extend(self.alloc(door, flags)),
                5..7 if !held.is_empty() => {
                    let at = thread_rng().gen_range(0..held.len());
                    self.free(door, held.swap_remove(at));
                }
                7 => self.passed_on.lock().unwrap().extend(held.pop()),
                8 => {
                    let chunk = self.passed_on.lock().unwrap().pop();
                    chunk.into_iter().for_each(|chunk| self.free(door, chunk));
                }
                _ if flags.is_empty() => {
                    // Gives back what is in hand, or lets time go by. An offline CPU has nothing
                    // to give back.
                    let _ = if thread_rng().gen_bool(0.5) { door.flush() } else { door.tick() };
                }
                _ => {}
            }
        }
        self.passed_on.lock().unwrap().append(&mut held);
    }

    /// What goes on beside them: a CPU comes and goes, ranges are taken, memory is removed and
    /// added.
    fn disturb(&self) {
        for _ in 0..STEPS / 2 {
            let block = FIRST + 512 * thread_rng().gen_range(0..BLOCKS);
            let range = FrameRange::new(Pfn::new(block), 512).unwrap();
            match thread_rng().gen_range(0..5) {
                0 => self.fh.drain_all(),
                1 => {
                    let last = CpuId::new(CPUS - 1);
                    if self.fh.on(last).offline().is_ok() {
                        assert_eq!(self.fh.on(last).holdings().unwrap().0, 0);
                        self.fh.on(last).online().unwrap();
                    }
                }
                2 => match self.fh.remove_memory(range) {
                    Ok(()) => self.fh.add_memory(range).unwrap(),
                    Err(HotplugError::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
                3 => {
                    let part = FrameRange::new(Pfn::new(block + 64), 128).unwrap();
                    if self.fh.alloc_contig_range(part, |_| false).is_ok() {
                        self.note(part.start, 128, true);
                        self.note(part.start, 128, false);
                        self.fh.on(CpuId::new(1)).free_range(part).unwrap();
                    }
                }
                _ => {
                    let _ = self.fh.on(CpuId::new(2)).tick();
                }
            }
        }
    }

    /// Everything is freed: all of it is there, in whole blocks, and can be had.
    fn end(&self) {
        let door = self.fh.on(CpuId::new(0));
        let left = core::mem::take(&mut *self.passed_on.lock().unwrap());
        left.into_iter().for_each(|chunk| self.free(&door, chunk));
        self.fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(self.fh.zone_stats(0).unwrap().free, BLOCKS * 512);
        assert_eq!(self.fh.totals().late_double_frees, 0);
        for _ in 0..BLOCKS {
            let pfn = door
                .alloc(Request::new(Order::PAGEBLOCK, Migratetype::Movable))
                .expect("all of memory is free");
            self.note(pfn, 512, true);
        }
    }
}

fn with_config<T>(f: impl FnOnce(&Config<'_>) -> T) -> T {
    let memory = [FrameRange::new(Pfn::new(FIRST), BLOCKS * 512).unwrap()];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    f(&Config { extra_ranges: 4, ..Config::new(CPUS, &zones) })
}

/// What is tried.
#[derive(Clone, Copy, Default)]
struct Plan {
    /// All CPUs but the last one, which hotplug takes away, have owners.
    owned: bool,
    /// CPU 1 may not wait, whatever the others do.
    hasty: bool,
    /// So many blocks are taken at first, and wait for somebody to free them.
    taken: u64,
}

/// One schedule: all CPUs at work.
fn run(plan: Plan) {
    let size = with_config(|config| config.metadata_size().unwrap());
    let mut metadata = std::vec![MaybeUninit::uninit(); size];
    let world = &World::new(&mut metadata);
    for _ in 0..plan.taken {
        let pfn = world
            .fh
            .on(CpuId::new(0))
            .alloc(Request::new(Order::PAGEBLOCK, Migratetype::Movable))
            .unwrap();
        world.note(pfn, 512, true);
        world.passed_on.lock().unwrap().push((pfn, Order::PAGEBLOCK));
    }
    thread::scope(|scope| {
        for number in 0..CPUS {
            scope.spawn(move || {
                let cpu = CpuId::new(number);
                if plan.hasty && number == 1 {
                    *world.fh.platform().hasty.lock().unwrap() = Some(thread::current().id());
                    world.work(&world.fh.on(cpu), AllocFlags::NO_LOCK);
                } else if plan.owned && number < CPUS - 1 {
                    world.work(&world.fh.own(cpu).unwrap(), AllocFlags::empty());
                } else {
                    world.work(&world.fh.on(cpu), AllocFlags::empty());
                }
            });
        }
        scope.spawn(|| world.disturb());
    });
    world.end();
}

fn check(plan: Plan) {
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        return shuttle::replay(move || run(plan), &schedule);
    }
    let wanted = std::env::var("SHUTTLE_SCHEDULES")
        .map_or(500, |n| n.parse().expect("SHUTTLE_SCHEDULES is a number"));
    check_with(PctScheduler::new(DEPTH, wanted / 2), plan);
    check_with(RandomScheduler::new(wanted / 2), plan);
}

fn check_with(scheduler: impl Scheduler + 'static, plan: Plan) {
    let mut schedules = Schedules::new();
    schedules.stack_size = 1 << 18;
    schedules.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
    // It says on every run that it shows all accesses in one order: see above.
    schedules.silence_warnings = true;
    let run = Runner::new(scheduler, schedules).run(move || run(plan));
    std::eprintln!("{run} schedules");
}

#[test]
fn cpus_by_the_door_that_anybody_may_take() {
    check(Plan::default());
}

#[test]
fn cpus_with_owners() {
    check(Plan { owned: true, ..Plan::default() });
}

#[test]
fn cpus_where_memory_is_short() {
    check(Plan { taken: BLOCKS - 1, ..Plan::default() });
}

#[test]
fn cpus_with_owners_where_memory_is_short() {
    check(Plan { owned: true, taken: BLOCKS - 1, ..Plan::default() });
}

#[test]
fn who_may_not_wait_never_does() {
    check(Plan { owned: true, hasty: true, ..Plan::default() });
    check(Plan { hasty: true, taken: 1, ..Plan::default() });
}
