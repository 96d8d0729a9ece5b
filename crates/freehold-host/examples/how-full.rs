//! How full an arena gets with runs of one length, or of many.
//!
//! ```text
//! cargo run --release -p freehold-host --example how-full              256 MiB
//! cargo run --release -p freehold-host --example how-full -- 64        64 MiB
//! ```
//!
//! First it is filled until a request fails. Then it is a cache that is its own budget: a request
//! that fails evicts entries at random until it is served, and how much was in use at each failure
//! is noted. Last, the cache keeps to half of the arena and shrinks to a quarter at the end: how
//! many blocks of 2 MiB can be had as a whole then, beside entries cut from the next larger power
//! of two. Addresses only: nothing is touched, and the figures are the same every time.
//!
//! Then it is written to: a cache shrinks to one entry in twenty, free memory is given back, and it
//! goes on at its small size. How many page faults that costs, and what it had in memory, is a
//! matter of the least run that is given back.

use freehold_host::{Arena, Error, Frames};

/// Requests of the cache; those before the arena has been full for a while do not count.
const REQUESTS: u64 = 15_000;
const WARM: u64 = 5_000;

/// A mix of lengths: its name, and the next length.
pub(crate) type Mix = (&'static str, fn(&mut Random) -> u64);

const MIXES: [Mix; 4] = [
    ("4 KiB to 64 KiB, powers of two", |random| 1 << random.below(5)),
    ("4 KiB to 1 MiB, powers of two", |random| 1 << random.below(9)),
    ("4 KiB to 1 MiB, and 0 to 2 frames more", |random| {
        ((1 << random.below(9)) + random.below(3)).min(256)
    }),
    ("1 to 256 frames", |random| 1 + random.below(256)),
];

/// A mix of small lengths, beside the others.
const SMALL: Mix = ("1 to 8 frames", |random| 1 + random.below(8));

/// How an entry that is no power of two comes by its frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// As a run that starts anywhere.
    Run,
    /// As the first part of a chunk, of which the rest is freed.
    Chunk,
}

/// Xorshift, so that it is the same everywhere (Marsaglia, Xorshift RNGs, 2003).
pub(crate) struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The share that is in use when the first request fails.
pub(crate) fn filled(bytes: u64, mut next: impl FnMut() -> u64) -> Result<f64, Error> {
    let arena = Arena::with_size(bytes)?;
    let (mut all, mut used) = (Vec::new(), 0);
    while let Ok(frames) = arena.frames(next()) {
        used += frames.frame_count();
        all.push(frames);
    }
    Ok(used as f64 / arena.stats().frames as f64)
}

/// The mean share in use when a request of the cache fails, and the least.
fn evicting(bytes: u64, mix: Mix) -> Result<(f64, f64), Error> {
    let arena = Arena::with_size(bytes)?;
    let all = arena.stats().frames as f64;
    let (mut random, mut entries, mut used) = (Random(7), Vec::<Frames<&Arena>>::new(), 0);
    let (mut sum, mut failures, mut least) = (0.0, 0u32, 1f64);
    for request in 0..REQUESTS {
        let count = mix.1(&mut random);
        let frames = loop {
            match arena.frames(count) {
                Ok(frames) => break frames,
                Err(_) if entries.is_empty() => return Err(Error::NoRun { frames: count }),
                Err(_) => {}
            }
            if request >= WARM {
                let share = used as f64 / all;
                (sum, failures, least) = (sum + share, failures + 1, least.min(share));
            }
            used -= evict(&mut random, &mut entries);
        };
        used += count;
        entries.push(frames);
    }
    Ok((sum / f64::from(failures.max(1)), least))
}

fn entry(arena: &Arena, count: u64, how: How) -> Result<Frames<&Arena>, Error> {
    if how == How::Run {
        return arena.frames(count);
    }
    let chunk = arena.frames(count.next_power_of_two())?;
    Ok(match chunk.split(count) {
        Ok((entry, _rest)) => entry,
        Err(all) => all,
    })
}

/// Frames in use, and blocks that can be had as a whole, after a cache of that mix has shrunk.
pub(crate) fn left(bytes: u64, mix: Mix, how: How) -> Result<(u64, u64), Error> {
    let arena = Arena::with_size(bytes)?;
    let all = arena.stats().frames;
    let (mut random, mut entries, mut used) = (Random(7), Vec::<Frames<&Arena>>::new(), 0);
    for _ in 0..REQUESTS {
        let count = mix.1(&mut random);
        while used + count > all / 2 {
            used -= evict(&mut random, &mut entries);
        }
        used += count;
        entries.push(entry(&arena, count, how)?);
    }
    while used > all / 4 {
        used -= evict(&mut random, &mut entries);
    }
    arena.drain()?;
    let mut blocks = Vec::new();
    while let Ok(block) = arena.frames(512) {
        blocks.push(block);
    }
    Ok((used, blocks.len() as u64))
}

