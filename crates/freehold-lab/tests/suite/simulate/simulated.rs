//! The simulator as a library: the same every time, no frame lost, locks as queues, exact counts.

use std::sync::atomic::{AtomicBool, Ordering};

use freehold::{AllocFlags, Migratetype, Order, Pfn};
use freehold_lab::engine::Request;
use freehold_lab::engines::{EngineSpec, MachineConfig};
use freehold_lab::simulate::machine::Machine;
use freehold_lab::simulate::time::Time;
use freehold_lab::simulate::workloads::Setting;
use freehold_lab::simulate::{
    Bound, Kind, Model, Row, Scenario, SimulateError, simulate, simulate_all,
};
use freehold_lab::trials::simulated::{Simulated, with_simulated};

/// 1 GiB.
const FRAMES: u64 = 1 << 18;

fn spec(name: &str) -> EngineSpec {
    name.parse().unwrap()
}

fn scenario(engine: &str, workload: Kind, cpus: u16) -> Scenario {
    // Quick also without optimisation.
    let measured = Some(30_000);
    Scenario { measured, ..Scenario::new(spec(engine), workload, cpus, FRAMES) }
}

fn run(scenario: &Scenario) -> Row {
    simulate(scenario, &Model::standard()).unwrap()
}

const MOVABLE: Request =
    Request { order: Order::ZERO, migratetype: Migratetype::Movable, flags: AllocFlags::empty() };

/// What a model of round numbers says, so that times can be added up by hand.
fn round_model() -> Model {
    let mut model = Model::standard();
    (model.rmw_ns, model.transfer_ns, model.line_ns, model.chain_ns) = (1.0, 0.0, 0.0, 0.0);
    (model.hold_ns, model.bounce_ns, model.caller_ns) = (100.0, 1000.0, 0.0);
    for costs in model.engines.values_mut() {
        (costs.alloc_ns, costs.free_ns) = (10.0, 20.0);
        (costs.refill_step_ns, costs.drain_step_ns, costs.pcp_step_ns, costs.merge_step_ns) =
            (0.0, 0.0, 0.0, 0.0);
    }
    model
}

#[test]
fn the_same_scenario_gives_the_same_row_and_another_seed_another_one() {
    for engine in ["vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"] {
        let one = scenario(engine, Kind::KernelBuildLike, 3);
        let row = run(&one);
        assert_eq!(row, run(&one), "{engine}");
        assert_ne!(row.simulated_ns, run(&Scenario { seed: 2, ..one }).simulated_ns, "{engine}");
    }
}

/// `simulate` itself fails where a frame is lost or handed out twice: every workload on every kind
/// of engine.
#[test]
fn no_frame_is_lost_whatever_the_workload() {
    for kind in Kind::ALL {
        for engine in ["vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"] {
            let few = Scenario { measured: Some(10_000), ..scenario(engine, kind, 3) };
            let row = run(&Scenario { frames: 2 * FRAMES, ..few });
            assert!(row.frames > 0 && row.failed == 0, "{engine} {kind}: {row:?}");
        }
    }
}

