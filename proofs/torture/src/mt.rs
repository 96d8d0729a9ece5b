//! Several threads make every call on one machine, near the end of memory, and may be stopped
//! anywhere. A ledger has each frame's owner: a frame that is handed out twice, or freed while in
//! use, is seen at once. One of the threads has CPUs, memory and watermarks come and go. In the end
//! all is freed, and all memory must be where it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::exact::case::{Books, Case, Counts, Share};
use crate::exact::ledger::Ledger;
use crate::exact::machine::Machine;
use crate::exact::random::Random;
use crate::stops;

/// Steps between two changes of the watermarks.
const MARKS: u64 = 200;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Machines.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// How long there are calls on each.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    millis: u64,
    /// Threads are stopped for so many us at most; 0 for none.
    #[arg(long, default_value_t = 0)]
    stops: u64,
    /// Plant a fault, to see that it is noticed.
    #[arg(long, hide = true)]
    plant: Option<Plant>,
}

/// A fault of a thread's own, in place of one of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Plant {
    /// Frames are freed while their thread goes on using them.
    UseAfterFree,
    /// Frames are freed twice.
    DoubleFree,
    /// Frames are entered in the name of another thread.
    WrongOwner,
    /// Frames are never freed.
    Leak,
    /// Every bound is taken for half of what it is.
    SmallBound,
}

/// Does it, where the thread has something to do it with.
fn do_wrong(case: &mut Case, plant: Plant) -> bool {
    let Some(range) = case.held.pop() else { return false };
    let Books::Share(Share { ledger, who, .. }) = case.books else { return false };
    match plant {
        // It stays in the ledger, and is handed out to somebody else.
        Plant::UseAfterFree => {
            let _ = case.fh.here().free_range(range);
        }
        Plant::DoubleFree => {
            let _ = case.fh.here().free_range(range);
            if let Err(error) = case.fh.here().free_range(range) {
                ledger.tell(format!("a free was refused: {error}"));
            }
        }
        Plant::WrongOwner => {
            ledger.pass(range, who, who + 1);
            case.held.push(range);
        }
        Plant::Leak => {}
        Plant::SmallBound => {
            case.halved = true;
            case.held.push(range);
        }
    }
    true
}

/// All that a thread does.
fn live(
    case: &mut Case,
    plugs: bool,
    mut plant: Option<Plant>,
    is_over: impl Fn() -> bool,
) -> Result<(), String> {
    while !is_over() {
        case.step()?;
        if plugs && case.counts.steps.is_multiple_of(MARKS) {
            case.set_watermarks()?;
            // While others call only what a free cannot change is sure, so nothing is made of it.
            let _ = case.fh.validate();
        }
        if plant.is_some_and(|plant| do_wrong(case, plant)) {
            plant = None;
        }
    }
    case.bring_all_back()?;
    case.free_all()
}

/// Blocks of a zone all of which is free. CMA that was away is ordinary memory, so that whole
/// blocks of ordinary types become more.
fn free_blocks(machine: &Machine, zone: usize) -> u64 {
    machine.fh.zone_blocks(zone).map_or(0, |blocks| blocks.free_blocks)
}

/// What the threads of a machine share.
#[derive(Clone, Copy)]
struct Storm {
    machine: &'static Machine,
    ledger: &'static Ledger,
    pool: &'static Mutex<Vec<freehold::FrameRange>>,
    seed: u64,
}

impl Storm {
    fn share(self, number: u32) -> Share {
        Share { ledger: self.ledger, pool: self.pool, who: number + 1, plugs: number == 0 }
    }

    fn spawn(self, number: u32, plant: Option<Plant>, end: &Arc<AtomicBool>) -> JoinHandle<Counts> {
        let end = Arc::clone(end);
        thread::spawn(move || {
            let random = Random::new(self.seed << 20 | u64::from(number));
            let mut case = Case::new(self.machine, Books::Share(self.share(number)), random);
            let is_over = || end.load(Ordering::Acquire) || self.ledger.is_trouble();
            let plant = plant.filter(|_| number == 1);
            let lived = stops::stoppable(|| live(&mut case, number == 0, plant, is_over));
            lived.unwrap_or_else(|wrong| self.ledger.tell(wrong));
            case.counts
        })
    }

