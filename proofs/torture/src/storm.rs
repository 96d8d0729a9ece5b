//! A storm from its beginning to its end, and the watchdog beside it.
//!
//! ```text
//! alone   one thread makes every call, waiting for no other: shared writes are counted
//! storm   all threads; CPUs, memory and ranges come and go; threads are stopped in mid-call
//!         now and then all pause: every invariant is checked, and free and owned frames add up
//! end     everything is freed, the CPUs are drained, and all memory must be where it was
//! ```

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use freehold::{ConfigError, Platform};
use serde_json::{Value, json};

use super::clerk::{Post, Tally};
use super::plugger::Plugger;
use super::worker::Worker;
use super::world::World;
use super::{Plan, checks, stops};

/// How often the watchdog looks.
const TURN: Duration = Duration::from_millis(20);
/// How often everybody pauses for a check.
const PAUSE: Duration = Duration::from_millis(1500);
/// The share of the time in which one thread runs alone.
const ALONE: u32 = 16;

/// Rounds between two changes of CPUs and memory while one thread runs alone; such turns in a tide,
/// and until all is freed.
const ALONE_ROUNDS: u32 = 12;
const ALONE_TIDE: u64 = 16;
const ALONE_EMPTY: u64 = 7;

/// Runs a storm; what came of it. A thread whose call does not end cannot be got rid of: after a
/// run that ended so the program should, too.
///
/// # Errors
///
/// There is no such machine.
pub(crate) fn run(plan: Plan) -> Result<Value, ConfigError> {
    let world = World::build(plan)?;
    let mut all = Tally::default();
    let begun = Instant::now();
    let until = begun + world.plan.time / ALONE;
    let alone = vec![std::thread::spawn(move || alone(world, until))];
    let mut stuck = wait(world, alone, &mut all, || false);
    let (mut stopped, mut pauses) = (0, 0);
    if stuck.is_empty() && !world.is_over() {
        let longest = world.plan.stops;
        let stopper = longest.map(|longest| stops::stop_threads(longest, || world_is_over(world)));
        let pausing = std::thread::spawn(move || pauses_of(world));
        stuck = wait(world, spawn_all(world), &mut all, || begun.elapsed() >= world.plan.time);
        world.end.store(true, Ordering::Release);
        if stuck.is_empty() {
            stopped = stopper.map_or(0, |stopper| stopper.join().unwrap_or_default());
            pauses = pausing.join().unwrap_or_default();
        }
    }
    // After a fault what is left over has been told already.
    if stuck.is_empty() && !world.ledger.is_trouble() {
        free_pool(world, &mut all);
        checks::end(world, &all);
    }
    let troubles: Vec<String> = world.ledger.troubles().into_iter().chain(stuck).collect();
    let platform = world.freehold.platform();
    Ok(json!({
        "troubles": troubles,
        "threads": world.plan.threads,
        "cpus": world.cpus(),
        "zones": world.zones.len(),
        "memory_frames": world.frames(),
        "heavy_barrier": platform.has_heavy_barrier(),
        "seconds": begun.elapsed().as_secs_f64().round(),
        "calls": all.kinds.values().map(|(made, _)| made).sum::<u64>(),
        "made_and_refused": all.kinds,
        "recalls": world.freehold.totals().cpus.recalls,
        "high_atomic_blocks": world.high_atomic.load(Ordering::Relaxed),
        "pressures": platform.pressures(),
        "stops": stopped,
        "pauses": pauses,
    }))
}

fn world_is_over(world: &'static World) -> bool {
    world.is_over()
}

/// Waits for all threads, and tells them when it is over. Where a call takes too long, or nobody
/// makes one, it returns what each thread was doing, and leaves them behind.
fn wait(
    world: &'static World,
    threads: Vec<JoinHandle<Tally>>,
    all: &mut Tally,
    time_is_up: impl Fn() -> bool,
) -> Vec<String> {
    let calls = |post: &Post| post.calls.load(Ordering::Acquire);
    let mut seen = vec![(0, Instant::now()); world.posts.len()];
    let mut any = (0, Instant::now());
    while !threads.iter().all(JoinHandle::is_finished) {
        if time_is_up() || threads.iter().any(JoinHandle::is_finished) && world.ledger.is_trouble()
        {
            world.end.store(true, Ordering::Release);
        }
        std::thread::sleep(TURN);
        let now = Instant::now();
        let mut is_stuck = false;
        for (post, (before, since)) in world.posts.iter().zip(&mut seen) {
            if post.call().is_none() || calls(post) != *before {
                (*before, *since) = (calls(post), now);
            }
            is_stuck |= *since + world.plan.patience < now;
        }
        let sum = world.posts.iter().map(calls).sum();
        if sum != any.0 {
            any = (sum, now);
        }
        if is_stuck || any.1 + world.plan.patience < now {
            world.end.store(true, Ordering::Release);
            let doing = world.posts.iter().enumerate().map(|(number, post)| post.tell(number));
            let first = "a call does not end, or no thread gets on".to_owned();
            return std::iter::once(first).chain(doing).collect();
        }
    }
    for thread in threads {
        match thread.join() {
            Ok(tally) => all.add(&tally),
            // What it says has been printed already.
            Err(_) => world.ledger.tell("a thread has panicked".to_owned()),
        }
    }
    Vec::new()
}

/// One thread makes every call. Time says only when it ends: a seed always makes the same calls.
fn alone(world: &'static World, until: Instant) -> Tally {
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
    tally
}

fn spawn_all(world: &'static World) -> Vec<JoinHandle<Tally>> {
    let mut threads: Vec<_> = (0..world.plan.threads)
        .map(|number| {
            std::thread::spawn(move || {
                let mut worker = Worker::new(world, number, false);
                stops::stoppable(|| {
                    worker.run(|| world.is_over());
                    worker.free_all();
                });
                worker.clerk.tally
            })
        })
        .collect();
    threads.push(std::thread::spawn(move || {
        let mut plugger = Plugger::new(world, false);
        stops::stoppable(|| plugger.run(|| world.is_over()));
        plugger.clerk.tally
    }));
    threads
}

/// Sets the tide, and has everybody pause for checks; how often.
fn pauses_of(world: &'static World) -> u64 {
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
    n
}

/// What threads have left for others to free.
fn free_pool(world: &'static World, tally: &mut Tally) {
    for (chunk, from) in world.pool().drain(..) {
        world.ledger.give(chunk, from);
        match world.freehold.on(freehold::CpuId::new(0)).free_range(chunk.range()) {
            Ok(()) => tally.frees += 1,
            Err(error) => {
                world.ledger.tell(format!("a right free in the end was refused: {error}"))
            }
        }
    }
}
