//! Each rule of reading a trace, with its own small example, seen from the engine's side.

use crate::common::replays::{
    Call, Setup, alloc, allocated, batched, drained, failed, free, freed, run,
};
use freehold::Migratetype;

fn calls(events: &[freehold_trace::Event]) -> Vec<Call> {
    run(events, Setup::default()).0
}

#[test]
fn frames_are_mapped_and_every_free_finds_its_allocation() {
    let events = [
        alloc(0, 0, 5000, 0),
        alloc(1, 1, 9000, 3),
        free(2, 1, 5000, 0),
        alloc(3, 0, 700, 0),
        free(4, 1, 9000, 3),
    ];
    let (calls, replay) = run(&events, Setup::default());
    // The free of 5000 waits for CPU 1's next event that is no free; there is none before the end.
    assert_eq!(
        calls,
        [
            allocated(0, 0, 0),
            allocated(1, 8, 3),
            allocated(0, 1, 0),
            freed(1, 0, 0),
            freed(1, 8, 3)
        ]
    );
    assert!(replay.is_whole(), "{:?}", replay.engines[0].errors);
    let facts = &replay.survey.facts;
    assert_eq!((facts.known_frees, facts.remote_frees, facts.peak_live_frames), (2, 1, 9));
    assert_eq!(facts.live_chunks, 1);
    assert_eq!(replay.replayed, 5);
    assert_eq!(replay.engines[0].lost_frames, 0);
}

#[test]
fn a_failed_allocation_is_not_replayed() {
    let (calls, replay) = run(&[failed(0, 0, 9), alloc(1, 0, 64, 0)], Setup::default());
    assert_eq!(calls, [allocated(0, 0, 0)]);
    assert_eq!((replay.survey.facts.failed_allocs, replay.survey.facts.allocs), (1, 1));
}

#[test]
fn frees_confirmed_by_free_batched_go_as_one_batch() {
    let events = [
        alloc(0, 0, 10, 0),
        alloc(0, 0, 11, 0),
        alloc(0, 0, 12, 0),
        free(1, 0, 10, 0),
        free(1, 0, 11, 0),
        free(1, 0, 12, 0),
        batched(1, 0, 10),
        // A commit may drain: that is no end of the batch.
        drained(1, 0, 77),
        batched(1, 0, 12),
        alloc(2, 0, 10, 0),
    ];
    assert_eq!(
        calls(&events)[3..],
        // 11 never came to free_batched though 12 behind it did: it went to the zone before the
        // commits began.
        [freed(0, 1, 0), Call::Batch { cpu: 0, chunks: vec![(0, 0), (2, 0)] }, allocated(0, 0, 0)]
    );
}

