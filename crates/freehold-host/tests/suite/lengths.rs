//! An arena is filled with runs of any length, not only with powers of two.

use fastrand::Rng;
use freehold_host::{Arena, Frames};

use crate::examples::how_full::filled;

/// How much of an arena of 64 MiB is in use when the first run of these lengths is refused.
fn used(next: impl FnMut() -> u64) -> f64 {
    filled(64 << 20, next).unwrap()
}

#[test]
fn an_arena_is_full_of_runs_of_any_length() {
    for len in [1, 2, 3, 5, 7, 17, 33, 65, 100, 129, 170, 171, 250, 257, 300, 341, 400, 511, 512] {
        let share = used(|| len);
        let least = if len <= 300 { 0.98 } else { 0.94 };
        assert!(share >= least, "{len} frames each: full at {share:.3}");
    }
    for len in [513, 600, 777, 1025, 1500, 2000] {
        let share = used(|| len);
        assert!(share >= 0.85, "{len} frames each: full at {share:.3}");
    }
}

/// 4 KiB to 1 MiB: powers of two and a page or two more, as of buffers with a header.
#[test]
fn an_arena_is_full_of_a_mix_of_lengths() {
    let mut random = Rng::with_seed(12345);
    let share = used(|| ((1 << random.u64(..9)) + random.u64(..3)).min(256));
    assert!(share >= 0.94, "full at {share:.3}");
}

/// A pool whose size goes up and down like a day: at noon it is in memory that was in memory
/// before, so that little more is resident than is live, and at night what is free goes.
#[test]
fn little_more_is_in_memory_than_a_pool_has_at_noon_and_at_night() {
    let arena: &'static Arena = Arena::with_size(100 << 20).unwrap().leak();
    let mut random = Rng::with_seed(12345);
    let mut below = |n: u64| random.u64(..n);
    let in_memory = || arena.frames_in_memory(arena.range()).unwrap();
    let (mut pool, mut live) = (Vec::<Frames>::new(), 0);
    for (day, target) in [(1, 10_240), (1, 512), (2, 10_240), (2, 512)] {
        for _ in 0..6000 {
            if below(10) < if live > target { 2 } else { 8 } || pool.is_empty() {
                let count = ((1 << below(9)) + below(3)).min(256);
                let mut frames = Frames::new(arena, count).unwrap();
                frames.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
                live += count;
                pool.push(frames);
            } else {
                let gone = pool.swap_remove(below(pool.len() as u64) as usize);
                live -= gone.frame_count();
            }
        }
        let full = in_memory();
        arena.trim().unwrap();
        let left = in_memory();
        assert!(left <= live * 5 / 4, "day {day}: {left} frames for {live}");
        // At night what was there at noon still is, until somebody says that it may go.
        assert!(target == 512 || full <= live * 3 / 2, "day {day}: {full} frames for {live}");
    }
}
