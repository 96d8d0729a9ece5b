//! What a request does before it fails: whom it asks, which blocks it takes over, and what becomes
//! of what it has where the host panics.

extern crate std;

use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use crate::cpu::inside::Inside;
use crate::primitive::{AtomicBool, Ordering};
use crate::tests::steps::interrupted_throughout;
use crate::tests::testing::{Machine, machine, machine_of, machine_on, movable, place, two_zones};
use crate::{
    AllocFlags, Config, CpuId, FrameRange, Migratetype, Order, Pfn, Platform, Pressure, Request,
    SingleCpu, ZoneConfig,
};

fn exhaust(fh: &Machine, request: Request) -> Vec<Pfn> {
    core::iter::from_fn(|| fh.on(CpuId::new(0)).alloc(request).ok()).collect()
}

/// Eight frames of a word are free, and CPU 1 exchanges one of them before each step of the
/// request: whatever it had in hand it would have again at once.
#[test]
fn a_request_does_not_fail_beside_a_cpu_that_exchanges_frames() {
    let fh: &'static Machine = Box::leak(Box::new(machine(2, 512)));
    fh.set_watermarks(0, 0, 0, 0).unwrap();
    let frames = exhaust(fh, movable(0));
    assert_eq!(frames.len(), 512);
    (64..72).for_each(|pfn| fh.on(CpuId::new(0)).free(Pfn::new(pfn), Order::ZERO).unwrap());
    fh.drain_all();
    let mut held = None;
    let exchange = move || {
        let other = fh.on(CpuId::new(1));
        if let Some(pfn) = held.take() {
            other.free(pfn, Order::ZERO).unwrap();
        }
        held = other.alloc(movable(0).flags(AllocFlags::NO_LOCK)).ok();
    };
    let got = interrupted_throughout(exchange, || fh.on(CpuId::new(0)).alloc(movable(0)));
    assert!(got.is_ok(), "it failed beside seven free frames: {got:?}");
    fh.drain_all();
    fh.validate().unwrap();
}

/// Somebody is inside the CPU's state, whom the caller may have interrupted.
#[test]
fn who_may_not_wait_gets_cma_frames_past_a_shut_door() {
    let memory = [FrameRange::new(Pfn::new(0), 2048).unwrap()];
    let cma = [FrameRange::new(Pfn::new(512), 1024).unwrap()];
    let zones = [ZoneConfig { cma: &cma, ..ZoneConfig::new(&memory) }];
    for order in [0, 3, 6, 9] {
        let fh = machine_of(&SingleCpu, &Config::new(1, &zones));
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let id = CpuId::new(0);
        let inside = Inside::enter(&fh, fh.cpus.get(id.index()).unwrap(), id, false);
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
        let enter = |cpu| Inside::enter(&fh, &fh.cpus[usize::from(cpu)], CpuId::new(cpu), false);
        let own = own_door_shut.then(|| enter(0));
        let busy = enter(3);
        let most = exhaust(&fh, atomic);
        let in_hand = |cpu| fh.on(CpuId::new(cpu)).holdings().unwrap().0;
        assert_eq!((in_hand(1), in_hand(2)), (0, 0), "order {order}");
        assert!(in_hand(3) > 512, "it was inside");
        drop((busy, own));
        let rest = exhaust(&fh, atomic);
        assert!(rest.len() as u64 >= 1 << 9 >> order && in_hand(3) == 0, "order {order}");
        most.iter()
            .chain(&rest)
            .for_each(|&pfn| fh.on(CpuId::new(0)).free(pfn, atomic.order).unwrap());
        held.iter().for_each(|&(cpu, pfn)| fh.on(CpuId::new(cpu)).free(pfn, Order::ZERO).unwrap());
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free, 1 << 13);
    }
}

/// Half of each block of one zone is free, all of them in use for another type. Another zone is
/// preferred to these; and without one the blocks stay of their type.
#[test]
fn who_would_rather_not_mix_types_takes_no_block_over() {
    let fh = two_zones(1, 2048);
    [0, 1].into_iter().for_each(|z| fh.set_watermarks(z, 0, 0, 0).unwrap());
    let cpu = fh.on(CpuId::new(0));
    let mut all = exhaust(&fh, Request::new(Order::ZERO, Migratetype::Unmovable));
    assert_eq!(all.len(), 4096);
    all.retain(|pfn| pfn.get() % 512 < 256);
    let (lower, upper): (Vec<_>, Vec<_>) = all.iter().partition(|pfn| pfn.get() < 2048);
    cpu.free_bulk(&upper).unwrap();
    // One block of the lower zone is of the right type.
    let whole: Vec<Pfn> = lower.iter().copied().filter(|pfn| pfn.get() < 512).collect();
    cpu.free_bulk(&whole).unwrap();
    let (block, _) = place(&fh, Pfn::new(0));
    assert!(block.retype(fh.outside(), block.head.tag.get(), 1));
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
        |fh| Vec::from([fh.on(CpuId::new(0)).alloc(movable(0)).unwrap()]),
        |fh| Vec::from([fh.on(CpuId::new(0)).alloc(movable(9)).unwrap()]),
        |fh| {
            let mut out = [Pfn::new(0); 100];
            let done = fh.on(CpuId::new(0)).alloc_bulk(movable(0), &mut out).unwrap();
            out[..done].into()
        },
        |fh| {
            let range = FrameRange::new(Pfn::new(600), 700).unwrap();
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