/// Gives `test` a machine of so many CPUs with that engine, whose times are the model's.
fn with_machine(
    engine: &str,
    cpus: u16,
    model: &Model,
    test: impl FnOnce(&dyn Simulated, Machine<'_>),
) {
    let config = MachineConfig::new(FRAMES, cpus);
    let run = |engine: &dyn Simulated| {
        engine.start();
        test(engine, Machine::new(engine, model, &config))
    };
    with_simulated(&spec(engine), &config, run).unwrap()
}

/// Frames that CPU 0 allocates.
fn allocated(machine: &mut Machine<'_>, frames: u64) -> Vec<Pfn> {
    let alloc = |n: u64| machine.alloc(0, Time::from_ns(n as f64 * 1e4), MOVABLE).1;
    (0..frames).filter_map(alloc).collect()
}

#[test]
fn three_calls_of_order_4_queue_for_the_zone_lock() {
    with_machine("vanilla", 3, &round_model(), |_, mut machine| {
        // Vanilla keeps no chunks of order 4 on its CPUs' lists: each call is one hold of 100 ns,
        // asked for after the local 10 ns; from the second on another CPU had the lock before,
        // which makes it 1,100.
        let request = Request { order: Order::new(4).unwrap(), ..MOVABLE };
        let ends: Vec<u64> = (0..3u16)
            .map(|cpu| {
                let (end, pfn) = machine.alloc(cpu, Time::from_ns(f64::from(cpu)), request);
                assert!(pfn.is_some());
                end.whole_ns()
            })
            .collect();
        assert_eq!(ends, [110, 1210, 2310]);
        let tally = &machine.tally;
        // The second asks at 11 and begins at 110; the third asks at 12 and begins at 1,210.
        assert_eq!(tally.zone_wait.whole_ns(), 99 + 1198);
        assert_eq!((tally.zone_holds, tally.longest_hold.whole_ns()), (3, 1100));
        assert_eq!(tally.frames, 48);
    });
}

#[test]
fn a_free_waits_for_the_owner_of_its_block_and_an_allocation_goes_past_it() {
    let mut model = round_model();
    if let Some(costs) = model.engines.get_mut(&freehold_lab::model::Family::Owners) {
        costs.remote_free_ns = 50.0;
    }
    with_machine("pcp-buddy", 3, &model, |engine, mut machine| {
        // Enough that CPU 0 owns whole blocks.
        let mut at = Time::ZERO;
        let mut owned = Vec::new();
        for _ in 0..8192 {
            let (end, pfn) = machine.alloc(0, at, MOVABLE);
            at = end;
            owned.extend(pfn.filter(|&pfn| engine.home(pfn).is_some_and(|cpu| cpu.index() == 0)));
        }
        assert!(owned.len() >= 2, "CPU 0 owns no block");
        let free = |machine: &mut Machine<'_>, cpu, at, n: usize| {
            machine.free(cpu, at, &[(owned[n], Order::ZERO)])
        };
        let begun = at + Time::from_ns(1_000_000.0);
        let first = free(&mut machine, 1, begun, 0);
        let second = free(&mut machine, 2, begun, 1);
        assert_eq!(first - begun, Time::from_ns(50.0));
        assert_eq!(second - first, Time::from_ns(50.0), "one after the other");
        assert_eq!(machine.tally.pcp_wait, Time::from_ns(50.0));
        // While CPU 1 frees into CPU 0's lists, CPU 0 does not wait: it goes to the zone.
        let held = second + Time::from_ns(1_000_000.0);
        free(&mut machine, 1, held, 2);
        let (before, busy) = (machine.tally.zone_holds, machine.tally.pcp_busy);
        machine.alloc(0, held + Time::from_ns(1.0), MOVABLE);
        assert_eq!((machine.tally.zone_holds, machine.tally.pcp_busy), (before + 1, busy + 1));
    });
}

#[test]
fn two_who_free_into_one_line_queue_for_it() {
    let mut model = round_model();
    (model.transfer_ns, model.line_ns) = (200.0, 50.0);
    with_machine("vanilla", 3, &model, |_, mut machine| {
        let frames = allocated(&mut machine, 64);
        // Five records of 12 bytes share a line with the first of 16 frames.
        let find = |of: &dyn Fn(u64) -> bool| *frames.iter().find(|pfn| of(pfn.get())).unwrap();
        let first = find(&|pfn| pfn % 16 == 0);
        let second = find(&|pfn| pfn == first.get() + 1);
        let far = find(&|pfn| pfn.abs_diff(first.get()) >= 16);
        let begun = Time::from_ns(1e9);
        machine.advance(begun);
        let mut free =
            |cpu, pfn| (machine.free(cpu, begun, &[(pfn, Order::ZERO)]) - begun).whole_ns();
        // 20 ns by itself, and 50 for the line, which is on its way for 200.
        assert_eq!(free(1, first), 70);
        assert_eq!(free(2, second), 20 + 200 + 50, "it waits until the line has arrived at CPU 1");
        assert_eq!(free(2, far), 70, "another line");
        assert_eq!(machine.tally.line_wait.whole_ns(), 200);
    });
}

