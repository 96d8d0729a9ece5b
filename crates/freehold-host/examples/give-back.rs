//! What giving memory back in blocks costs, beside one single `madvise` over the same bytes, in the
//! same run.
//!
//! ```text
//! cargo run --release -p freehold-host --example give-back              1 GiB, 4 KiB pages and huge pages
//! cargo run --release -p freehold-host --example give-back -- 256 5     256 MiB, medians of 5 rounds
//! ```
//!
//! Four rows for each kind of memory: every block free; every second block free (as many runs as
//! blocks, so this shows what the vectors are for); and passes that find nothing to do, because
//! nothing is resident or all is in use. The rounds of both sides alternate, so that what else the
//! machine does hits both.

use std::time::{Duration, Instant};

use freehold_host::{Arena, Backing, Error, Frames};

const BLOCK: u64 = 2 << 20;

/// A plain mapping of the same kind of memory, as the yardstick.
struct Plain {
    base: *mut libc::c_void,
    len: usize,
}

impl Plain {
    fn new(len: usize, backing: Backing) -> Self {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len + (2 << 20), prot, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        let base = base.wrapping_byte_add(base.addr().next_multiple_of(2 << 20) - base.addr());
        if backing == Backing::HugePages {
            // SAFETY: our own mapping; nothing in it changes.
            unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        }
        Self { base, len }
    }

    /// Touches the first so many bytes and gives them back in one call.
    fn give_back(&self, len: usize) -> Duration {
        assert!(len <= self.len);
        // SAFETY: the mapping is ours and writable, and as long as that.
        touch(unsafe { std::slice::from_raw_parts_mut(self.base.cast(), len) });
        let start = Instant::now();
        // SAFETY: our own mapping, of which nobody uses what is in it.
        assert_eq!(unsafe { libc::madvise(self.base, len, libc::MADV_DONTNEED) }, 0);
        start.elapsed()
    }
}

fn touch(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Medians of both sides, and the median of the rounds' ratios: a round that was disturbed counts
/// as one.
fn row(name: &str, rounds: &[(Duration, Duration)], calls: u64, blocks: u64) {
    let mut ratios: Vec<f64> =
        rounds.iter().map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
    println!(
        "{name:32} {:9.3} ms   one madvise {:9.3} ms   ratio {:5.3}   {blocks} blocks in {calls} calls",
        median(&mut ours),
        median(&mut theirs),
        ratios[ratios.len() / 2]
    );
}

fn main() -> Result<(), Error> {
    let mut args =
        std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number: MiB, then rounds"));
    let bytes = args.next().unwrap_or(1024).max(4) << 20;
    let rounds = args.next().unwrap_or(7).max(1);
    let blocks = bytes / BLOCK;

    for (backing, name) in [(Backing::Private, "4 KiB pages"), (Backing::HugePages, "huge pages")] {
        let arena = Arena::builder(bytes).backing(backing).build()?;
        let plain = Plain::new(bytes as usize, backing);
        let (mut both, mut idle, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        let mut calls = 0;
        for _ in 0..rounds {
            let mut all = Vec::new();
            for _ in 0..blocks {
                let mut frames = Frames::new(&arena, 512)?;
                touch(&mut frames);
                all.push(frames);
            }
            let start = Instant::now();
            assert_eq!(arena.trim()?.blocks, 0, "every block is in use");
            busy.push(start.elapsed());
            drop(all);
            let start = Instant::now();
            let released = arena.trim()?;
            let ours = start.elapsed();
            assert_eq!(released.blocks, blocks, "every block was free");
            calls = released.calls;
            let start = Instant::now();
            arena.trim()?;
            idle.push(start.elapsed());
            both.push((ours, plain.give_back(bytes as usize)));
        }
        row(&format!("{name}: all blocks"), &both, calls, blocks);
        println!("{:32} {:9.3} ms", format!("{name}: nothing resident"), median(&mut idle));
        println!("{:32} {:9.3} ms", format!("{name}: everything in use"), median(&mut busy));

        // Every second block: no two free ones are neighbours. Beside it, one call over as many
        // bytes in a row.
        let mut both = Vec::new();
        for _ in 0..rounds {
            let mut all: Vec<_> =
                (0..blocks).map(|_| Frames::new(&arena, 512)).collect::<Result<_, _>>()?;
            all.iter_mut().for_each(|frames| touch(frames));
            all.sort_by_key(Frames::pfn);
            let (mut even, mut odd) = (Vec::new(), Vec::new());
            for (i, frames) in all.into_iter().enumerate() {
                if i % 2 == 0 { even.push(frames) } else { odd.push(frames) }
            }
            drop(odd);
            let start = Instant::now();
            let released = arena.trim()?;
            let ours = start.elapsed();
            assert_eq!(released.blocks, blocks / 2, "every second block was free");
            calls = released.calls;
            drop(even);
            arena.trim()?;
            both.push((ours, plain.give_back(released.bytes as usize)));
        }
        row(&format!("{name}: every second block"), &both, calls, blocks / 2);
        arena.validate()?;
    }
    Ok(())
}
