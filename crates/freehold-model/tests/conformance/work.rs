//! Random calls of every kind on several threads, each of them told to the court.

use std::sync::Mutex;

use freehold::{
    AllocError, AllocFlags, CpuId, FrameRange, FreeError, Freehold, Migratetype, On, Order, Owned,
    Pfn, Platform, Request,
};
use freehold_model::judge::Task;

use crate::court::{Court, i_am};

/// A heavy barrier is nothing here: every access is made under one lock.
pub struct Host;

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn relax(&self) {
        std::thread::yield_now();
    }
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}

pub fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

/// What threads work on.
pub struct World<'a> {
    pub fh: &'a Freehold<'static, Host>,
    pub court: &'a Court,
    /// Where memory is that does not come and go, and a piece that does.
    pub memory: (u64, u64),
    pub extra: FrameRange,
    /// A CPU that comes and goes.
    pub visitor: CpuId,
    /// Chunks for others to free.
    pub pool: Mutex<Vec<(u64, u64)>>,
}

/// Calls on one CPU, by either handle.
enum Door<'a> {
    Owned(Owned<'a, 'static, Host>),
    On(On<'a, 'static, Host>),
}

macro_rules! through {
    ($door:expr, $handle:ident => $call:expr) => {
        match $door {
            Door::Owned($handle) => $call,
            Door::On($handle) => $call,
        }
    };
}

pub struct Worker<'a> {
    world: &'a World<'a>,
    cpu: CpuId,
    random: Random,
    held: Vec<(u64, u64)>,
}

fn got(result: &Result<Pfn, AllocError>, frames: u64) -> (bool, Vec<(u64, u64)>) {
    (result.is_ok(), result.iter().map(|pfn| (pfn.get(), frames)).collect())
}

impl<'a> Worker<'a> {
    pub fn new(world: &'a World<'a>, cpu: u16, seed: u64) -> Self {
        i_am(cpu + 1);
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { world, cpu: CpuId::new(cpu), random, held: Vec::new() }
    }

    /// So many calls, and everything is freed.
    pub fn run(mut self, calls: u64) {
        let fh = self.world.fh;
        let mut door = self.door(fh);
        for _ in 0..calls {
            if self.world.court.has_refused() {
                return;
            }
            self.one(&door);
            if self.random.below(400) == 0 {
                drop(door);
                door = self.door(fh);
            }
        }
        for (pfn, frames) in std::mem::take(&mut self.held) {
            self.free(&door, pfn, frames);
        }
    }

