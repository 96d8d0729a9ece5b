//! The min mark: allowances that are taken by plain stores, told, recalled, beside grants. The
//! machine is that of the module above, and has a frame or two above its mark.

use super::*;
use crate::alloc::watch::ANY;
use crate::primitive::Relaxed;
use crate::zone::allowance::ORDINARY;
use crate::zone::supply::mode;

/// A machine with `above` frames above its mark, whose CPU 1 has freed `freed` of them and not
/// told. One of its blocks is split.
fn near_mark(above: u64, freed: u64) -> Small {
    let fh = small(false);
    let frames: std::vec::Vec<Pfn> =
        (0..=freed).map(|_| fh.on(cpu(0)).alloc(request(0)).unwrap()).collect();
    fh.on(cpu(0)).flush().unwrap();
    let all = FRAMES - 1;
    fh.set_watermarks(0, all - above, all - above, all - above).unwrap();
    // As where there was more above the mark when it was told last.
    fh.cpus[1].most.set(64);
    for &frame in &frames[1..] {
        free(fh, 1, frame, 0);
    }
    assert_eq!(fh.cpus[1].allowance[MOVABLE].get(), freed);
    fh
}

fn takes(fh: Small, c: u16, order: u8, flags: AllocFlags) -> u64 {
    let taken = fh.on(cpu(c)).alloc(request(order).flags(flags)).is_ok();
    if taken { 1 << order } else { 0 }
}

/// So many frames were above the mark, and so many of these are in use.
fn left(fh: Small, above: u64, taken: u64) {
    fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
    let free = fh.zone_stats(0).unwrap().free;
    assert_eq!(free, FRAMES - 1 - taken);
    assert!(taken <= above, "the mark is passed by {}", taken - above);
}

/// One of two CPUs gets the frame above the mark, where CPU 1 has freed so many and not told.
fn two_ask(freed: u64) {
    model_within(1, move || {
        let fh = near_mark(1, freed);
        let plain = AllocFlags::empty();
        let got =
            together::<u64>(roles![move || takes(fh, 0, 0, plain), move || takes(fh, 1, 0, plain)]);
        assert_eq!(got.iter().sum::<u64>(), 1);
        left(fh, 1, 1);
    });
}

/// Of two that ask for the last frame above the mark one gets it.
#[test]
fn two_cpus_ask_for_the_last_frame_above_the_mark() {
    two_ask(0);
}

/// A CPU takes what it has freed by plain stores, while another one asks for it.
#[test]
fn an_allowance_is_taken_while_it_is_recalled() {
    two_ask(1);
}

/// A CPU tells, by itself, while another one asks: nobody fails beside the frame.
#[test]
fn an_allowance_is_told_while_another_cpu_asks() {
    model_within(1, || {
        let fh = near_mark(1, 1);
        let got =
            together::<u64>(roles![move || takes(fh, 0, 0, AllocFlags::empty()), move || {
                fh.on(cpu(1)).tick().unwrap();
                0
            }]);
        assert_eq!(got, [1, 0]);
        left(fh, 1, 1);
    });
}

/// A request that may not wait counts on what the other CPU has, which tells meanwhile.
#[test]
fn a_request_that_may_not_wait_beside_a_cpu_that_tells() {
    model_within(2, || {
        let fh = near_mark(1, 1);
        let got =
            together::<u64>(roles![move || takes(fh, 0, 0, AllocFlags::NO_LOCK), move || {
                fh.cpu(&fh.cpus[1]).tell_all();
                0
            }]);
        left(fh, 1, got[0]);
        assert_eq!(takes(fh, 0, 0, AllocFlags::NO_LOCK), 1 - got[0]);
    });
}

/// A CPU that has seen the mode from before the zone was near its mark takes words of a block at
/// once, while another one takes a block.
#[test]
fn words_are_taken_beside_a_block_by_a_cpu_that_has_seen_an_older_mode() {
    model_within(1, || {
        let fh = near_mark(600, 0);
        fh.zones[0].mode.set(mode::ORDINARY);
        let plain = AllocFlags::empty();
        let got =
            together::<u64>(roles![move || takes(fh, 0, 9, plain), move || takes(fh, 1, 7, plain)]);
        let taken = got.iter().sum::<u64>();
        assert!([512, 128].contains(&taken), "{got:?}");
        left(fh, 600, taken);
    });
}

/// Grants by exchange beside frames that come: none is granted twice, none is lost.
#[test]
fn grants_beside_frames_that_come() {
    model_within(2, || {
        let fh = near_mark(1, 0);
        let zone = &fh.zones[0];
        let grant = move || {
            let granted = zone.reserve(fh.outside(), MOVABLE, 1, AllocFlags::NON_BLOCK);
            let taken = granted.is_some();
            core::mem::forget(granted);
            u64::from(taken)
        };
        let before = zone.free[ORDINARY].get();
        let got = together::<u64>(roles![grant, grant, move || {
            zone.add_free(ORDINARY, 1);
            fh.watch.came(ANY);
            0
        }]);
        assert_eq!(zone.free[ORDINARY].get(), before + 1 - got.iter().sum::<u64>());
    });
}

/// A CPU decides what it may keep of what it frees while a request begins to fail: from then on it
/// tells of each free.
#[test]
fn who_begins_to_fail_has_others_tell_of_each_free() {
    model_within(3, || {
        let fh = near_mark(300, 1);
        together::<()>(roles![
            move || core::mem::forget(crate::alloc::watch::Failing::new(fh)),
            move || {
                fh.cpu(&fh.cpus[1]).tell_all();
            }
        ]);
        assert_eq!(fh.cpus[1].most.get(), 0);
    });
}

/// The owner of a CPU leases a word, while the zone comes near its mark and the hands are emptied.
#[test]
fn nobody_has_anything_in_hand_once_the_hands_are_emptied() {
    model_within(2, || {
        let fh = small(true);
        fh.on(cpu(1)).alloc(request(0)).unwrap();
        fh.on(cpu(1)).flush().unwrap();
        let (owner, zone) = (fh.own(cpu(0)).unwrap(), &fh.zones[0]);
        together::<()>(roles![
            move || {
                owner.alloc(request(0)).unwrap();
                // To be dropped, it would wait for the other one.
                core::mem::forget(owner);
            },
            move || {
                zone.set_marks([FRAMES - 10; 3]);
                zone.update_mode();
                if zone.has_hands_to_empty() {
                    Recall::of_all(fh).empty_hands(zone);
                }
            }
        ]);
        // Where the owner's look at the counts, from before the marks, was written last, the next
        // one is right. Otherwise nothing is left to be done.
        zone.update_mode();
        assert!(zone.is_lean());
        if zone.has_hands_to_empty() {
            Recall::of_all(fh).empty_hands(zone);
        }
        assert_eq!(fh.cpus[0].leases.held.get(), 0);
        settled(fh, 2);
    });
}
