//! Two ways to spare others: CPUs are asked for the least that they can give before all are drained
//! (`least-drain`), and blocks are mixed only after that (`defrag-mode`).

use crate::support::*;
use freehold::{AllocFlags, CpuId};
use freehold_classic::{Classic, Config, Tuning};

/// Four CPUs on 8 pageblocks. The last three hold some hundred frames each; all other memory is in
/// use.
fn three_that_hold(engine: &str) -> Classic {
    let classic = Classic::new(Config { cpus: 4, ..config(engine, 8) }).unwrap();
    for cpu in [1, 2, 3].map(CpuId::new) {
        classic.set_tuning(0, cpu, Tuning::new(63, 4096, 4096, false));
        let pfns = classic.take_many(cpu, 0, Movable, 500);
        classic.put_all(cpu, &pfns, 0);
    }
    // Without a list of its own: what a CPU holds is no help where the zone has nothing.
    classic.set_tuning(0, CPU0, Tuning::new(1, 0, 0, false));
    let others: u64 = held(&classic).iter().sum();
    while classic.memory_map().free > others {
        classic.take(CPU0, 0, Movable);
    }
    assert!(held(&classic).iter().all(|frames| *frames >= 500), "{engine}");
    classic
}

fn held(classic: &Classic) -> [u64; 3] {
    [1, 2, 3].map(|cpu| u64::from(classic.pcp_count(0, CpuId::new(cpu))))
}

#[test]
fn one_cpu_gives_what_is_lacking_and_the_others_keep_theirs() {
    for (engine, least) in [
        ("6.18", None),
        ("6.18,+least-drain", Some(63)),
        ("pcp-buddy", None),
        // Drains begin with whole blocks there, where there is one.
        ("pcp-buddy,+least-drain", Some(63)),
        ("pcp-buddy-fixed,+least-drain", Some(63)),
    ] {
        let classic = three_that_hold(engine);
        let before = held(&classic);
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        let after = held(&classic);
        let Some(least) = least else {
            assert_eq!((stats.drain_all, stats.cpus_asked, after), (1, 0, [0; 3]), "{engine}");
            continue;
        };
        assert_eq!((stats.drain_all, stats.cpus_asked), (0, 1), "{engine}");
        assert_eq!(after[1..], before[1..], "{engine}");
        let given = before[0] - after[0];
        assert!(given >= least && (given == least || engine != "6.18,+least-drain"), "{given}");
    }
}

#[test]
fn who_is_not_helped_goes_on_until_all_are_drained() {
    let classic = three_that_hold("6.18,+least-drain");
    // More than one of them has: the next is asked, too.
    let before = held(&classic);
    let stats = classic.counted(|| {
        assert!(classic.try_with(10, Movable, AllocFlags::empty()).is_some());
    });
    assert_eq!((stats.drain_all, stats.cpus_asked, held(&classic)), (0, 2, [0, 0, before[2]]));
    // With everything in use nobody has anything to give.
    classic.exhaust(0, Movable, AllocFlags::empty());
    let stats = classic.counted(|| {
        assert_eq!(classic.try_with(0, Movable, AllocFlags::empty()), None);
    });
    assert_eq!((stats.drain_all, stats.cpus_asked, stats.failed), (1, 0, 1));
    // Who may not wait asks nobody.
    let classic = three_that_hold("6.18,+least-drain");
    let stats = classic.counted(|| {
        assert_eq!(classic.try_with(0, Movable, AllocFlags::NON_BLOCK), None);
    });
    assert_eq!((stats.drain_all, stats.cpus_asked), (0, 0));
}

/// Blocks of reclaimable memory, the first one with some free frames: fewer than make it worth
/// claiming.
fn partly_free(engine: &str) -> Classic {
    let classic = zone_only(engine, 4);
    classic.take_many(CPU0, 9, Reclaimable, 4);
    classic.split(at(0), order(9), order(0)).unwrap();
    (0..100).for_each(|frame| classic.put(CPU0, at(frame), 0));
    classic
}

#[test]
fn in_defrag_mode_a_block_is_mixed_only_after_draining() {
    for (engine, drains) in [("7.2", 0), ("7.2,+defrag-mode", 1)] {
        let classic = partly_free(engine);
        let stats = classic.counted(|| {
            assert!(classic.try_with(0, Unmovable, AllocFlags::empty()).is_some(), "{engine}");
        });
        assert_eq!((stats.zone.steals, stats.drain_all, stats.failed), (1, drains, 0), "{engine}");
        // No CPU is drained for a request that may not wait.
        let classic = partly_free(engine);
        let stats = classic.counted(|| {
            assert!(classic.try_with(0, Unmovable, AllocFlags::NON_BLOCK).is_some(), "{engine}");
        });
        assert_eq!((stats.zone.steals, stats.drain_all), (1, 0), "{engine}");
    }
}

#[test]
fn in_defrag_mode_whole_blocks_of_other_types_are_taken_at_once() {
    for engine in ["7.2", "7.2,+defrag-mode"] {
        let classic = partly_free(engine);
        classic.put(CPU0, at(1024), 9);
        let stats = classic.counted(|| {
            assert_eq!(
                classic.try_with(0, Unmovable, AllocFlags::empty()),
                Some(at(1024)),
                "{engine}"
            );
        });
        assert_eq!((stats.zone.claims, stats.zone.steals, stats.drain_all), (1, 0, 0), "{engine}");
    }
    // In bulk, too, where a single frame is what is left to try.
    for (engine, most) in [("7.2", 4), ("7.2,+defrag-mode", 1)] {
        let classic = partly_free(engine);
        let mut slots = [None; 4];
        let got = classic.alloc_bulk(CPU0, Unmovable, AllocFlags::NON_BLOCK, &mut slots);
        assert_eq!(got, Ok(most), "{engine}");
    }
}
