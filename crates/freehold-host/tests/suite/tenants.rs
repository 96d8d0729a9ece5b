//! Budgets inside one arena: limits are of frames in use and hold to the frame, callbacks come when
//! they should and once, all of a tenant goes at once, and nothing is lost between threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use freehold_host::freehold::Pfn;
use freehold_host::{Arena, Cause, Error, Limits, Tenant, Tenants, Usage};

use crate::common::all_free;
use crate::length::length;

fn arena(bytes: u64) -> &'static Arena {
    Arena::with_size(bytes).unwrap().leak()
}

fn hard(hard: u64) -> Limits {
    Limits { hard, ..Limits::NONE }
}

fn used(tenants: &Tenants, tenant: Tenant) -> u64 {
    tenants.usage(tenant).unwrap().frames
}

fn free(tenants: &Tenants, start: Pfn) {
    // SAFETY: the tests use no memory of tenants.
    unsafe { tenants.free(start) }.unwrap();
}

fn remove(tenants: &Tenants, tenant: Tenant) -> u64 {
    // SAFETY: as above.
    unsafe { tenants.remove(tenant) }.unwrap()
}

/// What siblings have in stock is not in use, and is no reason to refuse.
#[test]
fn a_hard_limit_is_of_frames_in_use_wherever_in_the_tree() {
    let arena = arena(64 << 20);
    let tenants = Tenants::new(arena).unwrap();
    let top = tenants.add(None, hard(1000)).unwrap();
    let below: Vec<_> = (0..20).map(|_| tenants.add(Some(top), hard(60)).unwrap()).collect();
    let mut all = Vec::new();
    for step in 0.. {
        match tenants.alloc(below[step % 20], 3) {
            Ok(range) => all.push(range.start),
            Err(error) => {
                assert_eq!(error, Error::TenantLimit { frames: 1000 });
                break;
            }
        }
    }
    assert_eq!((all.len(), used(&tenants, top)), (333, 999));
    assert_eq!(tenants.alloc(below[0], 1).map(|range| range.len()), Ok(1));
    assert_eq!(tenants.alloc(below[1], 1), Err(Error::TenantLimit { frames: 1000 }));
    all.drain(..).for_each(|start| free(&tenants, start));
    assert_eq!((used(&tenants, top), used(&tenants, below[0])), (1, 1));
    // Their own limits, too.
    assert_eq!(tenants.alloc(below[1], 60).map(|range| range.len()), Ok(60));
    assert_eq!(tenants.alloc(below[1], 1), Err(Error::TenantLimit { frames: 60 }));
    tenants.limit(below[1], hard(61)).unwrap();
    assert_eq!(tenants.alloc(below[1], 1).map(|range| range.len()), Ok(1));
    assert_eq!(remove(&tenants, top), 62);
    all_free(arena);
}

#[test]
fn the_soft_limit_is_told_at_the_first_frame_beyond_it_and_once() {
    let told = Arc::new(Mutex::new(Vec::<(Tenant, Cause, Usage)>::new()));
    let telling = Arc::clone(&told);
    let tenants = Tenants::new(arena(64 << 20)).unwrap();
    let tenants =
        tenants.on_pressure(move |who, why, has| telling.lock().unwrap().push((who, why, has)));
    let limits = Limits { soft: 100, hard: 200 };
    let top = tenants.add(None, limits).unwrap();
    let (one, other) =
        (tenants.add(Some(top), Limits::NONE).unwrap(), tenants.add(Some(top), Limits::NONE));
    let other = other.unwrap();
    let mut all: Vec<_> = (0..100)
        .map(|n| tenants.alloc(if n % 2 == 0 { one } else { other }, 1).unwrap().start)
        .collect();
    assert!(told.lock().unwrap().is_empty(), "100 are no more than 100");
    assert_eq!(tenants.press(), 0);
    all.push(tenants.alloc(other, 1).unwrap().start);
    let first = (top, Cause::Soft, Usage { frames: 101, limits });
    assert_eq!(*told.lock().unwrap(), [first]);
    all.extend((0..50).map(|_| tenants.alloc(one, 1).unwrap().start));
    assert_eq!(told.lock().unwrap().len(), 1, "once is enough");
    assert_eq!(tenants.press(), 1);
    let pressed = (top, Cause::System, Usage { frames: 151, limits });
    assert_eq!(told.lock().unwrap().last(), Some(&pressed));
    // It falls well below, and is told again when it is back.
    all.drain(20..).for_each(|start| free(&tenants, start));
    told.lock().unwrap().clear();
    (0..81).for_each(|_| assert!(tenants.alloc(one, 1).is_ok()));
    assert_eq!(*told.lock().unwrap(), [first]);
    assert_eq!(tenants.alloc(one, 100).map(drop), Err(Error::TenantLimit { frames: 200 }));
    assert_eq!(told.lock().unwrap()[1].1, Cause::Hard);
    // Whatever it freed, that would not be enough.
    assert_eq!(tenants.alloc(one, 201).map(drop), Err(Error::TenantLimit { frames: 200 }));
    assert_eq!(told.lock().unwrap().len(), 2);
    let refused = Limits { soft: 201, hard: 200 };
    assert!(matches!(tenants.limit(one, refused), Err(Error::Knob { knob: "soft", .. })));
    assert!(matches!(tenants.add(None, refused), Err(Error::Knob { knob: "soft", .. })));
}

