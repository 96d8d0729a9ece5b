//! Zones, nodes, watermarks, reserves, CMA, isolation, contiguous ranges, hotplug, pressure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::common::*;

#[test]
fn a_full_zone_hands_over_to_the_next_and_every_frame_goes_back_to_its_own() {
    let (low, high, far) =
        ([range(512, 4 * MIB)], [range(1 << 20, 64 * MIB)], [range(1 << 30, 32 * MIB)]);
    let far = ZoneConfig { node: NodeId::new(1), ..unmarked(&far) };
    let zones = [unmarked(&low), unmarked(&high), far];
    let nodes = [NodeId::new(0), NodeId::new(1)];
    let fh = build(&Config { cpu_nodes: &nodes, ..Config::new(2, &zones) }, &SingleCpu);
    let zone = |pfn: Pfn| fh.zone_of(pfn).unwrap();
    // The higher zone of the own node first; the other node only when the own is full.
    let first = fh.on(cpu(0)).alloc(movable(0)).unwrap();
    assert_eq!(zone(first), 1);
    assert_eq!(zone(fh.on(cpu(1)).alloc(movable(0)).unwrap()), 2);
    assert_eq!(zone(fh.on(cpu(0)).alloc(movable(0).node(NodeId::new(1))).unwrap()), 2);
    let all = all(&fh.on(cpu(0)), movable(0));
    assert_eq!(all.len() as u64, 100 * MIB - 3);
    let zones_in_order: Vec<usize> = all.iter().map(|&p| zone(p)).collect();
    assert!(zones_in_order.is_sorted_by_key(|z| [1, 0, 2][*z]), "zones were not tried in order");
    fh.validate().unwrap();
    for pfn in all {
        fh.on(cpu((pfn.get() % 2) as u16)).free(pfn, Order::ZERO).unwrap();
    }
    fh.drain_all();
    assert_eq!(fh.zone_stats(0).unwrap().free, 4 * MIB);
    assert_eq!(fh.zone_of(Pfn::new(0)), None);
    assert_eq!(fh.zone_of(Pfn::new(1 << 19)), None);
    fh.validate().unwrap();
}

#[test]
fn the_kernels_watermarks_are_the_default() {
    // 1 GiB: sqrt(16 * 1048576) = 4096 KiB = 1024 frames; gap = max(256, 262) = 262.
    let memory = [range(0, 1024 * MIB)];
    let fh = build(&Config::new(1, &[ZoneConfig::new(&memory)]), &SingleCpu);
    assert_eq!(fh.zone_stats(0).unwrap().watermarks, [1024, 1286, 1548]);
}

#[test]
fn pressure_is_told_when_marks_are_crossed() {
    let host = Listening::default();
    let fh = marked(2, range(0, 64 * MIB), [800, 1600, 2400], &host);
    let all = all(&fh.on(cpu(0)), movable(0).flags(AllocFlags::NO_WATERMARKS));
    let levels: Vec<PressureLevel> = host.0.lock().unwrap().iter().map(|p| p.level).collect();
    assert_eq!(levels, [PressureLevel::Low, PressureLevel::Min]);
    fh.on(cpu(1)).free_bulk(&all).unwrap();
    fh.drain_all();
    let last = *host.0.lock().unwrap().last().unwrap();
    assert_eq!(
        (last.level, last.watermarks, last.zone),
        (PressureLevel::None, [800, 1600, 2400], 0)
    );
    assert_all_free(&fh);
}

/// A call that may not wait may have interrupted the host's own function: the next one tells.
#[test]
fn pressure_is_not_told_by_who_may_not_wait() {
    let host = Listening::default();
    let fh = marked(1, range(0, 64 * MIB), [800, 1600, 2400], &host);
    let told = || host.0.lock().unwrap().len();
    let mut frames =
        all(&fh.on(cpu(0)), movable(0).flags(AllocFlags::NO_WATERMARKS | AllocFlags::NO_LOCK));
    let mut some = [Pfn::new(0); 64];
    let request = movable(0).flags(AllocFlags::NO_LOCK);
    assert!(fh.on(cpu(0)).alloc_bulk(request, &mut some).is_err());
    assert_eq!(told(), 0);
    frames.extend(fh.on(cpu(0)).alloc(movable(0).flags(AllocFlags::NO_WATERMARKS)).ok());
    assert_ne!(told(), 0);
    fh.on(cpu(0)).free_bulk(&frames).unwrap();
    assert_all_free(&fh);
}

