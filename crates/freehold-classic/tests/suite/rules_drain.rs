//! Who gives frames back to the zone and when: overflow, decay, remote nodes, drain-all, hotplug,
//! contexts that may not wait.

use crate::support::*;
use freehold::{AllocError, AllocFlags, CpuId, FreeError};
use freehold_classic::{Classic, Config, Tuning, presets};

/// A CPU that holds `frames` single frames and may hold up to 4,000.
fn holding(engine: &str, frames: usize) -> Classic {
    let classic = machine(engine, 64);
    let tuning = Tuning { high: 4000, ..Tuning::new(63, 443, 4000, false) };
    classic.set_tuning(0, CPU1, tuning);
    // Frames that nobody owns and that were allocated elsewhere.
    let pfns = classic.take_many(CPU0, 4, Movable, frames / 16);
    for pfn in pfns {
        classic.split(pfn, order(4), order(0)).unwrap();
        (0..16).for_each(|i| classic.put(CPU1, pfn.checked_add(i).unwrap(), 0));
    }
    classic.drain_cpu0();
    assert_eq!(classic.pcp_count(0, CPU1) as usize, frames);
    classic
}

trait DrainCpu0 {
    fn drain_cpu0(&self);
}

impl DrainCpu0 for Classic {
    /// What CPU 0 has left over is not the subject here.
    fn drain_cpu0(&self) {
        while self.pcp_count(0, CPU0) > 0 {
            self.tick_remote_node(CPU0);
        }
    }
}

#[test]
fn a_drain_of_all_empties_every_cpu_in_pieces_of_32_batches() {
    for (engine, holds) in [("5.17", 1), ("5.18", 1), ("6.18", 2), ("7.2", 2)] {
        let classic = holding(engine, 2400);
        let stats = classic.counted(|| classic.drain_all());
        assert_eq!(
            (stats.pcp.drained_frames, stats.zone_lock.holds()),
            (2400, holds),
            "{engine}: 2,016 at most since 6.10"
        );
        assert_eq!(classic.pcp_count(0, CPU1), 0);
        let stats = classic.counted(|| classic.drain_all());
        assert_eq!(stats.zone_lock.holds(), 0, "a CPU that holds nothing is passed over");
    }
}

#[test]
fn an_idle_cpu_gives_back_what_is_above_its_sinking_mark() {
    let classic = holding("7.2", 3600);
    // 4000 sinks by an eighth: 100 frames are too many, in pieces of a batch.
    let stats = classic.counted(|| classic.tick(CPU1));
    assert_eq!((stats.pcp.drained_frames, stats.pcp.drains), (100, 2));
    assert_eq!(classic.tuning(0, CPU1).unwrap().high, 3500);
    for _ in 0..20 {
        classic.tick(CPU1);
    }
    assert_eq!((classic.pcp_count(0, CPU1), classic.tuning(0, CPU1).unwrap().high), (443, 443));
    let stats = classic.counted(|| classic.tick(CPU1));
    assert_eq!(stats.zone_lock.holds(), 0);
}

#[test]
fn since_6_18_what_decays_goes_back_batch_by_batch() {
    for (engine, drains) in [("6.18,-chunked-decay", 1), ("6.18", 2), ("7.1", 2), ("pcp-buddy", 2)]
    {
        let classic = holding(engine, 3600);
        let stats = classic.counted(|| classic.tick(CPU1));
        assert_eq!((stats.pcp.drained_frames, stats.pcp.drains), (100, drains), "{engine}");
    }
}

/// As a recording of 6.18 has it: a tick that was to drain 2,016 frames drained 10,577, as 32
/// batches of which 19 were a huge page each, with what had come onto the lists of single frames
/// drained before them.
#[test]
fn each_batch_that_decays_may_be_a_huge_page() {
    for (engine, huge) in [("6.18,-chunked-decay", 4), ("6.18", 31), ("7.2", 31)] {
        let classic = machine(engine, 256);
        classic.set_tuning(0, CPU1, Tuning { high: 40_000, ..Tuning::new(63, 443, 40_000, false) });
        let (pages, singles) =
            (classic.take_many(CPU0, 9, Movable, 60), classic.take_many(CPU0, 4, Movable, 6));
        classic.put_all(CPU1, &pages, 9);
        for pfn in singles {
            classic.split(pfn, order(4), order(0)).unwrap();
            (0..16).for_each(|i| classic.put(CPU1, pfn.checked_add(i).unwrap(), 0));
        }
        // 30,816 frames; the mark sinks to 28,800, 32 batches below. 96 single frames are a batch
        // and half of one, which a huge page fills up.
        classic.set_tuning(0, CPU1, Tuning { high: 28_800, ..classic.tuning(0, CPU1).unwrap() });
        let stats = classic.counted(|| classic.tick(CPU1));
        assert_eq!(stats.pcp.drained_frames, 96 + huge * 512, "{engine}");
    }
}

#[test]
fn before_6_7_nothing_decays() {
    let classic = holding("5.18", 3600);
    let stats = classic.counted(|| classic.tick(CPU1));
    assert_eq!(stats.pcp.drained_frames, 0);
}

#[test]
fn a_remote_nodes_frames_trickle_back_a_batch_a_tick() {
    let classic = holding("7.2", 160);
    let drained: Vec<u64> = (0..4)
        .map(|_| classic.counted(|| classic.tick_remote_node(CPU1)).pcp.drained_frames)
        .collect();
    assert_eq!(drained, [63, 63, 34, 0]);
}