/// A free into a word that another CPU wrote last is a locked read-modify-write: it costs what a
/// remote free costs, and waits for the line; so does an allocation from a word that another CPU
/// has freed into.
#[test]
fn freehold_waits_for_words_that_others_wrote() {
    let mut model = round_model();
    (model.transfer_ns, model.line_ns) = (200.0, 50.0);
    if let Some(costs) = model.engines.get_mut(&freehold_lab::model::Family::Freehold) {
        (costs.remote_free_ns, costs.batch_free_ns) = (30.0, 15.0);
    }
    with_machine("freehold", 2, &model, |_, mut machine| {
        let frames = allocated(&mut machine, 128);
        let first = frames[0].get() / 64;
        let word = |n: u64| frames.iter().copied().filter(move |pfn| pfn.get() / 64 == first + n);
        let mut begun = Time::from_ns(1e9);
        let mut free = |cpu, chunks: &[_]| {
            begun += Time::from_ns(1e6);
            machine.advance(begun);
            (machine.free(cpu, begun, chunks) - begun).whole_ns()
        };
        let mut singles = word(0).map(|pfn| (pfn, Order::ZERO));
        let mut single = || [singles.next().expect("a frame of the first word")];
        assert_eq!(free(0, &single()), 20, "its own word");
        assert_eq!(free(1, &single()), 30 + 200, "another CPU's");
        assert_eq!(free(1, &single()), 20, "which has become its own");
        assert_eq!(free(0, &single()), 30 + 200, "and is fetched back");
        let batch: Vec<_> = word(1).map(|pfn| (pfn, Order::ZERO)).take(3).collect();
        assert_eq!(free(1, &batch), 30 + 200 + 2 * 15, "one wait for a word of a batch");
        assert_eq!(free(1, &single()), 30, "a block's words share a line, which has come already");
    });
}

#[test]
fn a_row_says_what_bounds_it() {
    let row = |think, cpus, engine: &str| {
        run(&Scenario {
            think_ns: Some(think),
            frames: 4 * FRAMES,
            ..scenario(engine, Kind::KernelBuildLike, cpus)
        })
    };
    let idle = row(1e6, 2, "vanilla");
    assert!(idle.bound == Bound::Think && idle.think_share > 0.99, "{idle:?}");
    let full = row(0.0, 64, "vanilla");
    assert!(full.bound == Bound::ZoneLock && full.zone_lock_wait_share > 0.5, "{full:?}");
    let alone = row(0.0, 1, "vanilla");
    assert!(alone.bound == Bound::Calls || alone.bound == Bound::Think, "{alone:?}");
    // (With 64 CPUs the stretch is so short that calls which end behind it are a good part of it.)
    for row in [&idle, &alone] {
        let waits = row.zone_lock_wait_share + row.pcp_lock_wait_share + row.line_wait_share;
        assert!((0.0..=1.001).contains(&(waits + row.think_share)), "{row:?}");
    }
}

