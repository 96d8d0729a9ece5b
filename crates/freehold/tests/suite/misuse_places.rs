//! A free frame is refused wherever it is: each place that it can be in, through each door and each
//! call.
//!
//! One thread arranges the place, so that what is said is always the same. Frees that race for the
//! same frames are tests of the crate's own, which stop each at any step.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use freehold::{
    Config, FrameRange, FreeError, HotplugError, Order, Owned, Pfn, Platform, Watermarks,
    ZoneConfig,
};

/// A host whose heavy barrier does nothing: one thread has seen all that it did itself.
struct Alone {
    late: AtomicU64,
}

impl Platform for Alone {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn relax(&self) {
        panic!("nobody is there to be waited for");
    }
    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}

/// CPU 0 is owned, by the test; CPU 1 is nobody's; CPU 2 is of another group.
fn alone(mib: u64) -> &'static Alloc<'static> {
    let host: &'static Alone = Box::leak(Box::new(Alone { late: AtomicU64::new(0) }));
    let memory = [range(512, mib * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let zones = [zone];
    let config = Config { extra_ranges: 2, ..Config::new(3, &zones) };
    Box::leak(Box::new(build(&config, host)))
}

/// These frames cannot be freed, by no door and no call; `owner` is the owner of CPU 0.
fn refused(
    fh: &Alloc<'static>,
    owner: Option<&Owned<'_, 'static, Any<'static>>>,
    frames: FrameRange,
    at: &str,
) {
    let is_double = |result: Result<(), FreeError>, call: &str| match result {
        Err(FreeError::DoubleFree { pfn }) => {
            assert!(frames.contains(pfn), "{at}: {call} names {pfn}")
        }
        other => panic!("{at}: {call} said {other:?}"),
    };
    let (first, last) = (frames.start, Pfn::new(frames.end.get() - 1));
    let order =
        Order::fitting(frames.len()).filter(|o| o.frames() == frames.len() && first.is_aligned(*o));
    for pfn in [first, last] {
        if let Some(owner) = owner {
            is_double(owner.free(pfn, Order::ZERO), "the owner's free");
            is_double(owner.free_bulk(&[pfn]).map_err(|e| e.error), "the owner's free_bulk");
            is_double(owner.free_range(range(pfn.get(), 1)), "the owner's free_range");
        }
        for c in 0..3 {
            let on = fh.on(cpu(c));
            is_double(on.free(pfn, Order::ZERO), "free");
            is_double(on.free_bulk(&[pfn]).map_err(|e| e.error), "free_bulk");
            is_double(on.free_range(range(pfn.get(), 1)), "free_range");
        }
        is_double(fh.here().free(pfn, Order::ZERO), "the free that names no CPU");
    }
    if let Some(owner) = owner {
        order.inspect(|&order| is_double(owner.free(first, order), "the owner's free of all"));
        is_double(owner.free_range(frames), "the owner's free_range of all");
    }
    order.inspect(|&order| is_double(fh.on(cpu(1)).free(first, order), "the free of all"));
    is_double(fh.on(cpu(2)).free_range(frames), "free_range of all");
    assert_eq!(fh.totals().late_double_frees, 0, "{at}");
}

#[test]
fn a_free_frame_is_refused_in_every_place() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    let frames: Vec<Pfn> = (0..128).map(|_| owner.alloc(movable(0)).unwrap()).collect();
    let one = |n: usize| range(frames[n].get(), 1);
    let at = |n: usize, at: &str| refused(fh, Some(&owner), one(n), at);

    owner.free(frames[100], Order::ZERO).unwrap();
    at(100, "in the own hand");
    fh.on(cpu(1)).free(frames[101], Order::ZERO).unwrap();
    at(101, "in a word that its owner leases, freed by another CPU of the group");
    fh.on(cpu(2)).free(frames[102], Order::ZERO).unwrap();
    at(102, "the same, of another group");
    owner.flush().unwrap();
    at(100, "in a word after the lease has ended");
    at(101, "in a word after the lease has ended");
    owner.free(frames[3], Order::ZERO).unwrap();
    at(3, "in a word, with a hint to it");
    fh.on(cpu(2)).free(frames[8], Order::ZERO).unwrap();
    fh.on(cpu(2)).free(frames[9], Order::ZERO).unwrap();
    at(8, "in the hand of a CPU that only frees");
    at(9, "in the hand of a CPU that only frees");
    for n in (0..128).filter(|n| ![3, 8, 9, 100, 101, 102].contains(n)) {
        owner.free(frames[n], Order::ZERO).unwrap();
    }
    fh.drain_all();
    at(3, "in a whole block of the zone");
    drop(owner);
    assert_all_free(fh);
}

/// Runs of each order that are free, in part and as a whole: in words that nobody leases, and into
/// which nothing was freed just before, so that nothing but the words tells.
#[test]
fn a_free_run_is_refused_in_its_words() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    for o in 1..=8 {
        let block = owner.alloc(movable(9)).unwrap();
        let at = |n: u64| Pfn::new(block.get() + n);
        let free = |n: u64, o: u8| owner.free(at(n), order(o)).unwrap();
        let half = (1 << o) / 2;
        let double = |pfn: Pfn| match owner.free(block, order(o)) {
            Err(FreeError::DoubleFree { pfn: named }) => assert_eq!(named, pfn, "order {o}"),
            other => panic!("order {o}: {other:?}"),
        };
        free(320, 0);
        free(half, o - 1);
        free(384, 0);
        double(at(half));
        free(0, o - 1);
        free(448, 0);
        double(block);
        refused(fh, Some(&owner), range(block.get(), 1 << o), "a run in its words");
        let rest = (1 << o..512).filter(|n| ![320, 384, 448].contains(n));
        rest.for_each(|n| free(n, 0));
    }
    drop(owner);
    assert_all_free(fh);
}

