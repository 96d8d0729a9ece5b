//! One call after the other: what each operation does and what it refuses.

use crate::common::*;
use freehold::{
    AllocError, Config, ConfigError, CpuId, FrameRange, FreeError, Migratetype, Order, Pfn,
    Platform, Request, SingleCpu, Watermarks, ZoneConfig,
};
use std::collections::HashSet;

#[test]
fn every_order_comes_aligned_and_goes_back_whole() {
    let fh = machine(2, 2048 + 1024);
    let on = fh.on(cpu(0));
    for o in 0..=18u8 {
        let pfn = on.alloc(movable(o)).unwrap();
        assert!(pfn.is_aligned(order(o)), "{pfn} {o}");
        fh.validate().unwrap();
        on.free(pfn, order(o)).unwrap();
        fh.validate().unwrap();
    }
    assert_all_free(&fh);
    assert_eq!(fh.zone_blocks(0).unwrap().largest_free_order(), Some(Order::MAX));
}

#[test]
fn all_frames_are_handed_out_once_and_all_come_back() {
    let fh = machine(2, 64);
    let on = fh.on(cpu(0));
    let mut seen = HashSet::new();
    loop {
        match on.alloc(movable(0)) {
            Ok(pfn) => assert!(seen.insert(pfn), "{pfn} twice"),
            Err(error) => {
                assert_eq!(error, AllocError::NoMemory { order: Order::ZERO });
                break;
            }
        }
    }
    assert_eq!(seen.len() as u64, 64 * MIB);
    fh.validate().unwrap();
    for (i, pfn) in seen.into_iter().enumerate() {
        fh.on(cpu((i % 2) as u16)).free(pfn, Order::ZERO).unwrap();
    }
    fh.validate().unwrap();
    assert_all_free(&fh);
    assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 32);
}

#[test]
fn what_others_hold_is_found_before_failing() {
    let fh = machine(4, 64);
    let mut frames = Vec::new();
    for c in 0..4 {
        // Every CPU has some blocks in hand, with frames in use in them.
        frames.push(fh.on(cpu(c)).alloc(movable(0)).unwrap());
        frames.push(fh.on(cpu(c)).alloc(unmovable(0)).unwrap());
    }
    while let Ok(pfn) = fh.on(cpu(3)).alloc(unmovable(0)) {
        frames.push(pfn);
    }
    assert_eq!(frames.len() as u64, 64 * MIB, "order 0 failed although frames were free");
    fh.validate().unwrap();
    // What sits in another CPU's combining buffer is found too.
    fh.on(cpu(0)).free(frames[5000], Order::ZERO).unwrap();
    assert_eq!(fh.on(cpu(1)).alloc(movable(0)), Ok(frames[5000]));
    for pfn in frames {
        fh.on(cpu(1)).free(pfn, Order::ZERO).unwrap();
    }
    assert_all_free(&fh);
}

#[test]
fn any_part_of_an_allocation_can_be_freed_from_any_cpu() {
    let fh = machine(3, 64);
    let start = fh.on(cpu(0)).alloc(movable(9)).unwrap().get();
    fh.on(cpu(1)).free(Pfn::new(start + 5), Order::ZERO).unwrap();
    fh.on(cpu(2)).free_range(range(start + 6, 300)).unwrap();
    fh.validate().unwrap();
    fh.on(cpu(0)).free_range(range(start, 5)).unwrap();
    // Everything but the last 206 is free; freeing over the boundary is refused as a whole.
    let error = fh.on(cpu(1)).free_range(range(start + 300, 100)).unwrap_err();
    assert_eq!(error, FreeError::DoubleFree { pfn: Pfn::new(start + 300) });
    fh.validate().unwrap();
    fh.on(cpu(1)).free_range(range(start + 306, 206)).unwrap();
    assert_all_free(&fh);
    assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 32);
}

/// Areas and buffers are put together by number, across the edge of two zones that touch.
#[test]
fn a_range_over_the_edge_of_zones_that_touch_is_freed_whole() {
    let pieces = [range(512, 1024), range(1536, 512), range(4096, 512)];
    let zones: Vec<_> = pieces
        .iter()
        .map(|piece| ZoneConfig {
            watermarks: Watermarks::None,
            ..ZoneConfig::new(std::slice::from_ref(piece))
        })
        .collect();
    let fh = build(&Config::new(2, &zones), &SingleCpu);
    let on = fh.on(cpu(0));
    let mut taken = 0;
    while on.alloc(movable(0)).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 2048);
    // Behind the second zone there is nothing: refused as a whole, and said where.
    let error = on.free_range(range(1000, 2000)).unwrap_err();
    assert_eq!(error, FreeError::PastEnd { pfn: Pfn::new(2048) });
    assert_eq!(fh.on(cpu(1)).free_range(range(1500, 100)), Ok(()));
    let error = on.free_range(range(1400, 200)).unwrap_err();
    assert_eq!(error, FreeError::DoubleFree { pfn: Pfn::new(1500) });
    fh.validate().unwrap();
    for rest in [range(512, 988), range(1600, 448), range(4096, 512)] {
        on.free_range(rest).unwrap();
    }
    assert_all_free(&fh);
}

