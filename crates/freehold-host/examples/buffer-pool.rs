//! A database's buffer pool with pages of several sizes: page table, pin counts, clock eviction,
//! write-back, checksums.
//!
//! ```text
//! cargo run --release -p freehold-host --example buffer-pool
//! cargo run --release -p freehold-host --example buffer-pool -- --accesses 2000000
//! ```
//!
//! Why over a frame allocator? A pool of equal slots wastes memory as soon as pages differ in size
//! (a B-tree node, an overflow page, a column's segment), and a pool for each size cannot lend
//! memory to the others. Here a page takes exactly the frames it needs out of one budget, a few
//! small pages that are evicted make room for a large one because their frames merge by themselves,
//! and what the pool gives back when it shrinks is given back to the system.
//!
//! ```text
//!   page id --> table --> slot { frames, pins, referenced, dirty }
//!                          ^ the hand of the clock goes round the slots
//!                            an evicted page's frames go home by drop
//!   file        |header|header|...    each page has a place of its own: 64 KiB apart
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use freehold_host::{Arena, Frames};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Places in the file are this far apart: the largest page.
const STRIDE: u64 = 64 << 10;

/// How much is done.
pub(crate) struct Options {
    pub(crate) arena_bytes: u64,
    pub(crate) pages: u64,
    pub(crate) accesses: u64,
    pub(crate) threads: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { arena_bytes: 16 << 20, pages: 4000, accesses: 80_000, threads: 2 }
    }
}

/// What it came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
    pub(crate) write_backs: u64,
    /// Frames of pages that were in the pool when it was fullest.
    pub(crate) most_frames: u64,
    /// Writes that the workload made, and those found again at the end, in the pool or in the file.
    pub(crate) writes: u64,
    pub(crate) writes_found: u64,
    pub(crate) frames_left: u64,
}

/// 4 KiB mostly; 8, 16 and 64 KiB now and then.
fn frames_of(page: u64) -> u64 {
    match page % 16 {
        0 => 16,
        1..=2 => 4,
        3..=6 => 2,
        _ => 1,
    }
}

struct Slot<'a> {
    page: u64,
    frames: Frames<&'a Arena>,
    pins: u32,
    referenced: bool,
    dirty: bool,
}

struct Pool<'a> {
    arena: &'a Arena,
    file: &'a File,
    table: HashMap<u64, usize>,
    slots: Vec<Option<Slot<'a>>>,
    empty: Vec<usize>,
    hand: usize,
    frames: u64,
    report: Report,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| bytes[at * 8 + i]))
}

/// FNV-1a by words: enough to notice a page that is another one, or half of one.
fn checksum(body: &[u8]) -> u64 {
    let words = (0..body.len() / 8).map(|at| word(body, at));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x100_0000_01b3))
}

fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
}

impl<'a> Pool<'a> {
    /// The page's slot, pinned: it stays until it is unpinned as often.
    fn pin(&mut self, page: u64) -> Result<usize, Failure> {
        let known = self.table.get(&page).copied();
        self.report.hits += u64::from(known.is_some());
        self.report.misses += u64::from(known.is_none());
        let at = known.map_or_else(|| self.load(page), Ok)?;
        let slot = self.slots[at].as_mut().ok_or("the table names an empty slot")?;
        slot.pins += 1;
        slot.referenced = true;
        Ok(at)
    }

    fn unpin(&mut self, at: usize) {
        if let Some(slot) = &mut self.slots[at] {
            slot.pins -= 1;
        }
    }

    fn load(&mut self, page: u64) -> Result<usize, Failure> {
        let count = frames_of(page);
        let mut frames = loop {
            // The arena is the budget: what does not fit has to be made room for, be it by one page
            // or by several.
            match self.arena.frames(count) {
                Ok(frames) => break frames,
                Err(error) if error.is_out_of_memory() => self.evict()?,
                Err(error) => return Err(error.into()),
            }
        };
        self.file.read_exact_at(&mut frames, page * STRIDE)?;
        // A page of zeroes was never written.
        if word(&frames, 0) != 0 || word(&frames, 1) != 0 {
            if word(&frames, 1) != page || word(&frames, 0) != checksum(&frames[8..]) {
                return Err(format!("page {page} is broken in the file").into());
            }
        } else {
            set_word(&mut frames, 1, page);
        }
        self.frames += count;
        self.report.most_frames = self.report.most_frames.max(self.frames);
        let slot = Slot { page, frames, pins: 0, referenced: true, dirty: false };
        let at = self.empty.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(slot);
        self.table.insert(page, at);
        Ok(at)
    }