#[test]
fn a_callback_that_frees_spares_the_refusal() {
    let arena = arena(16 << 20);
    let cell: &'static OnceLock<Tenants> = Box::leak(Box::default());
    let all: Arc<Mutex<Vec<Pfn>>> = Arc::default();
    let to_free = Arc::clone(&all);
    let tenants = Tenants::new(arena).unwrap().on_pressure(move |_, why, has| {
        assert_eq!((why, has.frames), (Cause::Hard, 8));
        to_free.lock().unwrap().drain(..).for_each(|start| free(cell.get().unwrap(), start));
    });
    let tenants = cell.get_or_init(|| tenants);
    let small = tenants.add(None, hard(8)).unwrap();
    all.lock().unwrap().push(tenants.alloc(small, 8).unwrap().start);
    assert_eq!(tenants.alloc(small, 5).map(|range| range.len()), Ok(5));
    assert_eq!((all.lock().unwrap().len(), used(tenants, small)), (0, 5));
    remove(tenants, small);
    all_free(arena);
}

#[test]
fn ten_thousand_tenants_go_one_by_one_with_all_they_have() {
    let arena = arena(1 << 30);
    let tenants = Tenants::new(arena).unwrap();
    let top = tenants.add(None, Limits::NONE).unwrap();
    let all: Vec<_> = (0..10_000).map(|_| tenants.add(Some(top), Limits::NONE).unwrap()).collect();
    for (n, &tenant) in all.iter().enumerate() {
        for length in [1, 3 + n as u64 % 8] {
            tenants.alloc(tenant, length).unwrap();
        }
    }
    for (n, &tenant) in all.iter().enumerate().filter(|(n, _)| n % 100 == 0) {
        assert_eq!(used(&tenants, tenant), 4 + n as u64 % 8);
        assert_eq!(remove(&tenants, tenant), 4 + n as u64 % 8);
        assert!(tenants.alloc(tenant, 1).is_err() && tenants.usage(tenant).is_err());
        // Its place is another's, which it is not.
        let new = tenants.add(Some(top), Limits::NONE).unwrap();
        assert!(new != tenant && tenants.alloc(tenant, 1).is_err());
        tenants.alloc(new, 1).unwrap();
        assert!(tenants.alloc(tenant, 1).is_err(), "what the other has in stock is not its own");
        assert_eq!(used(&tenants, new), 1);
    }
    assert_eq!(used(&tenants, top), arena.stats().frames_used);
    let left = (0..10_000).map(|n| if n % 100 > 0 { 4 + n % 8 } else { 1 }).sum();
    assert_eq!(remove(&tenants, top), left);
    all_free(arena);
}

