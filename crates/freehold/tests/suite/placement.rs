//! Where allocations go, so that large runs and whole blocks stay: best fit among partly free
//! blocks, of those alike the lowest, and partly free blocks before whole ones.

use crate::common::*;

/// Allocates every frame, by CPU 0.
fn fill(fh: &Alloc<'_>) {
    let taken = std::iter::from_fn(|| fh.on(cpu(0)).alloc(movable(0)).ok()).count();
    assert_eq!(taken as u64, fh.zone_stats(0).unwrap().managed);
}

/// Whole blocks in the hands of nobody and everybody.
fn whole_blocks(fh: &Alloc<'_>) -> u64 {
    fh.zone_blocks(0).unwrap().free_blocks
}

/// Two blocks are partly free: one has a large run, the other more frames but only in small runs.
#[test]
fn a_single_frame_comes_from_the_block_with_the_smallest_runs() {
    let fh = machine(1, 64);
    fill(&fh);
    let (large, small) = (512 * 4, 512 * 9);
    fh.on(cpu(0)).free_range(FrameRange::new(Pfn::new(large), 128).unwrap()).unwrap();
    for n in 0..255 {
        fh.on(cpu(0)).free(Pfn::new(small + n * 2), Order::ZERO).unwrap();
    }
    fh.drain_all();
    for _ in 0..255 {
        let pfn = fh.on(cpu(0)).alloc(movable(0)).unwrap().get();
        assert!((small..small + 512).contains(&pfn), "{pfn} breaks the run of order 7");
    }
    assert_eq!(
        fh.on(cpu(0)).alloc(movable(7)).unwrap().get(),
        large,
        "the run of order 7 is still there"
    );
    fh.validate().unwrap();
}

/// A block with a large run has single frames beside it, in no run of four, three of them in one
/// word; another one has a run of eight and nothing else. The single frames go first, then the
/// smaller run is broken up.
#[test]
fn single_frames_take_loose_ones_before_a_run_is_broken_up() {
    let fh = machine(2, 64);
    fill(&fh);
    let (large, small) = (512 * 4, 512 * 9);
    // Freed by another CPU, so that the one that allocates has no hint to them.
    let free = |start: u64, len: u64| fh.on(cpu(1)).free_range(range(start, len)).unwrap();
    free(large + 256, 128);
    free(small + 8, 8);
    let singles = [5, 70, 71, 75, 200];
    singles.into_iter().for_each(|n| free(large + n, 1));
    fh.drain_all();
    let next = || fh.on(cpu(0)).alloc(movable(0)).unwrap().get();
    let mut loose = singles.map(|_| next() - large);
    loose.sort_unstable();
    assert_eq!(loose, singles);
    for _ in 0..8 {
        let pfn = next();
        assert!((small + 8..small + 16).contains(&pfn), "{pfn} is in the larger run");
    }
    assert!((large + 256..large + 384).contains(&next()));
    fh.validate().unwrap();
}

/// A block over half of which is free may become whole: its single frames are left alone, and a run
/// of eight elsewhere is broken up.
#[test]
fn single_frames_leave_loose_ones_of_a_block_that_is_mostly_free() {
    let fh = machine(2, 64);
    fill(&fh);
    let (large, small) = (512 * 4, 512 * 9);
    let free = |start: u64, len: u64| fh.on(cpu(1)).free_range(range(start, len)).unwrap();
    free(large + 256, 256);
    [5, 7, 9].into_iter().for_each(|n| free(large + n, 1));
    free(small + 8, 8);
    fh.drain_all();
    for _ in 0..8 {
        let pfn = fh.on(cpu(0)).alloc(movable(0)).unwrap().get();
        assert!((small + 8..small + 16).contains(&pfn), "{pfn} is in a block that is mostly free");
    }
    fh.validate().unwrap();
}

/// Fewer than three loose frames of a word are not worth a write to a row that all CPUs share.
#[test]
fn the_third_loose_frame_of_a_word_is_told_and_no_other() {
    let fh = machine(2, 64);
    fill(&fh);
    let block = 512 * 9;
    let writes = || fh.totals().cpus.shared_writes;
    let writes_of = |n: u64| {
        let before = writes();
        fh.on(cpu(1)).free(Pfn::new(block + n), Order::ZERO).unwrap();
        writes() - before
    };
    // By turns into two words: a second free in a row would lease its word.
    let [first, rest @ ..] = [0, 64, 2, 66, 4, 68, 6].map(writes_of);
    assert!(first > 0, "a block with a free frame is on the board");
    assert_eq!(rest.map(|writes| writes > 0), [false, false, false, true, false, false]);
    fh.validate().unwrap();
}