#[test]
fn each_wrong_free_has_its_own_error_and_changes_nothing() {
    let fh = one_zone(2, &[range(512, 3000), range(8192, 4096)], &SingleCpu);
    let on = fh.on(cpu(0));
    let pfn = on.alloc(movable(2)).unwrap();
    for c in 0..2 {
        let on = fh.on(cpu(c));
        let free = |pfn: u64, o: u8| on.free(Pfn::new(pfn), order(o));
        assert_eq!(free(0, 0), Err(FreeError::OutOfZone { pfn: Pfn::new(0) }));
        assert_eq!(free(1 << 30, 0), Err(FreeError::OutOfZone { pfn: Pfn::new(1 << 30) }));
        assert_eq!(free(u64::MAX, 0), Err(FreeError::OutOfZone { pfn: Pfn::new(u64::MAX) }));
        assert_eq!(
            free(3512, 0),
            Err(FreeError::Hole { pfn: Pfn::new(3512) }),
            "behind the first piece"
        );
        assert_eq!(
            free(5000, 0),
            Err(FreeError::Hole { pfn: Pfn::new(5000) }),
            "in a block without memory"
        );
        assert_eq!(
            free(pfn.get() + 1, 1),
            Err(FreeError::Misaligned { pfn: Pfn::new(pfn.get() + 1), order: order(1) })
        );
        assert_eq!(free(9000, 0), Err(FreeError::NeverAllocated { pfn: Pfn::new(9000) }));
        // Something of its block is in use: there a free frame is a free frame.
        assert_eq!(
            free(pfn.get() + 4, 0),
            Err(FreeError::DoubleFree { pfn: Pfn::new(pfn.get() + 4) })
        );
        assert_eq!(on.free_range(range(pfn.get(), 0)), Err(FreeError::ZeroLength));
        let error = on.free_range(range(12000, 1000)).unwrap_err();
        assert_eq!(error, FreeError::PastEnd { pfn: Pfn::new(12288) });
        let error = on.free_range(range(pfn.get(), 5)).unwrap_err();
        assert_eq!(error, FreeError::DoubleFree { pfn: Pfn::new(pfn.get() + 4) });
        fh.validate().unwrap();
    }
    on.free(Pfn::new(pfn.get() + 2), Order::ZERO).unwrap();
    for c in 0..2 {
        let twice = fh.on(cpu(c)).free(Pfn::new(pfn.get() + 2), Order::ZERO);
        assert_eq!(twice, Err(FreeError::DoubleFree { pfn: Pfn::new(pfn.get() + 2) }));
        let whole = fh.on(cpu(c)).free(pfn, order(2));
        assert_eq!(whole, Err(FreeError::DoubleFree { pfn: Pfn::new(pfn.get() + 2) }));
    }
    assert_eq!(
        fh.on(cpu(9)).free(pfn, Order::ZERO),
        Err(FreeError::CpuOffline { cpu: CpuId::new(9) })
    );
    assert_eq!(fh.on(cpu(9)).alloc(movable(0)), Err(AllocError::CpuOffline { cpu: CpuId::new(9) }));
    on.free_range(range(pfn.get(), 2)).unwrap();
    on.free(Pfn::new(pfn.get() + 3), Order::ZERO).unwrap();
    assert_all_free(&fh);
}

