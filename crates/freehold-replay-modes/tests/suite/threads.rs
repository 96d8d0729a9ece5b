//! A replay on threads: what must hold whatever the interleaving, and that it would be noticed if
//! it did not.

use std::path::Path;

use clap::Parser;
use freehold::{AllocError, CpuId, FreeError, Migratetype, Order, Pfn};
use freehold_lab::passes::{self, Serial};
use freehold_lab::replay::engines_of;
use freehold_lab::replay_args::{Common, MachineArgs};
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::engine::{Block, Counters, Engine, Memory, Request};
use freehold_labkit::engines::{self, MachineConfig};
use freehold_labkit::replay::{Beginning, NamedEngine, Recorded, Replay, ReplayOptions, survey};
use freehold_replay_modes::threads::{self, replay_on_threads};
use freehold_testkit::replays::{Toy, alloc, batched, free};
use freehold_trace::Event;
use serde_json::Value;

use crate::modes;

/// What `freehold replay` takes, for the sample.
#[derive(Parser)]
struct Serially {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    machine: MachineArgs,
}

fn serially(arguments: &[&str]) -> Value {
    let Serially { common, machine } = Serially::parse_from([&["replay"], arguments].concat());
    let sample = "../freehold-lab/data/page-cache-churn.parquet";
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(sample);
    let trace = TraceFile::named(&sample, false, None).unwrap();
    let chosen = engines_of(&common, &trace, &[]).unwrap();
    let ready = passes::ready(&common, &machine, &chosen, &trace).unwrap();
    let how = Serial { jobs: 2, memory_maps: 0 };
    let replay =
        passes::serially(&common, &chosen.specs, (trace.shown(), &trace), ready, how).unwrap();
    serde_json::to_value(replay).unwrap()
}

