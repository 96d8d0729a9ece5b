//! The lists of one CPU: in which order frames come and go, how much it takes, keeps and gives
//! back.

use crate::support::*;
use freehold::{AllocFlags, CpuId, PAGEBLOCK_FRAMES};
use freehold_classic::{Classic, Config, Tuning, Watermarks};

#[test]
fn a_fresh_refill_comes_in_ascending_order_and_a_freed_frame_comes_back_first() {
    for engine in ["5.17", "5.18", "6.18", "7.2", "pcp-buddy", "pcp-buddy-fixed"] {
        let classic = tuned(engine);
        let pfns = classic.take_many(CPU0, 0, Movable, 63);
        assert!(
            pfns.windows(2).all(|pair| offset(pair[1]) == offset(pair[0]) + 1),
            "{engine}: {pfns:?}"
        );
        classic.put_all(CPU0, &pfns[1..3], 0);
        assert_eq!(classic.take(CPU0, 0, Movable), pfns[2], "{engine}: the warmest first");
        assert_eq!(classic.take(CPU0, 0, Movable), pfns[1], "{engine}");
    }
}

#[test]
fn a_drain_takes_the_coldest_frames() {
    let classic = tuned("7.2");
    let pfns = classic.take_many(CPU0, 0, Movable, 126);
    classic.put_all(CPU1, &pfns, 0);
    // One batch goes: what was freed first. What was freed last is still there, last in first out.
    classic.tick_remote_node(CPU1);
    let mut kept = classic.take_many(CPU1, 0, Movable, 63);
    kept.reverse();
    assert_eq!(kept, pfns[63..]);
}

#[test]
fn orders_0_to_3_and_9_are_kept_and_no_others_before_pcp_buddy() {
    for (engine, huge_pages, kept) in [
        ("7.2", true, [true, true, true, true, false, false, false, false, false, true, false]),
        ("7.2", false, [true, true, true, true, false, false, false, false, false, false, false]),
        ("pcp-buddy", true, [true, true, true, true, true, true, true, true, true, true, false]),
    ] {
        for (o, kept) in (0..).zip(kept) {
            let classic = Classic::new(Config { huge_pages, ..config(engine, 16) }).unwrap();
            let pfn = classic.take(CPU0, o, Movable);
            // Nobody's block: freed to whoever frees.
            let stats = classic.counted(|| classic.put(CPU0, pfn, o));
            assert_eq!(
                (stats.pcp.frees == 1, stats.zone.frees == 0),
                (kept, kept),
                "{engine}, order {o}"
            );
        }
    }
}

#[test]
fn huge_pages_have_a_list_a_type_one_from_6_0_and_two_since_6_10() {
    for (engine, shared) in [
        ("5.17", false),
        ("5.18", false),
        ("5.18,+thp-one-list", true),
        ("7.2,-thp-by-type", true),
        ("7.2", false),
    ] {
        let classic = machine(engine, 16);
        classic.set_tuning(0, CPU0, Tuning::new(63, 4000, 4000, false));
        let unmovable = classic.take(CPU0, 9, Unmovable);
        let kept = classic.pcp_count(0, CPU0);
        classic.put(CPU0, unmovable, 9);
        assert!(classic.pcp_count(0, CPU0) > kept, "{engine}: the PCP keeps it");
        let stats = classic.counted(|| {
            classic.take(CPU0, 9, Movable);
        });
        assert_eq!(stats.pcp.hits == 1, shared, "{engine}");
    }
}

/// The specification's worked example: one zone of 32 GiB, 32 CPUs, default watermarks without huge
/// pages.
#[test]
fn batch_high_and_the_refill_ramp_of_32_gib_and_32_cpus() {
    let mut config = Config::single_zone(design("6.18"), 32, 8 << 20);
    config.huge_pages = false;
    let classic = Classic::new(config).unwrap();
    let Tuning { batch, high, high_min, high_max, .. } = classic.tuning(0, CpuId::new(31)).unwrap();
    assert_eq!((batch, high, high_min, high_max), (63, 443, 443, 32768));

    let mut ramp = Vec::new();
    while ramp.len() < 7 {
        let stats = classic.counted_unchecked(|| {
            classic.take(CPU0, 0, Movable);
        });
        ramp.extend((stats.pcp.refills > 0).then_some(stats.pcp.refilled_frames));
    }
    assert_eq!(ramp, [63, 126, 252, 504, 1008, 2016, 2016]);
    // One free halves the exponent, from 5 to 2.
    while classic.pcp_count(0, CPU0) > 0 {
        classic.take(CPU0, 0, Movable);
    }
    let pfn = classic.take_many(CPU1, 0, Movable, 1)[0];
    classic.put(CPU0, pfn, 0);
    classic.take(CPU0, 0, Movable);
    let stats = classic.counted_unchecked(|| {
        classic.take(CPU0, 0, Movable);
    });
    assert_eq!(stats.pcp.refilled_frames, 63 << 2);
    // A CPU fewer: everybody's share grows.
    classic.cpu_dead(CpuId::new(31)).unwrap();
    let Tuning { high_min, high_max, .. } = classic.tuning(0, CPU1).unwrap();
    assert_eq!((high_min, high_max), (14180 / 31, (1 << 20) / 31));
}

