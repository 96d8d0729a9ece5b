//! What each ordering is for, run by loom: a test for each, which fails where it is weaker.
//!
//! The machine is that of [`loom_tests`](super::loom_tests). Its fences before every sequentially
//! consistent read hide most of what a weaker access beside them would do, so most tests here are
//! run with fewer fences as well; see [`Strict`](crate::primitive::under_loom::Strict). Which
//! change each test notices is in `proofs/mutants/mutants.json`.

use super::loom_tests::*;
use crate::alloc::fast::FastAlloc;
use crate::block::LOOKS;
use crate::block::words::CLASS_NONE;
use crate::cpu::lease::{Leases, Purpose};
use crate::memory::isolate::Isolated;
use crate::primitive::{AtomicU32, Ordering, Relaxed, acquire_fence};
use crate::zone::board::row_of;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use std::cell::Cell;

/// Somebody looks at the blocks that the board shows, and lowers the class of those with less.
fn look(fh: Small) {
    look_for(fh, 0);
}

/// Somebody looks for a run of that order, as [`look`] does.
fn look_for(fh: Small, order: u32) {
    let _ = Want::new(order, MOVABLE).pick(fh.outside(), &fh.zones[0]).block(false, u32::MAX);
}

/// One block; word 0 is leased, all other words are in use, and the board says class 9 still.
#[test]
fn a_lease_ends_while_its_block_is_looked_at() {
    both(2, || {
        let fh = machine(false, 512);
        take(fh, 0, 0);
        for order in [8, 7, 6] {
            take(fh, 0, order);
        }
        together::<()>(roles![move || fh.on(cpu(0)).flush().unwrap(), move || look(fh)]);
        settled_of(fh, 512, 1 + 448);
    });
}

/// With nothing in hand: what came into the word is told by a thread that ends the lease.
#[test]
fn a_frame_comes_back_into_a_word_whose_empty_lease_ends() {
    both(2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        for order in [8, 7, 6] {
            take(fh, 0, order);
        }
        (1..64).for_each(|_| _ = take(fh, 0, 0));
        together::<()>(roles![move || fh.on(cpu(0)).flush().unwrap(), move || {
            free(fh, 1, frame, 0);
            look(fh);
        }]);
        settled_of(fh, 512, 511);
    });
}

/// All of a block is in use but for `there` frames, and the board does not know. With two of them
/// the class is lowered to theirs, where a run of four is looked for.
#[test]
fn a_chunk_comes_back_while_its_block_is_looked_at_in_vain() {
    for (order, there) in [(0, 0), (1, 0), (6, 0), (2, 2)] {
        both(2, move || {
            let fh = machine(false, 512);
            let chunks = [8, 7, 6, 6].map(|order| take(fh, 0, order));
            if there != 0 {
                free(fh, 0, chunks[3], 1);
            }
            let look = move || look_for(fh, there as u32);
            together::<()>(roles![move || free(fh, 1, chunks[0], order), look]);
            settled_of(fh, 512, 512 - there - (1 << order));
        });
    }
}

/// A word is leased of a block that has another type by now: it goes back, and is told of, since
/// nothing of a leased word counts for a thread that looks meanwhile.
#[test]
fn a_lease_comes_to_nothing_while_its_block_is_looked_at() {
    both(2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        for order in [8, 7, 6] {
            take(fh, 0, order);
        }
        fh.on(cpu(0)).flush().unwrap();
        together::<()>(roles![
            move || {
                let inside = inside(fh, 1);
                let block = fh.map.locate(frame.get()).unwrap();
                let before = block.tag.get().with_type(0);
                let w = (frame.get() / 64 % 8) as usize;
                let leased = inside.lease(block, w, before, (Purpose::Frames, MOVABLE), (0, None));
                assert_eq!(leased, None);
            },
            move || look(fh)
        ]);
        settled_of(fh, 512, 1 + 448);
    });
}

/// A block has a bit in a row from before. Somebody clears it; somebody else frees into the block,
/// which belongs in that row then.
#[test]
fn a_block_comes_back_to_a_row_while_its_bit_is_cleared() {
    both(2, || {
        let fh = machine(false, 512);
        let words = [8, 7, 6, 6].map(|order| take(fh, 0, order));
        let block = fh.map.locate(words[3].get()).unwrap();
        let (head, zone, row) = (block.head, &fh.zones[0], row_of(MOVABLE, 7));
        assert!(head.change_class(head.class(), CLASS_NONE));
        zone.board.set(fh.map.blocks.rows(block), row, head.number);
        together::<()>(roles![move || free(fh, 1, words[3], 6), move || {
            fh.outside().unlist(block, zone, row);
        }]);
        settled_of(fh, 512, 512 - 64);
    });
}