/// Pages that this process has in memory, and its page faults so far.
fn memory() -> (i64, i64) {
    // SAFETY: zeros are a value, and a place for the answer.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut used);
        used
    };
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    (pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0), used.ru_minflt)
}

/// Page faults of 20,000 exchanges of a cache that has shrunk to one in twenty, and MiB that it had
/// in memory then.
fn goes_on(bytes: u64, least: u64, most: u64, least_run: u64) -> Result<(i64, f64), Error> {
    let arena = Arena::builder(4 * bytes).least_run(least_run).build()?;
    let mut random = Random(88_172_645_463_325_252);
    let next = |random: &mut Random| {
        let mut frames = arena.frames(least + random.below(most - least + 1))?;
        frames.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        Ok::<_, Error>(frames)
    };
    let (mut entries, mut used, (base, _)) = (Vec::with_capacity(1 << 16), 0, memory());
    while used < bytes / 4096 {
        entries.push(next(&mut random)?);
        used += entries.last().map_or(0, Frames::frame_count);
    }
    entries.retain(|_| random.below(20) == 0);
    arena.trim()?;
    let (pages, faults) = memory();
    for _ in 0..20_000 {
        evict(&mut random, &mut entries);
        entries.push(next(&mut random)?);
    }
    Ok((memory().1 - faults, (pages - base) as f64 / 256.0))
}

/// A share as the documents print it.
fn share(of: f64) -> String {
    format!("{of:.3}").trim_start_matches('0').to_owned()
}

/// Evicts an entry at random; its frames.
fn evict(random: &mut Random, entries: &mut Vec<Frames<&Arena>>) -> u64 {
    entries.swap_remove(random.below(entries.len() as u64) as usize).frame_count()
}

/// All mixes of entries that are no powers of two.
pub(crate) fn mixes() -> impl Iterator<Item = Mix> {
    MIXES[2..].iter().copied().chain([SMALL])
}

fn main() -> Result<(), Error> {
    let arg = std::env::args().nth(1).map(|arg| arg.parse::<u64>().expect("a number: MiB"));
    let bytes = arg.unwrap_or(256).max(16) << 20;
    println!("{:42} {:>8}", "runs of one length", "full at");
    for count in [1, 3, 17, 33, 129, 171, 257, 300, 512, 600, 1500, 3000] {
        println!("{count:>42} {:>8}", share(filled(bytes, || count)?));
    }
    for (name, lengths) in [("1 to 512", 1..=512), ("513 to 4,096, each 7th", 513..=4096)] {
        let step = if *lengths.end() > 512 { 7 } else { 1 };
        let (mut least, mut at) = (1.0, 0);
        for count in lengths.step_by(step) {
            let full = filled(bytes, || count)?;
            if full < least {
                (least, at) = (full, count);
            }
        }
        println!("{name:>42} {:>8} at the least, of {at} frames", share(least));
    }
    println!("\n{:42} {:>8} {:>20} {:>8}", "a mix", "full at", "evicting: mean", "least");
    for mix in MIXES {
        let mut random = Random(12345);
        let full = filled(bytes, || mix.1(&mut random))?;
        let (mean, least) = evicting(bytes, mix)?;
        println!("{:42} {:>8} {:>20} {:>8}", mix.0, share(full), share(mean), share(least));
    }
    println!("\n{:42} {:>8} {:>20} {:>8}", "blocks left whole", "in use", "best fit", "chunks");
    for mix in mixes() {
        let ((used, runs), (_, chunks)) =
            (left(bytes, mix, How::Run)?, left(bytes, mix, How::Chunk)?);
        println!("{:42} {:>8} {runs:>20} {chunks:>8}", mix.0, used.div_ceil(512));
    }
    let runs = [1, 4, 8, 16];
    println!(
        "\n{:42} least run {}",
        "shrunk, and goes on: faults; MiB before",
        runs.map(|run| format!("{run:>13}")).concat()
    );
    for (least, most) in [(1, 1), (5, 5), (16, 16), (17, 17), (2, 8), (1, 16)] {
        print!("{:52}", format!("{least} to {most} frames"));
        for run in runs {
            let (faults, mib) = goes_on(bytes, least, most, run)?;
            print!(" {faults:>6}; {mib:4.1}");
        }
        println!();
    }
    Ok(())
}
