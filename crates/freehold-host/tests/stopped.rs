//! Frees never wait for another thread: threads are stopped in the middle of each call that changes
//! an arena, wherever they happen to be, and others free beside them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use freehold_host::freehold::{FrameRange, Migratetype, Order, Pfn};
use freehold_host::{Arena, Frames, Lock};

/// The thread that is to be stopped has been, and is held while this is set.
static HOLD: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicU32 = AtomicU32::new(0);

extern "C" fn stop_here(_: i32) {
    STOPPED.fetch_add(1, SeqCst);
    while HOLD.load(SeqCst) {
        // SAFETY: allowed in signal handlers.
        unsafe { libc::usleep(200) };
    }
    STOPPED.fetch_sub(1, SeqCst);
}

/// What the stopped thread was doing, over and over.
const CALLS: [&str; 12] = [
    "single frames",
    "long runs",
    "trim",
    "pass",
    "bulk",
    "first call and exit",
    "validate and drain",
    "try_extend",
    "257 frames",
    "zeroed",
    "populate",
    "flush",
];
/// Of `CALLS`: its threads end by themselves.
const ENDS: usize = 5;

fn work(call: usize, arena: &'static Arena, end: &AtomicBool) {
    let mut out = vec![Pfn::new(0); 3000];
    let mut frames = Vec::with_capacity(600);
    while !end.load(Relaxed) {
        match call {
            0 => {
                frames.extend((0..600).filter_map(|_| arena.frames(1).ok()));
                frames.clear();
            }
            1 => drop((arena.frames(1700), arena.frames(300))),
            2 => drop((arena.trim(), arena.frames(512))),
            3 => drop((arena.pass(), arena.frames(512))),
            4 => {
                if let Ok(got) = arena.alloc_bulk(Migratetype::Movable, &mut out) {
                    // SAFETY: allocated just now.
                    let _ = unsafe { arena.free_bulk(&out[..got]) };
                }
            }
            ENDS => return drop(arena.frames(3)),
            6 => drop((arena.validate(), arena.drain())),
            7 => {
                let extended = arena
                    .frames(10)
                    .map(|mut frames| (frames.try_extend(90), frames.try_extend(1000)));
                let _ = extended;
            }
            8 => drop((arena.frames(257), arena.frames(257))),
            9 => drop((arena.zeroed(1), arena.zeroed(40), arena.zeroed(600))),
            10 => drop(arena.frames(20).map(|frames| frames.populate())),
            _ => drop((arena.frames(1), arena.frames(16), arena.flush())),
        }
    }
}

/// What the others free.
const FREES: [&str; 7] = [
    "one frame",
    "one frame, as a thread's first call",
    "300 frames",
    "1,700 frames",
    "1,700 frames, as a thread's first call",
    "a range by number",
    "500 frames in bulk",
];

struct Free {
    state: &'static AtomicU32,
    thread: JoinHandle<()>,
}

const READY: u32 = 1;
const GO: u32 = 2;
const DONE: u32 = 3;

fn free(kind: usize, arena: &'static Arena) -> Free {
    let state: &'static AtomicU32 = Box::leak(Box::default());
    let given: Option<Frames> = match kind {
        1 => Some(arena.frames(1).unwrap()),
        4 => Some(arena.frames(1700).unwrap()),
        _ => None,
    };
    let thread = std::thread::spawn(move || {
        let own = match kind {
            0 => Some(arena.frames(1).unwrap()),
            2 => Some(arena.frames(300).unwrap()),
            3 => Some(arena.frames(1700).unwrap()),
            _ => None,
        };
        let range = (kind == 5).then(|| arena.frames(77).unwrap().into_raw());
        let mut bulk = vec![Pfn::new(0); 500];
        if kind == 6 {
            assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut bulk), Ok(500));
        }
        state.store(READY, SeqCst);
        while state.load(SeqCst) != GO {
            std::thread::sleep(Duration::from_micros(100));
        }
        drop((given, own));
        // SAFETY: allocated above, and used by nobody.
        unsafe {
            if let Some(range) = range {
                let half = Pfn::new(range.start.get() + 40);
                arena.free(range.start, Order::ZERO).unwrap();
                arena
                    .free_range(FrameRange { start: Pfn::new(range.start.get() + 1), end: half })
                    .unwrap();
                arena.free_range(FrameRange { start: half, end: range.end }).unwrap();
            }
            if kind == 6 {
                arena.free_bulk(&bulk).unwrap();
            }
        }
        state.store(DONE, SeqCst);
        // A thread that ends may wait: it gives up what it holds.
        while HOLD.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    Free { state, thread }
}

