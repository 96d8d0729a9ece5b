//! An arena is filled with runs of any length, not only with powers of two.

use freehold_host::{Arena, Frames};

/// How much of an arena of 64 MiB is in use when the first run of these lengths is refused.
fn used(mut next: impl FnMut() -> u64) -> f64 {
    let arena: &'static Arena = Arena::with_size(64 << 20).unwrap().leak();
    let mut all = Vec::new();
    let mut frames = 0;
    while let Ok(run) = Frames::new(arena, next()) {
        frames += run.frame_count();
        all.push(run);
    }
    let share = frames as f64 / arena.stats().frames as f64;
    drop(all);
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
    share
}

#[test]
fn an_arena_is_full_of_runs_of_any_length() {
    for len in [1, 2, 3, 5, 7, 17, 33, 65, 100, 129, 170, 171, 250, 257, 300, 341, 400, 511, 512] {
        let share = used(|| len);
        assert!(share >= 0.94, "{len} frames each: full at {share:.3}");
    }
    for len in [513, 600, 777, 1025, 1500, 2000] {
        let share = used(|| len);
        assert!(share >= 0.85, "{len} frames each: full at {share:.3}");
    }
}

/// 4 KiB to 1 MiB: powers of two and a page or two more, as of buffers with a header.
#[test]
fn an_arena_is_full_of_a_mix_of_lengths() {
    let mut state = 12345u64;
    let share = used(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((1 << (state % 9)) + (state >> 32) % 3).min(256)
    });
    assert!(share >= 0.94, "full at {share:.3}");
}
