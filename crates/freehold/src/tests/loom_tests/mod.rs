//! Every interleaving of real calls on a real allocator, run by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p freehold --lib --release loom_tests`.
//!
//! Two CPUs, two blocks; nothing here is a copy of what it checks. Loom explores every schedule
//! with at most [`PREEMPTIONS`] preemptions (`LOOM_MAX_PREEMPTIONS` sets another number) and every
//! value that the orderings permit each load to see. After each execution nothing is lost, nothing
//! is free twice, and the walk over all invariants is clean.
//!
//! ```text
//! mod.rs         the machine, and how a model of it is run
//! leases.rs      a block's words: leases, hands, hints, frees into them
//! marks.rs       the min mark: allowances, grants, recalls of them
//! whole.rs       blocks that become whole, are taken whole, are split again; runs of them
//! doors.rs       a CPU's door: owners, recalls, CPUs that come and go
//! isolation.rs   ranges that are isolated and taken, memory that comes and goes
//! ```
//!
//! Frees of what is not in use are in [`loom_wrong_frees`](super::loom_wrong_frees), single
//! orderings in [`loom_orderings`](super::loom_orderings), each call beside each in
//! [`loom_pairs`](super::loom_pairs).

mod doors;
mod isolation;
mod leases;
mod marks;
mod whole;

use std::io::Write as _;
use std::mem::MaybeUninit;

use crate::primitive::under_loom::set_strict;

// What nearly every one of them names.
pub(crate) use super::{frames_at, movable as request, of_order};
pub(crate) use crate::alloc::pick::Want;
pub(crate) use crate::cpu::Inside;
pub(crate) use crate::cpu::recall::Recall;
pub(crate) use crate::free::slow::Freeing;
pub(crate) use crate::primitive::under_loom::{Strict, set_alone};
pub(crate) use crate::*;
pub(crate) use loom::thread;
pub(crate) use std::{boxed::Box, vec::Vec};

const PREEMPTIONS: usize = 3;

pub(crate) fn model(f: impl Fn() + Sync + Send + 'static) {
    model_within(usize::MAX, f);
}

/// [`model`] with at most so many preemptions, whatever was asked for: for calls so long that more
/// would take hours.
pub(crate) fn model_within(most: usize, f: impl Fn() + Sync + Send + 'static) {
    model_first(most, usize::MAX, f);
}

/// [`model_within`] of what is to come to pass in one execution at least, which `f` says: a test
/// of a call that is always refused would show nothing.
pub(crate) fn model_reaching(most: usize, f: impl Fn() -> bool + Sync + Send + 'static) {
    // Not loom's: of all executions.
    let reached = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reaches = reached.clone();
    model_within(most, move || _ = reaches.fetch_or(f(), std::sync::atomic::Ordering::Relaxed));
    assert!(reached.load(std::sync::atomic::Ordering::Relaxed), "no execution comes to it");
}

/// The first `executions` of them alone: for calls that take minutes even with one preemption.
pub(crate) fn model_first(most: usize, executions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS).min(most));
    builder.max_branches = 200_000;
    builder.max_permutations = Some(executions);
    // Loom looks whether there have been enough at each checkpoint only.
    builder.checkpoint_interval = 1_000;
    // Not loom's: it counts executions, which are what an exhaustive search consists of.
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = executions.clone();
    let begun = std::time::Instant::now();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        set_alone(true);
        set_strict(Strict::BeforeReads);
        f();
    });
    std::eprintln!("{executions:?} executions");
    if builder.max_duration.is_some_and(|most| begun.elapsed() >= most) {
        // Past the harness, which keeps what passing tests print; on a line of its own.
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {name} beyond LOOM_MAX_DURATION");
    }
}

/// [`model_within`] where sequentially consistent accesses are as strong as `strict` says.
pub(crate) fn strictly(strict: Strict, most: usize, f: impl Fn() + Sync + Send + 'static) {
    model_within(most, move || {
        set_strict(strict);
        f();
    });
}

