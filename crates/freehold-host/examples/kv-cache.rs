//! A paged key-value cache of a language model: what is left of contiguity after much churn,
//! against a plain free list.
//!
//! ```text
//! cargo run --release -p freehold-host --example kv-cache
//! cargo run --release -p freehold-host --example kv-cache -- --rounds 2000
//! ```
//!
//! Why so? Each sequence has a list of blocks (here a frame each: some tokens' keys and values).
//! When a sequence moves to another machine or device, every *run* of neighbouring blocks is one
//! copy; when blocks come off a free list that has been shuffled by earlier sequences, nearly every
//! block is a run of its own. Here a sequence asks for runs: its prompt in one piece, its growth in
//! pieces of 8, and less where there is no such piece. Finished sequences free whatever they have,
//! in any order, and free frames are neighbours again by themselves: there is nothing to sort.
//!
//! The counts are exact and the same on every machine.

use freehold_host::freehold::{FrameRange, Pfn};
use freehold_host::{Arena, Error, Frames};

/// How much is done.
pub(crate) struct Options {
    pub(crate) blocks: u64,
    pub(crate) rounds: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { blocks: 16384, rounds: 400 }
    }
}

/// What one way of placing blocks came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    /// Whole sequences moved, the copies that took, and the blocks in them.
    pub(crate) transfers: u64,
    pub(crate) copies: u64,
    pub(crate) blocks: u64,
    /// Of these, in the last tenth of the rounds.
    pub(crate) late_transfers: u64,
    pub(crate) late_copies: u64,
    /// Blocks found with other contents than were written.
    pub(crate) wrong: u64,
    pub(crate) left: u64,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) freehold: Way,
    pub(crate) free_list: Way,
}

/// Where blocks come from.
trait Blocks {
    /// Appends `count` blocks to a sequence; `false` where there are not so many.
    fn grow(&mut self, sequence: &mut Vec<Pfn>, count: u64) -> bool;
    fn free(&mut self, sequence: Vec<Pfn>);
    fn free_blocks(&self) -> u64;
}

/// Runs out of the arena.
struct Runs<'a>(&'a Arena);

impl Blocks for Runs<'_> {
    fn grow(&mut self, sequence: &mut Vec<Pfn>, count: u64) -> bool {
        let (before, mut left, mut piece) = (sequence.len(), count, count);
        while left > 0 {
            match self.0.frames(piece.min(left)) {
                Ok(frames) => {
                    let range = frames.into_raw();
                    sequence.extend((range.start.get()..range.end.get()).map(Pfn::new));
                    left -= range.len();
                }
                Err(_) if piece > 1 => piece = piece.div_ceil(2),
                Err(_) => {
                    self.free(sequence.split_off(before));
                    return false;
                }
            }
        }
        true
    }

    fn free(&mut self, sequence: Vec<Pfn>) {
        // SAFETY: the sequence has ended; nobody else has its blocks.
        unsafe { self.0.free_bulk(&sequence) }.expect("they were allocated");
    }

    fn free_blocks(&self) -> u64 {
        self.0.free_frames()
    }
}

/// The last block freed is the next one used: what most caches do.
struct FreeList(Vec<Pfn>);

impl Blocks for FreeList {
    fn grow(&mut self, sequence: &mut Vec<Pfn>, count: u64) -> bool {
        let enough = self.0.len() as u64 >= count;
        if enough {
            sequence.extend(self.0.drain(self.0.len() - count as usize..).rev());
        }
        enough
    }

    fn free(&mut self, sequence: Vec<Pfn>) {
        // Reversed, so that a whole sequence that is reused at once comes out in its old order.
        self.0.extend(sequence.into_iter().rev());
    }

    fn free_blocks(&self) -> u64 {
        self.0.len() as u64
    }
}

struct Sequence {
    id: u64,
    blocks: Vec<Pfn>,
    /// Blocks that have tokens in them: growth is in pieces.
    used: usize,
    target: usize,
}

/// Maximal runs of neighbours, in the sequence's order: one copy each.
fn runs(blocks: &[Pfn]) -> Vec<FrameRange> {
    let mut runs: Vec<FrameRange> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block => run.end = Pfn::new(block.get() + 1),
            _ => runs.extend(FrameRange::new(block, 1)),
        }
    }
    runs
}

/// The pool's memory, which both ways use in turn.
struct Memory<'a>(&'a Arena);

