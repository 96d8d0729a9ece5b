//! Quick figures: nanoseconds beside the cost of one atomic read-modify-write in the same run.
//!
//! ```text
//! cargo run --release -p freehold --example quick_bench --features std            everything
//! cargo run --release -p freehold --example quick_bench --features std -- pair    one row
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*counted_pairs*' .../quick_bench callgrind
//! ```
//!
//! Ratios within one run mean something even on a noisy machine; nanoseconds do not.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use freehold::{Config, CpuId, FrameRange, Freehold, Migratetype, Order, Owned, Pfn, Platform, Request, ZoneConfig};

struct Membarrier;

impl Platform for Membarrier {
    fn has_heavy_barrier(&self) -> bool {
        // SAFETY: registering takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, 16, 0, 0) == 0 }
    }
    fn heavy_barrier(&self) {
        // SAFETY: MEMBARRIER_CMD_PRIVATE_EXPEDITED takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, 8, 0, 0) };
    }
}

type Engine = Freehold<'static, Membarrier>;
type Cpu<'a> = Owned<'a, 'static, Membarrier>;

const MOVABLE: Request = Request::new(Order::ZERO, Migratetype::Movable);

fn engine(cpus: u16, frames: u64) -> &'static Engine {
    let memory = [FrameRange::new(Pfn::new(0), frames).unwrap()];
    let zones = [ZoneConfig::new(&memory)];
    let config = Config::new(cpus, &zones);
    let size = Engine::metadata_size(&config).unwrap();
    let metadata = Box::leak(vec![MaybeUninit::uninit(); size].into_boxed_slice());
    Box::leak(Box::new(Freehold::new(&config, metadata, Membarrier).unwrap()))
}

/// The median of some runs, in nanoseconds per item.
fn median(runs: usize, items: u64, mut run: impl FnMut() -> std::time::Duration) -> f64 {
    let mut times: Vec<f64> = (0..runs).map(|_| run().as_nanos() as f64 / items as f64).collect();
    times.sort_by(f64::total_cmp);
    // The best on a busy machine, the median on a quiet one.
    if std::env::var_os("BEST").is_some() { times[0] } else { times[runs / 2] }
}

fn timed(f: impl FnOnce()) -> std::time::Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

fn rmw() -> f64 {
    let word = AtomicU64::new(0);
    median(7, 2_000_000, || {
        timed(|| {
            for i in 0..2_000_000u64 {
                black_box(word.fetch_add(black_box(i), Ordering::AcqRel));
            }
        })
    })
}

fn row(name: &str, ns: f64, rmw: f64, target: &str) {
    println!("{name:34} {ns:9.2} ns {:8.2} RMW   {target}", ns / rmw);
}

#[inline(never)]
fn counted_pairs(cpu: &Cpu<'_>, n: u64) {
    for _ in 0..n {
        let pfn = cpu.alloc(black_box(MOVABLE)).unwrap();
        cpu.free(black_box(pfn), Order::ZERO).unwrap();
    }
}

fn shuffled(frames: &[Pfn]) -> Vec<Pfn> {
    let mut out = frames.to_vec();
    let mut seed = 88172645463325252u64;
    for i in (1..out.len()).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        out.swap(i, (seed % (i as u64 + 1)) as usize);
    }
    out
}