/// A row is found empty that the summary shows from before, and a block comes into it.
#[test]
fn a_row_with_something_in_it_is_found() {
    both(2, || {
        let fh = machine(false, 512);
        let block = fh.map.locate(take(fh, 0, 9).get()).unwrap();
        let (rows, number) = (fh.map.blocks.rows(block), block.number);
        let (board, row) = (&fh.zones[0].board, row_of(MOVABLE, 3));
        board.set(rows, row, number);
        board.clear(rows, row, number, || false);
        together::<()>(roles![
            move || {
                board.set(rows, row, number);
            },
            move || {
                board.next(row, 0, |_| Some(((), rows)), &mut 0);
            }
        ]);
        assert!(board.shows(rows, row, number), "no search comes to the block");
    });
}

/// A block is isolated while a word of it is leased: nothing of it is in a hand then.
#[test]
fn a_block_is_isolated_while_a_word_of_it_is_leased() {
    strictly(Strict::Between, 2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let block = fh.map.locate(frame.get()).unwrap();
        let tag = block.tag.get();
        let isolated = together::<Option<Isolated<'_, '_, Host>>>(roles![
            move || {
                let inside = inside(fh, 1);
                let w = (frame.get() / 64 % 8) as usize;
                inside.lease(block, w, tag, (Purpose::Frames, MOVABLE), (0, None));
                None
            },
            move || {
                let block = FrameRange::new(frame.pageblock(), 512).unwrap();
                Some(Isolated::new(fh, block).unwrap())
            }
        ]);
        fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        drop(isolated);
        settled_of(fh, 512, 1);
    });
}

/// All of a block is free, and somebody makes it whole, who finds its first word gone; it comes
/// back at this moment.
#[test]
fn a_word_comes_back_while_its_block_is_made_whole() {
    both(2, || {
        let fh = machine(false, 512);
        let first = take(fh, 0, 9).get();
        (0..7).for_each(|w| free(fh, 0, Pfn::new(first + w * 64), 6));
        let block = fh.map.locate(first).unwrap();
        together::<()>(roles![move || free(fh, 1, Pfn::new(first + 448), 6), move || {
            if block.claim_words_at::<1>(fh.outside(), 0) {
                fh.outside().put_back(block, 0, !0);
            }
        }]);
        settled_of(fh, 512, 0);
    });
}

/// Two words are wanted, and the second one goes to somebody else, who looks at the block then.
#[test]
fn a_claim_comes_to_nothing_while_its_block_is_looked_at() {
    strictly(Strict::Between, 2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        // Words 4 to 7, 1 and 2 go; 2 comes back; 3 was never taken.
        let [_, _, word] = [8, 6, 6].map(|order| take(fh, 0, order));
        fh.on(cpu(0)).flush().unwrap();
        assert_eq!(word.get() % 512, 128);
        free(fh, 1, word, 6);
        let block = fh.map.locate(frame.get()).unwrap();
        let got = together::<u64>(roles![
            move || 128 * u64::from(block.claim_words_at::<2>(fh.outside(), 2)),
            move || {
                let got = 64 * u64::from(block.claim_words_at::<1>(fh.outside(), 3));
                // Word 0 has less.
                look_for(fh, 6);
                got
            }
        ]);
        settled_of(fh, 512, 1 + 256 + 64 + got.iter().sum::<u64>());
    });
}

/// Two frames are left, in one word; both CPUs get one.
#[test]
fn the_last_two_frames_go_to_two_cpus() {
    both(2, || {
        let fh = machine(false, 512);
        for order in [5, 4, 3, 2, 1, 8, 7, 6] {
            take(fh, 0, order);
        }
        fh.on(cpu(0)).flush().unwrap();
        let anywhere = request(0).from(Pfn::new(1024)).below(Pfn::new(1536));
        let got =
            together::<bool>(roles![move || fh.on(cpu(0)).alloc(anywhere).is_ok(), move || gets(
                fh, 1, 0
            )]);
        assert!(got[0] && got[1], "a request failed although a frame was free: {got:?}");
        settled_of(fh, 512, 512);
    });
}

/// What the last owner of a frame did to it is done when the next one has it, by acquire and
/// release alone.
fn passed_on(prepare: fn(Small) -> Pfn, free: fn(Small, Pfn), taken: fn(Small, Pfn) -> bool) {
    strictly(Strict::Never, 2, move || {
        let fh = machine(false, 512);
        let frame = prepare(fh);
        let content = Arc::new(UnsafeCell::new(()));
        let again = content.clone();
        // Started first, so that it has run first in the first execution: of a word that the freer
        // itself has looked at since, loom no longer knows that somebody else had looked before.
        let freer = spawn(move || {
            content.with_mut(|_| ());
            free(fh, frame);
        });
        let taker = spawn(move || {
            if taken(fh, frame) {
                again.with_mut(|_| ());
            }
        });
        freer.join().unwrap();
        taker.join().unwrap();
    });
}