#[test]
fn a_batch_never_exceeds_31() {
    let mut events: Vec<_> = (0..70).map(|pfn| alloc(0, 0, pfn, 0)).collect();
    for group in [0..31, 31..62, 62..70] {
        events.extend(group.clone().map(|pfn| free(1, 0, pfn, 0)));
        events.extend(group.map(|pfn| batched(1, 0, pfn)));
    }
    let sizes: Vec<_> = calls(&events)[70..]
        .iter()
        .map(|call| match call {
            Call::Batch { chunks, .. } => chunks.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [31, 31, 8]);
}

#[test]
fn more_pending_frees_than_a_batch_holds_were_single_frees() {
    let mut events: Vec<_> = (0..40).map(|pfn| alloc(0, 0, pfn, 0)).collect();
    events.extend((0..40).map(|pfn| free(1, 0, pfn, 0)));
    events.push(batched(1, 0, 39));
    let calls = &calls(&events)[40..];
    assert_eq!(calls.len(), 40);
    assert_eq!(calls[..39], (0..39).map(|at| freed(0, at, 0)).collect::<Vec<_>>());
    assert_eq!(calls[39], Call::Batch { cpu: 0, chunks: vec![(39, 0)] });
}

#[test]
fn another_cpu_may_allocate_the_frame_while_its_free_is_pending() {
    let events = [
        alloc(0, 0, 10, 0),
        free(1, 0, 10, 0),
        alloc(1, 1, 10, 0),
        batched(2, 0, 10),
        free(3, 1, 10, 0),
    ];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(
        calls,
        [
            allocated(0, 0, 0),
            allocated(1, 1, 0),
            Call::Batch { cpu: 0, chunks: vec![(0, 0)] },
            freed(1, 1, 0)
        ]
    );
    assert_eq!(replay.survey.facts.lost_frees, 0);
}

#[test]
fn a_free_inside_a_larger_allocation_splits_it() {
    let events =
        [alloc(0, 0, 512, 3), free(1, 0, 516, 1), alloc(2, 0, 9999, 0), free(3, 0, 512, 1)];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(
        calls,
        [
            allocated(0, 0, 3),
            Call::Split { at: 0, from: 3, to: 1 },
            freed(0, 4, 1),
            allocated(0, 4, 0),
            freed(0, 0, 1),
        ]
    );
    assert_eq!((replay.survey.facts.split_frees, replay.survey.facts.live_frames), (1, 5));
    assert!(replay.is_whole());
}

#[test]
fn a_free_of_the_first_part_of_an_allocation_is_a_split_too() {
    let events = [alloc(0, 0, 512, 2), free(1, 0, 512, 0)];
    assert_eq!(calls(&events)[1..], [Call::Split { at: 0, from: 2, to: 0 }, freed(0, 0, 0)]);
}

#[test]
fn a_free_over_smaller_allocations_frees_each() {
    let events = [alloc(0, 0, 64, 0), alloc(0, 0, 66, 1), alloc(0, 0, 68, 0), free(1, 0, 64, 2)];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(calls[3..], [freed(0, 0, 0), freed(0, 2, 1)]);
    assert_eq!((replay.survey.facts.wide_frees, replay.survey.facts.live_frames), (1, 1));
}

#[test]
fn an_allocation_of_a_live_frame_makes_up_for_the_free_that_was_not_traced() {
    let events = [alloc(0, 0, 64, 0), alloc(1, 1, 64, 0), alloc(2, 1, 64, 1)];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(
        calls,
        [
            allocated(0, 0, 0),
            freed(1, 0, 0),
            allocated(1, 0, 0),
            freed(1, 0, 0),
            allocated(1, 0, 1)
        ]
    );
    assert_eq!(replay.survey.facts.lost_frees, 2);
}

#[test]
fn an_allocation_inside_a_live_one_splits_off_what_must_have_been_freed() {
    let events = [alloc(0, 0, 64, 2), alloc(1, 0, 66, 0), free(2, 0, 67, 0)];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(
        calls,
        [
            allocated(0, 0, 2),
            Call::Split { at: 0, from: 2, to: 0 },
            freed(0, 2, 0),
            allocated(0, 2, 0),
            freed(0, 3, 0),
        ]
    );
    assert_eq!(replay.survey.facts.live_frames, 3);
}

#[test]
fn a_free_of_an_unknown_frame_is_counted_and_nothing_else() {
    let (calls, replay) =
        run(&[free(0, 0, 64, 3), free(1, 0, 64, 3), alloc(2, 0, 1, 0)], Setup::default());
    assert_eq!(calls, [allocated(0, 0, 0)]);
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
    let events = [
        alloc(0, 0, 10, 0),
        free(1, 1, 99, 0), // never seen: allocated before
        free(2, 0, 10, 0),
        free(3, 0, 10, 0), // seen: not from before
        free(4, 0, 32, 2), // never seen
    ];
    let (calls, replay) = run(&events, Setup { warm: true, ..Setup::default() });
    // In rising order of frames, each by the CPU that will free it.
    assert_eq!(
        calls,
        [
            allocated(0, 0, 2),
            allocated(1, 4, 0),
            allocated(0, 5, 0),
            freed(0, 5, 0),
            freed(0, 0, 2),
            freed(1, 4, 0),
        ]
    );
    assert_eq!(replay.survey.peak_frames(true), 6);
    assert_eq!(replay.survey.warm.iter().map(|injection| injection.order.frames()).sum::<u64>(), 5);
    assert_eq!(replay.injected, 2);
    assert!(replay.is_whole());
}

#[test]
fn what_is_larger_than_the_engines_chunks_is_made_in_parts() {
    // Four parts of order 10, one of which is freed in two steps before the rest.
    let events = [
        alloc(0, 0, 0, 12),
        free(1, 1, 1024, 9),
        free(2, 1, 1536, 9),
        free(3, 1, 0, 10),
        free(4, 1, 2048, 11),
        alloc(5, 0, 3, 2),
    ];
    let (calls, replay) = run(&events, Setup::default());
    assert_eq!(calls[..4], [0, 1024, 2048, 3072].map(|at| allocated(0, at, 10)));
    let facts = &replay.survey.facts;
    assert_eq!((facts.in_parts, facts.misaligned, facts.unknown_frees), (1, 1, 0));
    assert_eq!((facts.peak_live_frames, facts.live_frames), (4096, 0));
    assert_eq!((facts.known_frees, facts.remote_frees, facts.wide_frees), (4, 4, 0));
    assert!(replay.is_whole());
}

#[test]
fn cpus_fold_onto_fewer() {
    let events = [alloc(0, 5, 10, 0), free(1, 2, 10, 0), alloc(2, 3, 11, 0)];
    let (calls, replay) = run(&events, Setup { cpus: Some(2), ..Setup::default() });
    assert_eq!(calls, [allocated(1, 0, 0), allocated(1, 1, 0), freed(0, 0, 0)]);
    assert_eq!(replay.survey.facts.cpus_seen, 3);
}

#[test]
fn every_cpu_ticks_once_a_second_of_the_trace_80_ms_after_the_whole_second() {
    let events = [
        alloc(0, 0, 10, 0),
        alloc(79, 1, 11, 0),
        alloc(80, 1, 12, 0),
        alloc(1079, 1, 13, 0),
        alloc(3500, 1, 14, 0),
    ];
    let ticks = |n| (0..n).flat_map(|_| [Call::Tick { cpu: 0 }, Call::Tick { cpu: 1 }]);
    let expected: Vec<_> = [allocated(0, 0, 0), allocated(1, 1, 0)]
        .into_iter()
        .chain(ticks(1))
        .chain([allocated(1, 2, 0), allocated(1, 3, 0)])
        .chain(ticks(3))
        .chain([allocated(1, 4, 0)])
        .collect();
    assert_eq!(calls(&events), expected);
}

#[test]
fn a_gap_of_years_costs_a_bounded_number_of_ticks() {
    let events = [alloc(0, 0, 10, 0), alloc(u64::MAX / 2_000_000, 0, 11, 0)];
    let ticks = calls(&events).iter().filter(|call| matches!(call, Call::Tick { .. })).count();
    assert_eq!(ticks, 64);
}

#[test]
fn an_allocation_that_fails_in_the_engine_is_not_freed_there() {
    // 1024 frames, of which 1024 are in use when one more is asked for.
    let events = [alloc(0, 0, 1024, 10), alloc(1, 0, 1, 0), free(2, 0, 1, 0), free(3, 0, 1024, 10)];
    let (calls, replay) = run(&events, Setup { memory_frames: Some(1024), ..Setup::default() });
    let refused = Call::Alloc { cpu: 0, order: 0, migratetype: Migratetype::Movable, at: None };
    assert_eq!(calls, [allocated(0, 0, 10), refused, freed(0, 0, 10)]);
    assert_eq!(replay.engines[0].counters.failed, 1);
    assert!(replay.is_whole());
}

#[test]
fn what_splits_in_a_failed_allocation_fails_with_it() {
    let events = [alloc(0, 0, 1024, 10), alloc(1, 0, 4, 2), free(2, 0, 5, 0), free(3, 0, 6, 0)];
    let (calls, replay) = run(&events, Setup { memory_frames: Some(1024), ..Setup::default() });
    assert_eq!(calls.len(), 2);
    assert!(replay.is_whole());
}
