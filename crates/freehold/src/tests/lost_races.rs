//! Frames that are on the way while somebody is about to fail: each call that looks for them is
//! interrupted at each of its steps by the call that has them.

use crate::alloc::ladder::Climb;
use crate::alloc::pick::Want;
use crate::block::{HIGH_ATOMIC, IN_HAND};
use crate::cpu::recall::Recall;
use crate::primitive::Count;
use crate::tests::testing::*;
use std::sync::atomic::Ordering;

/// CPU 1 is inside with a whole block that is in no bitmap and not in its hand yet, and comes out
/// with it, at each step of the look that CPU 0 takes at it.
#[test]
fn who_comes_out_with_frames_during_a_look_is_seen() {
    each_step(|n| {
        let fh = leaked(machine(2, 512));
        let other = inside(fh, 1);
        let block = fh.zones[0].take_whole(other.by(), Want::new(0, 1)).unwrap();
        let come_out = move || {
            block.tag.set(block.tag.get().with_flag(IN_HAND, true));
            other.holds();
            other.cpu.kept[0].set(block, 0);
            drop(other);
        };
        let asks = interrupted(n, come_out, || Recall::by(fh, CpuId::new(0)).would_ask(None));
        assert!(asks.0, "step {n}: the block is CPU 1's throughout");
        asks.1
    });
}

/// CPU 1 has a whole block in hand, and goes in to give it back, or to keep it on the way there.
#[test]
fn who_goes_in_with_frames_during_a_look_is_seen_or_tells() {
    for leaves in [false, true] {
        each_step(|n| {
            let fh = leaked(unmarked(2, 512));
            let pfn = fh.on(CpuId::new(1)).alloc(movable(9)).unwrap();
            fh.on(CpuId::new(1)).free(pfn, Order::PAGEBLOCK).unwrap();
            let asker = inside(fh, 0);
            let request = movable(9);
            let climb = Climb::new(&asker, &request);
            let watched = climb.begin_watch(&asker).unwrap();
            let go_in = move || {
                let other = inside(fh, 1);
                let block = other.cpu.kept.iter().find_map(|kept| {
                    let block = kept.block(&fh.map.blocks)?;
                    kept.clear();
                    Some(block)
                });
                if leaves {
                    other.by().release_whole(block.unwrap());
                } else {
                    // It is stopped there.
                    core::mem::forget(other);
                }
            };
            let (asks, reached) =
                interrupted(n, go_in, || Recall::by(fh, CpuId::new(0)).would_ask(None));
            assert!(asks || !watched.goes_on(fh), "step {n}, leaves {leaves}");
            reached
        });
    }
}

/// Somebody outside every CPU's state has taken the words of a block, to see whether all of it is
/// free, and puts them back.
#[test]
fn a_range_is_had_beside_frames_on_the_way() {
    let host = Turns::new(false);
    let fh = leaked(machine_on(host, 1, 1024));
    let pfn = fh.here().alloc(movable(0)).unwrap();
    fh.drain_all();
    let block = fh.map.locate(pfn.get()).unwrap();
    let mark = fh.zones[0].moving(fh.outside(), 0);
    let words = [5, 6].map(|w| (w, block.line.take_word(w)));
    host.set_then(1, move || {
        words.into_iter().for_each(|(w, word)| block.put_back_uncounted(fh, w, word));
        drop(mark);
    });
    let range = frames_at(block.base() + 256, 256);
    fh.alloc_contig_range(range, |used| panic!("{used:?} is free, and was to be moved")).unwrap();
    fh.validate().unwrap();
}

