//! A soak from its beginning to its end.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use freehold::ConfigError;

use super::cores::Cores;
use super::plugger::Plugger;
use super::report::{Report, Stops};
use super::tally::Tally;
use super::watch::{Watchdog, tell_all};
use super::worker::Worker;
use super::world::World;
use super::{Plan, aged, checks, stops};

/// How often the watchdog looks.
const TURN: Duration = Duration::from_millis(50);
/// Long enough for a waiting thread to take a turn.
const A_WHILE: Duration = Duration::from_secs(1);
/// How often everybody pauses for a check.
const PAUSE: Duration = Duration::from_millis(1500);
/// The share of the time in which one thread runs alone.
const ALONE: u32 = 16;

/// Rounds between two changes of CPUs and memory while one thread runs alone; such turns in a tide,
/// and until all is freed.
const ALONE_ROUNDS: u32 = 12;
const ALONE_TIDE: u64 = 16;
const ALONE_EMPTY: u64 = 7;

/// What the threads have to tell in the end.
#[derive(Default)]
struct Told {
    calls: Tally,
    stops: Stops,
    /// How often everybody has paused.
    pauses: u64,
}

impl Told {
    fn of_calls(calls: Tally) -> Self {
        Self { calls, ..Self::default() }
    }

    fn add(&mut self, other: &Self) {
        self.calls.add(&other.calls);
        self.stops.threads += other.stops.threads;
        self.stops.in_call += other.stops.in_call;
        self.pauses += other.pauses;
    }
}

/// Runs a soak; `progress` is told how long it has run and how many calls have been made.
///
/// A thread whose call does not end cannot be got rid of: after a run that ended so the program
/// should, too.
///
/// # Errors
///
/// Where there is no such machine.
pub fn run(
    plan: Plan,
    stop: &AtomicBool,
    mut progress: impl FnMut(Duration, u64),
) -> Result<Report, ConfigError> {
    let world = World::build(plan)?;
    let aged = aged::age(world);
    let begun = Instant::now();
    let mut watchdog = Watchdog::new(world.posts.len(), TURN, world.plan.patience);
    let mut stuck = Vec::new();
    let cores = Cores::new();
    let mut look = |stuck: &mut Vec<String>| {
        std::thread::sleep(TURN);
        if watchdog.is_waiting() {
            cores.pass(|| ());
        }
        if let Some(what) = watchdog.look(&world.posts) {
            stuck.push(what);
            stuck.extend(tell_all(&world.posts, || std::thread::sleep(A_WHILE)));
        }
        progress(begun.elapsed(), watchdog.calls);
        stuck.is_empty()
    };

    let until = begun + world.plan.time / ALONE;
    let alone = vec![std::thread::spawn(move || alone(world, until))];
    let alone = wait(world, alone, || look(&mut stuck), || false).calls;
    checks::bounds(world, &alone, true);

    let mut storm = Told::default();
    if stuck.is_empty() && !world.books.is_trouble() {
        let time_is_up = || begun.elapsed() >= world.plan.time || stop.load(Ordering::Relaxed);
        storm = wait(world, spawn_all(world), || look(&mut stuck), time_is_up);
    }
    let Told { calls: storm, stops, pauses } = storm;
    if stuck.is_empty() {
        checks::bounds(world, &storm, false);
        let mut all = storm.clone();
        all.add(&alone);
        all.add(&aged);
        // After a fault what is left over has been told already.
        if !world.books.is_trouble() {
            free_pool(world, &mut all);
            checks::end(world, &all);
        }
    }
    Ok(Report::new(world, (&alone, &storm), (stops, pauses), stuck, begun.elapsed()))
}

/// Waits for all threads, and tells them when it is over; leaves them behind where one of them is
/// stuck.
fn wait(
    world: &'static World,
    threads: Vec<JoinHandle<Told>>,
    mut look: impl FnMut() -> bool,
    time_is_up: impl Fn() -> bool,
) -> Told {
    let mut told = Told::default();
    while !threads.iter().all(JoinHandle::is_finished) {
        if time_is_up() || threads.iter().any(JoinHandle::is_finished) && world.books.is_trouble() {
            world.end.store(true, Ordering::Release);
        }
        if !look() {
            world.end.store(true, Ordering::Release);
            return told;
        }
    }
    for thread in threads {
        match thread.join() {
            Ok(one) => told.add(&one),
            // What it says has been printed already.
            Err(_) => world.books.tell("a thread has panicked".to_owned()),
        }
    }
    told
}

/// One thread makes every call. The time says only when it ends: the same seed makes the same
/// calls.
fn alone(world: &'static World, until: Instant) -> Told {
    let mut worker = Worker::new(world, 0, true);
    let mut plugger = Plugger::new(world, true);
    let over = || Instant::now() >= until || world.is_over();
    let mut turns = 0;
    while !over() {
        world.set_tide(turns / ALONE_TIDE);
        turns += 1;
        let rounds = Cell::new(0);
        worker.run(|| rounds.replace(rounds.get() + 1) >= ALONE_ROUNDS);
        if turns % ALONE_EMPTY == 0 {
            worker.free_all();
        }
        plugger.step();
    }
    worker.free_all();
    plugger.run(|| true);
    let mut tally = worker.clerk.tally;
    tally.add(&plugger.clerk.tally);
    Told::of_calls(tally)
}

fn spawn_all(world: &'static World) -> Vec<JoinHandle<Told>> {
    let mut threads: Vec<_> = (0..world.plan.threads)
        .map(|number| {
            std::thread::spawn(move || {
                let mut worker = Worker::new(world, number, false);
                at_post(world, number, || {
                    worker.run(|| world.is_over());
                    worker.free_all();
                });
                Told::of_calls(worker.clerk.tally)
            })
        })
        .collect();
    threads.push(std::thread::spawn(move || {
        let mut plugger = Plugger::new(world, false);
        at_post(world, world.plan.threads, || plugger.run(|| world.is_over()));
        Told::of_calls(plugger.clerk.tally)
    }));
    threads.push(std::thread::spawn(move || pauses(world)));
    if world.plan.stops {
        threads.push(std::thread::spawn(move || Told {
            stops: stops::stop_threads(world),
            ..Told::default()
        }));
    }
    threads
}

/// Runs `f` while this thread may be stopped.
fn at_post(world: &World, number: u32, f: impl FnOnce()) {
    let thread = &world.posts[number as usize].thread;
    thread.store(stops::this_thread(), Ordering::Release);
    f();
    thread.store(0, Ordering::Release);
}

fn pauses(world: &'static World) -> Told {
    let begun = Instant::now();
    let (mut n, mut last) = (0, begun);
    while !world.is_over() {
        std::thread::sleep(TURN);
        world.set_tide(begun.elapsed().as_secs());
        if last.elapsed() >= PAUSE {
            checks::pause(world);
            n += 1;
            last = Instant::now();
        }
    }
    Told { pauses: n, ..Told::default() }
}

/// What threads have left for others to free.
fn free_pool(world: &'static World, tally: &mut Tally) {
    for (chunk, from) in world.pool().drain(..) {
        world.books.give(chunk, from);
        match world.freehold.on(freehold::CpuId::new(0)).free_range(chunk.range()) {
            Ok(()) => tally.frees += 1,
            Err(error) => world.books.tell(format!("a right free in the end was refused: {error}")),
        }
    }
}