fn pin(core: usize) {
    // SAFETY: the set is a plain value on this stack, of the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only == name;
    pin(0);
    if only == "callgrind" {
        let fh = engine(1, 1 << 18);
        let cpu = fh.own(CpuId::new(0)).unwrap();
        // So that no frame is handed out for the first time below.
        let warm: Vec<Pfn> = (0..1024).map(|_| cpu.alloc(MOVABLE).unwrap()).collect();
        warm.into_iter().for_each(|p| cpu.free(p, Order::ZERO).unwrap());
        counted_pairs(&cpu, 100_000);
        return;
    }
    let r = rmw();
    println!("one atomic read-modify-write: {r:.2} ns");
    if wanted("pair") {
        let fh = engine(2, 1 << 20);
        let cpu = fh.own(CpuId::new(0)).unwrap();
        // A full block's worth first, so that no frame is handed out for the first time below.
        let warm: Vec<Pfn> = (0..4096).map(|_| cpu.alloc(MOVABLE).unwrap()).collect();
        warm.into_iter().for_each(|p| cpu.free(p, Order::ZERO).unwrap());
        let ns = median(9, 1_000_000, || timed(|| counted_pairs(&cpu, 1_000_000)));
        row("pair, order 0", ns, r, "<= 0.8");
        let request = Request::new(Order::PAGEBLOCK, Migratetype::Movable);
        let ns = median(9, 200_000, || {
            timed(|| {
                for _ in 0..200_000 {
                    let pfn = cpu.alloc(black_box(request)).unwrap();
                    cpu.free(black_box(pfn), Order::PAGEBLOCK).unwrap();
                }
            })
        });
        row("pair, order 9", ns, r, "<= 2");
        let three = Order::new(3).unwrap();
        let ns = median(9, 200_000, || {
            timed(|| {
                for _ in 0..200_000 {
                    let pfn = cpu.alloc(black_box(Request::new(three, Migratetype::Unmovable))).unwrap();
                    cpu.free(black_box(pfn), three).unwrap();
                }
            })
        });
        row("pair, order 3", ns, r, "");
    }
    if wanted("bulk") {
        const N: u64 = 262_144;
        let fh = engine(2, 1 << 20);
        let cpu = fh.own(CpuId::new(0)).unwrap();
        let mut frames = vec![Pfn::default(); N as usize];
        for (name, order) in [("in order", 0), ("reversed", 1), ("random", 2)] {
            let mut frees = Vec::new();
            let ns = median(7, N, || {
                let took = timed(|| frames.iter_mut().for_each(|p| *p = cpu.alloc(MOVABLE).unwrap()));
                let list = match order {
                    0 => frames.clone(),
                    1 => frames.iter().rev().copied().collect(),
                    _ => shuffled(&frames),
                };
                frees.push(timed(|| list.iter().for_each(|&p| cpu.free(p, Order::ZERO).unwrap())));
                took
            });
            row("262144 allocations", ns, r, "<= 0.6");
            frees.sort();
            row(
                &format!("262144 frees, {name}"),
                frees[if std::env::var_os("BEST").is_some() { 0 } else { 3 }].as_nanos() as f64 / N as f64,
                r,
                "<= 0.6",
            );
        }
        let mut frees = Vec::new();
        let ns = median(7, N, || {
            let took = timed(|| {
                frames.chunks_mut(64).for_each(|c| {
                    assert_eq!(cpu.alloc_bulk(MOVABLE, c), Ok(64));
                })
            });
            frees.push(timed(|| frames.chunks(64).for_each(|c| cpu.free_bulk(c).unwrap())));
            took
        });
        frees.sort();
        row("bulk of 64: allocation, a frame", ns, r, "<= 0.15");
        row(
            "bulk of 64: free, a frame",
            frees[if std::env::var_os("BEST").is_some() { 0 } else { 3 }].as_nanos() as f64 / N as f64,
            r,
            "<= 0.15",
        );
        if std::env::var_os("STATS").is_some() {
            println!("{:#?}", fh.totals());
        }
    }
    if wanted("order9") {
        let fh = engine(2, 1 << 20);
        let cpu = fh.own(CpuId::new(0)).unwrap();
        let request = Request::new(Order::PAGEBLOCK, Migratetype::Movable);
        let ns = median(9, 2000, || {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..2000 {
                let pfn = cpu.alloc(request).unwrap();
                total += timed(|| {
                    for i in 0..512 {
                        cpu.free(Pfn::new(pfn.get() + i), Order::ZERO).unwrap();
                    }
                });
            }
            total
        });
        row("order 9 as 512 single frees", ns, r, "<= 860 ns (an eighth of 6.9 us)");
        let ns = median(9, 20_000, || {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..20_000 {
                let pfn = cpu.alloc(request).unwrap();
                let range = FrameRange::new(pfn, 512).unwrap();
                total += timed(|| cpu.free_range(black_box(range)).unwrap());
            }
            total
        });
        row("order 9 by one free_range (+clock)", ns, r, "<= 15");
    }
    if wanted("remote") {
        const N: u64 = 960 * 512;
        for scattered in [false, true] {
            let fh = engine(2, 1 << 20);
            let owner = fh.own(CpuId::new(0)).unwrap();
            let freer = fh.own(CpuId::new(1)).unwrap();
            let ns = median(5, N, || {
                let mut frames: Vec<Pfn> = (0..N).map(|_| owner.alloc(MOVABLE).unwrap()).collect();
                if scattered {
                    frames = shuffled(&frames);
                }
                let freer = &freer;
                let frames = &frames;
                // On the other core, which the holder's lines are not in.
                std::thread::scope(|scope| {
                    let _ = scope;
                    timed(|| frames.iter().for_each(|&p| freer.free(p, Order::ZERO).unwrap()))
                })
            });
            let name = if scattered { "remote frees, scattered" } else { "remote frees, in sequence" };
            row(name, ns, r, if scattered { "<= 1.3" } else { "<= 0.7" });
        }
    }
    if wanted("producer") {
        for bulk in [false, true] {
            let ns = median(5, 1, || {
                let took = producer_consumer(bulk);
                std::time::Duration::from_nanos((took * 1000.0) as u64)
            }) / 1000.0;
            row(
                if bulk { "producer to consumer, bulk" } else { "producer to consumer" },
                ns,
                r,
                if bulk { "<= 4 ns" } else { "<= 8 ns" },
            );
        }
    }
    if wanted("threads") {
        let fh = engine(2, 1 << 20);
        let one = |core: usize| {
            pin(core);
            let cpu = fh.own(CpuId::new(core as u16)).unwrap();
            counted_pairs(&cpu, 10_000);
            median(5, 1_000_000, || timed(|| counted_pairs(&cpu, 1_000_000)))
        };
        let alone = one(0);
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(|| one(1));
            (one(0), other.join().unwrap())
        });
        row("one thread alone, pair", alone, r, "");
        row("two threads, first", both.0, r, "within 15 % of alone");
        row("two threads, second", both.1, r, "within 15 % of alone");
    }
}

