//! Real threads, every frame stamped with its owner: an overlap, a loss or a leak cannot go unseen.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::*;
use freehold::{Config, Freehold, Migratetype, Order, Pfn, Platform, Request, Watermarks, ZoneConfig};

const BASE: u64 = 512;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The owner of every frame: 0 = nobody.
struct Stamps(Vec<AtomicU32>);

impl Stamps {
    fn take(&self, pfn: Pfn, frames: u64, me: u32) {
        for f in pfn.get()..pfn.get() + frames {
            let before = self.0[(f - BASE) as usize].swap(me, Ordering::Relaxed);
            assert_eq!(before, 0, "frame {f:#x} of thread {before} was handed to thread {me} as well");
        }
    }
    fn give(&self, pfn: Pfn, frames: u64) {
        for f in pfn.get()..pfn.get() + frames {
            let before = self.0[(f - BASE) as usize].swap(0, Ordering::Relaxed);
            assert_ne!(before, 0, "frame {f:#x} was freed by somebody else");
        }
    }
}

fn worker<P: Platform>(
    fh: &Freehold<'_, P>,
    me: u16,
    threads: u16,
    steps: u32,
    stamps: &Stamps,
    pool: &Mutex<Vec<(Pfn, u64)>>,
) {
    let mut random = Random(0x9e37_79b9 + u64::from(me) * 7919);
    let mut held: Vec<(Pfn, u64)> = Vec::new();
    let owned = fh.own(cpu(me)).unwrap();
    let stamp = u32::from(me) + 1;
    for step in 0..steps {
        match random.below(100) {
            0..40 => {
                let o = [0, 0, 0, 0, 1, 2, 3, 5, 9][random.below(9) as usize];
                let request = Request::new(order(o), Migratetype::PCP[random.below(3) as usize]);
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
                let (pfn, frames) = held.swap_remove(random.below(held.len() as u64) as usize);
                // In pieces now and then.
                let first = if frames > 1 && random.below(3) == 0 { 1 + random.below(frames - 1) } else { frames };
                stamps.give(pfn, frames);
                owned.free_range(range(pfn.get(), first)).unwrap();
                if first < frames {
                    owned.free_range(range(pfn.get() + first, frames - first)).unwrap();
                }
            }
            70..80 if !held.is_empty() => {
                let chunk = held.swap_remove(random.below(held.len() as u64) as usize);
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
                let other = fh.on(cpu(random.below(u64::from(threads)) as u16));
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
            98 if random.below(8) == 0 => {
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

fn stress<P: Platform + Send>(platform: P, threads: u16, steps: u32, mib: u64) {
    let frames = mib * MIB;
    let memory = [range(BASE, frames)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(threads, &[zone]), platform);
    let stamps = Stamps((0..frames).map(|_| AtomicU32::new(0)).collect());
    let pool = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fh, stamps, pool, done) = (&fh, &stamps, &pool, &done);
        let workers: Vec<_> =
            (0..threads).map(|me| scope.spawn(move || worker(fh, me, threads, steps, stamps, pool))).collect();
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
        fh.free_range(range(pfn.get(), frames)).unwrap();
    }
    assert_all_free(&fh);
    let totals = fh.totals();
    assert_eq!(totals.cpus.late_double_frees, 0);
    assert!(totals.cpus.remote_frees > 0 && totals.cpus.collected_frames > 0);
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
    stress(Yielding, 4, if cfg!(miri) { 60 } else { 6_000 }, 96);
}

#[test]
fn threads_with_the_biased_lock_never_share_a_frame() {
    stress(Membarrier::new(), 4, if cfg!(miri) { 60 } else { 6_000 }, 96);
}

#[test]
fn sixteen_cpus_never_share_a_frame() {
    stress(Membarrier::new(), 16, if cfg!(miri) { 10 } else { 1_500 }, 512);
}
