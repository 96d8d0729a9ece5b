//! A pool of buffers whose size goes up and down like a day: what is resident at noon and at night, in
//! an arena, with malloc and with jemalloc.
//!
//! ```text
//! cargo run --release -p freehold-host --example day-and-night              400 MiB at noon, 20 MiB at night
//! cargo run --release -p freehold-host --example day-and-night -- 100 5     100 MiB and 5 MiB
//! ```
//!
//! Buffers of 4 KiB to 1 MiB, one in three of them a frame or two longer, are taken and given at random
//! until so much is live, and then on for a while. Each kind does the same work in a process of its own,
//! one page fault for each page that is not there; jemalloc comes by `LD_PRELOAD`, and is left out where
//! there is none. After each half day free memory is given back by the call that each has: `Arena::trim`,
//! `malloc_trim`, jemalloc's `arena.purge`. The work is the same every time; what is resident is the
//! kernel's count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, ExitCode};

use freehold_host::{Arena, Error, Frames};

const FRAME: usize = 4096;
const DAYS: usize = 3;
/// Steps of half a day at least.
const STEPS: u64 = 150_000;
const JEMALLOC: &str = "libjemalloc.so.2";
/// How the process of jemalloc ends where jemalloc was not preloaded.
const NOT_THERE: u8 = 3;

/// Xorshift, so that it is the same everywhere (Marsaglia, Xorshift RNGs, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Where buffers come from.
enum Source {
    Arena(&'static Arena),
    Malloc,
}

enum Buffer {
    Frames(Frames),
    Malloc(*mut u8, Layout),
}

impl Buffer {
    fn take(source: &Source, bytes: usize) -> Result<Self, Error> {
        let (buffer, start) = match source {
            Source::Arena(arena) => {
                let mut frames = Frames::new(*arena, (bytes / FRAME) as u64)?;
                let start = frames.as_mut_ptr();
                (Self::Frames(frames), start)
            }
            Source::Malloc => {
                let layout =
                    Layout::from_size_align(bytes, FRAME).expect("a page is a power of two");
                // SAFETY: `bytes` is not 0.
                let start = unsafe { System.alloc(layout) };
                assert!(!start.is_null(), "malloc had no {bytes} bytes");
                (Self::Malloc(start, layout), start)
            }
        };
        for at in (0..bytes).step_by(FRAME) {
            // SAFETY: the buffer has that many bytes, and nobody else knows of it.
            unsafe { start.add(at).write(1) };
        }
        Ok(buffer)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Frames(frames) => frames.len(),
            Self::Malloc(_, layout) => layout.size(),
        }
    }

    fn give(self) {
        if let Self::Malloc(start, layout) = self {
            // SAFETY: allocated with that layout, and given once.
            unsafe { System.dealloc(start, layout) };
        }
    }
}

type Mallctl = unsafe extern "C" fn(
    *const libc::c_char,
    *mut libc::c_void,
    *mut usize,
    *mut libc::c_void,
    usize,
) -> libc::c_int;

/// jemalloc's control function, where jemalloc is what this process has.
fn mallctl() -> Option<Mallctl> {
    // SAFETY: the name is a string; where there is such a function it is jemalloc's, of that type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"mallctl".as_ptr());
        (!found.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, Mallctl>(found))
    }
}

/// Gives free memory back by whatever call there is for that.
fn give_back(source: &Source) -> Result<(), Error> {
    if let Source::Arena(arena) = source {
        arena.trim()?;
    }
    let none = std::ptr::null_mut();
    // SAFETY: the name is a string, and this command reads and writes nothing of ours.
    let done = mallctl()
        .map(|call| unsafe { call(c"arena.4096.purge".as_ptr(), none, none.cast(), none, 0) });
    assert!(done.is_none_or(|done| done == 0), "jemalloc's purge failed");
    if done.is_none() {
        // SAFETY: it takes a number.
        unsafe { libc::malloc_trim(0) };
    }
    Ok(())
}

/// MiB resident.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    (pages.expect("a number of pages") * FRAME as u64) >> 20
}

fn faults() -> i64 {
    // SAFETY: all zeros is a value of it, and the call writes to nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt
    }
}

/// The days of one kind.
fn work(kind: &str, noon: usize, night: usize) -> Result<(), Error> {
    let source = match kind {
        "arena" => Source::Arena(Arena::with_size((noon as u64 * 5 / 2).max(16 << 20))?.leak()),
        _ => Source::Malloc,
    };
    let mut random = Random(12345);
    let (mut buffers, mut live) = (Vec::<Buffer>::with_capacity(1 << 16), 0usize);
    for day in 1..=DAYS {
        for (name, target) in [("noon", noon), ("night", night)] {
            let (before, mut steps) = (faults(), 0);
            while steps < STEPS || live.abs_diff(target) > 2 << 20 {
                steps += 1;
                let grow = random.below(10) < if live > target { 2 } else { 8 };
                if grow || buffers.is_empty() {
                    let frames = 1usize << random.below(9);
                    let more = if random.below(3) == 0 { random.below(3) as usize } else { 0 };
                    let bytes = (frames + more).min(256) * FRAME;
                    buffers.push(Buffer::take(&source, bytes)?);
                    live += bytes;
                } else {
                    let at = random.below(buffers.len() as u64) as usize;
                    let buffer = buffers.swap_remove(at);
                    live -= buffer.bytes();
                    buffer.give();
                }
            }
            let full = resident();
            give_back(&source)?;
            println!(
                "{kind:10} day {day} {name:6} {:>9} {full:>9} {:>13} {:>9}",
                live >> 20,
                resident(),
                faults() - before
            );
        }
    }
    buffers.into_iter().for_each(Buffer::give);
    Ok(())
}

/// The work in a process of its own, `preload` before all other libraries; how it ended.
fn in_a_process(kind: &str, sizes: &[String], preload: &str) -> std::io::Result<Option<i32>> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(kind).args(sizes);
    if !preload.is_empty() {
        child.env("LD_PRELOAD", preload);
    }
    Ok(child.status()?.code())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (kind, sizes) = match words.split_first() {
        Some((kind, sizes)) if kind.parse::<usize>().is_err() => (Some(kind.as_str()), sizes),
        _ => (None, &words[..]),
    };
    let sizes: Vec<usize> = sizes.iter().filter_map(|size| size.parse().ok()).collect();
    let (noon, night) = match sizes[..] {
        [] => (400, 20),
        [noon, night] if noon > night && night > 2 => (noon, night),
        _ => {
            eprintln!("usage: day-and-night [NOON NIGHT], both in MiB, more than 2 at night");
            return ExitCode::from(2);
        }
    };
    if let Some(kind) = kind {
        if kind == "jemalloc" && mallctl().is_none() {
            return ExitCode::from(NOT_THERE);
        }
        return match work(kind, noon << 20, night << 20) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("day-and-night: {error}");
                ExitCode::from(1)
            }
        };
    }
    println!(
        "{:23} {:>9} {:>9} {:>13} {:>9}",
        "MiB", "live", "resident", "after release", "faults"
    );
    let sizes = [noon, night].map(|size| size.to_string());
    for (kind, preload) in [("arena", ""), ("malloc", ""), ("jemalloc", JEMALLOC)] {
        match in_a_process(kind, &sizes, preload) {
            Ok(Some(0)) => {}
            Ok(Some(code)) if code == i32::from(NOT_THERE) => {
                eprintln!("SKIPPED: there is no {JEMALLOC} to preload");
            }
            _ => {
                eprintln!("day-and-night: the process of {kind} failed");
                return ExitCode::from(1);
            }
        }
    }
    ExitCode::SUCCESS
}
