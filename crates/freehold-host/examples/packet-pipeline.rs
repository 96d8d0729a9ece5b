//! A packet pipeline: the receive core takes buffers, the transmit core gives them back. The worst
//! case for an allocator with per-CPU caches, since every buffer is freed where it was not
//! allocated.
//!
//! ```text
//! cargo run --release -p freehold-host --example packet-pipeline
//! cargo run --release -p freehold-host --example packet-pipeline -- --packets 5000000
//! ```
//!
//! Why so? A free list for each core runs empty on the one side and over on the other, so buffers
//! have to be carried back through a shared list, under a lock or by atomics on one cache line.
//! Here a buffer's frame goes home to the block it is from, 64 at a time by one atomic operation,
//! without a lock; and memory that a burst needed is not the pool's for ever.
//!
//! ```text
//!   receive core                        ring of 64 bursts                     transmit core
//!   alloc_bulk(32) --> write headers --> [burst|burst|burst|...] --> read, sum --> free_bulk(32)
//! ```

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold_host::freehold::{Migratetype, Pfn};
use freehold_host::{Arena, Error};

/// Packets that go together, as a network card's queue hands them out.
const BURST: usize = 32;
const RING: u64 = 64;

/// How much is done.
pub(crate) struct Options {
    pub(crate) packets: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { packets: 400_000 }
    }
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Over the headers, as written and as read.
    pub(crate) sums: (u64, u64),
    pub(crate) took: Duration,
    /// Frees that found the buffer in another CPU's block, and in one of their own.
    pub(crate) remote_frees: u64,
    pub(crate) local_frees: u64,
    /// Blocks of 2 MiB that were ever touched.
    pub(crate) blocks_touched: u64,
    pub(crate) frames_left: u64,
}

type Buffer = NonNull<[u64; 512]>;

fn take(arena: &Arena, burst: &mut [Buffer; BURST]) {
    let mut frames = [Pfn::default(); BURST];
    let got = arena
        .alloc_bulk(Migratetype::Unmovable, &mut frames)
        .expect("the arena is larger than the ring");
    assert_eq!(got, BURST, "the arena is larger than the ring");
    for (buffer, pfn) in burst.iter_mut().zip(frames) {
        *buffer = arena.pointer(pfn).expect("a frame of the arena").cast();
    }
}

fn give(arena: &Arena, burst: &[Buffer; BURST]) {
    let frames = burst
        .map(|buffer| arena.pfn_of(buffer.as_ptr().cast()).expect("it was taken from the arena"));
    // SAFETY: the burst has gone out; nobody else has these frames.
    unsafe { arena.free_bulk(&frames) }.expect("they were allocated");
}

/// One core puts bursts in, another one takes them out.
struct Ring {
    slots: Vec<UnsafeCell<[Buffer; BURST]>>,
    head: AtomicU64,
    tail: AtomicU64,
}

// SAFETY: a slot is the sender's until `head` has gone past it and then the receiver's until `tail`
// has; each store is a release that the other side's load acquires.
unsafe impl Sync for Ring {}

/// The sums over the headers as written and as read, and how many packets came through.
fn through(arena: &Arena, packets: u64) -> ((u64, u64), u64) {
    let bursts = packets / BURST as u64;
    let ring = Ring {
        slots: (0..RING).map(|_| UnsafeCell::new([NonNull::dangling(); BURST])).collect(),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
    };
    let (written, (received, read)) = std::thread::scope(|scope| {
        let ring = &ring;
        let receive = scope.spawn(move || {
            let mut sum = 0u64;
            for b in 0..bursts {
                // Acquire: the slot has been read before it is written again.
                while b - ring.tail.load(Ordering::Acquire) >= RING {
                    std::thread::yield_now();
                }
                // SAFETY: see `Ring`.
                let burst = unsafe { &mut *ring.slots[(b % RING) as usize].get() };
                take(arena, burst);
                for (i, buffer) in burst.iter().enumerate() {
                    let id = b * BURST as u64 + i as u64;
                    // SAFETY: the buffer is ours until it goes into the ring.
                    unsafe { buffer.cast::<[u64; 8]>().write([id; 8]) };
                    sum = sum.wrapping_add(id.wrapping_mul(8));
                }
                // Release: what was written goes along.
                ring.head.store(b + 1, Ordering::Release);
            }
            sum
        });
        let transmit = scope.spawn(move || {
            let (mut packets, mut sum) = (0u64, 0u64);
            for b in 0..bursts {
                // Acquire: with the sender's release.
                while ring.head.load(Ordering::Acquire) <= b {
                    std::thread::yield_now();
                }
                // SAFETY: see `Ring`.
                let burst = unsafe { *ring.slots[(b % RING) as usize].get() };
                for buffer in &burst {
                    // SAFETY: the sender has let go of it.
                    let header = unsafe { buffer.cast::<[u64; 8]>().read() };
                    sum = header.iter().fold(sum, |sum, word| sum.wrapping_add(*word));
                    packets += 1;
                }
                give(arena, &burst);
                // Release: the slot may be written again.
                ring.tail.store(b + 1, Ordering::Release);
            }
            (packets, sum)
        });
        (receive.join().expect("it does not panic"), transmit.join().expect("it does not panic"))
    });
    ((written, read), received)
}

pub(crate) fn run(options: &Options) -> Result<Report, Error> {
    // Far more addresses than the ring needs: what counts is how many of them are touched.
    let arena = Arena::with_size(256 << 20)?;
    // Once beforehand: first touches and first threads are not what is looked at.
    through(&arena, options.packets / 8);
    let (before, start) = (arena.totals(), Instant::now());
    let (sums, received) = through(&arena, options.packets);
    let (took, after) = (start.elapsed(), arena.totals());
    arena.drain()?;
    arena.validate()?;
    let stats = arena.stats();
    Ok(Report {
        sent: options.packets / BURST as u64 * BURST as u64,
        received,
        sums,
        took,
        remote_frees: after.cpus.remote_frees - before.cpus.remote_frees,
        local_frees: after.cpus.local_frees - before.cpus.local_frees,
        blocks_touched: stats.blocks_resident,
        frames_left: stats.frames_used,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--packets", n] => options.packets = n.parse()?,
        _ => return Err("usage: packet-pipeline [--packets N]".into()),
    }
    let report = run(&options)?;
    if report.sent != report.received || report.sums.0 != report.sums.1 {
        return Err("something was lost".into());
    }
    println!(
        "{} packets in bursts of {BURST}, from core to core: {:.1} ns a packet",
        report.received,
        report.took.as_nanos() as f64 / report.received as f64
    );
    println!(
        "  {} remote and {} local frees, {} blocks of 2 MiB touched, {} frames left behind",
        report.remote_frees, report.local_frees, report.blocks_touched, report.frames_left
    );
    Ok(())
}
