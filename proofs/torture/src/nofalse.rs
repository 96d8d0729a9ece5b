//! False failures: each thread has at most so many chunks, and more are free than all can have at
//! once. Whatever the others are about to do, a request may not fail.
//!
//! With boxes each thread leaves half of its chunks for another one to free, so that a chunk may be
//! held, in a box, or on its way to be freed. The free chunks lie side by side, where threads meet
//! in the same words, or scattered (`--scatter`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use freehold::{
    AllocError, AllocFlags, Config, CpuId, FrameRange, Migratetype, Order, Pfn, Request,
    Watermarks, ZoneConfig,
};
use serde_json::{Value, json};

use crate::cli::By;
use crate::exact::handle::Handle;
use crate::exact::ledger::{Ledger, POOL};
use crate::exact::machine::range;
use crate::exact::platform::{Core, core};
use crate::exact::random::Random;
use crate::stops;

#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    order: u8,
    /// Threads are stopped for so many us at most; 0 for none.
    #[arg(long, default_value_t = 0)]
    stops: u64,
    /// A min mark that is kept besides.
    #[arg(long, default_value_t = 0)]
    mark: u64,
    #[arg(long, value_enum, default_value = "own")]
    by: By,
    /// The free chunks are scattered.
    #[arg(long)]
    scatter: bool,
    /// Chunks that are free beside those that may be needed.
    #[arg(long, default_value_t = 0)]
    more: u64,
    /// Each thread has up to so many, and frees them itself: no boxes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    hold: Option<u64>,
}

/// What the threads share.
struct Case {
    fh: &'static Core,
    ledger: Ledger,
    order: Order,
    hold: usize,
    boxes: Vec<AtomicU64>,
    stop: AtomicBool,
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Of one request that failed: tries until it succeeded.
    most_tries: AtomicU64,
    slowest_ms: AtomicU64,
}

impl Case {
    fn chunk(&self, pfn: u64) -> FrameRange {
        range(pfn, self.order.frames())
    }
}

/// All chunks of a fresh machine are taken, and those that are to be free given back.
fn build(given: &Arguments) -> Result<Case, String> {
    let order = Order::new(given.order).ok_or("no such order")?;
    let (size, threads) = (order.frames(), u64::from(given.threads));
    // In boxes: held, in a box, and on its way to be freed, but for the thread that asks.
    let needed = given.hold.map_or(3 * threads - 1, |hold| hold * threads);
    let chunks = needed + given.more;
    let blocks = (chunks * size * 3 / 512 + 60).next_multiple_of(8);
    let memory = [FrameRange::new(Pfn::new(512), 512 * blocks).ok_or("too much memory")?];
    let watermarks = match given.mark {
        0 => Watermarks::None,
        min => Watermarks::Frames { min, low: min + 10, high: min + 20 },
    };
    let zones = [ZoneConfig { watermarks, ..ZoneConfig::new(&memory) }];
    let fh = core(&Config::new(given.threads + 1, &zones), true).map_err(|e| e.to_string())?;
    let last = fh.on(CpuId::new(given.threads));
    let take_all = |order| {
        let request = Request::new(order, Migratetype::Movable).flags(AllocFlags::NO_WATERMARKS);
        std::iter::from_fn(|| last.alloc(request).ok()).map(Pfn::get).collect::<Vec<_>>()
    };
    let mut all = take_all(order);
    take_all(Order::ZERO);
    all.sort_unstable();
    // The frames of the mark are chunks, too, so that any of them may be used.
    let free = chunks + given.mark.div_ceil(size);
    let step = if given.scatter { all.len() as u64 / free } else { 1 };
    for n in 0..free {
        let pfn = *all.get((n * step) as usize).ok_or("too few chunks")?;
        last.free(Pfn::new(pfn), order).map_err(|error| error.to_string())?;
    }
    last.flush().map_err(|error| error.to_string())?;
    let count = || AtomicU64::new(0);
    Ok(Case {
        fh,
        ledger: Ledger::new(512, 512 * (blocks + 1)),
        order,
        hold: given.hold.unwrap_or(1) as usize,
        boxes: (0..given.threads * u16::from(given.hold.is_none())).map(|_| count()).collect(),
        stop: AtomicBool::new(false),
        succeeded: count(),
        failed: count(),
        most_tries: count(),
        slowest_ms: count(),
    })
}

struct Thread {
    case: &'static Case,
    number: u16,
    handle: Handle,
    random: Random,
    held: Vec<u64>,
}

impl Thread {
    fn name(&self) -> u32 {
        u32::from(self.number) + 1
    }

    fn alloc(&mut self) {
        let kinds =
            if self.number.is_multiple_of(3) { &Migratetype::PCP[1..2] } else { &Migratetype::PCP };
        let mut request = Request::new(self.case.order, self.random.pick(kinds));
        // Limits and flags that change nothing.
        request = match self.random.below(12) {
            0 => request.from(Pfn::new(1)),
            1 => request.flags(AllocFlags::NON_BLOCK),
            2 => request.below(Pfn::new(1 << 39)),
            3 => request.flags(AllocFlags::NO_FRAGMENT),
            _ => request,
        };
        let begun = Instant::now();
        let mut tries = 0;
        let pfn = loop {
            match self.handle.alloc(request) {
                Ok(pfn) => break pfn,
                Err(AllocError::NoMemory { .. }) if !self.case.ledger.is_trouble() => {
                    tries += 1;
                    // Relaxed, as all counts here: read once the threads have ended.
                    self.case.failed.fetch_add(u64::from(tries == 1), Ordering::Relaxed);
                    if self.case.stop.load(Ordering::Relaxed) {
                        return self
                            .case
                            .ledger
                            .tell(format!("{request:?}: none in {tries} tries"));
                    }
                }
                Err(error) => return self.case.ledger.tell(format!("{request:?}: {error}")),
            }
        };
        let took = begun.elapsed().as_millis() as u64;
        self.case.slowest_ms.fetch_max(took, Ordering::Relaxed);
        self.case.most_tries.fetch_max(tries, Ordering::Relaxed);
        self.case.succeeded.fetch_add(1, Ordering::Relaxed);
        self.case.ledger.take(self.case.chunk(pfn.get()), self.name());
        self.held.push(pfn.get());
    }

