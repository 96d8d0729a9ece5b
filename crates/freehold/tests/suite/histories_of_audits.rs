//! What audits of earlier cores found, each as a history: none of it can happen again. And frees of
//! what is free in places that no history of calls stops at: see `exact` for all others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::*;

#[test]
fn an_allocation_whose_cpu_goes_offline_while_it_recalls_leaves_nothing_there() {
    let (fh, host) = with_barriers(3, 64);
    let owner = fh.own(cpu(1)).unwrap();
    let its = owner.alloc(unmovable(3)).unwrap();
    let frame = |n: u64| Pfn::new(its.get() + n);
    let [mut blocks, frames] = [9, 0].map(|o| all(&fh.on(cpu(2)), movable(o)));
    // Something in an owner's hand, so that a recall needs a barrier.
    fh.on(cpu(2)).free_range(range(its.get(), 4)).unwrap();
    let again = owner.alloc(movable(0)).unwrap();
    assert!(fh.on(cpu(1)).holdings().unwrap().0 > 0, "the owner has something in hand");
    let block = blocks.pop().unwrap();
    host.during_next(move || {
        fh.on(cpu(0)).offline().unwrap();
        fh.on(cpu(2)).free(block, Order::PAGEBLOCK).unwrap();
        fh.on(cpu(2)).offline().unwrap();
    });
    let result = fh.on(cpu(0)).alloc(movable(1));
    assert!(host.is_done(), "there was no recall");
    assert_eq!(result, Err(AllocError::CpuOffline { cpu: cpu(0) }));
    assert_eq!(fh.on(cpu(0)).holdings().unwrap().0, 0);
    fh.validate().unwrap();
    // What its owner frees goes where it belongs without waiting for anybody.
    (4..8).for_each(|n| owner.free(frame(n), Order::ZERO).unwrap());
    owner.free(again, Order::ZERO).unwrap();
    frames.iter().for_each(|&pfn| owner.free(pfn, Order::ZERO).unwrap());
    blocks.iter().for_each(|&pfn| owner.free(pfn, Order::PAGEBLOCK).unwrap());
    assert_eq!(host.waits(), 0);
    assert_all_free(fh);
}

/// No bit of a frame's number is used for anything else. On 32-bit targets an index must not lose
/// its upper half either.
#[test]
fn a_number_that_is_not_the_frames_is_not_taken_for_it() {
    let (fh, _) = with_barriers(2, 16);
    let owner = fh.own(cpu(0)).unwrap();
    let frames: Vec<Pfn> = (0..600).map(|_| owner.alloc(movable(0)).unwrap()).collect();
    let block = owner.alloc(movable(9)).unwrap();
    // Every place that a frame of it can have been in before.
    owner.free(block, Order::PAGEBLOCK).unwrap();
    assert_eq!(owner.alloc(movable(9)), Ok(block));
    owner.free(frames[5], Order::ZERO).unwrap();
    let again = owner.alloc(movable(0)).unwrap();
    for shift in 24..64 {
        for pfn in [frames[0], again, frames[599], block] {
            for wrong in [pfn.get() | 1 << shift, pfn.get().wrapping_sub(1 << shift), !pfn.get()]
                .map(Pfn::new)
            {
                let out = Err(FreeError::OutOfZone { pfn: wrong });
                assert_eq!(owner.free(wrong, Order::ZERO), out);
                assert_eq!(fh.on(cpu(1)).free(wrong, Order::ZERO), out);
                assert!(owner.free(wrong, Order::PAGEBLOCK).is_err());
                assert!(owner.free_bulk(&[wrong]).is_err());
                assert!(
                    FrameRange::new(wrong, 1).is_none_or(|range| owner.free_range(range).is_err())
                );
                assert_eq!(fh.zone_of(wrong), None);
            }
        }
    }
    owner.free(again, Order::ZERO).unwrap();
    frames
        .iter()
        .filter(|&&pfn| pfn != frames[5])
        .for_each(|&pfn| owner.free(pfn, Order::ZERO).unwrap());
    owner.free(block, Order::PAGEBLOCK).unwrap();
    drop(owner);
    assert_all_free(fh);
}

#[test]
fn a_migration_that_panics_leaves_nothing_isolated_and_nothing_locked() {
    let fh = machine(1, 64);
    let pfn = fh.here().alloc(movable(0)).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        fh.alloc_contig_range(range(512, 512 * 20), |_| panic!("the user's"))
    }));
    assert!(result.is_err());
    fh.here().free(pfn, Order::ZERO).unwrap();
    fh.validate().unwrap();
    let blocks: Vec<Pfn> = all(&fh.here(), movable(9));
    assert_eq!(blocks.len(), 32);
    blocks.into_iter().for_each(|pfn| fh.here().free(pfn, Order::PAGEBLOCK).unwrap());
    fh.alloc_contig_range(range(512, 512 * 20), |_| false).unwrap();
    fh.here().free_range(range(512, 512 * 20)).unwrap();
    fh.remove_memory(range(512, 512)).unwrap();
    fh.add_memory(range(512, 512)).unwrap();
    assert_all_free(&fh);
}

