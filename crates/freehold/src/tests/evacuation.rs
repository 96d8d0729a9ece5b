//! Blocks that are emptied: in which order, what is refused, and that a call which is interrupted
//! at any step by any other loses nothing.

use crate::tests::testing::*;

fn at(pfn: u64) -> Pfn {
    Pfn::new(pfn)
}

/// A machine all of whose blocks are movable; of each these frames are in use.
fn with_used(blocks: u64, used: impl Fn(u64, u64) -> bool) -> &'static Machine {
    let fh = leaked(machine(2, blocks * PAGEBLOCK_FRAMES));
    let cpu = fh.here();
    (0..blocks * PAGEBLOCK_FRAMES).for_each(|_| _ = cpu.alloc(movable(0)).unwrap());
    for pfn in 0..blocks * PAGEBLOCK_FRAMES {
        if !used(pfn / PAGEBLOCK_FRAMES, pfn % PAGEBLOCK_FRAMES) {
            cpu.free(at(pfn), Order::ZERO).unwrap();
        }
    }
    fh.drain_all();
    fh
}

/// What an exact look at every block says.
fn naively(fh: &Machine) -> Vec<SparseBlock> {
    let used = |block: &crate::PageblockState| block.frames - block.free;
    let blocks = fh.pageblocks(0).filter(|block| (1..512).contains(&used(block)));
    let mut all: Vec<SparseBlock> =
        blocks.map(|block| SparseBlock { used: used(&block), start: block.start }).collect();
    all.sort_unstable();
    all
}

/// Blocks of every class, more of them than one search keeps.
fn of_every_class() -> &'static Machine {
    with_used(100, |block, frame| match block % 10 {
        // One in each run of so many, thinned out for some.
        class @ 0..9 => frame % (1 << class) == block % (1 << class) || frame % 97 < block / 10,
        _ => block < 50,
    })
}

#[test]
fn the_emptiest_come_first_and_each_once() {
    let fh = of_every_class();
    let expected = naively(fh);
    assert!(expected.len() >= 80 && expected[0].used == 2, "{expected:?}");
    let found: Vec<SparseBlock> = fh.emptiest(0, u32::MAX, |_| true).collect();
    assert_eq!(found, expected);
    let odd = |start: Pfn| start.get() / 512 % 2 == 1;
    let found: Vec<SparseBlock> = fh.emptiest(0, u32::MAX, odd).collect();
    let expected: Vec<SparseBlock> =
        expected.into_iter().filter(|block| odd(block.start)).collect();
    assert_eq!(found, expected);
    assert_eq!(fh.emptiest(1, u32::MAX, |_| true).count(), 0, "there is no such zone");
}

/// Rows whose blocks cannot be emptier than those that are found are not looked at.
#[test]
fn a_search_ends_with_the_first_row_that_cannot_have_emptier_blocks() {
    let fh = with_used(128, |block, frame| if block < 64 { frame % 2 == 0 } else { frame == 3 });
    let mut blocks = fh.emptiest(0, 100, |_| true);
    assert_eq!(blocks.next().map(|block| block.used), Some(1));
    assert_eq!(blocks.looks_left(), 100 - 64, "it looks at all that have one frame in use");
    let few = fh.emptiest(0, 5, |_| true).count();
    assert_eq!(few, 5, "it looked at more blocks than it was to, or at fewer");
    let (_, one) = steps(|| fh.emptiest(0, 1, |_| true).next());
    let (_, all) = steps(|| fh.emptiest(0, u32::MAX, |_| true).next());
    assert!(one < all / 8, "{one} steps for one look, {all} for all");
}

/// As many blocks as a search keeps have four frames in use; the row below has one with two.
#[test]
fn a_search_goes_on_while_the_next_row_may_have_an_emptier_block() {
    let fh = with_used(33, |block, frame| match block {
        0 => frame == 128 || frame == 300,
        _ => (256..260).contains(&frame),
    });
    // It meets that block first, whose class says more than it has.
    let run = fh.here().alloc(movable(8)).unwrap();
    assert_eq!(run, at(512));
    fh.here().free(run, of_order(8)).unwrap();
    fh.drain_all();
    let found: Vec<SparseBlock> = fh.emptiest(0, u32::MAX, |_| true).collect();
    assert_eq!(found[0], SparseBlock { used: 2, start: at(0) });
    assert_eq!(found, naively(fh));
}

