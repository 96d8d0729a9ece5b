//! Frees that go wrong at the same moment: several CPUs free the same frames, and each thinks they
//! are its own.
//!
//! Nobody can say who is right, but: of the frees of one frame all but one are refused, or told to
//! the host as late double frees; the frame is free once, is handed out once, and everything comes
//! home. `FREEHOLD_SECONDS` sets for how long each test goes on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use freehold::{Config, Order, Owned, Pfn, Watermarks, ZoneConfig};

const BASE: u64 = 512;

/// How many rounds a race has: as many as the time asked for has room for, or some thousands, which
/// take an idle machine a part of a second, and at most a second of others.
fn rounds() -> (u32, Duration) {
    match std::env::var("FREEHOLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        Some(asked) => (u32::MAX - 1, Duration::from_secs(asked)),
        None => (if cfg!(miri) { 20 } else { 1_500 }, Duration::from_millis(300)),
    }
}

/// So many there are at least, however long they take: a machine that does other work beside takes
/// a hundred times as long as an idle one, as three threads on two cores wait for each other's
/// turns.
const LEAST_ROUNDS: u32 = 200;

/// What the threads of a round do to `frames` frames from `first` on.
#[derive(Clone, Copy)]
struct Task {
    first: u64,
    frames: u64,
    how: How,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// As one chunk, or as a range, or as a slice, by turns among the threads.
    Mixed,
    /// Thread 0 all of it, the others a frame each.
    Parts,
}

/// Where the threads of a round meet.
struct Meeting {
    round: AtomicU32,
    done: AtomicU32,
    first: AtomicU64,
    frames: AtomicU64,
    parts: AtomicU32,
    /// Frames that calls said they had freed.
    won: AtomicU64,
    threads: u32,
}

