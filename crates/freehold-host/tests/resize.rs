//! Arenas that grow and shrink, and what they cost before anybody uses them.

#[path = "../../freehold-lab/tests/suite/common/length.rs"]
#[allow(unreachable_pub)]
mod length;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold_host::freehold::{FrameRange, Pfn};
use freehold_host::{Arena, Backing, Error, Frames, Numa, Topology};

use length::length;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// What is counted is this process's, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Bytes that this process has in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    kib.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn consistent(arena: &Arena) {
    arena.validate().unwrap();
    let stats = arena.stats();
    assert_eq!((stats.frames, stats.blocks), (arena.range().len(), arena.range().len() / 512));
    assert!(stats.frames <= stats.frames_reserved);
}

#[test]
fn an_arena_grows_into_what_was_reserved_and_no_further() {
    let _alone = alone();
    for backing in [Backing::Private, Backing::Memfd, Backing::HugePages] {
        let arena = Arena::builder(4 * MIB).reserve(64 * MIB).backing(backing).build().unwrap();
        assert_eq!((arena.stats().frames, arena.stats().frames_reserved), (1024, 16384));
        let first = arena.frames(1024).unwrap();
        assert!(arena.frames(1).is_err(), "it is full");
        let end = arena.range().end;
        assert_eq!(
            arena.pfn_of(first.as_ptr().wrapping_add(first.len())),
            None,
            "no frame of the arena yet"
        );

        let added = arena.grow(5 * MIB).unwrap();
        assert_eq!((added.start, added.len()), (end, 3 * 512), "whole blocks, right behind");
        let mut more = arena.zeroed(1536).unwrap();
        assert_eq!(more.range(), added);
        assert!(more.iter().all(|&byte| byte == 0));
        more.fill(7);
        assert_eq!(arena.pfn_of(more.as_ptr()), Some(added.start));
        consistent(&arena);

        assert_eq!(arena.grow(60 * MIB), Err(Error::Reserve { bytes: 54 * MIB }));
        assert!(matches!(arena.grow(0), Err(Error::Knob { knob: "grow", value: 0, .. })));
        arena.grow(54 * MIB).unwrap();
        assert_eq!(arena.grow(1), Err(Error::Reserve { bytes: 0 }));
        assert_eq!(arena.free_frames(), 54 * 256);
        // Neighbours, old and new.
        drop((first, more));
        let all = arena.frames(16384).unwrap();
        assert_eq!(all.range(), arena.range());
        drop(all);
        consistent(&arena);
    }
}

#[test]
fn what_is_reserved_for_nothing_stays_as_it_was() {
    let _alone = alone();
    let arena = Arena::with_size(4 * MIB).unwrap();
    assert_eq!(arena.grow(1), Err(Error::Reserve { bytes: 0 }));
    assert!(Arena::builder(MIB).reserve(TIB << 7).build().is_err());
    let hugetlb = Arena::builder(4 * MIB).reserve(8 * MIB).backing(Backing::Hugetlb).build();
    assert!(matches!(hugetlb, Err(Error::Knob { knob: "reserve", .. })), "{hugetlb:?}");
}

#[test]
fn an_arena_shrinks_by_what_is_free_and_says_how_much_that_is() {
    let _alone = alone();
    for backing in [Backing::Private, Backing::Memfd, Backing::HugePages] {
        let arena = Arena::builder(64 * MIB).backing(backing).build().unwrap();
        let mut all: Vec<_> = (0..32).map(|_| arena.frames(512).unwrap()).collect();
        all.sort_by_key(Frames::pfn);
        all.iter_mut().for_each(|block| block.fill(1));
        // Block 19 stays in use, by one frame; 20 to 31 are free.
        let (one, _) = all.swap_remove(19).split(1).unwrap();
        drop(all);
        let before = resident();
        assert_eq!(arena.shrink(32 * MIB), Err(Error::InUse { bytes: 24 * MIB }));
        consistent(&arena);
        assert_eq!(arena.stats().frames, 16384, "nothing has changed");

        let gone = arena.shrink(24 * MIB).unwrap();
        assert_eq!((gone.len(), gone.end.get()), (24 * 256, arena.range().start.get() + 16384));
        assert_eq!(arena.range().end, gone.start);
        // Code that runs for the first time comes into memory meanwhile, and a sanitizer's shadow.
        assert!(
            resident() + 20 * MIB < before,
            "its memory is the system's: {before}, {}",
            resident()
        );
        assert_eq!(arena.free_frames(), 40 * 256 - 1);
        consistent(&arena);
        assert_eq!(arena.shrink(2 * MIB), Err(Error::InUse { bytes: 0 }));

        // It comes back at the same addresses, zero.
        assert_eq!(arena.grow(24 * MIB), Ok(gone));
        let again = arena.zeroed(24 * 256).unwrap();
        assert!(again.iter().all(|&byte| byte == 0));
        drop((again, one));
        assert!(matches!(arena.shrink(64 * MIB), Err(Error::Knob { knob: "shrink", .. })));
        assert!(matches!(arena.shrink(0), Err(Error::Knob { knob: "shrink", .. })));
        arena.shrink(62 * MIB).unwrap();
        // Nothing can go of one block, and that is what it says.
        let error = arena.shrink(2 * MIB).unwrap_err().to_string();
        assert!(error.contains("that a block of 2 MiB is left"), "{error}");
        assert_eq!((arena.free_frames(), arena.stats().frames), (512, 512));
        consistent(&arena);
    }
}

