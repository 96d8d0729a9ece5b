//! The recorded machine: every engine begins with what was free and in use, and says which machine
//! it was.

use crate::common::length::length;
use freehold::{CpuId, Migratetype, Order, Pfn};
use freehold_lab::engine::Engine;
use freehold_lab::engines::{self, ListFill, MachineConfig, RecordedZone};
use freehold_lab::replay::Recorded;
use freehold_lab::replay::fill::{Beside, Contents, InUse, Layout};
use freehold_trace::zoneinfo::Pageset;
use freehold_trace::{Event, EventKind};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::Value;

use crate::common::replays::{named, recordings, through};
use crate::common::{freehold, parsed};

fn replay(arguments: &[&str]) -> Value {
    parsed(freehold().args(["replay", "--json"]).args(arguments))
}

/// What the lists of two CPUs hold: single frames, some larger chunks, huge pages.
fn beside() -> Beside {
    let list = |(cpu, order, of, chunks)| {
        let (order, migratetype) = (Order::new(order).unwrap(), Migratetype::PCP[of]);
        (CpuId::new(cpu), ListFill { order, migratetype, chunks })
    };
    let lists = [(0, 0, 1, 3000), (0, 3, 0, 5), (1, 0, 2, 17), (1, 9, 1, 4), (1, 0, 1, 700)];
    Beside { lists: lists.map(list).into(), ..Beside::default() }
}

/// Frames on the lists of each CPU.
const LISTED: [u64; 2] = [3000 + 40, 17 + 4 * 512 + 700];

/// A zone of 1 GiB that has been in use for a while.
fn contents() -> Contents {
    let mut contents = Contents { blocks: [60, 400, 52], ..Contents::default() };
    contents.free[0] = [3, 1, 0, 2, 0, 1, 0, 0, 1, 0, 0];
    contents.free[1] = [120, 300, 200, 150, 120, 60, 40, 30, 20, 11, 60];
    contents.free[2] = [900, 200, 61, 20, 10, 4, 2, 1, 0, 0, 0];
    contents
}

/// That engine with its memory as the layout has it, and what is in use there.
fn begun(name: &str, machine: &MachineConfig, layout: &Layout) -> (Box<dyn Engine>, InUse) {
    let engine = engines::build(&name.parse().unwrap(), machine).unwrap();
    let in_use = layout.apply(&*engine, 2).unwrap_or_else(|error| panic!("{name}: {error}"));
    engine.start();
    (engine, in_use)
}

/// Takes 64 chunks of what is in use.
fn taken(in_use: &mut InUse, engine: &dyn Engine, order: Order) -> Vec<(Pfn, Order)> {
    (0..64).map(|_| (in_use.take(engine, order).expect("enough is in use"), order)).collect()
}