/// [`Short::counted`] without the walk over all of memory.
trait Unchecked {
    fn counted_unchecked(&self, work: impl FnOnce()) -> freehold_classic::Stats;
}

impl Unchecked for Classic {
    fn counted_unchecked(&self, work: impl FnOnce()) -> freehold_classic::Stats {
        self.reset_stats();
        work();
        self.stats()
    }
}

/// The PCP of the worked example on a small machine.
fn tuned(engine: &str) -> Classic {
    let classic = machine(engine, 256);
    let tuning = Tuning::new(63, 443, 32768, false);
    classic.set_tuning(0, CPU0, tuning);
    classic.set_tuning(0, CPU1, tuning);
    classic
}

#[test]
fn below_the_high_watermark_the_high_mark_neither_grows_nor_lets_refills_grow_past_it() {
    let mut config = config("7.2", 64);
    config.zones[0].watermarks = Some(Watermarks { min: 0, low: 0, high: 30_000 });
    let classic = Classic::new(config).unwrap();
    classic.set_tuning(0, CPU0, Tuning::new(63, 443, 32768, false));
    // 32768 frames are free: above the high mark, refills double as ever.
    let held = classic.take_many(CPU0, 0, Movable, 3000);
    assert!(classic.tuning(0, CPU0).unwrap().high > 2000);
    // Below it now. Nothing grows from here on.
    while classic.pcp_count(0, CPU0) > 0 {
        classic.take(CPU0, 0, Movable);
    }
    classic.set_tuning(0, CPU0, Tuning::new(63, 443, 32768, false));
    let mut ramp = Vec::new();
    while ramp.len() < 5 {
        let stats = classic.counted(|| {
            classic.take(CPU0, 0, Movable);
        });
        ramp.extend((stats.pcp.refills > 0).then_some(stats.pcp.refilled_frames));
    }
    assert_eq!(ramp, [63, 126, 252, 443 - 63, 443 - 63]);
    assert_eq!(classic.tuning(0, CPU0).unwrap().high, 443);
    // Enough is freed: a drain notices that memory is above the mark again, and the next refill
    // grows.
    classic.put_all(CPU1, &held, 0);
    classic.drain_all();
    classic.put_all(CPU0, &classic.take_many(CPU1, 0, Movable, 600), 0);
    classic.drain_all();
    classic.take(CPU0, 0, Movable);
    assert!(classic.tuning(0, CPU0).unwrap().high > 443);
}

#[test]
fn refills_of_larger_orders_are_a_batch_of_frames_and_at_least_two_chunks() {
    for (o, chunks) in [(1, 31), (2, 15), (3, 7), (9, 2)] {
        for engine in ["5.18", "7.2"] {
            let classic = tuned(engine);
            let stats = classic.counted(|| {
                classic.take(CPU0, o, Movable);
            });
            assert_eq!(stats.pcp.refilled_frames, chunks << o, "{engine}, order {o}");
        }
    }
}

#[test]
fn high_order_pages_leave_early_each_kernel_on_its_own_condition() {
    // A consumer that only frees order 3; which of its frees is the first that sends everything
    // away?
    let first = |engine: &str, between: bool| {
        let classic = tuned(engine);
        let chunks = classic.take_many(CPU0, 3, Unmovable, 100);
        let singles = classic.take_many(CPU0, 0, Unmovable, 100);
        (0..100).find(|&i| {
            classic.put(CPU1, chunks[i], 3);
            if between {
                classic.put(CPU1, singles[i], 0);
            }
            classic.stats().pcp.free_high > 0
        })
    };
    assert_eq!(first("5.17", false), None);
    // The 56th free (448 frames) is the first to drain; the next one finds free_factor raised.
    assert_eq!(first("5.18", false), Some(56));
    // The first that finds a batch (63 frames) freed before it: the ninth.
    assert_eq!(first("6.18,-free-high-half", false), Some(8));
    // The first that finds 63 + 443 / 2 = 284 frames freed before it: the 37th.
    assert_eq!(first("6.18", false), Some(36));
    assert_eq!(first("7.2", false), Some(36));
    assert_eq!(first("7.2,-high-order-limit", false), None);
    // A single frame in between each time: never since 6.7; 5.18 does not look.
    assert_eq!(first("7.2", true), None);
    assert!(first("5.18", true).is_some());
}

#[test]
fn a_large_cache_lets_high_order_pages_gather_to_a_batch_first() {
    let left_after = |free_high_batch| {
        let classic = tuned("7.2");
        let chunks = classic.take_many(CPU0, 3, Unmovable, 20);
        let tuning = Tuning {
            free_count: 500,
            previous_free_high_order: true,
            ..Tuning::new(63, 443, 32768, free_high_batch)
        };
        classic.set_tuning(0, CPU1, tuning);
        (1..20).find(|&i| {
            classic.put(CPU1, chunks[i], 3);
            classic.stats().pcp.free_high > 0
        })
    };
    assert_eq!(left_after(false), Some(1));
    assert_eq!(left_after(true), Some(8), "64 frames are the first full batch");
}