#[test]
fn a_double_free_is_seen_by_every_cpu_wherever_the_frame_is() {
    let fh = machine(3, 64);
    let refused = |pfn: Pfn, at: &str| {
        for c in 0..3 {
            let twice = fh.on(cpu(c)).free(pfn, Order::ZERO);
            assert_eq!(twice, Err(FreeError::DoubleFree { pfn }), "CPU {c}, {at}");
            let twice = fh.on(cpu(c)).free_bulk(&[pfn]);
            assert_eq!(twice.unwrap_err().error, FreeError::DoubleFree { pfn }, "CPU {c}, {at}");
        }
    };
    let frames: Vec<Pfn> = (0..8).map(|_| fh.on(cpu(0)).alloc(movable(0)).unwrap()).collect();
    // In the word, freed by another CPU while CPU 0 leases it.
    fh.on(cpu(1)).free(frames[0], Order::ZERO).unwrap();
    refused(frames[0], "in a word that somebody leases");
    // In the leaseholder's hand.
    fh.on(cpu(0)).free(frames[1], Order::ZERO).unwrap();
    refused(frames[1], "in a hand");
    // In a lease that a second free has brought about.
    fh.on(cpu(0)).flush().unwrap();
    fh.on(cpu(2)).free(frames[2], Order::ZERO).unwrap();
    fh.on(cpu(2)).free(frames[3], Order::ZERO).unwrap();
    refused(frames[2], "in the hand of a CPU that only frees");
    refused(frames[3], "in the hand of a CPU that only frees");
    fh.on(cpu(2)).tick().unwrap();
    frames[4..].iter().for_each(|&pfn| fh.on(cpu(1)).free(pfn, Order::ZERO).unwrap());
    refused(frames[2], "after a tick");
    assert_eq!(fh.totals().late_double_frees, 0);
    assert_all_free(&fh);
    refused(frames[0], "in a whole block");
}

#[test]
fn bulk_calls_take_and_give_every_frame_once() {
    let fh = machine(2, 64);
    let mut frames = vec![Pfn::default(); 5000];
    assert_eq!(fh.on(cpu(0)).alloc_bulk(movable(0), &mut frames), Ok(5000));
    assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 5000);
    fh.validate().unwrap();
    // Half of them from elsewhere, scattered.
    let (mine, theirs): (Vec<Pfn>, Vec<Pfn>) = frames.iter().partition(|p| p.get() % 3 != 0);
    fh.on(cpu(1)).free_bulk(&theirs).unwrap();
    fh.on(cpu(0)).free_bulk(&mine).unwrap();
    let error = fh.on(cpu(0)).free_bulk(&[frames[7], frames[8]]).unwrap_err();
    assert_eq!(error.freed, 0);
    assert_eq!(error.error, FreeError::DoubleFree { pfn: frames[7] });
    // More than there is: as many as there are.
    let mut all = vec![Pfn::default(); 64 * MIB as usize + 5];
    assert_eq!(fh.on(cpu(1)).alloc_bulk(unmovable(0), &mut all), Ok(64 * MIB as usize));
    assert!(fh.on(cpu(1)).alloc_bulk(unmovable(0), &mut all[..1]).is_err());
    all.truncate(64 * MIB as usize);
    let mut twice = [all[3], all[4], all[3]];
    twice.reverse();
    let error = fh.on(cpu(0)).free_bulk(&twice).unwrap_err();
    assert_eq!((error.freed, error.error), (2, FreeError::DoubleFree { pfn: all[3] }));
    all.retain(|p| !twice.contains(p));
    fh.on(cpu(0)).free_bulk(&all).unwrap();
    assert_all_free(&fh);
}

#[test]
fn alignment_may_exceed_the_order() {
    let fh = machine(1, 64);
    let on = fh.on(cpu(0));
    on.alloc(movable(0)).unwrap();
    let pfn = on.alloc(movable(1).align(order(7))).unwrap();
    assert!(pfn.is_aligned(order(7)));
    assert_eq!(fh.zone_stats(0).unwrap().free, 64 * MIB - 3);
    fh.validate().unwrap();
}

