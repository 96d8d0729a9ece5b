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
//! without a lock; and memory that a burst needed is not the pool's for ever. The same pipeline
//! runs over `malloc` and over a free list behind a mutex, beside it: only ratios within a run
//! count. With one receiver and one transmitter that take the lock once for 32 packets, the free
//! list is about as fast, or faster; what it cannot do is give memory back, merge it, or refuse a
//! buffer that is put back twice.
//!
//! ```text
//!   receive core                        ring of 64 bursts                     transmit core
//!   alloc_bulk(32) --> write headers --> [burst|burst|burst|...] --> read, sum --> free_bulk(32)
//! ```

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold_host::freehold::{Migratetype, Order, Pfn};
use freehold_host::{Arena, Error};

/// Packets that go together, as a network card's queue hands them out.
const BURST: usize = 32;
const RING: u64 = 64;
const BUFFER: Layout = Layout::new::<[u64; 512]>();

/// How much is done.
pub(crate) struct Options {
    pub(crate) packets: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { packets: 400_000 }
    }
}

/// What one way of getting buffers came to.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Over the headers, as written and as read.
    pub(crate) sums: (u64, u64),
    pub(crate) took: Duration,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) ways: Vec<Way>,
    /// Of the arena: frees that found the buffer in another CPU's block, and in one of their own.
    pub(crate) remote_frees: u64,
    pub(crate) local_frees: u64,
    /// Blocks of 2 MiB that were ever touched.
    pub(crate) blocks_touched: u64,
    pub(crate) frames_left: u64,
}

type Buffer = NonNull<[u64; 512]>;

/// Where buffers come from and go to: each call is made by one core only.
trait Buffers: Sync {
    fn name(&self) -> &'static str;
    fn take(&self, burst: &mut [Buffer; BURST]);
    fn give(&self, burst: &[Buffer; BURST]);
}

impl Buffers for Arena {
    fn name(&self) -> &'static str {
        "freehold arena, bulk calls"
    }

    fn take(&self, burst: &mut [Buffer; BURST]) {
        let mut frames = [Pfn::default(); BURST];
        let got = self
            .alloc_bulk(Migratetype::Unmovable, &mut frames)
            .expect("the arena is larger than the ring");
        assert_eq!(got, BURST, "the arena is larger than the ring");
        for (buffer, pfn) in burst.iter_mut().zip(frames) {
            *buffer = self.pointer(pfn).expect("a frame of the arena").cast();
        }
    }

    fn give(&self, burst: &[Buffer; BURST]) {
        let frames = burst.map(|buffer| {
            self.pfn_of(buffer.as_ptr().cast()).expect("it was taken from the arena")
        });
        // SAFETY: the burst has gone out; nobody else has these frames.
        unsafe { self.free_bulk(&frames) }.expect("they were allocated");
    }
}

struct Malloc;

impl Buffers for Malloc {
    fn name(&self) -> &'static str {
        "malloc and free"
    }

    fn take(&self, burst: &mut [Buffer; BURST]) {
        for buffer in burst {
            // SAFETY: the layout is not of size zero.
            *buffer = NonNull::new(unsafe { alloc(BUFFER) }).expect("there is memory").cast();
        }
    }

    fn give(&self, burst: &[Buffer; BURST]) {
        for buffer in burst {
            // SAFETY: allocated in `take` with this layout, and nobody else has it.
            unsafe { dealloc(buffer.as_ptr().cast(), BUFFER) };
        }
    }
}

/// Every burst under one lock; never gives anything back.
struct FreeList(Mutex<Vec<usize>>);

impl Buffers for FreeList {
    fn name(&self) -> &'static str {
        "a free list behind a mutex"
    }

    fn take(&self, burst: &mut [Buffer; BURST]) {
        let mut list = self.0.lock().expect("nobody panics under it");
        for buffer in burst {
            let address = list.pop().expect("the list is longer than the ring");
            *buffer = NonNull::new(std::ptr::with_exposed_provenance_mut(address))
                .expect("no buffer is at 0");
        }
    }

    fn give(&self, burst: &[Buffer; BURST]) {
        let mut list = self.0.lock().expect("nobody panics under it");
        list.extend(burst.map(|buffer| buffer.as_ptr().expose_provenance()));
    }
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

fn through(buffers: &dyn Buffers, packets: u64) -> Way {
    let bursts = packets / BURST as u64;
    let ring = Ring {
        slots: (0..RING).map(|_| UnsafeCell::new([NonNull::dangling(); BURST])).collect(),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
    };
    let start = Instant::now();
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
                buffers.take(burst);
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
                buffers.give(&burst);
                // Release: the slot may be written again.
                ring.tail.store(b + 1, Ordering::Release);
            }
            (packets, sum)
        });
        (receive.join().expect("it does not panic"), transmit.join().expect("it does not panic"))
    });
    Way {
        name: buffers.name(),
        sent: bursts * BURST as u64,
        received,
        sums: (written, read),
        took: start.elapsed(),
    }
}

pub(crate) fn run(options: &Options) -> Result<Report, Error> {
    // Far more addresses than the ring needs: what counts is how many of them are touched.
    let arena = Arena::with_size(256 << 20)?;
    // Once beforehand, each way: first touches and first threads are not what is looked at.
    through(&arena, options.packets / 8);
    let before = arena.totals();
    let ours = through(&arena, options.packets);
    let after = arena.totals();
    let stats = arena.stats();
    let mut list = Vec::new();
    for _ in 0..(RING + 2) * BURST as u64 {
        list.push(arena.alloc(Order::ZERO, Migratetype::Unmovable)?);
    }
    let pointers: Vec<_> = list
        .iter()
        .filter_map(|&pfn| Some(arena.pointer(pfn)?.as_ptr().expose_provenance()))
        .collect();
    let free_list = FreeList(Mutex::new(pointers));
    through(&Malloc, options.packets / 8);
    through(&free_list, options.packets / 8);
    let ways = vec![ours, through(&Malloc, options.packets), through(&free_list, options.packets)];
    // SAFETY: the free list is gone, and nobody else knew them.
    unsafe { arena.free_bulk(&list) }?;
    arena.drain()?;
    arena.validate()?;
    Ok(Report {
        ways,
        remote_frees: after.cpus.remote_frees - before.cpus.remote_frees,
        local_frees: after.cpus.local_frees - before.cpus.local_frees,
        blocks_touched: stats.blocks_resident,
        frames_left: stats.frames - arena.free_frames(),
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
    let ns = |way: &Way| way.took.as_nanos() as f64 / way.received as f64;
    println!(
        "{} packets in bursts of {BURST}, from core to core (ring, headers and all)",
        report.ways[0].received
    );
    for way in &report.ways {
        if way.sent != way.received || way.sums.0 != way.sums.1 {
            return Err(format!("{}: something was lost", way.name).into());
        }
        println!(
            "  {:28} {:7.1} ns a packet   {:5.2} of the arena's",
            way.name,
            ns(way),
            ns(way) / ns(&report.ways[0])
        );
    }
    println!(
        "  the arena: {} remote and {} local frees, {} blocks of 2 MiB touched, {} frames left behind",
        report.remote_frees, report.local_frees, report.blocks_touched, report.frames_left
    );
    Ok(())
}
