//! Memory nodes: whose requests go where, and among whom a node's memory is shared out.

use crate::support::*;
use freehold::{AllocFlags, CpuId};
use freehold_classic::{Classic, Config, Tuning, Watermarks, ZoneConfig};

/// Three nodes of four pageblocks and two CPUs each.
fn nodes(engine: &str, change: impl FnOnce(&mut Config)) -> Classic {
    let zone = |node: u8| ZoneConfig {
        node,
        watermarks: Some(Watermarks::default()),
        ..ZoneConfig::new("Normal", at(u64::from(node) * 2048), 2048)
    };
    let mut config = Config {
        zones: (0..3).map(zone).collect(),
        cpu_nodes: vec![0, 0, 1, 1, 2, 2],
        huge_pages: false,
        ..Config::single_zone(design(engine), 6, 0)
    };
    change(&mut config);
    Classic::new(config).unwrap()
}

fn node_of(pfn: freehold::Pfn) -> u64 {
    offset(pfn) / 2048
}

#[test]
fn a_request_goes_to_its_own_node_and_then_to_the_next_ones_and_round() {
    for engine in ["5.17", "7.2", "pcp-buddy", "pcp-buddy-fixed"] {
        for (cpu, order_of_nodes) in [(0, [0, 1, 2]), (3, [1, 2, 0]), (4, [2, 0, 1])] {
            let classic = nodes(engine, |_| ());
            let pfns: Vec<_> =
                (0..12).map(|_| classic.take(CpuId::new(cpu), 9, Unmovable)).collect();
            let expected: Vec<u64> =
                order_of_nodes.into_iter().flat_map(|node| [node; 4]).collect();
            assert_eq!(
                pfns.iter().map(|&pfn| node_of(pfn)).collect::<Vec<_>>(),
                expected,
                "{engine}, CPU {cpu}"
            );
            assert!(
                classic.alloc(CpuId::new(cpu), request(9, Unmovable)).is_err(),
                "{engine}: nothing is left"
            );
            classic.put_all(CpuId::new(5), &pfns, 9);
            classic.drain_all();
            classic.validate().unwrap();
            assert_eq!(classic.memory_map().free, 3 * 2048, "{engine}");
        }
    }
}

#[test]
fn who_is_about_to_fail_gets_the_reserve_of_its_own_node_first() {
    for (cpu, node) in [(0, 0), (2, 1), (4, 2)] {
        let classic = nodes("6.18", |config| {
            for (zone, start) in config.zones.iter_mut().zip([0, 1, 2]) {
                zone.range = range(start * 128 * 512, 128 * 512);
                zone.watermarks = Some(Watermarks { min: 0, low: 1 << 20, high: 1 << 20 });
            }
        });
        // A block of each node is reserved, by a request of the node's own CPU that may not wait.
        let high_atomic = request(4, Unmovable).with(AllocFlags::HIGH_ATOMIC);
        let mut held: Vec<_> =
            [0, 2, 4].map(|cpu| classic.alloc(CpuId::new(cpu), high_atomic).unwrap()).into();
        assert_eq!(classic.types(HighAtomic), 3);
        let reserves: Vec<_> = held.iter().map(|pfn| pfn.pageblock()).collect();
        let served = loop {
            let pfn = classic.take(CpuId::new(cpu), 4, Movable);
            if reserves.contains(&pfn.pageblock()) {
                break pfn;
            }
            held.push(pfn);
        };
        assert_eq!(offset(served) / (128 * 512), node, "CPU {cpu}");
        classic.put_all(CpuId::new(cpu), &held, 4);
    }
}

#[test]
fn single_frames_come_through_the_list_for_the_own_node() {
    let classic = nodes("7.2", |_| ());
    for cpu in 0..6 {
        (0..3).for_each(|zone| {
            classic.set_tuning(zone, CpuId::new(cpu), Tuning::new(8, 64, 64, false))
        });
        let pfn = classic.take(CpuId::new(cpu), 0, Movable);
        assert_eq!(node_of(pfn), u64::from(cpu / 2));
        assert!(
            (0..3)
                .all(|zone| (classic.pcp_count(zone, CpuId::new(cpu)) > 0)
                    == (zone as u16 == cpu / 2))
        );
    }
}

