//! Under shuttle: a scheduler that never lets the stopped thread go on while any other can.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::vec::Vec;

use fastrand::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config as Schedules, Runner, thread};

use super::{Plan, World, plans};
use crate::CpuId;

/// The stopped thread is the first that the test starts.
const STOPPED: usize = 1;

/// Lets the stopped thread make its first steps, the others' random ones among them or not, and
/// then all others theirs. It goes on once nobody else can.
struct Stopping {
    after: u64,
    /// The steps that the stopped thread has made.
    made: Arc<AtomicU64>,
    /// One in so many steps before the stop is another's; 0 for none.
    mixed: usize,
    random: Rng,
    left: u32,
}

impl Stopping {
    fn below(&mut self, n: usize) -> usize {
        self.random.usize(..n)
    }
}

impl Scheduler for Stopping {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        Some(Schedule::new(self.after))
    }

    fn next_task(&mut self, ready: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        let ids: Vec<TaskId> = ready.iter().map(|task| task.id()).collect();
        let stopped = ids.iter().position(|&id| id == TaskId::from(STOPPED));
        let made = self.made.load(Ordering::Relaxed);
        let others = ids.len() - usize::from(stopped.is_some());
        let others_turn = self.mixed != 0 && self.below(self.mixed) == 0;
        let Some(at) = stopped.filter(|_| others == 0 || made < self.after && !others_turn) else {
            let n = self.below(others);
            return Some(ids[n + usize::from(stopped.is_some_and(|at| n >= at))]);
        };
        self.made.store(made + 1, Ordering::Relaxed);
        Some(ids[at])
    }

    fn next_u64(&mut self) -> u64 {
        self.random.u64(..)
    }
}

/// The stopped thread, two others, and what must be there when these are done.
fn run(plan: Plan) {
    let world = World::new(plan);
    let stopped = thread::spawn(move || {
        *world.host.stopped.lock().unwrap() = Some(thread::current().id());
        world.call(&mut |call| call());
    });
    world.host.nobody_waits.store(true, Ordering::Relaxed);
    let others = [1, 2].map(|cpu| thread::spawn(move || world.others(CpuId::new(cpu))));
    others.into_iter().for_each(|other| other.join().unwrap());
    world.all_else_is_there(false);
    world.host.nobody_waits.store(false, Ordering::Relaxed);
    stopped.join().unwrap();
    world.end();
}

/// One schedule in which the stopped thread makes that many steps at first; how many it made in
/// all.
fn stop(plan: Plan, after: u64, mixed: usize) -> u64 {
    let made = Arc::new(AtomicU64::new(0));
    let random = Rng::with_seed(after);
    let scheduler = Stopping { after, made: made.clone(), mixed, random, left: 1 };
    let mut schedules = Schedules::new();
    schedules.stack_size = 1 << 18;
    schedules.max_steps = shuttle::MaxSteps::FailAfter(20_000_000);
    schedules.silence_warnings = true;
    Runner::new(scheduler, schedules).run(move || run(plan));
    made.load(Ordering::Relaxed)
}

#[test]
fn a_thread_stopped_for_good_holds_up_nobody() {
    let wanted: u64 = std::env::var("SHUTTLE_SCHEDULES")
        .map_or(500, |n| n.parse().expect("SHUTTLE_SCHEDULES is a number"));
    let plans = plans();
    let each = (wanted / plans.len() as u64).max(1);
    for plan in plans {
        let length = stop(plan, u64::MAX, 0);
        for n in 0..each {
            let after = n * length / each + u64::from(n != 0);
            stop(plan, after, if n % 2 == 0 { 0 } else { 4 });
        }
        std::eprintln!("{plan:?}: {length} steps, stopped at {} of them", each.min(length));
    }
}
