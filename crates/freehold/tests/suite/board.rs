//! What the zone's board must find, who is asked before a request fails, and what must not be asked
//! for: each a defect that was there.

use crate::common::*;

/// Single frames of another type are there in plenty: not all CPUs are asked for each of them.
#[test]
fn frames_of_another_type_are_taken_before_all_cpus_are_asked() {
    let host = Barriers::default();
    let fh = one_zone(2, &[range(512, 64 * MIB)], &host);
    let (user, other) = (fh.own(cpu(0)).unwrap(), fh.own(cpu(1)).unwrap());
    let frames: Vec<Pfn> = all(&user, movable(0));
    // Every second frame is free, in no block half of which is free in one piece.
    frames.iter().step_by(2).for_each(|&pfn| user.free(pfn, Order::ZERO).unwrap());
    // Somebody who always has something in hand.
    let mine = other.alloc(movable(0)).unwrap();
    let before = host.count();
    let got: Vec<Pfn> = (0..1000).map(|_| user.alloc(unmovable(0)).unwrap()).collect();
    assert!(host.count() - before <= 2, "{} barriers for 1,000 frames", host.count() - before);
    for pfn in got.into_iter().chain([mine]).chain(frames.iter().skip(1).step_by(2).copied()) {
        user.free(pfn, Order::ZERO).unwrap();
    }
    drop((user, other));
    assert_all_free(&fh);
}

/// A request that cannot be met does not interrupt CPUs whose hands would not help.
#[test]
fn who_has_no_such_run_in_hand_is_not_asked_for_one() {
    let host = Barriers::default();
    let fh = one_zone(2, &[range(512, 16 * MIB)], &host);
    let (user, other) = (fh.own(cpu(0)).unwrap(), fh.own(cpu(1)).unwrap());
    let mut frames: Vec<Pfn> = all(&other, movable(0));
    frames.sort_unstable();
    // No two of those that are free are neighbours; some are in the other one's hand.
    frames.iter().step_by(2).for_each(|&pfn| other.free(pfn, Order::ZERO).unwrap());
    let mine = other.alloc(movable(0)).unwrap();
    let before = host.count();
    for _ in 0..100 {
        assert!(is_no_memory(user.alloc(movable(3).flags(AllocFlags::NON_BLOCK))));
    }
    assert_eq!(host.count(), before, "another CPU was interrupted for nothing");
    // A single frame it has.
    let rest: Vec<Pfn> = all(&user, movable(0));
    assert_eq!(rest.len() + 1, frames.len() / 2);
    for pfn in rest.into_iter().chain([mine]).chain(frames.iter().skip(1).step_by(2).copied()) {
        user.free(pfn, Order::ZERO).unwrap();
    }
    drop((user, other));
    assert_all_free(&fh);
}

/// A call that may not wait gets all that is in nobody's hand, though the CPU that it names is
/// owned: of any order, and by bulk calls.
#[test]
fn who_may_not_wait_gets_all_that_can_be_had_without() {
    for o in [0, 3, 7, 9, 10] {
        let host = Barriers::default();
        let fh = one_zone(1, &[range(1024, 64 * MIB)], &host);
        let owner = fh.own(cpu(0)).unwrap();
        let request = Request::new(order(o), Migratetype::Movable).flags(AllocFlags::NO_LOCK);
        let handler = fh.on(cpu(0));
        let chunks: Vec<Pfn> = all(&handler, request);
        assert_eq!((chunks.len() as u64) << o, 64 * MIB, "order {o}");
        chunks.into_iter().for_each(|pfn| handler.free(pfn, order(o)).unwrap());
        if o == 0 {
            let mut out = [Pfn::default(); 1000];
            assert_eq!(handler.alloc_bulk(request, &mut out), Ok(1000));
            handler.free_bulk(&out).unwrap();
        }
        assert_eq!(host.count(), 0);
        drop(owner);
        assert_all_free(&fh);
    }
}

/// 4 MiB, and two owned CPUs.
fn two_blocks(host: &Barriers) -> Alloc<'_> {
    one_zone(2, &[range(1024, 4 * MIB)], host)
}