/// A block becomes whole, is used as a whole and split again, while somebody who knows it as the
/// split one that it was takes a frame of it: either before all that or after it.
#[test]
fn what_was_done_with_a_whole_block_is_passed_on_with_its_frames() {
    strictly(Strict::Never, 2, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let block = fh.map.locate(frame.get()).unwrap();
        let content = Arc::new(UnsafeCell::new(()));
        let again = content.clone();
        let splitter = spawn(move || {
            let zone = &fh.zones[0];
            free(fh, 1, frame, 0);
            if let Some(whole) = zone.take_whole(fh.outside(), Want::new(0, MOVABLE)) {
                content.with_mut(|_| ());
                fh.outside().split(whole, MOVABLE);
            }
        });
        let taker = spawn(move || {
            if block.claim_at(fh.outside(), 0, 1) {
                again.with_mut(|_| ());
            }
        });
        splitter.join().unwrap();
        taker.join().unwrap();
    });
}

/// Into a word whose leaseholder has nothing in hand.
#[test]
fn what_was_freed_into_a_leased_word_is_passed_on() {
    fn prepare(fh: Small) -> Pfn {
        let all: [Pfn; 64] = core::array::from_fn(|_| take(fh, 0, 0));
        all[0]
    }
    fn taken(fh: Small, frame: Pfn) -> bool {
        let slot = Leases::slot_of(frame.get() / 64);
        let inside = inside(fh, 0);
        inside.slot(slot).replenish() && inside.slot(slot).take(0).is_some()
    }
    passed_on(prepare, |fh, frame| free(fh, 1, frame, 0), taken);
    passed_on(prepare, |fh, frame| free(fh, 1, frame, 1), taken);
}

/// By a hint to a frame that somebody else has had meanwhile.
#[test]
fn what_was_freed_is_passed_on_by_a_hint() {
    fn prepare(fh: Small) -> Pfn {
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        free(fh, 1, frame, 0);
        let this = request(0).from(frame).below(Pfn::new(frame.get() + 1));
        assert_eq!(fh.on(cpu(0)).alloc(this), Ok(frame));
        frame
    }
    passed_on(
        prepare,
        |fh, frame| free(fh, 0, frame, 0),
        |fh, frame| {
            let _inside = inside(fh, 1);
            FastAlloc(fh.cpu(&fh.cpus[1])).recent_frame(MOVABLE) == Some(frame)
        },
    );
}

/// Just these frames, past the leases.
#[test]
fn what_was_freed_is_passed_on_within_limits() {
    fn prepare(fh: Small) -> Pfn {
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        frame
    }
    passed_on(
        prepare,
        |fh, frame| free(fh, 1, frame, 0),
        |fh, frame| {
            let block = fh.map.locate(frame.get()).unwrap();
            block.claim_at(fh.outside(), (frame.get() % 512) as usize, 1)
        },
    );
}

#[test]
fn a_word_is_passed_on() {
    fn prepare(fh: Small) -> Pfn {
        let word = take(fh, 0, 6);
        fh.on(cpu(0)).flush().unwrap();
        word
    }
    passed_on(
        prepare,
        |fh, word| free(fh, 1, word, 6),
        |fh, word| {
            let block = fh.map.locate(word.get()).unwrap();
            block.claim_words_at::<1>(fh.outside(), (word.get() / 64 % 8) as usize)
        },
    );
}

/// A whole one, by its bit in the zone's bitmap.
#[test]
fn a_whole_block_is_passed_on() {
    passed_on(
        |fh| take(fh, 0, 9),
        |fh, block| Freeing::of(fh, None).chunk(block, Order::PAGEBLOCK).unwrap(),
        |fh, _| fh.zones[0].take_whole(fh.outside(), Want::new(9, MOVABLE)).is_some(),
    );
}

fn wait() -> bool {
    thread::yield_now();
    true
}

/// A thread that looks at what another CPU keeps, outside its door, goes by the place alone: loom
/// reports a block that is read before it was made.
#[test]
fn a_block_that_a_place_names_is_set_up() {
    strictly(Strict::Never, 3, || {
        let fh = small(false);
        let kept = &fh.cpus[0].kept[0];
        together::<()>(roles![
            move || {
                assert!(fh.map.set_up(1024, wait));
                kept.set(fh.map.locate(1024).unwrap(), 0);
            },
            move || {
                if let Some((block, _)) = kept.seen(&fh.map.blocks) {
                    block.tag.get();
                }
            }
        ]);
        kept.clear();
        settled(fh, 0);
    });
}

