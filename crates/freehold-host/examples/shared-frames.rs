//! Two processes over one arena, one of which is killed in the middle of its work.
//!
//! ```text
//! owner   allocates, fills and frees     arena (a sealed memfd)                worker   reads what it is told of
//!                                        | queue | buffer | buffer | ...
//!         slot: READY  ------------------------------------------------------>          TAKEN, sum, DONE
//!         the worker is killed: whatever it had TAKEN is READY again, for the next one
//! ```
//!
//! Only memory is shared, and only the owner allocates, so that a worker can die at any moment and
//! nothing is lost: what it had is in the queue. The descriptor is the worker's standard input.
//! What a worker writes can be anything, as from any other process: sums are compared here.
//!
//! `cargo run --release -p freehold-host --example shared-frames`

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold_host::{Arena, Backing, Frames, View};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Buffers: as many as the queue's frame has slots for, and no more than are worth waiting for.
const BUFFERS: usize = 100;
/// So many are done when the first worker is killed.
const DONE_BEFORE_THE_KILL: usize = 10;
const FRAME: u64 = 4096;

/// A slot of the queue: where a buffer is, how far it has got, and what the worker found.
const WORDS: usize = 4;
const STATE: usize = 0;
const OFFSET: usize = 1;
const BYTES: usize = 2;
const SUM: usize = 3;

const READY: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;

/// What has come of it.
#[derive(Debug)]
pub(crate) struct Report {
    /// Buffers that the first worker had done when it was killed.
    pub(crate) before: usize,
    /// Buffers that it had begun.
    pub(crate) begun: usize,
    /// Buffers whose sum is right in the end.
    pub(crate) right: usize,
    /// Frames in use when all was freed.
    pub(crate) left: u64,
}

/// Words that both processes use.
///
/// # Safety
///
/// So many words there are shared memory that is mapped while the slice lives, and everybody uses
/// them by atomic accesses.
unsafe fn words<'a>(at: *const u8, words: usize) -> &'a [AtomicU64] {
    // SAFETY: the caller's promise; frames are aligned.
    unsafe { std::slice::from_raw_parts(at.cast(), words) }
}

/// The worker: looks for slots that are ready until there is none, and holds on after each as one with more
/// to do would.
pub(crate) fn work(memfd: impl AsFd, queue: u64) -> Result<(), Failure> {
    let view = View::map(memfd.as_fd())?;
    let at = |offset, bytes| view.pointer(offset, bytes).ok_or("beyond the arena's end");
    // SAFETY: the owner has made this frame the queue, and uses it as words.
    let queue = unsafe { words(at(queue, FRAME)?.as_ptr(), BUFFERS * WORDS) };
    for slot in queue.chunks_exact(WORDS) {
        // Acquire: what the owner has written before it said READY is there.
        let took = slot[STATE].compare_exchange(READY, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if took.is_err() {
            continue;
        }
        // Relaxed, both: written before READY.
        let (offset, bytes) =
            (slot[OFFSET].load(Ordering::Relaxed), slot[BYTES].load(Ordering::Relaxed));
        // SAFETY: as `pointer` has checked, so many bytes are the arena's; the owner does not write
        // there until the slot is DONE.
        let buffer = unsafe { words(at(offset, bytes)?.as_ptr(), (bytes / 8) as usize) };
        std::thread::sleep(Duration::from_millis(2));
        // Relaxed: as above.
        let sum =
            buffer.iter().fold(0, |sum: u64, word| sum.wrapping_add(word.load(Ordering::Relaxed)));
        slot[SUM].store(sum, Ordering::Relaxed);
        // Release: whoever sees DONE sees the sum.
        slot[STATE].store(DONE, Ordering::Release);
    }
    Ok(())
}

/// Waits until so many slots are done, or the worker has ended.
fn wait_for(worker: &mut Child, queue: &[AtomicU64], done: usize) -> Result<(), Failure> {
    let start = Instant::now();
    while count(queue, DONE) < done && worker.try_wait()?.is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            worker.kill()?;
            return Err("the worker does nothing".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn count(queue: &[AtomicU64], state: u64) -> usize {
    // Acquire: with DONE comes the sum.
    queue.chunks_exact(WORDS).filter(|slot| slot[STATE].load(Ordering::Acquire) == state).count()
}

/// The owner. `start` starts a worker that is given the memfd as its standard input, and where the
/// queue is.
pub(crate) fn run(
    start: impl Fn(OwnedFd, u64) -> Result<Child, Failure>,
) -> Result<Report, Failure> {
    let arena: &'static Arena = Arena::builder(64 << 20).backing(Backing::Memfd).build()?.leak();
    let offset = |frames: &Frames| arena.offset(frames.pfn()).ok_or("not of this arena");
    let worker = |queue: u64| {
        // SAFETY: the worker uses only the frames that the queue tells it of, by atomic accesses.
        let memfd = unsafe { arena.memfd() }.ok_or("no memfd")?.try_clone_to_owned()?;
        start(memfd, queue)
    };
    let shared = Frames::zeroed(arena, 1)?;
    let place = offset(&shared)?;
    // SAFETY: the queue's frame, which lives as long as this function; used as words only.
    let queue = unsafe { words(shared.as_ptr(), BUFFERS * WORDS) };
    let mut buffers: Vec<Frames> = Vec::new();
    for (n, slot) in queue.chunks_exact(WORDS).enumerate() {
        let mut buffer = Frames::zeroed(arena, 1 + n as u64 % 17)?;
        buffer[..8].copy_from_slice(&(n as u64).to_le_bytes());
        // Relaxed, both: told by READY.
        slot[OFFSET].store(offset(&buffer)?, Ordering::Relaxed);
        slot[BYTES].store(buffer.len() as u64, Ordering::Relaxed);
        // Release: whoever sees READY sees the buffer.
        slot[STATE].store(READY, Ordering::Release);
        buffers.push(buffer);
    }

    let mut first = worker(place)?;
    wait_for(&mut first, queue, DONE_BEFORE_THE_KILL)?;
    first.kill()?;
    first.wait()?;
    let (before, begun) = (count(queue, DONE), count(queue, TAKEN));
    for slot in queue.chunks_exact(WORDS) {
        // Nobody else is there. Release: as above.
        let _ = slot[STATE].compare_exchange(TAKEN, READY, Ordering::Release, Ordering::Relaxed);
    }
    let mut second = worker(place)?;
    wait_for(&mut second, queue, BUFFERS)?;
    second.wait()?;

    let mut right = 0;
    for (n, (slot, buffer)) in queue.chunks_exact(WORDS).zip(buffers).enumerate() {
        let done = slot[STATE].load(Ordering::Acquire) == DONE;
        right += usize::from(done && slot[SUM].load(Ordering::Relaxed) == n as u64);
        drop(buffer);
    }
    drop(shared);
    let left = arena.stats().frames - arena.free_frames();
    arena.validate()?;
    arena.trim()?;
    Ok(Report { before, begun, right, left })
}

fn main() -> Result<(), Failure> {
    if let Some(queue) = std::env::args().nth(1) {
        return work(std::io::stdin(), queue.parse()?);
    }
    let report = run(|memfd, queue| {
        let program = std::env::current_exe()?;
        Ok(Command::new(program).arg(queue.to_string()).stdin(Stdio::from(memfd)).spawn()?)
    })?;
    println!(
        "killed after {} of {BUFFERS} buffers, with {} begun; {} are right in the end, and {} frames are left in use",
        report.before, report.begun, report.right, report.left
    );
    Ok(())
}