/// A call that may not wait interrupts nobody for what they have in hand: a single frame, one
/// within limits, a whole block, a run of blocks. A thread that may wait gets it.
#[test]
fn who_may_not_wait_asks_nobody_for_what_they_have_in_hand() {
    let limited = movable(0).below(Pfn::new(2048));
    for request in [movable(0), limited, movable(9), movable(10)] {
        let host = Barriers::default();
        let fh = two_blocks(&host);
        let (user, other) = (fh.own(cpu(0)).unwrap(), fh.own(cpu(1)).unwrap());
        let unit = request.order().min(order(9));
        let held: Vec<Pfn> =
            std::iter::from_fn(|| other.alloc(Request::new(unit, Migratetype::Movable)).ok())
                .collect();
        // Two frames of one word, or both blocks: they come into the other one's hand.
        held[..2].iter().for_each(|&pfn| other.free(pfn, unit).unwrap());
        let before = host.count();
        let refused = user.alloc(request.flags(AllocFlags::NO_LOCK));
        assert_eq!(refused, Err(AllocError::WouldBlock), "{request:?}");
        assert_eq!(host.count(), before, "another CPU was interrupted: {request:?}");
        let pfn = user.alloc(request).unwrap();
        assert_ne!(host.count(), before, "it was in no hand: {request:?}");
        user.free(pfn, request.order()).unwrap();
        held[2..].iter().for_each(|&pfn| other.free(pfn, unit).unwrap());
        drop((user, other));
        assert_all_free(&fh);
    }
}

/// A call that may not wait gets what it has in hand itself, for whatever else.
#[test]
fn who_may_not_wait_gets_what_it_has_in_hand_for_something_else() {
    for request in [movable(0), movable(0).below(Pfn::new(2048))] {
        let host = Barriers::default();
        let fh = two_blocks(&host);
        let user = fh.own(cpu(0)).unwrap();
        let mut frames: Vec<Pfn> = all(&user, movable(0));
        frames.sort_unstable();
        user.flush().unwrap();
        // Four frames, of which two stay in hand for runs.
        user.free(frames[64], order(2)).unwrap();
        let run = user.alloc(movable(1)).unwrap();
        let pfn = user.alloc(request.flags(AllocFlags::NO_LOCK)).unwrap();
        user.free(run, order(1)).unwrap();
        user.free(pfn, Order::ZERO).unwrap();
        for &pfn in frames[..64].iter().chain(&frames[68..]) {
            user.free(pfn, Order::ZERO).unwrap();
        }
        drop(user);
        assert_all_free(&fh);
    }
}

/// A block that was a CMA block once, all of it free, says on the board that it has more than any
/// ordinary split block. A CPU that goes on from it lets it become whole all the same.
#[test]
fn a_block_that_was_of_cma_becomes_whole_when_it_is_left() {
    let (memory, cma) = ([range(512, 6 * MIB)], [range(1024, 512)]);
    let zone = ZoneConfig { watermarks: Watermarks::None, cma: &cma, ..ZoneConfig::new(&memory) };
    let fh = build(&Config { extra_ranges: 2, ..Config::new(1, &[zone]) }, &freehold::SingleCpu);
    fh.remove_memory(cma[0]).unwrap();
    fh.add_memory(cma[0]).unwrap();
    let limited = movable(9).from(cma[0].start).below(cma[0].end);
    assert_eq!(fh.here().alloc(limited), Ok(cma[0].start));
    fh.here().free_range(range(1024, 448)).unwrap();
    let pfn = fh.here().alloc(movable(0)).unwrap();
    assert!(cma[0].contains(pfn), "{pfn} is of another block than the one that is split");
    fh.here().free(pfn, Order::ZERO).unwrap();
    fh.here().free_range(range(1472, 64)).unwrap();
    fh.here().flush().unwrap();
    assert_all_free(&fh);
}

/// The zone keeps its min mark in a partly free block, and hands out its last whole block: on a
/// machine of eight blocks one that is spared is an eighth of memory.
#[test]
fn the_last_whole_block_is_no_reserve_where_a_partly_free_one_will_do() {
    let memory = [range(512, 16 * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::Kernel, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(2, &[zone]), &freehold::SingleCpu);
    let min = fh.zone_stats(0).unwrap().watermarks[0];
    assert!((1..448).contains(&min));
    let frame = fh.on(cpu(1)).alloc(movable(0)).unwrap();
    let blocks: Vec<Pfn> = all(&fh.on(cpu(0)), movable(9));
    assert_eq!(blocks.len(), 7, "there are 511 free frames beside them");
    // The mark is kept: by what is left of the partly free block.
    let frames: Vec<Pfn> = all(&fh.on(cpu(0)), movable(0));
    assert_eq!(frames.len() as u64, 511 - min);
    fh.validate().unwrap();
    blocks.into_iter().for_each(|pfn| fh.on(cpu(0)).free(pfn, order(9)).unwrap());
    frames.into_iter().chain([frame]).for_each(|pfn| fh.on(cpu(0)).free(pfn, order(0)).unwrap());
    assert_all_free(&fh);
}