/// All of two words but a frame is in a CPU's hand: nothing is in the words, and nothing of it can
/// be freed.
#[test]
fn whole_words_in_a_hand_are_refused() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    let words = owner.alloc(movable(7)).unwrap();
    owner.flush().unwrap();
    // Two frees in a row into a word lease it; in the second word all but the last frame is freed.
    let frames = |from: u64, to: u64| (from..to).map(|n| Pfn::new(words.get() + n));
    frames(64, 127).for_each(|pfn| owner.free(pfn, Order::ZERO).unwrap());
    for freer in [fh.on(cpu(1)), fh.on(cpu(2))] {
        match freer.free(words, order(7)) {
            Err(FreeError::DoubleFree { pfn }) => assert!(pfn.get() >= words.get() + 64),
            other => panic!("{other:?}"),
        }
    }
    // What was refused is in use still.
    frames(0, 64).chain(frames(127, 128)).for_each(|pfn| owner.free(pfn, Order::ZERO).unwrap());
    assert_eq!(fh.totals().late_double_frees, 0);
    drop(owner);
    assert_all_free(fh);
}

/// A range some of whose frames are free is refused as a whole: what comes before them is in use
/// still.
#[test]
fn a_refused_range_changes_nothing() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    for free in [0, 63, 64, 100, 127] {
        let run = owner.alloc(movable(7)).unwrap();
        let free = Pfn::new(run.get() + free);
        owner.free(free, Order::ZERO).unwrap();
        let error = Err(FreeError::DoubleFree { pfn: free });
        assert_eq!(owner.free_range(range(run.get(), 128)), error);
        assert_eq!(fh.on(cpu(1)).free_range(range(run.get(), 128)), error);
        let used = (run.get()..run.get() + 128).map(Pfn::new).filter(|&pfn| pfn != free);
        used.for_each(|pfn| owner.free(pfn, Order::ZERO).unwrap());
    }
    drop(owner);
    assert_all_free(fh);
}

#[test]
fn a_free_block_is_refused_in_every_place() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    let blocks: Vec<FrameRange> =
        (0..6).map(|_| range(owner.alloc(movable(9)).unwrap().get(), 512)).collect();
    let at = |n: usize, at: &str| refused(fh, Some(&owner), blocks[n], at);

    owner.free(blocks[0].start, order(9)).unwrap();
    at(0, "in the own hand");
    owner.free(blocks[1].start, order(9)).unwrap();
    owner.free(blocks[2].start, order(9)).unwrap();
    at(2, "on its way to the group, which has not looked yet");
    owner.tick().unwrap();
    at(2, "in the group's or the zone's hand, after a tick");
    owner.flush().unwrap();
    at(0, "on its way out of a hand");
    fh.on(cpu(2)).free_range(blocks[3]).unwrap();
    at(3, "freed by another group");
    // In two halves: the words tell.
    owner.free(blocks[4].start, order(8)).unwrap();
    refused(
        fh,
        Some(&owner),
        range(blocks[4].start.get(), 256),
        "in its words, the other half in use",
    );
    owner.free(Pfn::new(blocks[4].start.get() + 256), order(8)).unwrap();
    at(4, "all of it in its words, on its way to be whole");
    fh.drain_all();
    (0..5).for_each(|n| at(n, "in the zone"));
    owner.free(blocks[5].start, order(9)).unwrap();
    drop(owner);
    assert_all_free(fh);
}