fn on_threads(arguments: &[&str]) -> Value {
    let done = modes().args(["threads", "--json"]).args(arguments).assert().code(0);
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

fn through(engines: &[NamedEngine], events: &[Event], interrupts: f64) -> Replay {
    let trace = Recorded { name: "test".into(), events: events.to_vec() };
    let survey = survey(&trace, false, |_, _| {}).unwrap();
    let options = ReplayOptions { cpus: 2, warm: false, jobs: 1, samples: 1, memory_maps: 0 };
    replay_on_threads(Beginning::default(), &trace, &survey, engines, 16384, options, interrupts)
        .unwrap()
        .0
}

fn named(name: &str, engine: impl Engine + 'static) -> NamedEngine {
    NamedEngine { name: name.into(), engine: Box::new(engine) }
}

/// Each CPU allocates what the other frees, singly and in batches, and splits.
fn crossing(rounds: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for i in 0..rounds {
        let (cpu, pfn) = ((i % 2) as u16, (i % 64) * 8);
        events.extend([
            alloc(i, cpu, pfn, 0),
            alloc(i, cpu, pfn + 1, 0),
            alloc(i, cpu, pfn + 4, 2),
        ]);
        events.push(free(i, 1 - cpu, pfn + 6, 1));
        events.extend([free(i, 1 - cpu, pfn, 0), free(i, 1 - cpu, pfn + 1, 0)]);
        events.extend([batched(i, 1 - cpu, pfn), batched(i, 1 - cpu, pfn + 1)]);
        events.push(free(i, cpu, pfn + 4, 1));
    }
    events
}

#[test]
fn every_event_is_applied_and_no_frame_is_lost_with_any_engine() {
    let document = on_threads(&["--interrupts", "0.2"]);
    let threads = &document["threads"];
    assert_eq!((&threads["threads"], &threads["interrupts"]), (&Value::from(2), &Value::from(0.2)));
    let interrupts = threads["interrupt_frees"].as_u64().unwrap();
    assert!(interrupts > 0);
    let engines = document["engines"].as_array().unwrap();
    assert_eq!(engines.len(), 5);
    for engine in engines {
        let name = engine["engine"].as_str().unwrap();
        assert_eq!(
            (&engine["whole"], &engine["lost_frames"]),
            (&Value::from(true), &Value::from(0)),
            "{name}"
        );
        let made = engine["allocs"].as_u64().unwrap() + engine["failed"].as_u64().unwrap();
        assert_eq!(Some(made), document["trace"]["allocs"].as_u64(), "{name}");
        assert_eq!(engine["threads"]["applied"], engines[0]["threads"]["applied"], "{name}");
        let met = |what: &str| engine["threads"][what].as_u64().unwrap();
        assert!(met("remote_pcp_lock_waits") <= met("pcp_lock_waits"), "{name}");
        assert!(met("bypasses") <= met("trylock_failures"), "{name}");
        match name {
            // Whoever interrupts an owner cannot get in, and frees into the word.
            "freehold" => assert!(met("trylock_failures") >= interrupts && met("bypasses") == 0),
            // Owners' lists take every order up to a pageblock, so that every interrupt finds its
            // own held. Of those that belong to another CPU some do get in.
            _ => assert!(met("bypasses") > 0, "{name}"),
        }
    }
}

#[test]
fn on_one_cpu_threads_change_nothing_that_is_counted() {
    let arguments =
        ["--cpus", "1", "-e", "5.17", "-e", "vanilla", "-e", "pcp-buddy", "-e", "pcp-buddy-fixed"];
    let serial = serially(&arguments);
    let threaded = on_threads(&arguments);
    for (serial, threaded) in
        serial["engines"].as_array().unwrap().iter().zip(threaded["engines"].as_array().unwrap())
    {
        for count in [
            "allocs",
            "frees",
            "failed",
            "zone_lock_acquisitions",
            "zone_lock_work",
            "zone_lock_work_max",
            "refilled_frames",
            "drained_frames",
            "free_frames_end",
            "free_blocks_end",
        ] {
            assert_eq!(serial[count], threaded[count], "{count} of {}", serial["engine"]);
        }
        for met in
            ["shared_lock_waits", "pcp_lock_waits", "trylock_failures", "order_waits", "lead_waits"]
        {
            assert_eq!(threaded["threads"][met], 0, "{met} of {}", serial["engine"]);
        }
    }
}

#[test]
fn what_cma_serves_is_counted_on_threads_too() {
    let arguments = ["--cma", "40%", "-e", "vanilla", "-e", "freehold"];
    let serial = serially(&[&arguments[..], &["--cpus", "1"]].concat());
    let one = on_threads(&[&arguments[..], &["--cpus", "1"]].concat());
    let two = on_threads(&arguments);
    for n in 0..2 {
        let [serial, one, two] = [&serial, &one, &two].map(|document| &document["engines"][n]);
        let name = &serial["engine"];
        assert!(serial["cma"]["movable_by_cma"].as_u64() > Some(0), "{name}: {}", serial["cma"]);
        assert_eq!(serial["cma"], one["cma"], "{name}: on one CPU nothing differs");
        // On two, where each chunk comes from does; that every request is in the account does not.
        assert_eq!(
            (&two["whole"], &two["cma"]["frames"]),
            (&true.into(), &(1024 << 10).into()),
            "{name}: {two}"
        );
        assert_eq!(two["cma"]["movable_requests"], serial["cma"]["movable_requests"], "{name}");
        let of = |what: &str| two["cma"][what].as_u64().unwrap();
        assert!(
            of("movable_by_cma") > 0 && of("free_lowest") <= of("free_end"),
            "{name}: {}",
            two["cma"]
        );
    }
    let done = modes().arg("threads").args(arguments).assert().code(0);
    let table = String::from_utf8_lossy(&done.get_output().stdout);
    assert!(table.contains("CMA (different in every run)"), "{table}");
}

#[test]
fn interrupts_go_past_the_lists_as_often_as_they_arrive() {
    let arguments = ["--cpus", "1", "-e", "vanilla", "--interrupts"];
    let counts = |share: &str| {
        let document = on_threads(&[&arguments[..], &[share]].concat());
        let met = &document["engines"][0]["threads"];
        let interrupts = document["threads"]["interrupt_frees"].as_u64().unwrap();
        (interrupts, met["trylock_failures"].as_u64().unwrap(), met["bypasses"].as_u64().unwrap())
    };
    assert_eq!(counts("0"), (0, 0, 0));
    let (few, failures, bypasses) = counts("0.1");
    assert!(failures == bypasses && bypasses <= few && bypasses > 0, "{few} {failures} {bypasses}");
    let (all, failures, bypasses) = counts("1");
    assert!(
        all > 8 * few && failures == bypasses && bypasses <= all,
        "{all} {failures} {bypasses}"
    );
}

#[test]
fn engines_of_the_library_carry_out_crossing_frees_batches_and_splits() {
    let machine = MachineConfig::new(16384, 2);
    let build = |name: &str| NamedEngine {
        name: name.into(),
        engine: threads::build(&name.parse().unwrap(), &machine).unwrap(),
    };
    // Nearly every call waits for one of the other thread: on a busy machine each wait takes a time
    // slice.
    let events = crossing(300);
    for name in engines::COMPARED.into_iter().chain(["5.17"]) {
        let replay = through(&[build(name)], &events, 0.3);
        let engine = &replay.engines[0];
        assert!(engine.whole, "{name}: {:?}", engine.errors);
        assert_eq!(
            (engine.counters.allocs, engine.counters.failed, engine.lost_frames),
            (900, 0, 0),
            "{name}"
        );
        assert_eq!(engine.counters.frees, 1_200, "{name}");
        // Allocations, frees, splits; a tick a second and CPU.
        let ticks = 2 * (replay.survey.facts.last_ts_ns / 1_000_000_000);
        let met = engine.met.unwrap();
        assert!(
            met.applied.abs_diff(2_400 + ticks) <= 2,
            "{name}: {} of {}",
            met.applied,
            2_400 + ticks
        );
    }
}

#[test]
fn a_lost_frame_is_noticed() {
    let replay = through(
        &[named("good", Toy::new(16384)), named("bad", Toy::losing(16384, 500))],
        &crossing(300),
        0.0,
    );
    assert!(replay.engines[0].whole, "{:?}", replay.engines[0].errors);
    assert!(!replay.is_whole());
}

/// Hands out the same frame to everybody.
struct Double;

impl Engine for Double {
    fn alloc(&self, _: CpuId, _: Request) -> Result<Pfn, AllocError> {
        Ok(Pfn::new(4096))
    }
    fn free(&self, _: CpuId, _: Pfn, _: Order) -> Result<(), FreeError> {
        Ok(())
    }
    fn free_batch(&self, _: CpuId, _: &[(Pfn, Order)]) -> Result<(), FreeError> {
        Ok(())
    }
    fn split(&self, _: Pfn, _: Order, _: Order) -> Result<(), FreeError> {
        Ok(())
    }
    fn tick(&self, _: CpuId) {}
    fn drain_all(&self) {}
    fn counters(&self) -> Counters {
        Counters { allocs: 2, frees: 0, ..Counters::default() }
    }
    fn memory(&self) -> Memory {
        Memory::default()
    }
    fn blocks(&self) -> Vec<Block> {
        let migratetype = Migratetype::Movable;
        vec![Block { start: Pfn::new(4096), holder: None, migratetype, frames: 512, free: 512 }]
    }
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_frame_that_two_have_at_once_is_noticed() {
    let replay =
        through(&[named("double", Double)], &[alloc(0, 0, 64, 0), alloc(1, 1, 65, 0)], 0.0);
    let errors = &replay.engines[0].errors;
    assert!(errors.iter().any(|error| error.contains("while some of it was in use")), "{errors:?}");
}

#[test]
fn a_thread_that_dies_leaves_nobody_waiting() {
    let crashing = named("crashing", Toy::crashing(16384, 2, "third time unlucky"));
    let replay = through(&[crashing, named("good", Toy::new(16384))], &crossing(500), 0.0);
    assert!(
        replay.engines[0].errors[0].contains("third time unlucky"),
        "{:?}",
        replay.engines[0].errors
    );
    assert!(replay.engines[1].whole, "{:?}", replay.engines[1].errors);
}

#[test]
fn the_table_separates_what_differs_and_the_help_says_what_it_cannot_show() {
    let done =
        modes().args(["threads", "-e", "vanilla", "--cpus", "3"]).assert().code(0).stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    for part in
        ["THE SAME IN EVERY RUN", "order inversions", "3 threads on", "went to the zone instead"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let help = modes().args(["threads", "--help"]).assert().code(0);
    let help = String::from_utf8(help.get_output().stdout.clone()).unwrap();
    assert!(help.contains("order inversions") || help.contains("inversion of order"), "{help}");
    assert!(help.contains("full speed"), "{help}");
}