impl Memory<'_> {
    fn write(&self, block: Pfn, sequence: u64, index: u64) {
        let at = self.0.pointer(block).expect("a block of the pool").cast::<[u64; 2]>();
        // SAFETY: the block is the sequence's, and this is the only thread.
        unsafe { at.write([sequence, index]) };
    }

    /// One copy of several blocks; returns how many of them hold something else than sequence and
    /// index.
    fn transfer(&self, run: FrameRange, sequence: u64, first: u64, to: &mut [u8]) -> u64 {
        let bytes = &mut to[..(run.len() * 4096) as usize];
        let from = self.0.pointer(run.start).expect("a block of the pool");
        // SAFETY: the run is the sequence's, all of it within the arena, and `to` is elsewhere.
        unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        let expected = |i: u64| [sequence.to_ne_bytes(), (first + i).to_ne_bytes()].concat();
        bytes
            .chunks_exact(4096)
            .enumerate()
            .filter(|(i, block)| block[..16] != expected(*i as u64)[..])
            .count() as u64
    }
}

fn serve(memory: &Memory<'_>, blocks: &mut dyn Blocks, options: &Options, piece: u64) -> Way {
    let (mut way, mut live, mut state, mut id) =
        (Way::default(), Vec::<Sequence>::new(), 7u64, 0u64);
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut to = vec![0u8; 1024 * 4096];
    for round in 0..options.rounds {
        // Newcomers with prompts of any length, up to four fifths of the pool.
        while live.iter().map(|s| s.target as u64).sum::<u64>() < options.blocks * 4 / 5 {
            let prompt = 1 + next(256);
            let mut sequence = Sequence {
                id,
                blocks: Vec::new(),
                used: 0,
                target: (prompt + 1 + next(256)) as usize,
            };
            id += 1;
            if !blocks.grow(&mut sequence.blocks, prompt) {
                blocks.free(sequence.blocks);
                break;
            }
            for index in 0..prompt {
                memory.write(sequence.blocks[index as usize], sequence.id, index);
            }
            sequence.used = prompt as usize;
            live.push(sequence);
        }
        // Everybody generates: a block's worth of tokens each.
        for sequence in &mut live {
            if sequence.used == sequence.blocks.len() && !blocks.grow(&mut sequence.blocks, piece) {
                continue;
            }
            memory.write(sequence.blocks[sequence.used], sequence.id, sequence.used as u64);
            sequence.used += 1;
        }
        // Some move elsewhere: every run is a copy.
        for _ in 0..4 {
            let sequence = &live[next(live.len() as u64) as usize];
            let mut first = 0;
            way.transfers += 1;
            for run in runs(&sequence.blocks[..sequence.used]) {
                way.wrong += memory.transfer(run, sequence.id, first, &mut to);
                first += run.len();
                way.copies += 1;
                way.late_copies += u64::from(round >= options.rounds * 9 / 10);
            }
            way.blocks += first;
            way.late_transfers += u64::from(round >= options.rounds * 9 / 10);
        }
        // The finished leave, and a few are called off.
        let cancelled = next(live.len() as u64) as usize;
        for at in (0..live.len()).rev() {
            if live[at].used >= live[at].target || at == cancelled {
                blocks.free(live.swap_remove(at).blocks);
            }
        }
    }
    live.into_iter().for_each(|sequence| blocks.free(sequence.blocks));
    way.left = options.blocks - blocks.free_blocks();
    way
}

pub(crate) fn run(options: &Options) -> Result<Report, Error> {
    let arena = Arena::with_size(options.blocks * 4096)?;
    let memory = Memory(&arena);
    let freehold = serve(&memory, &mut Runs(&arena), options, 8);
    arena.validate()?;
    // The free list has all of it, in order at first.
    let all = Frames::new(&arena, options.blocks)?.into_raw();
    let mut list = FreeList((all.start.get()..all.end.get()).rev().map(Pfn::new).collect());
    let free_list = serve(&memory, &mut list, options, 1);
    // SAFETY: the list is not used any more.
    unsafe { arena.free_range(all) }?;
    Ok(Report { freehold, free_list })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--rounds", n] => options.rounds = n.parse()?,
        _ => return Err("usage: kv-cache [--rounds N]".into()),
    }
    let report = run(&options)?;
    println!(
        "{} blocks, {} rounds of arriving, generating, moving and leaving",
        options.blocks, options.rounds
    );
    for (name, way) in [("freehold, by runs", &report.freehold), ("a free list", &report.free_list)]
    {
        let (mean, copies) =
            (way.blocks as f64 / way.copies as f64, way.copies as f64 / way.transfers as f64);
        let late = way.late_copies as f64 / way.late_transfers.max(1) as f64;
        println!(
            "  {name:18} mean run {mean:6.1} blocks, {copies:6.1} copies a transfer, \
             {late:6.1} in the last tenth"
        );
    }
    let (a, b) = (&report.freehold, &report.free_list);
    let ratio = b.copies as f64 * a.transfers as f64 / (a.copies as f64 * b.transfers as f64);
    println!(
        "  {ratio:.1} times fewer copies for each transfer; {} blocks were wrong",
        a.wrong + b.wrong
    );
    Ok(())
}
