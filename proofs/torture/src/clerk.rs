//! Makes calls for a thread, holds what each costs to its bound, and says what is going on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Plant;
use crate::bounds::{Call, Door, Kind, broken, halved};
use crate::platform;
use crate::world::World;

/// Where a thread says what it is doing.
#[derive(Debug, Default)]
pub(crate) struct Post {
    /// The number of the call and one more; 0 where it is in none.
    call: AtomicU32,
    /// The frame or the order that the call is about, and the CPU.
    what: AtomicU64,
    cpu: AtomicU32,
    /// Calls that have ended.
    pub(crate) calls: AtomicU64,
}

impl Post {
    fn begin(&self, call: Call, cpu: u16, what: u64) {
        self.what.store(what, Ordering::Relaxed);
        self.cpu.store(u32::from(cpu), Ordering::Relaxed);
        // Release: a watcher that sees the call sees what it is about.
        self.call.store(call.index() as u32 + 1, Ordering::Release);
    }

    fn end(&self) {
        self.call.store(0, Ordering::Release);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn call(&self) -> Option<Call> {
        Call::from_index((self.call.load(Ordering::Acquire) as usize).checked_sub(1)?)
    }

    /// What the thread of that number is doing.
    pub(crate) fn tell(&self, number: usize) -> String {
        let calls = self.calls.load(Ordering::Acquire);
        let Some(call) = self.call() else {
            return format!("thread {number}: in no call, after {calls}");
        };
        let (cpu, what) = (self.cpu.load(Ordering::Relaxed), self.what.load(Ordering::Relaxed));
        format!("thread {number}: in {call} of {what:#x} on CPU {cpu}, after {calls} calls")
    }
}

/// What calls have been made.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    /// Of each kind: calls, and how many of them were refused, as they may be.
    pub(crate) kinds: BTreeMap<&'static str, (u64, u64)>,
    /// Allocations and frees that the allocator should have counted.
    pub(crate) allocs: u64,
    pub(crate) frees: u64,
    /// Allocations that it may not have counted, or that count as a free of their own.
    pub(crate) unseen: u64,
    /// Allocations that may have freed what a larger chunk had too much.
    pub(crate) trims: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, (made, refused)) in &other.kinds {
            let mine = self.kinds.entry(kind).or_default();
            *mine = (mine.0 + made, mine.1 + refused);
        }
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.unseen += other.unseen;
        self.trims += other.trims;
    }
}

pub(crate) struct Clerk {
    pub(crate) world: &'static World,
    /// Its post, and its name in the ledger less one.
    number: u32,
    pub(crate) tally: Tally,
    /// No other thread runs: what is counted for all of them is this one's.
    alone: bool,
}

impl Clerk {
    pub(crate) fn new(world: &'static World, number: u32, alone: bool) -> Self {
        Self { world, number, tally: Tally::default(), alone }
    }

    /// Its name in the ledger.
    pub(crate) fn name(&self) -> u32 {
        self.number + 1
    }

    /// Makes a call that anybody may make, on a CPU, about `what`.
    pub(crate) fn ask<T, E>(
        &mut self,
        kind: Kind,
        cpu: u16,
        what: u64,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.call((kind, Door::Anybody), cpu, what, f)
    }

    /// Makes a call through a door, on a CPU, that is about `what`.
    pub(crate) fn call<T, E>(
        &mut self,
        (kind, door): (Kind, Door),
        cpu: u16,
        what: u64,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (call, post) = (Call { kind, door }, &self.world.posts[self.number as usize]);
        let writes = self.alone.then(|| self.world.shared_writes());
        let (waits, barriers) = platform::counts();
        post.begin(call, cpu, what);
        let result = f();
        post.end();
        let (waits, barriers) = (platform::counts().0 - waits, platform::counts().1 - barriers);
        let writes = writes.map(|before| self.world.shared_writes() - before);
        let count = self.tally.kinds.entry(kind.name()).or_default();
        *count = (count.0 + 1, count.1 + u64::from(result.is_err()));
        let limit = call.limit(self.alone);
        let is_small = self.world.plan.plant == Some(Plant::SmallBound);
        let limit = if is_small { halved(limit) } else { limit };
        if let Some((of, cost, limit)) = broken(limit, [Some(waits), Some(barriers), writes]) {
            let alone = if self.alone { "alone, " } else { "" };
            self.world
                .ledger
                .tell(format!("{call}: {alone}{cost} {of}, and {limit} are the most there may be"));
        }
        result
    }
}
