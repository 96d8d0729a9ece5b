//! What the board says of a block after frames came and went, and what wrong frees count.

use super::*;
use crate::block::{ISOLATED, MOVABLE};
use crate::tests::testing::*;

/// What comes into a leased word is its leaseholder's to take: to the board it is nothing, until
/// the lease ends. Else a block could be made whole again and again, and would never be.
#[test]
fn a_leased_word_does_not_count() {
    let fh = machine(1, 1024);
    let cpu = fh.here();
    let movable = movable(0);
    let frames: [Pfn; FRAMES] = core::array::from_fn(|_| cpu.alloc(movable).unwrap());
    let (block, w) = place(&fh, frames[FRAMES - 1]);
    assert!(block.is_leased(w));
    Freeing::of(&fh, None).word(frames[FRAMES - 1].get() / 64, 1, 1).unwrap();
    assert_eq!((block.class_by_words(CLASS_NONE), block.line.word(w)), (CLASS_NONE, 1));
    cpu.flush().unwrap();
    assert_eq!(block.class_by_words(CLASS_NONE), 1);
    fh.validate().unwrap();
}

/// The block that a CPU took runs of last stays split, until it has gone on or let go of it.
#[test]
fn a_block_that_was_let_go_becomes_whole() {
    for (more, flush) in [(0, false), (2, false), (0, true)] {
        let fh = machine(1, 2048);
        let cpu = fh.here();
        let runs = [(); 2].map(|()| cpu.alloc(movable(8)).unwrap());
        (0..more).for_each(|_| _ = cpu.alloc(movable(8)).unwrap());
        if flush {
            cpu.flush().unwrap();
        }
        runs.into_iter().for_each(|pfn| cpu.free(pfn, of_order(8)).unwrap());
        let is_whole = place(&fh, runs[0]).0.head.tag.get().state() == WHOLE;
        assert_eq!(is_whole, more > 0 || flush, "{more} more, flushed: {flush}");
        fh.validate().unwrap();
    }
}

/// A split block all of whose frames are in use, and no word of which is leased.
fn full() -> (Machine, Block<'static>) {
    let fh = machine(1, 1024);
    let pfn = fh.here().alloc(movable(9));
    let (block, _) = place(&fh, pfn.unwrap());
    // A part of it is freed, and taken again.
    Freeing::of(&fh, None).word(block.base() / 64, 1, 1).unwrap();
    assert_eq!(block.claim(fh.outside(), 0), Some(0));
    fh.outside().lower(block, block.class(), block.class());
    assert_eq!(block.class(), CLASS_NONE);
    (fh, block)
}

/// The classes whose rows show a block.
fn rows_of(fh: &Machine, block: Block<'static>) -> Vec<u8> {
    let (rows, head) = (fh.map.blocks.rows(block), block.head);
    let row = |class: u8| row_of(MOVABLE, class);
    (1..CLASS_WHOLE)
        .filter(|&class| fh.zones[0].board.shows(rows, row(class), head.number))
        .collect()
}

/// Frees these frames of a block, each by itself and outside every CPU's state.
fn free(fh: &Machine, block: Block<'static>, frames: core::ops::Range<u64>) {
    let key = block.base() / 64;
    frames.for_each(|n| Freeing::of(fh, None).word(key + n / 64, 1 << (n % 64), 1).unwrap());
}

#[test]
fn a_block_is_in_the_row_of_the_run_that_is_completed_wherever_in_its_word() {
    for (order, at) in [(1, 2), (2, 20), (3, 48), (4, 16), (5, 32)] {
        let (fh, block) = full();
        free(&fh, block, at..at + (1 << order));
        let class = order + 1;
        assert_eq!(block.class(), class, "order {order} at {at}");
        assert!(rows_of(&fh, block).contains(&class), "order {order} at {at}");
        fh.validate().unwrap();
    }
}

