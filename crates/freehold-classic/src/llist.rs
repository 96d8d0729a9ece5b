//! A lock-free stack of chunks: anybody pushes, whoever holds the right lock takes everything at once.
//!
//! Two places need one. A context that may not wait for the zone lock (NMI) leaves what it frees on the zone's list,
//! and the next free that takes the lock finishes the work. And in `pcp-buddy-fixed` a CPU that frees a frame of a
//! block owned by another CPU leaves it on that CPU's list, because spinning on a remote PCP lock inverts lock order
//! (reviewers of the pcp-buddy thread). Taking everything with one swap is what makes the stack immune to ABA: nothing
//! is ever popped singly.

use crate::primitive::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};

/// "No chunk".
const NIL: u32 = u32::MAX;

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
            // SeqCst (which includes Release for the link just written): the pusher goes on to look whether the
            // receiver is being taken down, while the take-down raises its flag and then takes the stack. One total
            // order over all four is what guarantees that at least one of the two sees the other.
            match self.head.compare_exchange_weak(head, chunk, SeqCst, Relaxed) {
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
        // SeqCst: the other half of the argument in `push`; its Acquire makes the links readable.
        Chain { at: self.head.swap(NIL, SeqCst) }
    }

    /// Everything that is on the stack, for a validator that holds the world still.
    pub(crate) fn peek(&self) -> Chain {
        // Acquire: pairs with the Release in `push`.
        Chain { at: self.head.load(Acquire) }
    }
}

/// What was taken from a stack: the most recent push first.
pub(crate) struct Chain {
    at: u32,
}

impl Chain {
    /// The next chunk; `link` finds a chunk's link. The link is read before the chunk is returned, so the caller may
    /// reuse it at once.
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
    use crate::primitive::{AtomicBool, Ordering::SeqCst};
    use loom::{sync::Arc, thread};

    struct World {
        list: Llist,
        links: [AtomicU32; 3],
        payload: [AtomicU32; 3],
        dead: AtomicBool,
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            list: Llist::new(),
            links: core::array::from_fn(|_| AtomicU32::new(7)),
            payload: core::array::from_fn(|_| AtomicU32::new(0)),
            dead: AtomicBool::new(false),
        })
    }

    fn drain(world: &World) -> Vec<u32> {
        let mut chain = world.list.take();
        let mut got = Vec::new();
        while let Some(chunk) = chain.next(|c| &world.links[c as usize]) {
            // What the pusher wrote before pushing must be visible.
            assert_eq!(world.payload[chunk as usize].load(Relaxed), 1);
            got.push(chunk);
        }
        got
    }

    fn free(world: &World, chunk: u32) {
        world.payload[chunk as usize].store(1, Relaxed);
        world.list.push(chunk, &world.links[chunk as usize]);
    }

    #[test]
    fn loom_pushes_and_takes_lose_and_double_nothing() {
        loom::model(|| {
            let world = world();
            let pushers: Vec<_> = (0..2)
                .map(|chunk| {
                    let world = world.clone();
                    thread::spawn(move || free(&world, chunk))
                })
                .collect();
            let mut got = drain(&world);
            pushers.into_iter().for_each(|p| p.join().unwrap());
            got.extend(drain(&world));
            got.sort_unstable();
            assert_eq!(got, [0, 1]);
        });
    }

    /// A remote free against the owner going offline: whoever sees the other finishes the work, nothing is stranded.
    #[test]
    fn loom_a_push_to_a_dying_cpu_is_not_stranded() {
        loom::model(|| {
            let world = world();
            let pusher = {
                let world = world.clone();
                thread::spawn(move || {
                    free(&world, 0);
                    if world.dead.load(SeqCst) { drain(&world) } else { Vec::new() }
                })
            };
            world.dead.store(true, SeqCst);
            let mut got = drain(&world);
            got.extend(pusher.join().unwrap());
            assert_eq!(got, [0]);
            assert!(world.list.is_empty());
        });
    }
}