#[test]
fn on_several_nodes_the_last_one_grows_and_shrinks() {
    let _alone = alone();
    let topology = Topology::parse("0-1\n", |node| Some(format!("{node}\n"))).unwrap();
    let builder =
        Arena::builder(32 * MIB).reserve(64 * MIB).topology(topology).numa(Numa::ZonesOnly);
    let arena = builder.build().unwrap();
    let frames = |zone: usize| arena.zone_stats(zone).unwrap().managed;
    assert_eq!((frames(0), frames(1)), (4096, 4096));
    arena.grow(32 * MIB).unwrap();
    assert_eq!((frames(0), frames(1)), (4096, 12288));
    assert!(arena.shrink(48 * MIB).is_err(), "a node keeps a block");
    arena.shrink(46 * MIB).unwrap();
    assert_eq!((frames(0), frames(1)), (4096, 512));
    consistent(&arena);
}

#[test]
fn others_allocate_and_free_while_it_grows_and_shrinks() {
    let _alone = alone();
    let arena = Arena::builder(16 * MIB).reserve(64 * MIB).build().unwrap();
    let done = AtomicBool::new(false);
    let (mut grown, mut shrunk) = (0, 0);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (arena, done) = (&arena, &done);
            scope.spawn(move || {
                let mut kept = Vec::new();
                let mut random = fastrand::Rng::with_seed(thread);
                // Relaxed: only says when to stop.
                while !done.load(Ordering::Relaxed) {
                    if let Ok(mut frames) = arena.frames([1, 3, 16, 64][random.usize(..4)]) {
                        frames[0] = 1;
                        kept.push(frames);
                    }
                    if kept.len() > 20 {
                        kept.clear();
                    }
                }
            });
        }
        for _ in 0..300 {
            grown += u64::from(arena.grow(8 * MIB).is_ok());
            if let Ok(gone) = arena.shrink(6 * MIB) {
                assert_eq!(gone.len(), 3 * 512);
                shrunk += 1;
            }
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(grown > 0 && shrunk > 0, "{grown} {shrunk}");
    assert_eq!(arena.stats().frames, 4096 + grown * 2048 - shrunk * 1536);
    assert_eq!(arena.free_frames(), arena.stats().frames);
    assert_eq!((arena.stats().refused_drops, arena.stats().late_double_frees), (0, 0));
    consistent(&arena);
}

#[test]
fn an_arena_that_nobody_uses_costs_next_to_nothing() {
    let _alone = alone();
    // What the first of all arenas brings into memory is the program's own.
    drop(Arena::with_size(TIB).unwrap());
    // The allocator has four bytes for each 128 MiB of addresses: of 60 TiB that is 2 MiB by
    // itself.
    for (bytes, reserve, most) in
        [(TIB, 0, MIB), (16 * TIB, 0, MIB), (MIB, 16 * TIB, MIB), (60 * TIB, 0, 3 * MIB)]
    {
        let before = resident();
        let arena = match Arena::builder(bytes).reserve(reserve).build() {
            Ok(arena) => arena,
            // Address space may be limited.
            Err(error) => {
                let _ = std::io::Write::write_fmt(
                    &mut std::io::stderr(),
                    format_args!("SKIPPED: {error}\n"),
                );
                return;
            }
        };
        let cost = resident().saturating_sub(before);
        assert!(cost <= most, "{bytes} and {reserve} bytes: {cost}");
        let frames = arena.frames(1).unwrap();
        let cost = resident().saturating_sub(before);
        assert!(cost <= most, "with a frame, {bytes} and {reserve} bytes: {cost}");
        drop(frames);
    }
}