/// Is told of pressure, and before it has noted it down something else happens.
struct Slow(Mutex<Vec<PressureLevel>>, OnceLock<&'static Alloc<'static>>, AtomicBool);

impl Platform for Slow {
    fn pressure(&self, pressure: Pressure) {
        if self.2.swap(false, Ordering::Relaxed) {
            // As another CPU would: all memory is freed, and that is told.
            let fh = self.1.get().unwrap();
            fh.on(cpu(1)).free_range(range(0, 64 * MIB)).unwrap();
            fh.drain_all();
        }
        self.0.lock().unwrap().push(pressure.level);
    }
}

#[test]
fn the_last_pressure_that_is_told_is_true() {
    let slow: &'static Slow =
        Box::leak(Box::new(Slow(Mutex::default(), OnceLock::new(), AtomicBool::new(false))));
    let fh: &'static Alloc<'static> =
        Box::leak(Box::new(marked(2, range(0, 64 * MIB), [800, 1600, 2400], slow)));
    slow.1.set(fh).ok().unwrap();
    let none = movable(9).flags(AllocFlags::NO_WATERMARKS | AllocFlags::NO_LOCK);
    while fh.on(cpu(0)).alloc(none).is_ok() {}
    slow.2.store(true, Ordering::Relaxed);
    assert!(fh.on(cpu(0)).alloc(movable(9)).is_err());
    assert_eq!(slow.0.lock().unwrap().last(), Some(&PressureLevel::None));
    assert_all_free(fh);
}

#[test]
fn cma_comes_first_where_over_half_of_what_is_free_is_of_it() {
    let memory = [range(0, 256 * MIB)];
    let cma = [range(64 * MIB, 160 * MIB)];
    let fh = build(&Config::new(2, &[ZoneConfig { cma: &cma, ..unmarked(&memory) }]), &SingleCpu);
    let is_cma = |pfn: Pfn| cma[0].contains(pfn);
    // Over half of what is free is CMA: it is used first.
    let pfn = fh.on(cpu(0)).alloc(movable(0).flags(AllocFlags::CMA)).unwrap();
    assert!(is_cma(pfn));
    assert!(!is_cma(fh.on(cpu(0)).alloc(movable(0)).unwrap()));
}

#[test]
fn a_range_is_allocated_wherever_its_blocks_are_held() {
    let fh = machine(3, 128);
    let mut used: Vec<Pfn> = Vec::new();
    for c in 0..3 {
        used.extend((0..700).map(|_| fh.on(cpu(c)).alloc(movable(0)).unwrap()));
    }
    // Some of them wait in a combining buffer, some were published.
    let (freed, mut used): (Vec<Pfn>, Vec<Pfn>) = used.into_iter().partition(|p| p.get() % 7 == 0);
    fh.on(cpu(2)).free_bulk(&freed).unwrap();
    let target = range(700, 3000);
    let inside = used.iter().filter(|p| target.contains(**p)).count();
    assert!(inside > 500, "the test must have something to move");
    let before = fh.zone_stats(0).unwrap().free;
    // Refusing to move: busy, and nothing has changed.
    let error = fh.alloc_contig_range(target, |_| false).unwrap_err();
    assert!(matches!(error, AllocError::Busy { pfn } if used.contains(&pfn)));
    assert_eq!(fh.zone_stats(0).unwrap().free, before);
    assert_eq!(fh.zone_blocks(0).unwrap().blocks_by_type[Migratetype::Isolate.index()], 0);
    fh.validate().unwrap();
    // Moving: every user gets a frame elsewhere.
    let mut moved = 0;
    fh.alloc_contig_range(target, |run| {
        fh.validate().unwrap();
        for pfn in run.start.get()..run.end.get() {
            let at = used.iter().position(|p| p.get() == pfn).unwrap();
            used[at] = fh.on(cpu(1)).alloc(movable(0)).unwrap();
            assert!(!target.contains(used[at]), "allocated from an isolated block");
            moved += 1;
        }
        fh.on(cpu(0)).free_range(run).unwrap();
        true
    })
    .unwrap();
    assert_eq!(moved, inside);
    assert_eq!(fh.zone_stats(0).unwrap().free, before - 3000);
    fh.validate().unwrap();
    assert!(fh.alloc_contig_range(target, |_| false).is_err());
    fh.here().free_range(target).unwrap();
    used.iter().for_each(|&p| fh.on(cpu(0)).free(p, Order::ZERO).unwrap());
    assert_all_free(&fh);
    assert_eq!(
        fh.alloc_contig_range(range(0, 10), |_| true),
        Err(AllocError::BadRange { pfn: Pfn::new(0) })
    );
    assert_eq!(fh.alloc_contig_range(range(600, 0), |_| true), Err(AllocError::ZeroLength));
    assert!(matches!(
        fh.alloc_contig_range(range(600, 1 << 30), |_| true),
        Err(AllocError::BadRange { .. })
    ));
}