/// All free frames are those of a block that stops being HIGHATOMIC. A request at each step finds
/// them, or waits for the call that is at it, or the block is HIGHATOMIC still.
#[test]
fn no_request_fails_beside_a_reserve_that_is_being_given_up() {
    let mut waited = 0;
    for n in 1.. {
        let host = Turns::new(false);
        let fh = leaked(machine_on(host, 2, 512));
        let pfn = fh.here().alloc(movable(0)).unwrap();
        fh.drain_all();
        let block = fh.map.locate(pfn.get()).unwrap();
        assert!(fh.outside().retype(block, block.tag.get(), HIGH_ATOMIC));
        fh.zones[0].high_atomic_blocks.add_shared(1);
        // The bits of the rows that it was in are cleared by a search that meets them.
        fh.on(CpuId::new(1)).alloc(movable(0)).unwrap_err();
        host.turns.store(0, Ordering::Relaxed);
        let request = move || {
            let ordinary = block.tag.get().migratetype() != HIGH_ATOMIC;
            let found = fh.here().alloc(movable(0));
            let turns = host.taken();
            assert!(found.is_ok() || !ordinary || turns != 0, "step {n}: {found:?}");
            host.turns.store(u64::from(found.is_err() && ordinary), Ordering::Relaxed);
        };
        let (given_up, reached) =
            interrupted(n, request, || fh.give_up_reserve(0, Migratetype::Movable));
        assert!(given_up);
        fh.validate().unwrap();
        if !reached {
            break;
        }
        waited += host.taken();
    }
    assert!(waited > 0, "at no step are the frames out of sight");
}

/// All memory of three CPUs but one chunk of that order, which is free.
fn one_free(order: u8) -> (&'static Machine, Pfn) {
    let blocks = if order > 9 { 4 } else { 2 };
    let fh = leaked(machine(3, blocks * 512));
    let all: Vec<Pfn> =
        core::iter::from_fn(|| fh.on(CpuId::new(2)).alloc(movable(9)).ok()).collect();
    // Of one block all the rest is in use, or all of two blocks.
    let first = all[0].get() + if order < 9 { 1 << order } else { 0 };
    let (pfn, order) = (Pfn::new(first), of_order(order));
    let chunk = FrameRange::new(pfn, order.frames()).unwrap();
    Freeing::of(fh, None).range(chunk).unwrap();
    fh.drain_all();
    (fh, pfn)
}

/// Who exchanges the only free chunk, and by which door it is free again: into the hand.
fn exchange(fh: &'static Machine, cpu: u16, order: u8) {
    let door = fh.on(CpuId::new(cpu));
    if let Ok(pfn) = door.alloc(movable(order).flags(AllocFlags::NO_LOCK)) {
        door.free(pfn, of_order(order)).unwrap();
    }
}

/// One chunk is free at each step of a request, and before some of its steps a CPU has taken and
/// freed it, into its hand where it may, or has let it go. That CPU may be the requesting one:
/// while it asks others for what they have in hand, anybody may enter it.
#[test]
fn no_request_fails_beside_a_chunk_that_changes_hands() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in rounds(20_000) {
        let order = [0, 3, 6, 9, 9, 10][random.usize(..6)];
        let request = match random.u32(..3) {
            0 => movable(order),
            1 => movable(order).below(Pfn::new(1 << 20)),
            _ => movable(order).align(of_order(order.min(8) + 1)),
        };
        let (fh, pfn) = one_free(order);
        if request.align > request.order && !pfn.is_aligned(request.align) {
            continue;
        }
        let in_hand = random.bool();
        if in_hand {
            exchange(fh, 1, order);
        }
        let stops = (0..random.usize(1..=4)).map(|_| {
            let (cpu, flush) = (random.u16(..2), random.bool());
            let other = move || {
                if !flush {
                    exchange(fh, cpu, order);
                } else if !fh.cpus[usize::from(cpu)].door.is_occupied() {
                    fh.on(CpuId::new(cpu)).flush().unwrap();
                }
            };
            (random.u64(1..900), Box::new(other) as Other)
        });
        let stops: Vec<_> = stops.collect();
        let got = interrupted_by(stops, || fh.here().alloc(request)).0;
        assert_eq!(got, Ok(pfn), "{request:?}, round {round}");
        fh.validate().unwrap();
    }
}

/// A block is to be kept for HIGHATOMIC requests, and gets another type at some step of that.
#[test]
fn a_block_that_is_not_kept_after_all_does_not_count() {
    each_step(|n| {
        let fh = leaked(machine(1, 1 << 16));
        let pfn = fh.here().alloc(movable(3)).unwrap();
        let block = fh.map.locate(pfn.get()).unwrap();
        let retype = move || {
            let tag = block.tag.get();
            if tag.migratetype() != HIGH_ATOMIC {
                assert!(fh.outside().retype(block, tag, Migratetype::Unmovable as usize));
            }
        };
        let request = movable(3).flags(AllocFlags::HIGH_ATOMIC);
        let keep = || _ = fh.outside().keep_block_of(Want::of(&request), pfn.get());
        let (_, reached) = interrupted(n, retype, keep);
        fh.validate().unwrap();
        reached
    });
}