#[test]
fn an_arena_of_several_tib_has_all_of_its_frames() {
    let _alone = alone();
    // The allocator is told of one TiB at a time: three in CI, two otherwise.
    let tibs = length(2, 3);
    let Ok(arena) = Arena::with_size(tibs * TIB + 6 * MIB) else { return };
    let gib = TIB / 4096 / 1024;
    assert_eq!(arena.free_frames(), arena.stats().frames);
    let mut all = Vec::new();
    while let Ok(frames) = arena.frames(gib) {
        all.push(frames);
    }
    assert_eq!(all.len() as u64, tibs * 1024);
    assert_eq!(arena.free_frames(), 3 * 512);
    let mut rest = [Default::default(); 3 * 512 + 1];
    let got = arena.alloc_bulk(freehold_host::freehold::Migratetype::Movable, &mut rest).unwrap();
    assert_eq!(got, 3 * 512);
    drop(all);
    // SAFETY: allocated just now, and used by nobody.
    unsafe { arena.free_bulk(&rest[..got]) }.unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);

    // Frames at the end are there as soon as they are named.
    let arena = Arena::with_size(tibs * TIB).unwrap();
    let end = arena.range().end.get();
    let last = FrameRange::new(Pfn::new(end - 512), 512).unwrap();
    assert_eq!(arena.shrink(TIB / 2).unwrap().len(), TIB / 8192);
    let more = (tibs - 1) * TIB;
    assert_eq!(arena.shrink(more).unwrap().len(), more / 4096);
    assert_eq!(arena.free_frames(), TIB / 8192);
    arena.grow(more + TIB / 2).unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
    assert!(arena.range().contains(last.start));
    consistent(&arena);
}

/// A page that cannot be written to in the middle of what is added is the one thing that makes
/// population fail on any machine.
#[test]
fn growth_that_cannot_be_populated_gives_back_what_was() {
    let _alone = alone();
    for backing in [Backing::Private, Backing::HugePages] {
        let builder = Arena::builder(4 * MIB).reserve(64 * MIB).populate(true).backing(backing);
        let arena = builder.build().unwrap();
        let at = (arena.range().end.get() * 4096 + 24 * MIB) as usize;
        let protect = |how| {
            let at = std::ptr::without_provenance_mut(at);
            // SAFETY: addresses that the arena has reserved and that nobody uses.
            assert_eq!(unsafe { libc::mprotect(at, 2 << 20, how) }, 0);
        };
        protect(libc::PROT_READ);
        let before = resident();
        let error = arena.grow(40 * MIB).unwrap_err();
        assert!(error.os_error().is_some(), "{error}");
        assert_eq!(arena.stats().blocks_resident, 2);
        assert!(resident() < before + 4 * MIB, "{before}, {}", resident());
        consistent(&arena);
        protect(libc::PROT_READ | libc::PROT_WRITE);
        let added = arena.grow(40 * MIB).unwrap();
        assert_eq!(arena.frames_in_memory(added), Ok(40 * 256));
        assert_eq!(arena.stats().blocks_resident, 22);
        consistent(&arena);
    }
}

/// The allocator is told of the last node's memory in steps of a TiB, and memory can be backed
/// before it is told.
#[test]
fn what_is_populated_where_nobody_has_allocated_yet_is_given_back() {
    let _alone = alone();
    for shrink in [false, true] {
        let Ok(arena) = Arena::with_size(3 * TIB) else { return };
        let end = arena.range().end.get();
        let last = FrameRange::new(Pfn::new(end - 8192), 8192).unwrap();
        let before = resident();
        arena.populate(last).unwrap();
        assert_eq!(arena.stats().blocks_resident, 16);
        if shrink {
            assert_eq!(arena.shrink(32 * MIB), Ok(last));
        } else {
            assert_eq!(arena.trim().unwrap().blocks, 16);
        }
        assert_eq!(arena.stats().blocks_resident, 0);
        assert!(resident() < before + 4 * MIB, "{before}, {}", resident());
        assert_eq!(arena.free_frames(), arena.stats().frames);
        consistent(&arena);
    }
}