#[test]
fn frees_that_are_no_tenants_are_refused() {
    let arena = arena(16 << 20);
    let tenants = Tenants::new(arena).unwrap();
    let tenant = tenants.add(None, Limits::NONE).unwrap();
    let nobodys = arena.frames(4).unwrap();
    let theirs = tenants.alloc(tenant, 4).unwrap();
    let within = Pfn::new(theirs.start.get() + 1);
    for start in [nobodys.pfn(), within] {
        // SAFETY: nobody uses what it is refused to free.
        let refused = unsafe { tenants.free(start) };
        assert_eq!(refused, Err(Error::NoAllocation { pfn: start }), "it is in use");
    }
    free(&tenants, theirs.start);
    // SAFETY: as above.
    assert!(unsafe { tenants.free(theirs.start) }.is_err());
    assert_eq!(used(&tenants, tenant), 0);
    drop(nobodys);
    remove(&tenants, tenant);
    all_free(arena);
}

/// Threads allocate for each other's tenants and free what others have; the sums are right.
#[test]
fn between_threads_no_frame_is_lost_and_no_limit_exceeded() {
    let arena = arena(256 << 20);
    let tenants = Tenants::new(arena).unwrap();
    let top = tenants.add(None, hard(3000)).unwrap();
    let middle: Vec<_> = (0..3).map(|_| tenants.add(Some(top), hard(1500)).unwrap()).collect();
    let leaves: Vec<_> =
        (0..30).map(|n| tenants.add(Some(middle[n % 3]), hard(300)).unwrap()).collect();
    let held: Mutex<Vec<(Pfn, usize, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (tenants, leaves, held) = (&tenants, &leaves, &held);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..5000 {
                    let leaf = random.usize(..leaves.len());
                    let count = random.u64(1..40);
                    let taken = tenants.alloc(leaves[leaf], count);
                    let mut held = held.lock().unwrap();
                    match taken {
                        Ok(range) => {
                            held.push((range.start, leaf, count));
                            assert!(used(tenants, top) <= 3000);
                        }
                        Err(error) => {
                            assert!(matches!(error, Error::TenantLimit { .. }), "{error}")
                        }
                    }
                    let others = (random.usize(..3) > 0 && !held.is_empty()).then(|| {
                        let at = random.usize(..held.len());
                        held.swap_remove(at)
                    });
                    drop(held);
                    if let Some((start, ..)) = others {
                        free(tenants, start);
                    }
                }
            });
        }
    });
    let held = held.into_inner().unwrap();
    let sum = |of: &dyn Fn(usize) -> bool| -> u64 {
        held.iter().filter(|(_, leaf, _)| of(*leaf)).map(|(.., count)| count).sum()
    };
    assert_eq!(used(&tenants, top), sum(&|_| true));
    for (n, &tenant) in middle.iter().enumerate() {
        assert_eq!(used(&tenants, tenant), sum(&|leaf| leaf % 3 == n));
        assert!(used(&tenants, tenant) <= 1500);
    }
    for (n, &tenant) in leaves.iter().enumerate() {
        assert_eq!(used(&tenants, tenant), sum(&|leaf| leaf == n));
        assert!(used(&tenants, tenant) <= 300);
    }
    assert!(used(&tenants, top) <= 3000 && used(&tenants, top) > 1000, "it was not full");
    assert_eq!(remove(&tenants, middle[0]), sum(&|leaf| leaf % 3 == 0));
    assert_eq!(used(&tenants, top), sum(&|leaf| leaf % 3 > 0));
    remove(&tenants, top);
    all_free(arena);
}

/// Of two frees of one allocation at once the tenant is credited with one.
#[test]
fn what_two_free_at_once_is_freed_once() {
    let arena = arena(16 << 20);
    let tenants = Tenants::new(arena).unwrap();
    let one = tenants.add(None, Limits::NONE).unwrap();
    let (start, done) = (AtomicU64::new(0), AtomicBool::new(false));
    // SAFETY: nobody uses memory of tenants here.
    let freed = || unsafe { tenants.free(Pfn::new(start.load(Ordering::Relaxed))) }.is_ok();
    let rounds = length(50_000, 500_000);
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut others = 0;
            while !done.load(Ordering::Relaxed) {
                others += u32::from(freed());
            }
            others
        });
        let mut mine = 0;
        for _ in 0..rounds {
            start.store(tenants.alloc(one, 8).unwrap().start.get(), Ordering::Relaxed);
            mine += u32::from(freed());
        }
        done.store(true, Ordering::Relaxed);
        mine + other.join().unwrap()
    });
    assert_eq!((both, used(&tenants, one)), (rounds, 0));
    all_free(arena);
}
