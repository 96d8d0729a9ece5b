//! An allocator for tests within the crate, which the suite's own helpers do not reach.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::vec;

use crate::block::WORDS;

// What nearly every one of them names.
pub(crate) use super::steps::{Other, interrupted, interrupted_by, steps};
pub(crate) use super::{frames_at, movable, of_order};
pub(crate) use crate::alloc::pick::Want;
pub(crate) use crate::block::Block;
pub(crate) use crate::cpu::Inside;
pub(crate) use crate::free::slow::Freeing;
pub(crate) use crate::primitive::Relaxed;
pub(crate) use crate::*;
pub(crate) use core::cell::{Cell, RefCell};
pub(crate) use std::{boxed::Box, rc::Rc, sync::Mutex, vec::Vec};

/// Any host. The allocator is compiled for this type alone: each type more is one more copy of it
/// to compile.
pub(crate) type Host = &'static dyn Platform;

/// The allocator of all tests within the crate.
pub(crate) type Machine = Freehold<'static, Host>;

type Then = Box<dyn FnOnce() + Send>;

/// A host with heavy barriers, if so asked, that counts them and the turns of waits, and does
/// something in the turn of that number.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) has_barrier: bool,
    pub(crate) barriers: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) then: Mutex<Option<(u64, Then)>>,
}

impl Platform for Turns {
    fn has_heavy_barrier(&self) -> bool {
        self.has_barrier
    }
    fn heavy_barrier(&self) {
        self.barriers.fetch_add(1, Ordering::Relaxed);
    }
    fn relax(&self) {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        let then = self.then.lock().unwrap().take_if(|(at, _)| *at == turn);
        if let Some((_, then)) = then {
            then();
        }
    }
}

impl Turns {
    /// For as long as the test.
    pub(crate) fn new(has_barrier: bool) -> &'static Self {
        Box::leak(Box::new(Self { has_barrier, ..Self::default() }))
    }
    /// Turns of waits so far.
    pub(crate) fn taken(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
    /// What is done in the turn of that number.
    pub(crate) fn set_then(&self, at: u64, then: impl FnOnce() + Send + 'static) {
        *self.then.lock().unwrap() = Some((at, Box::new(then)));
    }
}

/// All that CPU 0 gets by such requests.
pub(crate) fn exhaust(fh: &Machine, request: Request) -> Vec<Pfn> {
    core::iter::from_fn(|| fh.here().alloc(request).ok()).collect()
}

/// CPU `id`, whose state the caller enters as anybody.
pub(crate) fn inside<'a>(fh: &'a Machine, id: u16) -> Inside<'a, 'static, Host> {
    Inside::enter(fh, &fh.cpus[usize::from(id)], false)
}

/// A machine of which every frame can be had.
pub(crate) fn unmarked(cpus: u16, frames: u64) -> Machine {
    machine_with(&SingleCpu, cpus, frames, Watermarks::None)
}

/// One zone of that many frames from 0 on, and so many CPUs; the metadata is leaked.
pub(crate) fn machine(cpus: u16, frames: u64) -> Machine {
    machine_on(&SingleCpu, cpus, frames)
}

/// A machine for tests on a platform of the caller's.
pub(crate) fn machine_on(platform: Host, cpus: u16, frames: u64) -> Machine {
    machine_with(platform, cpus, frames, Watermarks::Kernel)
}

/// A machine for tests that holds frames back as that says.
pub(crate) fn machine_with(
    platform: Host,
    cpus: u16,
    frames: u64,
    watermarks: Watermarks,
) -> Machine {
    let memory = [frames_at(0, frames)];
    let zones = [ZoneConfig { watermarks, ..ZoneConfig::new(&memory) }];
    machine_of(platform, &Config::new(cpus, &zones))
}

/// A machine of any configuration.
pub(crate) fn machine_of(platform: Host, config: &Config<'_>) -> Machine {
    let size = config.metadata_size().unwrap();
    let region = Box::leak(vec![MaybeUninit::uninit(); size].into_boxed_slice());
    let fh = Freehold::new(config, region, platform).unwrap();
    fh.lease_as_on_large_machines();
    fh
}

/// Two zones of that many frames each, 16 GiB apart; a CPU's home is the upper one.
pub(crate) fn two_zones(cpus: u16, frames: u64) -> Machine {
    let memory = [0, 1 << 22].map(|start| [frames_at(start, frames)]);
    let zones = [ZoneConfig::new(&memory[0]), ZoneConfig::new(&memory[1])];
    machine_of(&SingleCpu, &Config { extra_ranges: 4, ..Config::new(cpus, &zones) })
}

/// A frame's block, and which word of it.
pub(crate) fn place(fh: &Machine, pfn: Pfn) -> (Block<'static>, usize) {
    (fh.map.locate(pfn.get()).unwrap(), (pfn.get() / 64) as usize % WORDS)
}

/// A machine whose first blocks' metadata is set up, 64 of them.
pub(crate) fn set_up() -> &'static Machine {
    let fh: &Machine = Box::leak(Box::new(machine(1, 1 << 15)));
    assert!(fh.map.set_up(0, || true));
    fh
}

/// A machine that holds nothing back, for good.
pub(crate) fn leaked(fh: Machine) -> &'static Machine {
    fh.set_watermarks(0, 0, 0, 0).unwrap();
    Box::leak(Box::new(fh))
}

/// How long tests go on that have no end of their own, where that is asked for.
fn time() -> Option<Duration> {
    let seconds = std::env::var("FREEHOLD_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// So many rounds of a test; more of them where `FREEHOLD_SECONDS` gives it the time.
pub(crate) fn rounds(short: u64) -> impl Iterator<Item = u64> {
    let (time, begun) = (time(), Instant::now());
    let short = if cfg!(miri) { 1 } else { short };
    (0..).take_while(move |&n| n < short || time.is_some_and(|time| begun.elapsed() < time))
}

/// Calls `stopped` with the number of each step of a call from the first on, until that says that
/// there is none.
pub(crate) fn each_step(mut stopped: impl FnMut(u64) -> bool) {
    (1..).take_while(|&n| stopped(n)).for_each(drop);
}

/// The steps to stop a call at that is made on such a machine: some of them, spread over all; each
/// where `FREEHOLD_SECONDS` gives it the time.
pub(crate) fn stops_of<W>(
    world: impl Fn() -> W,
    call: impl FnOnce(W),
) -> impl Iterator<Item = u64> {
    let world = world();
    let length = steps(|| call(world)).1;
    let most = match time() {
        _ if cfg!(miri) => 1,
        Some(_) => u64::MAX,
        None => 100,
    };
    (1..=length + 20).step_by(length.div_ceil(most).max(1) as usize)
}