fn until(condition: impl Fn() -> bool) {
    for n in 0u32.. {
        if condition() {
            return;
        }
        if n % 64 == 63 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

impl Meeting {
    fn open(&self, round: u32, task: Task) {
        self.first.store(task.first, Ordering::Relaxed);
        self.frames.store(task.frames, Ordering::Relaxed);
        self.parts.store(u32::from(task.how == How::Parts), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.round.store(round, Ordering::Release);
    }

    /// One thread's part; returns when it has freed.
    fn free(&self, me: u32, owned: &Owned<'_, '_, Any<'_>>) {
        let (first, frames) =
            (self.first.load(Ordering::Relaxed), self.frames.load(Ordering::Relaxed));
        let round = self.round.load(Ordering::Relaxed);
        let order = frames.is_power_of_two().then(|| order(frames.trailing_zeros() as u8));
        let won = if self.parts.load(Ordering::Relaxed) == 1 && me > 0 {
            let pfn = Pfn::new(first + u64::from(round) * 37 * u64::from(me) % frames);
            u64::from(owned.free(pfn, Order::ZERO).is_ok())
        } else {
            match (round / 3 + me) % 3 {
                0 if order.is_some() => {
                    frames * u64::from(owned.free(Pfn::new(first), order.unwrap()).is_ok())
                }
                1 if frames <= 64 => {
                    let list: Vec<Pfn> = (first..first + frames).map(Pfn::new).collect();
                    match owned.free_bulk(&list) {
                        Ok(()) => frames,
                        Err(error) => error.freed as u64,
                    }
                }
                _ => frames * u64::from(owned.free_range(range(first, frames)).is_ok()),
            }
        };
        self.won.fetch_add(won, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Release);
    }
}

/// Makes `threads` threads free the same thing, round by round. `exact`: what they free is freed by
/// one step, so that the counts must agree; otherwise a call that is refused may have freed a part
/// of it.
fn race(
    threads: u32,
    mib: u64,
    exact: bool,
    prepare: impl Fn(&Owned<'_, 'static, Any<'static>>, u32) -> Task,
) {
    let memory = [range(BASE, mib * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(threads as u16, &[zone]), Membarrier::new());
    let meeting = Meeting {
        round: AtomicU32::new(0),
        done: AtomicU32::new(0),
        first: AtomicU64::new(0),
        frames: AtomicU64::new(0),
        parts: AtomicU32::new(0),
        won: AtomicU64::new(0),
        threads,
    };
    let (last, time) = rounds();
    let begun = Instant::now();
    let had = std::thread::scope(|scope| {
        let (fh, meeting) = (&fh, &meeting);
        for me in 1..threads {
            scope.spawn(move || {
                let owned = fh.own(cpu(me as u16)).unwrap();
                for round in 1..=last {
                    until(|| meeting.round.load(Ordering::Acquire) >= round);
                    if meeting.round.load(Ordering::Acquire) == u32::MAX {
                        return;
                    }
                    meeting.free(me, &owned);
                }
            });
        }
        // Whatever happens, the others are let go.
        struct LetGo<'a>(&'a Meeting);
        impl Drop for LetGo<'_> {
            fn drop(&mut self) {
                self.0.round.store(u32::MAX, Ordering::Release);
            }
        }
        let _let_go = LetGo(meeting);
        let owned = fh.own(cpu(0)).unwrap();
        let (mut given, mut had) = (0, 0);
        for round in 1..=last {
            had = round;
            let task = prepare(&owned, round);
            given += task.frames;
            meeting.open(round, task);
            meeting.free(0, &owned);
            until(|| meeting.done.load(Ordering::Acquire) == meeting.threads);
            if !exact {
                // What nobody has freed: the refused calls stopped before it.
                for pfn in task.first..task.first + task.frames {
                    let _ = owned.free(Pfn::new(pfn), Order::ZERO);
                }
            }
            if round % 8 == 0 || round == last {
                check_round(
                    fh,
                    &owned,
                    (exact, given, meeting.won.load(Ordering::Relaxed)),
                    round % 512 == 0,
                );
                if round >= LEAST_ROUNDS && begun.elapsed() > time {
                    break;
                }
            }
        }
        had
    });
    let late = fh.totals().late_double_frees;
    eprintln!("{had} rounds, {late} frames freed twice unnoticed");
    assert_all_free(&fh);
}

/// A free that had looked at its block before the others made it whole puts its frames into the
/// words of a whole block, where nobody looks for free ones. A thread that takes the block next
/// tells of them.
fn take_every_block(owned: &Owned<'_, 'static, Any<'static>>) {
    let blocks: Vec<Pfn> = std::iter::from_fn(|| owned.alloc(movable(9)).ok()).collect();
    blocks.into_iter().for_each(|block| owned.free(block, order(9)).unwrap());
}

/// Between rounds: the counts agree, nothing is lost, and nothing is handed out twice.
fn check_round(
    fh: &Alloc<'static>,
    owned: &Owned<'_, 'static, Any<'static>>,
    (exact, given, won): (bool, u64, u64),
    thoroughly: bool,
) {
    take_every_block(owned);
    // First what is in hand, then the rest.
    let mut out = vec![Pfn::default(); 1200];
    let got = owned.alloc_bulk(movable(0), &mut out).unwrap();
    let mut sorted: Vec<u64> = out[..got].iter().map(|pfn| pfn.get()).collect();
    sorted.extend(
        (0..fh.cpu_count())
            .filter_map(|c| fh.on(cpu(c as u16)).alloc(movable(0)).ok())
            .map(|pfn| pfn.get()),
    );
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "a frame was handed out twice");
    let list: Vec<Pfn> = sorted.into_iter().map(Pfn::new).collect();
    owned.free_bulk(&list).unwrap();
    (0..fh.cpu_count()).for_each(|c| fh.on(cpu(c as u16)).flush().unwrap());
    let stats = fh.zone_stats(0).unwrap();
    assert_eq!(stats.free, stats.managed, "frames were lost");
    if exact {
        assert_eq!(
            won - fh.totals().late_double_frees,
            given,
            "frames freed, but for those told late"
        );
    }
    if thoroughly {
        fh.validate().unwrap();
    }
}

fn chunk(o: u8) -> impl Fn(&Owned<'_, 'static, Any<'static>>, u32) -> Task {
    move |owned, _| Task {
        first: owned.alloc(movable(o)).unwrap().get(),
        frames: 1 << o,
        how: How::Mixed,
    }
}

/// Memory in which CPUs lease many words, and so little that they lease one each.
const SIZES: [u64; 2] = [64, 8];

#[test]
fn two_and_three_free_the_same_frame() {
    for mib in SIZES {
        race(2, mib, true, chunk(0));
        race(3, mib, true, chunk(0));
    }
}

#[test]
fn two_and_three_free_the_same_run() {
    for mib in SIZES {
        race(2, mib, true, chunk(3));
        race(3, mib, true, |owned, round| chunk((round % 6) as u8)(owned, round));
    }
}

#[test]
fn two_and_three_free_the_same_word() {
    for mib in SIZES {
        race(2, mib, true, chunk(6));
        race(3, mib, true, chunk(6));
    }
}

#[test]
fn two_and_three_free_the_same_words() {
    race(2, 64, false, chunk(8));
    race(3, 64, false, |owned, round| chunk(7 + (round % 2) as u8)(owned, round));
}

#[test]
fn two_and_three_free_the_same_block() {
    for mib in SIZES {
        race(2, mib, true, chunk(9));
        race(3, mib, true, chunk(9));
    }
}

#[test]
fn two_and_three_free_the_same_block_that_is_split() {
    let split = |owned: &Owned<'_, 'static, Any<'static>>, _| {
        let pfn = owned.alloc(movable(9)).unwrap();
        owned.free(pfn, Order::ZERO).unwrap();
        Task { first: pfn.get() + 1, frames: 511, how: How::Mixed }
    };
    race(2, 64, false, split);
    race(3, 64, false, split);
}

#[test]
fn one_frees_a_block_and_others_frames_of_it() {
    let parts = |owned: &Owned<'_, 'static, Any<'static>>, round: u32| Task {
        how: How::Parts,
        ..chunk([9, 10, 6][round as usize % 3])(owned, round)
    };
    race(2, 64, false, parts);
    race(3, 64, false, parts);
}

