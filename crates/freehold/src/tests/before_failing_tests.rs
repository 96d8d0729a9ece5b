//! What a request does before it fails: whom it asks, which blocks it takes over, and what becomes
//! of what it has where the host panics.

use crate::tests::testing::*;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

const NO_WATERMARKS: AllocFlags = AllocFlags::NO_WATERMARKS;

/// Eight frames of a word are free, and CPU 1 exchanges one of them before each step of the
/// request: whatever it had in hand it would have again at once.
#[test]
fn a_request_does_not_fail_beside_a_cpu_that_exchanges_frames() {
    let fh: &'static Machine = Box::leak(Box::new(machine(2, 512)));
    fh.set_watermarks(0, 0, 0, 0).unwrap();
    let frames = exhaust(fh, movable(0));
    assert_eq!(frames.len(), 512);
    (64..72).for_each(|pfn| fh.here().free(Pfn::new(pfn), Order::ZERO).unwrap());
    fh.drain_all();
    let mut held = None;
    let exchange = move || {
        let other = fh.on(CpuId::new(1));
        if let Some(pfn) = held.take() {
            other.free(pfn, Order::ZERO).unwrap();
        }
        held = other.alloc(movable(0).flags(AllocFlags::NO_LOCK)).ok();
    };
    let exchange = Rc::new(RefCell::new(exchange));
    let stops = (1..50_000).map(|n| {
        let exchange = exchange.clone();
        (n, Box::new(move || (*exchange.borrow_mut())()) as Other)
    });
    let (got, left) = interrupted_by(stops.collect(), || fh.here().alloc(movable(0)));
    assert!(left > 0, "it has more steps");
    assert!(got.is_ok(), "it failed beside seven free frames: {got:?}");
    fh.drain_all();
    fh.validate().unwrap();
}

/// Somebody is inside the CPU's state, whom the caller may have interrupted.
#[test]
fn who_may_not_wait_gets_cma_frames_past_a_shut_door() {
    let memory = [frames_at(0, 2048)];
    let cma = [frames_at(512, 1024)];
    let zones = [ZoneConfig { cma: &cma, ..ZoneConfig::new(&memory) }];
    for order in [0, 3, 6, 9] {
        let fh = machine_of(&SingleCpu, &Config::new(1, &zones));
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let id = CpuId::new(0);
        let inside = inside(&fh, id.get());
        let request = movable(order).flags(AllocFlags::NO_LOCK | AllocFlags::CMA);
        let all = exhaust(&fh, request);
        assert_eq!(all.len(), 2048 >> order, "order {order}");
        drop(inside);
        assert_eq!(exhaust(&fh, movable(0)), []);
        fh.validate().unwrap();
        all.iter().for_each(|&pfn| fh.on(id).free(pfn, request.order).unwrap());
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 2048);
    }
}

/// What others have in hand, unless they are inside at the moment: those are not waited for.
#[test]
fn who_may_not_wait_takes_what_is_in_hands_at_open_doors() {
    for (order, own_door_shut) in [(0, false), (0, true), (3, false), (6, true), (9, false)] {
        let fh = machine(4, 1 << 13);
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let atomic = movable(order).flags(AllocFlags::NO_LOCK);
        let mut held = Vec::new();
        for cpu in 1..4 {
            let on = fh.on(CpuId::new(cpu));
            held.push((cpu, on.alloc(movable(0)).unwrap()));
            let block = on.alloc(movable(9)).unwrap();
            on.free(block, Order::PAGEBLOCK).unwrap();
        }
        let enter = |cpu: usize| Inside::enter(&fh, &fh.cpus[cpu], false);
        let own = own_door_shut.then(|| enter(0));
        let busy = enter(3);
        let most = exhaust(&fh, atomic);
        let in_hand = |cpu| fh.on(CpuId::new(cpu)).holdings().unwrap().0;
        assert_eq!((in_hand(1), in_hand(2)), (0, 0), "order {order}");
        assert!(in_hand(3) > 512, "it was inside");
        drop((busy, own));
        let rest = exhaust(&fh, atomic);
        assert!(rest.len() as u64 >= 1 << 9 >> order && in_hand(3) == 0, "order {order}");
        most.iter().chain(&rest).for_each(|&pfn| fh.here().free(pfn, atomic.order).unwrap());
        held.iter().for_each(|&(cpu, pfn)| fh.on(CpuId::new(cpu)).free(pfn, Order::ZERO).unwrap());
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 1 << 13);
    }
}