#[test]
fn the_cache_slice_decides_whether_pages_may_gather() {
    for (cache_slice, may) in [(3 * 63, false), (3 * 63 + 1, true)] {
        let config = Config { cache_slice, ..Config::single_zone(design("7.2"), 2, 1 << 18) };
        assert_eq!(Classic::new(config).unwrap().tuning(0, CPU0).unwrap().free_high_batch, may);
    }
}

#[test]
fn what_is_given_back_follows_the_frames_freed_in_a_row() {
    let classic = tuned("7.1,-chunked-drain");
    let pfns = classic.take_many(CPU0, 0, Movable, 443);
    // 442 frames stay; the next one reaches `high`, and all but a batch of what was freed in a row
    // goes.
    classic.put_all(CPU1, &pfns[..442], 0);
    assert_eq!((classic.pcp_count(0, CPU1), classic.stats().pcp.drains), (442, 0));
    let stats = classic.counted(|| classic.put(CPU1, pfns[442], 0));
    assert_eq!((stats.pcp.drains, stats.pcp.drained_frames), (1, 443 - 63));
    // `high` has grown to hold a row as long as that.
    assert_eq!(classic.tuning(0, CPU1).unwrap().high, 443 + 63);
}

#[test]
fn reclaim_makes_cpus_keep_four_batches_at_most() {
    for engine in ["5.18", "7.2"] {
        let classic = tuned(engine);
        let pfns = classic.take_many(CPU0, 0, Movable, 400);
        classic.set_reclaim(true);
        classic.put_all(CPU1, &pfns[..251], 0);
        assert_eq!(classic.stats().pcp.drains, 0, "{engine}");
        classic.put(CPU1, pfns[251], 0);
        assert!(classic.stats().pcp.drains > 0, "{engine}: 252 frames are four batches");
        classic.set_reclaim(false);
    }
}

#[test]
fn a_bulk_request_fills_the_empty_slots_and_returns_the_filled_prefix() {
    let classic = tuned("7.2");
    let mut slots = [None; 10];
    let own = classic.take(CPU0, 0, Movable);
    slots[3] = Some(own);
    let stats = classic.counted(|| {
        assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut slots), Ok(10));
    });
    assert_eq!(stats.pcp.allocs, 9, "the slot that was filled stays as it is");
    assert_eq!(slots[3], Some(own));
    let mut pfns: Vec<_> = slots.iter().map(|slot| slot.unwrap()).collect();
    pfns.sort();
    pfns.dedup();
    assert_eq!(pfns.len(), 10);
    // Nothing to do, nothing done.
    let stats = classic.counted(|| {
        assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut slots), Ok(10));
        assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut []), Ok(0));
    });
    assert_eq!(stats.pcp.allocs, 0);
}

#[test]
fn a_bulk_request_takes_the_lock_once_but_frees_nobody_from_the_row_of_frees() {
    // Unlike a single allocation it does not halve `free_count`.
    let classic = tuned("7.2");
    classic.set_tuning(0, CPU0, Tuning { free_count: 400, ..Tuning::new(63, 443, 32768, false) });
    let mut slots = [None; 20];
    classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut slots).unwrap();
    assert_eq!(classic.tuning(0, CPU0).unwrap().free_count, 400);
    // For a single missing frame it is an ordinary allocation.
    classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut [None]).unwrap();
    assert_eq!(classic.tuning(0, CPU0).unwrap().free_count, 200);
}

#[test]
fn a_bulk_request_that_would_leave_too_little_gets_one_frame() {
    let mut config = config("7.2", 4);
    config.zones[0].watermarks = Some(Watermarks { min: 10, low: 1000, high: 1000 });
    let classic = Classic::new(config).unwrap();
    let mut slots = vec![None; 4 * PAGEBLOCK_FRAMES as usize - 1000];
    // low + missing is not below what is free: the single allocation serves the first slot.
    assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut slots), Ok(1));
    assert_eq!(slots.iter().flatten().count(), 1);
    // And when even that fails, nothing is an error but nothing is there.
    let rest = classic.exhaust(0, Movable, AllocFlags::empty());
    assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut [None; 3]), Ok(0));
    assert_eq!(classic.stats().failed, 2, "the end of `exhaust` and this one");
    drop(rest);
}

#[test]
fn an_allocation_that_finds_its_list_busy_has_not_held_its_lock() {
    let classic = tuned("7.3");
    let stats = classic.counted(|| _ = classic.alloc(CPU0, request(0, Movable)).unwrap());
    // 63 frames are put on the list and one is taken off it.
    assert_eq!((stats.pcp.lock_holds, stats.pcp.lock_steps), (1, 64));
    let stats =
        classic.counted(|| _ = classic.alloc_finding_busy(CPU0, request(0, Movable)).unwrap());
    assert_eq!((stats.pcp_busy, stats.pcp.lock_holds, stats.pcp.lock_steps), (1, 0, 0));
}