/// What was freed stays free while its block is taken from everybody, and while nobody may have it.
#[test]
fn a_free_frame_is_refused_while_its_block_is_isolated() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    let frames: Vec<Pfn> = (0..64).map(|_| owner.alloc(movable(0)).unwrap()).collect();
    owner.free(frames[7], Order::ZERO).unwrap();
    let block = range(frames[0].pageblock().get(), 512);
    let mut looked = 0;
    let result = fh.alloc_contig_range(block, |used| {
        refused(fh, None, range(frames[7].get(), 1), "in an isolated block");
        // A right free there is still a right one, once.
        if looked == 0 {
            fh.on(cpu(1)).free(frames[8], Order::ZERO).unwrap();
        }
        refused(fh, None, range(frames[8].get(), 1), "freed into an isolated block");
        looked += 1;
        assert!(!used.is_empty());
        false
    });
    assert!(result.is_err() && looked == 1);
    refused(fh, Some(&owner), range(frames[8].get(), 1), "after the isolation");
    frames.iter().filter(|pfn| ![frames[7], frames[8]].contains(pfn)).for_each(|&pfn| {
        owner.free(pfn, Order::ZERO).unwrap();
    });
    drop(owner);
    assert_all_free(fh);
}

/// Memory that went is none: its frames are holes to every door, also to one that knew them.
#[test]
fn frames_of_memory_that_went_are_holes() {
    let fh = alone(64);
    let owner = fh.own(cpu(0)).unwrap();
    let pfn = owner.alloc(movable(9)).unwrap();
    let block = range(pfn.get(), 512);
    assert!(matches!(fh.remove_memory(block), Err(HotplugError::Busy { .. })));
    owner.free(pfn, order(9)).unwrap();
    fh.remove_memory(block).unwrap();
    for gone in [pfn, Pfn::new(pfn.get() + 511)] {
        let hole = Err(FreeError::Hole { pfn: gone });
        assert_eq!(owner.free(gone, Order::ZERO), hole);
        assert_eq!(fh.on(cpu(2)).free(gone, Order::ZERO), hole);
        assert_eq!(owner.free_range(range(gone.get(), 1)), hole);
        assert_eq!(owner.free_bulk(&[gone]).map_err(|e| e.error), hole);
    }
    assert_eq!(owner.free(pfn, order(9)), Err(FreeError::Hole { pfn }));
    fh.add_memory(block).unwrap();
    // There again, and nobody has had it since.
    assert!(matches!(
        owner.free(pfn, Order::ZERO),
        Err(FreeError::NeverAllocated { .. } | FreeError::DoubleFree { .. })
    ));
    drop(owner);
    assert_all_free(fh);
}

/// A host that does something in the middle of a recall: every CPU has been knocked at, none has
/// given back yet.
struct DuringRecall {
    then: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
    late: AtomicU64,
}

impl Platform for DuringRecall {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
    fn heavy_barrier(&self) {
        let then = self.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
    }
    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_free_frame_is_refused_while_its_cpu_is_recalled() {
    let host: &'static DuringRecall = Box::leak(Box::new(DuringRecall {
        then: std::sync::Mutex::new(None),
        late: AtomicU64::new(0),
    }));
    let memory = [range(512, 16 * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh: &'static Alloc<'static> = Box::leak(Box::new(build(&Config::new(3, &[zone]), host)));
    let owner = fh.own(cpu(0)).unwrap();
    let frames: Vec<Pfn> = (0..64).map(|_| owner.alloc(movable(0)).unwrap()).collect();
    let block = owner.alloc(movable(9)).unwrap();
    owner.free(frames[5], Order::ZERO).unwrap();
    owner.free(block, order(9)).unwrap();
    let looked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let (in_hand, in_use) = (frames[5], frames[6]);
    *host.then.lock().unwrap() = Some(Box::new(move || {
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
        looked.store(true, Ordering::Relaxed);
    }));
    fh.drain_all();
    assert!(looked.load(Ordering::Relaxed), "nobody was recalled");
    for pfn in [in_hand, in_use] {
        assert_eq!(
            owner.free(pfn, Order::ZERO),
            Err(FreeError::DoubleFree { pfn }),
            "after the recall"
        );
    }
    let rest = frames.iter().filter(|&&pfn| pfn != in_hand && pfn != in_use);
    rest.for_each(|&pfn| owner.free(pfn, Order::ZERO).unwrap());
    assert_eq!((fh.totals().late_double_frees, host.late.load(Ordering::Relaxed)), (0, 0));
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
