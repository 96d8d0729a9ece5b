//! Real threads, every frame stamped with its owner: an overlap, a loss or a leak cannot go
//! unnoticed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::*;
use crate::length::length;
use fastrand::Rng;
use freehold::{
    AllocFlags, Config, FreeError, Migratetype, Order, Pfn, Platform, Request, Watermarks,
    ZoneConfig,
};

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

// One arm for each kind of step.
#[allow(clippy::too_many_lines)]
fn worker(
    fh: &Alloc<'_>,
    me: u16,
    threads: u16,
    steps: u32,
    stamps: &Stamps,
    pool: &Mutex<Vec<(Pfn, u64)>>,
) {
    let mut random = Rng::with_seed(0x9e37_79b9 + u64::from(me) * 7919);
    let mut held: Vec<(Pfn, u64)> = Vec::new();
    let owned = fh.own(cpu(me)).unwrap();
    let stamp = u32::from(me) + 1;
    for step in 0..steps {
        match random.u64(..100) {
            0..40 => {
                let o = [0, 0, 0, 0, 1, 2, 3, 5, 9][random.u64(..9) as usize];
                let request = Request::new(order(o), Migratetype::PCP[random.u64(..3) as usize]);
                if let Ok(pfn) = owned.alloc(request) {
                    stamps.take(pfn, 1 << o, stamp);
                    held.push((pfn, 1 << o));
                }
            }
            40..45 => {
                let mut out = [Pfn::default(); 100];
                let n = owned.alloc_bulk(movable(0), &mut out).unwrap_or(0);
                for &pfn in &out[..n] {
                    stamps.take(pfn, 1, stamp);
                    held.push((pfn, 1));
                }
            }
            45..70 if !held.is_empty() => {
                let (pfn, frames) = held.swap_remove(random.u64(..held.len() as u64) as usize);
                // In pieces now and then.
                let first = if frames > 1 && random.u64(..3) == 0 {
                    1 + random.u64(..frames - 1)
                } else {
                    frames
                };
                stamps.give(pfn, frames);
                owned.free_range(range(pfn.get(), first)).unwrap();
                if first < frames {
                    owned.free_range(range(pfn.get() + first, frames - first)).unwrap();
                }
            }
            70..80 if !held.is_empty() => {
                let chunk = held.swap_remove(random.u64(..held.len() as u64) as usize);
                pool.lock().unwrap().push(chunk);
            }
            80..92 => {
                let chunk = pool.lock().unwrap().pop();
                if let Some((pfn, frames)) = chunk {
                    stamps.give(pfn, frames);
                    owned.free_range(range(pfn.get(), frames)).unwrap();
                }
            }
            92..94 => {
                // Reaching into another CPU while its owner works on it.
                let other = fh.on(cpu(random.u64(..u64::from(threads)) as u16));
                if let Ok(pfn) = other.alloc(unmovable(0)) {
                    stamps.take(pfn, 1, stamp);
                    held.push((pfn, 1));
                }
            }
            94..96 => {
                let (singles, rest): (Vec<_>, Vec<_>) = held.drain(..).partition(|(_, n)| *n == 1);
                held = rest;
                let frames: Vec<Pfn> = singles.into_iter().map(|(p, _)| p).collect();
                frames.iter().for_each(|&p| stamps.give(p, 1));
                owned.free_bulk(&frames).unwrap();
            }
            96 => owned.tick().unwrap(),
            97 if step % 16 == 0 => fh.drain_all(),
            98 if random.u64(..8) == 0 => {
                // Eat up everything: stealing and mixing begin.
                let mut mine = Vec::new();
                while let Ok(pfn) = owned.alloc(movable(0)) {
                    stamps.take(pfn, 1, stamp);
                    mine.push(pfn);
                    if mine.len() > 30_000 {
                        break;
                    }
                }
                mine.iter().for_each(|&p| stamps.give(p, 1));
                owned.free_bulk(&mine).unwrap();
            }
            _ => {}
        }
    }
    for (pfn, frames) in held {
        stamps.give(pfn, frames);
        owned.free_range(range(pfn.get(), frames)).unwrap();
    }
}

fn stress(host: &dyn Platform, threads: u16, steps: u32, mib: u64) {
    let frames = mib * MIB;
    let memory = [range(BASE, frames)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config { ..Config::new(threads, &[zone]) }, host);
    let stamps = Stamps((0..frames).map(|_| AtomicU32::new(0)).collect());
    let pool = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fh, stamps, pool, done) = (&fh, &stamps, &pool, &done);
        let workers: Vec<_> = (0..threads)
            .map(|me| scope.spawn(move || worker(fh, me, threads, steps, stamps, pool)))
            .collect();
        // Statistics may be read at any time.
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let stats = fh.zone_stats(0).unwrap();
                assert_eq!(stats.managed, frames);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|r| r.unwrap());
    });
    for (pfn, frames) in pool.into_inner().unwrap() {
        stamps.give(pfn, frames);
        fh.here().free_range(range(pfn.get(), frames)).unwrap();
    }
    assert_all_free(&fh);
    let totals = fh.totals();
    assert_eq!(totals.late_double_frees, 0);
    let stats = fh.zone_stats(0).unwrap();
    assert_eq!(stats.free_blocks, frames / 512);
    let largest = range(BASE, frames).chunks(Order::MAX).map(|(_, order)| order).max();
    assert_eq!(stats.largest_free_order(), largest);
}