/// CPUs with owners, with 16 MiB each, each of which has a word for frames, one for runs and a
/// block in hand. What the test is given last fails where there were more heavy barriers.
fn owned_cpus(number: u16, test: impl FnOnce(&Machine, &[Owned<'_, 'static, Host>], &dyn Fn(u64))) {
    let host = Turns::new(true);
    let fh = machine_on(host, number, u64::from(number) << 12);
    let cpus: Vec<_> = (0..number).map(|cpu| fh.own(CpuId::new(cpu)).unwrap()).collect();
    for cpu in &cpus {
        [0, 2].into_iter().for_each(|order| _ = cpu.alloc(movable(order)).unwrap());
        let block = cpu.alloc(movable(9)).unwrap();
        cpu.free(block, Order::PAGEBLOCK).unwrap();
    }
    let barriers = || host.barriers.load(Ordering::Relaxed);
    let before = barriers();
    test(&fh, &cpus, &|most| {
        let taken = barriers() - before;
        assert!(taken <= most, "{taken} heavy barriers");
    });
    fh.validate().unwrap();
}

fn in_hands(fh: &Machine) -> u64 {
    fh.zone_stats(0).unwrap().free_in_cpus
}

/// Has a CPU allocate single frames until hands are emptied: first those of all CPUs, which leaves
/// more above the mark, and then its own once more. It does so when its own words are used up.
fn come_near_the_mark(fh: &Machine, cpu: &Owned<'_, 'static, Host>) -> Vec<Pfn> {
    let (zone, mut held, mut still_full) = (&fh.zones[0], Vec::new(), 0);
    while !(zone.is_lean() && in_hands(fh) == 0) {
        held.push(cpu.alloc(movable(0)).unwrap());
        still_full = if zone.has_hands_to_empty() { still_full + 1 } else { 0 };
        assert!(still_full <= 128, "hands are not emptied");
    }
    held
}

/// Of a CPU with an owner nobody can take what is in hand without interrupting it. So near the mark
/// there is nothing in any hand.
#[test]
fn who_may_not_wait_gets_all_that_is_free_once_the_zone_is_near_its_mark() {
    owned_cpus(256, |fh, cpus, most_barriers| {
        let zone = &fh.zones[0];
        assert!(in_hands(fh) > 256 * 512);
        let mut held = come_near_the_mark(fh, &cpus[0]);
        // Nor is there any again, whatever the CPUs do, where that is by frames and runs in turn.
        for (n, cpu) in cpus.iter().cycle().take(600).enumerate() {
            let at = n * 7919 % held.len();
            cpu.free(held[at], Order::ZERO).unwrap();
            held[at] = cpu.alloc(movable(0)).unwrap();
            if let Ok(run) = cpu.alloc(movable(1)) {
                cpu.free(run, of_order(1)).unwrap();
            }
            assert_eq!(in_hands(fh), 0, "step {n}");
        }
        most_barriers(2);
        for (flags, left) in [(AllocFlags::empty(), zone.min.get()), (NO_WATERMARKS, 0)] {
            while cpus[1].alloc(movable(0).flags(AllocFlags::NO_LOCK | flags)).is_ok() {}
            assert_eq!(fh.zone_stats(0).unwrap().free, left, "{flags:?}");
        }
        most_barriers(2);
    });
}

/// Requests that may not wait take all but what is in hands; the next tick of any CPU empties them.
#[test]
fn a_tick_empties_hands_where_only_such_as_may_not_wait_have_asked() {
    owned_cpus(8, |fh, cpus, most_barriers| {
        let atomic = movable(0).flags(AllocFlags::NO_LOCK | NO_WATERMARKS);
        let exhaust = || while cpus[0].alloc(atomic).is_ok() {};
        exhaust();
        most_barriers(0);
        assert_eq!(in_hands(fh), fh.zone_stats(0).unwrap().free);
        assert!(in_hands(fh) > 7 * 512);
        cpus[1].tick().unwrap();
        most_barriers(1);
        assert_eq!(in_hands(fh), 0);
        exhaust();
        assert_eq!(fh.zone_stats(0).unwrap().free, 0);
    });
}

