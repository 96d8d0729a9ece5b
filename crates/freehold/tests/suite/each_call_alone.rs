//! One call after the other: what each operation does and what it refuses.

use crate::common::*;

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
    let words = on.alloc(movable(7)).unwrap();
    let upper = Pfn::new(words.get() + 64);
    on.free(upper, order(6)).unwrap();
    for c in 0..2 {
        let whole = fh.on(cpu(c)).free(words, order(7));
        assert_eq!(whole, Err(FreeError::DoubleFree { pfn: upper }));
    }
    on.free(words, order(6)).unwrap();
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
fn requests_for_states_and_configurations_that_cannot_be_are_refused() {
    let fh = machine(1, 64);
    for migratetype in [Migratetype::HighAtomic, Migratetype::Cma, Migratetype::Isolate] {
        let request = Request::new(Order::ZERO, migratetype);
        assert_eq!(fh.on(cpu(0)).alloc(request), Err(AllocError::BadMigratetype { migratetype }));
    }
    let memory = [range(512, 1024)];
    let zone = ZoneConfig::new(&memory);
    assert_eq!(Config::new(0, &[zone]).metadata_size(), Err(ConfigError::Cpus { cpus: 0 }));
    let zones = [zone];
    let config = Config { online: 3, ..Config::new(2, &zones) };
    assert_eq!(config.metadata_size(), Err(ConfigError::Online { online: 3, cpus: 2 }));
    assert_eq!(Config::new(1, &[]).metadata_size(), Err(ConfigError::Zones { zones: 0 }));
    assert_eq!(fh.set_watermarks(1, 0, 0, 0).unwrap_err().to_string(), "there is no zone 1");
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
