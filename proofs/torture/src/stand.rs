//! One thread stands still at a random instruction of a call. The others must get all memory but
//! what it holds, what its call is about and one block more, and may wait for nothing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{
    AllocFlags, Config, CpuId, FrameRange, Frames, Migratetype, Order, Pfn, Request, Watermarks,
    ZoneConfig,
};
use serde_json::{Value, json};

use crate::exact::machine::range;
use crate::exact::platform::{self, Core, core};
use crate::exact::random::Random;
use crate::stops;

/// What the thread that is stopped says of itself.
#[derive(Default)]
struct Victim {
    begun: AtomicBool,
    over: AtomicBool,
    /// Frames that it has, and that its call is about.
    held: AtomicU64,
    about: AtomicU64,
}

/// The most frames that may be hidden beside those: a block.
const HIDDEN: i64 = 512;
/// The victim has no more than this, about.
const MOST: u64 = 9_000;

#[derive(Default)]
struct Found {
    stops: u64,
    most_hidden: i64,
    most_waits: u64,
    troubles: Vec<String>,
}

fn order(n: u8) -> Order {
    Order::new(n).expect("in range")
}

fn request(n: u8, random: &mut Random) -> Request {
    Request::new(order(n), random.pick(&Migratetype::PCP))
}

/// Allocates and frees; what it has in the end.
fn live(fh: &'static Core, says: &Victim, owns: bool, seed: u64) -> Vec<FrameRange> {
    let cpu = CpuId::new(0);
    let own = owns.then(|| fh.own(cpu).expect("nobody else owns it"));
    let frames: &dyn Frames = match &own {
        Some(owned) => owned,
        None => &fh.on(cpu),
    };
    let mut random = Random::new(seed);
    // No growing later: a thread that is stopped in the system's malloc keeps others out.
    let mut held = Vec::with_capacity(MOST as usize + 1024);
    says.begun.store(true, Ordering::SeqCst);
    while !says.over.load(Ordering::Relaxed) {
        if held.is_empty() || says.held.load(Ordering::Relaxed) < MOST && random.percent(52) {
            let n = random.pick(&[0, 0, 1, 3, 5, 6, 7, 8, 9, 9, 10]);
            let flags = if owns { AllocFlags::empty() } else { AllocFlags::NO_LOCK };
            says.about.store(1 << n, Ordering::SeqCst);
            if let Ok(pfn) = frames.alloc(request(n, &mut random).flags(flags)) {
                says.held.fetch_add(1 << n, Ordering::SeqCst);
                held.push(range(pfn.get(), 1 << n));
            }
        } else {
            let freed: FrameRange = held.swap_remove(random.below(held.len() as u64) as usize);
            says.about.store(freed.len(), Ordering::SeqCst);
            says.held.fetch_sub(freed.len(), Ordering::SeqCst);
            frames.free_range(freed).expect("a right free");
        }
        says.about.store(0, Ordering::SeqCst);
    }
    held
}

/// The other CPUs, which this thread calls through.
struct Others {
    fh: &'static Core,
    frames: u64,
    random: Random,
    held: Vec<FrameRange>,
}

impl Others {
    fn free(&self, range: FrameRange) {
        let cpu = CpuId::new(1 + (range.start.get() % 2) as u16);
        self.fh.on(cpu).free_range(range).expect("a right free");
    }

    fn churn(&mut self) {
        for _ in 0..self.random.below(3000) {
            if self.held.len() < 3000 && self.random.percent(55) {
                let n = self.random.pick(&[0, 0, 1, 3, 5, 6, 7, 8, 9]);
                let request = request(n, &mut self.random).flags(AllocFlags::NO_LOCK);
                if let Ok(pfn) = self.fh.on(CpuId::new(1)).alloc(request) {
                    self.held.push(range(pfn.get(), 1 << n));
                }
            } else if !self.held.is_empty() {
                let n = self.random.below(self.held.len() as u64) as usize;
                let range = self.held.swap_remove(n);
                self.free(range);
            }
        }
    }

