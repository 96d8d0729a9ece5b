//! Limits on memory, what a program hears of them, and memory that another process sees.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{Migratetype, Pfn};
use freehold_host::{Arena, Backing, Error, Exhausted, Frames, Pressure, View};

use crate::common::child::fork;
use crate::common::order;

#[test]
fn an_arena_stays_within_its_limit_of_resident_memory() {
    let told: Arc<Mutex<Vec<Pressure>>> = Arc::default();
    let listener = Arc::clone(&told);
    let arena = Arena::builder(32 << 20)
        .resident_limit(8 << 20)
        .on_pressure(move |pressure| listener.lock().unwrap().push(pressure))
        .build()
        .unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match arena.frames(256) {
            Ok(mut frames) => {
                frames.fill(1);
                held.push(frames);
            }
            Err(error) => break error,
        }
        assert!(arena.stats().blocks_resident <= 4);
    };
    assert_eq!(refused, Error::Limit { bytes: 8 << 20 });
    assert!(refused.is_out_of_memory());
    assert_eq!(held.len(), 8, "four blocks of two times 256 frames");
    let heard = told.lock().unwrap().pop().unwrap();
    assert_eq!((heard.resident, heard.limit), (8 << 20, 8 << 20));
    // The other calls, too: nothing is lost by what they are refused.
    assert!(matches!(arena.zeroed(300), Err(Error::Limit { .. })));
    assert!(matches!(arena.alloc(order(9), Migratetype::Movable), Err(Error::Limit { .. })));
    let mut out = [Pfn::new(0); 600];
    assert!(matches!(arena.alloc_bulk(Migratetype::Movable, &mut out), Err(Error::Limit { .. })));
    assert_eq!(arena.free_frames(), 8192 - 2048);
    // No memory that is given back makes room for that.
    told.lock().unwrap().clear();
    assert_eq!(arena.frames(2049).err(), Some(refused));
    assert!(told.lock().unwrap().is_empty());
    // What is freed is given back to make room: for another block than those that are resident.
    held.clear();
    let whole = arena.frames(2048).unwrap();
    assert_eq!(arena.stats().blocks_resident, 4);
    drop(whole);
    assert_eq!((arena.free_frames(), arena.validate()), (8192, Ok(())));
}

/// Nothing is given back of a pinned arena, so that no pass ever runs in it.
#[test]
fn a_pinned_arena_at_its_limit_says_so_and_asks_for_no_frames() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let arena = Arena::builder(32 << 20)
        .pinned(true)
        .resident_limit(4 << 20)
        .on_exhausted(move |_| {
            // Relaxed: one thread.
            counter.fetch_add(1, Ordering::Relaxed);
            false
        })
        .build()
        .unwrap();
    // Nor are free frames backed beyond it.
    let four = Error::Limit { bytes: 4 << 20 };
    assert_eq!(arena.populate(arena.range()), Err(four));
    let all = Arena::builder(32 << 20).populate(true);
    let build = |bytes| all.clone().resident_limit(bytes).build().map(drop);
    let knob = |value, allowed| Err(Error::Knob { knob: "resident_limit", value, allowed });
    assert_eq!(build(4 << 20), knob(4 << 20, "all blocks of what is populated"));
    assert_eq!(build(1), knob(1, "at least a block of 2 MiB"));
    let held = arena.frames(1024).unwrap();
    for count in [1, 3, 8, 64, 512, 700] {
        assert_eq!(arena.frames(count).err(), Some(Error::Limit { bytes: 4 << 20 }), "{count}");
    }
    // There is no such run, and if there were it would be beyond the limit.
    assert!(arena.frames(8000).unwrap_err().is_out_of_memory());
    assert_eq!(asked.load(Ordering::Relaxed), 0, "there are free frames");
    drop(held);
    assert_eq!(arena.free_frames(), 8192);
}