    /// Throws the next page out that nobody has pinned and nobody has used since the hand last came
    /// by.
    fn evict(&mut self) -> Result<(), Failure> {
        for _ in 0..2 * self.slots.len() + 1 {
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            let Some(slot) = self.slots.get_mut(self.hand).and_then(Option::as_mut) else {
                continue;
            };
            if slot.pins == 0 && !std::mem::take(&mut slot.referenced) {
                let slot = self.slots[self.hand].take().ok_or("just looked at")?;
                self.table.remove(&slot.page);
                self.empty.push(self.hand);
                self.frames -= slot.frames.frame_count();
                self.report.evictions += 1;
                return self.write_back(slot);
            }
        }
        Err("every page is pinned".into())
    }

    fn write_back(&mut self, mut slot: Slot<'a>) -> Result<(), Failure> {
        if slot.dirty {
            let sum = checksum(&slot.frames[8..]);
            set_word(&mut slot.frames, 0, sum);
            self.file.write_all_at(&slot.frames, slot.page * STRIDE)?;
            self.report.write_backs += 1;
        }
        Ok(())
    }
}

/// A file that is gone when it is closed.
fn scratch(bytes: u64) -> Result<File, Failure> {
    let path =
        std::env::temp_dir().join(format!("freehold-buffer-pool-{}-{bytes}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// Skewed: one in four accesses goes to an eighth of an eighth of the pages, and so on.
fn skewed(state: &mut u64, pages: u64) -> u64 {
    let mut next = || {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    };
    let mut range = pages;
    while range > 8 && next() % 2 == 0 {
        range /= 8;
    }
    next() % range
}

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let arena = Arena::with_size(options.arena_bytes)?;
    let file = scratch(options.pages * STRIDE)?;
    let pool = Mutex::new(Pool {
        arena: &arena,
        file: &file,
        table: HashMap::new(),
        slots: Vec::new(),
        empty: Vec::new(),
        hand: 0,
        frames: 0,
        report: Report::default(),
    });
    let lock = || pool.lock().map_err(|_| "another thread gave up");
    let work = |thread: u64| -> Result<u64, Failure> {
        let (mut state, mut writes) = (thread + 1, 0);
        for i in 0..options.accesses / options.threads {
            let page = skewed(&mut state, options.pages);
            let mut pool = lock()?;
            let at = pool.pin(page)?;
            // Real work would be done here without the lock: that is what the pin is for. A second
            // page, like a node's child, may be brought in meanwhile, and must not push the first
            // one out.
            let child = pool.pin((page * 7 + 1) % options.pages)?;
            let slot = pool.slots[at].as_mut().ok_or("a pinned page was evicted")?;
            if slot.page != page || word(&slot.frames, 1) != page {
                return Err(format!("page {page} has another one's contents").into());
            }
            if i % 3 == 0 {
                let count = word(&slot.frames, 2) + 1;
                set_word(&mut slot.frames, 2, count);
                let last = slot.frames.len() / 8 - 1;
                set_word(&mut slot.frames, last, count);
                slot.dirty = true;
                writes += 1;
            }
            pool.unpin(child);
            pool.unpin(at);
        }
        Ok(writes)
    };
    let writes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|t| scope.spawn(move || work(t))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked")?)
            .sum::<Result<u64, Failure>>()
    })?;

    let mut pool = pool.into_inner().map_err(|_| "a thread gave up")?;
    let mut report = std::mem::take(&mut pool.report);
    // Everything out, then every page read back: not one write may be missing.
    while !pool.table.is_empty() {
        pool.evict()?;
    }
    for page in 0..options.pages {
        let at = pool.pin(page)?;
        report.writes_found += pool.slots[at].as_ref().map_or(0, |slot| word(&slot.frames, 2));
        pool.unpin(at);
    }
    drop(pool);
    report.writes = writes;
    report.frames_left = arena.stats().frames - arena.free_frames();
    arena.validate()?;
    Ok(report)
}

fn main() -> Result<(), Failure> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => {}
        (Some("--accesses"), Some(n)) => options.accesses = n.parse()?,
        _ => return Err("usage: buffer-pool [--accesses N]".into()),
    }
    let start = std::time::Instant::now();
    let report = run(&options)?;
    let (total, ns) = (report.hits + report.misses, start.elapsed().as_nanos() as u64);
    println!(
        "{} pages of 4 to 64 KiB over {} MiB of frames",
        options.pages,
        options.arena_bytes >> 20
    );
    println!(
        "  {total} fetches: {} hits ({:.1} %), {} misses",
        report.hits,
        100.0 * report.hits as f64 / total as f64,
        report.misses
    );
    println!(
        "  {} evictions, {} of them written back; {} ns a fetch",
        report.evictions,
        report.write_backs,
        ns / total
    );
    println!("  at most {} of {} frames in use", report.most_frames, options.arena_bytes / 4096);
    println!(
        "  {} writes, {} found again; {} frames left behind",
        report.writes, report.writes_found, report.frames_left
    );
    if report.writes != report.writes_found || report.frames_left != 0 {
        return Err("something was lost".into());
    }
    Ok(())
}