    /// Takes all there is, and gives it back.
    fn take_all(&mut self, says: &Victim, found: &mut Found) {
        found.stops += 1;
        let before = platform::counts().0;
        while let Some(range) = self.held.pop() {
            self.free(range);
        }
        let mut all = Vec::new();
        for (cpu, n) in [1, 2, 1, 2].into_iter().flat_map(|cpu| [9, 8, 6, 3, 0].map(|n| (cpu, n))) {
            for kind in Migratetype::PCP {
                let request = Request::new(order(n), kind).flags(AllocFlags::NO_LOCK);
                let on = self.fh.on(CpuId::new(cpu));
                all.extend(std::iter::from_fn(|| on.alloc(request).ok()).map(|pfn| (pfn, n)));
            }
        }
        let got: u64 = all.iter().map(|(_, n)| 1 << n).sum();
        let (held, about) = (says.held.load(Ordering::SeqCst), says.about.load(Ordering::SeqCst));
        let hand = self.fh.on(CpuId::new(0)).holdings().map_or(0, |(frames, _)| frames);
        let hidden =
            self.frames as i64 - [got, held, hand, about].map(|n| n as i64).iter().sum::<i64>();
        found.most_hidden = found.most_hidden.max(hidden);
        if hidden > HIDDEN {
            found.troubles.push(format!(
                "{hidden} frames are hidden beside {held} held, {hand} in hand, a call of {about}"
            ));
        }
        let mut seen = HashSet::new();
        for &(pfn, n) in &all {
            let twice = (pfn.get()..pfn.get() + (1 << n)).find(|&frame| !seen.insert(frame));
            found.troubles.extend(twice.map(|frame| format!("{frame:#x} was handed out twice")));
            self.free(range(pfn.get(), 1 << n));
        }
        let waits = platform::counts().0 - before;
        found.most_waits = found.most_waits.max(waits);
        if waits > 0 {
            found.troubles.push(format!("{waits} turns of waits for a thread that stands still"));
        }
    }
}

/// A machine, a victim, and up to four stops.
fn round(random: &mut Random, found: &mut Found) -> Result<(), freehold::ConfigError> {
    let blocks = 60 + random.below(80);
    let memory = [FrameRange { start: Pfn::new(512 * 3), end: Pfn::new(512 * (3 + blocks)) }];
    let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
    let fh = core(&Config::new(4, &zones), true)?;
    let says: &'static Victim = Box::leak(Box::default());
    let (owns, seed) = (random.percent(50), random.below(u64::MAX));
    let victim = thread::spawn(move || stops::stoppable(|| live(fh, says, owns, seed)));
    while !says.begun.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let random_of_others = Random::new(seed ^ 1);
    let mut others =
        Others { fh, frames: 512 * blocks, random: random_of_others, held: Vec::new() };
    for _ in 0..1 + random.below(4) {
        others.churn();
        stops::while_it_stands(|| others.take_all(says, found));
    }
    says.over.store(true, Ordering::SeqCst);
    let held = victim.join().unwrap_or_else(|_| {
        found.troubles.push("the thread has panicked".to_owned());
        Vec::new()
    });
    held.into_iter()
        .chain(others.held.drain(..).collect::<Vec<_>>())
        .for_each(|range| others.free(range));
    fh.drain_all();
    found.troubles.extend(fh.validate().err().map(|broken| broken.to_string()));
    if let Some(stats) = fh.zone_stats(0).filter(|stats| stats.whole_blocks != blocks) {
        found
            .troubles
            .push(format!("{} of {blocks} blocks are whole in the end", stats.whole_blocks));
    }
    Ok(())
}

/// Plays rounds for so long.
pub(crate) fn run(seconds: u64, seed: u64) -> Value {
    stops::install();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut random, mut found) = (Random::new(seed), Found::default());
    while Instant::now() < until && found.troubles.is_empty() {
        if let Err(error) = round(&mut random, &mut found) {
            found.troubles.push(error.to_string());
        }
    }
    json!({
        "troubles": found.troubles, "stops": found.stops, "most_hidden": found.most_hidden,
        "most_waits": found.most_waits,
    })
}
