//! Runs a number of operations of one kind and nothing else, for tools that count instructions.
//!
//! ```text
//! arena-instructions ROW N      N operations of that row
//! arena-instructions --list     every row, with the two numbers to count it with
//! ```
//!
//! The script `count-operations` of the benchmarks, with `PROGRAM` as the path of this program,
//! counts them under callgrind: the difference of two runs, so that set-up cancels out.

use std::hint::black_box;

use freehold_host::{Arena, Error, Limits, Lock, Tenants};

/// Names, and how many frames a pair is of.
const ROWS: [(&str, u64); 6] = [
    ("frames-1", 1),
    ("frames-3", 3),
    ("frames-16", 16),
    ("frames-100", 100),
    ("frames-512", 512),
    ("frames-600", 600),
];
const OTHERS: [&str; 10] = [
    SHARED,
    "tenant-1",
    "tenant-1-of-four",
    "refused-1",
    "refused-1-after-trim",
    "refused-16",
    "arenas-8",
    "arenas-9",
    "arenas-100",
    "arenas-1000",
];
/// A pair of one frame, by a thread that shares its slot.
const SHARED: &str = "shared-1";
/// In an arena of 1 GiB in place of 4.
const SMALL: &str = "small-";
/// Exchanges at random: the least and the most frames of a run, and how many runs live. Each also
/// in a [small](SMALL) arena.
const EXCHANGES: [(u64, u64, usize); 10] = [
    (1, 1, 2_000),
    (4, 4, 2_000),
    (5, 5, 200),
    (5, 5, 2_000),
    (5, 5, 20_000),
    (16, 16, 2_000),
    (17, 17, 2_000),
    (2, 8, 2_000),
    (1, 16, 2_000),
    (1, 256, 500),
];
const NUMBERS: (u64, u64) = (50_000, 100_000);

/// So many pairs, of a number of frames that the compiler does not know.
#[inline(never)]
fn owned(arena: &Arena, frames: u64, n: u64) -> Result<(), Error> {
    for _ in 0..n {
        drop(black_box(arena.frames(black_box(frames))?));
    }
    Ok(())
}

/// A pair of one frame for a tenant with so many above it.
#[inline(never)]
fn tenant(arena: &Arena, above: u32, n: u64) -> Result<(), Error> {
    let tenants = Tenants::new(arena)?;
    let mut tenant = tenants.add(None, Limits::NONE)?;
    for _ in 0..above {
        tenant = tenants.add(Some(tenant), Limits::NONE)?;
    }
    for _ in 0..n {
        let range = black_box(tenants.alloc(tenant, black_box(1))?);
        // SAFETY: allocated just now, and used by nobody.
        unsafe { tenants.free(range.start) }?;
    }
    Ok(())
}

/// Requests that a full arena refuses.
#[inline(never)]
fn refused(arena: &Arena, frames: u64, n: u64) -> Result<(), Error> {
    let mut held = Vec::new();
    for piece in [512, 1] {
        while let Ok(frames) = arena.frames(piece) {
            held.push(frames);
        }
    }
    for _ in 0..n {
        assert!(
            black_box(arena.frames(black_box(frames))).is_err(),
            "a full arena had {frames} frames"
        );
    }
    Ok(())
}

/// Pairs of one frame, each in the next of so many arenas.
#[inline(never)]
fn in_turn(count: usize, n: u64) -> Result<(), Error> {
    let build = |_| Arena::builder(2 << 20).lock(Lock::Biased).build();
    let arenas: Vec<_> = (0..count).map(build).collect::<Result<_, _>>()?;
    // So that no frame is handed out for the first time in the loop.
    arenas.iter().try_for_each(|arena| arena.frames(512).map(drop))?;
    for arena in arenas.iter().cycle().take(n as usize) {
        drop(black_box(arena.frames(black_box(1))?));
    }
    Ok(())
}

/// One of so many runs, drawn at random, is freed and another one allocated, so many times, after
/// four such steps for each run.
#[inline(never)]
fn exchange(arena: &Arena, (least, most, live): (u64, u64, usize), n: u64) -> Result<(), Error> {
    let mut state = 88_172_645_463_325_252_u64;
    // An xorshift generator of three steps (Marsaglia, Xorshift RNGs, 2003).
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut held = Vec::with_capacity(live);
    for _ in 0..live {
        held.push(Some(arena.frames(least + random(most - least + 1))?));
    }
    for _ in 0..n + 4 * live as u64 {
        let place = &mut held[random(live as u64) as usize];
        drop(place.take());
        *place = Some(arena.frames(least + random(most - least + 1))?);
    }
    Ok(())
}

fn exchange_name((least, most, live): &(u64, u64, usize)) -> String {
    format!("exchange-{least}-{most}-{live}")
}

fn run(row: &str, n: u64) -> Option<Result<(), Error>> {
    if let Some(count) = row.strip_prefix("arenas-").and_then(|count| count.parse().ok()) {
        return Some(in_turn(count, n));
    }
    // callgrind may not know membarrier(2), which nothing here needs: there is one thread.
    let (bytes, row) = match row.strip_prefix(SMALL) {
        Some(row) => (1 << 30, row),
        None => (4 << 30, row),
    };
    let builder = Arena::builder(bytes).lock(Lock::Biased);
    let builder = if row == SHARED { builder.slots(0) } else { builder };
    let arena = match builder.build() {
        Ok(arena) => arena,
        Err(error) => return Some(Err(error)),
    };
    // So that no frame is handed out for the first time in the loop.
    let used: Result<Vec<_>, Error> = (0..64).map(|_| arena.frames(512)).collect();
    if let Err(error) = used.map(drop) {
        return Some(Err(error));
    }
    let owned = |frames| Some(owned(&arena, frames, n));
    if let Some(kind) = EXCHANGES.iter().find(|kind| exchange_name(kind) == row) {
        return Some(exchange(&arena, *kind, n));
    }
    match row {
        SHARED => owned(1),
        "tenant-1" => Some(tenant(&arena, 0, n)),
        "tenant-1-of-four" => Some(tenant(&arena, 3, n)),
        "refused-1" => Some(refused(&arena, 1, n)),
        "refused-1-after-trim" => Some(arena.trim().and_then(|_| refused(&arena, 1, n))),
        "refused-16" => Some(refused(&arena, 16, n)),
        _ => ROWS.iter().find(|(name, _)| *name == row).and_then(|(_, frames)| owned(*frames)),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments == ["--list"] {
        let known = ROWS.iter().map(|(name, _)| *name).chain(OTHERS).map(String::from);
        let small = EXCHANGES.iter().map(|kind| SMALL.to_owned() + &exchange_name(kind));
        for name in known.chain(EXCHANGES.iter().map(exchange_name)).chain(small) {
            println!("{name} {} {}", NUMBERS.0, NUMBERS.1);
        }
        return Ok(());
    }
    let done = match arguments[..] {
        [row, n] => n.parse().ok().and_then(|n| run(row, n)),
        _ => None,
    };
    Ok(done.ok_or("usage: arena-instructions ROW N, or --list")??)
}