#[test]
fn counts_of_pairs_do_not_depend_on_the_number_of_cpus() {
    for engine in ["vanilla", "freehold"] {
        let rows: Vec<Row> = [1, 2, 8].map(|cpus| run(&scenario(engine, Kind::Pair, cpus))).into();
        for row in &rows {
            // Each CPU has a frame in hand at most: once warm, nobody goes to the zone and nobody
            // waits.
            let zone = (row.zone_lock_acquisitions, row.zone_lock_wait_share);
            assert_eq!(zone, (0, 0.0), "{engine}");
        }
        // Twice the CPUs, twice the throughput, to a thousandth.
        let ratio = rows[2].frames_per_second / rows[0].frames_per_second;
        assert!((ratio - 8.0).abs() < 0.01, "{engine}: {ratio}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let error = simulate(&scenario("vanilla", Kind::ExitAvalanche, 1), &Model::standard());
    assert!(matches!(error, Err(SimulateError::TooFewCpus { .. })));
}

/// Workloads are smaller where memory is: 1,024 CPUs with 2 MiB each, and two with hardly any.
#[test]
fn any_number_of_cpus_is_simulated_on_any_memory() {
    for kind in Kind::ALL {
        for engine in ["vanilla", "freehold"] {
            for (cpus, frames, least) in [(1024, 1024 * 512, 10_000), (2, 1024, 5_000)] {
                let one = scenario(engine, kind, cpus);
                let row = run(&Scenario { frames, measured: Some(least), ..one });
                assert!(row.frames >= least, "{engine} {kind}: {row:?}");
            }
        }
    }
}

#[test]
fn where_there_is_memory_workloads_are_as_large_as_ever() {
    let setting =
        |frames| Setting { kind: Kind::KernelBuildLike, cpus: 4, frames, seed: 1, think_ns: 0.0 };
    assert_eq!(setting(1 << 20).scaled(8192), 8192);
    // A ninth and 4 MiB are left: of 16 MiB a CPU room for 3,413 frames.
    assert_eq!(setting(4 * 4096).scaled(8192), 3413);
    assert_eq!(setting(4).scaled(8192), 1);
}

#[test]
fn every_cpu_ticks_once_a_period() {
    let ticks = |tick_ms| {
        let row = run(&Scenario { tick_ms, ..scenario("freehold", Kind::KernelBuildLike, 4) });
        let periods = row.simulated_ns as f64 / 1e6 / tick_ms.max(1e-9);
        assert!((row.ticks as f64 - 4.0 * periods).abs() <= 4.0, "{row:?}");
        row
    };
    assert!(ticks(0.1).ticks > 100);
    ticks(0.5);
    let never = run(&Scenario { tick_ms: 0.0, ..scenario("freehold", Kind::KernelBuildLike, 4) });
    assert_eq!(never.ticks, 0);
}

#[test]
fn where_memory_is_plenty_there_are_no_heavy_barriers() {
    let want = Scenario {
        frames: 16 * 1024,
        measured: Some(40_000),
        ..scenario("freehold", Kind::KernelBuildLike, 16)
    };
    let plenty = run(&Scenario { frames: FRAMES, ..want.clone() });
    assert_eq!((plenty.heavy_barriers, plenty.failed), (0, 0));
    assert_eq!(run(&Scenario { engine: spec("vanilla"), ..want }).heavy_barriers, 0);
}

/// A CPU that has nothing reaches into the others before it gives up, and these are owned: each
/// barrier takes its caller so much for each other CPU.
#[test]
fn heavy_barriers_take_time_by_the_number_of_cpus() {
    let config = MachineConfig::new(4096, 4);
    let exhausted = |barrier_ns: f64| {
        let model = Model { barrier_ns, ..round_model() };
        with_simulated(&spec("freehold"), &config, |engine| {
            engine.start();
            let before = engine.heavy_barriers();
            let mut machine = Machine::new(engine, &model, &config);
            // Something that CPU 1 has in hand; CPU 0 takes the rest.
            let mut at = machine.alloc(1, Time::ZERO, MOVABLE).0;
            while machine.tally.failed == 0 {
                at = machine.alloc(0, at, MOVABLE).0;
            }
            (at, engine.heavy_barriers() - before)
        })
        .unwrap()
    };
    let ((free, barriers), (charged, again)) = (exhausted(0.0), exhausted(1000.0));
    assert!(barriers > 0 && barriers == again);
    assert_eq!((charged - free).whole_ns(), 3 * 1000 * barriers);
}

#[test]
fn threads_change_nothing_and_an_interrupted_run_says_so() {
    let (model, never) = (Model::standard(), AtomicBool::new(false));
    let kinds = [(Kind::Pair, 2), (Kind::Pair, 5), (Kind::ManyAllocFewFree, 2)];
    let of = |(kind, cpus)| ["vanilla", "freehold"].map(|engine| scenario(engine, kind, cpus));
    let short = |one| Scenario { measured: Some(10_000), ..one };
    let all: Vec<_> = kinds.into_iter().flat_map(of).map(short).collect();
    let whole = simulate_all(&all, &model, 2, &never, |_, _| ()).unwrap();
    assert!(!whole.interrupted && whole.results.len() == all.len());
    let alone = simulate_all(&all, &model, 1, &never, |_, _| ()).unwrap();
    assert_eq!(alone.results, whole.results);

    let stop = AtomicBool::new(false);
    let first = simulate_all(&all, &model, 1, &stop, |done, _| {
        if done == 3 {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let first = first.unwrap();
    assert!(first.interrupted && first.results.len() < all.len());
    assert!(first.results.iter().all(|row| whole.results.contains(row)));
}
