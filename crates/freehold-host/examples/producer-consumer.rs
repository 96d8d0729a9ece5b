//! One thread fills frames, another one reads and drops them: what a message ring over pages costs, with real memory.
//!
//! ```text
//! cargo run --release -p freehold-host --example producer-consumer
//! cargo run --release -p freehold-host --example producer-consumer -- 200000    so many messages of 16 KiB
//! ```
//!
//! It also prints what a frame costs a single thread (an allocation and its free, the memory not touched), which is the
//! way through the thread-local slot, beside one atomic read-modify-write in the same run.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use freehold_host::freehold::{Migratetype, Order};
use freehold_host::{Arena, Error, Frames, Lock};

/// 16 KiB: a network buffer, a database page.
const FRAMES: u64 = 4;

fn main() -> Result<(), Error> {
    let messages = std::env::args().nth(1).map_or(100_000, |arg| arg.parse().expect("a number of messages"));
    for lock in [Lock::Biased, Lock::Ordinary] {
        let arena: &'static Arena = Arena::builder(1 << 30).lock(lock).build()?.leak();
        println!("{lock:?} lock{}", if arena.stats().biased { " (membarrier)" } else { "" });
        pairs(arena);
        let took = messages_through_a_channel(arena, messages)?;
        let (bytes, ns) = (messages * FRAMES * 4096, took.as_nanos() as f64);
        println!(
            "  {messages} messages of 16 KiB from thread to thread: {:.0} ns each, {:.2} GB/s written and read",
            ns / messages as f64,
            bytes as f64 / ns
        );
        let stats = arena.stats();
        println!("  {} MiB were resident, of 1024", stats.blocks_resident * 2);
        let released = arena.trim()?;
        println!("  {} MiB given back in {} system calls", released.bytes >> 20, released.calls);
        assert_eq!(arena.free_frames(), stats.frames, "every frame came home");
        arena.validate()?;
    }
    Ok(())
}

fn messages_through_a_channel(arena: &'static Arena, messages: u64) -> Result<Duration, Error> {
    let (send, receive) = mpsc::sync_channel::<Frames>(64);
    let start = Instant::now();
    let consumer = std::thread::spawn(move || {
        let mut sum = 0u64;
        for message in receive {
            sum += message.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>();
            // Dropped here, on the consumer's CPU; the frames go home to the producer's blocks.
        }
        sum
    });
    let mut expected = 0;
    for i in 0..messages {
        let mut message = Frames::new(arena, FRAMES)?;
        message.fill(i as u8);
        expected += u64::from(i as u8) * FRAMES * 64;
        send.send(message).expect("the consumer reads to the end");
    }
    drop(send);
    assert_eq!(consumer.join().expect("the consumer does not panic"), expected, "not a byte was lost");
    Ok(start.elapsed())
}

fn pairs(arena: &Arena) {
    const N: u64 = 1_000_000;
    let median = |run: &mut dyn FnMut()| {
        let mut times: Vec<f64> = (0..9)
            .map(|_| {
                let start = Instant::now();
                run();
                start.elapsed().as_nanos() as f64 / N as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    // Every frame of the block in use has been handed out before, as in any program that has run for a while.
    drop((0..4096).map(|_| arena.frames(1)).collect::<Vec<_>>());
    let word = AtomicU64::new(0);
    let rmw = median(&mut || {
        for i in 0..N {
            black_box(word.fetch_add(black_box(i), Ordering::AcqRel));
        }
    });
    let raw = median(&mut || {
        for _ in 0..N {
            let pfn = arena.alloc(Order::ZERO, Migratetype::Movable).expect("the arena is not full");
            // SAFETY: allocated just now, used by nobody.
            unsafe { arena.free(black_box(pfn), Order::ZERO) }.expect("it was allocated");
        }
    });
    let handle = median(&mut || {
        for _ in 0..N {
            drop(black_box(arena.frames(1).expect("the arena is not full")));
        }
    });
    println!("  one atomic read-modify-write {rmw:.2} ns");
    println!(
        "  a frame, allocated and freed: raw {raw:.2} ns ({:.2}), as a handle {handle:.2} ns ({:.2})",
        raw / rmw,
        handle / rmw
    );
}
