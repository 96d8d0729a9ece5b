//! Makes calls for a thread and notes what each has cost.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::call::{Call, Door, Kind};
use super::host;
use super::tally::Tally;
use super::world::World;

pub(super) struct Clerk {
    pub(super) world: &'static World,
    /// Its post, and its name in the books less one.
    pub(super) number: u32,
    pub(super) tally: Tally,
    /// No other thread runs: what is counted for all of them is this one's.
    alone: bool,
}

impl Clerk {
    pub(super) fn new(world: &'static World, number: u32, alone: bool) -> Self {
        Self { world, number, tally: Tally::default(), alone }
    }

    /// Its name in the books.
    pub(super) fn name(&self) -> u32 {
        self.number + 1
    }

    /// Makes a call that anybody may make, on a CPU, about `what`.
    pub(super) fn ask<T, E>(
        &mut self,
        kind: Kind,
        cpu: u16,
        what: u64,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.call((kind, Door::Anybody), cpu, what, f)
    }

    /// Makes a call through a door, on a CPU, that is about `what`.
    pub(super) fn call<T, E>(
        &mut self,
        (kind, door): (Kind, Door),
        cpu: u16,
        what: u64,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (call, post) = (Call { kind, door }, &self.world.posts[self.number as usize]);
        let writes = self.alone.then(|| self.world.shared_writes());
        host::show_waits(post);
        let (waits, barriers) = host::counts();
        let stops = post.stops.load(Ordering::Acquire);
        post.begin(call, cpu, what);
        let begun = Instant::now();
        let result = f();
        let time = begun.elapsed();
        post.end();
        let (waits, barriers) = (host::counts().0 - waits, host::counts().1 - barriers);
        // Where its thread was stopped meanwhile, the time says nothing.
        let time = (post.stops.load(Ordering::Acquire) == stops).then_some(time);
        let writes = writes.map(|before| self.world.shared_writes() - before);
        self.tally.note(call, time, [Some(waits), Some(barriers), writes], result.is_err());
        result
    }
}
