//! Each rule of reading a trace, with its own small example, seen from the engine's side. Events
//! and calls are written as [`events`] and [`run`] say.

use crate::common::replays::{Setup, alloc, batched, events, free, run};
use freehold_lab::replay::Replay;

/// Replays these events, of which the engine must see these calls and no frame be lost.
fn seen_with(setup: Setup, text: &str, calls: &[&str]) -> Replay {
    let (found, replay) = run(&events(text), setup);
    assert_eq!(found, calls);
    assert!(replay.is_whole(), "{:?}", replay.engines[0].errors);
    replay
}

fn seen(text: &str, calls: &[&str]) -> Replay {
    seen_with(Setup::default(), text, calls)
}

#[test]
fn frames_are_mapped_and_every_free_finds_its_allocation() {
    let replay = seen(
        "0:0+5000/0 1:1+9000/3 2:1-5000/0 3:0+700/0 4:1-9000/3",
        &["0+0/0", "1+8/3", "1-0/0", "0+0/0", "1-8/3"],
    );
    let facts = &replay.survey.facts;
    assert_eq!((facts.known_frees, facts.remote_frees, facts.peak_live_frames), (2, 1, 9));
    assert_eq!(facts.live_chunks, 1);
    assert_eq!((replay.replayed, replay.engines[0].lost_frames), (5, 0));
}

#[test]
fn a_failed_allocation_is_not_replayed() {
    let replay = seen("0:0+?/9 1:0+64/0", &["0+0/0"]);
    assert_eq!((replay.survey.facts.failed_allocs, replay.survey.facts.allocs), (1, 1));
}

#[test]
fn frees_confirmed_by_free_batched_go_as_one_batch() {
    // A commit may drain: that is no end of the batch. 11 never came to free_batched though 12
    // behind it did: it went to the zone before the commits began.
    seen(
        "0:0+10/0 0:0+11/0 0:0+12/0 1:0-10/0 1:0-11/0 1:0-12/0 1:0~10/0 1:0!77/0 1:0~12/0 2:0+10/0",
        &["0+0/0", "0+1/0", "0+2/0", "0-1/0", "0-[0/0,2/0]", "0+0/0"],
    );
}

#[test]
fn a_batch_never_exceeds_31() {
    let mut events: Vec<_> = (0..70).map(|pfn| alloc(0, 0, pfn, 0)).collect();
    for group in [0..31, 31..62, 62..70] {
        events.extend(group.clone().map(|pfn| free(1, 0, pfn, 0)));
        events.extend(group.map(|pfn| batched(1, 0, pfn)));
    }
    let calls = &run(&events, Setup::default()).0[70..];
    assert!(calls.iter().all(|call| call.starts_with("0-[")), "{calls:?}");
    let sizes: Vec<_> = calls.iter().map(|call| call.split(',').count()).collect();
    assert_eq!(sizes, [31, 31, 8]);
}

/// Another task runs on that CPU before the batch is committed.
#[test]
fn a_batch_is_freed_when_it_is_committed() {
    seen(
        "0:0+10/0 0:0+11/0 1:0-10/0 1:0-11/0 2:0+50/0 2:0-50/0 3:0~10/0 3:0~11/0 4:0+60/0",
        &["0+0/0", "0+1/0", "0+2/0", "0-2/0", "0-[0/0,1/0]", "0+0/0"],
    );
}

/// A row of a batch behind it, by clocks that differ, is not that free's.
#[test]
fn what_is_allocated_again_was_freed_at_its_row() {
    let replay =
        seen("0:0+10/0 1:0-10/0 1:1+10/0 2:0~10/0 3:1-10/0", &["0+0/0", "0-0/0", "1+0/0", "1-0/0"]);
    assert_eq!(replay.survey.facts.lost_frees, 0);
    // Until 4.14 the row of a batch comes first.
    seen(
        "0:0+10/0 1:0~10/0 1:0-10/0 2:0+10/0 3:0~10/0 3:0-10/0",
        &["0+0/0", "0-0/0", "0+0/0", "0-0/0"],
    );
}

#[test]
fn a_free_inside_a_larger_allocation_splits_it() {
    let replay = seen(
        "0:0+512/3 1:0-516/1 2:0+9999/0 3:0-512/1",
        &["0+0/3", "0/3>1", "0-4/1", "0+4/0", "0-0/1"],
    );
    assert_eq!((replay.survey.facts.split_frees, replay.survey.facts.live_frames), (1, 5));
    // And one of its first part.
    seen("0:0+512/2 1:0-512/0", &["0+0/2", "0/2>0", "0-0/0"]);
}

#[test]
fn a_free_over_smaller_allocations_frees_each() {
    let calls = ["0+0/0", "0+2/1", "0+1/0", "0-0/0", "0-2/1"];
    let replay = seen("0:0+64/0 0:0+66/1 0:0+68/0 1:0-64/2", &calls);
    assert_eq!((replay.survey.facts.wide_frees, replay.survey.facts.live_frames), (1, 1));
}

