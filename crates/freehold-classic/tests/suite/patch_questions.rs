//! What the pcp-buddy proposal leaves open, each question a switch: what it changes, by counts.

use crate::support::*;
use freehold::{CpuId, FrameRange, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Stats, Tuning};

/// `cpus` CPUs that take a pageblock at once and keep up to eight.
fn blocks_at_once(engine: &str, blocks: u64, cpus: u16) -> Classic {
    let classic = Classic::new(Config { cpus, ..config(engine, blocks) }).unwrap();
    (0..cpus).for_each(|cpu| {
        classic.set_tuning(0, CpuId::new(cpu), Tuning::new(512, 4096, 4096, false))
    });
    classic
}

fn owner(classic: &Classic, pfn: Pfn) -> Option<u16> {
    classic.owner(pfn).map(CpuId::get)
}

#[test]
fn merging_without_ownership_gives_the_zone_larger_chunks() {
    let drain = |engine: &str| {
        let classic = blocks_at_once(engine, 64, 2);
        let pfns = classic.take_many(CPU0, 0, Movable, 512);
        classic.drain_all();
        // 64 groups of eight neighbours, freed by a CPU that owns nothing.
        classic.put_all(CPU1, &pfns, 0);
        let stats = classic.counted(|| classic.drain_all());
        classic.whole_again(64);
        (
            stats.pcp.merges,
            stats.pcp.drained_chunks,
            stats.zone.merges + stats.pcp.merges,
            stats.zone_lock.total(),
        )
    };
    let ((none, singles, all, before), (merges, chunks, after_all, after)) =
        (drain("7.2"), drain("7.2,+merge-unowned"));
    assert_eq!((none, singles), (0, 512));
    // Seven merges make a chunk of order 3 of eight frames, and order 3 is as far as these lists
    // go.
    assert_eq!((merges, chunks), (64 * 7, 64));
    assert_eq!(all, after_all, "the same merges, elsewhere");
    assert!(3 * after < before, "{after} {before}");
}

#[test]
fn without_ownership_only_what_lies_on_the_same_pcp_can_merge() {
    for (engine, merges) in
        [("7.2,+merge-unowned", 0), ("pcp-buddy", 511), ("pcp-buddy,-route,+merge-unowned", 0)]
    {
        let classic = blocks_at_once(engine, 16, 2);
        let pfns = classic.take_many(CPU0, 0, Movable, 512);
        // Even frames are freed by one CPU, odd ones by the other: with ownership they meet,
        // without it they do not.
        pfns.iter().for_each(|&pfn| classic.put(CpuId::new((pfn.get() % 2) as u16), pfn, 0));
        let stats = classic.counted(|| classic.drain_all());
        assert_eq!(stats.pcp.merges, merges, "{engine}");
        classic.whole_again(16);
    }
    // With the RFC's lists of all orders, unowned chunks merge as far as they go.
    let classic = blocks_at_once("pcp-buddy,-route,-claim,+merge-unowned", 16, 2);
    let pfns = classic.take_many(CPU0, 0, Movable, 512);
    classic.put_all(CPU1, &pfns, 0);
    let stats = classic.counted(|| classic.drain_all());
    assert_eq!(stats.pcp.merges, 511);
    classic.whole_again(16);
}

#[test]
fn a_peer_gives_a_whole_block_without_the_zone_lock() {
    for (engine, from_peer) in [
        ("pcp-buddy", false),
        ("pcp-buddy,+peer-blocks", true),
        ("pcp-buddy-fixed,+peer-blocks", true),
    ] {
        let classic = blocks_at_once(engine, 16, 3);
        // CPU 2 has a whole block of its own.
        let cpu2 = CpuId::new(2);
        let pfns = classic.take_many(cpu2, 0, Movable, 512);
        classic.put_all(cpu2, &pfns, 0);
        let whole = classic.take(cpu2, 9, Movable);
        classic.put(cpu2, whole, 9);
        assert_eq!(classic.pcp_count(0, cpu2) % 512, 0);
        let held = classic.pcp_count(0, cpu2);
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        let zone = u64::from(!from_peer);
        assert_eq!((stats.zone_lock.holds(), stats.pcp.refills), (zone, zone), "{engine}");
        assert_eq!(
            (stats.pcp.peer_blocks, stats.pcp.peers_asked),
            if from_peer { (1, 2) } else { (0, 0) },
            "{engine}"
        );
        assert_eq!(classic.pcp_count(0, cpu2), held - if from_peer { 512 } else { 0 }, "{engine}");
        // An unmovable request finds no block of its type with anybody.
        let stats = classic.counted(|| _ = classic.take(CPU1, 0, Unmovable));
        assert_eq!((stats.zone_lock.holds(), stats.pcp.peer_blocks), (1, 0), "{engine}");
    }
}