#[test]
fn a_host_that_panics_during_hotplug_leaves_the_next_one_a_way_in() {
    let (fh, host) = with_barriers(3, 64);
    let owner = fh.own(cpu(2)).unwrap();
    host.during_next(|| panic!("the host's"));
    let result = catch_unwind(AssertUnwindSafe(|| fh.on(cpu(2)).offline()));
    assert!(result.is_err());
    // Of CPU 2 nothing is promised any more; CPU 1 can go and come.
    fh.on(cpu(1)).offline().unwrap();
    fh.on(cpu(1)).online().unwrap();
    std::mem::forget(owner);
}

/// A section keeps its metadata when all of its memory goes, and has it still when that comes back.
#[test]
fn all_memory_of_a_section_goes_and_comes_back() {
    let fh = machine(1, 256);
    let section = 128 << 8;
    for part in [range(512, section - 512), range(section, section + 512)] {
        // Used, so that its metadata is set up.
        let all: Vec<Pfn> = all(&fh.here(), movable(9));
        all.into_iter().for_each(|pfn| fh.here().free(pfn, Order::PAGEBLOCK).unwrap());
        fh.remove_memory(part).unwrap();
        fh.add_memory(part).unwrap();
    }
    assert_all_free(&fh);
}

#[test]
fn a_free_frame_is_refused_while_its_cpu_is_recalled() {
    let (fh, host) = with_barriers(3, 16);
    let owner = fh.own(cpu(0)).unwrap();
    let frames: Vec<Pfn> = (0..64).map(|_| owner.alloc(movable(0)).unwrap()).collect();
    let block = owner.alloc(movable(9)).unwrap();
    owner.free(frames[5], Order::ZERO).unwrap();
    owner.free(block, order(9)).unwrap();
    let (in_hand, in_use) = (frames[5], frames[6]);
    // Every CPU has been knocked at, none has given back yet.
    host.during_next(move || {
        for c in 0..3 {
            let on = fh.on(cpu(c));
            assert_eq!(on.free(in_hand, Order::ZERO), Err(FreeError::DoubleFree { pfn: in_hand }));
            assert_eq!(
                on.free_range(range(in_hand.get(), 1)),
                Err(FreeError::DoubleFree { pfn: in_hand })
            );
            assert!(matches!(on.free(block, order(9)), Err(FreeError::DoubleFree { .. })));
        }
        // A right free at this moment, and once more.
        fh.on(cpu(1)).free(in_use, Order::ZERO).unwrap();
        assert_eq!(
            fh.on(cpu(0)).free(in_use, Order::ZERO),
            Err(FreeError::DoubleFree { pfn: in_use })
        );
    });
    fh.drain_all();
    assert!(host.is_done(), "nobody was recalled");
    for pfn in [in_hand, in_use] {
        assert_eq!(
            owner.free(pfn, Order::ZERO),
            Err(FreeError::DoubleFree { pfn }),
            "after the recall"
        );
    }
    let rest = frames.iter().filter(|&&pfn| pfn != in_hand && pfn != in_use);
    rest.for_each(|&pfn| owner.free(pfn, Order::ZERO).unwrap());
    assert_eq!((fh.totals().late_double_frees, host.late()), (0, 0));
    drop(owner);
    assert_all_free(fh);
}

/// A word that was let go, marked empty, is its block's when that becomes whole.
#[test]
fn no_word_of_a_block_that_became_whole_is_leased() {
    let fh = machine(2, 4);
    let first = fh.on(cpu(0)).alloc(movable(0)).unwrap();
    let chunks = [8, 7, 6].map(|o| (fh.on(cpu(0)).alloc(movable(o)).unwrap(), o));
    (1..64).for_each(|_| {
        assert_eq!(fh.on(cpu(0)).alloc(movable(0)).unwrap().pageblock(), first.pageblock())
    });
    // From the other block; the first one's word is let go.
    let more = fh.on(cpu(0)).alloc(movable(0)).unwrap();
    assert_ne!(more.pageblock(), first.pageblock());
    fh.on(cpu(1)).free_range(range(first.get() / 64 * 64, 64)).unwrap();
    chunks.into_iter().for_each(|(pfn, o)| fh.on(cpu(1)).free(pfn, order(o)).unwrap());
    let block = fh.on(cpu(1)).alloc(movable(9)).unwrap();
    assert_eq!(block, first.pageblock());
    fh.validate().unwrap();
    fh.on(cpu(1)).free(block, order(9)).unwrap();
    fh.on(cpu(0)).free(more, order(0)).unwrap();
    assert_all_free(&fh);
}