    fn door(&mut self, fh: &'a Freehold<'static, Host>) -> Door<'a> {
        match self.random.below(2) {
            0 => fh.own(self.cpu).map_or_else(|_| Door::On(fh.on(self.cpu)), Door::Owned),
            _ => Door::On(fh.on(self.cpu)),
        }
    }

    fn request(&mut self) -> (Request, u64) {
        let order =
            [0, 0, 0, 0, 0, 0, 1, 2, 3, 5, 6, 7, 8, 9, 9, 10][self.random.below(16) as usize];
        let kind = [
            Migratetype::Movable,
            Migratetype::Movable,
            Migratetype::Unmovable,
            Migratetype::Reclaimable,
        ][self.random.below(4) as usize];
        let request = Request::new(Order::new(order).unwrap(), kind);
        let (low, high) = self.world.memory;
        let request = match self.random.below(24) {
            0 => request.align(Order::new(order.max(4)).unwrap()),
            1 => request.below(Pfn::new((low + high) / 2 + self.random.below(500))),
            2 => request.from(Pfn::new((low + high) / 2)),
            3 => request.flags(AllocFlags::NO_LOCK),
            4 => request.flags(AllocFlags::HIGH_ATOMIC),
            5 => Request::new(Order::new(order).unwrap(), Migratetype::Movable)
                .flags(AllocFlags::CMA),
            _ => request,
        };
        (request, 1 << order)
    }

    fn one(&mut self, door: &Door<'_>) {
        let court = self.world.court;
        match self.random.below(1000) {
            0..430 => self.alloc(door),
            430..450 => self.alloc_bulk(door),
            450..700 => {
                if let Some((pfn, frames)) = self.any_held() {
                    self.free_in_parts(door, pfn, frames);
                }
            }
            700..780 => {
                let chunk = self.any_held();
                self.world.pool.lock().unwrap().extend(chunk);
            }
            780..900 => {
                let chunk = self.world.pool.lock().unwrap().pop();
                if let Some((pfn, frames)) = chunk {
                    self.free(door, pfn, frames);
                }
            }
            900..920 => self.free_bulk(door),
            920..940 => self.elsewhere(),
            940..970 => drop(court.call(
                Task::Other,
                &[],
                || through!(door, it => it.tick()),
                |_| (true, vec![]),
            )),
            970..980 => drop(court.call(
                Task::Other,
                &[],
                || through!(door, it => it.flush()),
                |_| (true, vec![]),
            )),
            980..984 => {
                court.call(Task::Other, &[], || self.world.fh.drain_all(), |()| (true, vec![]))
            }
            984..990 => self.take_range(),
            990..993 => self.plug(),
            993..997 if self.cpu.get() == 0 => self.plug_memory(),
            997 => self.eat(door),
            _ => {}
        }
    }

    fn any_held(&mut self) -> Option<(u64, u64)> {
        let n = self.held.len() as u64;
        (n != 0).then(|| self.held.swap_remove(self.random.below(n) as usize))
    }

    fn alloc(&mut self, door: &Door<'_>) {
        let (request, frames) = self.request();
        let call = || through!(door, it => it.alloc(request));
        let result = self.world.court.call(Task::Alloc, &[], call, |result| got(result, frames));
        self.held.extend(result.iter().map(|pfn| (pfn.get(), frames)));
    }

    fn alloc_bulk(&mut self, door: &Door<'_>) {
        let mut out = [Pfn::default(); 200];
        let wanted = 1 + self.random.below(200) as usize;
        let request = Request::new(Order::ZERO, Migratetype::Movable);
        let call = || {
            let n = through!(door, it => it.alloc_bulk(request, &mut out[..wanted])).unwrap_or(0);
            out[..n].iter().map(|pfn| (pfn.get(), 1)).collect::<Vec<_>>()
        };
        let found = self.world.court.call(Task::Alloc, &[], call, |found| (true, found.clone()));
        self.held.extend(found);
    }

    /// Frees frames that are in use; on a CPU that may go offline just then on this one.
    fn free(&mut self, door: &Door<'_>, pfn: u64, frames: u64) {
        let order =
            Order::fitting(frames).filter(|order| order.frames() == frames && pfn % frames == 0);
        let by_order = order.filter(|_| self.random.below(4) != 0);
        let call = || match by_order {
            Some(order) => through!(door, it => it.free(Pfn::new(pfn), order)),
            None => through!(door, it => it.free_range(range(pfn, frames))),
        };
        let result = self
            .world
            .court
            .call(Task::Free, &[(pfn, frames)], call, |result| (result.is_ok(), vec![]));
        assert!(result.is_ok() || self.world.court.has_refused(), "{pfn:#x}, {frames}: {result:?}");
    }

    fn free_in_parts(&mut self, door: &Door<'_>, pfn: u64, frames: u64) {
        let first = if frames > 1 && self.random.below(3) == 0 {
            1 + self.random.below(frames - 1)
        } else {
            frames
        };
        self.free(door, pfn, first);
        if first < frames {
            self.free(door, pfn + first, frames - first);
        }
    }

    fn free_bulk(&mut self, door: &Door<'_>) {
        let (singles, rest): (Vec<_>, Vec<_>) =
            self.held.drain(..).partition(|&(_, frames)| frames == 1);
        self.held = rest;
        let mut frames: Vec<Pfn> = singles.iter().map(|&(pfn, _)| Pfn::new(pfn)).collect();
        if self.random.below(2) == 0 {
            frames.sort();
        }
        let call = || through!(door, it => it.free_bulk(&frames));
        let result =
            self.world.court.call(Task::Free, &singles, call, |result| (result.is_ok(), vec![]));
        assert!(result.is_ok() || self.world.court.has_refused(), "{result:?}");
    }

    /// On another CPU than its own, which may be offline.
    fn elsewhere(&mut self) {
        let cpu = CpuId::new(self.random.below(self.world.fh.cpu_count() as u64) as u16);
        let other = self.world.fh.on(cpu);
        let (request, frames) = self.request();
        let result = self.world.court.call(
            Task::Alloc,
            &[],
            || other.alloc(request),
            |result| got(result, frames),
        );
        self.held.extend(result.iter().map(|pfn| (pfn.get(), frames)));
        if let Some((pfn, frames)) = self.any_held() {
            let call = || match other.free_range(range(pfn, frames)) {
                Err(FreeError::CpuOffline { .. }) => {
                    self.world.fh.on(self.cpu).free_range(range(pfn, frames))
                }
                result => result,
            };
            let result = self
                .world
                .court
                .call(Task::Free, &[(pfn, frames)], call, |result| (result.is_ok(), vec![]));
            assert!(result.is_ok() || self.world.court.has_refused(), "{result:?}");
        }
    }

    /// Frees what another thread frees at the same moment, while nobody allocates: one of the two
    /// is told that it is free, or the host hears of it later. Each chunk in so many parts, or
    /// fewer.
    pub fn race(mut self, chunks: &[(u64, u64)], parts: u64) {
        let fh = self.world.fh;
        let door = self.door(fh);
        for &(start, frames) in chunks {
            let (mut at, end) = (start, start + frames);
            while at < end {
                let frames = if parts > 1 {
                    1 + self.random.below((end - at).min(2 * frames / parts + 1))
                } else {
                    frames
                };
                self.free_maybe(&door, at, frames);
                at += frames;
            }
        }
    }

    /// Frees frames of which some may have been freed by others.
    fn free_maybe(&mut self, door: &Door<'_>, pfn: u64, frames: u64) {
        let order =
            Order::fitting(frames).filter(|order| order.frames() == frames && pfn % frames == 0);
        let call = || match order.filter(|_| self.random.below(4) != 0) {
            Some(order) => through!(door, it => it.free(Pfn::new(pfn), order)),
            None => through!(door, it => it.free_range(range(pfn, frames))),
        };
        let _ = self
            .world
            .court
            .call(Task::Free, &[(pfn, frames)], call, |result| (result.is_ok(), vec![]));
    }

    fn take_range(&mut self) {
        let (low, high) = self.world.memory;
        let frames = 1 + self.random.below(1500);
        let start = low + self.random.below(high - low - frames);
        let call = || self.world.fh.alloc_contig_range(range(start, frames), |_| false);
        let outcome = |result: &Result<(), AllocError>| {
            (result.is_ok(), if result.is_ok() { vec![(start, frames)] } else { vec![] })
        };
        if self.world.court.call(Task::Alloc, &[], call, outcome).is_ok() {
            self.held.push((start, frames));
        }
    }

    fn plug(&mut self) {
        let (fh, cpu) = (self.world.fh, self.world.visitor);
        let online = fh.is_online(cpu);
        let call = || if online { fh.cpu_offline(cpu) } else { fh.cpu_online(cpu) };
        let _ = self.world.court.call(Task::Other, &[], call, |_| (true, vec![]));
    }

    fn plug_memory(&mut self) {
        let (fh, extra) = (self.world.fh, self.world.extra);
        let frames = [(extra.start.get(), extra.end.get() - extra.start.get())];
        // It may be in use, or gone.
        let court = self.world.court;
        let _ = court.call(
            Task::Remove,
            &frames,
            || fh.remove_memory(extra),
            |result| (result.is_ok(), vec![]),
        );
        if self.random.below(2) == 0 {
            let _ = court.call(
                Task::Add,
                &frames,
                || fh.add_memory(extra),
                |result| (result.is_ok(), vec![]),
            );
        }
    }

    /// All that there is.
    fn eat(&mut self, door: &Door<'_>) {
        let order = Order::new([0, 3, 9][self.random.below(3) as usize]).unwrap();
        let request = Request::new(order, Migratetype::Movable);
        let mut mine = Vec::new();
        while mine.len() < 3000 && !self.world.court.has_refused() {
            let call = || through!(door, it => it.alloc(request));
            let result =
                self.world.court.call(Task::Alloc, &[], call, |result| got(result, order.frames()));
            let Ok(pfn) = result else { break };
            mine.push((pfn.get(), order.frames()));
        }
        for (pfn, frames) in mine {
            self.free(door, pfn, frames);
        }
    }
}
