//! Every step, by [`steps`](crate::tests::steps).

use super::{Plan, World, plans};
use crate::tests::testing::*;
use core::sync::atomic::Ordering;

/// Calls of more steps are stopped at so many of them, spread over all; at more, and at each, where
/// `FREEHOLD_SECONDS` gives it the time.
fn most() -> u64 {
    let seconds = std::env::var("FREEHOLD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    match seconds {
        Some(60u64..) => u64::MAX,
        _ if cfg!(miri) => 1,
        Some(1..) => 60,
        _ => 20,
    }
}

/// How many steps a call takes that nobody stops.
fn length(plan: Plan) -> u64 {
    let world = World::new(plan);
    let mut length = 0;
    world.call(&mut |call| length = steps(call).1);
    world.others(CpuId::new(1));
    world.end();
    length
}

/// Stops a call before its step `n`: all of the others' calls come before that.
fn stop(plan: Plan, n: u64) {
    let world = World::new(plan);
    let done = Rc::new(Cell::new(false));
    let note = done.clone();
    let others = move || {
        world.host.nobody_waits.store(true, Ordering::Relaxed);
        world.others(CpuId::new(1));
        world.others(CpuId::new(2));
        world.all_else_is_there(false);
        world.host.nobody_waits.store(false, Ordering::Relaxed);
        note.set(true);
    };
    let mut others = Some(others);
    world.call(&mut |call| {
        interrupted(n, others.take().unwrap(), call);
    });
    assert!(done.get(), "{plan:?} has no step {n}");
    world.end();
}

#[test]
fn a_call_stopped_at_any_step_holds_up_nobody() {
    for plan in plans() {
        let length = length(plan);
        let stride = length.div_ceil(most()).max(1);
        for n in (1..=length).step_by(stride as usize) {
            stop(plan, n);
        }
        std::eprintln!("{plan:?}: {length} steps, stopped at every {stride}");
    }
}