fn spawn(
    call: usize,
    arena: &'static Arena,
    id: &'static AtomicU64,
    end: &'static AtomicBool,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        // SAFETY: who this is.
        id.store(unsafe { libc::pthread_self() } as u64, SeqCst);
        work(call, arena, end);
        // Not to be signalled any more.
        while call == ENDS && id.swap(0, SeqCst) == 0 && !end.load(Relaxed) {
            std::thread::yield_now();
        }
    })
}

/// Stops a thread somewhere in that call; it goes on once `HOLD` is cleared.
fn stopped_in(
    call: usize,
    round: u64,
    arena: &'static Arena,
    end: &'static AtomicBool,
) -> Vec<JoinHandle<()>> {
    let id: &'static AtomicU64 = Box::leak(Box::default());
    let mut threads = vec![spawn(call, arena, id, end)];
    loop {
        // Somewhere else in every round. Whoever takes the number out of `id` first may use it.
        (0..round * 7919 % 3000).for_each(|_| std::hint::spin_loop());
        let thread = id.swap(0, SeqCst);
        if thread != 0 {
            // SAFETY: a thread that has not ended: it waits for its number to come back before it
            // does.
            assert_eq!(unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) }, 0);
            while STOPPED.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            id.store(thread, SeqCst);
            return threads;
        }
        if call == ENDS && threads[threads.len() - 1].is_finished() {
            threads.push(spawn(call, arena, id, end));
        }
        std::thread::yield_now();
    }
}

fn rounds(slots: u16, lock: Lock, time: Duration) {
    // SAFETY: a handler for a signal that nobody else uses here.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop_here as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let builder = Arena::builder(256 << 20).slots(slots).lock(lock);
    let arena: &'static Arena = builder.build().unwrap().leak();
    let (start, mut round) = (Instant::now(), 0);
    while start.elapsed() < time || round < 2 * CALLS.len() as u64 {
        let call = round as usize % CALLS.len();
        let end: &'static AtomicBool = Box::leak(Box::default());
        HOLD.store(true, SeqCst);
        let frees: Vec<Free> = (0..FREES.len()).map(|kind| free(kind, arena)).collect();
        while frees.iter().any(|free| free.state.load(SeqCst) != READY) {
            std::thread::sleep(Duration::from_micros(100));
        }
        let stopped = stopped_in(call, round, arena, end);
        frees.iter().for_each(|free| free.state.store(GO, SeqCst));
        // A free takes microseconds; this long only where it waits, or where the machine is very
        // busy.
        let waited = Instant::now();
        let late = || (0..FREES.len()).find(|&kind| frees[kind].state.load(SeqCst) != DONE);
        while late().is_some() && waited.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let late = late();
        HOLD.store(false, SeqCst);
        end.store(true, SeqCst);
        assert_eq!(
            late.map(|kind| (FREES[kind], CALLS[call])),
            None,
            "{slots} slots, {lock:?}: this free waits for that call"
        );
        frees.into_iter().for_each(|free| free.thread.join().unwrap());
        stopped.into_iter().for_each(|thread| thread.join().unwrap());
        round += 1;
    }
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
}

#[test]
fn frees_do_not_wait_for_threads_stopped_in_the_middle_of_a_call() {
    let seconds = std::env::var("FREEHOLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    rounds(64, Lock::default(), time);
    // All threads share CPUs.
    rounds(0, Lock::default(), time);
    // Owners take a lock as well.
    rounds(64, Lock::Ordinary, time);
}
