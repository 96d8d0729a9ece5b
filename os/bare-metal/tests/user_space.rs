//! The kernel's self-test over threads: the same code, without a machine. And that it can fail.

#[path = "common/threads.rs"]
mod threads;

use freehold::{Migratetype, Order, Request};
use freehold_kernel::suite::{self, Failure, Machine, Summary, Test};
use threads::Process;

#[test]
fn the_self_test_passes_on_threads() {
    for cpus in [1, 4] {
        let machine = Process::new(cpus, 32 << 10, false);
        let tests = suite::tests();
        let mut summary = Summary::default();
        suite::run(&machine, &tests, "", &mut summary);
        assert_eq!(summary, Summary { passed: tests.len() as u32, failed: 0 });
        suite::bench::run(&machine).unwrap();
    }
}

#[test]
fn a_frame_that_does_not_come_home_fails_the_test() {
    fn leak(machine: &Process) -> Result<(), Failure> {
        let _ = machine.freehold().here().alloc(Request::new(Order::ZERO, Migratetype::Movable));
        Ok(())
    }
    let machine = Process::new(2, 16 << 10, true);
    let mut summary = Summary::default();
    suite::run(&machine, &[Test { name: "a leak", run: leak }], "", &mut summary);
    assert_eq!(summary, Summary { passed: 0, failed: 1 });
}

#[test]
fn a_frame_written_to_by_somebody_else_is_noticed() {
    let machine = Process::new(1, 16 << 10, true);
    let mut chain = suite::Chain::EMPTY;
    let order = Order::new(2).unwrap();
    let pfn = machine.freehold().here().alloc(Request::new(order, Migratetype::Movable)).unwrap();
    chain.push(&machine, pfn, order, 3);
    assert_eq!(chain.pop(&machine), Ok(Some((pfn, order, 3))));
    chain.push(&machine, pfn, order, 3);
    machine.words(freehold::Pfn::new(pfn.get() + 3))[511]
        .store(1, std::sync::atomic::Ordering::Relaxed);
    assert!(chain.pop(&machine).is_err());
}