#[test]
fn requests_for_states_and_configurations_that_cannot_be_are_refused() {
    let fh = machine(1, 64);
    for migratetype in [Migratetype::HighAtomic, Migratetype::Cma, Migratetype::Isolate] {
        let request = Request::new(Order::ZERO, migratetype);
        assert_eq!(fh.on(cpu(0)).alloc(request), Err(AllocError::BadMigratetype { migratetype }));
    }
    let memory = [range(512, 1024)];
    let zone = ZoneConfig::new(&memory);
    assert_eq!(Config::new(0, &[zone]).metadata_size(), Err(ConfigError::Cpus { cpus: 0 }));
    assert_eq!(Config::new(1, &[]).metadata_size(), Err(ConfigError::Zones { zones: 0 }));
    let both = [zone, zone];
    assert_eq!(
        Config::new(1, &both).metadata_size(),
        Err(ConfigError::Overlap { pfn: Pfn::new(512) })
    );
    let odd = ZoneConfig { span: range(5, 512), ..zone };
    assert_eq!(
        Config::new(1, &[odd]).metadata_size(),
        Err(ConfigError::Span { range: range(5, 512) })
    );
    let outside = ZoneConfig { span: range(512, 512), ..zone };
    assert!(matches!(
        Config::new(1, &[outside]).metadata_size(),
        Err(ConfigError::OutsideZone { .. })
    ));
    // A range is named as it was written.
    let reversed = FrameRange { start: Pfn::new(0x800), end: Pfn::new(0x100) };
    let error = Config::new(1, &[ZoneConfig::new(&[reversed])]).metadata_size().unwrap_err();
    assert_eq!(error.to_string(), "pfn 0x800..0x100 ends before it starts");
    let empty = ConfigError::OutsideZone { range: range(8, 0) };
    assert_eq!(empty.to_string(), "pfn 0x8..0x8 is empty");
    let high = ConfigError::Span { range: range(1 << 40, 512) };
    assert!(high.to_string().ends_with("ends above PFN 2^40"), "{high}");
    let odd = ConfigError::Span { range: range(5, 512) };
    assert!(odd.to_string().contains("start and end at a pageblock"), "{odd}");
    let small = [std::mem::MaybeUninit::uninit(); 100];
    let result = Alloc::new(&Config::new(1, &[zone]), Box::leak(Box::new(small)), &SingleCpu);
    assert!(matches!(result.err(), Some(ConfigError::TooSmall { .. })));
    // A word's number has 32 bits, spare sections included.
    let zone = ZoneConfig { spare_sections: 1 << 23, ..ZoneConfig::new(&memory) };
    let error = Config::new(1, &[zone]).metadata_size().unwrap_err();
    assert_eq!(error, ConfigError::TooLarge { sections: (1 << 23) + 1 });
}

#[test]
fn metadata_is_below_two_hundredths_of_a_percent() {
    let memory = [range(0, 64 << 18)];
    let zone = ZoneConfig::new(&memory);
    let size = Config::new(64, &[zone]).metadata_size().unwrap();
    let bytes = 64u64 << 30;
    assert!((size as f64) < bytes as f64 * 0.0002, "{size}");
}

#[test]
fn an_owned_cpu_cannot_be_owned_twice() {
    let fh = machine(2, 64);
    let owned = fh.own(cpu(1)).unwrap();
    assert_eq!(fh.own(cpu(1)).err(), Some(AllocError::CpuOwned { cpu: cpu(1) }));
    let pfn = owned.alloc(movable(0)).unwrap();
    owned.free(pfn, Order::ZERO).unwrap();
    drop(owned);
    fh.own(cpu(1)).unwrap();
    assert_all_free(&fh);
}

/// What doors of other languages try first is the same as what a call does: the same frames, no
/// more than are in hand, and nothing where the call would have refused.
#[test]
#[cfg_attr(feature = "debug-poison", ignore = "frees that poison frames take the whole way")]
fn the_first_half_of_a_call_is_what_the_call_would_have_done() {
    let hosts: [&dyn Platform; 2] = [Membarrier::new(), &SingleCpu];
    for host in hosts {
        let fh = one_zone(1, &[range(512, 8 * MIB)], host);
        let owned = fh.own(cpu(0)).unwrap();
        for n in 0..=5 {
            let (order, kind) = (order(n), Migratetype::Movable);
            assert_eq!(owned.alloc_in_hand(order, kind), None, "nothing is in hand yet");
            let first = owned.alloc(movable(n)).unwrap();
            assert!(!owned.free_in_hand(Pfn::new(first.get() + 1), order), "not aligned, or free");
            assert!(owned.free_in_hand(first, order));
            assert!(!owned.free_in_hand(first, order), "it is free");
            assert_eq!(owned.alloc_in_hand(order, Migratetype::Unmovable), None, "of another type");
            // The newest first, as the call.
            assert_eq!(owned.alloc_in_hand(order, kind), Some(first));
            let mut held = vec![first];
            held.extend(std::iter::from_fn(|| owned.alloc_in_hand(order, kind)));
            assert_eq!(held.len() as u64, 64 >> n, "one word");
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len() as u64, 64 >> n, "each once");
            let counted = fh.on(cpu(0)).stats().unwrap();
            assert_eq!(counted.allocs[kind as usize][usize::from(n)], (64 >> n) + 1);
            fh.validate().unwrap();
            for pfn in held {
                if !owned.free_in_hand(pfn, order) {
                    owned.free(pfn, order).unwrap();
                }
            }
            owned.flush().unwrap();
        }
        for n in 6..=9 {
            assert!(!owned.free_in_hand(Pfn::new(512), order(n)));
            assert_eq!(owned.alloc_in_hand(order(n), Migratetype::Movable), None);
        }
        drop(owned);
        assert_all_free(&fh);
        assert_eq!(fh.totals().late_double_frees, 0);
    }
}