#[test]
fn frees_follow_a_block_to_its_new_owner() {
    let classic = blocks_at_once("pcp-buddy,+peer-blocks", 16, 3);
    let cpu2 = CpuId::new(2);
    let whole = classic.take_many(cpu2, 9, Movable, 2);
    classic.put_all(cpu2, &whole, 9);
    let pfns = classic.take_many(CPU0, 0, Movable, 512);
    assert!(whole.contains(&pfns[0].pageblock()));
    let owners = [owner(&classic, whole[0]), owner(&classic, whole[1])];
    assert!(owners == [Some(0), Some(2)] || owners == [Some(2), Some(0)], "{owners:?}");
    let stats = classic.counted(|| classic.put_all(cpu2, &pfns, 0));
    assert_eq!((stats.pcp.remote_frees, classic.pcp_count(0, CPU0)), (512, 512));
    classic.cpu_dead(CPU0).unwrap();
    classic.validate().unwrap();
    classic.whole_again(16);
}

#[test]
fn before_it_fails_a_cpu_asks_its_peers_and_nobody_else_is_drained() {
    for (engine, rounds) in [("pcp-buddy", 1), ("pcp-buddy,+peer-blocks", 0)] {
        let classic = blocks_at_once(engine, 4, 2);
        let whole = classic.take(CPU1, 9, Movable);
        while classic.pcp_count(0, CPU1) > 0 {
            classic.take(CPU1, 0, Movable);
        }
        classic.put(CPU1, whole, 9);
        // One at a time, so that a claim is out of the question; everything but that block is
        // taken.
        classic.set_tuning(0, CPU0, Tuning::new(1, 0, 0, false));
        while classic.memory_map().free > 512 {
            classic.take(CPU0, 0, Movable);
        }
        let stats =
            classic.counted(|| assert_eq!(classic.take(CPU0, 0, Movable), whole, "{engine}"));
        assert_eq!(stats.drain_all, rounds, "{engine}");
        assert_eq!(stats.pcp.peer_blocks, 1 - rounds, "{engine}");
    }
}

#[test]
fn a_block_with_fragments_elsewhere_does_not_change_hands() {
    let classic = blocks_at_once("pcp-buddy,+peer-blocks", 16, 2);
    let pfns = classic.take_many(CPU1, 0, Movable, 512);
    classic.put_all(CPU1, &pfns[1..], 0);
    classic.tick_remote_node(CPU1);
    let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
    assert_eq!((stats.pcp.peer_blocks, stats.pcp.peers_asked, stats.zone_lock.holds()), (0, 1, 1));
    assert_eq!(owner(&classic, pfns[0]), Some(1));
}

#[test]
fn a_whole_block_that_is_still_on_its_owners_list_of_fragments_does_not_change_hands() {
    let classic = blocks_at_once("pcp-buddy,+peer-blocks", 16, 2);
    let tune =
        |cpu, frames, high| classic.set_tuning(0, cpu, Tuning::new(frames, high, high, false));
    let mut home = classic.take_many(CPU1, 0, Movable, 512);
    tune(CPU1, 512, 4096);
    home.extend(classic.take_many(CPU1, 0, Movable, 512));
    // Half of each goes to the zone in fragments, which the other CPU takes and gives home again.
    let away: Vec<Pfn> = home.iter().copied().filter(|pfn| pfn.get() % 512 < 256).collect();
    home.retain(|pfn| !away.contains(pfn));
    classic.put_all(CPU1, &away, 0);
    classic.drain_all();
    tune(CPU0, 1, 0);
    let taken = classic.take_many(CPU0, 0, Movable, 512);
    assert!(taken.iter().all(|pfn| away.contains(pfn)));
    classic.put_all(CPU0, &taken, 0);
    classic.put_all(CPU1, &home[1..], 0);
    // A drain of a batch merges both blocks, gives one of them back, and leaves the other.
    tune(CPU1, 63, 1024);
    classic.put(CPU1, home[0], 0);
    assert_eq!((classic.pcp_count(0, CPU1), classic.stats().pcp.drained_blocks), (512, 1));
    tune(CPU0, 512, 4096);
    let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
    assert_eq!((stats.pcp.peers_asked, stats.pcp.peer_blocks), (1, 0));
}

