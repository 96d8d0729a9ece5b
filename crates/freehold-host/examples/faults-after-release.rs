//! How many page faults the allocations after a release take, beside the least possible: each frame
//! that is still in memory, and not in use, saves one.
//!
//! ```text
//! cargo run --release -p freehold-host --example faults-after-release              1 GiB
//! cargo run --release -p freehold-host --example faults-after-release -- 256       256 MiB
//! ```
//!
//! Single frames, all of them touched, of an arena that was full and of which one frame in 1,000
//! was kept, or none.

use freehold_host::{Arena, Error, Frames};

/// How memory is given back.
#[derive(Clone, Copy)]
enum How {
    Trim,
    /// The second pass of two, which gives back a quarter of the arena.
    Budget,
}

fn faults() -> i64 {
    // SAFETY: all zeros is a value of it, and the call writes to nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt
    }
}

fn touched(arena: &Arena, count: u64) -> Result<Vec<Frames<&Arena>>, Error> {
    let mut all: Vec<_> = (0..count).map(|_| arena.frames(1)).collect::<Result<_, _>>()?;
    all.iter_mut().for_each(|frame| frame[0] = 1);
    Ok(all)
}

/// Frames in memory and free after the release, and faults of the allocations after it.
fn run(bytes: u64, how: How, kept: u64, count: u64) -> Result<(u64, i64), Error> {
    let arena = Arena::builder(bytes).budget(bytes >> 23).build()?;
    let mut all = touched(&arena, arena.stats().frames)?;
    // One in 1,000, anywhere.
    all.retain(|frame| {
        frame.pfn().get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < (kept << 32) / 1000
    });
    match how {
        How::Trim => drop(arena.trim()?),
        How::Budget => drop((arena.pass()?, arena.pass()?)),
    }
    let free = arena.frames_in_memory(arena.range())? - all.len() as u64;
    // Its pages are there before the faults are counted.
    let mut again = Vec::new();
    again.resize_with(count as usize, || None);
    let before = faults();
    for place in &mut again {
        let mut frame = arena.frames(1)?;
        frame[0] = 1;
        *place = Some(frame);
    }
    Ok((free, faults() - before))
}

fn main() -> Result<(), Error> {
    let arg = std::env::args().nth(1).map(|arg| arg.parse::<u64>().expect("a number: MiB"));
    let bytes = arg.unwrap_or(1024).max(16) << 20;
    println!("{:36} {:>8} {:>12} {:>8} {:>8}", "", "frames", "in memory", "least", "faults");
    for (name, how, kept) in [
        ("trim, 1 in 1,000 kept", How::Trim, 1),
        ("a quarter given back, none kept", How::Budget, 0),
        ("a quarter given back, 1 in 1,000 kept", How::Budget, 1),
    ] {
        for count in [1000, 10_000, bytes >> 14] {
            let (free, faults) = run(bytes, how, kept, count)?;
            println!(
                "{name:36} {count:>8} {free:>12} {:>8} {faults:>8}",
                count.saturating_sub(free)
            );
        }
    }
    Ok(())
}