/// Two set a section up, the same one or two: each block is there once.
#[test]
fn two_set_up_sections() {
    for (other, blocks) in [(1024, 2..4), (2048, 2..6)] {
        model(move || {
            let fh = machine(false, 2 * FRAMES);
            together::<()>(roles![move || assert!(fh.map.set_up(1024, wait)), move || {
                assert!(fh.map.set_up(other, wait));
            }]);
            let mut numbers: Vec<u32> = fh.map.all().map(|block| block.number).collect();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(blocks.clone()), "{numbers:?}");
            settled_of(fh, 2 * FRAMES, 0);
        });
    }
}

/// Ranges of memory are seen as they were before a change or after it, unless the looks are used
/// up.
#[test]
fn ranges_are_looked_at_while_they_change() {
    model(|| {
        let fh = small(false);
        // An entry that is there to be used.
        let range = &fh.map.ranges[1];
        assert!(range.is_spent());
        together::<()>(roles![move || fh.map.change_ranges(|| range.set(10, 20)), move || {
            let looks = Cell::new(0);
            let seen = fh.map.looked_at(|| {
                looks.set(looks.get() + 1);
                (range.start.get(), range.end.get())
            });
            assert!(
                looks.get() > LOOKS || seen == (0, 0) || seen == (10, 20),
                "half a change: {seen:?}"
            );
        }]);
        fh.map.change_ranges(|| range.spend());
        settled(fh, 0);
    });
}

/// Those who may not wait are kept out, too, and see what was done before.
#[test]
fn the_door_of_a_cpu_excludes_who_may_not_wait() {
    exclude(|fh, touch| {
        if let Some(inside) = Inside::try_enter(fh, &fh.cpus[0], false) {
            touch();
            drop(inside);
        }
    });
}

/// A thread that takes something from others while inside is inside still, or shows it.
fn seen_inside(owner: bool) {
    model(move || {
        let fh = small(true);
        let [taken, shown]: [&'static AtomicU32; 2] =
            [0, 0].map(|_| &*Box::leak(Box::new(AtomicU32::new(0))));
        let owned = owner.then(|| fh.own(cpu(0)).unwrap());
        let taker = spawn(move || {
            let anybodys = fh.on(cpu(0));
            let inside = match &owned {
                Some(owned) => owned.enter_to_free().unwrap(),
                None => anybodys.enter_to_free().unwrap(),
            };
            assert!(inside.is_some());
            taken.store(1, Ordering::Release);
            shown.set(1);
            drop(inside);
            owned
        });
        if taken.get() == 1 {
            acquire_fence();
            assert!(
                fh.cpus[0].door.is_occupied() || shown.get() == 1,
                "what was taken is nowhere to be seen"
            );
        }
        let _owned = taker.join().unwrap();
        set_alone(true);
    });
}

#[test]
fn an_owner_who_has_taken_something_is_seen_inside() {
    seen_inside(true);
}

#[test]
fn another_who_has_taken_something_is_seen_inside() {
    seen_inside(false);
}

/// A thread that walks over everything waits for an owner who is inside: what that one has half
/// done is not seen.
#[test]
fn all_is_walked_over_while_an_owner_frees() {
    model_within(2, || {
        let fh = machine(true, 512);
        let owner = fh.own(cpu(0)).unwrap();
        let frames: [Pfn; 64] = core::array::from_fn(|_| owner.alloc(request(0)).unwrap());
        let key = frames[0].get() / 64;
        // The hand has nothing, and says so.
        assert!(
            owner
                .enter_to_free()
                .unwrap()
                .is_some_and(|inside| !inside.slot(Leases::slot_of(key)).replenish())
        );
        let freed = together::<u64>(roles![
            move || {
                let freed = match owner.enter_to_free().unwrap() {
                    Some(inside) => {
                        Freeing::of(fh, Some(&inside)).word(key, 1, 1).map(|()| 1).unwrap()
                    }
                    None => 0,
                };
                // To be dropped, it would wait for the other one.
                core::mem::forget(owner);
                freed
            },
            move || {
                fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
                0
            }
        ]);
        settled_of(fh, 512, 64 - freed[0]);
    });
}

/// A CPU that comes in as a range is isolated takes a frame of it by a hint, and puts it back. The
/// range is had all the same, unless the CPU was first.
#[test]
fn a_range_is_had_beside_a_cpu_that_is_just_coming_in() {
    strictly(Strict::Never, 1, || {
        let fh = small(false);
        let [_, frame] = [0, 0].map(|order| take(fh, 0, order));
        fh.on(cpu(0)).flush().unwrap();
        free(fh, 1, frame, 0);
        let range = FrameRange::new(frame, 1).unwrap();
        let got = together::<bool>(roles![
            move || fh.alloc_contig_range(range, |_| false).is_ok(),
            move || take(fh, 1, 0) == frame
        ]);
        assert!(got[0] != got[1], "range: {}, by the hint: {}", got[0], got[1]);
    });
}
