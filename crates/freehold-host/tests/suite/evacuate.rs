//! Emptying blocks: what moves, what stays, and that every chunk has what was written to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use freehold_host::freehold::{FRAME_SIZE, Migratetype, Order, Pfn, Request};
use freehold_host::{Arena, Evacuated};

const MIB: u64 = 1 << 20;

/// What a program knows of its chunks: where each is, and what it wrote into it.
struct Pool<'a> {
    arena: &'a Arena,
    order: Order,
    chunks: HashMap<Pfn, u64>,
}

impl Pool<'_> {
    fn bytes(&self) -> usize {
        (self.order.frames() * FRAME_SIZE) as usize
    }

    fn add(&mut self, number: u64) {
        let pfn = self.arena.alloc(self.order, Migratetype::Movable).unwrap();
        let at = self.arena.pointer(pfn).unwrap().cast::<u64>();
        // SAFETY: the chunk was allocated for this pool, and is of that many bytes.
        unsafe {
            at.write(number);
            at.add(self.bytes() / 8 - 1).write(number);
        }
        assert_eq!(self.chunks.insert(pfn, number), None);
    }

    fn remove(&mut self, pfn: Pfn) {
        self.check(pfn);
        self.chunks.remove(&pfn).unwrap();
        // SAFETY: the pool has forgotten it.
        unsafe { self.arena.free(pfn, self.order).unwrap() };
    }

    fn check(&self, pfn: Pfn) {
        let at = self.arena.pointer(pfn).unwrap().cast::<u64>();
        // SAFETY: the pool has the chunk.
        let ends = unsafe { (at.read(), at.add(self.bytes() / 8 - 1).read()) };
        assert_eq!(ends, (self.chunks[&pfn], self.chunks[&pfn]), "{pfn}");
    }

    fn moved(&mut self, old: Pfn, new: Pfn) -> bool {
        let Some(number) = self.chunks.remove(&old) else { return false };
        let (from, to) = (self.arena.pointer(old).unwrap(), self.arena.pointer(new).unwrap());
        // SAFETY: the pool has the old chunk, and the new one is the pool's now.
        unsafe { to.copy_from_nonoverlapping(from, self.bytes()) };
        assert_eq!(self.chunks.insert(new, number), None);
        true
    }
}

/// A pool of 32 MiB of which one chunk in `left` is left.
fn shrunk(arena: &Arena, order: u8, left: u64) -> Pool<'_> {
    let order = Order::new(order).unwrap();
    let mut pool = Pool { arena, order, chunks: HashMap::new() };
    (0..32 * MIB / FRAME_SIZE / order.frames()).for_each(|number| pool.add(number));
    let gone: Vec<Pfn> =
        pool.chunks.iter().filter(|(_, number)| *number % left != 0).map(|(&pfn, _)| pfn).collect();
    gone.into_iter().for_each(|pfn| pool.remove(pfn));
    pool
}

fn evacuate(pool: &mut Pool<'_>, budget: u64, mut may: impl FnMut(u64) -> bool) -> Evacuated {
    let (arena, order) = (pool.arena, pool.order);
    let mover = |old, new| pool.chunks.get(&old).is_some_and(|&n| may(n)) && pool.moved(old, new);
    // SAFETY: the pool forgets what it has moved.
    unsafe { arena.evacuate(order, budget, mover) }.unwrap()
}

fn used(pool: &Pool<'_>) -> u64 {
    pool.chunks.len() as u64 * pool.order.frames()
}

#[test]
fn a_pool_that_has_shrunk_keeps_only_the_blocks_that_it_fills() {
    for (order, left) in [(0, 16), (0, 3), (2, 20), (5, 8)] {
        let arena = Arena::with_size(64 * MIB).unwrap();
        let mut pool = shrunk(&arena, order, left);
        let before = used(&pool);
        let done = evacuate(&mut pool, u64::MAX, |_| true);
        assert_eq!((done.refused, done.cut_short, used(&pool)), (0, false, before));
        pool.chunks.keys().for_each(|&pfn| pool.check(pfn));
        arena.drain().unwrap();
        crate::common::at_rest(&arena);
        let stats = arena.stats();
        assert_eq!(stats.frames_used, before);
        arena.trim().unwrap();
        let most = before.div_ceil(512) + 1;
        assert!(arena.stats().blocks_resident <= most, "order {order}: {done:?}, {most} at most");
    }
}

