//! What happens in the middle of a tenant's calls, and in a forked child.

use std::cell::Cell;

use super::*;
use crate::meanwhile::MEANWHILE;
use crate::{Arena, child};

thread_local! {
    pub(super) static LOOKS_AT_ALL: Cell<u32> = const { Cell::new(0) };
}

/// Looking at all of them from each took seconds, with the tree locked.
#[test]
fn pressing_many_tenants_looks_at_them_once() {
    let tenants = Tenants::new(Arena::with_size(32 << 20).unwrap().leak()).unwrap();
    let soft = Limits { soft: 0, ..Limits::NONE };
    let mut chain = vec![tenants.add(None, soft).unwrap()];
    (0..50).for_each(|n| chain.push(tenants.add(Some(chain[n]), soft).unwrap()));
    tenants.alloc(chain[50], 1).unwrap();
    (0..50).for_each(|_| _ = tenants.alloc(tenants.add(None, soft).unwrap(), 1).unwrap());
    LOOKS_AT_ALL.set(0);
    assert_eq!((tenants.press(), LOOKS_AT_ALL.get()), (101, 1));
}

/// A limit above it refuses all the same: what would be too much there is asked of nobody.
#[test]
fn nobody_is_told_of_more_than_one_above_may_have() {
    let told: &'static AtomicU32 = Box::leak(Box::default());
    // Relaxed: one thread.
    let tenants = Tenants::new(Arena::with_size(32 << 20).unwrap().leak())
        .unwrap()
        .on_pressure(|_, _, _| _ = told.fetch_add(1, Ordering::Relaxed));
    let hard = |hard| Limits { hard, ..Limits::NONE };
    let top = tenants.add(None, hard(50)).unwrap();
    let leaf = tenants.add(Some(top), hard(60)).unwrap();
    tenants.alloc(leaf, 20).unwrap();
    assert_eq!(tenants.alloc(leaf, 55), Err(Error::TenantLimit { frames: 50 }));
    assert_eq!(told.load(Ordering::Relaxed), 0);
}

/// Not for a moment is anybody charged for what it may not have.
#[test]
fn whoever_asks_for_too_much_has_nobody_else_refused() {
    let arena: &'static Arena = Arena::with_size(32 << 20).unwrap().leak();
    let tenants: &'static Tenants = Box::leak(Box::new(Tenants::new(arena).unwrap()));
    let hard = |hard| Limits { hard, ..Limits::NONE };
    let top = tenants.add(None, hard(1000)).unwrap();
    let middle = tenants.add(Some(top), hard(2100)).unwrap();
    let [greedy, modest] = [(); 2].map(|()| tenants.add(Some(middle), Limits::NONE).unwrap());
    for _ in 0..2 {
        // Between two levels of its charge, if it comes to that.
        let other = move || assert!(tenants.alloc(modest, 400).is_ok(), "it may have 1,000");
        let own_level = move || MEANWHILE.set(Some(Box::new(other)));
        MEANWHILE.set(Some(Box::new(move || MEANWHILE.set(Some(Box::new(own_level))))));
        assert!(tenants.alloc(greedy, 2000).is_err());
    }
    MEANWHILE.set(None);
}

/// Its frames would have been the next tenant's, charged to nobody.
#[test]
fn a_dead_number_gives_nothing_to_whoever_has_its_slot() {
    let arena: &'static Arena = Arena::with_size(32 << 20).unwrap().leak();
    let tenants: &'static Tenants = Box::leak(Box::new(Tenants::new(arena).unwrap()));
    let dead = tenants.add(None, Limits::NONE).unwrap();
    // SAFETY: it has no frame.
    unsafe { tenants.remove(dead).unwrap() };
    let heir = Limits { hard: 100, ..Limits::NONE };
    MEANWHILE.set(Some(Box::new(move || {
        let heir = tenants.add(None, heir).unwrap();
        assert_eq!(heir.index(), dead.index());
        tenants.alloc(heir, 1).unwrap();
    })));
    assert!([1, 1000].iter().all(|&count| tenants.alloc(dead, count).is_err()));
    // Now, where the call has not come to it.
    crate::meanwhile::happens();
    let heir = tenants.at(dead.index()).tenant();
    let had = (0..200).take_while(|_| tenants.alloc(heir, 1).is_ok()).count();
    assert_eq!(had, 99);
}

/// Whoever is granted them meanwhile gets others, or is refused by the arena; nothing is lost.
#[test]
fn from_the_beginning_of_a_free_its_frames_are_nobodys() {
    for blocks in [1, 2] {
        let arena: &'static Arena = Arena::with_size(blocks << 21).unwrap().leak();
        let tenants: &'static Tenants = Box::leak(Box::new(Tenants::new(arena).unwrap()));
        let top = tenants.add(None, Limits { hard: 512, ..Limits::NONE }).unwrap();
        let [one, other] = [(); 2].map(|()| tenants.add(Some(top), Limits::NONE).unwrap());
        let first = tenants.alloc(one, 512).unwrap();
        assert!(matches!(tenants.alloc(other, 1), Err(Error::TenantLimit { .. })));
        MEANWHILE.set(Some(Box::new(move || {
            let granted = tenants.alloc(other, 512);
            assert_eq!(granted.is_ok(), blocks == 2);
            assert!(granted.is_ok() || granted.is_err_and(|error| error.is_out_of_memory()));
            assert_eq!(tenants.usage(top).unwrap().frames, (blocks - 1) * 512);
            assert_eq!(arena.stats().frames_used, blocks * 512);
        })));
        // SAFETY: nobody uses them.
        unsafe { tenants.free(first.start) }.unwrap();
        assert!(MEANWHILE.take().is_none() && arena.stats().frames_used == (blocks - 1) * 512);
        assert_eq!(tenants.alloc(other, 512).is_ok(), blocks == 1);
    }
}

/// Whoever forks may have another thread that has them locked.
#[test]
fn in_a_forked_child_nobody_waits_for_the_parents_tenants() {
    let tenants = Tenants::new(Arena::with_size(2 << 20).unwrap().leak()).unwrap();
    let one = tenants.add(None, Limits { soft: 1, hard: 2 }).unwrap();
    tenants.alloc(one, 2).unwrap();
    let _locked = tenants.tree().unwrap();
    let refused = |call: &dyn Fn() -> Result<u64, Error>| call() == Err(Error::Forked);
    let status = child::fork(|| {
        // SAFETY: the child's copy, of which nothing is used.
        let remove = || unsafe { tenants.remove(one) };
        refused(&|| tenants.usage(one).map(|usage| usage.frames))
            && refused(&|| tenants.add(None, Limits::NONE).map(|_| 0))
            && refused(&remove)
            && refused(&|| tenants.alloc(one, 1).map(|range| range.len()))
            && tenants.press() == 0
    });
    assert_eq!(status, 0);
}
