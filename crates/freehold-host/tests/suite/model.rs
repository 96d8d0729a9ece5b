//! Random steps on real memory against a model: every frame is where the model says, and holds what
//! was written there.

use fastrand::Rng;
use freehold_host::freehold::Pfn;
use freehold_host::{Arena, Backing, Frames, Lock};

use crate::common::{all_are, in_memory, is_marked, mark};
use crate::length::length;

const MIB: u64 = 1 << 20;

/// What a frame holds: a mark at its start and its end, from its number and the step at which it
/// was written.
fn write(frames: &mut Frames<&Arena>, step: u64) {
    let first = frames.pfn().get();
    mark(frames, |i| (first + i) << 20 ^ step);
}

fn check(frames: &Frames<&Arena>, step: u64) {
    let first = frames.pfn().get();
    let held = is_marked(frames, |i| (first + i) << 20 ^ step);
    assert!(held, "{:?}, step {step}", frames.range());
}

#[expect(clippy::too_many_lines, reason = "one choice among all calls, each a few lines")]
fn run(arena: &Arena, seed: u64, steps: u64) {
    let mut random = Rng::with_seed(seed);
    let mut held: Vec<(u64, Frames<&Arena>)> = Vec::new();
    let mut frames_held = 0;
    for step in 1..=steps {
        match random.u64(..100) {
            0..45 => {
                let count = match random.u64(..10) {
                    0..5 => 1,
                    5..8 => 1 + random.u64(..64),
                    8 => 512,
                    _ => 1 + random.u64(..3000),
                };
                let zeroed = random.u64(..3) == 0;
                let got = if zeroed { arena.zeroed(count) } else { arena.frames(count) };
                match got {
                    Ok(mut frames) => {
                        if zeroed {
                            assert!(all_are(&frames, 0), "step {step}: not zero");
                        }
                        frames_held += count;
                        write(&mut frames, step);
                        held.push((step, frames));
                    }
                    // Fragmentation may be in the way of several frames, never of one.
                    Err(error) => assert!(
                        error.is_out_of_memory()
                            && (count > 1 || frames_held == arena.stats().frames),
                        "step {step}: {error} with {frames_held} frames held"
                    ),
                }
            }
            45..85 if !held.is_empty() => {
                let (written, frames) = held.swap_remove(random.u64(..held.len() as u64) as usize);
                check(&frames, written);
                frames_held -= frames.frame_count();
            }
            85..92 if !held.is_empty() => {
                let (written, frames) = held.swap_remove(random.u64(..held.len() as u64) as usize);
                let at = random.u64(..frames.frame_count() + 1);
                match frames.split(at) {
                    Ok((first, second)) if random.u64(..2) == 0 => {
                        // There and back again.
                        held.push((written, second.merge(first).unwrap()));
                    }
                    Ok((first, second)) => held.extend([(written, first), (written, second)]),
                    Err(frames) => held.push((written, frames)),
                }
            }
            92..94 if !held.is_empty() => {
                let (written, frames) = held.swap_remove(random.u64(..held.len() as u64) as usize);
                let range = frames.into_raw();
                // SAFETY: just taken out, and nobody else has them.
                held.push((written, unsafe { Frames::from_raw(arena, range) }.unwrap()));
            }
            94 => drop(arena.trim().unwrap()),
            95..98 => drop(arena.pass().unwrap()),
            98 => arena.drain().unwrap(),
            _ => arena.flush().unwrap(),
        }
        if step % 1000 == 0 {
            arena.validate().unwrap();
            assert_eq!(arena.free_frames(), arena.stats().frames - frames_held);
        }
    }
    let mut all: Vec<Pfn> = held.iter().map(|(_, frames)| frames.pfn()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), held.len());
    held.iter().for_each(|(written, frames)| check(frames, *written));
    drop(held);
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.trim().unwrap();
    assert_eq!(arena.stats().blocks_resident, 0);
    assert_eq!(in_memory(arena), 0);
    assert_eq!(arena.stats().refused_drops, 0);
}

#[test]
fn random_steps_on_every_kind_of_memory_and_lock() {
    for (seed, backing, lock, slots) in [
        (1, Backing::Private, Lock::Biased, 4),
        (2, Backing::Private, Lock::Ordinary, 4),
        (3, Backing::Memfd, Lock::Biased, 4),
        (4, Backing::Private, Lock::Biased, 0),
    ] {
        if cfg!(feature = "plain") && backing != Backing::Private {
            continue;
        }
        let arena = Arena::builder(32 * MIB).backing(backing).lock(lock).slots(slots);
        run(&arena.build().unwrap(), seed, length(2_000, 6_000));
    }
}