/// Four blocks, of which one CPU has a frame before the end of the first one.
fn with_gap() -> &'static Machine {
    let fh = leaked(machine(3, 4 * 512));
    let cpu = fh.on(CpuId::new(2));
    let run = cpu.alloc_run(400).unwrap();
    assert_eq!(run.start, Pfn::new(0));
    cpu.free_range(frames_at(0, 200)).unwrap();
    fh.drain_all();
    fh
}

/// A run takes the end of a block, whole blocks and the start of another one, or a gap, and loses
/// some of it to somebody who is faster. Once all is free again all blocks are whole.
#[test]
fn a_run_that_is_lost_in_part_is_put_back() {
    type Rival = fn(&'static Machine) -> Option<FrameRange>;
    fn chunk(fh: &'static Machine, order: u8) -> Option<FrameRange> {
        let pfn = fh.on(CpuId::new(1)).alloc(movable(order).flags(AllocFlags::NO_LOCK)).ok()?;
        FrameRange::new(pfn, 1 << order)
    }
    let others: [Rival; 4] = [
        |fh| chunk(fh, 0),
        |fh| chunk(fh, 9),
        |fh| fh.on(CpuId::new(1)).alloc_run(300).ok(),
        |fh| fh.on(CpuId::new(1)).alloc_run(700).ok(),
    ];
    for len in [150, 600, 700, 1100, 1300] {
        for (number, other) in others.into_iter().enumerate() {
            for n in stops_of(with_gap, move |fh| _ = fh.here().alloc_run(len)) {
                let fh = with_gap();
                let taken = std::rc::Rc::new(core::cell::Cell::new(None));
                let note = taken.clone();
                let other = move || note.set(other(fh));
                let (run, _) = interrupted(n, other, || fh.here().alloc_run(len));
                let all = [Some(frames_at(200, 200)), run.ok(), taken.take()];
                all.into_iter().flatten().for_each(|run| fh.here().free_range(run).unwrap());
                fh.drain_all();
                fh.validate().unwrap();
                let blocks = fh.zone_blocks(0).unwrap().free_blocks;
                assert_eq!(blocks, 4, "{len} frames, other {number}, step {n}");
            }
        }
    }
}

/// The hand of a lease that ends shows its frames for some steps after they are in their word: who
/// takes the word then, whole, may free it at once.
#[test]
fn whole_words_of_a_lease_that_ends_are_had_when_it_has_ended() {
    each_step(|n| {
        let fh = leaked(machine(2, 512));
        let frames: Vec<Pfn> = (0..64).map(|_| fh.here().alloc(movable(0)).unwrap()).collect();
        frames.iter().for_each(|&pfn| fh.here().free(pfn, Order::ZERO).unwrap());
        let block = fh.map.locate(frames[0].get()).unwrap();
        let w = (frames[0].get() / 64) as usize % 8;
        let take_and_free = move || {
            if block.claim_words_at::<1>(fh.outside(), w) {
                Freeing::of(fh, None).word(block.base() / 64 + w as u64, !0, 1).unwrap();
            }
        };
        let (_, reached) = interrupted(n, take_and_free, || fh.here().flush().unwrap());
        fh.validate().unwrap();
        reached
    });
}

/// A CPU has taken a word to lease it and not opened the slot yet: isolation waits for it.
#[test]
fn isolation_waits_for_a_lease_that_is_just_opening() {
    let host = Turns::new(false);
    let fh = leaked(machine_on(host, 2, 1024));
    let pfn = fh.here().alloc(movable(0)).unwrap();
    fh.drain_all();
    let block = fh.map.locate(pfn.get()).unwrap();
    let other = inside(fh, 1);
    assert!(block.change_lease(5, 0, other.lease_name()));
    let word = block.line.take_word(5);
    host.set_then(1, move || {
        // It finds another tag than it chose the block for.
        block.put_back_uncounted(fh, 5, word);
        block.set_lease(5, 0);
        drop(other);
    });
    let all = frames_at(block.base(), 512);
    fh.isolate(all).unwrap();
    let free: u32 = fh.take_free(all).unwrap().iter().map(|word| word.count_ones()).sum();
    assert_eq!(free, 511);
}

/// CPU 1 leases a word of the only memory there is while a range is looked for.
#[test]
fn frames_in_hand_are_no_obstacle_to_a_range() {
    let all = frames_at(0, 512);
    let world = || leaked(machine(2, 512));
    for n in stops_of(world, |fh| _ = fh.alloc_contig_free(512, Order::ZERO, all)) {
        let fh = world();
        let other = move || exchange(fh, 1, 0);
        let (got, _) = interrupted(n, other, || fh.alloc_contig_free(512, Order::ZERO, all));
        assert_eq!(got, Ok(all), "step {n}");
    }
}

/// The first candidate has a frame that does not move; the next one starts right behind it.
#[test]
fn no_candidate_is_passed_over_behind_a_frame_that_does_not_move() {
    let fh = leaked(machine(1, 1536));
    let all = fh.here().alloc_run(1536).unwrap();
    for (from, to) in [(0, 100), (101, 1100), (1101, 1536)] {
        fh.here().free_range(FrameRange { start: Pfn::new(from), end: Pfn::new(to) }).unwrap();
    }
    let migrate = |used: FrameRange| {
        let moves = used.start == Pfn::new(1100);
        if moves {
            fh.here().free_range(used).unwrap();
        }
        moves
    };
    let found = fh.alloc_contig(1000, Order::ZERO, all, migrate).unwrap();
    assert_eq!(found.start, Pfn::new(101));
    fh.validate().unwrap();
}

/// Frames of a range that is being allocated are taken out of its isolated blocks by somebody who
/// walks them: the range is put back, and nothing of it is lost.
#[test]
fn a_range_that_is_lost_in_part_is_put_back() {
    let world = || leaked(machine(1, 4 * 512));
    let range = frames_at(300, 700);
    for n in stops_of(world, move |fh| fh.alloc_contig_range(range, |_| false).unwrap()) {
        for last in [511, 999] {
            let fh = world();
            let frame = frames_at(last, 1);
            let taken = std::rc::Rc::new(core::cell::Cell::new(false));
            let note = taken.clone();
            let other = move || note.set(fh.take_free(frame).unwrap() != [0; 8]);
            let (got, _) = interrupted(n, other, || fh.alloc_contig_range(range, |_| false));
            let had = [got.is_ok().then_some(range), taken.get().then_some(frame)];
            had.into_iter().flatten().for_each(|had| fh.here().free_range(had).unwrap());
            fh.drain_all();
            fh.validate().unwrap();
            assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 4, "step {n}, frame {last}");
        }
    }
}