#[test]
fn no_more_moves_than_may_and_what_is_refused_stays_where_it_is() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let mut pool = shrunk(&arena, 0, 16);
    let done = evacuate(&mut pool, 100, |_| true);
    assert!(done.blocks > 0 && done.frames <= 100, "{done:?}");
    let before: Vec<Pfn> = pool.chunks.keys().copied().collect();
    let done = evacuate(&mut pool, u64::MAX, |_| false);
    assert_eq!((done.blocks, done.frames), (0, 0));
    assert!(done.refused > 0 && before.iter().all(|pfn| pool.chunks.contains_key(pfn)));
    crate::common::at_rest(&arena);
    assert_eq!(arena.stats().frames_used, used(&pool));
    // A mover that panics loses nothing but what it had in hand itself.
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        evacuate(&mut pool, u64::MAX, |_| panic!("planned"))
    }));
    assert!(panics.is_err());
    crate::common::at_rest(&arena);
    assert_eq!(arena.stats().frames_used, used(&pool));
    // Chunks of another order than is said are left alone.
    // SAFETY: nothing moves.
    let done = unsafe { arena.evacuate(Order::new(9).unwrap(), u64::MAX, |_, _| true) }.unwrap();
    assert_eq!((done.blocks, done.frames), (0, 0));
}

/// Threads that allocate and free while another one empties blocks, again and again.
#[test]
fn others_work_on_meanwhile() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let pool = Mutex::new(shrunk(&arena, 0, 8));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let churn = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            for number in 0..20_000 {
                let mut pool = pool.lock().unwrap();
                if random.bool() {
                    pool.add(seed << 32 | number);
                } else if let Some(&pfn) = pool.chunks.keys().next() {
                    pool.remove(pfn);
                }
            }
        };
        let workers = [scope.spawn(move || churn(1)), scope.spawn(move || churn(2))];
        let emptying = scope.spawn(|| {
            let mut moved = 0;
            while !stop.load(Ordering::Relaxed) {
                let mover = |old, new| pool.lock().unwrap().moved(old, new);
                // SAFETY: the pool forgets what it has moved.
                moved += unsafe { arena.evacuate(Order::ZERO, 2000, mover) }.unwrap().frames;
            }
            moved
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(emptying.join().unwrap() > 0);
    });
    let pool = pool.into_inner().unwrap();
    pool.chunks.keys().for_each(|&pfn| pool.check(pfn));
    arena.drain().unwrap();
    crate::common::at_rest(&arena);
    assert_eq!(arena.stats().frames_used, used(&pool));
}

/// What is done in a thread that may wait for itself, or for another one, for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (told, done) = mpsc::channel();
    thread::spawn(move || told.send(work()));
    done.recv_timeout(Duration::from_secs(20)).expect("it waits for ever, or has panicked")
}

/// Whoever moves frames of one arena may make passes of another, and of this one it makes none.
#[test]
fn a_pass_within_a_move_changes_nothing() {
    let seen = in_time(|| {
        let arena = Arena::with_size(64 * MIB).unwrap();
        let (pool, other) = (shrunk(&arena, 0, 16), Arena::with_size(8 * MIB).unwrap());
        let limited = Arena::builder(8 * MIB).resident_limit(2 * MIB).build().unwrap();
        drop(limited.frames(512).unwrap());
        let second = Pfn::new(limited.range().start.get() + 512);
        let second = Request::new(Order::PAGEBLOCK, Migratetype::Movable).from(second);
        let mut seen = None;
        let mover = |_, _| {
            seen.get_or_insert_with(|| {
                // What is in memory has to go back first.
                let trimmed = limited.request(second).map(drop);
                other.trim().unwrap();
                // SAFETY: nothing moves.
                let moved = unsafe { arena.evacuate(pool.order, u64::MAX, |_, _| false) };
                let cut_short = (arena.trim().unwrap().cut_short, moved.unwrap().cut_short);
                (trimmed, arena.frames(arena.stats().frames).is_err(), cut_short)
            });
            false
        };
        // SAFETY: nothing moves.
        unsafe { arena.evacuate(pool.order, u64::MAX, mover) }.unwrap();
        seen
    });
    assert_eq!(seen, Some((Ok(()), true, (true, true))));
}

#[test]
fn two_movers_that_allocate_in_each_others_arena_do_not_wait_for_each_other() {
    let refused = in_time(|| {
        let arenas = [(); 2].map(|()| Arena::with_size(64 * MIB).unwrap());
        let both = Barrier::new(2);
        let moves = |mine: usize| {
            let (pool, other) = (shrunk(&arenas[mine], 0, 16), &arenas[1 - mine]);
            let mut refused = None;
            let mover = |_, _| {
                refused.get_or_insert_with(|| {
                    both.wait();
                    other.frames(other.stats().frames).is_err()
                });
                false
            };
            // SAFETY: nothing moves.
            unsafe { pool.arena.evacuate(pool.order, u64::MAX, mover) }.unwrap();
            refused
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| moves(1));
            [moves(0), other.join().unwrap()]
        })
    });
    assert_eq!(refused, [Some(true); 2]);
}
