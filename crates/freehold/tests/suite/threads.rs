//! Real threads, every frame stamped with its owner: an overlap, a loss or a leak cannot go
//! unnoticed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::*;
use crate::length::length;
use fastrand::Rng;
use freehold::{AllocFlags, Config, FreeError, Migratetype, Order, Pfn, Platform, Request};

const BASE: u64 = 512;

/// The owner of every frame: 0 = nobody.
struct Stamps(Vec<AtomicU32>);

impl Stamps {
    fn take(&self, pfn: Pfn, frames: u64, me: u32) {
        for f in pfn.get()..pfn.get() + frames {
            let before = self.0[(f - BASE) as usize].swap(me, Ordering::Relaxed);
            assert_eq!(
                before, 0,
                "frame {f:#x} of thread {before} was handed to thread {me} as well"
            );
        }
    }
    fn give(&self, pfn: Pfn, frames: u64) {
        for f in pfn.get()..pfn.get() + frames {
            let before = self.0[(f - BASE) as usize].swap(0, Ordering::Relaxed);
            assert_ne!(before, 0, "frame {f:#x} was freed by somebody else");
        }
    }
}

/// A host without a heavy barrier.
struct Yielding;

impl Platform for Yielding {
    fn relax(&self) {
        std::thread::yield_now();
    }
}

/// Frees frames through a CPU, in one of several ways; through CPU 0, which stays, where that one
/// has gone.
fn give_by(fh: &Alloc<'_>, c: u16, (pfn, n): (Pfn, u64), how: u64) {
    let chunk =
        range(pfn.get(), n).chunks(Order::MAX).next().filter(|(_, order)| order.frames() == n);
    for on in [fh.on(cpu(c)), fh.on(cpu(0))] {
        let gone = Err(FreeError::CpuOffline { cpu: on.cpu() });
        let result = match (how, chunk) {
            (0, Some((pfn, order))) => on.free(pfn, order),
            (1, _) if n <= 64 => on
                .free_bulk(&(pfn.get()..pfn.get() + n).map(Pfn::new).collect::<Vec<_>>())
                .map_err(|e| e.error),
            _ => on.free_range(range(pfn.get(), n)),
        };
        if result != gone {
            return result.unwrap();
        }
    }
    panic!("CPU 0 has gone");
}

/// One step of a thread that uses any CPU and every call; `held` is what it has in use.
fn anything(
    fh: &Alloc<'_>,
    random: &mut Rng,
    (me, cpus): (u32, u16),
    stamps: &Stamps,
    held: &mut Vec<(Pfn, u64)>,
) {
    let c = random.u64(..u64::from(cpus)) as u16;
    let (on, kind) = (fh.on(cpu(c)), Migratetype::PCP[random.u64(..3) as usize]);
    let request = |o: u64| Request::new(order(o as u8), kind);
    let mut got = Vec::new();
    match random.u64(..100) {
        0..40 => {
            let o = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10][random.u64(..14) as usize];
            got.extend(on.alloc(request(o)).map(|pfn| (pfn, 1 << o)));
        }
        40..43 => {
            let (o, from) = (random.u64(..4), BASE + random.u64(..20_000));
            let limited = request(o).from(Pfn::new(from)).below(Pfn::new(from + 3000));
            got.extend(on.alloc(limited).map(|pfn| (pfn, 1 << o)));
        }
        43..46 => {
            let mut out = [Pfn::default(); 200];
            let n = on.alloc_bulk(request(0), &mut out).unwrap_or(0);
            got.extend(out[..n].iter().map(|&pfn| (pfn, 1)));
        }
        46..48 => {
            let target = range(BASE + random.u64(..20_000), 1 + random.u64(..700));
            got.extend(
                fh.alloc_contig_range(target, |_| false).map(|()| (target.start, target.len())),
            );
        }
        // All there is: other CPUs' leases are recalled, and blocks of other types broken into.
        48 => got.extend(
            std::iter::from_fn(|| on.alloc(request(3)).ok()).take(5000).map(|pfn| (pfn, 8)),
        ),
        49 => {
            let o = random.u64(..10);
            got.extend(on.alloc(request(o).flags(AllocFlags::NO_LOCK)).map(|pfn| (pfn, 1 << o)));
        }
        // The CPU may have gone.
        50 => {
            let _ = on.tick();
        }
        51 => {
            let _ = on.flush();
        }
        // Much of it goes at once, so that memory is not full for good.
        52 if held.len() > 500 => {
            for chunk in held.drain(100..) {
                stamps.give(chunk.0, chunk.1);
                give_by(fh, c, chunk, 2);
            }
        }
        _ if !held.is_empty() => {
            let chunk = held.swap_remove(random.u64(..held.len() as u64) as usize);
            stamps.give(chunk.0, chunk.1);
            give_by(fh, c, chunk, random.u64(..3));
        }
        _ => {}
    }
    got.iter().for_each(|&(pfn, n)| stamps.take(pfn, n, me));
    held.extend(got);
}

/// CPUs, pieces of memory and isolated ranges come and go until told to stop.
fn plug(fh: &Alloc<'_>, cpus: u16, frames: u64, done: &AtomicBool) {
    let mut random = Rng::with_seed(4242);
    while !done.load(Ordering::Relaxed) {
        let c = cpu(1 + random.u64(..u64::from(cpus) - 1) as u16);
        fh.on(c).offline().unwrap();
        std::thread::yield_now();
        fh.on(c).online().unwrap();
        let piece = range(BASE + 512 * random.u64(..frames / 512 - 3), 1024);
        if fh.remove_memory(piece).is_ok() {
            fh.add_memory(piece).unwrap();
        }
        if random.u64(..40) == 0 {
            fh.drain_all();
        }
    }
}

/// More threads than cores and than CPUs, every call, everything coming and going; by the biased
/// lock and the ordinary one.
#[test]
fn every_call_at_once_loses_nothing() {
    const CPUS: u16 = 5;
    let (threads, steps) = (8, if cfg!(miri) { 20 } else { length(10_000, 30_000) });
    let hosts: [&dyn Platform; 2] = [Membarrier::new(), &Yielding];
    for host in hosts {
        let frames = 96 * MIB;
        let memory = [range(BASE, frames)];
        let zones = [unmarked(&memory)];
        let fh = build(&Config { extra_ranges: 2, ..Config::new(CPUS, &zones) }, host);
        let stamps = Stamps((0..frames).map(|_| AtomicU32::new(0)).collect());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (fh, stamps, done) = (&fh, &stamps, &done);
            let workers: Vec<_> = (1..=threads)
                .map(|me| {
                    scope.spawn(move || {
                        let (mut random, mut held) =
                            (Rng::with_seed(77 * u64::from(me)), Vec::new());
                        (0..steps)
                            .for_each(|_| anything(fh, &mut random, (me, CPUS), stamps, &mut held));
                        for chunk in held {
                            stamps.give(chunk.0, chunk.1);
                            give_by(fh, 0, chunk, 2);
                        }
                    })
                })
                .collect();
            let plugger = scope.spawn(move || plug(fh, CPUS, frames, done));
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            done.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.unwrap());
            plugger.join().unwrap();
        });
        assert_all_free(&fh);
        let totals = fh.totals();
        assert_eq!((fh.zone_stats(0).unwrap().managed, totals.late_double_frees), (frames, 0));
        assert!(totals.cpus.recalls > 0, "nobody ever ran out of memory");
    }
}
