//! A machine after its set-up against one that had none, field by field. The patterns name every
//! field without `..`, so that a new one does not compile until somebody has said whether it is
//! memory.

use freehold::{AllocFlags, CpuId, Migratetype, Order};

use crate::pcp::{Pcp, PcpInner};
use crate::primitive::Ordering::SeqCst;
use crate::zone::{Zone, ZoneInner};
use crate::{Classic, Config, Counts, Design, Request, ZoneConfig, presets};

/// Whatever is not memory of a machine, as text.
fn beside_memory(classic: &Classic) -> Vec<String> {
    let Classic {
        zones,
        zonelists,
        reserves,
        online,
        cpu_nodes,
        on,
        layout,
        cache_slice,
        counts,
        hotplug,
    } = classic;
    let Counts {
        failed,
        kept,
        pcp_busy,
        pcp_relocks_lost,
        remote_pcp_waits,
        remote_queued,
        drain_all,
        range_visits,
        cpus_asked,
    } = counts;
    let counts = [failed, kept, pcp_busy, pcp_relocks_lost, remote_pcp_waits];
    let counts = counts.into_iter().chain([remote_queued, drain_all, range_visits, cpus_asked]);
    let counts: Vec<u64> = counts.map(|count| count.load(SeqCst)).collect();
    let online: Vec<bool> = online.iter().map(|online| online.load(SeqCst)).collect();
    let disabled = *hotplug.lock().unwrap();
    let mut all = vec![
        format!("{zonelists:?} {reserves:?} {online:?} {cpu_nodes:?} {on:?} {layout:?}"),
        format!("{cache_slice} {disabled} {counts:?}"),
    ];
    for zone in zones {
        all.extend(beside_memory_of(zone));
    }
    all
}

fn beside_memory_of(zone: &Zone) -> Vec<String> {
    // Memory: which frame and block is what, and so how many are free.
    zone.fields_beside_memory(|inner| {
        let ZoneInner {
            areas: _,
            owned: _,
            isolated_blocks,
            counters,
            fallbacks,
            histogram,
            work,
        } = inner;
        let holds = (histogram.holds(), histogram.total(), histogram.max());
        format!("{isolated_blocks} {counters:?} {fallbacks:?} {holds:?} {work}")
    })
    .into_iter()
    .chain(zone.pcps.iter().map(of_pcp))
    .collect()
}

fn of_pcp(pcp: &Pcp) -> String {
    pcp.fields(|inner| {
        let PcpInner { lists, count, tuning, dead, busy, counters, flow, work } = inner;
        let empty = lists.iter().all(|list| list.is_empty());
        format!("{empty} {count} {tuning:?} {dead} {busy} {counters:?} {flow:?} {work}")
    })
}

/// Two zones of which each is used up and given back in single frames, with fallbacks on the way,
/// so that every conclusion the allocator can draw from a lack of memory has been drawn.
fn set_up(classic: &Classic) {
    let (cpu, other) = (CpuId::new(0), CpuId::new(1));
    let mut held = Vec::new();
    for (order, migratetype) in [
        (9, Migratetype::Movable),
        (3, Migratetype::Unmovable),
        (0, Migratetype::Reclaimable),
        (0, Migratetype::Movable),
    ] {
        let request = Request::new(Order::new(order).unwrap(), migratetype)
            .with(AllocFlags::MIN_RESERVE | AllocFlags::HIGH_ATOMIC);
        let most = if order == 9 { 12 } else { usize::MAX };
        while held.iter().filter(|(_, of)| *of == request.order).count() < most {
            let Ok(pfn) = classic.alloc(cpu, request) else { break };
            held.push((pfn, request.order));
        }
    }
    classic.set_reclaim(true);
    for (i, (pfn, order)) in held.into_iter().enumerate() {
        if i % 9 != 0 {
            let _ = classic.free(if i % 2 == 0 { cpu } else { other }, pfn, order).unwrap();
        }
    }
}

fn config(engine: &str) -> Config {
    let design = Design::parse(engine).unwrap();
    let mut config = Config::single_zone(design, 2, 16 << 9);
    let end = config.zones[0].range.end;
    config.zones.push(ZoneConfig::new("Far", end, 16 << 9));
    config
}

#[test]
fn after_a_set_up_a_machine_equals_a_fresh_one_in_all_that_is_not_memory() {
    for preset in presets() {
        let fresh = beside_memory(&Classic::new(config(preset.name)).unwrap());
        let used = Classic::new(config(preset.name)).unwrap();
        set_up(&used);
        let before = beside_memory(&used);
        let differ = before.iter().zip(&fresh).filter(|(a, b)| a != b).count();
        assert_eq!(differ, fresh.len() - 3, "{}: the set-up has left its mark", preset.name);
        used.forget_setup();
        used.reset_stats();
        assert_eq!(beside_memory(&used), fresh, "{}", preset.name);
        assert!(used.memory_map().free < used.memory_map().managed, "and its memory stays");
    }
}

#[test]
fn after_a_set_up_no_zone_remembers_that_memory_was_short() {
    let classic = Classic::new(config("7.3")).unwrap();
    let zone = &classic.zones[0];
    zone.below_high.store(true, SeqCst);
    zone.boost.store(512, SeqCst);
    classic.set_reclaim(true);
    classic.forget_setup();
    let remembered = (zone.below_high.load(SeqCst), zone.reclaim.load(SeqCst));
    assert_eq!((remembered, zone.boost.load(SeqCst)), ((false, false), 0));
}