#[test]
fn a_disabled_pcp_keeps_nothing_until_it_is_enabled() {
    for preset in presets() {
        let classic = machine(preset.name, 64);
        let before = classic.tuning(0, CPU0).unwrap();
        classic.pcp_disable();
        let pfns = classic.take_many(CPU0, 0, Movable, 5);
        assert_eq!(classic.memory_map().on_pcp, 0, "{}: one at a time", preset.name);
        classic.put_all(CPU0, &pfns, 0);
        assert_eq!(classic.memory_map().on_pcp, 0, "{}: every free goes out at once", preset.name);
        classic.pcp_enable();
        let after = classic.tuning(0, CPU0).unwrap();
        assert_eq!(
            (after.batch, after.high_min, after.high_max),
            (before.batch, before.high_min, before.high_max)
        );
        let pfns = classic.take_many(CPU0, 0, Movable, 2);
        classic.put_all(CPU0, &pfns, 0);
        assert!(classic.memory_map().on_pcp > 0, "{}", preset.name);
    }
}

#[test]
fn a_cpu_that_goes_leaves_nothing_behind_and_comes_back_empty() {
    for preset in presets() {
        let config = Config { cpus: 4, ..config(preset.name, 64) };
        let classic = Classic::new(config).unwrap();
        let cpu = CpuId::new(3);
        let pfns = classic.take_many(cpu, 0, Movable, 100);
        classic.put_all(CPU0, &pfns[..50], 0);
        let high_max = classic.tuning(0, CPU0).unwrap().high_max;
        classic.cpu_dead(cpu).unwrap();
        classic.validate().unwrap();
        assert_eq!(classic.pcp_count(0, cpu), 0, "{}", preset.name);
        assert_eq!(
            classic.tuning(0, CPU0).unwrap().high_max,
            high_max * 4 / 3,
            "{}: shares grow",
            preset.name
        );
        assert!(classic.cpu_dead(cpu).is_err());
        assert_eq!(classic.alloc(cpu, request(0, Movable)), Err(AllocError::CpuOffline { cpu }));
        assert_eq!(classic.free(cpu, pfns[50], order(0)), Err(FreeError::CpuOffline { cpu }));
        // Frames it has handed out are freed by others; none of them ends up on its lists.
        classic.put_all(CPU1, &pfns[50..], 0);
        assert_eq!(classic.pcp_count(0, cpu), 0, "{}", preset.name);
        classic.validate().unwrap();
        classic.cpu_online(cpu).unwrap();
        assert!(classic.cpu_online(cpu).is_err());
        let tuning = classic.tuning(0, cpu).unwrap();
        assert_eq!((tuning.high_max, classic.pcp_count(0, cpu)), (high_max, 0), "{}", preset.name);
        let pfn = classic.take(cpu, 0, Movable);
        classic.put(cpu, pfn, 0);
        classic.whole_again(64);
    }
}

#[test]
fn the_last_cpu_stays() {
    let classic = machine("7.2", 4);
    classic.cpu_dead(CPU0).unwrap();
    assert!(classic.cpu_dead(CPU1).is_err());
    assert_eq!(classic.online_cpus(), 1);
}

#[test]
fn a_request_that_may_not_wait_for_locks_is_served_while_none_is_held_and_never_drains() {
    let classic = machine("7.2", 4);
    let pfns = classic.exhaust(0, Movable, AllocFlags::NO_LOCK);
    classic.put_all(CPU1, &pfns[..3], 0);
    assert!(classic.pcp_count(0, CPU1) > 0);
    let stats =
        classic.counted(|| assert_eq!(classic.try_with(0, Movable, AllocFlags::NO_LOCK), None));
    assert_eq!(stats.drain_all, 0);
    let stats =
        classic.counted(|| assert!(classic.try_with(0, Movable, AllocFlags::empty()).is_some()));
    assert_eq!(stats.drain_all, 1, "an ordinary request drains the other CPU");
}

#[test]
fn before_anybody_fails_all_cpus_are_drained() {
    for preset in presets() {
        let classic = machine(preset.name, 8);
        let all = classic.exhaust(0, Movable, AllocFlags::empty());
        assert_eq!(all.len(), 8 * 512, "{}", preset.name);
        // A whole chunk of order 3, in parts, on the other CPU's lists.
        let mut aligned = all.iter().copied().filter(|pfn| pfn.is_aligned(order(3)));
        let first = aligned.next().unwrap();
        (0..8).for_each(|i| classic.put(CPU1, first.checked_add(i).unwrap(), 0));
        assert_eq!(classic.take(CPU0, 3, Movable), first, "{}", preset.name);
    }
}

#[test]
fn lists_looked_at_are_work_of_the_hold_in_which_a_drain_looks() {
    // A reclaimable frame whose buddy is in use: the third list; picked, and put on a list of the
    // zone.
    for (engine, looked, work) in
        [("5.17", 2, 1), ("5.17+3", 2, 1), ("5.17+4", 2, 4), ("5.18", 3, 5), ("7.2", 3, 5)]
    {
        let classic = machine(engine, 64);
        let pfns = classic.take_many(CPU0, 0, Reclaimable, 64);
        classic.drain_all();
        classic.put(CPU1, pfns[10], 0);
        let stats = classic.counted(|| classic.drain_all());
        assert_eq!(
            (stats.pcp.drained_chunks, stats.zone.merges, stats.zone_lock.holds()),
            (1, 0, 1),
            "{engine}"
        );
        // Up to 5.17+3 the lists are searched before the zone lock is taken, and from the one after
        // the first on.
        assert_eq!(
            (stats.pcp.lists_looked_at, stats.zone_lock.total()),
            (looked, work),
            "{engine}"
        );
    }
}