#[test]
fn threads_with_the_ordinary_lock_never_share_a_frame() {
    struct Yielding;
    impl Platform for Yielding {
        fn relax(&self) {
            std::thread::yield_now();
        }
    }
    stress(&Yielding, 4, if cfg!(miri) { 60 } else { 6_000 }, 96);
}

#[test]
fn threads_with_the_biased_lock_never_share_a_frame() {
    stress(Membarrier::new(), 4, if cfg!(miri) { 60 } else { 6_000 }, 96);
}

#[test]
fn sixteen_cpus_never_share_a_frame() {
    stress(Membarrier::new(), 16, if cfg!(miri) { 10 } else { 1_500 }, 512);
}

/// Threads that name CPUs at random while CPUs go and come back, ranges are isolated and memory is
/// removed and added.
#[test]
// The threads share what is set up before them.
#[allow(clippy::too_many_lines)]
fn nothing_is_lost_while_cpus_and_memory_come_and_go() {
    const CPUS: u16 = 6;
    let steps = if cfg!(miri) { 40 } else { 8_000 };
    let frames = 256 * MIB;
    let memory = [range(BASE, frames)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config { extra_ranges: 2, ..Config::new(CPUS, &[zone]) }, Membarrier::new());
    let stamps = Stamps((0..frames).map(|_| AtomicU32::new(0)).collect());
    let pool: Mutex<Vec<(Pfn, u64)>> = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    let (offline, ranges, removed) = std::thread::scope(|scope| {
        let (fh, stamps, pool, done) = (&fh, &stamps, &pool, &done);
        let workers: Vec<_> = (0..3u32)
            .map(|me| {
                scope.spawn(move || {
                    let mut random = Rng::with_seed(77 + u64::from(me));
                    for _ in 0..steps {
                        let on = fh.on(cpu(random.u64(..u64::from(CPUS)) as u16));
                        if random.u64(..2) == 0 {
                            let o = [0, 0, 0, 1, 3, 9, 10][random.u64(..7) as usize];
                            if let Ok(pfn) = on.alloc(Request::new(
                                order(o),
                                Migratetype::PCP[random.u64(..3) as usize],
                            )) {
                                stamps.take(pfn, 1 << o, me + 1);
                                pool.lock().unwrap().push((pfn, 1 << o));
                            }
                        } else {
                            let chunk = {
                                let mut pool = pool.lock().unwrap();
                                let n = pool.len() as u64;
                                (n > 0).then(|| pool.swap_remove(random.u64(..n) as usize))
                            };
                            let Some((pfn, n)) = chunk else { continue };
                            stamps.give(pfn, n);
                            let range = range(pfn.get(), n);
                            // The CPU may have gone: any other will do.
                            if on.free_range(range).is_err() {
                                fh.on(cpu(0)).free_range(range).unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        let plugger = scope.spawn(move || {
            let mut random = Rng::with_seed(4242);
            let (mut offline, mut ranges, mut removed) = (0, 0, 0);
            while !done.load(Ordering::Relaxed) {
                // CPU 0 stays.
                let c = cpu(1 + random.u64(..u64::from(CPUS) - 1) as u16);
                if fh.cpu_offline(c).is_ok() {
                    offline += 1;
                    std::thread::yield_now();
                    fh.cpu_online(c).unwrap();
                }
                let target = range(BASE + random.u64(..frames - 2000), 1 + random.u64(..1500));
                if fh.alloc_contig_range(target, |_| false).is_ok() {
                    ranges += 1;
                    stamps.take(target.start, target.len(), 99);
                    stamps.give(target.start, target.len());
                    fh.here().free_range(target).unwrap();
                }
                let piece = range(BASE + 512 * random.u64(..frames / 512 - 3), 1024);
                if fh.remove_memory(piece).is_ok() {
                    removed += 1;
                    fh.add_memory(piece).unwrap();
                }
                if random.u64(..50) == 0 {
                    fh.drain_all();
                }
            }
            (offline, ranges, removed)
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|r| r.unwrap());
        plugger.join().unwrap()
    });
    assert!(offline > 0, "no CPU ever went");
    eprintln!(
        "{offline} CPUs went, {ranges} ranges were allocated, {removed} pieces of memory were removed"
    );
    for (pfn, n) in pool.into_inner().unwrap() {
        stamps.give(pfn, n);
        fh.on(cpu(0)).free_range(range(pfn.get(), n)).unwrap();
    }
    assert_all_free(&fh);
    assert_eq!(fh.zone_stats(0).unwrap().managed, frames);
    assert_eq!(fh.totals().late_double_frees, 0);
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
        fh.cpu_offline(c).unwrap();
        std::thread::yield_now();
        fh.cpu_online(c).unwrap();
        let piece = range(BASE + 512 * random.u64(..frames / 512 - 3), 1024);
        if fh.remove_memory(piece).is_ok() {
            fh.add_memory(piece).unwrap();
        }
        if random.u64(..40) == 0 {
            fh.drain_all();
        }
    }
}

/// More threads than cores and than CPUs, every call, everything coming and going.
#[test]
fn every_call_at_once_loses_nothing() {
    const CPUS: u16 = 5;
    let (threads, steps) = (8, if cfg!(miri) { 20 } else { length(10_000, 30_000) });
    for _ in 0..2 {
        let frames = 96 * MIB;
        let memory = [range(BASE, frames)];
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
        let zones = [zone];
        let fh = build(&Config { extra_ranges: 2, ..Config::new(CPUS, &zones) }, Membarrier::new());
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
