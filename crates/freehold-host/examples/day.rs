//! A cache of pages over a day: it grows in the morning and shrinks in the evening, to one page in
//! twenty. How much memory it takes at each hour, and how much of that it uses.
//!
//! ```text
//! cargo run --release -p freehold-host --example day              an arena, with a pass an hour
//! cargo run --release -p freehold-host --example day -- evacuate  and blocks are emptied before it
//! cargo run --release -p freehold-host --example day -- heap      the global allocator instead
//! LD_PRELOAD=libjemalloc.so.2 .../examples/day heap               jemalloc
//! ```
//!
//! Which page goes is drawn at random, so that what is left lies everywhere.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::fs;
use std::ptr::NonNull;

use freehold_host::freehold::{Migratetype, Order, Pfn};
use freehold_host::{Arena, Error};

/// Pages by day, and by night.
const DAY: usize = 50_000;
const NIGHT: usize = 2_500;
/// Pages exchanged in an hour in which the cache neither grows nor shrinks.
const EXCHANGED: usize = 20_000;
const PAGE: Layout = match Layout::from_size_align(4096, 4096) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// The cache. Whoever moves a page tells it where it is now.
struct Cache<'a> {
    arena: Option<&'a Arena>,
    pages: Vec<NonNull<u8>>,
    /// Which entry a page of the arena is.
    owners: HashMap<Pfn, usize>,
    random: fastrand::Rng,
}

impl Cache<'_> {
    fn add(&mut self) -> Result<(), Error> {
        let page = match self.arena {
            Some(arena) => {
                let pfn = arena.alloc(Order::ZERO, Migratetype::Movable)?;
                self.owners.insert(pfn, self.pages.len());
                arena.pointer(pfn).expect("a frame of this arena")
            }
            // SAFETY: a page is not of size zero.
            None => NonNull::new(unsafe { alloc(PAGE) }).expect("out of memory"),
        };
        // SAFETY: the page is the cache's own.
        unsafe { page.write_bytes(1, 4096) };
        self.pages.push(page);
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Error> {
        let at = self.random.usize(..self.pages.len());
        let page = self.pages.swap_remove(at);
        let Some(arena) = self.arena else {
            // SAFETY: it was allocated so, and the cache has forgotten it.
            unsafe { dealloc(page.as_ptr(), PAGE) };
            return Ok(());
        };
        let pfn = Pfn::new(page.as_ptr() as u64 / 4096);
        self.owners.remove(&pfn);
        if let Some(moved) = self.pages.get(at) {
            self.owners.insert(Pfn::new(moved.as_ptr() as u64 / 4096), at);
        }
        // SAFETY: the cache has forgotten it.
        unsafe { arena.free(pfn, Order::ZERO) }
    }

    fn moved(&mut self, arena: &Arena, old: Pfn, new: Pfn) -> bool {
        let Some(at) = self.owners.remove(&old) else { return false };
        let Some(to) = arena.pointer(new) else { return false };
        // SAFETY: the old page is the cache's, and the new one is from here on.
        unsafe { to.copy_from_nonoverlapping(self.pages[at], 4096) };
        self.pages[at] = to;
        self.owners.insert(new, at);
        true
    }

    fn hour(&mut self, pages: usize, evacuates: bool) -> Result<u64, Error> {
        let (more, fewer) =
            (pages.saturating_sub(self.pages.len()), self.pages.len().saturating_sub(pages));
        let exchanged = EXCHANGED.min(pages.min(self.pages.len()) / 2);
        (0..exchanged + fewer).try_for_each(|_| self.remove())?;
        (0..exchanged + more).try_for_each(|_| self.add())?;
        let Some(arena) = self.arena else { return Ok(0) };
        let mut moved = 0;
        if evacuates && fewer > 0 {
            // SAFETY: the cache forgets what it has moved.
            let done = unsafe {
                arena.evacuate(Order::ZERO, u64::MAX, |old, new| self.moved(arena, old, new))?
            };
            moved = done.frames;
            arena.pass()?;
        }
        arena.pass()?;
        Ok(moved)
    }
}

fn resident_kib() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let how = std::env::args().nth(1).unwrap_or_default();
    if !["", "evacuate", "heap"].contains(&how.as_str()) {
        return Err(format!("no way {how:?}: give none, evacuate or heap").into());
    }
    let arena = Arena::with_size(1 << 30)?;
    let mut cache = Cache {
        arena: (how != "heap").then_some(&arena),
        pages: Vec::with_capacity(DAY),
        owners: HashMap::with_capacity(2 * DAY),
        random: fastrand::Rng::with_seed(1),
    };
    // So that their memory is not counted: it has been touched.
    cache.owners.extend((0..DAY).map(|n| (Pfn::new(n as u64), n)));
    cache.owners.clear();
    cache.pages.resize(DAY, NonNull::dangling());
    cache.pages.clear();
    let base = resident_kib();
    (0..NIGHT).try_for_each(|_| cache.add())?;
    println!("hour  in use, MiB  resident, MiB  pages moved");
    for hour in 0..24_usize {
        let share = match hour {
            7..11 => hour - 6,
            11..17 => 4,
            17..21 => 21 - hour - 1,
            _ => 0,
        };
        let moved = cache.hour(NIGHT + (DAY - NIGHT) * share / 4, how == "evacuate")?;
        let mib = |kib: u64| kib as f64 / 1024.0;
        let (used, resident) = (cache.pages.len() as u64 * 4, resident_kib().saturating_sub(base));
        println!("{hour:4}  {:11.1}  {:13.1}  {moved:11}", mib(used), mib(resident));
    }
    Ok(())
}
