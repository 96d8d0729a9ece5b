//! Whole replays of made-up traces: nothing may be lost, whatever the trace, and what is lost must
//! be noticed.

use crate::common::replays::{
    Setup, Toy, alloc, batched, drained, events as read, failed, free, run, through, zone_locked,
};
use freehold_lab::engines::MachineConfig;
use freehold_lab::replay::{NamedEngine, Recorded, Replay};
use freehold_trace::Event;
use proptest::prelude::*;

/// Any events at all, on few frames, so that every rule meets every other.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let event =
        (0u64..5000, 0u16..4, 0u64..96, 0u8..8, 0u8..16).prop_map(|(ms, cpu, pfn, size, what)| {
            let head = pfn >> size << size;
            match what {
                0..=5 => alloc(ms, cpu, head, size),
                6..=10 => free(ms, cpu, head, size),
                11..=12 => batched(ms, cpu, pfn),
                13 => drained(ms, cpu, pfn),
                14 => zone_locked(ms, cpu, pfn, size),
                _ => failed(ms, cpu, size),
            }
        });
    proptest::collection::vec(event, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_trace_makes_an_engine_lose_frames(events in events(), warm: bool, pressed: bool) {
        let setup = Setup { memory_frames: pressed.then_some(1024), cpus: None, warm };
        let (_, replay) = run(&events, setup);
        prop_assert!(replay.is_whole(), "{:?}", replay.engines[0].errors);
        let engine = &replay.engines[0];
        prop_assert_eq!(engine.lost_frames, 0);
        let facts = &replay.survey.facts;
        prop_assert_eq!(facts.events, events.len() as u64);
        prop_assert!(facts.remote_frees <= facts.known_frees);
        prop_assert!(facts.live_frames <= facts.peak_live_frames);
        prop_assert!(replay.survey.peak_frames(warm) >= facts.peak_live_frames);
        if !warm {
            prop_assert_eq!(engine.counters.allocs + engine.counters.failed, facts.allocs);
        }
    }
}

fn replayed<const N: usize>(engines: [(&str, Toy); N], events: &[Event]) -> Replay {
    let trace = Recorded { name: "test".into(), events: events.to_vec() };
    let engines =
        engines.map(|(name, engine)| NamedEngine { name: name.into(), engine: Box::new(engine) });
    through(&trace, &engines, &MachineConfig::new(16384, 2))
}

#[test]
fn a_lost_frame_is_noticed_and_blamed_on_its_engine_only() {
    let events: Vec<_> =
        (0..100).flat_map(|i| [alloc(i, 0, 100 + i, 0), free(i, 1, 100 + i, 0)]).collect();
    let replay = replayed([("good", Toy::new(16384)), ("bad", Toy::losing(16384, 40))], &events);
    assert!(replay.engines[0].whole, "{:?}", replay.engines[0].errors);
    assert!(!replay.engines[1].whole);
    // Frame 0, twice.
    assert_eq!(replay.engines[1].lost_frames, 1);
    assert!(!replay.is_whole());
}

#[test]
fn an_engine_that_crashes_does_not_take_the_others_with_it() {
    let events: Vec<_> = (0..100_000)
        .map(|i| if i % 2 == 0 { alloc(i, 0, 7, 0) } else { free(i, 1, 7, 0) })
        .collect();
    let crashing = Toy::crashing(16384, 10, "on purpose");
    let replay = replayed([("crashing", crashing), ("good", Toy::new(16384))], &events);
    assert!(replay.engines[1].whole, "{:?}", replay.engines[1].errors);
    assert_eq!(replay.engines[1].counters.allocs, 50_000);
    assert!(!replay.engines[0].whole);
    assert!(replay.engines[0].errors[0].contains("on purpose"), "{:?}", replay.engines[0].errors);
}

#[test]
fn memory_is_sampled_over_the_time_of_the_trace() {
    // Frame 7 of a block in use from 1 s to 3 s of 4 s: half of the samples see it.
    let events = read("0:0+1/0 1000:0-1/0 1000:0+2/0 3000:0-2/0 4000:0+3/0");
    let replay = replayed([("toy", Toy::new(16384))], &events);
    let samples = &replay.engines[0].samples;
    let times: Vec<_> = samples.iter().map(|sample| sample.point.ts_ns / 1_000_000).collect();
    assert_eq!(times, [0, 400, 800, 1200, 1600, 2000, 2400, 2800, 3200, 3600, 4000]);
    let live: Vec<_> = samples.iter().map(|sample| sample.point.live_frames).collect();
    assert_eq!(live, [0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1]);
}
