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
    classic.set_tuning(0, CPU0, crate::Tuning::new(512, 4096, 4096, false));
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
    let owner = classic.zones[0].pcps[0].lock();
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
    let owner = classic.zones[0].pcps[0].lock();
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
    let held = classic.zones[0].lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_err());
    drop(held);
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_ok());
    // What is on the PCP needs no zone lock.
    let held = classic.zones[0].lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::NO_LOCK)).is_ok());
    drop(held);
    // And a busy PCP sends every request to the zone.
    let held = classic.zones[0].pcps[0].lock();
    assert!(classic.alloc(CPU0, request(AllocFlags::empty())).is_ok());
    drop(held);
    assert_eq!((classic.stats().pcp_busy, classic.stats().zone.allocs), (1, 1));
}

/// Linux asks with the index of the highest zone, so what requests for that one leave free here
/// counts, too.
#[test]
fn a_zone_is_above_high_when_what_it_keeps_from_higher_requests_is_there_too() {
    let zone = |name, start, blocks: u64, high| crate::ZoneConfig {
        watermarks: Some(crate::Watermarks { min: 0, low: 0, high }),
        ..crate::ZoneConfig::new(name, Pfn::new(start), blocks * 512)
    };
    let low = crate::ZoneConfig { lowmem_reserve: 1000, ..zone("DMA32", 0x1000, 8, 100) };
    let zones = vec![low, zone("Normal", 0x10_0000, 1, 0)];
    let config = Config { zones, ..Config::single_zone(Design::parse("7.2").unwrap(), 1, 512) };
    let classic = Classic::new(config).unwrap();
    classic.set_tuning(0, CPU0, crate::Tuning::new(8, 16, 16, false));
    let movable = Request::new(Order::ZERO, Migratetype::Movable);
    let taken: Vec<Pfn> = core::iter::from_fn(|| classic.alloc(CPU0, movable).ok()).collect();
    let low = &classic.zones[0];
    let mut mine = taken.into_iter().filter(|pfn| pfn.get() < 0x10_0000);
    let mut below = 0;
    while low.free_frames().free <= 1100 {
        assert!(low.below_high.load(Relaxed), "at {} frames", low.free_frames().free);
        let _ = classic.free(CPU0, mine.next().unwrap(), Order::ZERO).unwrap();
        below += 1;
    }
    assert!(below > 50, "{below}");
    mine.take(32).for_each(|pfn| assert!(classic.free(CPU0, pfn, Order::ZERO).is_ok()));
    assert!(!low.below_high.load(Relaxed));
}
