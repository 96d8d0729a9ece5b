//! What happens while somebody else holds a lock; only from here can a test hold one.

use super::*;
use crate::{Config, Design, Request};
use freehold::AllocFlags;

const CPU0: CpuId = CpuId::new(0);
const CPU1: CpuId = CpuId::new(1);

fn machine(name: &str) -> Classic {
    let classic =
        Classic::new(Config::single_zone(Design::parse(name).unwrap(), 2, 1 << 15)).unwrap();
    // Exactly one block at once, so that with ownership CPU 0 owns what it is given.
    classic.set_tuning(CPU0, crate::Tuning::new(512, 4096, 4096, false));
    classic
}

fn take(classic: &Classic) -> Pfn {
    classic.alloc(CPU0, Request::new(Order::ZERO, Migratetype::Movable)).unwrap()
}

#[test]
fn the_list_of_the_fixed_design_needs_no_lock() {
    let classic = machine("pcp-buddy-fixed");
    let pfn = take(&classic);
    classic.reset_stats();
    let owner = classic.zone.pcps[0].lock();
    let _ = classic.free(CPU1, pfn, Order::ZERO).unwrap();
    drop(owner);
    let stats = classic.stats();
    assert_eq!((stats.pcp_busy, stats.zone.frees, stats.zone_lock.holds()), (0, 0, 0));
    assert_eq!(stats.pcp.remote_frees, 1);
    classic.validate().unwrap();
}

#[test]
fn the_rfc_waits_for_the_owner() {
    let classic = machine("pcp-buddy");
    let pfn = take(&classic);
    let owner = classic.zone.pcps[0].lock();
    std::thread::scope(|scope| {
        let freer = scope.spawn(|| classic.free(CPU1, pfn, Order::ZERO).unwrap());
        while classic.counts.remote_pcp_waits.load(Relaxed) == 0 {
            // Not only behind the loop: one that goes past the lock never waits.
            assert!(!freer.is_finished(), "it went past the lock");
            std::thread::yield_now();
        }
        assert!(!freer.is_finished());
        drop(owner);
        let _ = freer.join().unwrap();
    });
    let stats = classic.stats();
    assert_eq!((stats.pcp_busy, stats.pcp.remote_frees, stats.zone.frees), (0, 1, 0));
    assert_eq!(stats.remote_pcp_waits, 1);
    classic.reset_stats();
    assert_eq!(classic.stats().remote_pcp_waits, 0);
}

#[test]
fn a_request_that_may_not_wait_fails_while_the_zone_lock_is_held() {
    let classic = machine("7.2");
    let request = |flags| Request::new(Order::ZERO, Migratetype::Movable).with(flags);
    let held = classic.zone.lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_err());
    drop(held);
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_ok());
    // What is on the PCP needs no zone lock.
    let held = classic.zone.lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_ok());
    drop(held);
    // And a busy PCP sends every request to the zone.
    let held = classic.zone.pcps[0].lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::empty())).is_ok());
    drop(held);
    assert_eq!((classic.stats().pcp_busy, classic.stats().zone.allocs), (1, 1));
}
