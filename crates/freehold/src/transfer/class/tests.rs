//! What the board says of a block after frames came and went, and what a wrong free counts meanwhile.

extern crate std;

use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::block::tag::ISOLATED;
use crate::cpu::by::OUTSIDE;
use crate::steps::interrupted;
use crate::testing::{Machine, machine, machine_on, place};
use crate::{CpuId, Migratetype, Order, Pfn, Request};

/// What comes into a leased word is its leaseholder's to take: to the board it is nothing, until
/// the lease ends. Else a block could be made whole again and again, and would never be.
#[test]
fn a_leased_word_does_not_count() {
    let fh = machine(1, 1024);
    let cpu = fh.on(CpuId::new(0));
    let movable = Request::new(Order::ZERO, Migratetype::Movable);
    let frames: [Pfn; FRAMES] = core::array::from_fn(|_| cpu.alloc(movable).unwrap());
    let (index, w) = place(&fh, frames[FRAMES - 1]);
    assert!(fh.map.head(index).is_leased(w));
    fh.free_word(None, frames[FRAMES - 1].get() / 64, 1, 1).unwrap();
    assert_eq!((fh.class_by_words(index), fh.map.line(index).word(w)), (CLASS_NONE, 1));
    cpu.flush().unwrap();
    assert_eq!(fh.class_by_words(index), 1);
    fh.validate().unwrap();
}

/// A split block all of whose frames are in use, and no word of which is leased.
fn full() -> (Machine, Index) {
    let fh = machine(1, 1024);
    let pfn = fh.on(CpuId::new(0)).alloc(Request::new(Order::PAGEBLOCK, Migratetype::Movable));
    let (index, _) = place(&fh, pfn.unwrap());
    // A part of it is freed, and taken again.
    fh.free_word(None, fh.map.base(index) / 64, 1, 1).unwrap();
    assert_eq!(fh.claim(OUTSIDE, index, 0), Some(0));
    fh.lower(OUTSIDE, index, fh.map.head(index).class());
    assert_eq!(fh.map.head(index).class(), CLASS_NONE);
    (fh, index)
}

/// The classes whose rows show a block.
fn rows_of(fh: &Machine, index: Index) -> Vec<u8> {
    let (rows, head) = (fh.map.rows(index), fh.map.head(index));
    let row = |class: u8| row_of(Migratetype::Movable as usize, class);
    (1..CLASS_WHOLE)
        .filter(|&class| fh.zones[0].board.shows(rows, row(class), head.number))
        .collect()
}

/// Frees these frames of a block, each by itself and outside every CPU's state.
fn free(fh: &Machine, index: Index, frames: core::ops::Range<u64>) {
    let key = fh.map.base(index) / 64;
    frames.for_each(|n| fh.free_word(None, key + n / 64, 1 << (n % 64), 1).unwrap());
}

#[test]
fn a_block_is_in_the_row_of_the_run_that_is_completed_wherever_in_its_word() {
    for (order, at) in [(1, 2), (2, 20), (3, 48), (4, 16), (5, 32)] {
        let (fh, index) = full();
        free(&fh, index, at..at + (1 << order));
        let class = order + 1;
        assert_eq!(fh.map.head(index).class(), class, "order {order} at {at}");
        assert!(rows_of(&fh, index).contains(&class), "order {order} at {at}");
        fh.validate().unwrap();
    }
}

/// Frame by frame, so that the last of each is what completes the run.
#[test]
fn words_that_lie_side_by_side_are_one_run() {
    let (fh, index) = full();
    for (words, class) in [(1, 7), (2, 8), (4, 9)] {
        let there = fh.open_words(index).iter().filter(|&&word| word == !0).count() as u64;
        free(&fh, index, there * 64..words * 64);
        assert_eq!(fh.map.head(index).class(), class, "{words} words");
        assert!(rows_of(&fh, index).contains(&class), "{words} words");
    }
    free(&fh, index, 256..512);
    assert_eq!(fh.map.head(index).tag.get().state(), WHOLE);
    fh.validate().unwrap();
}

/// The next search does not look at the block again.
#[test]
fn who_finds_less_than_a_class_says_lowers_it() {
    let (fh, index) = full();
    free(&fh, index, 0..256);
    assert_eq!((fh.claim(OUTSIDE, index, 7), rows_of(&fh, index).last()), (Some(0), Some(&9)));
    fh.lower(OUTSIDE, index, 9);
    assert_eq!(fh.map.head(index).class(), 8);
    assert!(!rows_of(&fh, index).contains(&9) && rows_of(&fh, index).contains(&8));
    fh.validate().unwrap();
}

/// A frame is freed that is free already, at each step of a call that takes all of its block away
/// for a moment and puts it back: it is counted once. Of the block `left` frames are free.
fn freed_twice_meanwhile(left: u64, call: impl Fn(&Machine, Index)) {
    let (mut n, mut told, mut reached) = (0, 0, true);
    while reached {
        n += 1;
        let (fh, index) = full();
        let fh: &'static _ = Box::leak(Box::new(fh));
        free(fh, index, 0..511);
        let wrong = move || {
            let _ = fh.free_word(None, fh.map.base(index) / 64 + 2, 1 << 5, 1);
        };
        reached = interrupted(n, wrong, || call(fh, index)).1;
        told += fh.totals().late_double_frees;
        let free: u32 = fh.open_words(index).map(u64::count_ones).iter().sum();
        assert_eq!((u64::from(free), fh.free_in(&fh.zones[0]).all), (left, 512 + left), "{n}");
    }
    assert!(told > 0, "no free came while the frames were away");
}

#[test]
fn a_frame_freed_twice_while_its_block_does_not_become_whole_counts_once() {
    freed_twice_meanwhile(511, |fh, index| assert!(!fh.take_all_words(index)));
    // The last frame comes, and the block is isolated once all of its words are taken.
    freed_twice_meanwhile(512, |fh, index| {
        let head = fh.map.head(index);
        fh.put_in_word(OUTSIDE, index, 7, 1 << 63);
        assert!(fh.take_all_words(index));
        let tag = head.tag.get();
        assert!(head.tag.exchange(tag, tag.with_flag(ISOLATED, true)));
        assert!(!fh.become_whole(OUTSIDE, index));
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
        let pfn = fh.on(CpuId::new(0)).alloc(Request::new(Order::ZERO, Migratetype::Movable));
        let index = fh.map.locate(pfn.unwrap().get()).unwrap();
        let free = fh.map.line(index).word(7) & 1;
        assert_eq!(free, 1, "a frame that is free already");
        return fh.put_back(OUTSIDE, index, 7, free);
    }
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(me);
    let output = child.args(["--exact", &name, "--nocapture"]).env("FREEHOLD_CHILD", "1").output();
    let output = output.unwrap();
    let text = std::string::String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), None, "it was not ended by a signal: {text}");
    assert!(text.contains("was freed twice") && text.contains("which it must not"), "{text}");
}