/// With fences before reads and with fences between: which one shows that an ordering is too weak
/// depends on whether it is that of the write or of the read behind it.
pub(crate) fn both(most: usize, f: impl Fn() + Sync + Send + Copy + 'static) {
    strictly(Strict::BeforeReads, most, f);
    strictly(Strict::Between, most, f);
}

/// A host with heavy barriers, or without.
pub(crate) struct Host {
    barrier: bool,
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }
    /// What it makes other CPUs do, `light_barrier` does here. For the caller it orders nothing, as
    /// the platform's need not: the allocator's own fences do.
    fn heavy_barrier(&self) {}
    fn relax(&self) {
        thread::yield_now();
    }
}

pub(crate) type Small = &'static Freehold<'static, Host>;

pub(crate) const FRAMES: u64 = 1024;
pub(crate) const MOVABLE: usize = Migratetype::Movable as usize;

/// Two blocks and two CPUs. Leaked, with the metadata: loom has no use for them afterwards.
pub(crate) fn small(barrier: bool) -> Small {
    machine(barrier, FRAMES)
}

pub(crate) fn machine(barrier: bool, frames: u64) -> Small {
    let memory = [frames_at(1024, frames)];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let config = Config { extra_ranges: 1, ..Config::new(2, &zones) };
    let size = config.metadata_size().unwrap();
    let metadata: &'static mut [MaybeUninit<u8>] = std::vec![MaybeUninit::uninit(); size].leak();
    let host = Host { barrier };
    let fh = Freehold::new(&config, metadata, host).unwrap();
    fh.lease_as_on_large_machines();
    Box::leak(Box::new(fh))
}

pub(crate) fn cpu(number: u16) -> CpuId {
    CpuId::new(number)
}

pub(crate) fn take(fh: Small, c: u16, order: u8) -> Pfn {
    fh.on(cpu(c)).alloc(request(order)).unwrap()
}

pub(crate) fn free(fh: Small, c: u16, pfn: Pfn, order: u8) {
    fh.on(cpu(c)).free(pfn, of_order(order)).unwrap();
}

/// Whether such a request is met.
pub(crate) fn gets(fh: Small, c: u16, order: u8) -> bool {
    fh.on(cpu(c)).alloc(request(order)).is_ok()
}

/// A CPU, whose state the caller enters as anybody.
pub(crate) fn inside(fh: Small, c: usize) -> Inside<'static, 'static, Host> {
    Inside::enter(fh, &fh.cpus[c], false)
}

/// Starts a thread of a model.
pub(crate) fn spawn<T: 'static>(role: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    set_alone(false);
    thread::spawn(role)
}

/// Runs these at the same time and waits for all.
pub(crate) fn together<T: 'static>(roles: Vec<Box<dyn FnOnce() -> T>>) -> Vec<T> {
    let threads: Vec<_> = roles.into_iter().map(spawn).collect();
    let got = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    set_alone(true);
    got
}

/// Everything but `used` frames is free, and all is where it belongs.
pub(crate) fn settled(fh: Small, used: u64) {
    settled_of(fh, FRAMES, used);
}

/// [`settled`] of so many frames.
pub(crate) fn settled_of(fh: Small, frames: u64, used: u64) {
    fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(fh.zone_stats(0).unwrap().free, frames - used);
    assert_eq!(fh.totals().late_double_frees, 0);
}

macro_rules! roles {
    ($($role:expr),*) => { std::vec![$(Box::new($role)),*] };
}
pub(crate) use roles;

/// Two threads use a value at the same time under one lock; loom reports a race where one's use is
/// not ordered before the other's.
pub(crate) fn exclude(under: fn(Small, &mut dyn FnMut())) {
    model(move || {
        let fh = small(false);
        let value = loom::sync::Arc::new(loom::cell::UnsafeCell::new(()));
        let threads = [value.clone(), value]
            .map(|value| spawn(move || under(fh, &mut || value.with_mut(|_| ()))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
