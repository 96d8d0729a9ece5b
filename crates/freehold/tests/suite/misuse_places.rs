//! Frees of what is free in places that no history of calls stops at: see `exact` for all others.

use crate::common::*;

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