#[test]
fn a_program_is_asked_for_frames_before_an_allocation_fails() {
    let cache: Arc<Mutex<Vec<Frames>>> = Arc::default();
    let asked: Arc<Mutex<Vec<Exhausted>>> = Arc::default();
    let (evicted, listener) = (Arc::clone(&cache), Arc::clone(&asked));
    let arena = Arena::builder(4 << 20)
        .on_exhausted(move |wanted| {
            listener.lock().unwrap().push(wanted);
            evicted.lock().unwrap().pop().is_some()
        })
        .build()
        .unwrap()
        .leak();
    while cache.lock().unwrap().len() < 4 {
        let frames = Frames::new(arena, 256).unwrap();
        cache.lock().unwrap().push(frames);
    }
    assert!(asked.lock().unwrap().is_empty());
    let mine = Frames::new(arena, 512).unwrap();
    let heard: Vec<_> = asked.lock().unwrap().drain(..).collect();
    assert!(heard.len() <= 4 && heard[0].frames == 512, "{heard:?}");
    assert_eq!(heard[0].attempts, 1);
    // Whatever is evicted, that is more than there is.
    for count in [1025, 2048, u64::MAX] {
        assert!(Frames::new(arena, count).unwrap_err().is_out_of_memory(), "{count}");
    }
    assert!(asked.lock().unwrap().is_empty());
    cache.lock().unwrap().clear();
    // Nothing is left to evict: then it fails.
    assert!(Frames::new(arena, 700).is_err());
    assert_eq!(asked.lock().unwrap().last().unwrap().frames, 700);
    drop(mine);
    assert_eq!(arena.free_frames(), 1024);
}

/// A callback that always says yes does not keep its thread for ever, and one that allocates is not
/// called for that.
#[test]
fn callbacks_end() {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    static ARENA: std::sync::OnceLock<&'static Arena> = std::sync::OnceLock::new();
    let arena = Arena::builder(2 << 20)
        .on_exhausted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(ARENA.get().unwrap().frames(512).is_err());
            true
        })
        .build()
        .unwrap()
        .leak();
    let _ = ARENA.set(arena);
    let _held = arena.frames(1).unwrap();
    assert!(arena.frames(512).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 15);
}

#[test]
fn what_is_in_use_is_counted() {
    let arena = Arena::with_size(64 << 20).unwrap();
    let check = |used: u64| {
        let (stats, free) = (arena.stats(), arena.free_frames());
        assert_eq!((stats.frames_free, stats.frames_used), (free, used));
        assert_eq!(stats.frames, free + used);
    };
    check(0);
    let mut out = [Pfn::new(0); 100];
    assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut out), Ok(100));
    let kept = arena.frames(513).unwrap();
    check(613);
    // SAFETY: allocated above, and used by nobody.
    unsafe { arena.free_bulk(&out) }.unwrap();
    // SAFETY: it is the mistake that is tried.
    assert!(unsafe { arena.free(out[0], order(0)) }.is_err());
    arena.trim().unwrap();
    check(513);
    drop(kept);
    check(0);
    let by_order = arena.stats().allocations_by_order;
    assert!(by_order[0] >= 100 && by_order.iter().sum::<u64>() > 100, "{by_order:?}");
}

/// The other side is killed in the middle of its work: whoever allocates loses nothing.
#[test]
fn frames_shared_with_a_process_that_is_killed_go_home() {
    let arena = Arena::builder(8 << 20).backing(Backing::Memfd).build().unwrap();
    let mut shared = arena.zeroed(16).unwrap();
    let offset = arena.offset(shared.pfn()).unwrap();
    shared[0] = 1;
    let status = fork(|| {
        // SAFETY: these frames are shared on purpose, and used through atomics.
        let fd = unsafe { arena.memfd() }.unwrap();
        let view = View::map(fd).unwrap();
        assert!(view.pointer(8 << 20, 1).is_none() && view.pointer(0, 8 << 20).is_some());
        let first = view.pointer(offset, 16 << 12).unwrap().cast::<AtomicU64>();
        // SAFETY: 16 pages of the arena's, which both sides use as atomics only.
        let words = unsafe { std::slice::from_raw_parts(first.as_ptr(), 16 * 512) };
        assert_eq!(words[0].load(Ordering::Acquire), 1);
        words[16 * 512 - 1].store(42, Ordering::Release);
        // SAFETY: ends this process as somebody else's kill would.
        unsafe { libc::raise(libc::SIGKILL) };
        false
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    assert_eq!(shared[(16 << 12) - 8], 42, "what it had written is there");
    drop(shared);
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.validate().unwrap();
    // A file that somebody could make shorter is refused, and one of which nothing can be read.
    let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(View::map(plain.as_fd()).is_err());
    rustix::fs::fcntl_add_seals(&plain, rustix::fs::SealFlags::SHRINK).unwrap();
    assert!(View::map(plain.as_fd()).is_err(), "it is empty");
    rustix::fs::ftruncate(&plain, 1).unwrap();
    assert!(View::map(plain.as_fd()).is_ok());
}