/// The whole block stays while there are partly free ones, no matter who used them.
#[test]
fn partly_free_blocks_of_other_cpus_are_used_before_a_whole_one_is_split() {
    let fh = machine(2, 256);
    let (a, b) = (cpu(0), cpu(1));
    // There are 16 blocks of which every second frame is free; the rest of memory is whole.
    let mut frames: Vec<Pfn> = (0..16 * 512).map(|_| fh.on(a).alloc(movable(0)).unwrap()).collect();
    frames.sort_unstable();
    for pfn in frames.iter().step_by(2) {
        fh.on(a).free(*pfn, Order::ZERO).unwrap();
    }
    fh.on(a).flush().unwrap();
    let before = whole_blocks(&fh);
    for _ in 0..7 * 512 {
        fh.on(b).alloc(movable(0)).unwrap();
    }
    let split = before - whole_blocks(&fh);
    assert!(split <= 1, "{split} whole blocks were split beside 16 half free ones");
    fh.validate().unwrap();
}

/// A CPU goes on with its block without a search only where a search would find that one: not where
/// meanwhile there is a smaller run, a lower block alike, a block with loose frames, or, as another
/// CPU leases a word of its own, a block that it has alone.
#[test]
fn a_cpu_goes_on_with_the_block_that_a_search_would_find() {
    let (own, lower, higher) = (512 * 20, 512 * 10, 512 * 30);
    // In turns with another word: the second free in a row into a word leases it.
    let loose =
        [(128, 128), (1, 1), (65, 1), (3, 1), (67, 1), (5, 1)].map(|(n, len)| (higher + n, len));
    type Frees<'f> = &'f [(u64, u64)];
    let cases: [(Frees<'_>, u64); 5] = [
        (&[], own + 64),
        (&[(higher, 64)], higher),
        (&[(lower, 128)], lower),
        (&loose, higher + 1),
        (&[(higher, 128), (own + 301, 1), (own + 303, 1)], higher),
    ];
    for (freed, expected) in cases {
        // Large enough that each CPU may have blocks of its own.
        let fh = machine(2, 512);
        fill(&fh);
        // In one piece: word by word a block is in the first one's row, too, until a search looks.
        let free = |(start, len): (u64, u64)| {
            let order = Order::new(len.ilog2() as u8).unwrap();
            fh.on(cpu(1)).free(Pfn::new(start), order).unwrap();
        };
        free((own, 128));
        // Not all at once: a thread that was asked for what it has leases nothing for a while.
        (0..2).for_each(|n| fh.on(cpu(n)).flush().unwrap());
        let next = || fh.on(cpu(0)).alloc(movable(0)).unwrap().get();
        assert_eq!(next(), own);
        freed.iter().copied().for_each(free);
        (1..64).for_each(|n| assert_eq!(next(), own + n));
        assert_eq!(next(), expected, "after {freed:?}");
        fh.validate().unwrap();
    }
}

/// While nearly all of the zone is whole a CPU keeps to its block; later each word comes from the
/// block that fits best.
#[test]
fn a_cpu_keeps_to_its_block_only_while_nearly_all_of_the_zone_is_whole() {
    let fh = machine(1, 64);
    fill(&fh);
    let (more, fewer) = (512 * 5, 512 * 9);
    let word = |start: u64| FrameRange::new(Pfn::new(start), 64).unwrap();
    for start in [more, more + 128, more + 256] {
        fh.on(cpu(0)).free_range(word(start)).unwrap();
    }
    fh.drain_all();
    let pfn = fh.on(cpu(0)).alloc(movable(0)).unwrap().get();
    assert!((more..more + 512).contains(&pfn), "there is no other block");
    // From now on another one has a smaller run, too.
    let smaller = FrameRange::new(Pfn::new(fewer), 32).unwrap();
    fh.on(cpu(0)).free_range(smaller).unwrap();
    let next: Vec<u64> = (0..95).map(|_| fh.on(cpu(0)).alloc(movable(0)).unwrap().get()).collect();
    assert!(
        next[..63].iter().all(|pfn| (more..more + 512).contains(pfn)),
        "the rest of the word in hand"
    );
    assert!(next[63..].iter().all(|pfn| (fewer..fewer + 32).contains(pfn)), "then the smaller run");
    fh.validate().unwrap();
}

/// A run that was freed last is taken again without a look for a block, but not out of a larger
/// one. (With `debug-poison` runs are freed the slow way, which leaves no hint.)
#[test]
#[cfg(not(feature = "debug-poison"))]
fn a_run_freed_last_is_used_again_only_where_it_fits_exactly() {
    for order in 1..=5u8 {
        let (fh, len) = (machine(1, 256), 1 << order);
        fill(&fh);
        let free =
            |start: u64| fh.on(cpu(0)).free(Pfn::new(start), Order::new(order).unwrap()).unwrap();
        let alloc = || fh.on(cpu(0)).alloc(movable(order)).unwrap().get();
        let refills = || fh.on(cpu(0)).stats().unwrap().refills;
        // In words of their own, so that none is leased for a second free in a row.
        let alone = [512 * 5, 512 * 7 + 64, 512 * 9 + 128];
        alone.iter().for_each(|&start| free(start));
        let before = refills();
        for start in alone.iter().rev() {
            assert_eq!(alloc(), *start, "order {order}");
        }
        assert_eq!(refills(), before, "order {order}: the group was asked");
        // Now one with its buddy, the buddy freed by others in between, and one that fits.
        free(512 * 5);
        free(512 * 8);
        fh.on(cpu(0)).free_range(FrameRange::new(Pfn::new(512 * 8 + len), len).unwrap()).unwrap();
        assert_eq!(alloc(), 512 * 5, "order {order}: half of a larger run is broken first");
        // Nor out of a block that may become whole soon, while there is a fuller one.
        fh.on(cpu(0)).free_range(FrameRange::new(Pfn::new(512 * 11), 384).unwrap()).unwrap();
        fh.on(cpu(0)).flush().unwrap();
        fh.on(cpu(0)).tick().unwrap();
        fh.on(cpu(0)).free_range(FrameRange::new(Pfn::new(512 * 13), len).unwrap()).unwrap();
        free(512 * 11 + 448);
        assert_eq!(alloc(), 512 * 13, "order {order}: a block that is nearly free is filled again");
        fh.validate().unwrap();
    }
}

/// The buddy is freed by another CPU, into a word that nobody leases: half of the larger run is
/// left alone, and the older hint is taken.
#[test]
#[cfg(not(feature = "debug-poison"))]
fn a_run_freed_last_whose_buddy_is_free_too_is_left_alone() {
    for o in 1..=4u8 {
        let (fh, len) = (machine(2, 256), 1 << o);
        fill(&fh);
        fh.on(cpu(0)).flush().unwrap();
        let (fits, half) = (Pfn::new(512 * 5), Pfn::new(512 * 8));
        fh.on(cpu(0)).free(fits, order(o)).unwrap();
        fh.on(cpu(0)).free(half, order(o)).unwrap();
        fh.on(cpu(1)).free(Pfn::new(half.get() + len), order(o)).unwrap();
        assert_eq!(fh.on(cpu(0)).alloc(movable(o)), Ok(fits), "order {o}");
        fh.validate().unwrap();
    }
}

/// That block stays split, and its class says still what it had before.
#[test]
#[cfg(not(feature = "debug-poison"))]
fn what_is_freed_into_the_block_in_use_is_used_again() {
    for o in 1..=7u8 {
        let fh = machine(1, 256);
        fill(&fh);
        let (elsewhere, in_use) = (Pfn::new(512 * 5), Pfn::new(512 * 8));
        for (start, len) in [(elsewhere, 1 << o), (in_use, 256)] {
            fh.on(cpu(0)).free_range(FrameRange::new(start, len).unwrap()).unwrap();
        }
        fh.on(cpu(0)).flush().unwrap();
        assert_eq!(fh.on(cpu(0)).alloc(movable(8)), Ok(in_use));
        let freed = Pfn::new(in_use.get() + 128);
        fh.on(cpu(0)).free(freed, order(o)).unwrap();
        assert_eq!(fh.on(cpu(0)).alloc(movable(o)), Ok(freed), "order {o}");
        fh.validate().unwrap();
    }
}

/// Of two movable blocks one is half free, the other has a frame less. There is nothing else: the
/// first becomes the unmovable request's, the second gives up frames and keeps its type.
#[test]
fn a_block_that_is_mostly_in_use_keeps_its_type() {
    for (free, claimed) in [(256, 1), (255, 0)] {
        let fh = machine(1, 64);
        fill(&fh);
        fh.on(cpu(0)).free_range(FrameRange::new(Pfn::new(512 * 9), free).unwrap()).unwrap();
        fh.drain_all();
        let pfn = fh.on(cpu(0)).alloc(unmovable(0)).unwrap();
        assert_eq!(pfn.pageblock(), Pfn::new(512 * 9));
        let blocks = fh.zone_blocks(0).unwrap().blocks_by_type;
        let unmovable = blocks[Migratetype::Unmovable as usize];
        assert_eq!(
            (unmovable, fh.zone_stats(0).unwrap().mixed),
            (claimed, 1 - claimed),
            "{free} frames are free"
        );
        fh.validate().unwrap();
    }
}

/// Memory fills up from below, so that what is high becomes whole.
#[test]
fn of_blocks_alike_the_lowest_is_used_first() {
    let fh = machine(2, 64);
    fill(&fh);
    // Freed by another CPU, which has the hints then.
    let (high, low) = (Pfn::new(512 * 9), Pfn::new(512 * 5));
    for pfn in [high, low] {
        fh.on(cpu(1)).free(pfn, Order::ZERO).unwrap();
    }
    assert_eq!(fh.on(cpu(0)).alloc(movable(0)).unwrap(), low);
    fh.validate().unwrap();
}

/// A thread that has given back all goes by the board again, not on with the block in use.
#[test]
fn after_a_flush_the_smallest_run_comes_first() {
    let fh = machine(1, 64);
    let on = fh.on(cpu(0));
    // Eight in a row: single frames in no run of eight come first wherever they are.
    let [first, ..] = [0; 8].map(|_| on.alloc(movable(0)).unwrap());
    let block = on.alloc(movable(9)).unwrap();
    on.free(block, Order::new(7).unwrap()).unwrap();
    on.flush().unwrap();
    let next = on.alloc(movable(0)).unwrap();
    assert_eq!(next.pageblock(), block, "the block of {first} is nearly free");
    fh.validate().unwrap();
}

/// CPU 0 keeps a block that it has freed, and half of a movable block is free. An unmovable frame
/// comes from the former: one in the latter would keep movable memory from becoming whole.
#[test]
fn what_a_cpu_keeps_comes_before_a_block_of_another_type() {
    let fh = machine(2, 64);
    let blocks: Vec<Pfn> = all(&fh.on(cpu(0)), movable(9));
    let (kept, half) = (blocks[3], blocks[5]);
    fh.on(cpu(0)).free(kept, order(9)).unwrap();
    fh.on(cpu(1)).free_range(range(half.get() + 256, 256)).unwrap();
    let pfn = fh.on(cpu(0)).alloc(unmovable(0)).unwrap();
    assert_eq!(pfn.pageblock(), kept.pageblock());
    assert_eq!(fh.zone_stats(0).unwrap().fallbacks, 0);
    fh.validate().unwrap();
}

/// Runs by their place: just what is free is had, once, out of words, over their ends, and out of
/// the hand; a free is checked as any. (With `debug-poison` frees take the whole way.)
#[test]
#[cfg(not(feature = "debug-poison"))]
fn a_run_is_had_again_where_it_was_freed() {
    use freehold::Fit;

    let fh = machine(2, 64);
    let owned = fh.own(cpu(0)).unwrap();
    let left = || fh.zone_stats(0).unwrap().free;
    let runs: Vec<FrameRange> =
        (0..20).map(|n| owned.alloc_run([130, 254, 5][n.min(2)]).unwrap()).collect();
    let before = left();
    for &run in &runs {
        let count = run.len();
        assert!(!owned.alloc_run_at(run.start, count, Fit::All), "it is in use");
        // Two frees of a part into one word in a row lease it.
        owned.flush().unwrap();
        assert!(owned.free_run_at_hand(run.start, count));
        assert_eq!(left(), before + count);
        assert!(!owned.free_run_at_hand(run.start, count), "it is free");
        let double = owned.free_range(run);
        assert_eq!(double, Err(freehold::FreeError::DoubleFree { pfn: run.start }));
        // A part of it is somebody's meanwhile.
        let part = range(run.start.get() + 3, 2);
        assert!(owned.alloc_run_at(part.start, 2, Fit::All));
        assert!(!owned.alloc_run_at(run.start, count, Fit::All));
        owned.free_range(part).unwrap();
        assert!(owned.alloc_run_at(run.start, count, Fit::All));
        assert_eq!(left(), before);
        fh.validate().unwrap();
    }
    // In the hand; and what is in another CPU's is not this one's to take, or to free.
    let single = owned.alloc(movable(0)).unwrap();
    assert!(owned.free_run_at_hand(single, 1));
    assert!(owned.alloc_run_at(single, 1, Fit::All) && !owned.alloc_run_at(single, 1, Fit::All));
    let theirs = fh.on(cpu(1)).alloc(movable(0)).unwrap();
    fh.on(cpu(1)).free(theirs, Order::ZERO).unwrap();
    assert!(!owned.alloc_run_at(theirs, 1, Fit::All) && !owned.free_run_at_hand(theirs, 1));
    // Of no block's, of more than one, and of nothing.
    assert!(!owned.alloc_run_at(Pfn::new(1), 5, Fit::All));
    assert!(!owned.alloc_run_at(Pfn::new(1020), 5, Fit::All));
    assert!(!owned.alloc_run_at(Pfn::new(1020), 0, Fit::All));
    owned.free(single, Order::ZERO).unwrap();
    runs.iter().for_each(|&run| owned.free_range(run).unwrap());
    drop(owned);
    assert_all_free(&fh);
}