/// Nanoseconds a frame: messages of 64 frames through a ring of 64 messages, ring included.
fn producer_consumer(bulk: bool) -> f64 {
    const MESSAGES: u64 = 40_000;
    const RING: u64 = 64;
    let fh = engine(2, 1 << 20);
    let ring: Vec<[AtomicU64; 64]> = (0..RING).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
    let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let cpu = fh.own(CpuId::new(1)).unwrap();
            for m in 0..MESSAGES {
                while head.load(Ordering::Acquire) <= m {
                    std::hint::spin_loop();
                }
                let message = &ring[(m % RING) as usize];
                if bulk {
                    let frames: [Pfn; 64] = std::array::from_fn(|i| Pfn::new(message[i].load(Ordering::Relaxed)));
                    tail.store(m + 1, Ordering::Release);
                    cpu.free_bulk(&frames).unwrap();
                } else {
                    for slot in message {
                        cpu.free(Pfn::new(slot.load(Ordering::Relaxed)), Order::ZERO).unwrap();
                    }
                    tail.store(m + 1, Ordering::Release);
                }
            }
        });
        pin(0);
        let cpu = fh.own(CpuId::new(0)).unwrap();
        for m in 0..MESSAGES {
            while m - tail.load(Ordering::Acquire) >= RING {
                std::hint::spin_loop();
            }
            let message = &ring[(m % RING) as usize];
            if bulk {
                let mut frames = [Pfn::default(); 64];
                assert_eq!(cpu.alloc_bulk(MOVABLE, &mut frames), Ok(64));
                message.iter().zip(frames).for_each(|(slot, pfn)| slot.store(pfn.get(), Ordering::Relaxed));
            } else {
                message.iter().for_each(|slot| slot.store(cpu.alloc(MOVABLE).unwrap().get(), Ordering::Relaxed));
            }
            head.store(m + 1, Ordering::Release);
        }
    });
    start.elapsed().as_nanos() as f64 / (MESSAGES * 64) as f64
}