#[test]
fn a_block_that_has_changed_since_is_returned_as_it_is() {
    let fh = with_used(8, |block, frame| frame <= block);
    let mut blocks = fh.emptiest(0, u32::MAX, |_| true);
    assert_eq!(blocks.next().unwrap(), SparseBlock { used: 1, start: at(0) });
    // The second becomes whole, the third is being emptied, a frame of the fourth is freed.
    fh.here().free_range(frames_at(512, 2)).unwrap();
    let third = fh.evacuate(at(1024)).unwrap();
    fh.here().free(at(3 * 512), Order::ZERO).unwrap();
    assert_eq!(blocks.next(), Some(SparseBlock { used: 3, start: at(3 * 512) }));
    assert!(fh.emptiest(0, u32::MAX, |_| true).all(|block| block.start != third.start()));
}

/// Contents of 19 blocks all go to the twentieth: no frame moves twice.
#[test]
fn a_block_that_others_move_into_waits_for_its_turn() {
    let fh = with_used(20, |_, frame| frame % 40 == 1);
    let used: u64 = naively(fh).iter().map(|block| u64::from(block.used)).sum();
    let mut moved = 0;
    for block in fh.emptiest(0, u32::MAX, |_| true).take(19) {
        let mut emptying = fh.evacuate(block.start).unwrap();
        emptying.move_used(|run| {
            (0..run.len()).for_each(|_| _ = fh.here().alloc(movable(0)).unwrap());
            fh.here().free_range(run).unwrap();
            moved += run.len();
            true
        });
        assert!(emptying.finish());
    }
    assert_eq!((naively(fh).len(), moved), (1, used - 13));
}

#[test]
fn a_block_that_has_got_fuller_comes_behind_those_that_it_has_passed() {
    let fh = with_used(4, |block, frame| frame <= block);
    let mut blocks = fh.emptiest(0, u32::MAX, |_| true);
    let mut next = || blocks.next().map(|block| (block.start.get() / 512, block.used));
    assert_eq!(next(), Some((0, 1)));
    // The second and the fourth get fuller: frames of them are taken by their place.
    for run in [frames_at(512 + 2, 8), frames_at(3 * 512 + 4, 196)] {
        fh.alloc_contig_range(run, |_| false).unwrap();
    }
    assert_eq!(
        [next(), next(), next(), next()],
        [Some((2, 3)), Some((1, 10)), Some((3, 200)), None]
    );
}

#[test]
fn only_a_movable_block_that_is_partly_in_use_can_be_emptied() {
    let fh = leaked(machine(1, 8 * 512 - 64));
    let busy = |pfn: Pfn| AllocError::Busy { pfn: pfn.pageblock() };
    let refused = |pfn: Pfn| fh.evacuate(pfn).err();
    let single = |kind| fh.here().alloc(Request::new(Order::ZERO, kind)).unwrap();
    assert_eq!(refused(at(100)), Some(busy(at(0))), "it is whole, and not set up");
    let unmovable = single(Migratetype::Unmovable);
    // The block with the hole is in use, and the first to be filled.
    let partly: Vec<Pfn> = (0..448).map(|_| single(Migratetype::Movable)).collect();
    let page = single(Migratetype::Movable);
    assert!(partly[0].pageblock() == at(7 * 512) && page.pageblock() != at(7 * 512));
    fh.here().free_range(frames_at(7 * 512, 100)).unwrap();
    let huge = fh.here().alloc(movable(9)).unwrap();
    let whole = fh.here().alloc(movable(9)).unwrap();
    fh.here().free(whole, Order::PAGEBLOCK).unwrap();
    fh.drain_all();
    for pfn in [unmovable, huge, whole] {
        assert_eq!(refused(pfn), Some(busy(pfn)));
    }
    let end = AllocError::BadRange { pfn: at(8 * 512 - 64) };
    assert_eq!(refused(at(7 * 512 + 3)), Some(end), "it has a hole");
    assert_eq!(refused(at(1 << 40)), Some(AllocError::BadRange { pfn: at(1 << 40) }));
    let first = fh.evacuate(page).unwrap();
    assert_eq!(refused(page), Some(busy(page)), "it is being emptied already");
    assert_eq!(fh.emptiest(0, u32::MAX, |_| true).next(), None);
    drop(first);
    assert_eq!(fh.emptiest(0, u32::MAX, |_| true).next().map(|block| block.used), Some(1));
    assert!(!fh.evacuate(page).unwrap().finish(), "the page is in use still");
    fh.validate().unwrap();
}

