//! `bench arena`: frames of an arena as memory, beside malloc families.

use std::alloc::GlobalAlloc;
use std::hint::black_box;
use std::time::{Duration, Instant};

use freehold_host::{Arena, Backing, Frames};
use rustix::mm::Advice;

use super::heap::{self, Heap};
use super::rss;
use crate::bench::clock::{thread_time, timed};
use crate::bench::engines::FREEHOLD;
use crate::bench::figures::Figures;
use crate::bench::loops::per;
use crate::bench::mapping::Mapping;
use crate::bench::metric::{About, metric, ns};
use crate::bench::runner::{Plan, Side};

const GIB: u64 = 1 << 30;
const PAGE: u64 = crate::bench::mapping::PAGE as u64;
/// What a buffer is doubled to.
const DOUBLED: usize = 512 << 20;

pub(crate) const ABOUT: About = About {
    what: "An arena's frames as a program has them: allocated and freed by handles, of a size that \
           the compiler does not \
           know; a GiB of them of which few are kept, purged; arenas that nobody has used yet; a \
           buffer that grows by \
           doubling. Beside it the C library's malloc and, with -e mimalloc and -e jemalloc in a \
           build with --features peers, \
           those: pages aligned to 4 KiB, their own way of purging. linux is one mapping as large \
           as the buffer, touched: \
           what nobody gets below.",
    metrics: &[
        ns("ns_per_pair_4k"),
        ns("ns_per_pair_64k"),
        ns("ns_per_pair_2m"),
        metric("mib_after_purge_4k", "MiB"),
        metric("ms_purge_4k", "ms"),
        metric("mib_after_purge_64k", "MiB"),
        metric("ms_purge_64k", "ms"),
        metric("kib_empty_1t", "KiB"),
        metric("ms_empty_1t", "ms"),
        metric("kib_empty_16t", "KiB"),
        metric("ms_empty_16t", "ms"),
        metric("mib_peak_doubled", "MiB"),
        metric("ms_doubled", "ms"),
        metric("mib_peak_doubled_huge", "MiB"),
        metric("ms_doubled_huge", "ms"),
    ],
    ..About::ONE_THREAD
};

/// A pair of so many frames.
const PAIRS: [(u64, &str); 3] =
    [(1, "ns_per_pair_4k"), (16, "ns_per_pair_64k"), (512, "ns_per_pair_2m")];

/// A GiB in pieces of so many frames, of which one of so many is kept.
struct Shape {
    frames: u64,
    kept: usize,
    mib: &'static str,
    ms: &'static str,
}

const SHAPES: [Shape; 2] = [
    Shape { frames: 1, kept: 1000, mib: "mib_after_purge_4k", ms: "ms_purge_4k" },
    Shape { frames: 16, kept: 64, mib: "mib_after_purge_64k", ms: "ms_purge_64k" },
];

/// An empty arena of so many TiB of address space.
const EMPTY: [(u64, &str, &str); 2] =
    [(1, "kib_empty_1t", "ms_empty_1t"), (16, "kib_empty_16t", "ms_empty_16t")];

/// The C library's own, and one mapping touched; always there.
const MALLOC: &str = "malloc";
const LINUX: &str = "linux";

pub(super) fn sides(plan: &Plan) -> Vec<Side<'static>> {
    // How many pairs: of malloc's, those of megabytes are system calls.
    let n = plan.scale.arena_pairs;
    let mut sides = Vec::new();
    if plan.has(FREEHOLD) {
        sides.push(Side::new(FREEHOLD, move |_| ours(n)));
    }
    sides.push(Side::new(LINUX, |_| plain()));
    sides.push(Side::new(MALLOC, move |_| theirs(&heap::system(), n)));
    #[cfg(feature = "peers")]
    {
        use crate::bench::engines::Peer;
        if plan.has(Peer::Mimalloc.name()) {
            sides.push(Side::new(Peer::Mimalloc.name(), move |_| theirs(&heap::mimalloc(), n)));
        }
        if plan.has(Peer::Jemalloc.name()) {
            sides.push(Side::new(Peer::Jemalloc.name(), move |_| theirs(&heap::jemalloc(), n)));
        }
    }
    sides
}

fn ours(n: u64) -> Result<Figures, String> {
    let mut figures = Figures::default();
    let text = |error: freehold_host::Error| error.to_string();
    // So that the code that makes arenas is in memory, which is none of an empty one's.
    drop(Arena::with_size(GIB).map_err(text)?);
    for (tib, kib, ms) in EMPTY {
        let (kept, time) = empty(tib << 40)?;
        figures.add(kib, kept / 1024.0);
        figures.add(ms, millis(time));
    }
    let arena = Arena::with_size(2 * GIB).map_err(text)?;
    // So that no block comes from the system in the loops.
    let warm: Result<Vec<_>, _> = (0..64).map(|_| arena.frames(512)).collect();
    warm.map(drop).map_err(text)?;
    for (frames, metric) in PAIRS {
        let time = timed(|| pairs(&arena, black_box(frames), n)).map_err(text)?;
        figures.add(metric, per(time, n));
    }
    for shape in &SHAPES {
        arena.trim().map_err(text)?;
        let purge = || arena.trim().map(drop).map_err(text);
        purged(&mut figures, shape, || arena.frames(shape.frames).ok().map(touched), purge)?;
    }
    arena.validate().map_err(text)?;
    drop(arena);
    for (backing, metrics) in [
        (Backing::Private, ["mib_peak_doubled", "ms_doubled"]),
        (Backing::HugePages, ["mib_peak_doubled_huge", "ms_doubled_huge"]),
    ] {
        let arena = Arena::builder(4 * GIB).backing(backing).build().map_err(text)?;
        doubled(&mut figures, metrics, || grown(&arena, DOUBLED).map_err(text))?;
    }
    Ok(figures)
}