/// Blocks in use that nobody can empty are not isolated.
#[test]
fn a_search_that_moves_nothing_leaves_blocks_in_use_alone() {
    let fh = machine(2, 32);
    // Blocks with frames in use each.
    let used: Vec<Pfn> = (0..13 * 512).map(|_| fh.on(cpu(0)).alloc(movable(0)).unwrap()).collect();
    used.iter().step_by(2).for_each(|&pfn| fh.on(cpu(0)).free(pfn, Order::ZERO).unwrap());
    let everywhere = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };
    fh.on(cpu(0)).flush().unwrap();
    let before = fh.totals().shared_writes;
    let found = fh.alloc_contig_free(8 * 512, Order::ZERO, everywhere);
    let none = |frames, align| Err(AllocError::NoRange { frames, align });
    assert_eq!(found, none(8 * 512, Order::ZERO));
    assert_eq!(fh.totals().shared_writes, before, "something was isolated");
    assert!(fh.alloc_contig(8 * 512, Order::ZERO, everywhere, |_| false).is_err());
    assert_eq!(fh.alloc_contig_free(0, Order::ZERO, everywhere), Err(AllocError::ZeroLength));
    // Frame 0, the only such multiple, is in use.
    assert_eq!(fh.alloc_contig_free(1, Order::MAX, everywhere), none(1, Order::MAX));
    let found = fh.alloc_contig_free(700, Order::ZERO, everywhere).unwrap();
    fh.here().free_range(found).unwrap();
    used.iter().skip(1).step_by(2).for_each(|&pfn| fh.on(cpu(0)).free(pfn, Order::ZERO).unwrap());
    assert_all_free(&fh);
}

#[test]
fn cpus_come_and_go_and_nothing_is_lost() {
    let memory = [range(512, 128 * MIB)];
    let fh = build(&Config { online: 2, ..Config::new(4, &[unmarked(&memory)]) }, &SingleCpu);
    assert_eq!(fh.on(cpu(3)).alloc(movable(0)), Err(AllocError::CpuOffline { cpu: cpu(3) }));
    fh.on(cpu(3)).online().unwrap();
    let mine: Vec<Pfn> = (0..3000).map(|_| fh.on(cpu(3)).alloc(movable(0)).unwrap()).collect();
    let theirs: Vec<Pfn> = (0..1000).map(|_| fh.on(cpu(0)).alloc(movable(0)).unwrap()).collect();
    // Frees in both directions are under way when it goes.
    fh.on(cpu(0)).free_bulk(&mine[..1500]).unwrap();
    fh.on(cpu(3)).free_bulk(&theirs[..700]).unwrap();
    let owned = fh.own(cpu(3)).unwrap();
    assert_eq!(fh.on(cpu(3)).offline(), Err(AllocError::CpuOwned { cpu: cpu(3) }));
    drop(owned);
    fh.on(cpu(3)).offline().unwrap();
    fh.validate().unwrap();
    assert_eq!(fh.on(cpu(3)).holdings().unwrap().0, 0);
    assert_eq!(fh.on(cpu(3)).offline(), Err(AllocError::CpuOffline { cpu: cpu(3) }));
    assert!(fh.own(cpu(3)).is_err());
    fh.on(cpu(0)).free_bulk(&mine[1500..2000]).unwrap();
    fh.on(cpu(3)).online().unwrap();
    fh.on(cpu(3)).free_bulk(&mine[2000..]).unwrap();
    fh.on(cpu(1)).free_bulk(&theirs[700..]).unwrap();
    assert_all_free(&fh);
    assert!(fh.on(cpu(9)).online().is_err());
}
