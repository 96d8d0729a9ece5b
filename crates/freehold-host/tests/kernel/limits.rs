//! Limits on memory, what a program hears of them, and memory that another process sees.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use freehold::{Migratetype, Pfn};
use freehold_host::{Arena, Backing, Error, Exhausted, Frames, Pressure, View};

use crate::common::child::fork;
use crate::common::{order, skipped};

#[test]
fn an_arena_stays_within_its_limit_of_resident_memory() {
    let told: Arc<Mutex<Vec<Pressure>>> = Arc::default();
    let listener = Arc::clone(&told);
    let arena = Arena::builder(32 << 20)
        .resident_limit(8 << 20)
        .zero_on_free(true)
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
    // What is freed is given back to make room: for another block than those that are resident.
    held.clear();
    let whole = arena.frames(2048).unwrap();
    assert_eq!(arena.stats().blocks_resident, 4);
    drop(whole);
    assert_eq!((arena.free_frames(), arena.validate()), (8192, Ok(())));
    assert!(Arena::builder(8 << 20).resident_limit(4096).build().is_err());
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
    let held = arena.frames(1024).unwrap();
    for count in [1, 3, 8, 64, 512, 700] {
        assert_eq!(arena.frames(count).err(), Some(Error::Limit { bytes: 4 << 20 }), "{count}");
    }
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
    assert_eq!((heard[0].order, heard[0].attempts), (Some(order(9)), 1));
    cache.lock().unwrap().clear();
    // Nothing is left to evict: then it fails.
    assert!(Frames::new(arena, 700).is_err());
    let last = *asked.lock().unwrap().last().unwrap();
    assert_eq!((last.frames, last.order), (700, None));
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
            assert!(ARENA.get().unwrap().frames(600).is_err());
            true
        })
        .build()
        .unwrap()
        .leak();
    let _ = ARENA.set(arena);
    assert!(arena.frames(600).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 15);
}

#[test]
fn what_is_in_use_is_known_without_a_look_at_any_block() {
    let arena: &'static Arena =
        Arena::builder(64 << 20).reserve(128 << 20).slots(2).build().unwrap().leak();
    let check = |what: &str| {
        let (stats, free) = (arena.stats(), arena.free_frames());
        assert_eq!((stats.frames_free, stats.frames_used), (free, stats.frames - free), "{what}");
    };
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for _ in 0..4 {
            let (to, from) = std::sync::mpsc::channel::<Frames>();
            senders.push(to);
            receivers.push(from);
        }
        for (seed, from) in receivers.into_iter().enumerate() {
            let to = senders[(seed + 1) % 4].clone();
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed as u64);
                for _ in 0..300 {
                    let count = [1, 1, 2, 3, 8, 17, 64, 512, 600][random.u64(..9) as usize];
                    if let Ok(mut frames) = Frames::new(arena, count) {
                        let _ = frames.try_extend(1 + random.u64(..5));
                        let _ = to.send(frames);
                    }
                    while let Ok(frames) = from.try_recv() {
                        match frames.split(1) {
                            Ok((first, rest)) => drop((first, rest)),
                            Err(one) => drop(one),
                        }
                    }
                }
                drop(to);
            });
        }
        drop(senders);
    });
    check("threads have come and gone");
    assert_eq!(arena.stats().frames_used, 0);
    let mut out = [Pfn::new(0); 100];
    assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut out), Ok(100));
    let kept = arena.frames(513).unwrap();
    check("bulk and a run");
    assert_eq!(arena.stats().frames_used, 613);
    // SAFETY: allocated above, and used by nobody.
    unsafe { arena.free_bulk(&out) }.unwrap();
    // SAFETY: it is the mistake that is tried.
    assert!(unsafe { arena.free(out[0], order(0)) }.is_err());
    arena.trim().unwrap();
    arena.grow(2 << 20).unwrap();
    check("trimmed and grown");
    drop(kept);
    let by_order = arena.stats().allocations_by_order;
    assert!(by_order[0] >= 100 && by_order.iter().sum::<u64>() > 100, "{by_order:?}");
}

/// The flags of the mapping that an address is in, as `/proc/self/smaps` has them.
fn flags_at(address: u64) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let parse = |text| u64::from_str_radix(text, 16).unwrap();
            inside = (parse(start)..parse(end)).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.to_owned();
        }
    }
    String::new()
}

#[test]
fn memory_that_no_dump_has_and_memory_that_stays() {
    let arena = Arena::builder(4 << 20).dont_dump(true).build().unwrap();
    let base = arena.range().start.get() << 12;
    assert!(flags_at(base).contains(" dd"), "{}", flags_at(base));
    let locked = match Arena::builder(4 << 20).locked(true).build() {
        Ok(locked) => locked,
        Err(error) => return skipped("memory_that_stays", &error),
    };
    let base = locked.range().start.get() << 12;
    assert!(flags_at(base).contains(" lo"), "{}", flags_at(base));
    assert_eq!(locked.frames_in_memory(locked.range()), Ok(0), "locked on fault only");
    locked.frames(512).unwrap().fill(1);
    assert_eq!(locked.trim().unwrap().bytes, 0);
    assert_eq!(locked.frames_in_memory(locked.range()), Ok(512));
}

#[test]
fn huge_pages_of_1_gib_are_there_or_an_error_says_how_to_get_them() {
    match Arena::builder(1 << 20).backing(Backing::Hugetlb1G).build() {
        Ok(arena) => {
            assert_eq!(arena.stats().frames, 1 << 18);
            drop(arena.frames(512).unwrap());
            assert_eq!(arena.trim().unwrap().blocks, 0);
        }
        Err(error) => {
            assert!(error.to_string().contains("hugepagesz=1G"), "{error}");
            skipped("huge_pages_of_1_gib", &error);
        }
    }
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
        assert!(view.pointer(8 << 20, 1).is_none() && view.len() == 8 << 20);
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
    // A file that somebody could make shorter is refused.
    let plain = rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(View::map(std::os::fd::AsFd::as_fd(&plain)).is_err());
}