/// Memory comes between two blocks parts of which are there, and in use. At some step a frame of it
/// is freed before it was ever handed out, and taken: it is in use then, and not free as well.
#[test]
fn a_frame_is_freed_while_its_memory_comes_beside_other_memory() {
    let range = |start, end| frames_at(start, end - start);
    let coming = range(768, 1792);
    let world = || {
        let memory = [range(512, 768), range(1792, 2048)];
        let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
        let config = Config { extra_ranges: 4, ..Config::new(1, &zones) };
        let fh: &Machine = Box::leak(Box::new(machine_of(&SingleCpu, &config)));
        assert!((0..512).all(|_| fh.here().alloc(movable(0)).is_ok()));
        fh.drain_all();
        fh
    };
    for n in stops_of(world, |fh| fh.add_memory(coming).unwrap()) {
        for wrong in [900, 1600_u64] {
            let fh = world();
            let taken = std::rc::Rc::new(core::cell::Cell::new(0));
            let note = taken.clone();
            let other = move || {
                let freed = Freeing::of(fh, None).word(wrong / 64, 1 << (wrong % 64), 1).is_ok();
                let take = || fh.here().alloc(movable(0).flags(AllocFlags::NO_LOCK)).is_ok();
                note.set(u64::from(freed && take()));
            };
            interrupted(n, other, || fh.add_memory(coming).unwrap());
            fh.validate().unwrap_or_else(|violation| panic!("step {n}, {wrong}: {violation}"));
            let free = fh.zone_stats(0).unwrap().free;
            assert_eq!(free + taken.get(), coming.len(), "step {n}, {wrong}");
        }
    }
}