    /// Frees a chunk whole, or in two parts.
    fn free(&mut self, pfn: u64) {
        let chunk = self.case.chunk(pfn);
        self.case.ledger.give(chunk, self.name());
        let result = if chunk.len() > 1 && self.random.percent(20) {
            let first = 1 + self.random.below(chunk.len() - 1);
            let rest = range(pfn + first, chunk.len() - first);
            self.handle.free_range(range(pfn, first)).and(self.handle.free_range(rest))
        } else {
            self.handle.free(Pfn::new(pfn), self.case.order)
        };
        if let Err(error) = result {
            self.case.ledger.tell(format!("a right free was refused: {error}"));
        }
    }

    /// Leaves a chunk for another thread, where its box is empty.
    fn leave(&mut self) {
        let Some(&pfn) = self.held.last() else { return };
        let own = &self.case.boxes[usize::from(self.number)];
        self.case.ledger.pass(self.case.chunk(pfn), self.name(), POOL);
        if own.compare_exchange(0, pfn, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.held.pop();
        } else {
            self.case.ledger.pass(self.case.chunk(pfn), POOL, self.name());
        }
    }

    fn free_of_box(&mut self) {
        let all = &self.case.boxes;
        let pfn = all[self.random.below(all.len() as u64) as usize].swap(0, Ordering::AcqRel);
        if pfn != 0 {
            self.case.ledger.pass(self.case.chunk(pfn), POOL, self.name());
            self.free(pfn);
        }
    }

    fn run(&mut self) {
        let mut steps = 0;
        while !self.case.stop.load(Ordering::Relaxed) && !self.case.ledger.is_trouble() {
            steps += 1;
            let has_boxes = !self.case.boxes.is_empty();
            if self.held.len() < self.case.hold && (has_boxes || self.random.percent(50)) {
                self.alloc();
            } else if has_boxes && self.random.percent(50) {
                self.leave();
            } else if !self.held.is_empty() {
                let n = self.random.below(self.held.len() as u64) as usize;
                let pfn = self.held.swap_remove(n);
                self.free(pfn);
            }
            if has_boxes && self.random.percent(50) {
                self.free_of_box();
            }
            if steps % 997 == 0 {
                let _ = self.handle.tick();
            }
        }
        while let Some(pfn) = self.held.pop() {
            self.free(pfn);
        }
    }
}

fn start(case: &'static Case, number: u16, by: By) -> thread::JoinHandle<()> {
    let own = by == By::Own || by == By::Mix && number.is_multiple_of(2);
    thread::spawn(move || {
        let cpu = CpuId::new(number);
        let handle = if own {
            Handle::Owned(case.fh.own(cpu).expect("nobody else owns it"))
        } else {
            Handle::On(case.fh.on(cpu))
        };
        let random = Random::new(u64::from(number) + 1);
        let mut thread = Thread { case, number, handle, random, held: Vec::new() };
        stops::stoppable(|| thread.run());
    })
}

/// Plays it.
pub(crate) fn run(given: &Arguments) -> Value {
    let case: &'static Case = match build(given) {
        Ok(case) => Box::leak(Box::new(case)),
        Err(error) => return json!({ "troubles": [error] }),
    };
    let threads: Vec<_> = (0..given.threads).map(|n| start(case, n, given.by)).collect();
    let over = || case.stop.load(Ordering::Relaxed);
    let stopper =
        (given.stops > 0).then(|| stops::stop_threads(Duration::from_micros(given.stops), over));
    thread::sleep(Duration::from_secs(given.seconds));
    case.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        if thread.join().is_err() {
            case.ledger.tell("a thread has panicked".to_owned());
        }
    }
    let stopped = stopper.map_or(0, |stopper| stopper.join().unwrap_or_default());
    let mut troubles = case.ledger.troubles();
    troubles.extend(case.fh.validate().err().map(|broken| broken.to_string()));
    let late = case.fh.totals().late_double_frees;
    if late > 0 {
        troubles.push(format!("{late} right frees were told as double ones"));
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let failed = count(&case.failed);
    if failed > 0 {
        troubles.push(format!("{failed} requests failed, and there was always a free chunk"));
    }
    json!({
        "troubles": troubles, "succeeded": count(&case.succeeded), "failed": failed,
        "most_tries": count(&case.most_tries), "slowest_ms": count(&case.slowest_ms),
        "stops": stopped,
    })
}

#[test]
fn a_request_that_always_fails_ends_with_the_time() {
    let given = Arguments {
        seconds: 0,
        threads: 1,
        order: 0,
        stops: 0,
        mark: 0,
        by: By::On,
        scatter: false,
        more: 0,
        hold: None,
    };
    let case: &'static Case = Box::leak(Box::new(build(&given).unwrap()));
    case.stop.store(true, Ordering::Relaxed);
    let handle = Handle::On(case.fh.on(CpuId::new(0)));
    let random = Random::new(1);
    let mut thread = Thread { case, number: 0, handle, random, held: Vec::new() };
    for _ in 0..3 {
        thread.alloc();
    }
    assert!(thread.held.len() < 3 && case.ledger.troubles()[0].contains("in 1 tries"));
}