/// A block of unmovable frames is left with one that can move, as its host knows.
#[test]
fn a_block_of_another_type_is_emptied_where_the_host_says_so() {
    let fh = leaked(machine(1, 2 * 512));
    let single = |kind| fh.here().alloc(Request::new(Order::ZERO, kind)).unwrap();
    let page = single(Migratetype::Movable);
    let theirs = single(Migratetype::Unmovable);
    assert_ne!(theirs.pageblock(), page.pageblock());
    fh.drain_all();
    let is = |start: Pfn| start == theirs.pageblock();
    assert_eq!(fh.emptiest(0, u32::MAX, is).next(), None);
    assert!(fh.evacuate(theirs).is_err());
    let found = fh.emptiest(0, u32::MAX, is).of_any_type().next();
    assert_eq!(found, Some(SparseBlock { used: 1, start: theirs.pageblock() }));
    let mut emptying = fh.evacuate_any_type(theirs).unwrap();
    assert_eq!(emptying.move_used(|used| !move_all(fh, used).is_empty()), 0);
    assert!(emptying.finish());
    fh.validate().unwrap();
}

/// Moves single frames by a CPU's own requests; returns where they went.
fn move_all(fh: &Machine, used: FrameRange) -> Vec<Pfn> {
    let cpu = fh.here();
    let frames = used.start.get()..used.end.get();
    let moved = frames.map_while(|old| {
        let new = cpu.alloc(movable(0)).ok()?;
        cpu.free(at(old), Order::ZERO).unwrap();
        Some(new)
    });
    moved.collect()
}

/// Two blocks are emptied side by side: what they hold goes to the fullest of the others.
#[test]
fn contents_go_to_full_blocks_and_never_to_one_that_is_being_emptied() {
    let fh = with_used(4, |block, frame| match block {
        0 | 1 => frame % 64 == 5,
        2 => frame % 2 == 0,
        _ => frame % 256 == 0,
    });
    let mut both = [0, 512].map(|block| fh.evacuate(at(block)).unwrap());
    for block in &mut both {
        assert_eq!(block.used(), 8);
        let mut places = Vec::new();
        let left = block.move_used(|used| {
            places.extend(move_all(fh, used));
            true
        });
        assert_eq!((left, places.len()), (0, 8));
        assert!(places.iter().all(|pfn| pfn.pageblock() == at(1024)), "{places:?}");
    }
    for block in both {
        assert!(block.finish());
    }
    fh.drain_all();
    fh.validate().unwrap();
    assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 2);
}

/// What fails stays where it is; a mover that says so is not called again; a second round is asked
/// for what is left.
#[test]
fn what_does_not_move_stays_in_use() {
    let fh = with_used(2, |block, frame| block == 1 || frame % 100 == 7);
    let mut block = fh.evacuate(at(0)).unwrap();
    let mut asked = Vec::new();
    let left = block.move_used(|used| {
        asked.push(used.start.get());
        fh.here().free_range(used).unwrap();
        asked.len() < 2
    });
    assert_eq!((left, &asked[..]), (4, &[7, 107][..]));
    let left = block.move_used(|used| {
        asked.push(used.start.get());
        // Another one goes meanwhile, and is not asked for.
        if used.start == at(207) {
            fh.here().free(at(407), Order::ZERO).unwrap();
        }
        true
    });
    assert_eq!((left, &asked[2..]), (3, &[207, 307, 507][..]));
    // Whoever stops for ever holds up nobody, and keeps what is free of the block.
    core::mem::forget(block);
    let rest = || core::iter::from_fn(|| fh.on(CpuId::new(1)).alloc(movable(0)).ok()).count();
    assert_eq!(rest(), 0);
    fh.restore(frames_at(0, 512));
    assert_eq!(rest(), 509);
    fh.validate().unwrap();
}