#[test]
fn an_allocation_of_a_live_frame_makes_up_for_the_free_that_was_not_traced() {
    let calls = ["0+0/0", "1-0/0", "1+0/0", "1-0/0", "1+0/1"];
    let replay = seen("0:0+64/0 1:1+64/0 2:1+64/1", &calls);
    assert_eq!(replay.survey.facts.lost_frees, 2);
}

#[test]
fn an_allocation_inside_a_live_one_splits_off_what_must_have_been_freed() {
    let calls = ["0+0/2", "0/2>0", "0-2/0", "0+2/0", "0-3/0"];
    let replay = seen("0:0+64/2 1:0+66/0 2:0-67/0", &calls);
    assert_eq!(replay.survey.facts.live_frames, 3);
}

#[test]
fn a_free_of_an_unknown_frame_is_counted_and_nothing_else() {
    let replay = seen("0:0-64/3 1:0-64/3 2:0+1/0", &["0+0/0"]);
    let facts = &replay.survey.facts;
    assert_eq!((facts.unknown_frees, facts.unknown_free_frames, facts.known_frees), (2, 16, 0));
    // The second cannot be of what was allocated before.
    assert_eq!(facts.repeated_frees, 1);
    let text = freehold_lab::tables::table::render(
        &replay,
        freehold_lab::tables::table::Style::plain(100),
    );
    assert!(text.contains("left out: 1 free of frames allocated before the recording"), "{text}");
    assert!(text.contains("1 free of frames that were free already"), "{text}");
}

#[test]
fn warm_puts_in_what_was_allocated_before_the_recording() {
    // 99 and 32 were allocated before; the second free of 10 is of nothing from before. What is put
    // in comes in rising order of frames, each by the CPU that will free it.
    let replay = seen_with(
        Setup { warm: true, ..Setup::default() },
        "0:0+10/0 1:1-99/0 2:0-10/0 3:0-10/0 4:0-32/2",
        &["0+0/2", "1+4/0", "0+5/0", "1-4/0", "0-5/0", "0-0/2"],
    );
    assert_eq!(replay.survey.peak_frames(true), 6);
    assert_eq!(replay.survey.warm.iter().map(|injection| injection.order.frames()).sum::<u64>(), 5);
    assert_eq!(replay.injected, 2);
}

#[test]
fn what_is_larger_than_the_engines_chunks_is_made_in_parts() {
    // Four parts of order 10, one of which is freed in two steps before the rest.
    let text = "0:0+0/12 1:1-1024/9 2:1-1536/9 3:1-0/10 4:1-2048/11 5:0+3/2";
    let (calls, replay) = run(&events(text), Setup::default());
    assert_eq!(calls[..4], ["0+0/10", "0+1024/10", "0+2048/10", "0+3072/10"]);
    let facts = &replay.survey.facts;
    assert_eq!((facts.in_parts, facts.misaligned, facts.unknown_frees), (1, 1, 0));
    assert_eq!((facts.peak_live_frames, facts.live_frames), (4096, 0));
    assert_eq!((facts.known_frees, facts.remote_frees, facts.wide_frees), (4, 4, 0));
    assert!(replay.is_whole());
}

#[test]
fn cpus_fold_onto_fewer() {
    let setup = Setup { cpus: Some(2), ..Setup::default() };
    let replay = seen_with(setup, "0:5+10/0 1:2-10/0 2:3+11/0", &["1+0/0", "0-0/0", "1+0/0"]);
    assert_eq!(replay.survey.facts.cpus_seen, 3);
}

#[test]
fn every_cpu_ticks_once_a_second_of_the_trace_80_ms_after_the_whole_second() {
    let calls = "0+0/0 1+1/0 0. 1. 1+2/0 1+3/0 0. 1. 0. 1. 0. 1. 1+4/0";
    let calls: Vec<_> = calls.split(' ').collect();
    seen("0:0+10/0 79:1+11/0 80:1+12/0 1079:1+13/0 3500:1+14/0", &calls);
}

#[test]
fn a_gap_of_years_costs_a_bounded_number_of_ticks() {
    let events = [alloc(0, 0, 10, 0), alloc(u64::MAX / 2_000_000, 0, 11, 0)];
    let (calls, _) = run(&events, Setup::default());
    assert_eq!(calls.iter().filter(|call| call.ends_with('.')).count(), 64);
}

#[test]
fn what_fails_in_the_engine_is_neither_freed_nor_split_there() {
    // 1,024 frames are all in use when more is asked for.
    let setup = Setup { memory_frames: Some(1024), ..Setup::default() };
    let calls = ["0+0/10", "0+?/0", "0-0/10"];
    let replay = seen_with(setup, "0:0+1024/10 1:0+1/0 2:0-1/0 3:0-1024/10", &calls);
    assert_eq!(replay.engines[0].counters.failed, 1);
    seen_with(setup, "0:0+1024/10 1:0+4/2 2:0-5/0 3:0-6/0", &["0+0/10", "0+?/2"]);
}