#[test]
fn what_a_zone_keeps_for_lower_ones_it_does_not_keep_from_other_nodes() {
    // Each is the highest of its node; with one node the first two would be kept back.
    let reserve =
        |config: &mut Config| config.zones.iter_mut().for_each(|zone| zone.lowmem_reserve = 2048);
    let classic = nodes("7.2", reserve);
    assert_eq!(classic.exhaust(9, Movable, freehold::AllocFlags::empty()).len(), 12);
    let one = nodes("7.2", |config| {
        reserve(config);
        config.zones.iter_mut().for_each(|zone| zone.node = 0);
    });
    assert_eq!(one.exhaust(9, Movable, freehold::AllocFlags::empty()).len(), 4);
}

#[test]
fn a_nodes_memory_is_shared_out_among_its_own_cpus() {
    let large = |config: &mut Config| {
        for (n, zone) in (0..).zip(&mut config.zones) {
            *zone =
                ZoneConfig { node: zone.node, ..ZoneConfig::new("Normal", at(n << 18), 1 << 18) };
        }
    };
    let high = |classic: &Classic, zone| classic.tuning(zone, CPU0).unwrap().high_max;
    let alone = Classic::new(Config::single_zone(design("7.2"), 2, 1 << 18)).unwrap();
    let classic = nodes("7.2", large);
    assert_eq!(high(&classic, 0), high(&alone, 0), "two CPUs have a node to themselves");
    classic.cpu_dead(CpuId::new(3)).unwrap();
    assert_eq!(
        (high(&classic, 0), high(&classic, 1)),
        (high(&alone, 0), 2 * high(&alone, 0)),
        "one of node 1 went"
    );
    let without = nodes("7.2", |config| {
        large(config);
        config.cpu_nodes = vec![0; 6];
    });
    assert_eq!(high(&without, 1), high(&alone, 0) / 3, "a node without CPUs is everybody's");
}

#[test]
fn bulk_takes_from_the_own_node_or_one_frame_from_wherever_there_is_some() {
    for engine in ["6.18", "7.2", "pcp-buddy-fixed"] {
        let classic = nodes(engine, |_| ());
        let mut slots = [None; 20];
        assert_eq!(
            classic.alloc_bulk(CPU0, Movable, freehold::AllocFlags::empty(), &mut slots),
            Ok(20),
            "{engine}"
        );
        assert!(slots.iter().all(|slot| slot.is_some_and(|pfn| node_of(pfn) == 0)), "{engine}");
        // Seven frames are left there.
        classic.take_many(CPU0, 0, Movable, 2048 - 20 - 7);
        let mut slots = [None; 20];
        assert_eq!(
            classic.alloc_bulk(CPU0, Movable, freehold::AllocFlags::empty(), &mut slots),
            Ok(1),
            "{engine}"
        );
    }
}

#[test]
fn a_near_frame_of_a_mixed_block_is_better_than_a_far_one() {
    for engine in ["6.18", "7.2"] {
        // No PCPs: each request reaches the zones.
        let classic = nodes(engine, |_| ());
        classic.pcp_disable();
        // All blocks of the own node are movable, and none is whole.
        let movable = classic.take_many(CPU0, 0, Movable, 2048);
        movable.iter().filter(|pfn| pfn.get() % 2 == 0).for_each(|&pfn| classic.put(CPU0, pfn, 0));
        let unmixed = request(0, Unmovable).with(freehold::AllocFlags::NO_FRAGMENT);
        let pfn = classic.alloc(CPU0, unmixed).unwrap();
        assert_eq!(node_of(pfn), 0, "{engine}");
    }
}