    /// After everybody has freed all: everything is home.
    fn end(self, whole: &[u64]) -> Result<(), String> {
        let fh = self.machine.fh;
        let share = self.share(0);
        while let Some(range) = share.take_over() {
            self.ledger.give(range, share.who);
            let freed = fh.here().free_range(range);
            freed.map_err(|error| format!("a right free of {range}: {error}"))?;
        }
        fh.validate().map_err(|broken| format!("in the end: {broken}"))?;
        fh.drain_all();
        fh.validate().map_err(|broken| format!("after draining: {broken}"))?;
        for (zone, memory) in self.machine.zones.iter().enumerate() {
            let stats = fh.zone_stats(zone).ok_or("no statistics of a zone")?;
            let blocks = free_blocks(self.machine, zone);
            let now = [stats.managed, stats.free, stats.free_in_zone, blocks];
            let then = [memory.frames(), memory.frames(), memory.frames(), whole[zone]];
            if now != then {
                return Err(format!(
                    "zone {zone}: managed, free, free in zone, free blocks are {now:?} in the \
                     end, and were {then:?}; {} frames are in use",
                    self.ledger.owned()
                ));
            }
        }
        match (fh.totals().late_double_frees, self.ledger.owned()) {
            (0, 0) => Ok(()),
            (late, owned) => Err(format!(
                "{late} right frees were told as double ones, {owned} frames are in use"
            )),
        }
    }
}

/// The machine of a seed, and its threads; how many calls were made.
fn run_one(given: &Arguments, seed: u64) -> Result<u64, Vec<String>> {
    let mut random = Random::new(seed);
    let cpus = random.pick(&[2, 3, 4, 8, 40]);
    let machine = Machine::new(&mut random, cpus, &[6, 12, 30, 64, 90, 140]);
    let machine: &'static Machine = Box::leak(Box::new(machine.map_err(|error| vec![error])?));
    let whole: Vec<u64> = (0..machine.zones.len()).map(|zone| free_blocks(machine, zone)).collect();
    let span = machine.span();
    let ledger = Box::leak(Box::new(Ledger::new(span.start.get(), span.end.get())));
    let storm = Storm { machine, ledger, pool: Box::leak(Box::default()), seed };
    let end = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2 + random.below(5) as u32)
        .map(|number| storm.spawn(number, given.plant, &end))
        .collect();
    let stopper = (given.stops > 0).then(|| {
        let end = Arc::clone(&end);
        stops::stop_threads(Duration::from_micros(given.stops), move || end.load(Ordering::Acquire))
    });
    thread::sleep(Duration::from_millis(given.millis));
    end.store(true, Ordering::Release);
    let mut all = Counts::default();
    for thread in threads {
        match thread.join() {
            Ok(counts) => all.add(&counts),
            Err(_) => storm.ledger.tell("a thread has panicked".to_owned()),
        }
    }
    stopper.map(JoinHandle::join);
    // After a fault what is left over has been told already.
    if !storm.ledger.is_trouble() {
        storm.end(&whole).unwrap_or_else(|wrong| storm.ledger.tell(wrong));
    }
    let troubles = storm.ledger.troubles();
    if troubles.is_empty() { Ok(all.calls) } else { Err(troubles) }
}

/// Plays the machines of these seeds; ends with the first on which something is wrong.
pub(crate) fn run(given: &Arguments) -> Value {
    let mut calls = 0;
    for seed in given.first..given.first + given.seeds {
        match run_one(given, seed) {
            Ok(made) => calls += made,
            Err(troubles) => return json!({ "troubles": troubles, "seed": seed }),
        }
    }
    json!({ "troubles": [], "machines": given.seeds, "calls": calls })
}