#[test]
fn two_and_three_free_the_same_range() {
    let some = |owned: &Owned<'_, 'static, Any<'static>>, round: u32| {
        let pfn = owned.alloc(movable(11)).unwrap().get();
        let (from, len) = (u64::from(round) * 41 % 600, 1 + u64::from(round) * 97 % 1400);
        if from > 0 {
            owned.free_range(range(pfn, from)).unwrap();
        }
        owned.free_range(range(pfn + from + len, 2048 - from - len)).unwrap();
        Task { first: pfn + from, frames: len, how: How::Mixed }
    };
    race(2, 64, false, some);
    race(3, 64, false, some);
}

/// Right frees: the frames of a block that was taken whole, by two CPUs at the same moment. None is
/// lost.
#[test]
fn two_free_their_halves_of_a_block() {
    let memory = [range(BASE, 64 * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(2, &[zone]), Membarrier::new());
    let (round, done, block) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
    let (last, time) = rounds();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let (fh, round, done, block) = (&fh, &round, &done, &block);
        scope.spawn(move || {
            let owned = fh.own(cpu(1)).unwrap();
            for n in 1..=last {
                until(|| round.load(Ordering::Acquire) >= n);
                if round.load(Ordering::Acquire) == u32::MAX {
                    return;
                }
                owned.free(Pfn::new(block.load(Ordering::Relaxed) + 300), Order::ZERO).unwrap();
                done.store(n, Ordering::Release);
            }
        });
        let owned = fh.own(cpu(0)).unwrap();
        for n in 1..=last {
            let Ok(pfn) = owned.alloc(movable(9)) else {
                // Lost frames keep their blocks from ever being whole again.
                round.store(u32::MAX, Ordering::Release);
                panic!("no block is left after {n} rounds");
            };
            block.store(pfn.get(), Ordering::Relaxed);
            round.store(n, Ordering::Release);
            (0..n % 16).for_each(|_| std::hint::spin_loop());
            owned.free(pfn, Order::ZERO).unwrap();
            until(|| done.load(Ordering::Acquire) == n);
            owned.free_range(range(pfn.get() + 1, 299)).unwrap();
            owned.free_range(range(pfn.get() + 301, 211)).unwrap();
            if n >= LEAST_ROUNDS && begun.elapsed() > time {
                round.store(u32::MAX, Ordering::Release);
                break;
            }
        }
    });
    assert_eq!(fh.totals().late_double_frees, 0, "a right free was taken for a double one");
    assert_all_free(&fh);
}