/// A block that is freed near the mark is anybody's; further from it a CPU keeps it again.
#[test]
fn no_block_is_kept_near_the_mark() {
    owned_cpus(8, |fh, cpus, _| {
        let block = cpus[0].alloc(movable(9)).unwrap();
        let held = come_near_the_mark(fh, &cpus[0]);
        cpus[0].free(block, Order::PAGEBLOCK).unwrap();
        assert_eq!(in_hands(fh), 0);
        cpus[0].free_bulk(&held).unwrap();
        assert!(!fh.zones[0].is_lean());
        let block = cpus[0].alloc(movable(9)).unwrap();
        cpus[0].free(block, Order::PAGEBLOCK).unwrap();
        assert!(in_hands(fh) >= 512);
    });
}

/// Half of each block of one zone is free, all of them in use for another type. Another zone is
/// preferred to these; and without one the blocks stay of their type.
#[test]
fn who_would_rather_not_mix_types_takes_no_block_over() {
    let fh = two_zones(1, 2048);
    [0, 1].into_iter().for_each(|z| fh.set_watermarks(z, 0, 0, 0).unwrap());
    let cpu = fh.here();
    let mut all = exhaust(&fh, Request::new(Order::ZERO, Migratetype::Unmovable));
    assert_eq!(all.len(), 4096);
    all.retain(|pfn| pfn.get() % 512 < 256);
    let (lower, upper): (Vec<_>, Vec<_>) = all.iter().partition(|pfn| pfn.get() < 2048);
    cpu.free_bulk(&upper).unwrap();
    // One block of the lower zone is of the right type.
    let whole: Vec<Pfn> = lower.iter().copied().filter(|pfn| pfn.get() < 512).collect();
    cpu.free_bulk(&whole).unwrap();
    let (block, _) = place(&fh, Pfn::new(0));
    assert!(fh.outside().retype(block, block.tag.get(), 1));
    fh.drain_all();
    let not_mixed = movable(0).flags(AllocFlags::NO_FRAGMENT);
    let found = exhaust(&fh, not_mixed);
    assert_eq!(found.len(), 256 + 4 * 256);
    assert!(found[..256].iter().all(|pfn| pfn.get() < 512), "types are mixed too early");
    let movable_blocks = || {
        let blocks = [0, 1].map(|z| fh.zone_blocks(z).unwrap().blocks_by_type);
        blocks.map(|by_type| by_type[Migratetype::Movable.index()])
    };
    assert_eq!(movable_blocks(), [1, 0]);
    found.iter().for_each(|&pfn| cpu.free(pfn, Order::ZERO).unwrap());
    fh.drain_all();
    assert_eq!(exhaust(&fh, movable(0)).len(), 256 + 4 * 256);
    assert!(movable_blocks()[1] > 0, "nobody takes a block over");
}

/// A host that panics once it is armed.
struct Panics(AtomicBool);

impl Platform for Panics {
    fn pressure(&self, _: Pressure) {
        assert!(!self.0.swap(false, Ordering::Relaxed), "memory is short");
    }
}

#[test]
fn what_a_call_has_taken_is_free_again_where_the_host_panics() {
    type Call = fn(&Machine) -> Vec<Pfn>;
    let calls: [Call; 4] = [
        |fh| Vec::from([fh.here().alloc(movable(0)).unwrap()]),
        |fh| Vec::from([fh.here().alloc(movable(9)).unwrap()]),
        |fh| {
            let mut out = [Pfn::new(0); 100];
            let done = fh.here().alloc_bulk(movable(0), &mut out).unwrap();
            out[..done].into()
        },
        |fh| {
            let range = frames_at(600, 700);
            fh.alloc_contig_range(range, |_| false).unwrap();
            Vec::from([range.start])
        },
    ];
    for (n, call) in calls.into_iter().enumerate() {
        let host: &Panics = Box::leak(Box::new(Panics(AtomicBool::new(false))));
        let fh = machine_on(host, 1, 2048);
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        fh.set_watermarks(0, 0, 2048, 2048).unwrap();
        // Below low only now.
        host.0.store(true, Ordering::Relaxed);
        let result = catch_unwind(AssertUnwindSafe(|| call(&fh)));
        assert!(result.is_err(), "call {n} has told nobody");
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 2048, "call {n}");
    }
}