/// Eight CPUs with 100 free frames each on blocks of their own, and the block of CPU 3 wanted as a
/// range.
fn wanted_range(engine: &str) -> Stats {
    let classic = blocks_at_once(engine, 64, 8);
    let mut wanted = Pfn::new(0);
    for cpu in (0..8).map(CpuId::new) {
        let pfns = classic.take_many(cpu, 0, Movable, 512);
        classic.put_all(cpu, &pfns[..100], 0);
        if cpu.get() == 3 {
            wanted = pfns[0].pageblock();
            // Some by another CPU: with ownership they come home.
            classic.put_all(CPU0, &pfns[100..], 0);
        }
    }
    let range = FrameRange::new(wanted, PAGEBLOCK_FRAMES).unwrap();
    classic.counted(|| {
        classic.alloc_contig_range(CPU0, range, &mut |_| panic!("all of it is free")).unwrap()
    })
}

#[test]
fn a_range_is_got_from_the_cpu_that_holds_it() {
    for (engine, visits, drained) in [
        ("7.2", 8, 1212),
        ("pcp-buddy", 8, 1212),
        ("pcp-buddy,+targeted-drain", 1, 512),
        // What others freed waits on the owner's list, and goes to the zone from there.
        ("pcp-buddy-fixed,+targeted-drain", 1, 100),
    ] {
        let stats = wanted_range(engine);
        assert_eq!((stats.range_visits, stats.pcp.drained_frames), (visits, drained), "{engine}");
    }
}

#[test]
fn frames_that_nobodys_block_left_anywhere_are_drained_from_everybody_after_all() {
    for engine in ["pcp-buddy,+targeted-drain", "pcp-buddy-fixed,+targeted-drain"] {
        // Order 10 goes past the PCP, so nobody owns what it is split into.
        let classic = blocks_at_once(engine, 16, 2);
        let pfn = classic.take(CPU0, 10, Movable);
        classic.split(pfn, order(10), order(0)).unwrap();
        (0..512).for_each(|i| classic.put(CPU1, pfn.checked_add(i).unwrap(), 0));
        assert_eq!(owner(&classic, pfn), None);
        let range = FrameRange::new(pfn, PAGEBLOCK_FRAMES).unwrap();
        let stats = classic
            .counted(|| classic.alloc_contig_range(CPU0, range, &mut |_| panic!("free")).unwrap());
        assert_eq!((stats.range_visits, stats.pcp.drained_frames), (2, 512), "{engine}");
    }
}

/// The share of movable requests that CMA serves while half of the memory is used up, in percent of
/// the frames, where `cma` of 64 blocks are CMA.
fn cma_share(engine: &str, cma: u64, fragmented: bool) -> u64 {
    let mut config = config(engine, 64);
    config.zones[0].cma = vec![range((64 - cma) * 512, cma * 512)];
    let classic = Classic::new(config).unwrap();
    (0..2).for_each(|cpu| classic.set_tuning(0, CpuId::new(cpu), Tuning::new(63, 443, 443, false)));
    if fragmented {
        // A frame of every block is in use, so that none is whole.
        (0..64).for_each(|b| {
            classic.alloc_contig_range(CPU0, range(512 * b, 1), &mut |_| false).unwrap()
        });
    }
    let stats = classic.counted(|| drop(classic.take_many(CPU0, 0, Movable, 32 * 512)));
    assert!(stats.zone.movable_frames >= 32 * 512);
    (200 * stats.zone.cma_frames / stats.zone.movable_frames).div_ceil(2)
}

#[test]
fn cma_serves_movable_requests_until_it_is_half_of_what_is_free() {
    for engine in ["5.17", "7.2", "pcp-buddy-fixed"] {
        // 48 of 64 blocks: 32 go before the rest is half; 40: 16 go, then half of each block more.
        let shares = [16, 40, 48].map(|cma| cma_share(engine, cma, false));
        assert_eq!(shares, [0, 75, 100], "{engine}");
        assert_eq!(cma_share(engine, 48, true), 100, "{engine}");
    }
    assert_eq!(cma_share("7.2,-cma-half", 48, false), 50, "own blocks first, and there are 16");
    assert_eq!(cma_share("7.2,-cma-half", 16, false), 0);
    // The RFC takes fragments from movable blocks as long as there are any, as if the rule were
    // switched off.
    assert_eq!(cma_share("pcp-buddy", 48, true), cma_share("7.2,-cma-half", 48, true));
}