/// A block that unmovable requests claim between the look at its type and its isolation.
#[test]
fn no_block_of_another_type_is_emptied() {
    let world = || with_used(1, |_, frame| frame < 40);
    let mut claimed = 0;
    for n in stops_of(world, |fh| drop(fh.evacuate(at(0)))) {
        let fh = world();
        let had = Rc::new(Cell::new(None));
        let note = had.clone();
        let claim = move || {
            let request = Request::new(of_order(3), Migratetype::Unmovable);
            // The CPU may be one that is being passed.
            note.set(fh.on(CpuId::new(1)).alloc(request.flags(AllocFlags::NO_LOCK)).ok());
        };
        let (empties, _) = interrupted(n, claim, || fh.evacuate(at(0)));
        let refused = matches!(empties, Err(AllocError::Busy { .. }));
        let found = fh.emptiest(0, u32::MAX, |_| true).next();
        let wrong = had.get().is_some() && (!refused || found.is_some());
        assert!(!wrong, "step {n}: it holds what does not move");
        claimed += u32::from(had.get().is_some());
        drop(empties);
        if let Some(pfn) = had.get() {
            fh.here().free(pfn, of_order(3)).unwrap();
        }
        fh.here().free_range(frames_at(0, 40)).unwrap();
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 1, "step {n}");
    }
    assert!(claimed > 0, "at no step could it be claimed");
}

/// The frames of the block that is emptied that are in use still, a bit for each: who clears a bit
/// frees the frame.
type InUse = Rc<Cell<u64>>;

/// Moves what is in use of the first block; the new places.
fn empty_first(fh: &'static Machine, in_use: &InUse) -> Vec<Pfn> {
    let mut moved = Vec::new();
    let Ok(mut block) = fh.evacuate(at(0)) else { return moved };
    block.move_used(|used| {
        for old in used.start.get()..used.end.get() {
            if in_use.get() >> old & 1 == 0 {
                continue;
            }
            in_use.set(in_use.get() & !(1 << old));
            moved.push(fh.here().alloc(movable(0)).unwrap());
            fh.here().free(at(old), Order::ZERO).unwrap();
        }
        true
    });
    assert_eq!(block.used(), 0);
    assert!(moved.iter().all(|pfn| pfn.pageblock() != at(0)), "{moved:?} are in that block");
    moved
}

/// What others do meanwhile, the last three of it with the block itself.
const OTHERS: [fn(&'static Machine, &InUse); 6] = [
    |fh, in_use| {
        (0..4).filter(|bit| in_use.get() >> bit & 1 == 1).for_each(|bit| {
            in_use.set(in_use.get() & !(1 << bit));
            fh.on(CpuId::new(1)).free(at(bit), Order::ZERO).unwrap();
        });
    },
    |fh, _| {
        let request = movable(0).flags(AllocFlags::NO_LOCK);
        let pfn = fh.on(CpuId::new(1)).alloc(request).unwrap();
        fh.on(CpuId::new(1)).free(pfn, Order::ZERO).unwrap();
    },
    |fh, _| {
        let request = movable(6).flags(AllocFlags::NO_LOCK);
        let pfn = fh.on(CpuId::new(1)).alloc(request).unwrap();
        fh.on(CpuId::new(1)).free(pfn, of_order(6)).unwrap();
    },
    |fh, _| drop(fh.evacuate(at(0))),
    |fh, _| {
        if fh.isolate(frames_at(0, 512)).is_ok() {
            fh.restore(frames_at(0, 512));
        }
    },
    |fh, _| {
        if fh.remove_memory(frames_at(0, 512)).is_ok() {
            fh.add_memory(frames_at(0, 512)).unwrap();
        }
    },
];

#[test]
fn nothing_is_lost_whatever_happens_at_any_step() {
    // Eight frames are to move, and the second block has room for them.
    let world = || {
        with_used(
            3,
            |block, frame| if block == 0 { frame < 8 } else { block == 1 && frame % 2 == 0 },
        )
    };
    let all = || InUse::new(Cell::new(0xff));
    for (number, other) in OTHERS.into_iter().enumerate() {
        for n in stops_of(world, |fh| _ = empty_first(fh, &all())) {
            let (fh, in_use) = (world(), all());
            let theirs = in_use.clone();
            let call = || empty_first(fh, &in_use);
            let (moved, _) = interrupted(n, move || other(fh, &theirs), call);
            moved.iter().for_each(|&pfn| fh.here().free(pfn, Order::ZERO).unwrap());
            let left = (0..8).filter(|bit| in_use.get() >> bit & 1 == 1);
            left.for_each(|bit| fh.here().free(at(bit), Order::ZERO).unwrap());
            fh.drain_all();
            fh.validate().unwrap();
            let blocks = fh.zone_blocks(0).unwrap().free_blocks;
            assert_eq!(blocks, 2, "{number}: step {n}");
        }
    }
}