fn theirs<A: GlobalAlloc>(heap: &Heap<A>, n: u64) -> Result<Figures, String> {
    let mut figures = Figures::default();
    for (frames, metric) in PAIRS {
        // A tenth of the larger ones: where they are not kept, each is two system calls.
        let n = if frames == 1 { n } else { n / 10 };
        let time = timed(|| heap.pairs((frames * PAGE) as usize, n))?;
        figures.add(metric, per(time, n));
    }
    for shape in &SHAPES {
        heap.purge();
        let purge = || {
            heap.purge();
            Ok(())
        };
        purged(&mut figures, shape, || heap.touched((shape.frames * PAGE) as usize), purge)?;
    }
    heap.purge();
    doubled(&mut figures, ["mib_peak_doubled", "ms_doubled"], || heap.doubled(DOUBLED))?;
    heap.purge();
    Ok(figures)
}

/// One mapping as large as the doubled buffer, touched: what nobody gets below.
fn plain() -> Result<Figures, String> {
    let mut figures = Figures::default();
    for (pages, ms) in
        [(Advice::LinuxNoHugepage, "ms_doubled"), (Advice::LinuxHugepage, "ms_doubled_huge")]
    {
        let mapping = mapping()?;
        // A kernel without huge pages refuses to be told not to use them.
        if let (Advice::LinuxHugepage, Err(errno)) = (pages, mapping.advise(DOUBLED, pages)) {
            figures.unavailable.push(format!("one mapping of huge pages left out: {errno}"));
            continue;
        }
        in_use_lately()?;
        let start = thread_time();
        mapping.touch(DOUBLED);
        figures.add(ms, millis(thread_time().saturating_sub(start)));
    }
    Ok(figures)
}

fn mapping() -> Result<Mapping, String> {
    Mapping::aligned(DOUBLED, 2 << 20).map_err(|errno| format!("mmap of {DOUBLED} bytes: {errno}"))
}

/// Has as much memory in use for a moment. A virtual machine's host takes away what has been free
/// for some seconds: whoever touched it first would pay for getting it back, several times what is
/// measured here.
fn in_use_lately() -> Result<(), String> {
    let mapping = mapping()?;
    // Where there are no huge pages, small ones will do.
    let _ = mapping.advise(DOUBLED, Advice::LinuxHugepage);
    mapping.touch(DOUBLED);
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[inline(never)]
fn pairs(arena: &Arena, frames: u64, n: u64) -> Result<(), freehold_host::Error> {
    for _ in 0..n {
        drop(black_box(arena.frames(black_box(frames))?));
    }
    Ok(())
}

fn touched(mut frames: Frames<&Arena>) -> Frames<&Arena> {
    frames.iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 1);
    frames
}

/// Fills a GiB, frees all but a few of its pieces, purges: what this process has more of than
/// before, and the purge's time.
fn purged<P>(
    figures: &mut Figures,
    shape: &Shape,
    mut piece: impl FnMut() -> Option<P>,
    purge: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    let count = (GIB / PAGE / shape.frames) as usize;
    // Written to before anything is counted.
    let mut pieces: Vec<Option<P>> = Vec::with_capacity(count);
    pieces.resize_with(count, || None);
    let before = rss::resident()?;
    for place in &mut pieces {
        *place = Some(piece().ok_or("there is no GiB of memory")?);
    }
    for (at, place) in pieces.iter_mut().enumerate() {
        if at % shape.kept != 0 {
            *place = None;
        }
    }
    let time = timed(&purge)?;
    let after = rss::resident()?;
    figures.add(shape.mib, after.saturating_sub(before) as f64 / f64::from(1 << 20));
    figures.add(shape.ms, millis(time));
    drop(pieces);
    purge()
}

/// What an arena of which nothing was used costs, bytes, and how long it takes to make.
fn empty(bytes: u64) -> Result<(f64, Duration), String> {
    let before = rss::resident()?;
    let start = Instant::now();
    let arena = Arena::with_size(bytes).map_err(|error| error.to_string())?;
    let time = start.elapsed();
    let after = rss::resident()?;
    drop(arena);
    Ok((after.saturating_sub(before) as f64, time))
}

/// A buffer that grows by doubling: the most memory this process has meanwhile, beyond what it had,
/// and the time.
fn doubled(
    figures: &mut Figures,
    [mib, ms]: [&'static str; 2],
    grow: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    in_use_lately()?;
    if let Err(why) = rss::forget_peak() {
        figures.unavailable.push(format!("the peak of a doubled buffer left out: {why}"));
        return Ok(());
    }
    let before = rss::resident()?;
    let time = timed(grow)?;
    figures.add(mib, rss::peak()?.saturating_sub(before) as f64 / f64::from(1 << 20));
    figures.add(ms, millis(time));
    Ok(())
}

/// A buffer that is doubled from a page on until it has so many bytes: in place where what lies
/// behind it is free. A byte is written in every page as it comes.
fn grown(arena: &Arena, bytes: usize) -> Result<(), freehold_host::Error> {
    let mut buffer = touched(arena.frames(1)?);
    while buffer.len() < bytes {
        let old = buffer.len();
        let pages = old as u64 / PAGE;
        if buffer.try_extend(pages).is_err() {
            let mut moved = arena.frames(2 * pages)?;
            moved[..old].copy_from_slice(&buffer);
            buffer = moved;
        }
        buffer[old..].iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 1);
    }
    Ok(())
}
