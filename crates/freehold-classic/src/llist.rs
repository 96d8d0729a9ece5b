//! A lock-free stack of chunks: anybody pushes, whoever holds the right lock takes everything at
//! once.
//!
//! In `pcp-buddy-fixed` a CPU that frees a frame of a block owned by another CPU leaves it on that
//! CPU's list, because spinning on a remote PCP lock inverts lock order (Rik van Riel, in his own
//! series that carries the proposal). Taking everything with one swap is what makes the stack
//! immune to ABA: nothing is ever popped singly.
//!
//! Tried one by one with `RUSTFLAGS="--cfg loom" cargo test -p freehold-classic --lib --release
//! loom_`: without Release in the push, or without Acquire in the take, the taker walks links that
//! it cannot see, and `loom_pushes_and_takes_lose_and_double_nothing` fails.

use crate::page::NIL;
use crate::primitive::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The head of a stack whose links live with the chunks.
pub(crate) struct Llist {
    head: AtomicU32,
}

impl Llist {
    pub(crate) fn new() -> Self {
        Self { head: AtomicU32::new(NIL) }
    }

    /// Pushes `chunk`; `link` is its link. Returns whether the stack was empty.
    ///
    /// Lock-free: a retry means that another push or a take succeeded.
    pub(crate) fn push(&self, chunk: u32, link: &AtomicU32) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            link.store(head, Relaxed);
            // Release: publishes the link just written and what the caller wrote to the chunk.
            // Relaxed on failure: nothing is read through the head, it is only compared with.
            match self.head.compare_exchange_weak(head, chunk, Release, Relaxed) {
                Ok(_) => return head == NIL,
                Err(changed) => head = changed,
            }
        }
    }

    /// Whether nothing is on the stack at this moment; a hint to spare the swap.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: only a hint; whoever must not miss a push uses `take`.
        self.head.load(Relaxed) == NIL
    }

    /// Takes everything. The caller walks the links with [`Chain::next`].
    pub(crate) fn take(&self) -> Chain {
        // Acquire: makes the links readable.
        Chain { at: self.head.swap(NIL, Acquire) }
    }

    /// Everything that is on the stack, for a validator that holds the world still.
    pub(crate) fn peek(&self) -> Chain {
        // Relaxed: with the world still, whatever stopped it (joining threads, say) has ordered the
        // pushes before.
        Chain { at: self.head.load(Relaxed) }
    }
}

/// What was taken from a stack: the most recent push first.
pub(crate) struct Chain {
    at: u32,
}

impl Chain {
    /// The next chunk; `link` finds a chunk's link. The link is read before the chunk is returned,
    /// so the caller may reuse it at once.
    pub(crate) fn next<'a>(&mut self, link: impl FnOnce(u32) -> &'a AtomicU32) -> Option<u32> {
        let chunk = (self.at != NIL).then_some(self.at)?;
        // Relaxed: made visible by the take.
        self.at = link(chunk).load(Relaxed);
        Some(chunk)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::Arc, thread};

    struct World {
        list: Llist,
        links: [AtomicU32; 3],
        payload: [AtomicU32; 3],
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            list: Llist::new(),
            links: core::array::from_fn(|_| AtomicU32::new(7)),
            payload: core::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn walk(world: &World, mut chain: Chain) -> Vec<u32> {
        let mut got = Vec::new();
        while let Some(chunk) = chain.next(|c| &world.links[c as usize]) {
            // What the pusher wrote before pushing must be visible.
            assert_eq!(world.payload[chunk as usize].load(Relaxed), 1);
            got.push(chunk);
        }
        got
    }

    fn drain(world: &World) -> Vec<u32> {
        walk(world, world.list.take())
    }

    fn free(world: &World, chunk: u32) {
        world.payload[chunk as usize].store(1, Relaxed);
        world.list.push(chunk, &world.links[chunk as usize]);
    }

    fn spawn<T: 'static>(
        world: &Arc<World>,
        work: impl FnOnce(&World) -> T + 'static,
    ) -> thread::JoinHandle<T> {
        let world = world.clone();
        thread::spawn(move || work(&world))
    }

    fn sorted(mut chunks: Vec<u32>) -> Vec<u32> {
        chunks.sort_unstable();
        chunks
    }

    #[test]
    fn loom_pushes_and_takes_lose_and_double_nothing() {
        loom::model(|| {
            let world = world();
            let pushers = [0, 1].map(|chunk| spawn(&world, move |world| free(world, chunk)));
            let mut got = drain(&world);
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            got.extend(drain(&world));
            assert_eq!(sorted(got), [0, 1]);
        });
    }

    /// A chunk that is taken and pushed again while another push is under way (ABA): the link
    /// written before is right again when the exchange succeeds.
    #[test]
    fn loom_a_chunk_that_returns_confuses_no_pusher() {
        loom::model(|| {
            let world = world();
            free(&world, 0);
            let pusher = spawn(&world, |world| free(world, 1));
            let mut got = drain(&world);
            got.retain(|&chunk| chunk != 0);
            free(&world, 2);
            free(&world, 0);
            pusher.join().unwrap();
            got.extend(drain(&world));
            assert_eq!(sorted(got), [0, 1, 2]);
        });
    }
}