/// Frees the last that is in use, by turns on each of two CPUs, and finds all memory free.
fn ends_whole(
    name: &str,
    engine: &dyn Engine,
    frames: u64,
    in_use: impl Iterator<Item = (Pfn, Order)>,
) {
    for ((pfn, order), cpu) in in_use.zip([1, 0].into_iter().cycle()) {
        engine.free(CpuId::new(cpu), pfn, order).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    engine.drain_all();
    let memory = engine.memory();
    assert_eq!(memory.free_frames, frames, "{name}: everything came back");
    assert_eq!(memory.managed_frames, frames, "{name}");
    engine.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn every_engine_begins_with_the_same_free_chunks_and_ends_whole() {
    let machine = MachineConfig::new(1 << 18, 2);
    let layout = Layout::new(&contents(), &beside(), machine.memory_frames);
    let listed: u64 = LISTED.iter().sum();
    assert_eq!((layout.left_out, layout.listed_frames()), (0, listed));
    for name in engines::COMPARED.into_iter().chain(["5.17", "6.18"]) {
        let (engine, mut in_use) = begun(name, &machine, &layout);
        let memory = engine.memory();
        assert_eq!(memory.free_frames, layout.free_frames(), "{name}");
        assert_eq!(memory.free_chunks, layout.free_chunks(), "{name}: chunks by order");
        assert_eq!(memory.pcp_frames, 0, "{name}: CPUs begin empty");
        engine.fill_lists(&in_use.take_listed(2)).unwrap();
        let memory = engine.memory();
        assert_eq!(memory.free_frames, layout.free_frames() + listed, "{name}");
        if name == "freehold" {
            assert_eq!(memory.pcp_frames, 0, "{name} has no lists");
        } else {
            assert_eq!(memory.pcp_frames, listed, "{name}: as full as recorded");
            let counts = engine.counters();
            assert_eq!((counts.refilled_frames, counts.drained_frames), (0, 0), "{name}");
        }
        assert_eq!(engine.counters().frees, 0, "{name}: nothing of it counts");
        engine.validate().unwrap_or_else(|error| panic!("{name}: {error}"));

        // Neighbours in use are neighbours when they are freed.
        let taken = taken(&mut in_use, &*engine, Order::ZERO);
        let run = taken.windows(2).all(|pair| pair[1].0.get() == pair[0].0.get() + 1);
        assert!(run, "{name}: {taken:?}");
        let in_use = taken.into_iter().chain(in_use.into_chunks());
        ends_whole(name, &*engine, machine.memory_frames, in_use);
    }
}

/// A kernel of before 6.7 does not tune its lists' mark: what was recorded above it lies in the
/// zone.
#[test]
fn lists_of_designs_without_tuning_begin_up_to_their_mark() {
    const MARK: u64 = 400;
    let of = |high_min| {
        let set = |cpu: u16| Pageset {
            cpu: CpuId::new(cpu),
            count: LISTED[usize::from(cpu)],
            high: 5000,
            batch: 63,
            high_min,
            high_max: high_min.map(|_| 60_000),
        };
        let (managed, pagesets) = (1 << 18, vec![set(0), set(1)]);
        let (min, low, high) = (1000, 1250, 1500);
        let zone = RecordedZone { managed, min, low, high, pagesets, ..RecordedZone::default() };
        MachineConfig::of_zone(&zone, 2)
    };
    let all: u64 = LISTED.iter().sum();
    let listed = |name: &str, high_min| {
        let machine = of(high_min);
        let layout = Layout::new(&contents(), &beside(), machine.memory_frames);
        let (engine, mut in_use) = begun(name, &machine, &layout);
        engine.fill_lists(&in_use.take_listed(2)).unwrap();
        let memory = engine.memory();
        assert_eq!(memory.free_frames, layout.free_frames() + all, "{name}: none is lost");
        assert_eq!(engine.counters().drained_frames, 0, "{name}: it counts for nothing");
        memory.pcp_frames
    };
    for name in ["5.17", "6.6"] {
        let kept = listed(name, Some(MARK));
        // The chunk that reaches the mark may be a huge page.
        assert!((2 * MARK - 512..=2 * MARK).contains(&kept), "{name}: {kept}");
        assert_eq!(listed(name, None), all, "{name}: `high` is its mark where it is all there is");
    }
    assert_eq!(listed("6.7", Some(MARK)), all, "tuned up to what was recorded");
}

#[test]
fn cma_begins_as_full_as_the_rest_for_every_engine() {
    let machine = MachineConfig { cma_frames: 64 << 10, ..MachineConfig::new(1 << 18, 2) };
    let mut contents = contents();
    let most = contents.most_cma(machine.memory_frames);
    assert_eq!(most, (256 - 30 - 26) << 10, "regions that are not unmovable and not reclaimable");
    let frames = |of: &[u64]| of.iter().enumerate().map(|(order, n)| n << order).sum::<u64>();
    let recorded = contents.free.iter().map(|chunks| frames(chunks)).sum::<u64>();
    let movable = frames(&contents.free[1]);
    contents.set_cma(machine.cma().pop(), machine.memory_frames);
    let layout = Layout::new(&contents, &Beside::default(), machine.memory_frames);
    let cma_free = machine.cma_frames - layout.cma_used();
    let expected = movable * machine.cma_frames / most;
    let free = (layout.free_frames(), layout.left_out);
    assert_eq!(free, (recorded, 0), "CMA or not, as much is free as was recorded");
    // Whole regions, and chunks of each order, cannot be shared out to the frame.
    assert!(cma_free.abs_diff(expected) < expected / 25, "{cma_free} of {expected}");
    for name in engines::COMPARED.into_iter().chain(["5.17", "pcp-buddy,+cma-phases"]) {
        let (engine, mut in_use) = begun(name, &machine, &layout);
        assert_eq!(engine.memory().free_frames, layout.free_frames(), "{name}");
        assert_eq!(engine.memory().blocks_by_type[Migratetype::Cma.index()], 128, "{name}");
        assert_eq!(engine.free_cma(), cma_free, "{name}");
        engine.validate().unwrap_or_else(|error| panic!("{name}: {error}"));

        // What the trace frees of it is of both kinds.
        let range = machine.cma()[0];
        let taken = taken(&mut in_use, &*engine, Order::PAGEBLOCK);
        let of_cma = taken.iter().filter(|(pfn, _)| range.contains(*pfn)).count();
        assert!((10..=30).contains(&of_cma), "{name}: {of_cma} of 64");
        let in_use = taken.into_iter().chain(in_use.into_chunks());
        ends_whole(name, &*engine, machine.memory_frames, in_use);
    }
}

/// Movable single frames, then more unmovable ones than lie outside CMA, then both freed.
fn cma_trace() -> Vec<Event> {
    let event = |ms: u64, kind| Event { ts_ns: ms * 1_000_000, cpu: CpuId::new(0), pid: 1, kind };
    let order = Order::ZERO;
    let both = (0..4000u64).map(|pfn| (pfn, 1)).chain((10_000..19_000).map(|pfn| (pfn, 0)));
    let alloc = |(pfn, migratetype): (u64, u8)| {
        let of = Some(Pfn::new(pfn));
        event(pfn / 1000, EventKind::Alloc { pfn: of, order, migratetype, gfp_flags: 0 })
    };
    let free = |(pfn, _)| event(20, EventKind::Free { pfn: Pfn::new(pfn), order });
    both.clone().map(alloc).chain(both.map(free)).collect()
}

#[test]
fn what_cma_serves_is_counted_for_every_engine_alike() {
    // Half of 64 MiB.
    let machine = MachineConfig { cma_frames: 8 << 10, ..MachineConfig::new(16 << 10, 1) };
    let trace = Recorded { name: "cma".into(), events: cma_trace() };
    let vanilla = ["vanilla", "vanilla,-cma-half"];
    let engines = named(["5.17", vanilla[0], "pcp-buddy-fixed", "freehold", vanilla[1]], &machine);
    let replay = through(&trace, &engines, &machine);
    for engine in &replay.engines {
        let name = &engine.engine;
        assert!(engine.whole, "{name}: {:?}", engine.errors);
        let cma = engine.cma.expect("there is CMA");
        assert_eq!((cma.frames, cma.free_end, cma.movable_requests), (8192, 8192, 4000), "{name}");
        let lowest = 8192 - cma.movable_by_cma;
        assert_eq!(cma.free_lowest, lowest, "{name}: single frames, nothing freed between");
        let failed = (cma.failed_while_free, cma.failed_movable);
        assert_eq!(failed, (engine.counters.failed, 0), "{name}: what is free is CMA");
        assert!(cma.failed_while_free > 500, "{name}: {cma:?}");
        // Freehold's CPUs take words and blocks of 512 frames: on 32 of them its share is coarse.
        let least = if name == "freehold" { 500 } else { 1500 };
        let half = (least..=2600).contains(&cma.movable_by_cma);
        assert_eq!(half, name != "vanilla,-cma-half", "{name}: {cma:?}");
    }
    assert_eq!(replay.engines[4].cma.unwrap().movable_by_cma, 0, "there was enough besides");
    let without = MachineConfig { cma_frames: 0, ..machine };
    let replay = through(&trace, &engines, &without);
    assert!(replay.engines.iter().all(|engine| engine.cma.is_none()));
}

#[test]
fn a_share_of_the_recorded_machine_is_cma_if_asked_for() {
    let with =
        replay(&["--cma", "60%", "-e", "vanilla", "-e", "vanilla,-cma-half", "-e", "freehold"]);
    assert_eq!(with["machine"]["cma_frames"], 1536 << 10);
    let served = |n: usize| with["engines"][n]["cma"]["movable_by_cma"].as_u64().unwrap();
    let served = [0, 1, 2].map(served);
    assert!(served[0] > 0 && served[2] > 0 && served[1] < served[0], "{served:?}");
    let table = |arguments: &[&str]| freehold().arg("replay").args(arguments).assert();
    let counted = contains("movable requests served by it").and(contains("is CMA"));
    table(&["--cma", "10%", "-e", "vanilla"]).success().stdout(counted);
    table(&["--cma", "85%", "-e", "vanilla"]).code(2).stderr(contains("% can"));
    table(&["--cma", "85%", "--machine", "1G", "-e", "vanilla"]).success();
}

#[test]
fn the_sample_is_replayed_on_its_machine() {
    let recorded = replay(&["-e", "vanilla", "-e", "freehold"]);
    assert_eq!(recorded["machine"]["origin"], "recorded");
    assert_eq!(recorded["machine"]["memory_frames"], 2_621_440);
    let free = recorded["machine"]["free_frames_begin"].as_u64().unwrap();
    // What zoneinfo and pagetypeinfo count, and beside it what CPUs held.
    assert_eq!(free, 1_883_919);
    assert_eq!(recorded["machine"]["list_frames_begin"], 160_987);

    let given = replay(&["-e", "vanilla", "--machine", "1G"]);
    let given = &given["machine"];
    assert_eq!((&given["origin"], &given["memory_frames"]), (&"given".into(), &(1 << 18).into()));
    let table = freehold().args(["replay", "-e", "vanilla"]).assert().success();
    table.stdout(contains("the recorded machine"));
}

/// The kernel drained nothing under jemalloc-purge; on an invented machine of the trace's size the
/// model drains 160,000 frames, which CI looks at.
#[test]
fn what_the_kernel_did_not_drain_the_model_does_not() {
    let Some(traces) = recordings() else { return };
    let trace = traces.iter().find(|path| path.ends_with("jemalloc-purge.parquet"));
    let trace = trace.and_then(|path| path.to_str()).expect("it is one of them");
    assert_eq!(replay(&["-e", "vanilla", trace])["engines"][0]["drained_frames"], 0);
    if length(false, true) {
        let invented = replay(&["-e", "vanilla", "--machine", "2G", trace]);
        assert!(invented["engines"][0]["drained_frames"].as_u64() > Some(0));
    }
}
