//! One thread fills frames, another one reads and drops them: what a message ring over pages costs,
//! with real memory.
//!
//! ```text
//! cargo run --release -p freehold-host --example producer-consumer
//! cargo run --release -p freehold-host --example producer-consumer -- 200000    so many messages of 16 KiB
//! ```
//!
//! It also prints what a frame costs a single thread (an allocation and its free, the memory not
//! touched): through the thread-local slot, and with a CPU of the bare allocator in a local
//! variable, which is as cheap as it can be. Both take turns, since only ratios within one run mean
//! something on a machine that does other things too.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use freehold_host::freehold::{
    Config, CpuId, Freehold, Migratetype, Order, Platform, Request, Watermarks, ZoneConfig,
};
use freehold_host::{Arena, Error, Frames, Lock};

/// 16 KiB: a network buffer, a database page.
const FRAMES: u64 = 4;

fn main() -> Result<(), Error> {
    let messages =
        std::env::args().nth(1).map_or(100_000, |arg| arg.parse().expect("a number of messages"));
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
    assert_eq!(
        consumer.join().expect("the consumer does not panic"),
        expected,
        "not a byte was lost"
    );
    Ok(start.elapsed())
}

/// The bare allocator's host.
struct Bare(bool);

impl Platform for Bare {
    fn has_heavy_barrier(&self) -> bool {
        self.0
    }

    fn heavy_barrier(&self) {
        // Registered when the arena was made.
        let _ = rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited);
    }
}

fn pairs(arena: &Arena) {
    const N: u64 = 200_000;
    const ROUNDS: usize = 31;
    let memory = [arena.range()];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let bare = Freehold::leaked(&Config::new(1, &zones), Bare(arena.stats().biased))
        .expect("a plain configuration");
    let cpu = bare.own(CpuId::new(0)).expect("nobody else has it");
    let request = Request::new(Order::ZERO, Migratetype::Movable);

    // Every frame of the block in use has been handed out before, as in any program that has run
    // for a while.
    drop((0..4096).map(|_| arena.frames(1)).collect::<Vec<_>>());
    let warm: Vec<_> = (0..4096).map(|_| cpu.alloc(request)).collect();
    warm.into_iter()
        .flatten()
        .for_each(|pfn| cpu.free(pfn, Order::ZERO).expect("it was allocated"));

    let word = AtomicU64::new(0);
    let mut runs: [(&str, &mut dyn FnMut()); 5] = [
        ("one atomic read-modify-write", &mut || {
            for i in 0..N {
                black_box(word.fetch_add(black_box(i), Ordering::AcqRel));
            }
        }),
        ("a frame, the bare allocator", &mut || {
            for _ in 0..N {
                let pfn = cpu.alloc(request).expect("it is not full");
                cpu.free(black_box(pfn), Order::ZERO).expect("it was allocated");
            }
        }),
        ("the same through a pointer", &mut || {
            for _ in 0..N {
                // As a thread-local variable or a structure has it: nothing of the handle stays in
                // registers.
                let cpu = black_box(&cpu);
                let pfn = cpu.alloc(request).expect("it is not full");
                let cpu = black_box(cpu);
                cpu.free(black_box(pfn), Order::ZERO).expect("it was allocated");
            }
        }),
        ("a frame, by number", &mut || {
            for _ in 0..N {
                let pfn =
                    arena.alloc(Order::ZERO, Migratetype::Movable).expect("the arena is not full");
                // SAFETY: allocated just now, used by nobody.
                unsafe { arena.free(black_box(pfn), Order::ZERO) }.expect("it was allocated");
            }
        }),
        ("a frame, as a handle", &mut || {
            for _ in 0..N {
                drop(black_box(arena.frames(1).expect("the arena is not full")));
            }
        }),
    ];
    let mut times = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        for ((_, run), times) in runs.iter_mut().zip(&mut times) {
            let start = Instant::now();
            run();
            times.push(start.elapsed().as_nanos() as f64 / N as f64);
        }
    }
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    for ((name, _), ns) in runs.iter().zip(medians) {
        println!("  {name:32} {ns:6.2} ns   {:5.2} of the bare allocator's", ns / medians[1]);
    }
}