/// Frame by frame, so that the last of each is what completes the run.
#[test]
fn words_that_lie_side_by_side_are_one_run() {
    let (fh, block) = full();
    for (words, class) in [(1, 7), (2, 8), (4, 9)] {
        let there = block.open_words().iter().filter(|&&word| word == !0).count() as u64;
        free(&fh, block, there * 64..words * 64);
        assert_eq!(block.class(), class, "{words} words");
        assert!(rows_of(&fh, block).contains(&class), "{words} words");
    }
    free(&fh, block, 256..512);
    assert_eq!(block.tag.get().state(), WHOLE);
    fh.validate().unwrap();
}

/// The next search does not look at the block again.
#[test]
fn who_finds_less_than_a_class_says_lowers_it() {
    let (fh, block) = full();
    free(&fh, block, 0..256);
    assert_eq!((block.claim(fh.outside(), 7), rows_of(&fh, block).last()), (Some(0), Some(&9)));
    fh.outside().lower(block, 9, 9);
    assert_eq!(block.class(), 8);
    assert!(!rows_of(&fh, block).contains(&9) && rows_of(&fh, block).contains(&8));
    // To the next smaller run at once, where that is there.
    block.claim(fh.outside(), 7).unwrap();
    free(&fh, block, 0..2);
    fh.outside().unlist(block, &fh.zones[0], row_of(MOVABLE, 2));
    fh.outside().lower(block, 8, 3);
    assert_eq!(block.class(), 2);
    assert!(!rows_of(&fh, block).contains(&8) && rows_of(&fh, block).contains(&2));
    fh.validate().unwrap();
}

/// A frame is freed that is free already, at each step of a call that takes all of its block away
/// for a moment and puts it back: it is counted once. Of the block `left` frames are free.
fn freed_twice_meanwhile(left: u64, call: impl Fn(&Machine, Block<'static>)) {
    let (mut n, mut told, mut reached) = (0, 0, true);
    while reached {
        n += 1;
        let (fh, block) = full();
        let fh: &'static _ = Box::leak(Box::new(fh));
        free(fh, block, 0..511);
        let wrong = move || {
            let _ = Freeing::of(fh, None).word(block.base() / 64 + 2, 1 << 5, 1);
        };
        reached = interrupted(n, wrong, || call(fh, block)).1;
        told += fh.totals().late_double_frees;
        let free: u32 = block.open_words().map(u64::count_ones).iter().sum();
        assert_eq!((u64::from(free), fh.zones[0].free(fh).all), (left, 512 + left), "{n}");
    }
    assert!(told > 0, "no free came while the frames were away");
}

#[test]
fn a_frame_freed_twice_while_its_block_does_not_become_whole_counts_once() {
    freed_twice_meanwhile(511, |fh, block| assert!(!block.take_all_words(fh)));
    // The last frame comes, and the block is isolated once all of its words are taken.
    freed_twice_meanwhile(512, |fh, block| {
        fh.outside().put_in_word(block, 7, 1 << 63);
        assert!(block.take_all_words(fh));
        let tag = block.tag.get();
        assert!(block.tag.exchange(tag, tag.with_flag(ISOLATED, true)));
        assert!(!fh.outside().become_whole(block));
    });
}

/// A host that panics where it is told of a frame freed twice.
struct Panics;

impl Platform for Panics {
    fn late_double_free(&self, pfn: Pfn) {
        panic!("{pfn} was freed twice");
    }
}

/// If it unwound, the door it happened behind would stay shut: here the thread would wait for ever.
#[cfg(unix)]
#[test]
fn a_host_that_panics_where_it_must_not_ends_the_program() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = std::format!("{module}::a_host_that_panics_where_it_must_not_ends_the_program");
    if std::env::var_os("FREEHOLD_CHILD").is_some() {
        let fh = machine_on(&Panics, 1, 1024);
        let pfn = fh.here().alloc(movable(0));
        let block = fh.map.locate(pfn.unwrap().get()).unwrap();
        let free = block.line.word(7) & 1;
        assert_eq!(free, 1, "a frame that is free already");
        return fh.outside().put_back(block, 7, free);
    }
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(me);
    let output = child.args(["--exact", &name, "--nocapture"]).env("FREEHOLD_CHILD", "1").output();
    let output = output.unwrap();
    let text = std::string::String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), None, "it was not ended by a signal: {text}");
    assert!(text.contains("was freed twice") && text.contains("which it must not"), "{text}");
}
